"""Taps that number frames as in the capture, and keep the frames that failures refer to.

Memory is bounded: two frames for each expectation, the last NAK and the last retransmission of each
queue pair, and :data:`MAX_FRAMES` numbers of frames.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from rdmawire.decode import PROTOCOLS, Protocols, opcodes_of
from rdmawire.errors import FabricError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.field import Fields
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import Tap
from rdmawire.ib.tx_template import MAX_SEEN, head_size
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import link_called
from rdmawire.traffic.scenario.model.expectation import PacketExpectation
from rdmawire.traffic.scenario.runner.endpoint import QueuePairRuntime
from rdmawire.traffic.scenario.runner.host_runtime import bytes_of
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.summary import FrameCounter
from rdmawire.verbs.ah import MAC_BYTES
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire.ib import HEAD_OF_BTH
from rdmawire.wire.roce import bth_offset

_IN_HEAD: Final = ("eth.", "ip.", "ipv6.", "grh.", "bth.")
_BEHIND_HEAD: Final = ("bth.ackreq", "bth.resv7", "bth.psn")


class Matcher:
    """Tests whether a frame has the expected fields, and the expected payload if there is one.

    The result for the bytes up to the PSN is cached for each such head and frame length.
    ``protocols`` say what carries what in frames.
    """

    def __init__(
        self,
        where: Mapping[str, object],
        protocols: Protocols = PROTOCOLS,
        payload: bytes | None = None,
    ) -> None:
        self._protocols = protocols
        self._payload = payload
        self._by_head: dict[str, _Wanted] = {}
        self._by_rest: dict[str, _Wanted] = {}
        for name, value in where.items():
            in_head = name.startswith(_IN_HEAD) and name not in _BEHIND_HEAD
            (self._by_head if in_head else self._by_rest)[name] = among(value)
        self._known: dict[tuple[int, bytes], bool] = {}

    def __call__(self, frame: bytes, number: int) -> bool:
        """``number`` is the frame's number at the tap."""
        key = len(frame), frame[: head_size(frame)]
        fits = self._known.get(key)
        if fits is None:
            fits = self._learn(key, frame)
        if not fits or (not self._by_rest and self._payload is None):
            return fits
        fields = Fields(frame, number, self._protocols)
        return _all_fit(fields, self._by_rest) and self._payload in (None, fields.payload)

    def _learn(self, key: tuple[int, bytes], frame: bytes) -> bool:
        fields = Fields(frame, protocols=self._protocols)
        fits = _all_fit(fields, self._by_head)
        if fields.packet is not None and len(key[1]) == fields.packet.start + HEAD_OF_BTH:
            if len(self._known) >= MAX_SEEN:
                self._known.clear()
            self._known[key] = fits
        return fits


_Wanted = frozenset[object] | range


def among(value: object) -> _Wanted:
    """Return the set or range of expected values."""
    if isinstance(value, range):
        return value
    return frozenset(value if isinstance(value, tuple) else (value,))


def expected_payload(plan: PacketExpectation) -> bytes | None:
    """Return the payload that frames must have, if it is given."""
    if plan.payload is None:
        return None
    return b"".join(bytes_of(plan.payload.content, plan.payload.size, Random(0)))  # noqa: S311  unused


def _all_fit(fields: Fields, wanted: Mapping[str, _Wanted]) -> bool:
    return all(fields.has(name, values) for name, values in wanted.items())


MAX_FRAMES: Final = 1 << 19
"""Maximum frames whose numbers are kept, the latest ones."""


class FrameIndex:
    """Numbers of frames in the capture, by the ids that their envelopes keep everywhere.

    ``needed``: whether numbers have to be kept.
    """

    def __init__(self) -> None:
        self.needed = False
        self._known: OrderedDict[int, int] = OrderedDict()

    def add(self, frame: Envelope, number: int) -> None:
        self._known[frame.id] = number
        self._known.move_to_end(frame.id)
        if len(self._known) > MAX_FRAMES:
            self._known.popitem(last=False)

    def of(self, id_: int) -> int | None:
        """Return the number of a frame by its id; ``None`` if the capture does not have it."""
        return self._known.get(id_)


class UnknownPoint(FabricError):
    """A capture was requested at a point that does not exist."""


class TapPoint(NamedTuple):
    """A link, a host or a switch port, and whether frames are seen arriving or leaving."""

    name: str
    arrived: bool

    @property
    def title(self) -> str:
        """The options of a capture at this point."""
        return f"{self.name} --arrived" if self.arrived else self.name


class FrameCount:
    """Counts the frames that pass a point."""

    def __init__(self) -> None:
        self.frames = 0

    def __call__(self, frame: Envelope, now: int) -> None:  # noqa: ARG002 - a tap
        self.frames += 1


class Recording(FrameCount):
    """Counts the frames of the capture, which ``keep`` writes if there is one.

    The capture has each sent frame once, or the frames at ``points``: links, hosts or switch ports,
    which are its interfaces. With ``arrived`` frames are captured at their arrival. ``places`` are
    the points all of whose frames are captured, ``frame_index`` has the frames' numbers.
    """

    def __init__(self, testbed: Testbed, keep: Tap | None, points: Iterable[str], *, arrived: bool):
        super().__init__()
        self._testbed = testbed
        self._network = testbed.network
        self.frame_index = FrameIndex()
        self._link = ""
        named = list(dict.fromkeys(map(self._named, points)))
        names = named or list(self._everywhere())
        for name in names:
            own = keep.point(name) if named and isinstance(keep, CaptureTap) else keep
            self._network.tap(name, self._tap(name, own), arrivals=arrived)
        if isinstance(keep, CaptureTap) and not arrived:
            for name, link in self._network.links.items():
                link.on_carried.append(partial(self._carried, keep, name))
        ends = {end for link in testbed.scenario.links if link.name in names for end in link.ends}
        self.places = {TapPoint(name, arrived) for name in (*names, *ends)}

    def _named(self, point: str) -> str:
        """Return the point with a name; a link may be named from either end."""
        known = [*self._network.links, *self._network.attachments]
        name = link_called(point, known)
        if name not in known:
            raise UnknownPoint(f"{quote(point)} is none of {', '.join(known)}")
        return name

    def _everywhere(self) -> Iterator[str]:
        """Yield links between two hosts, and all other hosts on a link."""
        hosts = self._testbed.machines
        between = [link for link in self._testbed.scenario.links if hosts.keys() >= {*link.ends}]
        covered = {end for link in between for end in link.ends}
        yield from (link.name for link in between)
        yield from (name for name in self._network.attachments if name in hosts.keys() - covered)

    def _tap(self, name: str, keep: Tap | None) -> Tap:
        """Return a tap that numbers the frames of a point and writes them."""
        link = self._link_of(name)

        def take(frame: Envelope, now: int) -> None:
            self.frames += 1
            if self.frame_index.needed:
                self.frame_index.add(frame, self.frames)
            self._link = link
            if keep is not None:
                keep(frame, now)

        return take

    def _link_of(self, name: str) -> str:
        """Return the link of a point: itself, or that of a host or a port."""
        if name in self._network.links:
            return name
        one, _, other = name.partition(":")
        ends = {one, other} if other else {one}
        return next(link.name for link in self._testbed.scenario.links if ends <= {*link.ends})

    def _carried(
        self, keep: CaptureTap, link: str, frame: Envelope, words: tuple[str, ...]
    ) -> None:
        """Report faults of a link to the capture, for the frames captured on that link."""
        if link == self._link:
            keep.carried(frame, words)


class FrameRef(NamedTuple):
    """Reference to a frame: its number in the capture, or at ``point`` if that does not have it."""

    number: int
    point: str = ""


FrameOrId = FrameRef | int | None
"""A frame reference, or the id of a frame whose number in the capture is not known yet."""


S = TypeVar("S", bound=FrameRef | int)


def pointed(seen: FrameRef | None) -> tuple[int | None, str]:
    """Return number and point of a frame for a failure; ``(None, "")`` without a frame."""
    return (None, "") if seen is None else seen


class Occurrences(Generic[S]):
    """Counts occurrences, and remembers the last one, or the first beyond ``most``."""

    __slots__ = ("_last", "_most", "_surplus", "count")

    def __init__(self, most: int | None) -> None:
        self.count = 0
        self._most = most
        self._last: S | None = None
        self._surplus: S | None = None

    def record(self, seen: S | None, by: int = 1) -> None:
        """Add ``by`` occurrences, caused by this frame, or by none."""
        fitted, self.count, self._last = not self.is_over, self.count + by, seen
        if fitted and self.is_over:
            self._surplus = seen

    @property
    def is_over(self) -> bool:
        return self._most is not None and self.count > self._most

    @property
    def shown(self) -> S | None:
        """The first surplus frame; without surplus, the last one."""
        return self._surplus if self.is_over else self._last


class HostCounters:
    """Counts what one host sends, by name in ``sent``.

    ``total`` counts for all hosts: the peer's frames determine how READ responses count.
    """

    def __init__(
        self, total: FrameCounter, where: Callable[[], FrameRef], last: "LastErrors"
    ) -> None:
        self.sent: Counter[str] = Counter()
        self._total = total
        self._where = where
        self._last = last

    def __call__(self, frame: Envelope, now: int) -> None:
        """Count a frame that the host sends."""
        counted = self._total.count(frame.data, now)
        self.sent["frames"] += 1
        self.sent["frame_bytes"] += len(frame.data)
        self.sent["messages"] += counted.messages
        self.sent["bytes"] += counted.bytes
        if counted.sign:
            self.sent[counted.sign] += 1
            self._last.record(counted.sign, frame.data, self._where())


_NAKS: Final = ("naks", "rnr_naks")


class LastErrors:
    """The last NAK and retransmission of each queue pair, which explain completion errors."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[bytes, int], FrameRef] = {}
        self._repeats: dict[tuple[bytes, bytes, int], FrameRef] = {}

    def record(self, counter: str, frame: bytes, seen: FrameRef) -> None:
        """Remember a frame by the counter that it increased."""
        offset = bth_offset(frame, 0, len(frame))
        destqp = int.from_bytes(frame[offset + 5 : offset + 8], "big")
        receiver, sender = frame[:MAC_BYTES], frame[MAC_BYTES : 2 * MAC_BYTES]
        if counter == "retransmits":
            self._repeats[sender, receiver, destqp] = seen
        elif counter in _NAKS:
            self._refusals[receiver, destqp] = seen

    def refusal(self, endpoint: QueuePairRuntime) -> FrameRef | None:
        return self._refusals.get((endpoint.machine.mac, endpoint.qp.qp_num))

    def repeat(self, endpoint: QueuePairRuntime) -> FrameRef | None:
        """Return the last packet that a queue pair retransmitted."""
        peer = endpoint.peer
        return self._repeats.get((endpoint.machine.mac, peer.machine.mac, peer.qp.qp_num))


_REFUSED: Final = (
    WCStatus.REM_ACCESS_ERR,
    WCStatus.REM_INV_REQ_ERR,
    WCStatus.REM_OP_ERR,
    WCStatus.REM_INV_RD_REQ_ERR,
    WCStatus.RNR_RETRY_EXC_ERR,
    WCStatus.BAD_RESP_ERR,
)
"""Completion statuses that a NAK explains."""


def is_from(sender: bytes | None, frame: bytes) -> bool:
    """Whether a frame comes from ``sender``, if one is given."""
    return sender is None or frame[MAC_BYTES : 2 * MAC_BYTES] == sender


class Observer:
    """All taps of one scenario. ``points`` and ``arrived`` are those of its :class:`Recording`."""

    def __init__(
        self,
        testbed: Testbed,
        keep: Tap | None,
        points: Iterable[str] = (),
        *,
        arrived: bool = False,
    ) -> None:
        self._testbed = testbed
        self._network = testbed.network
        self.protocols = testbed.protocols
        self.recording = Recording(testbed, keep, points, arrived=arrived)
        self._counts: dict[TapPoint, FrameCount] = {}
        self.last = LastErrors()
        self.total = FrameCounter(opcodes_of(self.protocols))
        self.hosts = {
            name: HostCounters(self.total, self._where(name), self.last)
            for name in self._network.attachments
            if name in testbed.machines
        }
        for name, counters in self.hosts.items():
            self._network.tap(name, counters)
        self.packets = {
            id(plan): self._watch_packets(plan)
            for plan in testbed.scenario.expectations
            if isinstance(plan, PacketExpectation)
        }

    @property
    def frame_index(self) -> FrameIndex:
        return self.recording.frame_index

    def captured(self, id_: int) -> FrameRef | None:
        """Return the reference of a captured frame by its id; ``None`` if it was not captured."""
        number = self.frame_index.of(id_)
        return None if number is None else FrameRef(number)

    def where(self, name: str, *, arrived: bool = False) -> Callable[[Envelope], FrameRef]:
        """Return a function that gives a frame's reference: in the capture or at this point."""
        there = self._where(name, arrived=arrived)
        if TapPoint(name, arrived) in self.recording.places:
            return lambda _: there()
        self.frame_index.needed = True
        return lambda frame: self.captured(frame.id) or there()

    def _where(self, name: str, *, arrived: bool = False) -> Callable[[], FrameRef]:
        """Return a function that gives the reference of the frame passing a point now."""
        place = TapPoint(name, arrived)
        if place in self.recording.places:
            return lambda: FrameRef(self.recording.frames)
        if place not in self._counts:
            self._counts[place] = FrameCount()
            self._network.tap(name, self._counts[place], arrivals=arrived)
        counting = self._counts[place]
        return lambda: FrameRef(counting.frames, place.title)

    def _watch_packets(self, plan: PacketExpectation) -> Occurrences[FrameRef]:
        """Count the frames of an expectation, at all its points."""
        sender = self.sender_of(plan)
        fits = Matcher(plan.where, self.protocols, expected_payload(plan))
        sightings = Occurrences[FrameRef](plan.range.most)

        def tap_of(where: Callable[[], FrameRef]) -> Tap:
            def take(frame: Envelope, now: int) -> None:  # noqa: ARG001 - a tap
                if is_from(sender, frame.data):
                    seen = where()
                    if fits(frame.data, seen.number):
                        sightings.record(seen)

            return take

        self.watch(plan, tap_of)
        return sightings

    def sender_of(self, plan: PacketExpectation) -> bytes | None:
        """Return the MAC address of the expected sender, if one is given."""
        return None if plan.sent_by is None else self._testbed.machines[plan.sent_by].mac

    def watch(
        self, plan: PacketExpectation, tap_of: Callable[[Callable[[], FrameRef]], Tap]
    ) -> None:
        """Tap the points of an expectation: its link, or where hosts send or receive."""
        names = list(self.hosts) if plan.link is None else [plan.link]
        if plan.link is None and plan.sent_by is not None and not plan.arrived:
            names = [plan.sent_by]
        for name in names:
            tap = tap_of(self._where(name, arrived=plan.arrived))
            self._network.tap(name, tap, arrivals=plan.arrived)

    def explain(self, endpoint: QueuePairRuntime, status: WCStatus) -> tuple[int | None, str]:
        """Return the frame that explains a completion status, if there is one."""
        seen = None
        if status in _REFUSED:
            seen = self.last.refusal(endpoint)
        elif status is WCStatus.RETRY_EXC_ERR:
            seen = self.last.repeat(endpoint)
        return pointed(seen)
