"""Egress of a port: a queue for each priority, and a wire that carries one frame at a time."""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from rdmawire.fabric.classify import PRIORITIES, Classifier
from rdmawire.fabric.link import ETHERNET, QUANTUM, Framing, duration, framing_of
from rdmawire.fabric.pfc import GROUP, Quanta, quanta_of

OWN: Final = -1
"""Ingress number of frames that the port's owner sends itself."""


class TrafficClass(NamedTuple):
    """Treatment of a flow's frames by a switch.

    ``priority`` is 0 to 7, ``ingress`` the number of their ingress port, ``markable`` whether
    they are ECN-capable and not marked yet.
    """

    priority: int = 0
    ingress: int = OWN
    markable: bool = False


F = TypeVar("F")
"""A frame: bytes at an adapter, an envelope at a switch."""

Queued = tuple[F, TrafficClass, int]
"""A queued frame, its class, its size in bytes. A plain tuple, as every port creates one."""

_CONTROL: Final = TrafficClass()

Scheduler = Callable[[int, int], int]
"""Function that chooses one of the ready priorities (a bit set), given the previous one."""


def strict(ready: int, last: int) -> int:  # noqa: ARG001 - a scheduler
    """The highest ready priority."""
    return ready.bit_length() - 1


def round_robin(ready: int, last: int) -> int:
    """The next lower ready priority after the last one, wrapping around."""
    return strict(ready & ((1 << last) - 1) or ready, last)


SCHEDULERS: Final[dict[str, Scheduler]] = {"strict": strict, "round_robin": round_robin}


class PortQueue(Generic[F]):
    """Queues and the wire after them. A pause stops a queue, never a frame on the wire.

    ``rate`` is in bits per second, ``free_at`` (ns) is when the wire is free. ``bytes`` are the
    queued bytes by priority, ``paused_ns`` the total pause times, ``pauses`` the pause counts.
    ``framing`` is that of the link.
    """

    __slots__ = (
        *("_control", "_count", "_early", "_last", "_queues", "_paused", "_schedule", "_since"),
        *("_time_parts", "_until", "_waiting", "free_at", "bytes", "paused_ns", "pauses", "rate"),
    )

    def __init__(
        self, rate: int | None, scheduling: str = "strict", framing: Framing = ETHERNET
    ) -> None:
        self.rate = rate
        self._time_parts = framing.time_parts
        self.free_at = 0
        self.bytes = [0] * PRIORITIES
        self.pauses = [0] * PRIORITIES
        self.paused_ns = [0] * PRIORITIES
        self._queues: tuple[deque[Queued[F]], ...] = tuple(deque() for _ in range(PRIORITIES))
        self._control: deque[Queued[F]] = deque()
        self._schedule = SCHEDULERS[scheduling]
        self._last = 0
        self._count = 0
        self._waiting = 0
        self._paused = 0
        self._until = [0] * PRIORITIES
        self._since = [0] * PRIORITIES
        self._early = 0  # how long before free_at the wire is free, in units of ns / rate

    def __len__(self) -> int:
        """Number of queued frames."""
        return self._count

    @property
    def stopped(self) -> bool:
        """Whether no frame may be sent: none is queued, or all are paused."""
        return not self._control and not self._waiting & ~self._paused

    def put(self, frame: F, traffic_class: TrafficClass, size: int) -> None:
        """Queue a frame of ``size`` bytes."""
        priority = traffic_class[0]
        self._queues[priority].append((frame, traffic_class, size))
        self._count += 1
        self.bytes[priority] += size
        self._waiting |= 1 << priority

    def last(self, priority: int) -> Queued[F] | None:
        """The last frame in the queue of a priority."""
        queue = self._queues[priority]
        return queue[-1] if queue else None

    def replace_last(self, item: Queued[F]) -> None:
        """Replace the last frame of a priority by one of the same size."""
        self._queues[item[1].priority][-1] = item

    def put_control(self, frame: F, size: int) -> None:
        """Queue a control frame of ``size`` bytes, which precedes all others and ignores pauses."""
        self._control.append((frame, _CONTROL, size))

    def take(self, now: int) -> Queued[F] | None:
        """Remove and return the next frame, if the wire is free and one may be sent."""
        ready, control = self._waiting, self._control
        if now < self.free_at or not (ready or control):
            return None
        if self._paused:
            self._end_pauses(now)
            ready &= ~self._paused
        if control:
            item = control.popleft()
        elif ready:
            # Not in a method of its own: every port does this for each frame.
            several = ready & (ready - 1)
            priority = self._schedule(ready, self._last) if several else ready.bit_length() - 1
            queue = self._queues[priority]
            item = queue.popleft()
            self._count -= 1
            self.bytes[priority] -= item[2]
            if not queue:
                self._waiting &= ~(1 << priority)
            self._last = priority
        else:
            return None
        if rate := self.rate:
            time, rest = self._time_parts(item[2], rate)
            if now == self.free_at:  # back to back, from the end of the preceding frame
                rest -= self._early
            self._early = rate - rest if rest > 0 else -rest
            self.free_at = now + time + 1 if rest > 0 else now + time
        return item

    def next_time(self) -> int | None:
        """When the next queued frame may be sent (ns), if any."""
        if self._control or self._waiting & ~self._paused:
            return self.free_at
        if not self._waiting:
            return None
        ends = [self._until[p] for p in range(PRIORITIES) if self._waiting >> p & 1]
        return max(self.free_at, min(ends))

    def pause(self, quanta: Quanta, now: int) -> None:
        """Pause priorities for ``quanta`` from now on; 0 quanta resume them."""
        self._end_pauses(now)
        for priority, length in quanta.items():
            self._until[priority] = now + duration(length * QUANTUM, self.rate)
            if length and not self._paused >> priority & 1:
                self._paused |= 1 << priority
                self._since[priority] = now
                self.pauses[priority] += 1
        self._end_pauses(now)

    def rested(self, priority: int, now: int) -> int:
        """Total pause time of a priority (ns), including the current pause."""
        if not self._paused >> priority & 1:
            return self.paused_ns[priority]
        return self.paused_ns[priority] + min(now, self._until[priority]) - self._since[priority]

    def _end_pauses(self, now: int) -> None:
        for priority in range(PRIORITIES):
            if self._paused >> priority & 1 and self._until[priority] <= now:
                self._paused &= ~(1 << priority)
                self.paused_ns[priority] += self._until[priority] - self._since[priority]


MAX_WAITING: Final = 1024
"""Number of queued frames from which the MAC takes no more bursts from the adapter."""

_CLASSES: Final = tuple(TrafficClass(priority) for priority in range(PRIORITIES))


class Adapter(Protocol):
    """An engine that sends through a MAC; each ``transmit`` returns a burst."""

    def receive(self, frame: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> list[bytes]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


@runtime_checkable
class SendsMore(Protocol):
    """An adapter that reports whether it has more frames, to avoid needless ``transmit`` calls."""

    @property
    def sends_more(self) -> bool: ...


class RatedLink(Protocol):
    """A link with a rate in bits per second, or ``None``."""

    @property
    def rate(self) -> int | None: ...


class Mac:
    """The MAC of an adapter: queues frames by priority until the wire is free.

    It takes more frames from the adapter when no queued frame may be sent. So a paused priority
    does not stop other priorities, until :data:`MAX_WAITING` frames are queued.
    """

    __slots__ = ("_announcer", "_classifier", "_more", "adapter", "egress")

    def __init__(
        self, adapter: Adapter, link: RatedLink, classifier: Classifier | None = None
    ) -> None:
        self.adapter = adapter
        self._announcer = adapter if isinstance(adapter, SendsMore) else None
        self.egress = PortQueue[bytes](link.rate, framing=framing_of(link))
        self._classifier = Classifier() if classifier is None else classifier
        self._more = True

    def receive(self, frame: bytes, now: int) -> None:
        """Obey a pause; pass every other frame to the adapter."""
        quanta = quanta_of(frame) if frame[:6] == GROUP else None
        if quanta is None:
            self._more = True
            self.adapter.receive(frame, now)
        else:
            self.egress.pause(quanta, now)

    def send(self, frame: bytes) -> None:
        """Queue a frame that the adapter did not make, after those that are queued."""
        priority = self._classifier.traits(frame).priority
        self.egress.put(frame, _CLASSES[priority], len(frame))

    def transmit(self, now: int) -> list[bytes]:
        """The next frame, if the wire is free."""
        item = self.egress.take(now)
        while item is None and self._refill(now):
            item = self.egress.take(now)
        if item is None:
            return []
        self._more = True  # the adapter may have new frames to send after this one
        return [item[0]]

    def _refill(self, now: int) -> bool:
        """Take a burst from the adapter, if every queued frame is paused."""
        if not self.egress.stopped or len(self.egress) >= MAX_WAITING:
            return False
        frames = self.adapter.transmit(now)
        for frame in frames:
            traffic_class = _CLASSES[self._classifier.traits(frame).priority]
            self.egress.put(frame, traffic_class, len(frame))
        self._more = bool(frames)
        return self._more

    def next_timer(self) -> int | None:
        """When the wire is free for the next frame, or the adapter's timer is due (ns)."""
        source = self._announcer
        more = self._more if source is None else source.sends_more
        asking = more and len(self.egress) < MAX_WAITING
        due = self.egress.free_at if asking else self.egress.next_time()
        wanted = self.adapter.next_timer()
        return wanted if due is None or (wanted is not None and wanted < due) else due

    def handle_timer(self, now: int) -> None:
        """Call the adapter if its timer is due."""
        due = self.adapter.next_timer()
        if due is not None and due <= now:
            self._more = True
            self.adapter.handle_timer(now)
