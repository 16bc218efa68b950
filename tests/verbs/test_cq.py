"""Completion queues beside a plain list; overruns, sizes, and who is notified when."""

from collections.abc import Callable
from errno import EBUSY, EINVAL, EOPNOTSUPP

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rdmawire.errors import VerbsError
from rdmawire.verbs.async_event import CompletionEvent, CQError, Event, QPFatal
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, RXE

NOTIFICATION = CompletionEvent(3)
FAILED = WorkCompletion(99, WCStatus.WR_FLUSH_ERR)


class Notified:
    """A queue of number 3, and what it notified."""

    def __init__(self, cqe: int = 8) -> None:
        self.events: list[Event] = []
        self.cq = CompletionQueue(3, cqe, self.events.append)

    def push(self, count: int, now: int = 0, solicited: bool = False) -> None:
        for wr_id in range(count):
            assert self.cq.push(WorkCompletion(wr_id), now, solicited)


def test_completions_come_out_as_they_went_in() -> None:
    notified = Notified()
    notified.push(5)
    assert [wc.wr_id for wc in notified.cq.poll(2) + notified.cq.poll(0) + notified.cq.poll(9)] == [
        *range(5)
    ]
    assert notified.cq.poll(1) == []
    assert notified.events == []


def test_an_overrun_is_one_event_with_all_queue_pairs_and_loses_the_completion() -> None:
    notified = Notified(cqe=2)
    notified.cq.qps |= {18, 17}
    notified.push(2)
    for _ in range(3):
        assert not notified.cq.push(WorkCompletion(7), 0)
    assert notified.events == [CQError(3), QPFatal(17), QPFatal(18)]
    assert [wc.wr_id for wc in notified.cq.poll(9)] == [0, 1]


def test_a_broken_queue_stays_broken() -> None:
    notified = Notified(cqe=1)
    notified.push(1)
    notified.cq.push(WorkCompletion(7), 0)
    notified.cq.poll(1)
    assert notified.cq.broken
    assert not notified.cq.push(WorkCompletion(8), 0)
    assert len(notified.cq) == 0
    with pytest.raises(VerbsError, match="overran") as caught:
        notified.cq.resize(4)
    assert caught.value.errno == EINVAL


@pytest.mark.parametrize("cqe", [0, -1, IBTA.max_cqe + 1])
def test_sizes_end_at_the_devices_limit(cqe: int) -> None:
    with pytest.raises(VerbsError, match=f"cqe: {cqe} is not an integer") as caught:
        Notified(cqe)
    assert caught.value.errno == EINVAL
    with pytest.raises(VerbsError, match=f"cqe: {cqe} is not an integer"):
        Notified().cq.resize(cqe)


def test_a_queue_does_not_shrink_below_what_it_holds() -> None:
    notified = Notified()
    notified.push(3)
    with pytest.raises(VerbsError, match="cqe 2 is less than the 3 held") as caught:
        notified.cq.resize(2)
    assert (caught.value.errno, notified.cq.cqe) == (EINVAL, 8)
    notified.cq.resize(3)
    assert not notified.cq.push(WorkCompletion(3), 0)


def test_only_an_unused_queue_may_go() -> None:
    notified = Notified()
    notified.cq.qps.add(17)
    with pytest.raises(VerbsError, match="used by 1") as caught:
        notified.cq.check_unused()
    assert caught.value.errno == EBUSY
    notified.cq.qps.discard(17)
    notified.cq.check_unused()


def test_a_request_for_notification_is_answered_by_the_next_completion_once() -> None:
    notified = Notified()
    notified.push(1)
    notified.cq.req_notify()
    assert notified.events == []
    notified.push(2)
    assert notified.events == [NOTIFICATION]


@pytest.mark.parametrize(
    ("completion", "solicited", "tells"),
    [
        (WorkCompletion(1), False, False),
        (WorkCompletion(1), True, True),
        (FAILED, False, True),
    ],
)
def test_solicited_only(completion: WorkCompletion, solicited: bool, tells: bool) -> None:
    notified = Notified()
    notified.cq.req_notify(solicited_only=True)
    notified.cq.push(completion, 0, solicited)
    assert notified.events == [NOTIFICATION] * tells


@pytest.mark.parametrize("asked", [(True, False), (False, True), (False, False)])
def test_a_request_for_solicited_completions_does_not_replace_one_for_any(
    asked: tuple[bool, bool],
) -> None:
    notified = Notified()
    for solicited_only in asked:
        notified.cq.req_notify(solicited_only)
    notified.push(1)
    assert notified.events == [NOTIFICATION]


def test_asking_again_asks_anew() -> None:
    notified = Notified()
    notified.cq.req_notify()
    notified.push(1)
    notified.cq.req_notify(solicited_only=True)
    notified.push(1)
    assert notified.events == [NOTIFICATION]


def test_events_wait_for_so_many() -> None:
    notified = Notified()
    notified.cq.moderate(count=3, period=0, now=0)
    notified.cq.req_notify()
    notified.push(2)
    assert (notified.events, notified.cq.next_timer()) == ([], None)
    notified.push(1)
    assert notified.events == [NOTIFICATION]


def test_events_wait_for_so_long_after_the_first() -> None:
    notified = Notified()
    notified.cq.moderate(count=0, period=1000, now=0)
    notified.cq.req_notify()
    notified.push(1, now=50)
    notified.push(3, now=900)
    assert notified.cq.next_timer() == notified.cq.next_timer() == 1050
    notified.cq.handle_timer(1049)
    assert notified.events == []
    notified.cq.handle_timer(1050)
    assert notified.events == [NOTIFICATION]
    assert notified.cq.next_timer() is None
    notified.cq.handle_timer(2000)
    assert notified.events == [NOTIFICATION]


@pytest.mark.parametrize(
    "ask",
    [
        lambda cq: cq.moderate(-1, 0, 0),
        lambda cq: cq.moderate(IBTA.max_cq_count + 1, 0, 0),
        lambda cq: cq.moderate(0, -1, 0),
        lambda cq: cq.moderate(0, IBTA.max_cq_period + 1, 0),
    ],
)
def test_moderation_has_limits(ask: Callable[[CompletionQueue], None]) -> None:
    with pytest.raises(VerbsError, match=r"cq_(count|period): .* is not an integer") as caught:
        ask(Notified().cq)
    assert caught.value.errno == EINVAL


def test_soft_roce_does_not_moderate() -> None:
    cq = CompletionQueue(1, 4, print, profile=RXE)
    for count in (0, 2):
        with pytest.raises(VerbsError, match="a device of rxe does not moderate") as caught:
            cq.moderate(count, 0, 0)
        assert caught.value.errno == EOPNOTSUPP


@pytest.mark.parametrize(("count", "period"), [(2, 0), (0, 0), (1, 1000)])
def test_a_moderated_event_comes_at_once_with_enough_completions(count: int, period: int) -> None:
    notified = Notified()
    notified.cq.moderate(count=5, period=0, now=0)
    notified.cq.req_notify()
    notified.push(2)
    notified.cq.moderate(count, period, now=9)
    assert notified.events == [NOTIFICATION]


def test_what_is_put_off_is_waited_for_anew() -> None:
    notified = Notified()
    notified.cq.moderate(count=5, period=0, now=0)
    notified.cq.req_notify()
    notified.push(2)
    notified.cq.moderate(count=0, period=100, now=9)
    assert (notified.events, notified.cq.next_timer()) == ([], 109)
    notified.cq.handle_timer(109)
    assert notified.events == [NOTIFICATION]


class Beside(RuleBasedStateMachine):
    """A queue and what it should be: a list, and the times at which its owner is notified."""

    @initialize(cqe=st.integers(1, 12))
    def create(self, cqe: int) -> None:
        self.notified = Notified(cqe)
        self.cq = self.notified.cq
        self.now, self.next_wr = 0, 0
        self.held: list[int] = []
        self.room, self.broken = cqe, False
        self.asked: str | None = None
        self.count = self.period = 0
        self.since: list[int] = []  # when those came that count for the next event
        self.due: int | None = None
        self.expected: list[Event] = []

    @rule(solicited=st.booleans(), failed=st.booleans(), later=st.integers(0, 30))
    def push(self, solicited: bool, failed: bool, later: int) -> None:
        self.now += later
        status = WCStatus.WR_FLUSH_ERR if failed else WCStatus.SUCCESS
        taken = self.cq.push(WorkCompletion(self.next_wr, status), self.now, solicited)
        if self.broken or len(self.held) == self.room:
            assert not taken
            self.expected += [] if self.broken else [CQError(3)]
            self.broken = True
            return
        assert taken
        self.held.append(self.next_wr)
        self.next_wr += 1
        if self.asked == "any" or (self.asked == "solicited" and (solicited or failed)):
            self.count_one()

    def count_one(self) -> None:
        self.since.append(self.now)
        self.tell_or_wait()

    def tell_or_wait(self) -> None:
        unmoderated = self.count == self.period == 0
        if unmoderated or 0 < self.count <= len(self.since):
            self.deliver()
        elif self.period and self.due is None:
            self.due = self.now + self.period

    def deliver(self) -> None:
        self.expected.append(NOTIFICATION)
        self.asked, self.since, self.due = None, [], None

    @rule(most=st.integers(0, 14))
    def poll(self, most: int) -> None:
        assert [wc.wr_id for wc in self.cq.poll(most)] == self.held[:most]
        del self.held[:most]

    @rule(cqe=st.integers(0, 12))
    def resize(self, cqe: int) -> None:
        if self.broken or cqe < max(1, len(self.held)):
            with pytest.raises(VerbsError):
                self.cq.resize(cqe)
        else:
            self.cq.resize(cqe)
            self.room = cqe

    @rule(solicited_only=st.booleans())
    def req_notify(self, solicited_only: bool) -> None:
        self.cq.req_notify(solicited_only)
        if self.asked != "any":
            self.asked = "solicited" if solicited_only else "any"

    @rule(count=st.integers(0, 4), period=st.sampled_from([0, 10, 100]))
    def moderate(self, count: int, period: int) -> None:
        self.cq.moderate(count, period, self.now)
        self.count, self.period, self.due = count, period, None
        if self.since:
            self.tell_or_wait()

    @rule(later=st.integers(0, 150))
    def wait(self, later: int) -> None:
        self.now += later
        self.cq.handle_timer(self.now)
        if self.due is not None and self.due <= self.now:
            self.deliver()

    @precondition(lambda self: hasattr(self, "cq"))
    @invariant()
    def agree(self) -> None:
        assert len(self.cq) == len(self.held)
        assert self.cq.next_timer() == self.due
        assert self.notified.events == self.expected
        assert self.cq.broken == self.broken


TestBeside = Beside.TestCase
