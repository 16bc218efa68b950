"""Plain frames: those whose fields are read many at once.

A frame is plain if it is whole, on a path to a BTH, and parses from there to its end. What is
known of such frames are places: where each begins in the file, and what stands at which octet.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.record import SECOND
from rdmawire.capture.record_index import Places
from rdmawire.columns.bits import LEAD, Matrix
from rdmawire.columns.path import Path
from rdmawire.columns.transport import Packets, make_sense, packets
from rdmawire.wire.ib import ICRC
from rdmawire.wire.inet import UDP

Ports = NDArray[np.uint16]
Chosen = NDArray[np.int64] | slice
"""Some of the rows of a block."""


class Records:
    """Records of a file: the places of their headers, and the byte order of those.

    The headers are read once, when they are first asked for.
    """

    __slots__ = ("_heads", "octets", "order", "places")

    def __init__(
        self, octets: memoryview, places: Places, order: str, heads: NDArray[Any] | None = None
    ) -> None:
        self.octets = octets
        self.places = places
        self.order = order
        self._heads = heads

    def first_octets(self, width: int) -> Matrix:
        """Each record's header and the octets behind it, a row for each; all must be there."""
        every = self._everywhere(f"V{width}")
        return every[self.places].view(np.uint8).reshape(len(self.places), width)

    def numbers(self, offset: NDArray[np.int64], kind: str) -> NDArray[Any]:
        """A number of each record, so many octets behind the beginning of its header."""
        found: NDArray[Any] = self._everywhere(kind)[self.places + offset]
        return found

    def _everywhere(self, kind: str) -> NDArray[Any]:
        """The file read as values of this kind, one beginning at each octet."""
        dtype = np.dtype(kind)
        rows = max(len(self.octets) - dtype.itemsize + 1, 0)
        return np.ndarray((rows,), dtype, self.octets, strides=(1,))

    @property
    def heads(self) -> NDArray[Any]:
        """The headers: ``seconds``, ``fraction``, ``captured`` and ``length`` of each record."""
        if self._heads is None:
            names = ("seconds", "fraction", "captured", "length")
            kinds = np.dtype([(name, f"{self.order}u4") for name in names])
            self._heads = self._everywhere(f"V{kinds.itemsize}")[self.places].view(kinds)
        return self._heads

    def times(self, resolution: int) -> NDArray[np.int64]:
        """When each was captured, in nanoseconds since the epoch."""
        seconds = self.heads["seconds"].astype(np.int64)
        fractions = self.heads["fraction"].astype(np.int64)
        return seconds * SECOND + fractions * (SECOND // resolution)

    def at(self, chosen: Chosen) -> "Records":
        """Some of the records."""
        heads = None if self._heads is None else self._heads[chosen]
        return Records(self.octets, self.places[chosen], self.order, heads)


class Plain(NamedTuple):
    """Plain frames on one path: their first octets, and their transport packets."""

    records: Records
    frames: Matrix
    path: Path
    packets: Packets

    @property
    def icrc(self) -> NDArray[np.int64]:
        """Octets from the record's header to the ICRC of each frame."""
        return self.packets.lengths + np.int64(LEAD + self.path.bases[UDP] - ICRC.SIZE)


class Sieve:
    """Finds the plain frames among records.

    ``widths`` says for each path how many octets are read of each record, header included.
    """

    def __init__(self, widths: dict[Path, int], ports: Ports) -> None:
        self._widths = widths
        self._ports = ports

    def plain(self, records: Records) -> Iterator[tuple[Chosen, Plain]]:
        """The plain frames by path, each time with the rows that they are of the records."""
        rows = np.arange(len(records.places))
        for path, width in self._widths.items():
            last = np.searchsorted(records.places[rows], len(records.octets) - width, "right")
            near = rows[:last]
            if not len(near):
                continue
            every = len(near) == len(records.places)
            which, found = self._on(path, records if every else records.at(near), width)
            if len(which) == len(records.places):
                yield slice(None), found
                return
            if len(which):
                yield near[which], found
            rows = np.delete(rows, which)

    def _on(self, path: Path, records: Records, width: int) -> tuple[NDArray[np.int64], Plain]:
        """The plain frames on a path, and which of the records they are."""
        frames = records.first_octets(width)
        own = packets(frames, path)
        heads = records.heads
        mask = path.holds(frames, self._ports)
        mask &= heads["captured"] == heads["length"]
        mask &= make_sense(frames, path, own, heads["captured"])
        which = np.flatnonzero(mask)
        if len(which) < len(mask):
            records, frames = records.at(which), frames[which]
            own = Packets(own.opcodes[which], own.lengths[which])
        return which, Plain(records, frames, path, own)
