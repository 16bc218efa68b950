"""The engine as its owner sees it: states and packets, draining, errors, events. IBA 10.3.1."""

from collections.abc import Callable

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair, connect
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import us
from rdmawire.verbs.async_event import (
    CommunicationEstablished,
    CompletionEvent,
    CQError,
    QPFatal,
    SendQueueDrained,
)
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.qp_attr import QPAttrMask
from rdmawire.verbs.wr import SIGNALED, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import AETH, CNP, RETH, Ack
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import FIRST_PSN, PATIENT, Stage, climb, events, go, outcomes, statuses

DEAF = {QPState.RESET, QPState.INIT, QPState.ERR}
BAD = Sge(1, 8, 0xBAD)


@pytest.mark.parametrize("state", [s for s in QPState if s is not QPState.SQE])
def test_states_and_whether_they_receive(state: QPState) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    if state in (QPState.SQD, QPState.ERR):
        go(stage.server, state)
    else:
        climb(stage.server, state)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    received = state not in DEAF
    assert stage.server.region.read(5) == (b"hello" if received else bytes(5))
    assert statuses(stage.client) == [WCStatus.SUCCESS] * received
    assert stage.server.nic.drops[Drop.QP_STATE] + stage.server.nic.drops[Drop.PEER] == (
        not received
    )
    assert stage.server.qp.state is state


def test_the_first_packet_in_rtr_is_one_comm_est_event() -> None:
    stage = Stage()
    climb(stage.server, QPState.RTR)
    for _ in range(2):
        stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert events(stage.server) == [CommunicationEstablished(stage.server.qp.qp_num)]


def test_reset_forgets_all_work_and_completes_none_of_it() -> None:
    stage = Stage(Pair(Link(drop=range(1, 9))))
    stage.client.write(b"hello", to=stage.server.region)
    stage.client.receive(8)
    stage.client.nic.transmit(0)
    go(stage.client, QPState.RESET)
    stage.drive()
    assert statuses(stage.client) == []
    assert len(stage.client.qp.sq) == len(stage.client.qp.rq) == 0
    assert stage.client.nic.next_timer() is None
    assert stage.sent == []


def test_a_connection_may_be_made_anew_after_an_error() -> None:
    stage = Stage()
    for end in (stage.client, stage.server):
        go(end, QPState.ERR)
        climb(end, QPState.RTS)
    stage.client.write(b"again", to=stage.server.region)
    stage.drive()
    assert stage.server.region.read(5) == b"again"
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_an_error_ends_all_that_is_left_in_order() -> None:
    stage = Stage(Pair(Link(drop=range(1, 9))))
    for index in range(3):
        stage.client.write(bytes(index), to=stage.server.region)
        stage.client.receive(8)
    stage.client.nic.transmit(0)
    stage.client.write(b"", to=stage.server.region)
    go(stage.client, QPState.ERR)
    assert outcomes(stage.client) == [
        (wr_id, WCStatus.WR_FLUSH_ERR) for wr_id in (1, 3, 5, 7, 2, 4, 6)
    ]
    assert stage.client.nic.next_timer() is None
    stage.drive()
    assert stage.sent == []


def test_a_receive_in_use_is_flushed_before_the_others() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.receive(4096)
    stage.server.receive(4096)
    stage.request(Opcode.RC_SEND_FIRST, payload=bytes(1024), psn=100)
    go(stage.server, QPState.ERR)
    assert outcomes(stage.server) == [(1, WCStatus.WR_FLUSH_ERR), (2, WCStatus.WR_FLUSH_ERR)]


# Draining. IBA 10.3.1.5.


def drain(stage: Stage, *, notify: bool = True) -> None:
    attributes = ATTRIBUTES._replace(en_sqd_async_notify=notify)
    go(stage.client, QPState.SQD, QPAttrMask.EN_SQD_ASYNC_NOTIFY, attributes)


@pytest.mark.parametrize("notify", [True, False])
def test_draining_completes_the_work_in_progress_before_its_event(notify: bool) -> None:
    stage = Stage(Pair(Link(us(1))))
    stage.client.write(bytes(5000), to=stage.server.region)
    stage.client.nic.transmit(0, 2)
    stage.client.write(b"later", to=stage.server.region)
    drain(stage, notify=notify)
    assert events(stage.client) == []
    stage.drive()
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS)]
    assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)] * notify
    go(stage.client, QPState.RTS)
    stage.drive()
    assert outcomes(stage.client) == [(2, WCStatus.SUCCESS)]
    assert stage.server.region.read(5) == b"later"


def write_twice(end: End) -> None:
    for _ in range(2):
        end.write(bytes(5000), to=end.peer.region)


def read_then_write(end: End) -> None:
    end.read(5000, of=end.peer.region)
    end.write(b"behind it", to=end.peer.region)


LAST_ANSWERS: dict[str, Callable[[End], object]] = {
    "a write": lambda end: end.write(bytes(5000), to=end.peer.region),
    "two writes": write_twice,
    "a read": lambda end: end.read(5000, of=end.peer.region),
    "a write behind a read": read_then_write,
    "an atomic": lambda end: end.fetch_add(1, of=end.peer.region),
    "a flush": lambda end: end.flush(8, of=end.peer.region),
}


@pytest.mark.parametrize("work", LAST_ANSWERS.values(), ids=LAST_ANSWERS)
def test_a_queue_is_drained_when_its_last_answer_arrives(work: Callable[[End], object]) -> None:
    """And not when the port asks for frames the next time."""
    stage = Stage()
    work(stage.client)
    requests = stage.client.nic.transmit(0)
    drain(stage)
    stage.server.nic.receive_all(requests, 0)
    *before, last = stage.server.nic.transmit(0)
    stage.client.nic.receive_all(before, 0)
    assert events(stage.client) == []
    stage.client.nic.receive(last, 0)
    assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)]
    stage.drive()
    assert events(stage.client) == []


def test_a_queue_that_rests_is_drained_when_a_late_ack_arrives() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    (request,) = stage.client.nic.transmit(0)
    drain(stage)
    stage.server.nic.receive(request, 0)
    not_ready = AETH(ack=Ack.RNR_NAK, value=1)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, not_ready, psn=FIRST_PSN), by=stage.server)
    assert events(stage.client) == []
    stage.client.nic.receive_all(stage.server.nic.transmit(0), 0)
    assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)]


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_unreliable_work_is_drained_when_its_last_frame_leaves(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))
    for _ in range(3):
        stage.client.send(b"hello")
    stage.client.nic.transmit(0, 1)
    drain(stage)
    assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)]
    assert stage.client.nic.transmit(0) == []


def test_a_torn_unreliable_message_is_drained_with_its_last_packet() -> None:
    stage = Stage(Pair(kind=QPType.UC))
    stage.client.send(bytes(3000))
    stage.client.nic.transmit(0, 1)
    drain(stage)
    assert events(stage.client) == []
    stage.client.nic.transmit(0, 1)
    assert events(stage.client) == []
    stage.client.nic.transmit(0, 1)
    assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)]


def test_an_event_is_asked_for_each_time_a_queue_drains() -> None:
    stage = Stage()
    drain(stage)
    assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)]
    go(stage.client, QPState.RTS)
    go(stage.client, QPState.SQD)
    stage.drive()
    assert events(stage.client) == []


def test_an_idle_queue_is_drained_at_once_and_each_time() -> None:
    stage = Stage()
    for _ in range(2):
        drain(stage)
        stage.drive()
        assert events(stage.client) == [SendQueueDrained(stage.client.qp.qp_num)]
        go(stage.client, QPState.RTS)


def test_a_queue_that_drains_still_answers() -> None:
    stage = Stage()
    drain(stage)
    read = stage.server.read(8, of=stage.client.region)
    stage.drive()
    assert statuses(stage.server) == [WCStatus.SUCCESS]
    assert read.buffer.read() == bytes(8)


# Errors of the sender's own. IBA 10.3.1.6.


def post_two(stage: Stage) -> None:
    bad = SendWR(SendOpcode.SEND, (BAD,), flags=0)
    stage.client.post(bad, stage.client.region)
    stage.client.send(b"behind")
    stage.drive()


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_unreliable_senders_stop_in_sqe_and_resume(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))
    stage.server.receive(8)
    stage.client.send(b"before")
    post_two(stage)
    assert outcomes(stage.client) == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.LOC_PROT_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]
    assert stage.client.qp.state is QPState.SQE
    got = stage.client.receive(8)
    stage.server.send(b"hello")
    stage.drive()
    assert got.buffer.read(5, stage.client.qp.service.grh) == b"hello"
    go(stage.client, QPState.RTS)
    got = stage.server.receive(8)
    stage.client.send(b"again")
    stage.drive()
    assert got.buffer.read(5, stage.server.qp.service.grh) == b"again"


def test_reliable_senders_end() -> None:
    stage = Stage()
    post_two(stage)
    assert outcomes(stage.client) == [(1, WCStatus.LOC_PROT_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    assert stage.client.qp.state is QPState.ERR
    assert stage.sent == []


def test_an_error_waits_for_the_work_before_it() -> None:
    stage = Stage(Pair(Link(us(1))))
    stage.client.write(b"hello", to=stage.server.region)
    post_two(stage)
    assert outcomes(stage.client) == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.LOC_PROT_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]
    assert stage.server.region.read(5) == b"hello"


# Completion queues.


def test_a_queue_that_overruns_breaks_its_queue_pairs() -> None:
    stage = Stage()
    stage.client.cq.resize(2)
    for _ in range(4):
        stage.client.write(b"x", to=stage.server.region)
    stage.drive()
    number = stage.client.qp.qp_num
    assert events(stage.client) == [CQError(stage.client.cq.number), QPFatal(number)]
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
    assert stage.client.qp.state is QPState.ERR


def test_a_queue_pair_that_comes_back_to_a_broken_queue_ends_again() -> None:
    stage = Stage()
    client, number = stage.client, stage.client.qp.qp_num
    client.cq.resize(1)
    for _ in range(2):
        client.write(b"x", to=stage.server.region)
    stage.drive()
    assert events(client) == [CQError(client.cq.number), QPFatal(number)]
    for end in (client, stage.server):
        go(end, QPState.RESET)
    connect(client, client.qp, stage.server, stage.server.qp)
    client.write(b"x", to=stage.server.region)
    stage.drive()
    assert events(client) == [QPFatal(number)]
    assert client.qp.state is QPState.ERR


@pytest.mark.parametrize(("solicited_only", "expected"), [(False, 1), (True, 2)])
def test_messages_that_notification_was_requested_for_are_an_event(
    solicited_only: bool, expected: int
) -> None:
    stage = Stage()
    stage.server.cq.req_notify(solicited_only)
    told = []
    for flags in (SIGNALED, SIGNALED | SendFlags.SOLICITED, SIGNALED):
        stage.server.receive(8)
        stage.client.post(SendWR(SendOpcode.SEND, flags=flags), stage.client.region)
        stage.drive()
        told += [CompletionEvent(stage.server.cq.number)] * len(events(stage.server))
        if told:
            break
    assert told == [CompletionEvent(stage.server.cq.number)]
    assert len(stage.server.poll()) == expected


def test_completions_with_an_error_always_cause_an_event() -> None:
    stage = Stage()
    stage.client.cq.req_notify(solicited_only=True)
    stage.client.write(b"fine", to=stage.server.region)
    stage.drive()
    assert events(stage.client) == []
    stage.client.post(SendWR(SendOpcode.SEND, (BAD,)), stage.client.region)
    stage.drive()
    assert events(stage.client) == [CompletionEvent(stage.client.cq.number)]


def test_moderation_puts_an_event_off_until_the_timer_of_the_adapter() -> None:
    stage = Stage()
    stage.client.nic.modify_cq(stage.client.cq, 3, us(7))
    stage.client.cq.req_notify()
    stage.client.write(b"one", to=stage.server.region)
    stage.drive(until=us(6))
    assert events(stage.client) == []
    assert stage.client.nic.next_timer() == us(7)
    stage.drive(until=us(7))
    assert events(stage.client) == [CompletionEvent(stage.client.cq.number)]
    stage.client.cq.req_notify()
    for _ in range(3):
        stage.client.write(b"x", to=stage.server.region)
    stage.drive(until=us(8))
    assert events(stage.client) == [CompletionEvent(stage.client.cq.number)]
    assert stage.client.nic.next_timer() is None


def test_asking_for_the_timer_changes_nothing() -> None:
    stage = Stage()
    stage.client.write(b"x", to=stage.server.region)
    stage.client.nic.transmit(0)
    assert stage.client.nic.next_timer() == stage.client.nic.next_timer() == 4_096 << 14
    stage.client.nic.handle_timer(us(1))
    assert stage.client.nic.next_timer() == 4_096 << 14


def test_a_write_of_no_bytes_is_received_in_any_case() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100, ackreq=1)
    stage.drive()
    assert [aeth.msn for aeth in stage.aeths(stage.server)] == [1]


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_a_congestion_notification_is_counted_and_not_answered(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind, attributes=PATIENT))
    for _ in range(3):
        stage.request(Opcode.CNP, CNP(), becn=1)
    stage.drive()
    assert stage.server.qp.cnps == 3
    assert stage.sent == []
    assert stage.server.nic.drops == {}
