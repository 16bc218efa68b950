"""What may enter and leave a queue pair in each of its states, and what may be posted."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import ATTRIBUTES, COMPLETIONS, Pair
from rdmawire.ib.requester import send
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import seconds
from rdmawire.verbs.enums import STATE_RULES, QPState, QPType, WCStatus, WorkCompletion
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, CNP, RETH, Ack, Nak
from rdmawire.wire.inet import ECN, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tests.ib.stage import PATIENT, Stage, climb, go, key_of, statuses

_S = QPState
READ, WRITE = Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_RDMA_WRITE_ONLY


class Expected(NamedTuple):
    """What is seen of a queue pair in a state: a row of this test's own table."""

    recv: str  # posted receives are: refused, queued, flushed
    send: str  # posted sends are: refused, queued (and not begun), sent, flushed
    enters: bool  # requests change memory, and are answered
    goes_on: bool  # work that was begun before is sent again


EXPECTED = {
    _S.RESET: Expected("refused", "refused", False, False),
    _S.INIT: Expected("queued", "refused", False, False),
    _S.RTR: Expected("queued", "refused", True, False),
    _S.RTS: Expected("queued", "sent", True, True),
    _S.SQD: Expected("queued", "queued", True, True),
    _S.SQE: Expected("queued", "flushed", True, False),
    _S.ERR: Expected("flushed", "flushed", False, False),
}
STATES = pytest.mark.parametrize("state", list(QPState))


def stage_in(state: QPState, kind: QPType = QPType.RC) -> Stage:
    """A server in this state, and a client that may send."""
    stage = Stage(Pair(kind=kind, attributes=PATIENT))
    if state < _S.RTS:
        climb(stage.server, state, PATIENT)
    elif state is _S.SQE:
        stage.server.qp.fail(_S.SQE)
    elif state is not _S.RTS:
        go(stage.server, state)
    return stage


def kind_of(state: QPState) -> QPType:
    """A type of queue pairs that knows the state."""
    return QPType.UC if state is _S.SQE else QPType.RC


def test_every_state_has_its_row() -> None:
    assert set(STATE_RULES) == set(EXPECTED) == set(QPState)


@STATES
def test_posted_receives(state: QPState) -> None:
    stage = stage_in(state, kind_of(state))
    assert posted(stage, lambda: stage.server.receive(8)) == EXPECTED[state].recv


@STATES
def test_posted_sends(state: QPState) -> None:
    stage = stage_in(state, kind_of(state))
    assert posted(stage, lambda: stage.server.write(b"x", to=stage.client.region)) == (
        EXPECTED[state].send
    )


def posted(stage: Stage, post: Callable[[], object]) -> str:
    """What became of work."""
    try:
        post()
    except VerbsError:
        return "refused"
    if stage.server.nic.transmit(0):
        return "sent"
    found = statuses(stage.server)
    assert found in ([], [WCStatus.WR_FLUSH_ERR])
    return "flushed" if found else "queued"


@STATES
def test_requests_enter_and_answers_leave(state: QPState) -> None:
    kind = kind_of(state)
    stage = stage_in(state, kind)
    there = stage.server.region
    opcode = Opcode.UC_RDMA_WRITE_ONLY if kind is QPType.UC else WRITE
    stage.request(opcode, key_of(there, 5), payload=b"hello", psn=100, ackreq=1)
    enters = EXPECTED[state].enters
    assert there.read(5) == (b"hello" if enters else bytes(5))
    assert len(stage.server.nic.transmit(0)) == (enters and kind is QPType.RC)
    drops = stage.server.nic.drops
    assert drops[Drop.QP_STATE] + drops[Drop.PKEY] + drops[Drop.PEER] == (not enters)


@STATES
def test_marks_enter_and_cnps_leave(state: QPState) -> None:
    stage = stage_in(state, kind_of(state))
    stage.server.nic.notify_congestion(stage.server.qp)
    stage.server.nic.receive(marked(stage), 0)
    frames = stage.server.nic.transmit(0)
    cnps = [frame for frame in frames if roce.parse(frame).packet.bth.opcode == Opcode.CNP]
    assert len(cnps) == EXPECTED[state].enters


def marked(stage: Stage) -> bytes:
    """A WRITE of no bytes that met congestion."""
    uc = stage.server.qp.type is QPType.UC
    opcode = Opcode.UC_RDMA_WRITE_ONLY if uc else WRITE
    frame = stage.frame_of(Packet.make(opcode, RETH(0, 0, 0), psn=100))
    headers = tuple(
        header.replace(ecn=ECN.CE) if isinstance(header, IPv4) else header
        for header in frame.headers
    )
    return Frame(headers, frame.packet).seal().build()


@STATES
def test_cnps_enter(state: QPState) -> None:
    stage = stage_in(state, kind_of(state))
    stage.deliver(Packet.make(Opcode.CNP, CNP(), becn=1))
    assert stage.server.qp.cnps == EXPECTED[state].enters


LATER = (_S.RESET, _S.RTS, _S.SQD, _S.ERR)
"""States that may follow while a reliable queue pair sends and answers."""


@pytest.mark.parametrize("state", LATER)
def test_responses_enter(state: QPState) -> None:
    stage = stage_in(_S.RTS)
    stage.server.write(b"x", to=stage.client.region)
    stage.server.nic.transmit(0)
    go(stage.server, state)
    stage.server.poll()
    aeth = AETH(ack=Ack.ACK, value=31, msn=1)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, psn=100))
    assert statuses(stage.server) == [WCStatus.SUCCESS] * EXPECTED[state].enters


@pytest.mark.parametrize("state", LATER)
def test_work_that_was_begun_goes_on(state: QPState) -> None:
    stage = Stage()
    stage.server.write(bytes(4000), to=stage.client.region)
    assert len(stage.server.nic.transmit(0, 2)) == 2
    go(stage.server, state)
    goes_on = EXPECTED[state].goes_on
    assert len(stage.server.nic.transmit(0)) == 2 * goes_on
    stage.server.nic.handle_timer(seconds(1))
    assert len(stage.server.nic.transmit(seconds(1))) == 4 * goes_on


@pytest.mark.parametrize("state", LATER)
def test_answers_that_wait_leave(state: QPState) -> None:
    stage = answering()
    go(stage.server, state)
    assert len(answers(stage)) == 5 * EXPECTED[state].enters


@pytest.mark.parametrize("state", LATER)
def test_a_message_that_is_coming_in_goes_on(state: QPState) -> None:
    stage = stage_in(_S.RTS)
    stage.server.receive(2000)
    stage.request(Opcode.RC_SEND_FIRST, payload=bytes(1024), psn=100)
    go(stage.server, state)
    stage.request(Opcode.RC_SEND_LAST, payload=bytes(8), psn=101)
    expected = {_S.RESET: [], _S.ERR: [WCStatus.WR_FLUSH_ERR]}
    assert statuses(stage.server) == expected.get(state, [WCStatus.SUCCESS])


def answering() -> Stage:
    """A server that has four responses to a READ to send, and an ACK behind them."""
    stage = Stage(Pair(attributes=ATTRIBUTES._replace(retry_cnt=1)))
    stage.request(READ, key_of(stage.server.region, 4000), psn=100)
    stage.request(WRITE, RETH(0, 0, 0), psn=104, ackreq=1)
    return stage


def answers(stage: Stage) -> list[Packet]:
    """What the server still sends, CNPs too."""
    return [roce.parse(frame).packet for frame in stage.server.nic.transmit(stage.now)]


def out_of_retries(stage: Stage) -> WCStatus:
    server = stage.server
    server.write(b"x", to=stage.client.region)
    send(server.qp, [], 64)
    for now in range(1, 10):
        server.nic.handle_timer(seconds(now))
        send(server.qp, [], 64)
    return WCStatus.RETRY_EXC_ERR


def out_of_bounds(stage: Stage) -> WCStatus:
    wr = SendWR(SendOpcode.SEND, (stage.server.region.sge(8)._replace(lkey=1),))
    stage.server.post(wr)
    send(stage.server.qp, [], 64)
    return WCStatus.LOC_PROT_ERR


def refused_by_the_peer(stage: Stage) -> WCStatus:
    stage.server.write(b"x", to=stage.client.region)
    send(stage.server.qp, [], 64)
    nak = AETH(ack=Ack.NAK, value=Nak.REMOTE_ACCESS_ERROR)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, nak, psn=100))
    return WCStatus.REM_ACCESS_ERR


@pytest.mark.parametrize("fail", [out_of_retries, out_of_bounds, refused_by_the_peer])
def test_an_error_of_its_own_sends_silences_a_queue_pair(
    fail: Callable[[Stage], WCStatus],
) -> None:
    stage = answering()
    stage.server.qp.inbound.cnps_due = 1
    status = fail(stage)
    assert stage.server.qp.state is _S.ERR
    assert statuses(stage.server)[0] is status
    assert answers(stage) == []


def test_an_overrun_of_its_completion_queue_silences_a_queue_pair() -> None:
    stage = answering()
    server = stage.server
    for _ in range(COMPLETIONS):
        server.cq.push(WorkCompletion(0), 0)
    server.receive()
    stage.request(Opcode.RC_SEND_ONLY, psn=105, ackreq=1)
    assert server.qp.state is _S.ERR
    assert answers(stage) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_request_that_ends_a_queue_pair_is_answered_in_its_turn(again: bool) -> None:
    stage = answering()
    stage.server.nic.notify_congestion(stage.server.qp)
    stage.server.nic.receive(marked(stage), 0)
    stage.request(WRITE, RETH(0, 0xBAD, 8), payload=bytes(8), psn=105)
    stage.request(WRITE, RETH(0, 0, 0), psn=106, ackreq=1)
    if again:
        go(stage.server, _S.ERR)
    left = answers(stage)
    assert [packet.bth.psn for packet in left] == [100, 101, 102, 103, 104, 105]
    last = left[-1].header(AETH)
    assert last is not None
    assert (last.ack, last.value) == (Ack.NAK, Nak.REMOTE_ACCESS_ERROR)
    assert answers(stage) == []


def test_what_ended_a_queue_pair_is_forgotten_when_it_is_reset() -> None:
    stage = answering()
    stage.request(WRITE, RETH(0, 0xBAD, 8), payload=bytes(8), psn=105)
    climb(stage.server, _S.RTS)
    assert answers(stage) == []
    stage.request(READ, key_of(stage.server.region, 8), psn=100)
    out_of_bounds(stage)
    assert answers(stage) == []
