"""A recorded round: its frames, times and losses, and which numbers in the frames advance.

A number advances by a constant step in each round, so a frame of any other round is a frame of the
recorded one with other numbers.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from rdmawire.traffic.generate.endpoints import Position
from rdmawire.traffic.generate.link import Losses
from rdmawire.traffic.generate.rounds import Enough, TestNetwork
from rdmawire.traffic.summary import NO_DMA, FrameCounter, Moved, TrafficSummary, moved, summarise
from rdmawire.wire.ib import AETH, BTH
from rdmawire.wire.opcode import SHAPES, Opcode

_PSN: Final = BTH.SIZE - 3
_DESTQP: Final = 5
_MSN: Final = BTH.SIZE + 1
_ORIGINAL: Final = BTH.SIZE + AETH.SIZE


class CountingField(NamedTuple):
    """A number in packets: its position's attribute, offset from the BTH's start, size in bytes."""

    name: str
    place: int
    width: int


_FIELDS: Final = {
    "psn": CountingField("psn", _PSN, 3),
    "aeth": CountingField("msn", _MSN, 3),
    "atomicacketh": CountingField("word", _ORIGINAL, 8),
}

MOVING: Final = {
    opcode: (_FIELDS["psn"], *(_FIELDS[label] for label in shape.headers if label in _FIELDS))
    for opcode, shape in SHAPES.items()
    if opcode != Opcode.CNP
}
"""Opcode to the numbers that change in each round. A CNP has none."""


class FieldMover(NamedTuple):
    """A number at offset ``place`` of a frame that increases by ``step`` in each round.

    It wraps at its ``width`` (bytes). ``name`` is the name of its :class:`CountingField`.
    """

    name: str
    place: int
    width: int
    step: int

    def value(self, frame: bytes) -> int:
        """Return the number in a frame."""
        return int.from_bytes(frame[self.place : self.place + self.width], "big")

    def at(self, value: int, rounds: int) -> int:
        """Return what the number ``value`` is ``rounds`` rounds later (negative: earlier)."""
        return (value + rounds * self.step) % (1 << 8 * self.width)


class FieldMovers:
    """The changing numbers of frames whose BTHs begin at offset ``bth`` (bytes).

    ``steps`` are the steps of a round, by the number of the receiving queue pair.
    """

    def __init__(self, bth: int, steps: Mapping[int, Position]) -> None:
        self._bth = bth
        self._steps = steps
        self._known: dict[tuple[int, bytes], tuple[FieldMover, ...]] = {}

    def of(self, frame: bytes) -> tuple[FieldMover, ...]:
        """Return the changing numbers of a frame."""
        bth = self._bth
        key = frame[bth], frame[bth + _DESTQP : bth + _DESTQP + 3]
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._movers(*key))
        return found

    def _movers(self, opcode: int, destqp: bytes) -> Iterator[FieldMover]:
        step = self._steps[int.from_bytes(destqp, "big")]
        for name, place, width in MOVING.get(opcode, ()):
            yield FieldMover(name, self._bth + place, width, getattr(step, name))


class FrameRecorder:
    """A watcher that records what it sees, up to ``most`` frames (``None``: all).

    Times are ns from the beginning of the round, ``sent`` counts frames put on the cable.
    ``unheard`` are the indexes, among the seen frames, of those that never arrive.
    """

    def __init__(self, start: int, most: int | None) -> None:
        self.frames: list[bytes] = []
        self.times: list[int] = []
        self.losses = 0
        self.unheard: set[int] = set()
        self.sent = 0
        self.duration = 0
        self.paths: dict[str, Moved] = {}
        self._start = start
        self._most = most

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        if lost:
            self.unheard.add(len(self.frames))
        self.frames.append(frame)
        self.times.append(now - self._start)
        if len(self.frames) == self._most:
            raise Enough

    def lost(self) -> None:
        self.losses += 1

    def summary(self) -> TrafficSummary:
        """Return the summary of the round."""
        counter = FrameCounter()
        for frame, time in zip(self.frames, self.times, strict=True):
            counter.count(frame, time)
        summary = summarise(counter, (), self.duration, lost=self.losses)
        return summary._replace(paths=self.paths)


def record(
    conversation: TestNetwork, count: int, losses: Losses, most: int | None = None
) -> FrameRecorder:
    """Play the first ``count`` messages of a round, up to the last requested frame."""
    simulator, before = conversation.simulator, moved(conversation.nics)
    start, sent = simulator.now, conversation.sent
    recording = FrameRecorder(start, most)
    with suppress(Enough):
        conversation.play(count, losses, recording)
    recording.sent = conversation.sent - sent
    recording.duration = simulator.now - start
    recording.paths = _since(before, moved(conversation.nics))
    return recording


def _since(before: Mapping[str, Moved], after: Mapping[str, Moved]) -> dict[str, Moved]:
    ways = {name: way.minus(before.get(name, NO_DMA)) for name, way in after.items()}
    return {name: way for name, way in ways.items() if any(way)}
