"""Fast path: frames whose fields are read many at once, as array operations.

A frame takes the fast path if it is not truncated, its headers up to the BTH have fixed offsets
(a :class:`HeaderStack`), and the packet parses to its end. All others are dissected one by one. The
test may be too strict, which costs time; it must never accept a frame that a dissection reads
otherwise.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.pcap import RECORD
from rdmawire.capture.record import LinkType
from rdmawire.capture.record_finder import Offsets
from rdmawire.units import SECOND
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.opcode import Payload, Service
from rdmawire.wire.packet import LAYOUTS

Matrix = NDArray[np.uint8]
"""First bytes of frames, a row for each frame, after the ``LEAD`` bytes before it."""

LEAD = RECORD
"""Bytes of the record header before each frame: a word may begin in them."""
_SIZES = (1, 2, 4, 8)


class Bits(NamedTuple):
    """A bit field: in the word of ``size`` bytes at byte ``start``, after a shift and a mask."""

    start: int
    size: int
    shift: int
    mask: int

    @property
    def end(self) -> int:
        """The offset of the byte after the word."""
        return self.start + self.size

    def read(self, frames: Matrix, base: int = 0) -> NDArray[Any]:
        """Return the value in each frame, for a header at byte ``base``."""
        width = frames.shape[1]
        offset = LEAD + base + self.start
        words = np.ndarray(
            (len(frames),), f">u{self.size}", frames, offset=offset, strides=(width,)
        )
        if self.shift:
            words = words >> self.shift
        return words if self.mask == (1 << 8 * self.size) - 1 else words & self.mask


def bits(first: int, width: int) -> Bits:
    """Return the location of ``width`` bits, at most 64, from bit ``first`` of a header."""
    start, end = first // 8, (first + width + 7) // 8
    size = next(size for size in _SIZES if size >= end - start)
    return Bits(end - size, size, end * 8 - first - width, (1 << width) - 1)


def bytes_at(frames: Matrix, start: int, length: int) -> NDArray[np.void]:
    """Return ``length`` bytes of each frame from byte ``start``, as void values."""
    offset = LEAD + start
    return np.ndarray(
        (len(frames),), f"V{length}", frames, offset=offset, strides=(frames.shape[1],)
    )


_FIXED: dict[type[Header], dict[str, int]] = {
    IPv4: {"version": 4, "ihl": 5, "mf": 0, "fragment_offset": 0, "protocol": IPProtocol.UDP},
    IPv6: {"version": 6, "next_header": IPProtocol.UDP},
}
"""Values of header fields with which a UDP header follows immediately."""

_ETHERTYPES: dict[type[Header], int] = {
    VLAN: EtherType.VLAN,
    IPv4: EtherType.IPV4,
    IPv6: EtherType.IPV6,
}
_LENGTHS: dict[type[Header], tuple[str, int]] = {
    IPv4: ("total_length", IPv4.SIZE),
    IPv6: ("payload_length", 0),
}
"""The length field of a header, and how many bytes of the header itself it includes."""


class _MaskedWord(NamedTuple):
    """Required bits in eight bytes of a frame, from byte ``start``."""

    start: int
    mask: int
    value: int


def row_bits(table: type[Header], name: str) -> Bits:
    """Return the location of a row of at most 64 bits in its header."""
    row = next(row for row in table.rows if row.name == name)
    return bits(row.bit, row.width)


UDP_LENGTH = row_bits(UDP, "length")
_UDP_PORT = row_bits(UDP, "dstport")


class HeaderStack:
    """A stack of headers before a BTH, outermost first, in frames of one link type.

    ``bases`` are the offsets of the headers in a frame, ``bth`` is that of the BTH, in bytes.
    """

    def __init__(self, link_type: int, *tables: type[Header]) -> None:
        self.link_type = link_type
        self.bases = dict(zip(tables, _bases(tables), strict=True))
        self.bth = self.bases[UDP] + UDP.SIZE
        self._words = list(_words(list(_required_values(self.bases))))
        self.network = tables[-2]
        self.network_base = self.bases[self.network]
        name, self._own = _LENGTHS[self.network]
        self._announced = row_bits(self.network, name)

    @property
    def width(self) -> int:
        """Bytes of a frame up to the end of the BTH."""
        return self.bth + BTH.SIZE

    def holds(self, frames: Matrix, ports: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """Return which frames have the headers of this path; ``ports`` are UDP ports of RoCEv2."""
        udp = self.bases[UDP]
        port, length = _UDP_PORT.read(frames, udp), UDP_LENGTH.read(frames, udp)
        found: NDArray[np.bool_] = port == ports[0] if len(ports) == 1 else np.isin(port, ports)
        for start, mask, value in self._words:
            found &= _words_at(frames, start) & np.uint64(mask) == np.uint64(value)
        announced = self._announced.read(frames, self.network_base)
        found &= announced == length.astype(np.int32) + self._own
        return found


def _bases(tables: tuple[type[Header], ...]) -> Iterator[int]:
    base = 0
    for table in tables:
        yield base
        base += table.SIZE


def _required_values(bases: dict[type[Header], int]) -> Iterator[tuple[int, int, int]]:
    """Yield the required values: first bit, width in bits, value."""
    tables = list(bases)
    for table, following in pairwise(tables):
        wanted = _FIXED.get(table, {"type": _ETHERTYPES.get(following, 0)})
        for row in table.rows:
            if row.name in wanted:
                yield bases[table] * 8 + row.bit, row.width, wanted[row.name]


def _words(required: list[tuple[int, int, int]]) -> Iterator[_MaskedWord]:
    """Combine required values into few eight-byte words."""
    while required:
        start = required[0][0] // 8
        inside = [d for d in required if d[0] + d[1] <= (start + 8) * 8]
        required = required[len(inside) :]
        mask = value = 0
        for first, width, wanted in inside:
            shift = (start + 8) * 8 - first - width
            mask |= ((1 << width) - 1) << shift
            value |= wanted << shift
        yield _MaskedWord(start, mask, value)


def _words_at(frames: Matrix, start: int) -> NDArray[np.uint64]:
    return np.ndarray(
        (len(frames),), ">u8", frames, offset=LEAD + start, strides=(frames.shape[1],)
    )


PATHS = (
    HeaderStack(LinkType.ETHERNET, Ethernet, IPv4, UDP),
    HeaderStack(LinkType.ETHERNET, Ethernet, IPv6, UDP),
    HeaderStack(LinkType.ETHERNET, Ethernet, VLAN, IPv4, UDP),
    HeaderStack(LinkType.ETHERNET, Ethernet, VLAN, IPv6, UDP),
)
"""Paths, the most frequent one first: most captures have frames on one path only."""

LINK_TYPES = {path.link_type for path in PATHS}


_OPCODE, PADCNT, _DESTQP = (row_bits(BTH, name) for name in ("opcode", "padcnt", "destqp"))
_NEVER = 1 << 20
"""More bytes than any datagram has: for opcodes that never take the fast path."""

HEADERS = np.full(256, _NEVER, np.int32)
"""Bytes from the UDP header to the end of the ICRC without the payload, by opcode."""
_EXACTLY = np.full(256, -1, np.int32)
"""Bytes of payload that an opcode must have; -1 for any number."""
_DATAGRAMS = np.zeros(256, np.bool_)
"""Whether an opcode is an unreliable datagram, which may be a management datagram."""

_PAYLOADS = {Payload.NONE: 0, Payload.EIGHT: 8, Payload.ANY: -1}

for _opcode, _layout in LAYOUTS.items():
    if _layout.shape is not None:
        HEADERS[_opcode] = UDP.SIZE + BTH.SIZE + _layout.size + ICRC.SIZE
        _EXACTLY[_opcode] = _PAYLOADS[_layout.shape.payload]
        _DATAGRAMS[_opcode] = _layout.shape.service is Service.UD


def header_offsets(table: type[Header]) -> NDArray[np.int16]:
    """Return the offset of a header from the start of the BTH, by opcode; -1 if it has none."""
    found = np.full(256, -1, np.int16)
    for opcode, layout in LAYOUTS.items():
        at = BTH.SIZE
        for header in layout.headers:
            if header is table:
                found[opcode] = at
            at += header.SIZE
    return found


class FastPackets(NamedTuple):
    """Transport packets: their opcodes, and their UDP lengths in bytes."""

    opcodes: NDArray[np.uint8]
    lengths: NDArray[np.int32]

    @property
    def present(self) -> NDArray[np.int64]:
        """The opcodes of the packets, each once."""
        return np.flatnonzero(np.bincount(self.opcodes, minlength=256))


def packets(frames: Matrix, path: HeaderStack) -> FastPackets:
    """Return the packets of all frames; they may be malformed."""
    lengths = UDP_LENGTH.read(frames, path.bases[UDP]).astype(np.int32)
    return FastPackets(_OPCODE.read(frames, path.bth), lengths)


def are_consistent(
    frames: Matrix, path: HeaderStack, found: FastPackets, captured: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return which packets parse to their end and are not management datagrams."""
    opcodes, lengths = found
    payload = lengths - HEADERS[opcodes]
    padcnt = PADCNT.read(frames, path.bth)
    exactly = _EXACTLY[opcodes]
    sense: NDArray[np.bool_] = np.where(
        exactly < 0,
        (payload >= padcnt) & (payload & 3 == 0),
        (payload == exactly) & (padcnt == 0),
    )
    sense &= path.bases[UDP] + lengths <= captured
    managed = _DATAGRAMS[opcodes]
    if managed.any():
        sense &= ~(managed & (_DESTQP.read(frames, path.bth) <= MANAGEMENT_QPS[-1]))
    return sense


Ports = NDArray[np.uint16]
Chosen = NDArray[np.int64] | slice
"""Row numbers of a block."""


class Records:
    """Records of a file: the offsets of their headers, and the byte order of the headers.

    The headers are read at their first use. ``own_times`` are in ns since the epoch, if the
    headers do not have the times.
    """

    __slots__ = ("_heads", "data", "offsets", "order", "own_times")

    def __init__(
        self,
        data: memoryview,
        offsets: Offsets,
        order: str,
        *,
        heads: NDArray[Any] | None = None,
        times: NDArray[np.int64] | None = None,
    ) -> None:
        self.data = data
        self.offsets = offsets
        self.order = order
        self.own_times = times
        self._heads = heads

    def first_bytes(self, width: int) -> Matrix:
        """Return ``width`` bytes from the start of each record header: ``(records, width)``."""
        return self.block(0, width)

    def block(self, start: int, width: int) -> Matrix:
        """Return ``width`` bytes of each record, ``start`` bytes after the start of its header."""
        every = self._everywhere(f"V{width}")
        copies = every[self.offsets + start] if start else every[self.offsets]
        return copies.view(np.uint8).reshape(len(self.offsets), width)

    def numbers(self, offset: NDArray[np.int64], dtype: str) -> NDArray[Any]:
        """Return a number of each record, ``offset`` bytes after the start of its header.

        ``offset`` and the result have the shape ``(records,)``.
        """
        found: NDArray[Any] = self._everywhere(dtype)[self.offsets + offset]
        return found

    def _everywhere(self, dtype: str) -> NDArray[Any]:
        """View the file as overlapping values of this dtype, one at each byte."""
        rows = max(len(self.data) - np.dtype(dtype).itemsize + 1, 0)
        return np.ndarray((rows,), dtype, self.data, strides=(1,))

    @property
    def heads(self) -> NDArray[Any]:
        """The record headers: ``seconds``, ``fraction``, ``captured`` and ``length``."""
        if self._heads is None:
            names = ("seconds", "fraction", "captured", "length")
            dtype = np.dtype([(name, f"{self.order}u4") for name in names])
            self._heads = self._everywhere(f"V{dtype.itemsize}")[self.offsets].view(dtype)
        return self._heads

    def times(self, resolution: int) -> NDArray[np.int64]:
        """Return the capture times, in ns since the epoch, of records in ``1 / resolution`` s."""
        if self.own_times is not None:
            return self.own_times
        seconds = self.heads["seconds"].astype(np.int64)
        fractions = self.heads["fraction"].astype(np.int64)
        return seconds * SECOND + fractions * (SECOND // resolution)

    def time_ns(self, row: int, resolution: int) -> int:
        """Return the capture time of one record, as :meth:`times` does."""
        return int(self.at(slice(row, row + 1)).times(resolution)[0])

    def copied(self) -> "Records":
        """Return consecutive records in memory of their own."""
        first = int(self.offsets[0])
        end = int(self.offsets[-1]) + RECORD + int(self.heads["captured"][-1])
        data = memoryview(bytes(self.data[first:end]))
        return Records(data, self.offsets - first, self.order, times=self.own_times)

    def at(self, chosen: Chosen) -> "Records":
        """Return the records of these rows."""
        heads = None if self._heads is None else self._heads[chosen]
        times = None if self.own_times is None else self.own_times[chosen]
        return Records(self.data, self.offsets[chosen], self.order, heads=heads, times=times)


class FastFrames(NamedTuple):
    """Frames on one path: their first bytes, and their transport packets."""

    records: Records
    frames: Matrix
    path: HeaderStack
    packets: FastPackets

    @property
    def icrc(self) -> NDArray[np.int64]:
        """Bytes from the start of the record header to the ICRC, for each frame."""
        return self.packets.lengths + np.int64(LEAD + self.path.bases[UDP] - ICRC.SIZE)

    def at(self, rows: NDArray[np.int64]) -> "FastFrames":
        """Return the frames of these rows, which are in order and different."""
        if len(rows) == len(self.frames):
            return self
        packets = FastPackets(self.packets.opcodes[rows], self.packets.lengths[rows])
        return FastFrames(self.records.at(rows), self.frames[rows], self.path, packets)


class FastFilter:
    """Finds the frames among records that take the fast path.

    ``widths`` is for each path the number of bytes to read of each record, including its header.
    """

    def __init__(self, widths: dict[HeaderStack, int], ports: Ports) -> None:
        self._widths = widths
        self._ports = ports

    def fast_frames(self, records: Records) -> Iterator[tuple[Chosen, FastFrames]]:
        """Yield the frames on each path, with their row numbers among the records."""
        rows = np.arange(len(records.offsets))
        for path, width in self._widths.items():
            last = np.searchsorted(records.offsets[rows], len(records.data) - width, "right")
            near = rows[:last]
            if not len(near):
                continue
            every = len(near) == len(records.offsets)
            which, found = self._on(path, records if every else records.at(near), width)
            if len(which) == len(records.offsets):
                yield slice(None), found
                return
            if len(which):
                yield near[which], found
            rows = np.delete(rows, which)

    def _on(
        self, path: HeaderStack, records: Records, width: int
    ) -> tuple[NDArray[np.int64], FastFrames]:
        """Return the row numbers of the frames on a path, and the frames."""
        frames = records.first_bytes(width)
        own = packets(frames, path)
        heads = records.heads
        mask = path.holds(frames, self._ports)
        mask &= heads["captured"] == heads["length"]
        mask &= are_consistent(frames, path, own, heads["captured"])
        which = np.flatnonzero(mask)
        if len(which) < len(mask):
            records, frames = records.at(which), frames[which]
            own = FastPackets(own.opcodes[which], own.lengths[which])
        return which, FastFrames(records, frames, path, own)
