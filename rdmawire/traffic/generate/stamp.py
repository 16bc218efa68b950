"""Many rounds as records of a capture: copies of recorded frames, with other numbers and times.

A number is written as one word, and the ICRC of its frame is changed by table. No CRC is computed
over a frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from rdmawire.errors import CaptureError
from rdmawire.traffic.generate.frame_table import WIDTHS, Array, FrameTable, GrowingArray
from rdmawire.traffic.summary import TrafficSummary

_LAST_WORD: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRound:
    """A round: the ``numbers`` of its frames in a table, and their times (ns) from its start.

    ``records`` are the records of the frames, ``size`` the bytes of all, ``sent`` the number of
    frames put on cables, and ``duration`` the time to the next round (ns).
    """

    table: FrameTable
    numbers: Array
    times: Array
    records: tuple[bytes, ...]
    size: int
    sent: int
    duration: int
    summary: TrafficSummary


class _Words:
    """Words at any offsets of a buffer, which need not be aligned."""

    def __init__(self, words: Array, places: Array) -> None:
        self._words = words
        self._places = places

    def write(self, values: Array) -> None:
        """Write a value at each of the offsets."""
        self._words[self._places] = values


class _Records:
    """The records of rounds in one buffer: for each, its frame's number, offset and round."""

    def __init__(self, rounds: Sequence[RecordedRound], sizes: GrowingArray) -> None:
        lengths = [len(one.numbers) for one in rounds]
        self.buffer = bytearray().join(chain.from_iterable(one.records for one in rounds))
        self.numbers = np.concatenate([one.numbers for one in rounds])
        self.frames = sizes.take(self.numbers)
        self.places = np.cumsum(self.frames["size"]) - self.frames["size"]
        self.rounds = np.repeat(np.arange(len(rounds), dtype=np.uint64), lengths)
        durations = np.array([one.duration for one in rounds], np.int64)
        starts = np.repeat(np.cumsum(durations) - durations, lengths)
        self.times = np.concatenate([one.times for one in rounds]) + starts

    def words(self, kind: str, places: Array) -> _Words:
        """Return words of this type at these offsets."""
        count = max(len(self.buffer) - np.dtype(kind).itemsize + 1, 0)
        return _Words(np.ndarray((count,), kind, self.buffer, strides=(1,)), places)


class RoundBatch:
    """Consecutive rounds with frames of one table. Their records are in one buffer.

    :meth:`stamp` may be called repeatedly, to write the same rounds later in the conversation.
    """

    def __init__(self, rounds: Sequence[RecordedRound]) -> None:
        table = rounds[0].table
        records = _Records(rounds, table.frames)
        self._layout = table.layout
        self._buffer = records.buffer
        self._times = records.times
        self._time_words = records.words("=u8", records.places + self._layout.time)
        icrc_places = records.places + records.frames["icrc_place"]
        self._icrc_words = records.words("<u4", icrc_places)
        self._icrcs = records.frames["icrc"]
        self._columns = [_Column(name, table, records) for name in WIDTHS]

    def stamp(self, first: int, start: int) -> memoryview:
        """Return the bytes of the rounds, the first of which is round ``first`` from 0 on.

        It begins at ``start`` (ns). The next call overwrites the returned bytes.
        :class:`CaptureError` if a time does not fit the capture.
        """
        icrcs = self._icrcs.copy()
        for column in self._columns:
            column.stamp(first, icrcs)
        self._icrc_words.write(icrcs)
        self._stamp_times(self._times + start)
        return memoryview(self._buffer)

    def _stamp_times(self, times: Array) -> None:
        unit = self._layout.unit
        words = np.empty((len(times), 2), self._layout.word)
        units = times // unit
        if len(times) and units[-1] > _LAST_WORD:
            raise CaptureError(f"a time of {times[-1]} ns does not fit this kind of capture")
        words[:, 0] = units
        words[:, 1] = times - units * unit
        self._time_words.write(words.view("=u8")[:, 0])


_KINDS: Final[dict[int, tuple[type[np.unsignedinteger[Any]], str, int]]] = {
    3: (np.uint32, ">u4", 1),
    8: (np.uint64, ">u8", 0),
}
"""Width in bytes to the integer type for computing, the word, and its bytes before the number."""


class _Column:
    """All numbers of one name: their words, and their effect on ICRCs."""

    def __init__(self, name: str, table: FrameTable, batch: _Records) -> None:
        self._width = WIDTHS[name]
        self._kind, word, lead = _KINDS[self._width]
        rows = table.numbers[name].take(batch.numbers)
        self._frames = np.flatnonzero(rows["place"])
        rows = rows[self._frames]
        self._words = batch.words(word, batch.places[self._frames] + rows["place"] - lead)
        self._lead = rows["lead"].astype(self._kind) << self._kind(24) if lead else self._kind(0)
        self._recorded = rows["recorded"].astype(self._kind)
        self._step = rows["step"].astype(self._kind)
        rounds = batch.rounds[self._frames].astype(self._kind)
        self._first = rows["first"].astype(self._kind) + rounds * self._step
        self._mask = self._kind((1 << 8 * self._width) - 1)
        self._change_rows = rows["changes"]
        self._changes = table.changes

    def stamp(self, first: int, icrcs: Array) -> None:
        """Write the numbers of the rounds from round ``first`` on, and change their ICRCs."""
        shift = self._kind(first & int(np.iinfo(self._kind).max))
        values = (self._first + shift * self._step) & self._mask
        self._words.write(values | self._lead)
        icrcs[self._frames] ^= self._change(values ^ self._recorded)

    def _change(self, moved: Array) -> Array:
        """Return the changed bits of ICRCs for the changed bits of numbers."""
        change = np.zeros(moved.shape, np.uint32)
        for at in range(self._width):
            byte = moved >> self._kind(8 * (self._width - 1 - at)) & self._kind(0xFF)
            change ^= self._changes[self._change_rows + (256 * at + byte.astype(np.intp))]
        return change
