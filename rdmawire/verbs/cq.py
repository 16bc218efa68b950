"""Completion queues, IBA 10.2.4 and 11.2.8: completions are kept here until they are polled.

A queue that is full when a completion is added is overrun: the completion is lost, the queue
accepts no more, and its queue pairs fail (IBA 10.10.3.2, 11.6.3.1). Completions added before can
still be polled.

A completion event is reported once per request for notification, for a completion added after the
request. Moderation (ibv_modify_cq(3)) delays the event until ``count`` completions were added, or
until ``period`` ns after the first one. CQEs in memory are written in :mod:`rdmawire.ib.doorbell`.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from errno import EBUSY, EINVAL, EOPNOTSUPP

from rdmawire.errors import VerbsError
from rdmawire.terminal import plural
from rdmawire.validate import check_int
from rdmawire.verbs.async_event import AsyncChannel, CompletionEvent, CQError, QPFatal, Sink
from rdmawire.verbs.enums import WorkCompletion
from rdmawire.verbs.profile import IBTA, Bounds, Profile

_CQE = Bounds(1, lambda profile: profile.max_cqe)
_COUNT = Bounds(0, lambda profile: profile.max_cq_count)
_PERIOD = Bounds(0, lambda profile: profile.max_cq_period)


def check_cqe(cqe: int, profile: Profile) -> None:
    """``VerbsError`` EINVAL for a number of completions that a queue cannot hold."""
    _CQE.check("cqe", cqe, profile)


class CompChannel:
    """Completion events of the CQs that were created with it, oldest first.

    ibv_create_comp_channel(3). Completion events of other CQs stay with the engine
    (``next_event``), so that each reader gets only events of its own CQs.
    """

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: deque[CompletionQueue] = deque()

    def __repr__(self) -> str:
        return f"<CompChannel: {plural(len(self.events), 'event')}>"

    def get_cq_event(self) -> "CompletionQueue | None":
        """Remove the oldest event and return its CQ, or return ``None``. ibv_get_cq_event(3)."""
        return self.events.popleft() if self.events else None


class CompletionQueue:
    """A queue for ``cqe`` completions.

    Completion events go to ``channel``, or to ``sink`` without one; asynchronous events go to
    ``sink``, which delivers them to ``async_channel`` if there is one.

    ``polled`` counts the completions that were polled. ``qps`` and ``srqs`` are the numbers of the
    queue pairs, and of the shared receive queues of XRC, that complete here. ``VerbsError`` EINVAL
    for a size beyond the profile's limit (ibv_create_cq(3)).
    """

    __slots__ = (
        "_armed",
        "_count",
        "_deadline",
        "_held",
        "_period",
        "_profile",
        "_room",
        "_sink",
        "_solicited_only",
        "_waiting",
        "async_channel",
        "channel",
        "number",
        "polled",
        "qps",
        "srqs",
    )

    def __init__(
        self,
        number: int,
        cqe: int,
        sink: Sink,
        *,
        profile: Profile = IBTA,
        channel: CompChannel | None = None,
        async_channel: AsyncChannel | None = None,
    ) -> None:
        check_cqe(cqe, profile)
        self.number = number
        self.channel = channel
        self.async_channel = async_channel
        self.polled = 0
        self.qps: set[int] = set()
        self.srqs: set[int] = set()
        self._held: deque[WorkCompletion] = deque()
        self._room = cqe  # 0 when broken
        self._sink = sink
        self._profile = profile
        self._armed = self._solicited_only = False
        self._count = self._period = 0
        self._waiting = 0  # completions since the last event that count for the next
        self._deadline: int | None = None

    def __len__(self) -> int:
        return len(self._held)

    @property
    def cqe(self) -> int:
        """Maximum number of completions; 0 after an overrun."""
        return self._room

    @property
    def broken(self) -> bool:
        """Whether it was overrun."""
        return not self._room

    def __repr__(self) -> str:
        state = "overrun" if self.broken else f"{len(self)} of {self._room} completions"
        return f"<CQ {self.number}: {state}>"

    def push(self, completion: WorkCompletion, now: int, solicited: bool = False) -> int:
        """Queue a completion. Return its number, from 1 on, or 0 if the queue is overrun.

        It was polled once :attr:`polled` reaches that number.

        ``solicited`` is the Solicited Event bit of its message.
        """
        before = len(self._held)
        if before >= self._room:
            self._overrun()
            return 0
        self._held.append(completion)
        if self._armed:
            self._tell(now, solicited or completion.status != 0)
        return self.polled + before + 1

    def has_room(self, count: int) -> bool:
        """Whether ``count`` more completions fit."""
        return len(self._held) + count <= self._room

    @property
    def room(self) -> int:
        """How many completions :meth:`push_all` may add; 0 or less if an event is requested."""
        return 0 if self._armed else self._room - len(self._held)

    def push_all(self, completions: Sequence[WorkCompletion]) -> range:
        """Queue at most :attr:`room` completions. Return their numbers, as :meth:`push` does."""
        first = self.polled + len(self._held) + 1
        self._held.extend(completions)
        return range(first, first + len(completions))

    def poll(self, most: int) -> list[WorkCompletion]:
        """Remove and return the oldest completions, at most ``most`` (>= 0). ibv_poll_cq(3)."""
        held = self._held
        if most.__class__ is not int or most < 0:
            check_int("num_entries", most)
        if not held:
            return []
        if most >= len(held):
            taken = list(held)
            held.clear()
            self.polled += len(taken)
            return taken
        self.polled += most
        if most == 1:
            return [held.popleft()]
        popleft = held.popleft
        return [popleft() for _ in range(most)]

    def resize(self, cqe: int) -> None:
        """Set the size to ``cqe``; EINVAL if it holds more, or was overrun. ibv_resize_cq(3)."""
        check_cqe(cqe, self._profile)
        if self.broken:
            raise VerbsError(f"CQ {self.number} overran", EINVAL)
        if cqe < len(self._held):
            raise VerbsError(f"cqe {cqe} is less than the {len(self._held)} held", EINVAL)
        self._room = cqe

    def req_notify(self, solicited_only: bool = False) -> None:
        """Request an event for the next completion that is added. ibv_req_notify_cq(3).

        ``solicited_only`` limits it to a solicited or failed completion; it does not limit an
        earlier request for any completion (IBA 11.4.2.2).
        """
        self._solicited_only = solicited_only and (self._solicited_only or not self._armed)
        self._armed = True

    def moderate(self, count: int, period: int, now: int) -> None:
        """Delay events until ``count`` completions, or ``period`` ns after the first one.

        Zero disables that condition; zero for both reports events at once. Completions already
        counted are reported at once if they meet the new ``count``; otherwise the period restarts
        at ``now`` (ns). ``VerbsError`` EOPNOTSUPP on a device without moderation, EINVAL beyond its
        limits (``cq_mod_caps``). ibv_modify_cq(3).
        """
        if not self._profile.max_cq_count:
            raise VerbsError(f"a device of {self._profile.name} does not moderate", EOPNOTSUPP)
        _COUNT.check("cq_count", count, self._profile)
        _PERIOD.check("cq_period", period, self._profile)
        self._count, self._period = count, period
        self._deadline = None
        if self._waiting:
            self._tell_or_wait(now)

    def next_timer(self) -> int | None:
        """When :meth:`handle_timer` is due (ns), if an event is delayed."""
        return self._deadline

    def handle_timer(self, now: int) -> None:
        """Report an event that was delayed until ``now`` (ns)."""
        if self._deadline is not None and now >= self._deadline:
            self._fire()

    def discard_events(self) -> None:
        """Remove the events of this queue from its channel: it is destroyed."""
        if self.channel is not None:
            kept = [cq for cq in self.channel.events if cq is not self]
            self.channel.events.clear()
            self.channel.events.extend(kept)

    def check_unused(self) -> None:
        """``VerbsError`` EBUSY while queues complete there. ibv_destroy_cq(3)."""
        if self.qps:
            raise VerbsError(f"CQ {self.number} is used by {len(self.qps)} queue pairs", EBUSY)
        if self.srqs:
            raise VerbsError(f"CQ {self.number} is used by {len(self.srqs)} XRC SRQs", EBUSY)

    def _tell(self, now: int, solicited: bool) -> None:
        if self._solicited_only and not solicited:
            return
        self._waiting += 1
        self._tell_or_wait(now)

    def _tell_or_wait(self, now: int) -> None:
        count, period = self._count, self._period
        if self._waiting >= count > 0 or not (count or period):
            self._fire()
        elif period and self._deadline is None:
            self._deadline = now + period

    def _fire(self) -> None:
        self._armed = False
        self._waiting = 0
        self._deadline = None
        if self.channel is None:
            self._sink(CompletionEvent(self.number))
        else:
            self.channel.events.append(self)

    def _overrun(self) -> None:
        if self.broken:
            return
        self._room = 0
        self._sink(CQError(self.number))
        for qp in sorted(self.qps):
            self._sink(QPFatal(qp))


class Slots:
    """The slots of one work queue that are in use.

    ``held`` counts them as of the last :meth:`reclaim`, and those taken since. ``reports`` has, for
    each slot and by completion queue, the number of the completion that frees it
    (:meth:`CompletionQueue.push`). ``unreported`` counts unsignaled work that completed since the
    last completion.
    """

    __slots__ = ("_at_poll", "held", "reports", "unreported")

    def __init__(self, profile: Profile) -> None:
        self._at_poll = profile.frees_slots_at_poll
        self.clear()

    def clear(self) -> None:
        """Free all slots: the queue was emptied, and unpolled completions free no more."""
        self.held = self.unreported = 0
        self.reports: defaultdict[CompletionQueue, deque[int]] = defaultdict(deque)

    def report_silent(self, cq: CompletionQueue, position: int) -> None:
        """Free unsignaled work that completed with the completion number ``position`` of ``cq``."""
        self.reports[cq].extend([position] * self.unreported)
        self.unreported = 0

    def reclaim(self) -> int:
        """Free the slots whose completions were polled. Return how many are still held."""
        if not self._at_poll:
            self.held -= self.unreported
            self.unreported = 0
        for cq, reports in self.reports.items():
            freed = cq.polled if self._at_poll else cq.polled + len(cq)
            before = len(reports)
            if reports and reports[-1] <= freed:
                reports.clear()
            while reports and reports[0] <= freed:
                reports.popleft()
            self.held -= before - len(reports)
        return self.held

    def unpolled(self) -> int:
        """How many completions were not polled as of the last :meth:`reclaim`."""
        return sum(len(set(reports)) for reports in self.reports.values())
