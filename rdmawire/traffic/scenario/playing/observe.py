"""Taps that number frames as a capture gets them, and keep what a failure may have to point at.

Memory is bounded: two frames are kept of each expectation, the last NAK and the last repeat of each
queue pair, and of frames that are looked up as many as :mod:`.numbers` has room for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import Tap
from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.scenario.model import PacketExpectation, Scenario
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.match import Matcher
from rdmawire.traffic.scenario.playing.numbers import Numbers
from rdmawire.traffic.scenario.playing.recording import FrameCount, Place, Recording
from rdmawire.traffic.scenario.playing.sighting import Seen, Sightings, pointed
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.verbs.ah import MAC_OCTETS
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire.roce import bth_offset


class HostWatch:
    """What one host sends: ``sent`` counts it by name.

    ``total`` counts for all hosts: what answers to a READ look like the peer's frames say.
    """

    def __init__(self, total: FrameCounter, where: Callable[[], Seen], last: "LastWords") -> None:
        self.sent: Counter[str] = Counter()
        self._total = total
        self._where = where
        self._last = last

    def __call__(self, frame: Envelope, now: int) -> None:
        """The host sends a frame."""
        counted = self._total.count(frame.data, now)
        self.sent["frames"] += 1
        self.sent["frame_octets"] += len(frame.data)
        self.sent["messages"] += counted.messages
        self.sent["octets"] += counted.octets
        if counted.sign:
            self._note(counted.sign, frame.data)

    def _note(self, sign: str, frame: bytes) -> None:
        self.sent[sign] += 1
        self._last.note(sign, frame, self._where())


_NAKS: Final = ("naks", "rnr_naks")


class LastWords:
    """The last frames that may explain how work ended: of each queue pair, by its host's MAC."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[bytes, int], Seen] = {}
        self._repeats: dict[tuple[bytes, bytes, int], Seen] = {}

    def note(self, counter: str, frame: bytes, seen: Seen) -> None:
        """A frame was counted so."""
        offset = bth_offset(frame, 0, len(frame))
        destqp = int.from_bytes(frame[offset + 5 : offset + 8], "big")
        receiver, sender = frame[:MAC_OCTETS], frame[MAC_OCTETS : 2 * MAC_OCTETS]
        if counter == "retransmits":
            self._repeats[sender, receiver, destqp] = seen
        elif counter in _NAKS:
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
    return sender is None or frame[MAC_OCTETS : 2 * MAC_OCTETS] == sender


class PacketWatch:
    """Looks for the frames of one expectation at one place; ``sightings`` may be of several."""

    def __init__(
        self,
        plan: PacketExpectation,
        sender: bytes | None,
        where: Callable[[], Seen],
        sightings: Sightings[Seen],
    ) -> None:
        self._sightings = sightings
        self._fits = Matcher(plan.where)
        self._sender = sender
        self._where = where

    def __call__(self, frame: Envelope, now: int) -> None:  # noqa: ARG002 - a tap
        """A frame passes."""
        if not is_from(self._sender, frame.data):
            return
        seen = self._where()
        if self._fits(frame.data, seen.number):
            self._sightings.note(seen)


class Observer:
    """All taps of one scenario. ``points`` and ``arrived`` are those of its :class:`Recording`."""

    def __init__(
        self, stage: Stage, keep: Tap | None, points: Iterable[str] = (), *, arrived: bool = False
    ) -> None:
        self._stage = stage
        self._network = stage.network
        self.recording = Recording(stage, keep, points, arrived=arrived)
        self._counts: dict[Place, FrameCount] = {}
        self.last = LastWords()
        self.total = FrameCounter()
        self.hosts = {
            name: self._watch_host(name)
            for name in self._network.attachments
            if name in stage.machines
        }
        self.packets = {
            id(plan): self._watch_packets(plan) for plan in _packet_expectations(stage.scenario)
        }

    @property
    def numbers(self) -> Numbers:
        """Knows the frames of the capture."""
        return self.recording.numbers

    def known(self, id_: int) -> Seen | None:
        """The frame with an id as the capture has it, if it does."""
        number = self.numbers.of(id_)
        return None if number is None else Seen(number)

    def where(self, name: str, *, arrived: bool = False) -> Callable[[Envelope], Seen]:
        """What tells of a frame at a place: as the capture has it, or else of that place."""
        there = self._where(name, arrived=arrived)
        if Place(name, arrived) in self.recording.places:
            return lambda _: there()
        self.numbers.needed = True
        return lambda frame: self.known(frame.id) or there()

    def _where(self, name: str, *, arrived: bool = False) -> Callable[[], Seen]:
        """What tells the number of the frame that passes a place now."""
        place = Place(name, arrived)
        if place in self.recording.places:
            return lambda: Seen(self.recording.frames)
        if place not in self._counts:
            self._counts[place] = FrameCount()
            self._network.tap(name, self._counts[place], arrivals=arrived)
        counting = self._counts[place]
        return lambda: Seen(counting.frames, place.title)

    def _watch_host(self, name: str) -> HostWatch:
        watch = HostWatch(self.total, self._where(name), self.last)
        self._network.tap(name, watch)
        return watch

    def _watch_packets(self, plan: PacketExpectation) -> Sightings[Seen]:
        sender, sightings = self.sender_of(plan), Sightings[Seen](plan.range.most)
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

    def explain(self, lane: Lane, status: WCStatus) -> tuple[int | None, str]:
        """The frame that explains how work of a queue pair ended, if one does."""
        seen = None
        if status in _REFUSED:
            seen = self.last.refusal(lane)
        elif status is WCStatus.RETRY_EXC_ERR:
            seen = self.last.repeat(lane)
        return pointed(seen)


def _packet_expectations(scenario: Scenario) -> Iterator[PacketExpectation]:
    for plan in scenario.expectations:
        if isinstance(plan, PacketExpectation):
            yield plan
