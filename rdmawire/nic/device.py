"""What all queue pairs of one adapter share."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from rdmawire.memory.registrar import Limits, PeerMemory, Registrar
from rdmawire.memory.space import AddressSpace
from rdmawire.nic.event import Event
from rdmawire.nic.profile import Profile
from rdmawire.nic.unseal import Drop
from rdmawire.nic.xrcd import XRCDomains

if TYPE_CHECKING:
    from rdmawire.nic.cq import CompletionQueue
    from rdmawire.nic.qp import QueuePair
    from rdmawire.nic.srq import SharedReceiveQueue


DEFAULT_PKEY = 0xFFFF
"""The default partition, as a full member. IBA 10.9.1.2."""
INVALID_PKEY = 0
"""Of no partition: nothing matches it. IBA 10.9.1.1."""


class Device:
    """Keys, queue pairs by number, what is ready to send, and what waits for its time.

    ``forget_flows`` has every frame looked at anew, since addresses or queue pairs changed.
    ``ready`` keeps queue pairs in the order in which they had something to send; ``now`` is the
    time (ns) of what is being done.
    """

    def __init__(
        self,
        mac: bytes,
        space: AddressSpace,
        profile: Profile,
        clients: Sequence[PeerMemory] = (),
    ) -> None:
        self.mac = mac
        self.pkeys = [DEFAULT_PKEY]
        self.profile = profile
        self.space = space
        limits = Limits(
            profile.max_mr,
            profile.max_mr_size,
            profile.max_mw,
            profile.max_fast_reg_pages,
            profile.window_type_2,
        )
        self.memory = Registrar(space, limits, clients)
        self.keys = self.memory.keys
        self.qps: dict[int, QueuePair] = {}
        self.cqs: dict[int, CompletionQueue] = {}
        self.moderated: dict[int, CompletionQueue] = {}
        self.srqs: dict[int, SharedReceiveQueue] = {}
        self.xrcds = XRCDomains()
        self.events: deque[Event] = deque()
        self.drops: Counter[Drop] = Counter()
        self.ready: dict[QueuePair, None] = {}
        self.timers = Timers()
        self.governors = Timers()
        self.forget_flows: Callable[[], None] = _nothing_to_forget
        self.now = 0

    def pkey_at(self, index: int) -> int:
        """The P_Key at this place of the port's table; 0, which is invalid, where none was put."""
        return self.pkeys[index] if index < len(self.pkeys) else INVALID_PKEY


def _nothing_to_forget() -> None:
    """No frame has come yet."""


class Waiter(Protocol):
    """Something of a queue pair that waits for a time."""

    deadline: int | None
    place: int | None

    @property
    def qp(self) -> "QueuePair": ...


class Timers:
    """What waits for a time, the soonest first.

    A deadline that moves away leaves its old place in the heap, and is put back when that comes
    up: nearly every ACK moves one, and that must cost nothing. ``place`` is the one that counts.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._entries = 0

    def watch(self, waiter: Waiter, deadline: int) -> None:
        """Look at it at its deadline (ns), or before."""
        if waiter.place is None or deadline < waiter.place:
            waiter.place = deadline
            self._entries += 1
            heappush(self._heap, (deadline, self._entries, waiter))

    def next(self) -> int | None:
        """The soonest deadline (ns), if anything waits."""
        while self._heap:
            time, _, waiter = self._heap[0]
            if waiter.place == time == waiter.deadline:
                return time
            self._put_back()
        return None

    def _put_back(self) -> None:
        """Take the first place out; what had it gets another if it still waits."""
        time, _, waiter = heappop(self._heap)
        if waiter.place == time:
            waiter.place = None
            if waiter.deadline is not None:
                self.watch(waiter, waiter.deadline)

    def due(self, now: int) -> "Iterator[QueuePair]":
        """The queue pairs whose deadline has come; each has none after."""
        while (time := self.next()) is not None and time <= now:
            waiter = self._heap[0][2]
            waiter.deadline = None
            self._put_back()
            yield waiter.qp
