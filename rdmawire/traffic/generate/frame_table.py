"""The distinct frames of recorded rounds, as records of a capture.

Rounds with different losses consist of the same frames in another order: only their PSNs, MSNs and
atomic results advance from round to round. A frame is kept once; a recorded round is a list of
numbers of frames.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from rdmawire.capture import Record, Writer
from rdmawire.traffic.generate.recording import MOVING, FieldMover, FieldMovers, FrameRecorder
from rdmawire.traffic.generate.rounds import ETHERNET, lost_options
from rdmawire.wire.ib import ICRC

Array = NDArray[Any]

WIDTHS: Final = {field.name: field.width for fields in MOVING.values() for field in fields}
"""Name of a number that advances to its size in bytes. A frame has at most one of a name."""

FRAME: Final = np.dtype([("size", np.int64), ("icrc_place", np.int64), ("icrc", np.uint32)])
"""A record: its size, the offset of its ICRC (bytes), and the recorded ICRC."""

NUMBER: Final = np.dtype(
    [
        *(("place", np.int64), ("recorded", np.uint64), ("first", np.uint64)),
        *(("step", np.uint64), ("lead", np.uint32), ("changes", np.int64)),
    ]
)
"""A number in a record, at offset ``place`` (0: the frame has no such number).

``recorded`` is its value in the record, ``first`` that in the first round, ``lead`` the byte before
it, and ``changes`` the index of its first entry in :attr:`FrameTable.changes`.
"""

_START: Final = 64


class GrowingArray:
    """An array that doubles when it is full; new entries are zeros."""

    def __init__(self, kind: "np.dtype[Any]") -> None:
        self._all: Array = np.zeros(_START, kind)
        self._count = 0

    def add(self, entry: tuple[int, ...]) -> None:
        """Append an entry; an empty tuple leaves it zero."""
        if self._count == len(self._all):
            self._all = np.concatenate([self._all, np.zeros_like(self._all)])
        if entry:
            self._all[self._count] = entry
        self._count += 1

    def take(self, numbers: Array) -> Array:
        """Return the entries with these numbers."""
        found: Array = self._all[numbers]
        return found


class FrameTable:
    """Distinct frames by number. ``records`` are their records, ``size`` the bytes of all.

    ``frames`` has a row of :data:`FRAME` for each, ``numbers`` rows of :data:`NUMBER` by name.
    """

    def __init__(self, writer: Writer, movers: FieldMovers) -> None:
        self.layout = writer.record_layout
        self.records: list[bytes] = []
        self.size = 0
        self.frames = GrowingArray(FRAME)
        self.numbers = {name: GrowingArray(NUMBER) for name in WIDTHS}
        self._writer = writer
        self._lost_options = lost_options(writer)
        self._movers = movers
        self._known: dict[bytes, int] = {}
        self._changes = CrcChanges()

    @property
    def changes(self) -> Array:
        """Changed bits of an ICRC by the changed bits of bytes."""
        return self._changes.all()

    def add(self, recording: FrameRecorder, played: int) -> list[int]:
        """Return the numbers of the frames of a round, the ``played``-th of its conversation."""
        lost = recording.unheard
        return [
            self._number(frame, place in lost, played)
            for place, frame in enumerate(recording.frames)
        ]

    def _number(self, frame: bytes, lost: bool, played: int) -> int:
        movers = self._movers.of(frame)
        key = _digest(frame, lost, movers, played)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.records)
            self._append(frame, lost, movers, played)
        return found

    def _append(
        self, frame: bytes, lost: bool, movers: tuple[FieldMover, ...], played: int
    ) -> None:
        options = self._lost_options if lost else ()
        record = self._writer.built(Record(frame, 0, len(frame), ETHERNET, options=options))
        data = self.layout.data
        self.records.append(record)
        self.size += len(record)
        icrc = int.from_bytes(frame[-ICRC.SIZE :], "little")
        self.frames.add((len(record), data + len(frame) - ICRC.SIZE, icrc))
        entries = {mover.name: self._entry(frame, mover, played) for mover in movers}
        for name, numbers in self.numbers.items():
            numbers.add(entries.get(name, ()))

    def _entry(self, frame: bytes, mover: FieldMover, played: int) -> tuple[int, ...]:
        """Return a row of :data:`NUMBER`."""
        value, place = mover.value(frame), mover.place
        changes = self._changes.start(len(frame) - ICRC.SIZE - place - 1, mover.width)
        first = mover.at(value, -played)
        return self.layout.data + place, value, first, mover.step, frame[place - 1], changes


def _digest(frame: bytes, lost: bool, movers: tuple[FieldMover, ...], played: int) -> bytes:
    """Return what identifies a frame, with its numbers as in the first round."""
    data = bytearray(frame)
    data[-ICRC.SIZE :] = bytes((lost,))  # the ICRC follows from the rest
    for mover in movers:
        first = mover.at(mover.value(frame), -played)
        data[mover.place : mover.place + mover.width] = first.to_bytes(mover.width, "big")
    return blake2b(data, digest_size=16).digest()


class CrcChanges:
    """Changed bits of CRCs, by the changed bits of a number followed by some bytes.

    A number has 256 entries for each of its bytes, the first byte's first. CRCs are linear: the
    change for several bytes is the exclusive or of theirs.
    """

    def __init__(self) -> None:
        self._starts: dict[tuple[int, int], int] = {}
        self._tables: list[Array] = []

    def start(self, behind: int, width: int) -> int:
        """Return the index of the entries of a number of ``width`` bytes.

        ``behind`` is the number of bytes after its first byte, up to the CRC.
        """
        key = behind, width
        if key not in self._starts:
            self._starts[key] = 256 * sum(width for _, width in self._starts)
            self._tables += [changes_of(behind - at) for at in range(width)]
        return self._starts[key]

    def all(self) -> Array:
        """Return all entries."""
        if len(self._tables) > 1:
            self._tables = [np.concatenate(self._tables)]
        return self._tables[0] if self._tables else np.zeros(0, np.uint32)


@lru_cache(maxsize=1 << 13)
def changes_of(behind: int) -> Array:
    """Return the changed CRC bits by the changed bits of a byte followed by ``behind`` bytes."""
    zeros = bytes(behind)
    nothing = crc32(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in range(8):
        one = crc32(bytes((1 << bit,)) + zeros) ^ nothing
        table[1 << bit : 2 << bit] = table[: 1 << bit] ^ np.uint32(one)
    return table
