"""Many rounds at once: the octets of one, as rows of an array, with the numbers that move on.

A row is all records of a round as the capture has them. From row to row only PSNs, MSNs, what
atomics return, the times and the ICRCs differ, and each is a column. An ICRC is linear: what a
changed octet does to it depends on its change and on how many octets follow, and on nothing else.
So the ICRCs of thousands of frames are a few look-ups in tables, and no CRC is run at all.
"""

from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from rdmawire.capture import Record, Writer
from rdmawire.errors import CaptureError
from rdmawire.traffic.generate.output import ETHERNET, lost_options
from rdmawire.traffic.generate.recording import Mover, Recording
from rdmawire.wire.ib import ICRC

Array = NDArray[Any]
CHUNK: Final = 2 << 20
"""Octets of an array of rows, at least one row: what is made at once stays in a cache."""

_TIME: Final = 8
_LAST_WORD: Final = 0xFFFF_FFFF
_WORDS: Final[dict[int, tuple[type[np.unsignedinteger[Any]], str]]] = {
    3: (np.uint32, ">u4"),
    8: (np.uint64, ">u8"),
}
"""What holds a number of so many octets: to reckon with, and as packets have it."""


class Stamp:
    """Makes the rounds that are like a recorded one, up to ``rows`` at once.

    ``size`` is the octets of a round, ``ends`` where each of its records ends.
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
        self._time_places = _octets(starts + self._layout.time, _TIME)
        self._icrc_places = _octets(data + lengths - ICRC.SIZE, ICRC.SIZE)
        self._icrcs = row[self._icrc_places].view("<u4")
        names = dict.fromkeys(mover.name for mover in movers)
        groups = [[mover for mover in movers if mover.name == name] for name in names]
        self._columns = [_Column(group, data, lengths) for group in groups]
        self._rows = np.repeat(row[None, :], self.rows, axis=0)

    def rounds(self, shift: int, start: int, count: int, duration: int) -> memoryview:
        """The octets of ``count`` rounds, the first ``shift`` rounds after the recorded one.

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
        self._places = _octets(data[self._frames] + inside, self._width)
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
        octets = values.astype(self._wire)[:, :, None].view(np.uint8)[:, :, -self._width :]
        rows[:, self._places] = octets.reshape(len(rows), -1)
        icrcs[:, self._frames] ^= self._change(values ^ self._values)

    def _change(self, moved: Array) -> Array:
        """What changes in ICRCs where these bits of numbers do."""
        change = np.zeros(moved.shape, np.uint32)
        for at, table in enumerate(self._tables):
            octet = moved >> self._kind(8 * (self._width - 1 - at)) & self._kind(0xFF)
            change ^= self._changes[table + octet.astype(np.intp)]
        return change


def _records(recording: Recording, writer: Writer) -> list[bytes]:
    """The frames as the capture keeps them."""
    said = lost_options(writer)
    options = [said if at in recording.unheard else () for at in range(len(recording.frames))]
    return [
        writer.built(Record(frame, time, len(frame), ETHERNET, options=option))
        for frame, time, option in zip(recording.frames, recording.times, options, strict=True)
    ]


def _octets(places: Array, width: int) -> Array:
    """Where the octets of numbers stand that begin at these places."""
    spread: Array = (places[:, None] + np.arange(width)).ravel()
    return spread


@lru_cache(maxsize=1 << 13)
def _changes(behind: int) -> Array:
    """By the bits that change in an octet with so many behind it: those that change in the CRC."""
    zeros = bytes(behind)
    nothing = crc32(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in range(8):
        one = crc32(bytes((1 << bit,)) + zeros) ^ nothing
        table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(one)
    return table
