"""A READ sees memory as it was in its turn: what would change it waits. IBA 10.8.3.3."""

from rdmawire.fabric.pair import Pair
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.responder import MOST_DEFERRED
from rdmawire.nic.state import QPState
from rdmawire.nic.unseal import Drop
from rdmawire.nic.work import RecvWR
from rdmawire.wire.ib import RETH, Ack, AtomicETH
from rdmawire.wire.opcode import Opcode
from tests.nic.stage import PATIENT, Stage, go, key_of, outcomes, statuses

BEFORE = bytes(range(250)) * 16


def reading() -> Stage:
    """A server that owes the answer to a READ, and was asked for no frame yet."""
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.region.write(BEFORE)
    stage.ask(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 4000), psn=100)
    return stage


def answered(stage: Stage) -> bytes:
    """The octets of all READ responses."""
    return b"".join(sent.packet.payload for sent in stage.by(stage.server))


def test_a_write_behind_a_read_does_not_show_in_it() -> None:
    stage = reading()
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, key_of(stage.server.region, 5), payload=b"after", psn=104)
    assert stage.server.region.read(5) == BEFORE[:5]
    stage.drive()
    assert answered(stage) == BEFORE
    assert stage.server.region.read(5) == b"after"


def test_an_atomic_behind_a_read_does_not_show_in_it() -> None:
    stage = reading()
    there = stage.server.region
    stage.ask(Opcode.RC_FETCH_ADD, AtomicETH(there.address, there.rkey, 1, 0), psn=104)
    stage.drive()
    assert answered(stage) == BEFORE
    assert there.read(1) == b"\x01"
    assert stage.opcodes(stage.server)[-1] is Opcode.RC_ATOMIC_ACKNOWLEDGE


def test_a_send_behind_a_read_does_not_show_in_it() -> None:
    stage = reading()
    there = stage.server.region
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((there.sge(5),)),), 0)
    stage.ask(Opcode.RC_SEND_ONLY, payload=b"after", psn=104)
    stage.drive()
    assert answered(stage) == BEFORE
    assert there.read(5) == b"after"


def test_reads_do_not_wait_for_one_another() -> None:
    stage = reading()
    stage.ask(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 8), psn=104)
    assert not stage.server.qp.inbound.deferred
    stage.drive()
    assert answered(stage) == BEFORE + BEFORE[:8]


def test_a_read_behind_a_write_that_waits_sees_what_that_wrote() -> None:
    stage = reading()
    there = stage.server.region
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, key_of(there, 5), payload=b"after", psn=104)
    stage.ask(Opcode.RC_RDMA_READ_REQUEST, key_of(there, 5), psn=105)
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, key_of(there, 5), payload=b"later", psn=106, ackreq=1)
    stage.drive()
    assert answered(stage) == BEFORE + b"after"
    assert there.read(5) == b"later"
    assert stage.psns(stage.server)[-2:] == [105, 106]


def test_a_read_sees_memory_when_it_is_answered_if_nobody_wrote_by_the_wire() -> None:
    stage = reading()
    stage.server.region.write(b"by the host")
    stage.drive()
    assert answered(stage)[:11] == b"by the host"


def test_what_waits_is_bounded_and_what_is_dropped_comes_again() -> None:
    stage = Stage()
    stage.client.read(8, of=stage.server.region)
    for _ in range(MOST_DEFERRED + 50):
        stage.client.write(b"x", to=stage.server.region)
    frames: list[bytes] = []
    while burst := stage.client.nic.transmit(0):
        frames += burst
    for frame in frames:
        stage.server.nic.receive(frame, 0)
    assert len(stage.server.qp.inbound.deferred) == MOST_DEFERRED
    assert stage.server.nic.drops[Drop.BUSY] == 50
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * (MOST_DEFERRED + 51)


def test_an_error_forgets_what_waited() -> None:
    stage = reading()
    there = stage.server.region
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, key_of(there, 5), payload=b"after", psn=104)
    stage.server.receive(5)
    go(stage.server, QPState.ERR)
    stage.drive()
    assert there.read(5) == BEFORE[:5]
    assert outcomes(stage.server) == [(1, WCStatus.WR_FLUSH_ERR)]
    assert stage.sent == []


def test_what_waited_may_be_refused_and_ends_what_is_behind_it() -> None:
    stage = reading()
    there = stage.server.region
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, RETH(there.address, 0xBAD, 5), payload=b"12345", psn=104)
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, key_of(there, 5), payload=b"after", psn=105)
    stage.drive()
    assert answered(stage) == BEFORE
    assert stage.aeths(stage.server)[-1].ack == Ack.NAK
    assert stage.psns(stage.server)[-1] == 104
    assert there.read(5) == BEFORE[:5]
    assert stage.server.qp.state is QPState.ERR
