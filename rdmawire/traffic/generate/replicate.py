"""Many rounds at once: one round is recorded for each pattern of losses, and then repeated.

A round depends only on which of its frames are lost, and on the current PSNs, MSNs and time. So
rounds with the same losses are copies of one recording, with the steps applied.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from rdmawire.capture import Record, Writer
from rdmawire.errors import CaptureError
from rdmawire.traffic import summary
from rdmawire.traffic.generate.endpoints import Position
from rdmawire.traffic.generate.link import Losses, Pattern, bth_place
from rdmawire.traffic.generate.rounds import (
    ETHERNET,
    Enough,
    Progress,
    TestNetwork,
    chance,
    lost_options,
)
from rdmawire.traffic.generate.spec import TrafficSpec
from rdmawire.traffic.summary import NO_DMA, FrameCounter, Moved, TrafficSummary, moved, summarise
from rdmawire.wire.ib import AETH, BTH, ICRC
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
    """A number in a frame that increases by a step in each round, and wraps at its width."""

    name: str
    frame: int
    place: int
    width: int
    value: int
    step: int


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


def movers(frames: list[bytes], bth: int, steps: Mapping[int, Position]) -> Iterator[FieldMover]:
    """Yield the changing numbers of frames whose BTHs begin at offset ``bth`` (bytes)."""
    for number, frame in enumerate(frames):
        step = steps[int.from_bytes(frame[bth + _DESTQP : bth + _DESTQP + 3], "big")]
        for name, place, width in MOVING.get(frame[bth], ()):
            start = bth + place
            value = int.from_bytes(frame[start : start + width], "big")
            yield FieldMover(name, number, start, width, value, getattr(step, name))


Array = NDArray[Any]
CHUNK: Final = 2 << 20
"""Bytes of an array of rows, at least one row; a chunk of this size stays in a CPU cache."""

_TIME: Final = 8
_LAST_WORD: Final = 0xFFFF_FFFF
_WORDS: Final[dict[int, tuple[type[np.unsignedinteger[Any]], str]]] = {
    3: (np.uint32, ">u4"),
    8: (np.uint64, ">u8"),
}
"""Width in bytes to the integer type for computing and the type in packets."""


class Stamp:
    """Makes copies of a recorded round, up to ``rows`` at once.

    ``size`` is the bytes of a round, ``ends`` the end offset of each of its records.
    """

    def __init__(
        self, recording: FrameRecorder, movers: list[FieldMover], writer: Writer, rows: int
    ) -> None:
        records = _records(recording, writer)
        self.ends = list(accumulate(map(len, records), initial=0))
        self.size = self.ends[-1]
        self.rows = max(min(rows, CHUNK // max(self.size, 1)), 1)
        self._layout = writer.record_layout
        row = np.frombuffer(b"".join(records), np.uint8)
        starts = np.array(self.ends[:-1], np.intp)
        lengths = np.array([len(frame) for frame in recording.frames], np.intp)
        data = starts + self._layout.data
        self._times = np.array(recording.times, np.int64)
        self._time_places = _bytes(starts + self._layout.time, _TIME)
        self._icrc_places = _bytes(data + lengths - ICRC.SIZE, ICRC.SIZE)
        self._icrcs = row[self._icrc_places].view("<u4")
        names = dict.fromkeys(mover.name for mover in movers)
        groups = [[mover for mover in movers if mover.name == name] for name in names]
        self._columns = [_CountingColumn(group, data, lengths) for group in groups]
        self._rows = np.repeat(row[None, :], self.rows, axis=0)

    def rounds(self, shift: int, start: int, count: int, duration: int) -> memoryview:
        """Return the bytes of ``count`` rounds, starting ``shift`` rounds after the recorded one.

        They begin at ``start`` (ns), ``duration`` (ns) apart. The next call overwrites the returned
        bytes.
        """
        rows = self._rows[:count]
        icrcs = np.repeat(self._icrcs[None, :], count, axis=0)
        for column in self._columns:
            column.stamp(rows, icrcs, shift)
        rows[:, self._icrc_places] = icrcs.view(np.uint8)
        self._stamp_times(rows, start + duration * np.arange(count, dtype=np.int64))
        return rows.reshape(-1).data

    def _stamp_times(self, rows: Array, starts: Array) -> None:
        times = starts[:, None] + self._times[None, :]
        words = np.empty((*times.shape, 2), self._layout.word)
        units = times // self._layout.unit
        if units[-1, -1] > _LAST_WORD:
            raise CaptureError(f"a time of {times[-1, -1]} ns does not fit this kind of capture")
        words[:, :, 0] = units
        words[:, :, 1] = times - units * self._layout.unit
        rows[:, self._time_places] = words.view(np.uint8).reshape(len(rows), -1)


class _CountingColumn:
    """One type of number: its offset in a row, its step, and its effect on ICRCs.

    ``data`` has the offsets of frames, ``lengths`` their lengths. A frame has at most one of a
    type.
    """

    def __init__(self, movers: list[FieldMover], data: Array, lengths: Array) -> None:
        self._width = movers[0].width
        self._kind, self._wire = _WORDS[self._width]
        self._frames = np.array([mover.frame for mover in movers], np.intp)
        inside = np.array([mover.place for mover in movers], np.intp)
        self._places = _bytes(data[self._frames] + inside, self._width)
        self._values = np.array([mover.value for mover in movers], self._kind)
        self._steps = np.array([mover.step for mover in movers], self._kind)
        self._mask = self._kind((1 << 8 * self._width) - 1)
        behind = lengths[self._frames] - ICRC.SIZE - inside - 1
        distances = {int(distance) - at for distance in behind for at in range(self._width)}
        numbered = {distance: 256 * number for number, distance in enumerate(sorted(distances))}
        self._changes = np.concatenate([_changes(distance) for distance in numbered])
        self._tables = [
            np.array([numbered[int(distance) - at] for distance in behind], np.intp)
            for at in range(self._width)
        ]

    def stamp(self, rows: Array, icrcs: Array, shift: int) -> None:
        """Write the numbers into rows, and update their ICRCs."""
        first = np.uint64(shift % (1 << 64))
        times = (np.arange(len(rows), dtype=np.uint64) + first).astype(self._kind)
        values = (self._values + times[:, None] * self._steps) & self._mask
        data = values.astype(self._wire)[:, :, None].view(np.uint8)[:, :, -self._width :]
        rows[:, self._places] = data.reshape(len(rows), -1)
        icrcs[:, self._frames] ^= self._change(values ^ self._values)

    def _change(self, moved: Array) -> Array:
        """Return the changed bits of ICRCs for the changed bits of numbers."""
        change = np.zeros(moved.shape, np.uint32)
        for at, table in enumerate(self._tables):
            byte = moved >> self._kind(8 * (self._width - 1 - at)) & self._kind(0xFF)
            change ^= self._changes[table + byte.astype(np.intp)]
        return change


def _records(recording: FrameRecorder, writer: Writer) -> list[bytes]:
    """Return the frames as capture records."""
    said = lost_options(writer)
    options = [said if at in recording.unheard else () for at in range(len(recording.frames))]
    return [
        writer.built(Record(frame, time, len(frame), ETHERNET, options=option))
        for frame, time, option in zip(recording.frames, recording.times, options, strict=True)
    ]


def _bytes(places: Array, width: int) -> Array:
    """Return the offsets of all bytes of the numbers at ``places``."""
    spread: Array = (places[:, None] + np.arange(width)).ravel()
    return spread


@lru_cache(maxsize=1 << 13)
def _changes(behind: int) -> Array:
    """Return the changed CRC bits by the changed bits of a byte followed by ``behind`` bytes."""
    zeros = bytes(behind)
    nothing = crc32(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in range(8):
        one = crc32(bytes((1 << bit,)) + zeros) ^ nothing
        table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(one)
    return table


MAX_HELD: Final = 64 << 20
"""Maximum bytes of recordings kept; beyond it all are discarded."""

Places = tuple[int, ...]
"""Indexes of the lost frames of a round, in sending order."""


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A recorded round, the ``played``-th of its conversation, and its repeater."""

    recording: FrameRecorder
    stamp: Stamp
    summary: TrafficSummary
    played: int


class Repetition:
    """Writes the same bytes as :func:`~rdmawire.traffic.generate.rounds.play`."""

    def __init__(self, spec: TrafficSpec, writer: Writer, progress: Progress) -> None:
        self._spec = spec
        self._writer = writer
        self._progress = progress
        self._losses = chance(spec)
        self._conversation = TestNetwork(spec)
        self._messages = len(self._conversation.messages)
        self._steps: dict[int, Position] = {}
        self._played = 0
        self._takes: dict[Places, RecordedRound] = {}
        self._held = 0
        self._rounds = 0
        self._sum = summary.NOTHING

    def run(self) -> TrafficSummary:
        """Write all complete rounds, then the remaining part of a round."""
        if self._spec.frames is None:
            self._run_messages(self._spec.messages or 0)
        else:
            self._run_frames(self._spec.frames)
        return self._sum

    def _run_messages(self, messages: int) -> None:
        whole, part = divmod(messages, self._messages)
        while self._rounds < whole:
            take = self._next()
            self._write(take, self._alike(take, whole - self._rounds))
        if part:
            self._write_part(part)

    def _run_frames(self, frames: int) -> None:
        while (left := frames - self._sum.frames) > 0:
            take = self._next()
            if take.summary.frames < left:
                self._write(take, self._alike(take, (left - 1) // take.summary.frames))
            else:
                self._write_part(self._messages, left)

    # Selection of the next round.

    def _next(self) -> RecordedRound:
        """Return the next round. Losses change its length, and so which losses are in it."""
        places: Places = ()
        while True:
            take = self._take(places)
            sent = take.recording.sent
            found = self._losses.within(sent)
            if found == tuple(place for place in places if place < sent):
                return take
            places = found

    def _take(self, places: Places) -> RecordedRound:
        """Return the recorded round in which these frames are lost."""
        take = self._takes.get(places)
        if take is None:
            take = self._played_take(places)
            if self._held > MAX_HELD:
                self._takes.clear()
                self._held = 0
            self._takes[places] = take
            self._held += take.stamp.size
        return take

    def _played_take(self, places: Places) -> RecordedRound:
        conversation = self._conversation
        before = conversation.ends.positions()
        recording = record(conversation, self._messages, Pattern(places))
        self._steps = conversation.ends.step(before)
        self._played += 1
        rows = 1 if places else CHUNK
        return self._taken(recording, self._played - 1, rows)

    def _taken(self, recording: FrameRecorder, played: int, rows: int) -> RecordedRound:
        moving = list(movers(recording.frames, bth_place(self._spec), self._steps))
        stamp = Stamp(recording, moving, self._writer, rows)
        return RecordedRound(recording, stamp, recording.summary(), played)

    def _alike(self, take: RecordedRound, rounds: int) -> int:
        """Return how many of the next ``rounds`` rounds equal this one and can be made at once."""
        count = min(take.stamp.rows, rounds)
        lost = self._losses.first(count * take.recording.sent)
        return count if lost is None else max(lost // take.recording.sent, 1)

    # Writing.

    def _write(self, take: RecordedRound, count: int) -> None:
        """Write ``count`` rounds like this one."""
        shift, duration = self._rounds - take.played, take.recording.duration
        data = take.stamp.rounds(shift, self._sum.virtual_ns, count, duration)
        self._writer.write_built(data)
        self._losses.pass_by(count * take.recording.sent)
        self._rounds += count
        self._sum = summary.added(self._sum, summary.repeated(take.summary, count))
        self._progress.report(self._sum)

    def _write_part(self, messages: int, frames: int | None = None) -> None:
        """Write the beginning of a round, played by new adapters."""
        recording = record(TestNetwork(self._spec), messages, self._losses, frames)
        take = self._taken(recording, 0, 1)
        data = take.stamp.rounds(self._rounds, self._sum.virtual_ns, 1, recording.duration)
        self._writer.write_built(data)
        self._sum = summary.added(self._sum, take.summary)


def repeat(spec: TrafficSpec, writer: Writer, progress: Progress) -> TrafficSummary:
    """Write the same as :func:`~rdmawire.traffic.generate.rounds.play`, many rounds at once."""
    return Repetition(spec, writer, progress).run()
