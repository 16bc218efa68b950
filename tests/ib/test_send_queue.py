"""The send queue alone: PSNs, what is in flight, and going back. IBA 9.7.3."""

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.ib.send_queue import NO_PSN, SendQueue, Wqe
from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.wr import SIGNALED, SOLICITED, SendOpcode, SendWR
from rdmawire.wire.serial import MODULUS, add

WRITE, READ = SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ


def queue_of(*work: tuple[SendOpcode, int], psn: int = MODULUS - 3) -> SendQueue:
    """A queue whose work was begun and sent in full; so many packets each."""
    queue = SendQueue()
    queue.reset(psn)
    for opcode, packets in work:
        wqe = Wqe(SendWR(opcode))
        queue.posted.append(wqe)
        queue.begin(wqe, packets)
        if wqe.awaited:
            queue.ask(wqe)
        queue.advance(wqe, packets)
        queue.sent.append(queue.posted.popleft())
    return queue


def test_work_gets_its_psns_in_order_and_round_the_end() -> None:
    queue = queue_of((WRITE, 2), (READ, 3), (WRITE, 1))
    assert [wqe.psn for wqe in queue.sent] == [MODULUS - 3, MODULUS - 1, 2]
    assert [wqe.last_psn for wqe in queue.sent] == [MODULUS - 2, 1, 2]
    assert (queue.next_psn, queue.in_flight, queue.ssn) == (3, 6, 3)


def test_local_work_takes_no_psn_and_no_place_among_messages() -> None:
    queue = queue_of((WRITE, 1), (SendOpcode.LOCAL_INV, 0), (WRITE, 1), psn=7)
    assert [wqe.psn for wqe in queue.sent] == [7, 8, 8]
    assert queue.ssn == 2


@given(
    work=st.lists(
        st.tuples(st.sampled_from([WRITE, READ]), st.integers(1, 5)), min_size=1, max_size=5
    ),
    back=st.integers(0, 30),
)
def test_going_back_sends_all_from_there_on_again(
    work: list[tuple[SendOpcode, int]], back: int
) -> None:
    queue = queue_of(*work)
    start, total = queue.sent[0].psn, sum(packets for _, packets in work)
    back = min(back, total)
    queue.go_back(add(start, back))
    ends = [sum(packets for _, packets in work[: place + 1]) for place in range(len(work))]
    assert len(queue.sent) == sum(end <= back for end in ends)
    assert queue.in_flight == total
    for (opcode, packets), end, wqe in zip(work, ends, [*queue.sent, *queue.posted], strict=True):
        expected = packets if end <= back else max(back - (end - packets), 0)
        assert wqe.sent == (expected if opcode is WRITE or end <= back else 0)
    reads = sum(wqe.verb.takes_resource for wqe in queue.sent)
    assert queue.outstanding_reads == reads


def test_what_was_sent_before_is_in_flight_once() -> None:
    queue = queue_of((WRITE, 5))
    wqe = queue.sent[0]
    queue.go_back(wqe.psn)
    queue.advance(wqe, 3)
    assert (wqe.sent, queue.in_flight) == (3, 5)


def test_acknowledged_packets_are_not_sent_again() -> None:
    queue = queue_of((WRITE, 5))
    wqe = queue.sent[0]
    queue.go_back(wqe.psn)
    queue.acknowledge(wqe, 2)
    assert (wqe.sent, wqe.unacked, queue.in_flight) == (2, 3, 3)
    assert queue.unacked_psn == add(wqe.psn, 2)


def test_work_not_begun_has_no_psn_and_is_not_the_oldest() -> None:
    queue = SendQueue()
    queue.posted.append(Wqe(SendWR(WRITE)))
    assert queue.posted[0].psn == NO_PSN
    assert queue.oldest() is None
    assert not queue.under_way
    assert len(queue) == 1


def test_work_that_ends_waits_where_it_completes() -> None:
    queue = queue_of((READ, 2))
    wqe = queue.sent[0]
    queue.go_back(wqe.psn)
    queue.finish(wqe, WCStatus.SUCCESS)
    assert list(queue.sent) == [wqe]
    assert queue.outstanding_reads == 0
    queue = queue_of((READ, 2))
    queue.finish(queue.sent[0], WCStatus.SUCCESS)
    assert queue.outstanding_reads == 0


def test_the_solicited_bit_is_for_what_takes_a_receive() -> None:
    flags = SIGNALED | SOLICITED
    soliciting = {op for op in SendOpcode if Wqe(SendWR(op, flags=flags)).se}
    assert soliciting == {
        SendOpcode.SEND,
        SendOpcode.SEND_WITH_IMM,
        SendOpcode.SEND_WITH_INV,
        SendOpcode.RDMA_WRITE_WITH_IMM,
    }
