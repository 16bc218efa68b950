"""Transport packets of a block of frames, as arrays, with their address pairs."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import OBJECT, ColumnType, Form
from rdmawire.columns.fast_path import HEADERS
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query
from rdmawire.columns.read import Request, RowUnit
from rdmawire.columns.table import Columns
from rdmawire.dissect.dissection import Dissection
from rdmawire.stats.iwarp import AddressPair, facts
from rdmawire.wire.inet import ECN, UDP
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Part, Service, Shape
from rdmawire.wire.serial import MODULUS
from rdmawire.wire.show import ipv4, ipv6

FACTS = "facts"
"""Column of :class:`~.iwarp.FrameFacts` of dissected frames; absent for fast-path frames."""

_FIELDS = (
    *("frame.time_epoch", "frame.len", "frame.cap_len"),
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.dsfield.ecn", "ipv6.tclass.ecn"),
    *("udp.length", "infiniband.bth.opcode", "infiniband.bth.padcnt"),
    *("infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.reth.dmalen"),
    *("infiniband.aeth.syndrome", "infiniband.deth.srcqp", "infiniband.rdeth.eecnxt"),
)
_MAX_TIME = 1 << 62
"""Times are clamped to this many ns, some 146 years, from the epoch: pcapng may have any."""
_OBJECT_COLUMN = ColumnType(Form.TEXT, OBJECT, lambda value: value)


class StatisticsQuery(Query):
    """A query for the fields that statistics need, and the facts of dissected frames."""

    def __init__(self, further: Iterable[str] = ()) -> None:
        super().__init__([*_FIELDS, *further])
        self._plain = Query(self.names)
        self.names = [*self.names, FACTS]
        self.fields = [
            *self.fields,
            self.fields[0]._replace(name=FACTS, type=_OBJECT_COLUMN, extractors=[]),
        ]

    def also(self, names: Iterable[str]) -> "StatisticsQuery":
        """Return a query with further fields."""
        return StatisticsQuery(names)

    def values(self, frame: Dissection) -> list[Any]:
        _, *others = self._plain.values(frame)
        return [max(-_MAX_TIME, min(frame.time_ns, _MAX_TIME)), *others, facts(frame)]


def blocks(
    path: str | os.PathLike[str], ports: Iterable[int], choice: FrameSelection = EVERY_FRAME
) -> Iterator[Columns]:
    """Yield the columns of a capture in blocks; raises :class:`CaptureError` at damage."""
    return Request(StatisticsQuery(), RowUnit.FRAME, ports, choice).blocks(path)


def _which(holds: Any) -> NDArray[np.bool_]:
    return np.array([bool(code in SHAPES and holds(SHAPES[code])) for code in range(256)])


def _is(operation: Operation) -> Any:
    return lambda shape: shape.opcode & 0x1F == operation and shape.service is not Service.CNP


def _is_full(shape: Shape) -> bool:
    return shape.part in (Part.FIRST, Part.MIDDLE)


IS_UD = _which(lambda shape: shape.service is Service.UD)
IS_RD = _which(lambda shape: shape.service is Service.RD)
IS_CNP = np.arange(256) == Opcode.CNP
IS_REQUEST = _which(lambda shape: not shape.response and shape.service is not Service.UD)
"""Requests whose PSNs must be consecutive; those of UD need not be, IBA 9.8.3."""
IS_RESPONSE = _which(lambda shape: shape.response and shape.service is not Service.CNP)
IS_READ = _which(_is(Operation.RDMA_READ_REQUEST))
IS_FULL = _which(_is_full)
"""First and middle packets: their payload is as long as the path MTU. IBA 9.7.2."""
BEGINS = IS_RESPONSE & ~_which(
    lambda shape: (
        shape.opcode & 0x1F
        in (Operation.RDMA_READ_RESPONSE_MIDDLE, Operation.RDMA_READ_RESPONSE_LAST)
    )
)
"""Responses with the PSN of a request; other responses have PSNs inside a READ."""

OVERHEAD = HEADERS.astype(np.int64)
"""Bytes from the UDP header to the end of the ICRC without the payload, by opcode."""


IntArray = NDArray[np.int64]

_HALF = MODULUS >> 1


def distances(starts: IntArray, ends: IntArray) -> IntArray:
    """Return the signed distances of PSNs modulo 2**24: -2**23 to 2**23 - 1."""
    return (ends - starts + _HALF) % MODULUS - _HALF


_BITS = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Knuth's multiplier: the upper bits of the product depend on all bits of a key."""


class HashIndex:
    """Maps 64-bit keys to numbers, many at once, with a cache.

    ``number`` returns the number of a key. The cache is a table with one entry for each hash,
    which holds the last key with that hash.
    """

    def __init__(self, number: Callable[[int], int]) -> None:
        self._number = number
        self._keys = np.zeros(1 << _BITS, np.uint64)
        self._numbers = np.full(1 << _BITS, -1, np.int64)

    def __call__(self, keys: NDArray[np.uint64]) -> IntArray:
        """Return the numbers of keys."""
        slots = (keys * _GOLDEN) >> np.uint64(64 - _BITS)
        numbers: IntArray = self._numbers[slots]
        missed = np.flatnonzero((self._keys[slots] != keys) | (numbers < 0))
        if len(missed):
            numbers[missed] = self._learn(keys[missed], slots[missed])
        return numbers

    def _learn(self, keys: NDArray[np.uint64], slots: NDArray[Any]) -> IntArray:
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.int64)
        for at in np.argsort(first):
            numbers[at] = self._number(int(distinct[at]))
        self._keys[slots[first]], self._numbers[slots[first]] = distinct, numbers
        found: IntArray = numbers[inverse]
        return found


MAX_PAIRS = 1 << 14
"""Address pairs that are counted separately; all later ones are counted as one."""
OTHER = MAX_PAIRS - 1
"""The number of the pair that counts all others."""


class AddressNumbers:
    """Numbers address pairs in order of appearance."""

    def __init__(self) -> None:
        self.pairs: list[AddressPair] = []
        self._numbers: dict[AddressPair, int] = {}
        self._of_ipv4 = HashIndex(lambda key: self.number(_ipv4_pair(key)))

    def number(self, pair: AddressPair) -> int:
        """Return the number of a pair; a new pair gets the next one."""
        number = self._numbers.get(pair)
        if number is None:
            if len(self.pairs) == OTHER:
                return OTHER
            number = self._numbers[pair] = len(self.pairs)
            self.pairs.append(pair)
        return number

    def reverse(self, number: int) -> int:
        """Return the number of the reverse pair; -1 if there is none."""
        if number == OTHER:
            return -1
        source, destination = self.pairs[number]
        return self._numbers.get(AddressPair(destination, source), -1)

    def of_rows(self, block: Columns, rows: IntArray) -> IntArray:
        """Return the number of the pair of each of these rows."""
        numbers = np.full(len(rows), OTHER, np.int64)
        dissected = block[FACTS].valid[rows]
        here = ~dissected & block["ip.src"].valid[rows]
        if here.any():
            numbers[here] = self._of_ipv4(_ipv4_keys(*_ends(block, "ip", rows[here])))
        here = ~dissected & block["ipv6.src"].valid[rows]
        if here.any():
            numbers[here] = self._of_ipv6(*_ends(block, "ipv6", rows[here]))
        for at in np.flatnonzero(dissected):
            numbers[at] = self.number(block[FACTS].values[rows[at]].pair)
        return numbers

    def _of_ipv6(self, sources: NDArray[Any], destinations: NDArray[Any]) -> IntArray:
        both = np.empty((len(sources), 2), sources.dtype)
        both[:, 0], both[:, 1] = sources, destinations
        distinct, inverse = np.unique(both.view("V32").ravel(), return_inverse=True)
        return np.array([self.number(_ipv6_pair(key.tobytes())) for key in distinct])[inverse]


def _ends(block: Columns, prefix: str, rows: IntArray) -> tuple[NDArray[Any], NDArray[Any]]:
    return block[f"{prefix}.src"].values[rows], block[f"{prefix}.dst"].values[rows]


def _ipv4_keys(sources: NDArray[Any], destinations: NDArray[Any]) -> NDArray[np.uint64]:
    return sources.astype(np.uint64) << np.uint64(32) | destinations.astype(np.uint64)


def _ipv4_pair(key: int) -> AddressPair:
    both = key.to_bytes(8, "big")
    return AddressPair(ipv4(both[:4]), ipv4(both[4:]))


def _ipv6_pair(key: bytes) -> AddressPair:
    return AddressPair(ipv6(key[:16]), ipv6(key[16:]))


EE_CONTEXT = 1 << 24
"""Set in a destination that is an end-to-end context of RD, not a QP."""


@dataclass(frozen=True, slots=True, eq=False)
class Packets:
    """Packets in the order of the capture.

    ``destination`` is the QP that a packet is for, with RD the EE context; ``source`` is the QP
    that sent it, 0 if unknown. ``syndrome`` is -1 without AETH, ``read`` is the
    length in a RETH, in bytes.
    """

    times: IntArray
    bytes: IntArray
    payload: IntArray
    opcode: NDArray[np.uint8]
    psn: IntArray
    pair: IntArray
    destination: IntArray
    source: IntArray
    read: IntArray
    syndrome: NDArray[np.int16]
    marked: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.psn)

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "Packets":
        """Return the packets of these rows."""
        return Packets(*(getattr(self, field.name)[rows] for field in fields(self)))


def packets(block: Columns, addresses: AddressNumbers) -> Packets:
    """Return the packets of a block."""
    rows = np.flatnonzero(block["infiniband.bth.opcode"].valid)
    opcode = block["infiniband.bth.opcode"].values[rows]
    lengths, marked = _carried(block, rows)
    syndrome = _numbers(block, "infiniband.aeth.syndrome", rows)
    syndrome[~block["infiniband.aeth.syndrome"].valid[rows]] = -1
    padcnt = _numbers(block, "infiniband.bth.padcnt", rows)
    return Packets(
        times=_numbers(block, "frame.time_epoch", rows),
        bytes=_numbers(block, "frame.len", rows),
        payload=np.maximum(lengths - OVERHEAD[opcode] - padcnt, 0),
        opcode=opcode,
        psn=_numbers(block, "infiniband.bth.psn", rows),
        pair=addresses.of_rows(block, rows),
        destination=_destinations(block, rows, opcode),
        source=np.where(IS_UD[opcode], _numbers(block, "infiniband.deth.srcqp", rows), 0),
        read=_numbers(block, "infiniband.reth.dmalen", rows),
        syndrome=syndrome.astype(np.int16),
        marked=marked,
    )


def _numbers(block: Columns, name: str, rows: IntArray) -> IntArray:
    """Return values as 64 bits, 0 where a row has none."""
    column = block[name]
    found = column.values[rows].astype(np.int64)
    if not column.valid.all():
        found *= column.valid[rows]
    return found


def _carried(block: Columns, rows: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the bytes from the UDP header to the ICRC, and whether ECN is CE."""
    lengths = _numbers(block, "udp.length", rows)
    marks = [
        _numbers(block, name, rows) == ECN.CE for name in ("ip.dsfield.ecn", "ipv6.tclass.ecn")
    ]
    marked = marks[0] | marks[1]
    facts = block[FACTS]
    for at in np.flatnonzero(facts.valid[rows]):
        fact = facts.values[rows[at]]
        lengths[at], marked[at] = fact.length + UDP.SIZE, fact.ecn == ECN.CE
    return lengths, marked


def _destinations(block: Columns, rows: IntArray, opcode: NDArray[np.uint8]) -> IntArray:
    qp = _numbers(block, "infiniband.bth.destqp", rows)
    if not IS_RD[opcode].any():
        return qp
    contexts = _numbers(block, "infiniband.rdeth.eecnxt", rows)
    return np.where(IS_RD[opcode], contexts | EE_CONTEXT, qp)
