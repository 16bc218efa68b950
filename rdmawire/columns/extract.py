"""Extraction of field values from fast-path frames: a class for each type of location."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from rdmawire.columns.fast_path import (
    LEAD,
    Bits,
    FastFrames,
    HeaderStack,
    Records,
    bits,
    bytes_at,
    header_offsets,
)
from rdmawire.dissect import generated
from rdmawire.wire.field_registry import HeaderField
from rdmawire.wire.header import Row
from rdmawire.wire.ib import BTH
from rdmawire.wire.icrc import ONES_FOR_LRH, icrc_headers_twice, mask
from rdmawire.wire.inet import UDP, IPv4, IPv6
from rdmawire.wire.opcode import Opcode


class Extracted(NamedTuple):
    """A value for each frame, in arrays of shape ``(frames,)``.

    Where ``valid`` is false, the frame does not have the field; ``None`` if all frames have it.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None = None


class Extractor(Protocol):
    """Extracts the values of a field from fast-path frames."""

    def width(self, path: HeaderStack) -> int:
        """Return the bytes from the start of a frame that the extraction needs on this path."""

    def read(self, fast: FastFrames) -> Extracted | None:
        """Return the values; ``None`` if no frame on this path has the field."""


class _Condition(NamedTuple):
    """The values of a selector row with which another row has this meaning."""

    by: Bits
    values: NDArray[np.bool_]

    def holds(self, fast: FastFrames, base: int) -> NDArray[np.bool_]:
        held: NDArray[np.bool_] = self.values[self.by.read(fast.frames, base)]
        return held


class RowExtractor:
    """Extracts a row, or a group of rows, of a header."""

    def __init__(self, field: HeaderField) -> None:
        self._table, row = field.table, field.row
        self._bits = None if row.width > 64 else bits(row.bit, row.width)
        self._location = row.bit // 8, row.width // 8
        self._offsets = header_offsets(field.table)
        self._condition = _condition(field)

    def width(self, path: HeaderStack) -> int:
        after_bth = int(self._offsets.max())
        base = path.bth + after_bth if after_bth > 0 else self._base(path)
        return base + self._table.SIZE

    def _base(self, path: HeaderStack) -> int:
        return path.bth if self._table is BTH else path.bases.get(self._table, 0)

    def read(self, fast: FastFrames) -> Extracted | None:
        return first_of(self._part(fast, base, where) for base, where in self._bases(fast))

    def _bases(self, fast: FastFrames) -> Iterator[tuple[int, NDArray[np.bool_] | None]]:
        """Yield each offset of the header, and the frames that have it there; ``None`` for all."""
        if self._table is BTH:
            yield fast.path.bth, None
        elif self._table in fast.path.bases:
            yield fast.path.bases[self._table], None
        else:
            found = self._offsets[fast.packets.opcodes]
            distinct = set(self._offsets[fast.packets.present].tolist())
            for offset in sorted(distinct - {-1}):
                where = None if len(distinct) == 1 else found == offset
                yield fast.path.bth + offset, where

    def _part(self, fast: FastFrames, base: int, where: NDArray[np.bool_] | None) -> Extracted:
        if self._bits is None:
            first, length = self._location
            values: NDArray[Any] = bytes_at(fast.frames, base + first, length)
        else:
            values = self._bits.read(fast.frames, base)
        if self._condition is not None:
            meant = self._condition.holds(fast, base)
            where = meant if where is None else where & meant
        return Extracted(values, where)


class ICRCExtractor:
    """Extracts the ICRC, after the payload."""

    def width(self, path: HeaderStack) -> int:
        return path.width

    def read(self, fast: FastFrames) -> Extracted | None:
        return Extracted(fast.records.numbers(fast.icrc, ">u4"))


def first_of(found: Iterable[Extracted | None]) -> Extracted | None:
    """Merge values from several locations; in each frame the first location that has one counts."""
    parts = [part for part in found if part is not None]
    if len(parts) < 2 or parts[0].valid is None:
        return parts[0] if parts else None
    values, valid = np.zeros_like(parts[0].values), np.zeros(len(parts[0].values), np.bool_)
    for part, where in parts:
        new = ~valid if where is None else where & ~valid
        values[new] = part[new]
        valid |= new
    return Extracted(values, valid)


def _condition(field: HeaderField) -> _Condition | None:
    if field.is_always:
        return None
    assert isinstance(field.row, Row)
    by = next(other for other in field.table.rows if other.name == field.row.by)
    meant = np.fromiter(map(field.means, range(1 << by.width)), np.bool_)
    return _Condition(bits(by.bit, by.width), meant)


_COPIED = 512
"""Bytes of a frame, from its network header to its ICRC, that are copied to be masked in bulk."""


def expected_icrc(fast: FastFrames) -> NDArray[np.uint32]:
    """Compute the ICRC of each frame: a CRC of the masked headers, continued over the rest.

    The result has the shape ``(frames,)``.
    """
    path, lengths = fast.path, fast.packets.lengths.astype(np.uint16)
    start = LEAD + path.network_base
    ones = np.frombuffer(mask(path.network, UDP, BTH), np.uint8)
    order = lengths.argsort(kind="stable")
    crcs, ends = np.empty(len(order), np.uint32), fast.icrc
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(rows):
            records, end = fast.records.at(rows), int(ends[rows[0]])
            crcs_of = _crcs_of_copies if end - start <= _COPIED else _crcs_in_place
            crcs[rows] = crcs_of(records, start, end, ones)
    return crcs.byteswap()


def _crcs_of_copies(records: Records, start: int, end: int, ones: NDArray[np.uint8]) -> list[int]:
    """Return the CRCs of bytes ``start`` to ``end`` of each record, the first of them masked."""
    copies = records.block(start, end - start)
    copies[:, : len(ones)] |= ones
    objects = copies.view(f"V{end - start}").ravel().tolist()
    return list(map(crc32, objects, repeat(ONES_FOR_LRH)))


def _crcs_in_place(records: Records, start: int, end: int, ones: NDArray[np.uint8]) -> list[int]:
    """Return the same for long records: only the first bytes are copied."""
    heads = (records.block(start, len(ones)) | ones).view(f"V{len(ones)}").ravel().tolist()
    data, begins, length = records.data, (records.offsets + start).tolist(), end - start
    starts = (slice(begin + len(ones), begin + length) for begin in begins)
    return list(map(crc32, map(data.__getitem__, starts), map(crc32, heads, repeat(ONES_FOR_LRH))))


def _icrc_is_good(fast: FastFrames) -> tuple[NDArray[np.bool_], NDArray[np.uint32]]:
    expected = expected_icrc(fast)
    found = fast.records.numbers(fast.icrc, ">u4")
    good = expected == found
    for row in np.flatnonzero(~good & (fast.packets.opcodes == Opcode.RC_FLUSH)).tolist():
        good[row] = found[row] == _icrc_of_linux(fast, row, int(expected[row]))
    return good, expected


def _icrc_of_linux(fast: FastFrames, row: int, standard: int) -> int:
    """Return the ICRC that soft-RoCE gives a FLUSH whose ICRC by IBA 7.8.1 is ``standard``."""
    offset = int(fast.records.offsets[row])
    bth = offset + LEAD + fast.path.width - BTH.SIZE
    return icrc_headers_twice(standard, fast.records.data[bth : offset + int(fast.icrc[row])])


class ICRCStatus:
    """Extracts whether the ICRC is correct."""

    def width(self, path: HeaderStack) -> int:
        return path.width

    def read(self, fast: FastFrames) -> Extracted | None:
        good, _ = _icrc_is_good(fast)
        return Extracted(_WORDS[good.astype(np.uint8)])


class ICRCExpected:
    """Extracts the correct ICRC of frames with a wrong one."""

    def width(self, path: HeaderStack) -> int:
        return path.width

    def read(self, fast: FastFrames) -> Extracted | None:
        good, expected = _icrc_is_good(fast)
        return Extracted(expected, ~good)


_WORDS: NDArray[Any] = np.array(["bad", "good"], object)


class IPChecksumStatus:
    """Extracts whether the checksum of the IPv4 header is correct."""

    def width(self, path: HeaderStack) -> int:
        return path.width

    def read(self, fast: FastFrames) -> Extracted | None:
        if fast.path.network is IPv6:
            return None
        base = fast.path.network_base
        total = np.zeros(len(fast.frames), np.uint32)
        for word in range(IPv4.SIZE // 2):
            total += bits(16 * word, 16).read(fast.frames, base)
        total = (total & 0xFFFF) + (total >> 16)
        # RFC 791: the sum over a correct header, with its checksum, is all ones.
        good = (total & 0xFFFF) + (total >> 16) == 0xFFFF
        return Extracted(np.where(good, generated.GOOD, generated.BAD))


class Frames(NamedTuple):
    """The frames of a block: their records, and the number of the first one.

    ``first_ns`` is the capture time of the first frame of the file, ``previous_ns`` of the last
    frame before the block, in ns since the epoch. ``resolution`` is the number of time units of
    the records in a second, ``file`` the name of the capture.
    """

    records: Records
    first: int
    first_ns: int
    previous_ns: int
    resolution: int
    file: str

    def numbers(self) -> NDArray[np.int64]:
        """Return the frame numbers."""
        return np.arange(self.first, self.first + len(self.records.offsets), dtype=np.int64)

    def times(self) -> NDArray[np.int64]:
        """Return the capture times, in ns since the epoch."""
        return self.records.times(self.resolution)

    def relative_times(self) -> NDArray[np.int64]:
        """Return the times since the first frame of the file, in ns."""
        return self.times() - self.first_ns

    def deltas(self) -> NDArray[np.int64]:
        """Return the times since the previous frame, in ns."""
        return np.diff(self.times(), prepend=np.int64(self.previous_ns))

    def at(self, rows: slice) -> "Frames":
        """Return the frames of consecutive rows."""
        return self._replace(
            records=self.records.at(rows),
            first=self.first + rows.start,
            previous_ns=self.before(rows.start),
        )

    def before(self, row: int) -> int:
        """Return the capture time of the frame before this row, in ns since the epoch."""
        if row == 0:
            return self.previous_ns
        return int(self.records.at(slice(row - 1, row)).times(self.resolution)[0])


FRAME_COLUMNS: dict[str, Callable[[Frames], NDArray[Any]]] = {
    "frame.number": Frames.numbers,
    "frame.time": Frames.times,
    "frame.time_epoch": Frames.times,
    "frame.time_relative": Frames.relative_times,
    "frame.time_delta": Frames.deltas,
    "frame.len": lambda frames: frames.records.heads["length"],
    "frame.length": lambda frames: frames.records.heads["length"],
    "frame.cap_len": lambda frames: frames.records.heads["captured"],
    "rdmawire.file": lambda frames: np.full(len(frames.records.offsets), frames.file, object),
}
"""Fields of records, with the functions that read them from many frames."""
