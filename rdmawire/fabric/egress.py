"""The way out of a port: a queue for each priority, and a wire that takes one frame at a time."""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from rdmawire.fabric.flow import PRIORITIES
from rdmawire.fabric.line import QUANTUM, SECOND, bits, duration
from rdmawire.fabric.pause import Quanta

OWN: Final = -1
"""Instead of a port's number: of frames that came in by none."""


class Lane(NamedTuple):
    """What frames of a flow have in common: ``priority``, and the number of the port they came by.

    ``markable`` says whether a mark would be new to them.
    """

    priority: int = 0
    ingress: int = OWN
    markable: bool = False


F = TypeVar("F")
"""Frames of a port: bytes of an adapter's, envelopes of a switch's."""

Queued = tuple[F, Lane, int]
"""A frame that waits, and its octets: a plain tuple, for there is one at each port it passes."""

_CONTROL: Final = Lane()

Scheduler = Callable[[int, int], int]
"""The priority to serve, of those in a set of bits, after the one that was served last."""


def strict(ready: int, last: int) -> int:  # noqa: ARG001 - a scheduler
    """The highest priority, always."""
    return ready.bit_length() - 1


def round_robin(ready: int, last: int) -> int:
    """The next lower one than the last that has something, round and round."""
    return strict(ready & ((1 << last) - 1) or ready, last)


SCHEDULERS: Final[dict[str, Scheduler]] = {"strict": strict, "round_robin": round_robin}


class Egress(Generic[F]):
    """Queues, and the wire behind them. A pause stops one queue; what is on the wire goes on.

    ``rate`` is in bits a second, ``free_at`` (ns) is when the wire is free. ``octets`` are those
    that wait, by priority; ``paused_ns`` is how long each was stopped in all, ``pauses`` how often.
    """

    __slots__ = (
        *("_control", "_count", "_free", "_last", "_queues", "_resting", "_schedule", "_since"),
        *("_until", "_waiting", "free_at", "octets", "paused_ns", "pauses", "rate"),
    )

    def __init__(self, rate: int | None, scheduling: str = "strict") -> None:
        self.rate = rate
        self.free_at = 0
        self.octets = [0] * PRIORITIES
        self.pauses = [0] * PRIORITIES
        self.paused_ns = [0] * PRIORITIES
        self._queues: tuple[deque[Queued[F]], ...] = tuple(deque() for _ in range(PRIORITIES))
        self._control: deque[Queued[F]] = deque()
        self._schedule = SCHEDULERS[scheduling]
        self._last = 0
        self._count = 0
        self._waiting = 0
        self._resting = 0
        self._until = [0] * PRIORITIES
        self._since = [0] * PRIORITIES
        self._free = 0  # as free_at, but ns times rate, so that no fraction gets lost

    def __len__(self) -> int:
        """Frames in the queues."""
        return self._count

    @property
    def stopped(self) -> bool:
        """Whether nothing waits but what pauses have stopped."""
        return not self._control and not self._waiting & ~self._resting

    def put(self, frame: F, lane: Lane, size: int) -> None:
        """One more frame of ``size`` octets waits."""
        priority = lane[0]
        self._queues[priority].append((frame, lane, size))
        self._count += 1
        self.octets[priority] += size
        self._waiting |= 1 << priority

    def last(self, priority: int) -> Queued[F] | None:
        """The last frame that waits in the queue of a priority."""
        queue = self._queues[priority]
        return queue[-1] if queue else None

    def replace_last(self, item: Queued[F]) -> None:
        """Replace the last frame of a priority by one of the same length."""
        self._queues[item[1].priority][-1] = item

    def put_control(self, frame: F, size: int) -> None:
        """A frame of ``size`` octets that goes before all others, and that no pause stops."""
        self._control.append((frame, _CONTROL, size))

    def take(self, now: int) -> Queued[F] | None:
        """The next frame to go, if the wire is free and one may."""
        if now < self.free_at or not (self._waiting or self._control):
            return None
        if self._resting:
            self._end_pauses(now)
        if self._control:
            item = self._control.popleft()
        elif ready := self._waiting & ~self._resting:
            item = self._pop(self._schedule(ready, self._last))
        else:
            return None
        if rate := self.rate:
            # Back to back, from where the frame before it ended.
            begun = self._free if self._free > (now - 1) * rate else now * rate
            self._free = free = begun + bits(item[2]) * SECOND
            self.free_at = -(-free // rate)
        return item

    def next_time(self) -> int | None:
        """When something can go (ns), if something waits."""
        if self._control or self._waiting & ~self._resting:
            return self.free_at
        if not self._waiting:
            return None
        ends = [self._until[p] for p in range(PRIORITIES) if self._waiting >> p & 1]
        return max(self.free_at, min(ends))

    def pause(self, quanta: Quanta, now: int) -> None:
        """Stop priorities for a while from now on, or let them go on."""
        self._end_pauses(now)
        for priority, length in quanta.items():
            self._until[priority] = now + duration(length * QUANTUM, self.rate)
            if length and not self._resting >> priority & 1:
                self._resting |= 1 << priority
                self._since[priority] = now
                self.pauses[priority] += 1
        self._end_pauses(now)

    def rested(self, priority: int, now: int) -> int:
        """How long a priority was stopped in all (ns), with the pause that it is in now."""
        if not self._resting >> priority & 1:
            return self.paused_ns[priority]
        return self.paused_ns[priority] + min(now, self._until[priority]) - self._since[priority]

    def _end_pauses(self, now: int) -> None:
        for priority in range(PRIORITIES):
            if self._resting >> priority & 1 and self._until[priority] <= now:
                self._resting &= ~(1 << priority)
                self.paused_ns[priority] += self._until[priority] - self._since[priority]

    def _pop(self, priority: int) -> Queued[F]:
        queue = self._queues[priority]
        item = queue.popleft()
        self._count -= 1
        self.octets[priority] -= item[2]
        if not queue:
            self._waiting &= ~(1 << priority)
        self._last = priority
        return item
