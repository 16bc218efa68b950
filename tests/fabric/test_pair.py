"""Two adapters on one link."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import VerbsError, WireError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import Buffer, Host
from rdmawire.fabric.link import Chances, Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP, End, Pair, Responder
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QPInit
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.key import Access
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType, WCOpcode, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, CNP, RETH, Ack, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet

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
    assert (done.byte_len, done.imm_data, done.src_qp) == (45, 1, pair.client.qp.qp_num)
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


def test_the_same_seed_gives_the_same_bytes_at_the_same_times() -> None:
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
        there = ATTRIBUTES._replace(ah=host.path_to(host), dest_qp_num=peer.qp_num)
        host.bring_up(qp, there)
    sink = host.buffer(5)
    host.nic.post_recv(two, (RecvWR((sink.sge(),)),))
    host.nic.post_send(one, (SendWR(SendOpcode.SEND, (host.filled(b"hello").sge(),)),))
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


LINUX = Path(__file__).parents[2] / "captures" / "linux"
"""Each a bad request behind a good one."""
WAYS: dict[str, Callable[[End], object]] = {
    "write": lambda client: client.write(b"hello", to=client.peer.region),
    "read": lambda client: client.read(3000, of=client.peer.region),
    "send": lambda client: client.send(b"hello"),
    "fetch_add": lambda client: client.fetch_add(7, of=client.peer.region),
    "long write": lambda client: client.write(bytes(3000), to=client.peer.region),
}


def requests(pair: Pair) -> list[bytes]:
    return pair.client.nic.transmit(0)


def beside(pair: Pair, request: bytes) -> Responder:
    """A responder in the server's place."""
    region = pair.server.region
    responder = Responder(request, peer_qpn=pair.client.qp.qp_num)
    responder.memory(region.address, region.region.length, region.rkey).write(region.read())
    return responder


@pytest.mark.parametrize("way", WAYS)
def test_it_answers_byte_for_byte_as_the_server_does(way: str) -> None:
    pair = Pair()
    pair.server.region.write(bytes(range(256)) * 16)
    pair.server.receive(100)
    WAYS[way](pair.client)
    frames = requests(pair)
    responder = beside(pair, frames[0])
    sink = responder.receive(100)
    for frame in frames:
        pair.server.nic.receive(frame, 0)
        assert responder.answer(frame) == pair.server.nic.transmit(0)
    assert [done.status.name for done in responder.poll()] == (["SUCCESS"] if way == "send" else [])
    assert sink.read(5) == (b"hello" if way == "send" else bytes(5))


def packets(name: str) -> list[tuple[bytes, Packet]]:
    """The frames of RDMA, and their packets."""
    found = []
    with open_capture(LINUX / name) as reader:
        for record in reader:
            with suppress(WireError):
                found.append((record.data, roce.parse(record.data).packet))
    return found


@pytest.mark.parametrize(
    ("name", "length", "key"),
    [
        ("rxe61_err_badrkey_write.pcap", 100, 0),
        ("rxe61_err_badrkey_read.pcap", 100, 1),
        ("rxe61_err_oob_write.pcap", 8, 0),
    ],
)
def test_a_capture_fed_whole_is_answered_as_linux_answered_it(
    name: str, length: int, key: int
) -> None:
    frames = packets(name)
    (first, request), (_, answer) = frames[:2]
    reth = next(piece for piece in request.extended if isinstance(piece, RETH))
    responder = Responder(first, peer_qpn=answer.bth.destqp, profile=RXE)
    responder.memory(reth.va, length, reth.rkey + key)
    said = [sent for frame, _ in frames for sent in responder.answer(frame)]
    answers = [packet for _, packet in frames if packet.bth.opcode == Opcode.RC_ACKNOWLEDGE]
    assert [roce.parse(sent).packet for sent in said] == answers
    assert responder.nic.drops == {Drop.NOT_MINE: len(answers)}


def test_memory_ends_where_it_was_said_to_end() -> None:
    pair = Pair()
    pair.client.write(bytes(100), to=pair.server.region, offset=8)
    (request,) = requests(pair)
    codes = []
    for length in 100, 99:
        responder = Responder(request)
        responder.memory(pair.server.region.address + 8, length, pair.server.region.rkey)
        (answer,) = responder.answer(request)
        (aeth,) = roce.parse(answer).packet.extended
        assert isinstance(aeth, AETH)
        codes.append((aeth.ack, aeth.value))
    assert codes[0][0] == Ack.ACK
    assert codes[1] == (Ack.NAK, Nak.REMOTE_ACCESS_ERROR)


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_services_without_answers_take_what_comes(kind: QPType) -> None:
    pair = Pair(kind=kind)
    pair.client.send(b"hello")
    (request,) = requests(pair)
    responder = Responder(request)
    sink = responder.receive(5)
    assert responder.answer(request) == []
    assert sink.read(5, offset=responder.qp.service.grh) == b"hello"
    assert not responder.nic.drops


def test_it_is_made_of_requests_of_roce_and_of_no_other_service() -> None:
    with pytest.raises(WireError):
        Responder(bytes(60))
    pair = Pair()
    packet = Packet.make(Opcode.CNP, CNP(), destqp=pair.server.qp.qp_num, becn=1)
    cnp = roce.Frame(pair.client.qp.request_template.headers, packet).seal().build()
    with pytest.raises(VerbsError, match="no responder for CNP: there are RC, UC, UD"):
        Responder(cnp)
