"""Timers beside a plain table: the soonest comes first, and what moved away is not forgotten."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair
from rdmawire.ib.congestion.dcqcn import Dcqcn
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.retransmit_timer import RetryState
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.timers import SLACK, Timers
from rdmawire.verbs.wr import SendOpcode, SendWR


class Waiting(RuleBasedStateMachine):
    """Deadlines that come, move and go."""

    waits = Bundle("waits")

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.timers: Timers[RetryState[QueuePair]] = Timers()
        self.model: dict[RetryState[QueuePair], int] = {}
        self.now = 0

    @rule(target=waits)
    def make(self) -> RetryState[QueuePair]:
        return retry_state_of(self.host)

    @rule(retry_state=waits, wait=st.integers(0, 50))
    def start(self, retry_state: RetryState[QueuePair], wait: int) -> None:
        self.model[retry_state] = self.now + wait
        self.timers.arm(retry_state, self.now + wait)

    @rule(retry_state=waits)
    def stop(self, retry_state: RetryState[QueuePair]) -> None:
        self.timers.disarm(retry_state)
        self.model.pop(retry_state, None)

    @rule(retry_state=waits, wait=st.integers(1, 50))
    def put_off(self, retry_state: RetryState[QueuePair], wait: int) -> None:
        if retry_state in self.model:
            self.model[retry_state] += wait
            self.timers.arm(retry_state, self.model[retry_state])

    @rule(elapsed=st.integers(0, 30))
    def pass_time(self, elapsed: int) -> None:
        self.now += elapsed
        due = list(self.timers.due(self.now))
        times = [self.model.pop(retry_state) for retry_state in due]
        assert times == sorted(times)
        assert all(time <= self.now for time in times)
        assert all(time > self.now for time in self.model.values())
        assert all(retry_state.deadline is None for retry_state in due)

    @invariant()
    def the_soonest_is_next_however_often_asked(self) -> None:
        for _ in range(2):
            assert self.timers.next() == min(self.model.values(), default=None)

    @invariant()
    def the_heap_stays_within_twice_the_live(self) -> None:
        assert len(self.timers) <= 2 * len(self.model) + SLACK


def retry_state_of(host: Host) -> RetryState[QueuePair]:
    """That of a new queue pair."""
    cq = host.nic.create_cq(4)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP)).retry_state


test_timers = Waiting.TestCase


def test_a_deadline_that_moves_with_every_ack_costs_no_place_each_time() -> None:
    retry_state = retry_state_of(Host())
    timers: Timers[RetryState[QueuePair]] = Timers()
    for time in range(1, 1000):
        timers.arm(retry_state, time)
    assert len(timers) == 1
    assert timers.next() == 999


def test_deadlines_that_move_earlier_leave_nothing_behind() -> None:
    """As when long timeouts and short RNR waits take turns."""
    retry_state = retry_state_of(Host())
    timers: Timers[RetryState[QueuePair]] = Timers()
    for now in range(1000):
        timers.arm(retry_state, 10**9 - now)
        timers.arm(retry_state, now)
        assert list(timers.due(now)) == [retry_state]
        assert len(timers) <= SLACK
    assert timers.next() is None


def test_what_was_stopped_leaves_nothing_behind() -> None:
    host = Host()
    waiting = [retry_state_of(host) for _ in range(200)]
    timers: Timers[RetryState[QueuePair]] = Timers()
    for time, retry_state in enumerate(waiting):
        timers.arm(retry_state, 10**9 + time)
    for left, retry_state in enumerate(reversed(waiting)):
        timers.disarm(retry_state)
        assert len(timers) <= 2 * (199 - left) + SLACK


def test_what_is_needed_survives_a_cleaning_in_its_order() -> None:
    host = Host()
    waiting = [retry_state_of(host) for _ in range(100)]
    timers: Timers[RetryState[QueuePair]] = Timers()
    for retry_state in waiting:
        timers.arm(retry_state, 1)
    for retry_state in waiting[::2]:
        timers.disarm(retry_state)
    kept = waiting[1::2]
    for retry_state in kept[:10]:
        timers.arm(retry_state, 2)
    for retry_state in kept[10:20]:
        timers.disarm(retry_state)
    for retry_state in kept[20:]:
        timers.arm(retry_state, 0)
    assert list(timers.due(0)) == kept[20:]
    assert list(timers.due(2)) == kept[:10]


def test_queue_pairs_that_come_and_go_leave_nothing_in_the_adapter() -> None:
    """Destroyed with work on its way, each would wait for its timeout of an hour."""
    patient = ATTRIBUTES._replace(timeout=30)
    pair = Pair()
    client, server = pair.client, pair.server
    for _ in range(200):
        qp = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
        there = patient._replace(ah=client.path_to(server), dest_qp_num=server.qp.qp_num)
        client.bring_up(qp, there)
        client.nic.post_send(qp, [SendWR(SendOpcode.SEND)])
        client.nic.transmit(0)
        client.nic.destroy_qp(qp)
    assert len(client.nic.device.timers) <= SLACK
    assert client.nic.next_timer() is None


def test_a_scheme_that_is_replaced_is_not_called_any_more() -> None:
    pair = Pair()
    nic, qp = pair.client.nic, pair.client.qp
    nic.control_congestion(qp, Dcqcn())
    assert qp.governor is not None
    qp.governor.notified()
    assert nic.next_timer() is not None
    nic.control_congestion(qp, None)
    assert nic.next_timer() is None
    assert len(nic.device.governors) <= SLACK
