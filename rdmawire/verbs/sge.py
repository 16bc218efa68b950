"""Scatter/gather lists: several ranges of local memory used as one. IBA 10.8.3.2."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rdmawire.errors import MemoryFault
from rdmawire.memory.key import LOCAL_WRITE, Footprint, Grant, KeyFault, KeyTable, ProtectionDomain
from rdmawire.memory.page import DmaCounters
from rdmawire.memory.region import Region
from rdmawire.validate import BytesLike
from rdmawire.verbs.wr import Sge


class Piece(NamedTuple):
    """A range of memory whose key was checked, addressed by bytes from its start.

    The check is valid until the grant changes; then access raises ``MemoryFault``. ``key`` is the
    key that was checked.
    """

    memory: Grant
    address: int
    length: int
    generation: int
    key: int

    @property
    def is_bulk(self) -> bool:
        """Whether one large access costs much less than several small ones."""
        return self.memory.is_bulk

    @property
    def holds(self) -> bool:
        """Whether the check of the key is still valid: the grant has not changed since."""
        return self.memory.generation == self.generation

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Read ``length`` bytes at ``offset``."""
        memory, address, _, generation, _ = self
        if memory.generation != generation:
            raise self._changed(offset, length)
        return memory.read(address + offset, length)

    def write(self, offset: int, data: BytesLike) -> None:
        """Write ``data`` at ``offset``."""
        memory, address, _, generation, _ = self
        if memory.generation != generation:
            raise self._changed(offset, len(data))
        memory.write(address + offset, data)

    def write_all(self, offset: int, parts: Sequence[BytesLike]) -> None:
        """Write parts from ``offset`` on, one after the other."""
        memory, address, _, generation, _ = self
        if memory.generation != generation:
            raise self._changed(offset, sum(map(len, parts)))
        memory.write_all(address + offset, parts)

    def footprints(self, offset: int, length: int) -> list[Footprint]:
        """The memory ranges of ``length`` bytes at ``offset``."""
        return [self.memory.footprint(self.address + offset, length)]

    def _changed(self, offset: int, length: int) -> MemoryFault:
        return MemoryFault("the key allows something else by now", self.address + offset, length)


_new = tuple.__new__


def piece(memory: Grant, address: int, length: int) -> Piece:
    """A range of what a key grants now."""
    return _new(Piece, (memory, address, length, memory.generation, memory.key))


NOTHING = piece(Region(ProtectionDomain(0), DmaCounters()), 0, 0)
"""An empty range, without a key."""


class Gather(NamedTuple):
    """Several ranges, read and written like one."""

    pieces: tuple[Piece, ...]
    length: int

    @property
    def is_bulk(self) -> bool:
        """Whether one large access costs much less than several small ones."""
        return False

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Read ``length`` bytes at ``offset``, counted over all ranges."""
        return b"".join(one.read(start, size) for one, start, size in self._span(offset, length))

    def write(self, offset: int, data: BytesLike) -> None:
        """Write ``data`` at ``offset``, counted over all ranges."""
        done = 0
        for one, start, size in self._span(offset, len(data)):
            one.write(start, data[done : done + size])
            done += size

    def footprints(self, offset: int, length: int) -> list[Footprint]:
        """The memory ranges of ``length`` bytes at ``offset``, in order."""
        spans = self._span(offset, length)
        return [one.memory.footprint(one.address + start, size) for one, start, size in spans]

    def _span(self, offset: int, length: int) -> Iterator[tuple[Piece, int, int]]:
        """Split ``length`` bytes at ``offset`` into pieces, each with its start and size."""
        for one in self.pieces:
            skipped = min(offset, one.length)
            taken = min(one.length - skipped, length)
            if taken:
                yield one, skipped, taken
            offset -= skipped
            length -= taken


class Inline:
    """A message inside the work request. Read like a :class:`Piece`."""

    __slots__ = ("_bytes", "length")
    is_bulk = False

    def __init__(self, data: bytes) -> None:
        self._bytes = data
        self.length = len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes of the message at ``offset``."""
        return self._bytes[offset : offset + length]


def read_run(
    source: Piece | Gather | Inline, offset: int, length: int, count: int
) -> Iterable[bytes | memoryview]:
    """The payloads of ``count`` packets of ``length`` bytes, from ``offset`` on.

    They may be read when they are used, which raises ``MemoryFault`` at the first that fails.
    """
    size = count * length
    if not source.is_bulk:
        return (source.read(start, length) for start in range(offset, offset + size, length))
    data = memoryview(source.read(offset, size))
    return [data[start : start + length] for start in range(0, size, length)]


def write_run(sink: Piece | Gather, offset: int, payloads: Sequence[BytesLike]) -> int:
    """Write payloads from ``offset`` on, until one fails. Return how many were written."""
    if isinstance(sink, Piece) and sink.is_bulk:
        try:
            sink.write_all(offset, payloads)
        except MemoryFault:
            return 0
        return len(payloads)
    for count, payload in enumerate(payloads):
        try:
            sink.write(offset, payload)
        except MemoryFault:
            return count
        offset += len(payload)
    return len(payloads)


def gather(
    keys: KeyTable, pd: ProtectionDomain, sges: tuple[Sge, ...], access: int
) -> Piece | Gather | KeyFault:
    """The ranges of the SGEs, or the fault of the first key that does not allow this access.

    Empty SGEs are skipped: their keys are not checked.
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
    """Write ``data`` to the SGEs if their keys allow it; ``False`` if ``data`` is too long."""
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
    """As :func:`gather`, for zero or several SGEs."""
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
