"""Taps that number frames as a capture gets them, and keep what a failure may have to point at.

Memory is bounded by what there is to look after, not by frames: of each expectation the first few
numbers are kept, of each queue pair the last NAK and the last packet that was sent again.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rdmawire.fabric.refusal import FabricError
from rdmawire.fabric.station import Tap
from rdmawire.nic.completion import WCStatus
from rdmawire.screen import quoted
from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.scenario.model import PacketExpectation, Scenario
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.match import Matcher
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.wire.roce import bth_offset

MOST_KEPT: Final = 64
"""Numbers of frames that are kept of one thing."""

_MAC: Final = 6


class UnknownPoint(FabricError):
    """A capture was asked for of a place that there is not."""


class Place(NamedTuple):
    """A link, a host or a switch's port, and which end of the way: where frames arrive, or go."""

    name: str
    arrived: bool

    @property
    def title(self) -> str:
        """As a capture of it is asked for."""
        return f"{self.name} --arrived" if self.arrived else self.name


class Seen(NamedTuple):
    """A frame: its number in the capture, or at ``point`` where the capture does not have it."""

    number: int
    point: str = ""


class Sightings:
    """How often something was seen, and the frames of the first times."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Seen] = []
        self.last: Seen | None = None

    def note(self, seen: Seen) -> None:
        """It was seen once more."""
        self.count += 1
        self.last = seen
        if len(self.first) < MOST_KEPT:
            self.first.append(seen)

    def at(self, index: int) -> Seen | None:
        """The frame of the time with this index, from 0 on; of a later one if that is not kept."""
        return self.first[index] if index < len(self.first) else self.last


class Numbering:
    """Counts the frames of the capture, or at another place. ``keep`` writes them, if it should."""

    def __init__(self, keep: Tap | None = None) -> None:
        self.frames = 0
        self._keep = keep

    def __call__(self, frame: bytes, now: int) -> None:
        """A frame passes."""
        self.frames += 1
        if self._keep is not None:
            self._keep(frame, now)


class HostWatch:
    """What one host sends: ``sent`` counts it by name, ``sightings`` keep what may be pointed at.

    ``total`` counts for all hosts: what answers to a READ look like the peer's frames say.
    """

    NOTED: Final = ("retransmits", "naks", "rnr_naks", "cnps")

    def __init__(self, total: FrameCounter, where: Callable[[], Seen], last: "LastWords") -> None:
        self.sent: Counter[str] = Counter()
        self.sightings = {name: Sightings() for name in self.NOTED}
        self._total = total
        self._where = where
        self._last = last

    def __call__(self, frame: bytes, now: int) -> None:
        """The host sends a frame."""
        counted = self._total(frame, now)
        self.sent["frames"] += 1
        self.sent["frame_octets"] += len(frame)
        self.sent["messages"] += counted.messages
        self.sent["octets"] += counted.octets
        if counted.sign:
            self._note(counted.sign, frame)

    def _note(self, sign: str, frame: bytes) -> None:
        self.sent[sign] += 1
        seen = self._where()
        self.sightings[sign].note(seen)
        self._last.note(sign, frame, seen)


class LastWords:
    """The last frames that may explain how work ended: of each queue pair, by its host's MAC."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[bytes, int], Seen] = {}
        self._repeats: dict[tuple[bytes, bytes, int], Seen] = {}

    def note(self, counter: str, frame: bytes, seen: Seen) -> None:
        """A frame was counted so."""
        offset = bth_offset(frame, 0, len(frame))
        destqp = int.from_bytes(frame[offset + 5 : offset + 8], "big")
        receiver, sender = frame[:_MAC], frame[_MAC : 2 * _MAC]
        if counter == "retransmits":
            self._repeats[sender, receiver, destqp] = seen
        elif counter != "cnps":
            self._refusals[receiver, destqp] = seen

    def refusal(self, lane: Lane) -> Seen | None:
        """The last NAK to a queue pair."""
        return self._refusals.get((lane.machine.mac, lane.qp.number))

    def repeat(self, lane: Lane) -> Seen | None:
        """The last packet that a queue pair sent again."""
        peer = lane.peer
        return self._repeats.get((lane.machine.mac, peer.machine.mac, peer.qp.number))


_REFUSED: Final = (
    WCStatus.REM_ACCESS_ERR,
    WCStatus.REM_INV_REQ_ERR,
    WCStatus.REM_OP_ERR,
    WCStatus.REM_INV_RD_REQ_ERR,
    WCStatus.RNR_RETRY_EXC_ERR,
    WCStatus.BAD_RESP_ERR,
)
"""Endings that a NAK explains."""


def is_from(sender: bytes | None, frame: bytes) -> bool:
    """Whether a frame is of the sender that is wanted, if one is."""
    return sender is None or frame[_MAC : 2 * _MAC] == sender


class PacketWatch:
    """Looks for the frames of one expectation at one place; ``sightings`` may be of several."""

    def __init__(
        self,
        plan: PacketExpectation,
        sender: bytes | None,
        where: Callable[[], Seen],
        sightings: Sightings,
    ) -> None:
        self._sightings = sightings
        self._fits = Matcher(plan.where)
        self._sender = sender
        self._where = where

    def __call__(self, frame: bytes, now: int) -> None:  # noqa: ARG002 - a tap
        """A frame passes."""
        if not is_from(self._sender, frame):
            return
        seen = self._where()
        if self._fits(frame, seen.number):
            self._sightings.note(seen)


class Observer:
    """All taps of one scenario. The capture has everything that is sent, once, unless told else.

    ``point`` is a link, a host or a switch's port whose frames the capture has instead, and
    ``arrived`` has it take them where they arrive.
    """

    def __init__(
        self, stage: Stage, keep: Tap | None, point: str | None = None, *, arrived: bool = False
    ) -> None:
        self._stage = stage
        self._network = stage.network
        self.numbering = Numbering(keep)
        self._places = self._tap_capture(point, arrived=arrived)
        self._counts: dict[Place, Numbering] = {}
        self.last = LastWords()
        self.total = FrameCounter()
        self.losses = {link.name: Sightings() for link in stage.scenario.links}
        self.hosts = {
            name: self._watch_host(name)
            for name in self._network.stations
            if name in stage.machines
        }
        self.packets = {
            id(plan): self._watch_packets(plan) for plan in _packet_expectations(stage.scenario)
        }

    def _tap_capture(self, point: str | None, *, arrived: bool) -> set[Place]:
        """Where the capture's frames are taken; the places all of whose frames are among them."""
        points = list(self._everywhere()) if point is None else [self._named(point)]
        for name in points:
            self._network.tap(name, self.numbering, arrivals=arrived)
        return {Place(name, arrived) for name in (*points, *self._ends_of(points))}

    def _named(self, point: str) -> str:
        """The point that a word names; a link is named from either end."""
        known = [*self._network.links, *self._network.stations]
        for name in (point, "-".join(reversed(point.split("-")))):
            if name in known:
                return name
        raise UnknownPoint(f"{quoted(point)} is none of {', '.join(known)}")

    def _everywhere(self) -> Iterator[str]:
        """Links between two hosts, and all other hosts that are on a link."""
        hosts = self._stage.machines
        covered: set[str] = set()
        for link in self._stage.scenario.links:
            if all(end in hosts for end in link.ends):
                covered.update(link.ends)
                yield link.name
        yield from (
            name for name in self._network.stations if name in hosts and name not in covered
        )

    def _ends_of(self, points: list[str]) -> Iterator[str]:
        """Hosts all of whose frames a link shows before any tap of their own."""
        for link in self._stage.scenario.links:
            if link.name in points:
                yield from link.ends

    def _where(self, name: str, *, arrived: bool = False) -> Callable[[], Seen]:
        """What tells the number of the frame that passes a place now."""
        place = Place(name, arrived)
        if place in self._places:
            return lambda: Seen(self.numbering.frames)
        if place not in self._counts:
            self._counts[place] = Numbering()
            self._network.tap(name, self._counts[place], arrivals=arrived)
        counting = self._counts[place]
        return lambda: Seen(counting.frames, place.title)

    def _watch_host(self, name: str) -> HostWatch:
        watch = HostWatch(self.total, self._where(name), self.last)
        self._network.tap(name, watch)
        return watch

    def _watch_packets(self, plan: PacketExpectation) -> Sightings:
        sender, sightings = self.sender_of(plan), Sightings()
        self.watch(plan, lambda where: PacketWatch(plan, sender, where, sightings))
        return sightings

    def sender_of(self, plan: PacketExpectation) -> bytes | None:
        """The address that frames are to come from, if it matters."""
        return None if plan.sent_by is None else self._stage.machines[plan.sent_by].mac

    def watch(self, plan: PacketExpectation, tap_of: Callable[[Callable[[], Seen]], Tap]) -> None:
        """Tap the places that an expectation is of: its link, or where hosts send or receive."""
        names = list(self.hosts) if plan.link is None else [plan.link]
        if plan.link is None and plan.sent_by is not None and not plan.arrived:
            names = [plan.sent_by]
        for name in names:
            tap = tap_of(self._where(name, arrived=plan.arrived))
            self._network.tap(name, tap, arrivals=plan.arrived)

    def on_loss(self, link: str) -> Callable[[], None]:
        """What a link's faults tell of each frame that they lose."""
        where, sightings = self._where(link), self.losses[link]
        return lambda: sightings.note(where())

    def explain(self, lane: Lane, status: WCStatus) -> tuple[int | None, str]:
        """The frame that explains how work of a queue pair ended, if one does."""
        seen = None
        if status in _REFUSED:
            seen = self.last.refusal(lane)
        elif status is WCStatus.RETRY_EXC_ERR:
            seen = self.last.repeat(lane)
        return (None, "") if seen is None else seen


def _packet_expectations(scenario: Scenario) -> Iterator[PacketExpectation]:
    for plan in scenario.expectations:
        if isinstance(plan, PacketExpectation):
            yield plan
