"""Scatter/gather lists: several pieces of local memory that count as one. IBA 10.8.3.2."""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.errors import MemoryFault
from rdmawire.memory.key import LOCAL_WRITE, Footprint, Grant, KeyFault, KeyTable, ProtectionDomain
from rdmawire.memory.page import DmaCounters
from rdmawire.memory.region import Region
from rdmawire.validate import BytesLike
from rdmawire.verbs.wr import Sge


class Piece(NamedTuple):
    """A piece whose key was checked: memory by bytes from its start.

    The check holds for as long as the grant stays as it was; ``MemoryFault`` once it changed.
    ``key`` is the key that was checked.
    """

    memory: Grant
    address: int
    length: int
    generation: int
    key: int

    @property
    def holds(self) -> bool:
        """Whether the check of the key still holds: the grant was not changed since."""
        return self.memory.generation == self.generation

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """``length`` bytes from ``offset`` on."""
        memory, address, _, generation, _ = self
        if memory.generation != generation:
            raise self._changed(offset, length)
        return memory.read(address + offset, length)

    def write(self, offset: int, data: BytesLike) -> None:
        """Place bytes from ``offset`` on."""
        memory, address, _, generation, _ = self
        if memory.generation != generation:
            raise self._changed(offset, len(data))
        memory.write(address + offset, data)

    def footprints(self, offset: int, length: int) -> list[Footprint]:
        """Where ``length`` bytes from ``offset`` on lie in memory."""
        return [self.memory.footprint(self.address + offset, length)]

    def _changed(self, offset: int, length: int) -> MemoryFault:
        return MemoryFault("the key allows something else by now", self.address + offset, length)


_new = tuple.__new__


def piece(memory: Grant, address: int, length: int) -> Piece:
    """A piece of what a key grants now."""
    return _new(Piece, (memory, address, length, memory.generation, memory.key))


NOTHING = piece(Region(ProtectionDomain(0), DmaCounters()), 0, 0)
"""Memory of no bytes, by no key."""


class Gather(NamedTuple):
    """Any number of pieces, which reads and writes like one."""

    pieces: tuple[Piece, ...]
    length: int

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """``length`` bytes from ``offset`` on, counted over all pieces."""
        return b"".join(one.read(start, size) for one, start, size in self._span(offset, length))

    def write(self, offset: int, data: BytesLike) -> None:
        """Place bytes from ``offset`` on, counted over all pieces."""
        done = 0
        for one, start, size in self._span(offset, len(data)):
            one.write(start, data[done : done + size])
            done += size

    def footprints(self, offset: int, length: int) -> list[Footprint]:
        """Where ``length`` bytes from ``offset`` on lie in memory, piece by piece."""
        spans = self._span(offset, length)
        return [one.memory.footprint(one.address + start, size) for one, start, size in spans]

    def _span(self, offset: int, length: int) -> Iterator[tuple[Piece, int, int]]:
        """What makes up ``length`` bytes from ``offset`` on: pieces, their starts and sizes."""
        for one in self.pieces:
            skipped = min(offset, one.length)
            taken = min(one.length - skipped, length)
            if taken:
                yield one, skipped, taken
            offset -= skipped
            length -= taken


class Inline:
    """A message that stands in the work request itself. Reads like a :class:`Piece`."""

    __slots__ = ("_bytes", "length")

    def __init__(self, data: bytes) -> None:
        self._bytes = data
        self.length = len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of a message: ``length`` of them from ``offset`` on."""
        return self._bytes[offset : offset + length]


def gather(
    keys: KeyTable, pd: ProtectionDomain, sges: tuple[Sge, ...], access: int
) -> Piece | Gather | KeyFault:
    """The pieces whose keys allow this access, or what the first that does not breaks.

    An empty piece is none: its key is not looked at.
    """
    if len(sges) == 1:
        address, length, lkey = sges[0]
        if length:
            granted = keys.check(lkey, pd, address, length, access)
            if type(granted) is KeyFault:
                return granted
            return _new(Piece, (granted, address, length, granted.generation, lkey))
    return _gather(keys, pd, sges, access)


def scatter(
    keys: KeyTable, pd: ProtectionDomain, sges: tuple[Sge, ...], data: bytes
) -> bool | KeyFault:
    """Place bytes at once in the pieces whose keys allow it; ``False`` if there are too many."""
    if len(sges) == 1:
        address, length, lkey = sges[0]
        if length:
            granted = keys.check(lkey, pd, address, length, LOCAL_WRITE)
            if type(granted) is KeyFault:
                return granted
            fits = len(data) <= length
            if fits and data:
                granted.write(address, data)
            return fits
    sink = _gather(keys, pd, sges, LOCAL_WRITE)
    if isinstance(sink, KeyFault):
        return sink
    if len(data) <= sink.length:
        sink.write(0, data)
    return len(data) <= sink.length


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
        pieces.append(piece(granted, address, length))
        total += length
    return Gather(tuple(pieces), total)
