"""GOAL schedules in their binary form, which ``txt2bin`` of LogGOPSim writes.

All numbers are little-endian and not aligned. The file begins with a magic number and a header,
then a table with the start and the end of each rank, counted from behind the magic number. A rank
has its number of operations, those without dependencies, a record of 39 bytes for each operation,
and a list of the operations that wait for others. Facts: ``Parser.hpp`` of LogGOPSim.
"""

from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO, Final

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.workload.graph import (
    ANY,
    ANY_32,
    MAX_OPERATIONS,
    MAX_RANKS,
    Kind,
    Operation,
    Workload,
    add_operation,
)

MAGIC: Final = (4223).to_bytes(8, "little")
USED: Final = (2342).to_bytes(8, "little")
"""Magic number of a schedule that a simulation has used up."""
MAX_BYTES: Final = 1 << 27
_HEADER: Final = Struct("<IBB")
"""Number of ranks, greatest number of a processor and of a network interface."""
_RANGE: Final = Struct("<QQ")
_COUNTS: Final = Struct("<II")
_RECORD: Final = Struct("<IBIQIBBIIII")
"""Number of dependencies, type, peer, size, tag, processor, network interface; then the number and
the first index of the operations that wait for the end of this one, and of those for its start."""
_INDEX: Final = Struct("<I")
_KINDS: Final = {1: Kind.SEND, 2: Kind.RECEIVE, 3: Kind.COMPUTE}


def parse_goal_binary(file: BinaryIO, source: str = "GOAL schedule") -> Workload:
    """Read a schedule from a binary ``file``; ``source`` is its name in messages.

    Raises :class:`WorkloadError` for the first error, with its rank.
    """
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise WorkloadError(f"{source}: more than {MAX_BYTES} bytes")
    if data[: len(MAGIC)] == USED:
        raise WorkloadError(f"{source}: a simulation has used it up; write it with txt2bin again")
    if data[: len(MAGIC)] != MAGIC:
        raise WorkloadError(f"{source}: no GOAL schedule in binary form: the magic number is wrong")
    view = memoryview(data)[len(MAGIC) :]
    ranks: list[list[Operation]] = []
    total = 0
    for rank, part in enumerate(_parts(view, source)):
        ranks.append(_Rank(part, f"{source}, rank {rank}").operations(total))
        total += len(ranks[-1])
    return Workload("GOAL", [source], ranks)


def _parts(view: memoryview, source: str) -> Iterator[memoryview]:
    """Yield the bytes of each rank."""
    if len(view) < _HEADER.size:
        raise WorkloadError(f"{source}: the file ends in its header")
    count, _, _ = _HEADER.unpack_from(view)
    if not 0 < count <= MAX_RANKS:
        raise WorkloadError(f"{source}: {count} ranks; 1 to {MAX_RANKS} are supported")
    if len(view) < _HEADER.size + count * _RANGE.size:
        raise WorkloadError(f"{source}: the file ends in the table of {count} ranks")
    for rank in range(count):
        start, end = _RANGE.unpack_from(view, _HEADER.size + rank * _RANGE.size)
        if not start <= end <= len(view):
            raise WorkloadError(
                f"{source}, rank {rank}: bytes {start} to {end} of {len(view)}: the file is cut off"
            )
        yield view[start:end]


class _Rank:
    """The bytes of one rank; ``where`` is its place in messages."""

    def __init__(self, part: memoryview, where: str) -> None:
        self._part = part
        self._where = where
        if len(part) < _COUNTS.size:
            raise WorkloadError(f"{where}: the rank ends before its number of operations")
        self._count, roots = _COUNTS.unpack_from(part)
        self._records = _COUNTS.size + roots * _INDEX.size
        self._list = self._records + self._count * _RECORD.size
        if self._count > MAX_OPERATIONS or self._list > len(part):
            raise WorkloadError(
                f"{where}: {self._count} operations do not fit into {len(part)} bytes"
            )

    def operations(self, total: int) -> list[Operation]:
        """Return the operations; ``total`` are those of earlier ranks."""
        found: list[Operation] = []
        rows = _RECORD.iter_unpack(self._part[self._records : self._list])
        for index, row in enumerate(rows):
            _, kind, peer, size, tag, stream, nic, *_ = row
            where = f"{self._where}, operation {index}"
            if kind not in _KINDS:
                raise WorkloadError(f"{where}: type {kind}; there are 1 to 3")
            one = Operation(_KINDS[kind], size, _signed(peer), _signed(tag), stream, nic)
            if one.kind is Kind.SEND and one.tag == ANY:
                raise WorkloadError(f"{where}: a send needs a tag: -1 is for receives")
            add_operation(found, one, total + index, where)
        self._add_dependencies(found)
        return found

    def _add_dependencies(self, found: list[Operation]) -> None:
        rows = _RECORD.iter_unpack(self._part[self._records : self._list])
        for index, (*_, ends, first_end, starts, first_start) in enumerate(rows):
            for after in self._waiting(index, first_end, ends):
                found[after].require(index)
            for after in self._waiting(index, first_start, starts):
                found[after].require(index, start=True)

    def _waiting(self, index: int, first: int, count: int) -> Iterator[int]:
        """Yield the operations that wait for one."""
        begin = self._list + first * _INDEX.size
        end = begin + count * _INDEX.size
        if count and end > len(self._part):
            raise WorkloadError(f"{self._where}, operation {index}: its list is cut off")
        for (after,) in _INDEX.iter_unpack(self._part[begin:end] if count else b""):
            if after >= self._count:
                raise WorkloadError(
                    f"{self._where}, operation {index}: operation {after} waits for it, but there"
                    f" are {self._count}"
                )
            yield after


def _signed(number: int) -> int:
    """Return a peer or a tag; all ones are any."""
    return ANY if number == ANY_32 else number
