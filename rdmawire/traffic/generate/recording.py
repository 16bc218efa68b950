"""A round as it was played: its frames, and what in them moves on from round to round."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.generate.conversation import Conversation
from rdmawire.traffic.generate.ends import Position
from rdmawire.traffic.generate.losses import Losses
from rdmawire.traffic.generate.output import Enough
from rdmawire.traffic.summary import NO_DMA, Moved, Summary, moved, summarise
from rdmawire.wire.ib import AETH, BTH
from rdmawire.wire.opcode import SHAPES, Opcode

_PSN: Final = BTH.SIZE - 3
_DESTQP: Final = 5
_MSN: Final = BTH.SIZE + 1
_ORIGINAL: Final = BTH.SIZE + AETH.SIZE


class Field(NamedTuple):
    """A number in packets: which of a position, where behind the BTH's start, how many octets."""

    name: str
    place: int
    width: int


_FIELDS: Final = {
    "psn": Field("psn", _PSN, 3),
    "aeth": Field("msn", _MSN, 3),
    "atomicacketh": Field("word", _ORIGINAL, 8),
}

MOVING: Final = {
    opcode: (_FIELDS["psn"], *(_FIELDS[label] for label in shape.headers if label in _FIELDS))
    for opcode, shape in SHAPES.items()
    if opcode != Opcode.CNP
}
"""Opcode to the numbers that move on. A CNP has none."""


class Mover(NamedTuple):
    """A number in a frame that moves on by a step in each round; it wraps at its width."""

    name: str
    frame: int
    place: int
    width: int
    value: int
    step: int


class Recording:
    """A watcher that keeps what it sees, up to ``most`` frames (``None``: all).

    Times are ns from the beginning of the round, ``sent`` counts what was put on the cable.
    ``unheard`` are the frames that never arrive, by their numbers among those seen.
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

    def summary(self) -> Summary:
        """What the round amounts to."""
        counter = FrameCounter()
        for frame, time in zip(self.frames, self.times, strict=True):
            counter(frame, time)
        summary = summarise(counter, (), self.duration, lost=self.losses)
        return summary._replace(paths=self.paths)


def record(
    conversation: Conversation, count: int, losses: Losses, most: int | None = None
) -> Recording:
    """Play the first so many messages of a round; no further than to the last frame asked for."""
    world, before = conversation.world, moved(conversation.nics)
    start, sent = world.now, conversation.sent
    recording = Recording(start, most)
    with suppress(Enough):
        conversation.play(count, losses, recording)
    recording.sent = conversation.sent - sent
    recording.duration = world.now - start
    recording.paths = _since(before, moved(conversation.nics))
    return recording


def _since(before: Mapping[str, Moved], after: Mapping[str, Moved]) -> dict[str, Moved]:
    ways = {name: way.minus(before.get(name, NO_DMA)) for name, way in after.items()}
    return {name: way for name, way in ways.items() if any(way)}


def movers(frames: list[bytes], bth: int, steps: Mapping[int, Position]) -> Iterator[Mover]:
    """What moves in frames whose BTHs stand at that place."""
    for number, frame in enumerate(frames):
        step = steps[int.from_bytes(frame[bth + _DESTQP : bth + _DESTQP + 3], "big")]
        for name, place, width in MOVING.get(frame[bth], ()):
            start = bth + place
            value = int.from_bytes(frame[start : start + width], "big")
            yield Mover(name, number, start, width, value, getattr(step, name))
