"""Many rounds at once: each is played once for each pattern of losses, and then repeated.

What a round does depends on which of its frames are lost, and on nothing else but where PSNs,
MSNs and time stand. So rounds in which the same frames are lost are one recording, moved on.
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
    Conversation,
    Enough,
    Progress,
    chance,
    lost_options,
)
from rdmawire.traffic.generate.spec import Order
from rdmawire.traffic.summary import NO_DMA, FrameCounter, Moved, Summary, moved, summarise
from rdmawire.wire.ib import AETH, BTH, ICRC
from rdmawire.wire.opcode import SHAPES, Opcode

_PSN: Final = BTH.SIZE - 3
_DESTQP: Final = 5
_MSN: Final = BTH.SIZE + 1
_ORIGINAL: Final = BTH.SIZE + AETH.SIZE


class Field(NamedTuple):
    """A number in packets: which of a position, where behind the BTH's start, how many bytes."""

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
            counter.count(frame, time)
        summary = summarise(counter, (), self.duration, lost=self.losses)
        return summary._replace(paths=self.paths)


def record(
    conversation: Conversation, count: int, losses: Losses, most: int | None = None
) -> Recording:
    """Play the first so many messages of a round; no further than to the last frame asked for."""
    simulator, before = conversation.simulator, moved(conversation.nics)
    start, sent = simulator.now, conversation.sent
    recording = Recording(start, most)
    with suppress(Enough):
        conversation.play(count, losses, recording)
    recording.sent = conversation.sent - sent
    recording.duration = simulator.now - start
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


Array = NDArray[Any]
CHUNK: Final = 2 << 20
"""Bytes of an array of rows, at least one row: what is made at once stays in a cache."""

_TIME: Final = 8
_LAST_WORD: Final = 0xFFFF_FFFF
_WORDS: Final[dict[int, tuple[type[np.unsignedinteger[Any]], str]]] = {
    3: (np.uint32, ">u4"),
    8: (np.uint64, ">u8"),
}
"""What holds a number of so many bytes: to reckon with, and as packets have it."""


class Stamp:
    """Makes the rounds that are like a recorded one, up to ``rows`` at once.

    ``size`` is the bytes of a round, ``ends`` where each of its records ends.
    """

    def __init__(
        self, recording: Recording, movers: list[Mover], writer: Writer, rows: int
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
        self._columns = [_Column(group, data, lengths) for group in groups]
        self._rows = np.repeat(row[None, :], self.rows, axis=0)

    def rounds(self, shift: int, start: int, count: int, duration: int) -> memoryview:
        """The bytes of ``count`` rounds, the first ``shift`` rounds after the recorded one.

        They begin at ``start`` (ns), each ``duration`` after the one before. What was given
        before is gone.
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


class _Column:
    """One kind of number: where it stands in a row, how it moves, and what that does to ICRCs.

    ``data`` is where frames begin, ``lengths`` are theirs. No frame has two of a kind.
    """

    def __init__(self, movers: list[Mover], data: Array, lengths: Array) -> None:
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
        """Put the numbers into rows, and what changes into their ICRCs."""
        first = np.uint64(shift % (1 << 64))
        times = (np.arange(len(rows), dtype=np.uint64) + first).astype(self._kind)
        values = (self._values + times[:, None] * self._steps) & self._mask
        data = values.astype(self._wire)[:, :, None].view(np.uint8)[:, :, -self._width :]
        rows[:, self._places] = data.reshape(len(rows), -1)
        icrcs[:, self._frames] ^= self._change(values ^ self._values)

    def _change(self, moved: Array) -> Array:
        """What changes in ICRCs where these bits of numbers do."""
        change = np.zeros(moved.shape, np.uint32)
        for at, table in enumerate(self._tables):
            byte = moved >> self._kind(8 * (self._width - 1 - at)) & self._kind(0xFF)
            change ^= self._changes[table + byte.astype(np.intp)]
        return change


def _records(recording: Recording, writer: Writer) -> list[bytes]:
    """The frames as the capture keeps them."""
    said = lost_options(writer)
    options = [said if at in recording.unheard else () for at in range(len(recording.frames))]
    return [
        writer.built(Record(frame, time, len(frame), ETHERNET, options=option))
        for frame, time, option in zip(recording.frames, recording.times, options, strict=True)
    ]


def _bytes(places: Array, width: int) -> Array:
    """Where the bytes of numbers stand that begin at these places."""
    spread: Array = (places[:, None] + np.arange(width)).ravel()
    return spread


@lru_cache(maxsize=1 << 13)
def _changes(behind: int) -> Array:
    """By the bits that change in a byte with so many behind it: those that change in the CRC."""
    zeros = bytes(behind)
    nothing = crc32(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in range(8):
        one = crc32(bytes((1 << bit,)) + zeros) ^ nothing
        table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(one)
    return table


MAX_HELD: Final = 64 << 20
"""Bytes of recordings that are kept; it begins anew after that many."""

Places = tuple[int, ...]
"""Which frames of a round are lost, by their order on the cable."""


@dataclass(frozen=True, slots=True)
class Take:
    """A recorded round, the ``played``-th of its conversation, and what repeats it."""

    recording: Recording
    stamp: Stamp
    summary: Summary
    played: int


class Repetition:
    """Writes what :func:`~rdmawire.traffic.generate.rounds.play` does, the same bytes."""

    def __init__(self, order: Order, writer: Writer, progress: Progress) -> None:
        self._order = order
        self._writer = writer
        self._progress = progress
        self._losses = chance(order)
        self._conversation = Conversation(order)
        self._messages = len(self._conversation.messages)
        self._steps: dict[int, Position] = {}
        self._played = 0
        self._takes: dict[Places, Take] = {}
        self._held = 0
        self._rounds = 0
        self._sum = summary.NOTHING

    def run(self) -> Summary:
        """All whole rounds, then the part of one that is left."""
        if self._order.frames is None:
            self._run_messages(self._order.messages or 0)
        else:
            self._run_frames(self._order.frames)
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

    # Which round comes next.

    def _next(self) -> Take:
        """The next round. Losses change how long it is, and so which losses are in it."""
        places: Places = ()
        while True:
            take = self._take(places)
            sent = take.recording.sent
            found = self._losses.within(sent)
            if found == tuple(place for place in places if place < sent):
                return take
            places = found

    def _take(self, places: Places) -> Take:
        """The round in which these frames are lost."""
        take = self._takes.get(places)
        if take is None:
            take = self._played_take(places)
            if self._held > MAX_HELD:
                self._takes.clear()
                self._held = 0
            self._takes[places] = take
            self._held += take.stamp.size
        return take

    def _played_take(self, places: Places) -> Take:
        conversation = self._conversation
        before = conversation.ends.positions()
        recording = record(conversation, self._messages, Pattern(places))
        self._steps = conversation.ends.step(before)
        self._played += 1
        rows = 1 if places else CHUNK
        return self._taken(recording, self._played - 1, rows)

    def _taken(self, recording: Recording, played: int, rows: int) -> Take:
        moving = list(movers(recording.frames, bth_place(self._order), self._steps))
        stamp = Stamp(recording, moving, self._writer, rows)
        return Take(recording, stamp, recording.summary(), played)

    def _alike(self, take: Take, rounds: int) -> int:
        """How many of so many rounds are like this one, one after the other, and made at once."""
        count = min(take.stamp.rows, rounds)
        lost = self._losses.first(count * take.recording.sent)
        return count if lost is None else max(lost // take.recording.sent, 1)

    # What is written.

    def _write(self, take: Take, count: int) -> None:
        """So many rounds like this one."""
        shift, duration = self._rounds - take.played, take.recording.duration
        data = take.stamp.rounds(shift, self._sum.virtual_ns, count, duration)
        self._writer.write_built(data)
        self._losses.pass_by(count * take.recording.sent)
        self._rounds += count
        self._sum = summary.added(self._sum, summary.repeated(take.summary, count))
        self._progress.report(self._sum)

    def _write_part(self, messages: int, frames: int | None = None) -> None:
        """The beginning of a round, played by adapters that have not sent anything yet."""
        recording = record(Conversation(self._order), messages, self._losses, frames)
        take = self._taken(recording, 0, 1)
        data = take.stamp.rounds(self._rounds, self._sum.virtual_ns, 1, recording.duration)
        self._writer.write_built(data)
        self._sum = summary.added(self._sum, take.summary)


def repeat(order: Order, writer: Writer, progress: Progress) -> Summary:
    """What :func:`~rdmawire.traffic.generate.rounds.play` does, many rounds at once."""
    return Repetition(order, writer, progress).run()
