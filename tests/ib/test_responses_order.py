"""A READ sees memory as it was in its turn; what comes behind it is executed at once."""

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.ib import responses
from rdmawire.ib.responder_state import ReadResponse
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.memory.page import Path
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire.ib import IETH, RETH, Ack, AtomicETH, Nak
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import PATIENT, Stage, go, key_of, nak_of, outcomes, statuses
from tests.ib.test_responder_gpu_memory import Device

BEFORE = bytes(range(250)) * 16
READ, WRITE = Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_RDMA_WRITE_ONLY


def reading() -> Stage:
    """A server with a READ of four packets to answer, which was asked for no frame yet."""
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.region.write(BEFORE)
    stage.request(READ, key_of(stage.server.region, 4000), psn=100)
    return stage


def answered(stage: Stage) -> bytes:
    """The bytes of all READ responses."""
    return b"".join(sent.packet.payload for sent in stage.by(stage.server))


@pytest.mark.parametrize("mtu", [MTU.MTU_1024, MTU.MTU_4096])
def test_nothing_is_sent_again_where_nothing_is_lost(mtu: MTU) -> None:
    attributes = ATTRIBUTES._replace(retry_cnt=0, path_mtu=mtu, timeout=20)
    stage = Stage(Pair(Link(1000), attributes=attributes))
    size = 1 << 20
    there = stage.server.buffer(size)
    for _ in range(4):
        stage.client.read(size, of=there)
        stage.client.write(b"w" * size, to=there)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 8
    assert there.read() == b"w" * size
    requests = stage.psns(stage.client)
    assert len(set(requests)) == len(requests)


def test_a_write_behind_a_read_is_executed_at_once_and_does_not_show_in_it() -> None:
    stage = reading()
    stage.request(WRITE, key_of(stage.server.region, 5), payload=b"after", psn=104, ackreq=1)
    assert stage.server.region.read(5) == b"after"
    stage.drive()
    assert answered(stage) == BEFORE
    assert stage.psns(stage.server) == [100, 101, 102, 103, 104]


@pytest.mark.parametrize("offset", [0, 1, 1019, 1023, 1024, 2047, 3998])
def test_a_write_across_responses_shows_in_none_of_them(offset: int) -> None:
    stage = reading()
    there = stage.server.region
    reth = RETH(there.address + offset, there.rkey, 1000)
    stage.request(WRITE, reth, payload=b"w" * 1000, psn=104)
    stage.drive()
    assert answered(stage) == BEFORE
    assert there.read(1000, offset) == b"w" * 1000


def test_a_write_beside_a_read_has_nothing_kept() -> None:
    stage = reading()
    there = stage.server.region
    for start in (there.address + 4000, there.address + 5000):
        psn = stage.server.qp.inbound.epsn
        stage.request(WRITE, RETH(start, there.rkey, 5), payload=b"after", psn=psn)
    assert kept(stage) == 0


def kept(stage: Stage) -> int:
    """How many responses have their bytes kept."""
    (answer,) = (one for one in stage.server.qp.inbound.pending if isinstance(one, ReadResponse))
    return answer.packets_kept(1024)


def test_what_was_sent_may_be_asked_for_again_and_is_kept_too() -> None:
    stage = reading()
    there = stage.server.region
    sent = stage.server.nic.transmit(0, 2)
    for psn in range(104, 108):
        reth = RETH(there.address + (psn - 104) * 1000, there.rkey, 1000)
        stage.request(WRITE, reth, payload=b"w" * 1000, psn=psn)
    assert kept(stage) == 4
    assert len(sent) == 2
    stage.request(READ, key_of(there, 4000), psn=100)
    stage.drive()
    assert answered(stage) == BEFORE
    assert there.read(4000) == b"w" * 4000


def test_a_read_repeated_while_it_is_answered_keeps_what_it_kept() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(WRITE, key_of(there, 1000), payload=b"w" * 1000, psn=104)
    stage.server.nic.transmit(0, 2)
    stage.request(READ, key_of(there, 4000), psn=100)
    stage.drive()
    assert answered(stage) == BEFORE


def test_a_repeated_read_from_the_middle_keeps_what_it_kept() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(WRITE, RETH(there.address + 2000, there.rkey, 1000), payload=b"w" * 1000, psn=104)
    stage.server.nic.transmit(0, 1)
    stage.request(READ, RETH(there.address + 1024, there.rkey, 2976), psn=101)
    stage.drive()
    assert answered(stage) == BEFORE[1024:]


def test_a_read_repeated_after_its_answer_sees_memory_as_it_is() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(WRITE, key_of(there, 5), payload=b"after", psn=104)
    stage.drive()
    stage.request(READ, key_of(there, 4000), psn=100)
    stage.drive()
    assert answered(stage) == BEFORE + b"after" + BEFORE[5:]


def test_a_write_by_another_key_of_the_same_memory_does_not_show() -> None:
    stage = reading()
    server = stage.server
    memory = server.nic.memory
    rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
    again = memory.reg_mr(server.pd, server.region.address + 1000, 1000, rights)
    window = memory.alloc_mw(server.pd, 1)
    place = Bind(server.region.address + 2000, 1000, Access.REMOTE_WRITE)
    bind_window(memory.keys, window, server.region.region, place)
    stage.request(WRITE, RETH(again.iova, again.rkey, 5), payload=b"after", psn=104)
    stage.request(WRITE, RETH(window.iova, window.rkey, 5), payload=b"after", psn=105)
    assert kept(stage) == 2
    stage.drive()
    assert answered(stage) == BEFORE


def test_memory_of_which_nobody_can_say_where_it_is_is_kept_whole() -> None:
    stage = reading()
    device = Device(stage.server)
    stage.request(WRITE, key_of(device.there, 5), payload=b"after", psn=104)
    assert kept(stage) == 4
    stage.drive()
    assert answered(stage) == BEFORE


def test_a_read_of_a_gpu_keeps_what_is_written_there() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    device.gpu.write(device.address, BEFORE)
    stage.request(READ, key_of(device.there, 4000), psn=100)
    stage.request(WRITE, key_of(device.there, 5), payload=b"after", psn=104)
    assert kept(stage) == 1
    stage.drive()
    assert answered(stage) == BEFORE
    assert device.gpu.read(device.address, 5) == b"after"


def test_what_was_kept_of_memory_that_is_taken_back_is_not_sent() -> None:
    stage = reading()
    region = stage.server.region
    for psn in range(104, 108):
        reth = RETH(region.address + (psn - 104) * 1000, region.rkey, 1000)
        stage.request(WRITE, reth, payload=b"w" * 1000, psn=psn)
    stage.server.nic.memory.dereg_mr(region.region)
    stage.drive()
    assert answered(stage) == b""
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)


def test_the_peer_may_take_a_key_back_behind_its_read() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    server = stage.server
    server.region.write(BEFORE)
    memory = server.nic.memory
    window = memory.alloc_mw(server.pd, 2)
    start, rights = server.region.address, Access.REMOTE_READ
    place = Bind(start, 4000, rights, server.qp.qp_num, server.pd, window.key + 1)
    bind_window(memory.keys, window, server.region.region, place)
    server.receive()
    stage.request(READ, RETH(window.iova, window.rkey, 4000), psn=100)
    stage.request(WRITE, key_of(server.region, 5), payload=b"after", psn=104)
    stage.request(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, IETH(window.rkey), psn=105, ackreq=1)
    assert not window.valid
    stage.request(WRITE, key_of(server.region, 5), payload=b"later", psn=106)
    stage.drive()
    assert answered(stage) == BEFORE
    assert statuses(server) == [WCStatus.SUCCESS]


def test_an_atomic_behind_a_read_does_not_show_in_it() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(Opcode.RC_FETCH_ADD, AtomicETH(there.address, there.rkey, 1, 0), psn=104)
    stage.drive()
    assert answered(stage) == BEFORE
    assert there.read(1) == b"\x01"
    assert stage.opcodes(stage.server)[-1] is Opcode.RC_ATOMIC_ACKNOWLEDGE


def test_an_atomic_write_behind_a_read_does_not_show_in_it() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(Opcode.RC_ATOMIC_WRITE, key_of(there, 8), payload=b"together", psn=104)
    stage.drive()
    assert answered(stage) == BEFORE
    assert there.read(8) == b"together"


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_send_behind_a_read_does_not_show_in_it(pieces: int) -> None:
    stage = reading()
    there = stage.server.region
    sges = (there.sge(5),) if pieces == 1 else (there.sge(2), there.sge(3, 2))
    stage.server.nic.post_recv(stage.server.qp, (RecvWR(sges),))
    stage.request(Opcode.RC_SEND_ONLY, payload=b"after", psn=104)
    assert there.read(5) == b"after"
    stage.drive()
    assert answered(stage) == BEFORE


def test_a_send_into_a_receive_that_cannot_be_written_is_refused_behind_a_read() -> None:
    stage = reading()
    there = stage.server.region
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((there.sge(5)._replace(lkey=1),)),))
    stage.request(Opcode.RC_SEND_ONLY, payload=b"after", psn=104)
    stage.drive()
    assert answered(stage) == BEFORE
    assert nak_of(stage) == (Nak.REMOTE_OPERATIONAL_ERROR, 104)


def test_a_read_behind_a_write_behind_a_read_sees_what_that_wrote() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(WRITE, key_of(there, 5), payload=b"after", psn=104)
    stage.request(READ, key_of(there, 5), psn=105)
    stage.request(WRITE, key_of(there, 5), payload=b"later", psn=106, ackreq=1)
    stage.drive()
    assert answered(stage) == BEFORE + b"after"
    assert there.read(5) == b"later"
    assert stage.psns(stage.server)[-2:] == [105, 106]


def test_a_read_sees_memory_when_it_is_answered_if_nobody_wrote_by_the_wire() -> None:
    stage = reading()
    stage.server.region.write(b"by the host")
    stage.drive()
    assert answered(stage)[:11] == b"by the host"


def test_what_is_kept_was_read_once() -> None:
    stage = reading()
    stage.request(WRITE, key_of(stage.server.region, 5), payload=b"after", psn=104)
    stage.drive()
    tally = stage.server.nic.memory.counter[Path.HOST]
    assert (tally.bytes, tally.transactions) == (4000 + 5, 4 + 1)


def test_16_mib_are_kept_at_most() -> None:
    assert responses.MAX_KEPT == 16 << 20


@pytest.mark.parametrize(("size", "whole"), [(1 << 18, True), ((1 << 18) + 4096, False)])
def test_so_many_bytes_are_kept_at_most(
    size: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "MAX_KEPT", 1 << 18)
    stage = Stage(Pair(attributes=PATIENT._replace(path_mtu=MTU.MTU_4096)))
    there = stage.server.buffer(size)
    stage.request(READ, key_of(there, size), psn=100)
    for psn, start in enumerate(range(0, size, 4096), 100 + size // 4096):
        reth = RETH(there.address + start, there.rkey, 1)
        stage.request(WRITE, reth, payload=b"w", psn=psn)
    stage.drive()
    assert answered(stage).count(b"w") == (0 if whole else 1)
    assert there.read(1, size - 4096) == b"w"


KIB = 1024
"""The path MTU: bytes of a response."""


def two_reads(most: int, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A server that may keep ``most`` responses, with two READs of three packets to answer."""
    monkeypatch.setattr(responses, "MAX_KEPT", most * KIB)
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.region.write(b"b" * 3 * KIB)
    for psn in (100, 103):
        stage.request(READ, key_of(stage.server.region, 3 * KIB), psn=psn)
    return stage


OVERWRITTEN = {
    (0, KIB, 2 * KIB): [100, 103, 101, 104, 102, 105],
    (KIB // 2, 3 * KIB // 2): [100, 101, 103, 104, 102, 105],
    (2 * KIB, KIB, 0): [102, 105, 101, 104, 100, 103],
}
"""Starts of WRITEs of 1024 bytes, and the PSNs of the responses that they change, in order."""


@pytest.mark.parametrize("most", range(8))
@pytest.mark.parametrize(("starts", "changed"), OVERWRITTEN.items())
def test_the_first_responses_that_change_are_kept(
    most: int, starts: tuple[int, ...], changed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = two_reads(most, monkeypatch)
    there = stage.server.region
    for psn, start in enumerate(starts, 106):
        reth = RETH(there.address + start, there.rkey, KIB)
        stage.request(WRITE, reth, payload=b"w" * KIB, psn=psn)
    stage.drive()
    sent = {one.packet.bth.psn: one.packet.payload for one in stage.by(stage.server)}
    assert {psn for psn in changed if b"w" not in sent[psn]} == set(changed[:most])


@pytest.mark.parametrize("most", range(8))
def test_the_first_reads_whose_key_goes_are_kept(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is kept as a whole, or not at all: a NAK takes the place of the first that is not."""
    monkeypatch.setattr(responses, "MAX_KEPT", most * KIB)
    stage = Stage(Pair(attributes=PATIENT))
    server = stage.server
    server.region.write(b"b" * 3 * KIB)
    window = server.nic.memory.alloc_mw(server.pd, 2)
    start, rights = server.region.address, Access.REMOTE_READ
    place = Bind(start, 3 * KIB, rights, server.qp.qp_num, server.pd, window.key + 1)
    bind_window(server.nic.memory.keys, window, server.region.region, place)
    server.receive()
    for psn in (100, 103):
        stage.request(READ, RETH(window.iova, window.rkey, 3 * KIB), psn=psn)
    stage.request(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, IETH(window.rkey), psn=106)
    stage.drive()
    whole = min(most // 3, 2)
    assert answered(stage) == b"b" * 3 * KIB * whole
    naks = [aeth for aeth in stage.aeths(server) if aeth.ack == Ack.NAK]
    assert len(naks) == (whole < 2)


def test_an_error_silences_a_read_and_keeps_what_was_executed() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(WRITE, key_of(there, 5), payload=b"after", psn=104)
    stage.server.receive(5)
    go(stage.server, QPState.ERR)
    stage.drive()
    assert there.read(5) == b"after"
    assert outcomes(stage.server) == [(1, WCStatus.WR_FLUSH_ERR)]
    assert stage.sent == []


def test_a_request_refused_behind_a_read_is_refused_in_its_turn() -> None:
    stage = reading()
    there = stage.server.region
    stage.request(WRITE, RETH(there.address, 0xBAD, 5), payload=b"12345", psn=104)
    stage.request(WRITE, key_of(there, 5), payload=b"after", psn=105)
    stage.drive()
    assert answered(stage) == BEFORE
    assert stage.aeths(stage.server)[-1].ack == Ack.NAK
    assert stage.psns(stage.server)[-1] == 104
    assert there.read(5) == BEFORE[:5]
    assert stage.server.qp.state is QPState.ERR
