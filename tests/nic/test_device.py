"""Timers beside a plain table: the soonest comes first, and what moved away is not forgotten."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import CAP
from rdmawire.nic.device import Timers
from rdmawire.nic.patience import Patience
from rdmawire.nic.qp import QPInit
from rdmawire.nic.state import QPType


class Waiting(RuleBasedStateMachine):
    """Deadlines that come, move and go."""

    waits = Bundle("waits")

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.timers = Timers()
        self.model: dict[Patience, int] = {}
        self.now = 0

    @rule(target=waits)
    def make(self) -> Patience:
        return patience_of(self.host)

    @rule(patience=waits, wait=st.integers(0, 50))
    def start(self, patience: Patience, wait: int) -> None:
        patience.deadline = self.model[patience] = self.now + wait
        self.timers.watch(patience, patience.deadline)

    @rule(patience=waits)
    def stop(self, patience: Patience) -> None:
        patience.deadline = None
        self.model.pop(patience, None)

    @rule(patience=waits, wait=st.integers(1, 50))
    def put_off(self, patience: Patience, wait: int) -> None:
        if patience in self.model:
            patience.deadline = self.model[patience] = self.model[patience] + wait

    @rule(elapsed=st.integers(0, 30))
    def pass_time(self, elapsed: int) -> None:
        self.now += elapsed
        due = [qp.patience for qp in self.timers.due(self.now)]
        times = [self.model.pop(patience) for patience in due]
        assert times == sorted(times)
        assert all(time <= self.now for time in times)
        assert all(time > self.now for time in self.model.values())
        assert all(patience.deadline is None for patience in due)

    @invariant()
    def the_soonest_is_next_however_often_asked(self) -> None:
        for _ in range(2):
            assert self.timers.next() == min(self.model.values(), default=None)


def patience_of(host: Host) -> Patience:
    """That of a new queue pair."""
    cq = host.nic.create_cq(4)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP)).patience


test_timers = Waiting.TestCase


def test_a_deadline_that_moves_with_every_ack_costs_no_place_each_time() -> None:
    patience, timers = patience_of(Host()), Timers()
    for time in range(1, 1000):
        patience.deadline = time
        timers.watch(patience, time)
    assert timers._entries == 1
    assert timers.next() == 999
