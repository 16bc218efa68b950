"""Two adapters on one link."""

from pathlib import Path
from random import Random

import pytest

from rdmawire.capture import open_capture
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import Buffer, Host
from rdmawire.fabric.link import Chances, Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QPInit
from rdmawire.memory.access import Access
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType, WCOpcode, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce

EVERYWHERE = pytest.mark.parametrize(
    ("profile", "ipv6"), [(IBTA, False), (IBTA, True), (RXE, False), (RXE, True)]
)


def statuses(pair: Pair) -> list[WCStatus]:
    return [done.status for end in (pair.client, pair.server) for done in end.poll()]


def test_a_lost_ack_is_asked_for_again() -> None:
    pair = Pair(link=Link(latency=us(1), drop={2}))
    pair.client.write(b"hello", to=pair.server.region)
    pair.drive()
    assert pair.server.region.read(5) == b"hello"
    assert pair.link.frames == 4
    assert statuses(pair) == [WCStatus.SUCCESS]


@EVERYWHERE
def test_every_verb_of_a_reliable_connection(profile: Profile, ipv6: bool) -> None:
    pair = Pair(link=Link(us(1)), profile=profile, ipv6=ipv6)
    client, server = pair.client, pair.server
    got = server.receive(100)
    noted = server.receive()
    client.send(b"a message", imm=7)
    client.write(bytes(range(16)), to=server.region, imm=9)
    read = client.read(12, of=server.region, offset=2)
    before = client.fetch_add(5, of=server.region)
    swapped = client.compare_swap(0x0706050403020105, 1, of=server.region)
    client.atomic_write(b"eight...", to=server.region, offset=8)
    client.flush(16, of=server.region)
    pair.drive()
    assert got.buffer.read(9) == b"a message"
    assert read.buffer.read() == bytes(range(2, 14))
    assert before.buffer.read() == bytes(range(8))
    assert swapped.buffer.read() == bytes((5, *range(1, 8)))
    assert server.region.read(16) == bytes((1, *bytes(7))) + b"eight..."
    assert [done.opcode for done in server.poll()] == [WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM]
    found = client.poll()
    assert [done.wr_id for done in found] == list(range(1, 8))
    assert {done.status for done in found} == {WCStatus.SUCCESS}
    assert noted.wr_id == 2


@EVERYWHERE
def test_unreliable_connection(profile: Profile, ipv6: bool) -> None:
    pair = Pair(kind=QPType.UC, profile=profile, ipv6=ipv6, link=Link(drop={1}))
    got = pair.server.receive(5)
    pair.client.send(b"lost")
    pair.client.send(b"found")
    pair.client.write(bytes(5000), to=pair.server.region)
    pair.drive()
    assert got.buffer.read() == b"found"
    assert statuses(pair) == [WCStatus.SUCCESS] * 4


@EVERYWHERE
def test_datagrams(profile: Profile, ipv6: bool) -> None:
    pair = Pair(kind=QPType.UD, profile=profile, ipv6=ipv6)
    got = pair.server.receive(5)
    pair.client.send(b"hello", imm=1)
    pair.drive()
    (done,) = pair.server.poll()
    assert (done.byte_len, done.imm_data, done.src_qp) == (45, 1, pair.client.qp.number)
    assert got.buffer.read(5, 40) == b"hello"


def test_the_key_of_the_peer_is_invalidated() -> None:
    pair = Pair()
    pair.server.receive()
    pair.client.send(invalidate=pair.server.region.rkey)
    pair.drive()
    assert pair.server.poll()[0].status is WCStatus.REM_INV_REQ_ERR
    assert pair.server.qp.state is QPState.ERR
    assert pair.client.poll()[0].status is WCStatus.SUCCESS


def test_a_peer_without_receives_ends_the_work() -> None:
    pair = Pair()
    pair.client.send(b"anyone?")
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [WCStatus.RNR_RETRY_EXC_ERR]


def test_a_dead_link_ends_the_work() -> None:
    pair = Pair(link=Link(chances=Chances(Random(1), drop=1.0)))
    pair.client.write(b"hello", to=pair.server.region)
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [WCStatus.RETRY_EXC_ERR]
    assert pair.link.frames == 1 + ATTRIBUTES.retry_cnt


def test_the_same_seed_gives_the_same_octets_at_the_same_times() -> None:
    def frames(seed: int) -> list[tuple[int, bytes]]:
        chances = Chances(Random(seed), drop=0.1, duplicate=0.1, delay=0.2)
        pair = Pair(link=Link(us(1), chances=chances))
        seen: list[tuple[int, bytes]] = []
        pair.simulator.on_sent.append(lambda frame, now: seen.append((now, frame.data)))
        pair.client.write(bytes(range(256)) * 80, to=pair.server.region)
        pair.client.read(9000, of=pair.server.region)
        pair.drive()
        assert pair.server.region.read(20480) == bytes(range(256)) * 80
        return seen

    assert frames(1) == frames(1)
    assert frames(1) != frames(2)


def test_what_passes_after_a_capture_was_closed_is_not_in_it(tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    pair = Pair()
    with pair.captured(path):
        pair.client.write(b"kept", to=pair.server.region)
        pair.drive()
    pair.client.write(b"not kept", to=pair.server.region)
    pair.drive()
    with open_capture(path) as reader:
        assert len(list(reader)) == 2


def test_a_tap_numbers_frames_as_the_link_does(tmp_path: Path) -> None:
    path = tmp_path / "lost.pcap"
    pair = Pair(link=Link(us(1), drop={2}))
    with CaptureTap(path, epoch=10**18) as tap:
        pair.simulator.on_sent.append(tap)
        pair.client.write(b"hello", to=pair.server.region)
        pair.drive()
    with open_capture(path) as reader:
        records = list(reader)
    times = [record.time_ns - 10**18 for record in records]
    psns = [roce.parse(record.data).packet.bth.psn for record in records]
    assert times == [0, us(1), (4096 << 14), (4096 << 14) + us(1)]
    assert psns == [100] * 4


def test_a_tap_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.pcap"
    with pytest.raises(ZeroDivisionError), CaptureTap(path) as tap:
        tap(Envelope(b"frame"), 1 // 0)
    assert not path.exists()


def test_a_connection_to_oneself() -> None:
    host, simulator = Host(), Simulator()
    simulator.attach(host.nic, host.mac, Link(drop=range(1, 1000)))
    cq = host.nic.create_cq(16)
    one, two = (host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP)) for _ in range(2))
    for qp, peer in ((one, two), (two, one)):
        there = ATTRIBUTES._replace(ah=host.path_to(host), dest_qp_num=peer.number)
        host.bring_up(qp, there)
    sink = host.buffer(5)
    host.nic.post_recv(two, (RecvWR((sink.sge(),)),), 0)
    host.nic.post_send(one, (SendWR(SendOpcode.SEND, (host.filled(b"hello").sge(),)),), 0)
    simulator.run()
    assert sink.read() == b"hello"
    assert [done.status for done in cq.poll(9)] == [WCStatus.SUCCESS] * 2


def test_buffers_are_read_and_written_by_offset() -> None:
    buffer: Buffer = Host().buffer(100, Access.LOCAL_WRITE)
    buffer.write(b"there", 90)
    assert buffer.read(offset=90) == b"there" + bytes(5)
    assert buffer.read(2, 91) == b"he"
    assert buffer.sge(4, 8) == (buffer.address + 8, 4, buffer.region.lkey)
    assert buffer.sge(offset=98).length == 2
