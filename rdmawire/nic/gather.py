"""Scatter/gather lists: several pieces of local memory that count as one. IBA 10.8.3.2."""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.memory.counter import DmaCounter
from rdmawire.memory.domain import ProtectionDomain
from rdmawire.memory.grant import Grant, KeyFault
from rdmawire.memory.key import KeyTable
from rdmawire.memory.page import Octets
from rdmawire.memory.region import Region
from rdmawire.nic.work import Sge


class Piece(NamedTuple):
    """A piece whose key was checked: memory by octets from its start."""

    memory: Grant
    address: int
    length: int

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """``length`` octets from ``offset`` on."""
        return self[0].read(self[1] + offset, length)

    def write(self, offset: int, data: Octets) -> None:
        """Place octets from ``offset`` on."""
        self[0].write(self[1] + offset, data)


_new = tuple.__new__

NOTHING = Piece(Region(ProtectionDomain(0), DmaCounter()), 0, 0)
"""Memory of no octets, by no key."""


class Gather(NamedTuple):
    """Any number of pieces, which reads and writes like one."""

    pieces: tuple[Piece, ...]
    length: int

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """``length`` octets from ``offset`` on, counted over all pieces."""
        return b"".join(
            memory.read(address, length) for memory, address, length in self._span(offset, length)
        )

    def write(self, offset: int, data: Octets) -> None:
        """Place octets from ``offset`` on, counted over all pieces."""
        done = 0
        for memory, address, length in self._span(offset, len(data)):
            memory.write(address, data[done : done + length])
            done += length

    def _span(self, offset: int, length: int) -> Iterator[Piece]:
        """The parts of pieces that make up ``length`` octets from ``offset`` on."""
        for memory, address, size in self.pieces:
            skipped = min(offset, size)
            taken = min(size - skipped, length)
            if taken:
                yield Piece(memory, address + skipped, taken)
            offset -= skipped
            length -= taken


class Inline:
    """A message that stands in the work request itself. Reads like a :class:`Piece`."""

    __slots__ = ("_octets", "length")

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self.length = len(octets)

    def read(self, offset: int, length: int) -> bytes:
        """Octets of a message: ``length`` of them from ``offset`` on."""
        return self._octets[offset : offset + length]


def gather(
    keys: KeyTable, pd: ProtectionDomain, sges: tuple[Sge, ...], access: int
) -> Piece | Gather | KeyFault:
    """The pieces whose keys allow this access, or what the first that does not breaks.

    An empty piece is none: its key is not looked at.
    """
    if len(sges) == 1 and sges[0][1]:
        address, length, lkey = sges[0]
        granted = keys.check(lkey, pd, address, length, access)
        if type(granted) is KeyFault:
            return granted
        return _new(Piece, (granted, address, length))
    return _gather(keys, pd, sges, access)


def _gather(
    keys: KeyTable, pd: ProtectionDomain, sges: tuple[Sge, ...], access: int
) -> Gather | KeyFault:
    """As :func:`gather`, for none or several."""
    pieces = []
    total = 0
    for address, length, lkey in sges:
        if not length:
            continue
        granted = keys.check(lkey, pd, address, length, access)
        if isinstance(granted, KeyFault):
            return granted
        pieces.append(_new(Piece, (granted, address, length)))
        total += length
    return Gather(tuple(pieces), total)
