"""Links: when a frame arrives, how often, and whether at all.

A link numbers the frames that are put on it from 1 on, in both directions together. A capture
with a tap on it gives them the same numbers, so what Wireshark shows is what ``drop`` takes.

:mod:`rdmawire.fabric.fault` has faults by what stands in frames.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Protocol

from rdmawire.bound import PERIOD, TIME, Bound, Kind, Many, Optional, Real, Table, Whole
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.line import exceeds, time_of
from rdmawire.fabric.passing import BEFALLEN, Passing
from rdmawire.fabric.refusal import check_settings
from rdmawire.units import us

Waits = tuple[int, ...]
"""What a frame waits (ns) beyond the latency: one number for each of its copies."""


class Arrival(NamedTuple):
    """A frame at the far end, and when it is there (ns)."""

    time: int
    frame: Envelope


class Held(Arrival):
    """A frame that arrives behind so many others, but at ``time`` at the latest."""

    behind: int


Carried = Callable[[Envelope, tuple[str, ...]], object]
"""Is told of a frame that was put on a link, and the words for what befell it there."""


class Misfortune(Protocol):
    """What becomes of a frame on its way."""

    def befall(self, frame: Envelope, number: int) -> Iterable[Passing]: ...


@dataclass(frozen=True, slots=True)
class Chances:
    """How often (0.0 to 1.0) a frame is lost, comes twice, or comes up to ``most_delay`` ns late.

    What comes late is overtaken. All that is random comes from ``random``: the same seed gives
    the same faults. :class:`FabricError` for what is no chance and no time.
    """

    random: Random
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    most_delay: int = us(10)

    def __post_init__(self) -> None:
        check_settings(self, CHANCES)

    def befall(self, waits: Waits) -> Waits:
        """What becomes of copies that wait so long."""
        return tuple(wait for copy in waits for wait in self._copies(copy))

    def _copies(self, wait: int) -> Iterable[int]:
        if self._happens(self.drop):
            return
        yield wait + self._late()
        if self._happens(self.duplicate):
            yield wait + self._late()

    def _late(self) -> int:
        return self.random.randint(1, self.most_delay) if self._happens(self.delay) else 0

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance


_NUMBER: Final = Whole(1, called="a frame's number")


class _Numbers(NamedTuple):
    """A collection of frames' numbers. Who gives a share instead is told where it goes."""

    numbers: Bound = Many(_NUMBER)

    def wrong(self, value: object) -> str:
        reason = self.numbers.wrong(value)
        return reason and f"{reason}; frames are named by number, and chances=Chances(...) by share"


CHANCES: Final[dict[str, Bound]] = {
    "random": Kind(Random),
    "drop": Real(0, 1),
    "duplicate": Real(0, 1),
    "delay": Real(0, 1),
    "most_delay": PERIOD,
}
LINK: Final[dict[str, Bound]] = {
    "latency": TIME,
    "rate": Optional(Whole(1, called="a number of bits a second")),
    "mtu": Optional(Whole(1, called="a number of octets")),
    "drop": _Numbers(),
    "duplicate": _Numbers(),
    "delay": Table(_NUMBER, TIME),
    "chances": Optional(Kind(Chances)),
    "name": Kind(str),
}
"""What each setting may be, by class."""


class Link:
    """A cable: ``latency`` ns from end to end, in order, but for the faults asked for.

    ``rate`` is in bits a second: frames take their time, and ports send one after the other.
    Without one, octets take no time. Frames with more than ``mtu`` octets behind their Ethernet
    header are lost (``oversized`` counts them).

    ``drop`` and ``duplicate`` are numbers of frames, ``delay`` says how many ns a number waits
    besides. ``chances`` come on top of these, then ``faults``. ``name`` is for those who look.

    Where something may befall frames, ``on_carried`` are told of each, right after the taps, and
    by words of :data:`~rdmawire.fabric.passing.BEFALLEN` what befell it.

    :class:`FabricError` for what is no time, no rate or no frame's number.
    """

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
        faults: Misfortune | None = None,
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
        check_settings(self, LINK)
        self.drop, self.duplicate = frozenset(drop), frozenset(duplicate)
        self.delay = dict(self.delay)
        self.on_carried: list[Carried] = []
        self.frames = 0
        self.oversized = 0

    def straight(self, frame: Envelope, now: int) -> int | None:
        """When a frame arrives, as :meth:`carry` has it, if nothing can befall it on this link.

        ``None`` where something may: then it was not put on the link.
        """
        if self.faults or self.chances or self.drop or self.duplicate or self.delay or self.mtu:
            return None
        self.frames += 1
        rate = self.rate
        return now + self.latency + (time_of(len(frame.data), rate) if rate else 0)

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        """Where a frame put on the link at ``now`` arrives: once, or as the faults have it."""
        self.frames += 1
        passings = self._passings(frame)
        if self.on_carried:
            self._tell(frame, passings)
        start = now + self.latency
        if self.rate is not None:
            start += time_of(len(frame.data), self.rate)
        return [_arrival(start, frame, passing) for passing in passings]

    def _passings(self, frame: Envelope) -> Sequence[Passing]:
        """The copies of a frame that arrive; those that no number or chance lost meet faults."""
        if self.mtu is not None and exceeds(frame.data, self.mtu):
            self.oversized += 1
            return ()
        waits = self._waits(self.frames)
        if not waits:
            return ()
        faults = self.faults
        befallen = (Passing(frame.data),) if faults is None else faults.befall(frame, self.frames)
        return tuple(befallen) if waits == (0,) else _waiting(tuple(befallen), waits)

    def _tell(self, frame: Envelope, passings: Sequence[Passing]) -> None:
        words = dict.fromkeys(word for passing in passings for word in passing.befallen)
        for tell in self.on_carried:
            tell(frame, tuple(words) if passings else (BEFALLEN["drop"],))

    def _waits(self, number: int) -> Waits:
        if number in self.drop:
            return ()
        waits: Waits = (self.delay.get(number, 0),) * (2 if number in self.duplicate else 1)
        return waits if self.chances is None else self.chances.befall(waits)


def _waiting(passings: Iterable[Passing], waits: Waits) -> list[Passing]:
    """All copies, once for each wait."""
    said = (
        *((BEFALLEN["duplicate"],) if len(waits) > 1 else ()),
        *((BEFALLEN["delay"],) if any(waits) else ()),
    )
    return [
        one._replace(wait=one.wait + wait, befallen=(*one.befallen, *said))
        for wait in waits
        for one in passings
    ]


def _arrival(start: int, frame: Envelope, passing: Passing) -> Arrival:
    time = start + passing.wait
    after = frame.altered(passing.data, passing.befallen) if passing.befallen else frame
    if not passing.behind:
        return Arrival(time, after)
    held = Held(time, after)
    held.behind = passing.behind
    return held
