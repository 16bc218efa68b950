"""Links: loss, delay and duplication of frames.

A link numbers its frames from 1 on, both directions together. A capture by a tap on the link has
the same numbers, so ``drop`` takes the frame numbers that Wireshark shows.

:mod:`rdmawire.fabric.fault` has faults that select frames by their fields.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar, Final, NamedTuple, Protocol

from rdmawire.decode import PROTOCOLS, Protocols
from rdmawire.errors import FabricError
from rdmawire.fabric.frame import Envelope
from rdmawire.units import us
from rdmawire.validate import (
    PERIOD,
    TIME,
    CollectionOf,
    Constraint,
    InstanceOf,
    Integer,
    MappingOf,
    NoneOr,
    Number,
    check_attributes,
)
from rdmawire.wire.roce import Medium

FAULT_WORDS: Final = {
    "drop": "lost",
    "duplicate": "duplicated",
    "delay": "delayed",
    "reorder": "reordered",
    "corrupt": "corrupted",
    "truncate": "truncated",
    "mark": "marked",
    "set": "rewritten",
}
"""Name of each fault action's effect, in comments of captures and in counters."""


class Delivery(NamedTuple):
    """One copy of a frame that a link delivers.

    - ``data``: its bytes.
    - ``wait``: delay beyond the link's latency (ns).
    - ``behind``: number of later frames that must overtake it; ``wait`` is then the maximum delay.
    - ``faults``: words of :data:`FAULT_WORDS` for the effects of faults.
    - ``protocols``: what carries what in it, for faults that find its fields.
    """

    data: bytes
    wait: int = 0
    behind: int = 0
    faults: tuple[str, ...] = ()
    protocols: Protocols = PROTOCOLS


FCS: Final = 4
GAP: Final = 8 + 12
"""Bytes of preamble, start of frame and interpacket gap. IEEE 802.3, 3.2, 4.4.2."""

MIN_FRAME: Final = 60
"""Bytes of the shortest frame without FCS: shorter ones are padded. IEEE 802.3, 4.4.2."""

TAGS: Final = (b"\x81\x00", b"\x88\xa8")
TAG_SIZE: Final = 4
HEADER: Final = 14
QUANTUM: Final = 512
"""Bit times in a pause quantum. IEEE 802.3, 31B.2."""

SECOND: Final = 1_000_000_000


_LENGTHS: Final = 1 << 12
"""Number of cached frame sizes; most frames have one of few sizes."""


@lru_cache(_LENGTHS)
def bit_times(size: int) -> int:
    """Bit times of a frame of ``size`` bytes (without FCS), with preamble and gap."""
    return (max(size, MIN_FRAME) + FCS + GAP) * 8


@lru_cache(_LENGTHS)
def wire_time(size: int, rate: int) -> int:
    """Duration in ns of a frame of ``size`` bytes at ``rate`` bits per second, rounded up."""
    return duration(bit_times(size), rate)


@lru_cache(_LENGTHS)
def wire_time_parts(size: int, rate: int) -> tuple[int, int]:
    """Duration of a frame of ``size`` bytes: whole ns, and the rest in units of ns / ``rate``."""
    return divmod(bit_times(size) * SECOND, rate)


TimeParts = Callable[[int, int], tuple[int, int]]
"""Function that returns the duration of a frame, by its bytes and a rate, as whole ns and rest."""


class Framing(NamedTuple):
    """What the frames of a link begin with, and how long they take, as :func:`wire_time_parts`."""

    medium: Medium
    time_parts: TimeParts


ETHERNET: Final = Framing(Medium.ETHERNET, wire_time_parts)


def framing_of(link: object) -> Framing:
    """Return the framing of a link; channels of other classes carry Ethernet."""
    return getattr(link, "framing", ETHERNET)


def duration(bit_times: int, rate: int | None) -> int:
    """Duration in ns of ``bit_times``, rounded up; 0 on a link without a rate."""
    return -(-bit_times * SECOND // rate) if rate else 0


def exceeds_mtu(frame: bytes, mtu: int) -> bool:
    """Whether a frame has more than ``mtu`` bytes after its Ethernet header and VLAN tags."""
    spare = len(frame) - HEADER - mtu
    at = HEADER - 2
    while spare > 0 and frame[at : at + 2] in TAGS:
        spare -= TAG_SIZE
        at += TAG_SIZE
    return spare > 0


Delays = tuple[int, ...]
"""Delay beyond the latency (ns) of each copy of a frame; empty for a lost frame."""


class Arrival(NamedTuple):
    """A frame that arrives at the far end, and its time (ns)."""

    time: int
    frame: Envelope


class ReorderedArrival(Arrival):
    """A frame that arrives after ``behind`` later ones, or at ``time`` at the latest."""

    behind: int


OnCarried = Callable[[Envelope, tuple[str, ...]], object]
"""Function called with each frame put on a link, and the effects of faults on it."""


class FaultModel(Protocol):
    """Decides which copies of a frame a link delivers."""

    def apply(self, frame: Envelope, number: int) -> Iterable[Delivery]: ...


@dataclass(frozen=True, slots=True)
class Chances:
    """Probabilities (0.0 to 1.0) that a frame is lost, duplicated, or delayed.

    A delayed frame arrives up to ``max_delay`` ns late, and later frames overtake it. All
    random numbers come from ``random``: the same seed gives the same faults. :class:`FabricError`
    for an invalid probability or time.
    """

    random: Random
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    max_delay: int = us(10)

    def __post_init__(self) -> None:
        check_attributes(self, CHANCES, FabricError)

    def apply(self, waits: Delays) -> Delays:
        """Apply losses, duplicates and delays to copies with these delays (ns)."""
        return tuple(wait for copy in waits for wait in self._copies(copy))

    def _copies(self, wait: int) -> Iterable[int]:
        if self._happens(self.drop):
            return
        yield wait + self._late()
        if self._happens(self.duplicate):
            yield wait + self._late()

    def _late(self) -> int:
        return self.random.randint(1, self.max_delay) if self._happens(self.delay) else 0

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance


_NUMBER: Final = Integer(1, called="a frame's number")


class _Numbers(NamedTuple):
    """Allowed frame numbers. The error for a probability refers to ``chances``."""

    numbers: Constraint = CollectionOf(_NUMBER)

    def problem(self, value: object) -> str:
        reason = self.numbers.problem(value)
        return reason and f"{reason}; frames are named by number, and chances=Chances(...) by share"


CHANCES: Final[dict[str, Constraint]] = {
    "random": InstanceOf(Random),
    "drop": Number(0, 1),
    "duplicate": Number(0, 1),
    "delay": Number(0, 1),
    "max_delay": PERIOD,
}
LINK: Final[dict[str, Constraint]] = {
    "latency": TIME,
    "rate": NoneOr(Integer(1, called="a number of bits a second")),
    "mtu": NoneOr(Integer(1, called="a number of bytes")),
    "drop": _Numbers(),
    "duplicate": _Numbers(),
    "delay": MappingOf(_NUMBER, TIME),
    "chances": NoneOr(InstanceOf(Chances)),
    "name": InstanceOf(str),
}
"""Allowed values of each setting, by class."""


class Link:
    """A cable. Frames arrive in order after ``latency`` ns, except for its faults.

    - ``rate``: bits per second. Ports send one frame after the other. ``None``: bytes take no time.
    - ``mtu``: frames with more bytes after their Ethernet header are lost and counted in
      ``oversized``.
    - ``drop``, ``duplicate``: numbers of frames to lose or to duplicate. ``delay``: number of a
      frame to its additional delay (ns).
    - ``chances``: random faults, applied after those by number; ``faults``: applied last.
    - ``name``: the link's name in a network.
    - ``on_carried``: functions called with each frame of a link with faults, after the taps, and
      the words of :data:`FAULT_WORDS` for the effects of faults.

    :class:`FabricError` for an invalid time, rate or frame number.
    """

    framing: ClassVar[Framing] = ETHERNET

    def __init__(
        self,
        latency: int = 0,
        *,
        rate: int | None = None,
        mtu: int | None = None,
        drop: Collection[int] = (),
        duplicate: Collection[int] = (),
        delay: Mapping[int, int] | None = None,
        chances: Chances | None = None,
        faults: FaultModel | None = None,
        name: str = "",
    ) -> None:
        self.latency = latency
        self.rate = rate
        self.mtu = mtu
        self.drop = drop
        self.duplicate = duplicate
        self.delay: Mapping[int, int] = {} if delay is None else delay
        self.chances = chances
        self.faults = faults
        self.name = name
        check_attributes(self, LINK, FabricError)
        self.drop, self.duplicate = frozenset(drop), frozenset(duplicate)
        self.delay = dict(self.delay)
        self.on_carried: list[OnCarried] = []
        self.frames = 0
        self.oversized = 0

    def straight(self, frame: Envelope, now: int) -> int | None:
        """Arrival time (ns) of a frame on a link without faults: faster than :meth:`carry`.

        ``None`` if the link has faults; the frame was then not put on the link.
        """
        if self.faults or self.chances or self.drop or self.duplicate or self.delay or self.mtu:
            return None
        self.frames += 1
        rate = self.rate
        return now + self.latency + (wire_time(len(frame.data), rate) if rate else 0)

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        """Put a frame on the link at ``now`` (ns). Return its arrivals: one, except for faults."""
        self.frames += 1
        deliveries = self._deliveries(frame)
        if self.on_carried:
            self._report(frame, deliveries)
        start = now + self._flight(frame)
        return [_arrival(start, frame, delivery) for delivery in deliveries]

    def _flight(self, frame: Envelope) -> int:
        """Time (ns) from the first byte of a frame sent until the frame is received."""
        rate = self.rate
        return self.latency + (wire_time(len(frame.data), rate) if rate is not None else 0)

    def _deliveries(self, frame: Envelope) -> Sequence[Delivery]:
        """The copies of a frame that the link delivers."""
        if self.mtu is not None and exceeds_mtu(frame.data, self.mtu):
            self.oversized += 1
            return ()
        waits = self._waits(self.frames)
        if not waits:
            return ()
        faults = self.faults
        changed = (Delivery(frame.data),) if faults is None else faults.apply(frame, self.frames)
        return tuple(changed) if waits == (0,) else _waiting(tuple(changed), waits)

    def _report(self, frame: Envelope, deliveries: Sequence[Delivery]) -> None:
        words = dict.fromkeys(word for delivery in deliveries for word in delivery.faults)
        for report in self.on_carried:
            report(frame, tuple(words) if deliveries else (FAULT_WORDS["drop"],))

    def _waits(self, number: int) -> Delays:
        if number in self.drop:
            return ()
        waits: Delays = (self.delay.get(number, 0),) * (2 if number in self.duplicate else 1)
        return waits if self.chances is None else self.chances.apply(waits)


def _waiting(deliveries: Iterable[Delivery], waits: Delays) -> list[Delivery]:
    """All copies, repeated for each delay."""
    said = (
        *((FAULT_WORDS["duplicate"],) if len(waits) > 1 else ()),
        *((FAULT_WORDS["delay"],) if any(waits) else ()),
    )
    return [
        one._replace(wait=one.wait + wait, faults=(*one.faults, *said))
        for wait in waits
        for one in deliveries
    ]


def _arrival(start: int, frame: Envelope, delivery: Delivery) -> Arrival:
    time = start + delivery.wait
    after = frame.altered(delivery.data, delivery.faults) if delivery.faults else frame
    if not delivery.behind:
        return Arrival(time, after)
    held = ReorderedArrival(time, after)
    held.behind = delivery.behind
    return held
