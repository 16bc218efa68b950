"""Cache of flows: frames with the same first bytes are edited in the same way.

The edit of the bytes up to the PSN is the same for all frames of a flow, so it is computed once and
kept as the bits to flip. The following bytes are read in each frame.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, TypeGuard

from isal.isal_zlib import crc32

from rdmawire.decode import By, Checksum, FrameLayout, LengthField, Located, Protocols
from rdmawire.decode.checksum import HeaderSum, InvariantCRC, less
from rdmawire.traffic.edit.rules import Cut, Op, field
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, HEAD_OF_BTH, ICRC, LRH, RWH
from rdmawire.wire.icrc import ONES_FOR_LRH, mask
from rdmawire.wire.inet import (
    SLL,
    SLL2,
    TCP,
    UDP,
    VLAN,
    Ethernet,
    IPv4,
    IPv6,
    Loopback,
    ServiceVLAN,
)
from rdmawire.wire.packet import LAYOUTS

VARIES: Final[dict[type[Header], tuple[str, ...]]] = {
    LRH: ("pktlen",),
    GRH: ("paylen",),
    IPv4: ("total_length", "identification", "checksum"),
    IPv6: ("payload_length",),
    UDP: ("length", "checksum"),
}
"""Rows that differ between frames of a flow, and do not affect the layout."""


_LEADS: Final = (
    *(Ethernet, VLAN, ServiceVLAN, SLL, SLL2, Loopback, LRH, RWH, GRH, IPv4, IPv6, UDP, TCP),
)
"""Headers that may precede a BTH, with a layout given by their first bytes."""
_PORTS: Final = 4
"""Bytes of the ports at the start of UDP and TCP."""


def head_size(layout: FrameLayout, protocols: Protocols) -> int:
    """Return how many bytes at the start of a frame determine its layout.

    0 if that is not certain: a header may differ between frames of a flow.
    """
    if layout.malformed_at is not None:
        return 0
    size = 0
    last: Header | None = None
    for number, (offset, header) in enumerate(layout.headers):
        if isinstance(header, BTH):
            rest = [type(each.header) for each in layout.headers[number + 1 :]]
            return offset + HEAD_OF_BTH if _is_plain(last, header, rest, protocols) else 0
        is_inside_ip = isinstance(last, IPv4 | IPv6)
        if not isinstance(header, _LEADS) or (isinstance(header, UDP | TCP) and not is_inside_ip):
            return 0
        size = _head_end(offset, header) or size
        last = header
    return 0 if _is_cut_off(last, protocols) else size


def _is_plain(
    last: Header | None, bth: BTH, rest: list[type[Header]], protocols: Protocols
) -> bool:
    """Whether a packet has exactly the headers of its opcode."""
    if not isinstance(last, UDP | GRH | LRH) or (By.QP, bth.destqp) in protocols:
        return False
    found = LAYOUTS.get(bth.opcode)
    return found is not None and rest == [*found.headers]


def _head_end(offset: int, header: Header) -> int:
    """Return the end offset of the bytes that determine the layout; 0 before the network header."""
    if isinstance(header, IPv4):
        return offset + header.ihl * 4
    if isinstance(header, IPv6):
        return offset + IPv6.SIZE
    return offset + _PORTS if isinstance(header, UDP | TCP) else 0


def _is_cut_off(last: Header | None, protocols: Protocols) -> bool:
    """Whether the last header is IP's and its known payload was not captured."""
    if isinstance(last, IPv4):
        return (By.IP, last.protocol) in protocols
    return isinstance(last, IPv6) and (By.IP, last.next_header) in protocols


class FrameHead:
    """The first ``size`` bytes of the frames of one layout; ``mask`` has the bits they share."""

    __slots__ = ("mask", "size")

    def __init__(self, layout: FrameLayout, size: int) -> None:
        self.size = size
        self.mask = (1 << 8 * self.size) - 1
        for offset, header in layout.headers:
            cuts = (field(type(header), row).at(offset) for row in VARIES.get(type(header), ()))
            for cut in cuts:
                if cut.end <= self.size:
                    self.mask &= ~self.bits(cut)

    def bits(self, cut: Cut) -> int:
        """Return the bits of a field in the head, as a mask of the head's number."""
        return cut.mask << cut.shift << 8 * (self.size - cut.end)

    def shares(self, cut: Cut) -> bool:
        """Whether all bits of a field are the same in all frames."""
        return cut.end <= self.size and not self.bits(cut) & ~self.mask


class HeadICRC:
    """Computes the ICRC of frames from their first bytes as a number.

    The ICRC covers the last ``covered`` of the head's ``size`` bytes. ``low`` masks their bits,
    ``ones`` those that may change in transit (IBA 7.8.1), and ``start`` is the CRC's initial value.
    """

    __slots__ = ("_covered", "_low", "_ones", "_size", "_start")

    def __init__(self, layout: FrameLayout, size: int) -> None:
        covered = _covered(layout.headers)
        first = covered[0]
        self._size = size
        self._covered = size - first.offset
        self._low = (1 << 8 * self._covered) - 1
        self._ones = int.from_bytes(mask(*_parts(covered))[: self._covered], "big")
        self._start = 0 if isinstance(first.header, LRH) else ONES_FOR_LRH

    def of(self, head: int, data: bytes | bytearray, end: int) -> int:
        """Return the ICRC of a frame with this head, whose pad ends at ``end``.

        The lowest byte of the number is the first one on the wire.
        """
        covered = (head & self._low | self._ones).to_bytes(self._covered, "big")
        crc: int = crc32(data[self._size : end], crc32(covered, self._start))
        return crc


def _covered(headers: Sequence[Located]) -> list[Located]:
    """Return the headers that the ICRC covers up to the BTH. IBA 7.8.1, A16.3, A17.5."""
    last = next(at for at, each in enumerate(headers) if isinstance(each.header, BTH))
    networks = [at for at in range(last) if isinstance(headers[at].header, IPv4 | IPv6 | GRH)]
    return list(headers[networks[-1] if networks else last - 1 : last + 1])


def _parts(covered: Sequence[Located]) -> Iterator[type[Header] | int]:
    """Yield the header classes, and the bytes of options between them."""
    end = covered[0].offset
    for offset, header in covered:
        if offset > end:
            yield offset - end
        yield type(header)
        end = offset + header.SIZE


_number = int.from_bytes


class FlowSeal:
    """Checksum updates of frames with one head, derived from the ``first`` frame's edit.

    ``varying`` fields change differently in each frame. ``steady`` IPv4 checksums change by the
    same amount in all frames, as their header has no such field.
    """

    __slots__ = ("_head", "_icrc", "_others", "_reach", "_steady", "has_icrc")

    def __init__(
        self,
        layout: FrameLayout,
        size: int,
        first: bytes,
        after: bytearray,
        *,
        varying: Sequence[Cut],
        reach: int,
    ) -> None:
        checksums = layout.checksums
        steady = [each for each in checksums if _is_steady(each, varying)]
        changes = ((each.at, each.change(first, after)) for each in steady)
        self._steady = [(at, change) for at, change in changes if change]
        done = (*steady, *(each for each in checksums if isinstance(each, InvariantCRC)))
        self._others = [each for each in checksums if each not in done]
        self.has_icrc = len(done) > len(steady)
        self._icrc = HeadICRC(layout, size) if self.has_icrc else None
        self._head = 0 if all(cut.start >= size for cut in varying) else size
        self._reach = reach

    def keep(self, old: bytes, new: bytearray, before: int, after: int, end: int) -> bool | None:
        """Update all checksums; return whether the ICRC was correct, ``None`` without one.

        ``before`` and ``after`` are the bytes up to the PSN as numbers, ``end`` is the end offset
        of the packet. One function for speed, as nearly every frame needs it.
        """
        was_right, icrc, at = None, self._icrc, end - 4
        if icrc is not None and end <= len(old):
            found, expected = _number(old[at:end], "little"), icrc.of(before, old, at)
            if self._head:  # it contains fields that vary
                after = _number(new[: self._head], "big")
            now = icrc.of(after, new, at)
            if now != expected:
                new[at:end] = (found ^ expected ^ now).to_bytes(4, "little")
            was_right = found == expected
        for at, change in self._steady:
            new[at : at + 2] = less(old, at, change).to_bytes(2, "big")
        for each in self._others:
            each.adjust(old, new, self._reach, end)
        return was_right


def _is_steady(checksum: Checksum, varying: Sequence[Cut]) -> TypeGuard[HeaderSum]:
    """Whether a checksum changes by the same amount in all frames."""
    if not isinstance(checksum, HeaderSum):
        return False
    return all(cut.end <= checksum.start or cut.start >= checksum.end for cut in varying)


MAX_FLOWS: Final = 1 << 16
MAX_SHAPES: Final = 16
"""Maximum number of cached flows, and of head shapes; beyond either, the cache is cleared."""


class FlowEdit:
    """The edit of frames with one head, derived from a ``first`` frame.

    Frames of the flow have at least ``need`` bytes; their packets end at the offset that ``end``
    reads, at least ``least``. ``layout`` is that of the first frame.
    """

    __slots__ = ("_change", "_ops", "_seal", "_size", "end", "layout", "least", "need", "reach")

    def __init__(
        self, layout: FrameLayout, head: FrameHead, ops: Sequence[Op], first: bytes
    ) -> None:
        shared = [op for op in ops if head.shares(op.cut)]
        varying = [op for op in ops if not head.shares(op.cut)]
        after = _after(shared, first)
        self.layout = layout
        self.end = end_reader(layout.lengths)
        self.reach = max((op.cut.end for op in ops), default=0)
        cuts = [op.cut for op in varying]
        self._seal = FlowSeal(layout, head.size, first, after, varying=cuts, reach=self.reach)
        self._size = head.size
        self._change = _number(first[: head.size], "big") ^ _number(after[: head.size], "big")
        self._ops = [op.run for op in varying]
        self.need = max(head.size, *(each.offset + each.header.SIZE for each in layout.headers))
        self.least = self.need + ICRC.SIZE * self.has_icrc

    @property
    def has_icrc(self) -> bool:
        """Whether its frames have an ICRC, captured or not."""
        return self._seal.has_icrc

    def changed(self, data: bytes, head: int) -> bytearray:
        """Return a frame of the flow with its fields edited, and its old checksums."""
        new = bytearray(data)
        if self._change:
            new[: self._size] = (head ^ self._change).to_bytes(self._size, "big")
        for run in self._ops:
            run(data, new)
        return new

    def seal(self, data: bytes, new: bytearray, head: int, end: int) -> bool | None:
        """Update the checksums; return whether the ICRC was correct, ``None`` without one."""
        return self._seal.keep(data, new, head, head ^ self._change, end)


def _after(ops: Sequence[Op], first: bytes) -> bytearray:
    """Return a frame after these operations."""
    after = bytearray(first)
    for op in ops:
        op.run(first, after)
    return after


def end_reader(lengths: Sequence[LengthField]) -> Callable[[bytes], int]:
    """Return a function that reads a packet's end offset; -1 if headers contradict each other."""
    if len(lengths) == 2 and all((each.mask, each.scale) == (0xFFFF, 1) for each in lengths):
        return _two_ends(*lengths)

    def end(data: bytes) -> int:
        ends = {each.end(data) for each in lengths}
        return ends.pop() if len(ends) == 1 else -1

    return end


def _two_ends(one: LengthField, other: LengthField) -> Callable[[bytes], int]:
    """The same for IP and UDP, the most frequent case."""
    read = Struct(f">{one.offset}xH{other.offset - one.offset - 2}xH").unpack_from
    start, apart = one.start, other.start - one.start

    def end(data: bytes) -> int:
        length, rest = read(data)
        return start + length if length == rest + apart else -1

    return end


class HeadGroup:
    """Flows whose heads have the same length and share the same bits."""

    __slots__ = ("flows", "mask", "size")

    def __init__(self, head: FrameHead) -> None:
        self.size = head.size
        self.mask = head.mask
        self.flows: dict[int, FlowEdit] = {}


class FlowCache:
    """The known flows of one link type."""

    def __init__(self) -> None:
        self._shapes: list[HeadGroup] = []
        self._count = 0

    def find(self, data: bytes) -> tuple[FlowEdit, int] | None:
        """Return the flow of a frame, and its head as a number."""
        for shape in self._shapes:
            size = shape.size
            head = _number(data[:size], "big")
            flow = shape.flows.get(head & shape.mask)
            if flow is not None and len(data) >= flow.need:
                if shape is not self._shapes[0]:
                    self._shapes.remove(shape)
                    self._shapes.insert(0, shape)
                return flow, head
        return None

    def add(self, layout: FrameLayout, size: int, ops: Sequence[Op], first: bytes) -> None:
        """Cache the flow of a frame with this layout."""
        head = FrameHead(layout, size)
        key = _number(first[: head.size], "big") & head.mask
        if self._count >= MAX_FLOWS or len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
            self._count = 0
        flows = self._shape(head).flows
        self._count += key not in flows
        flows[key] = FlowEdit(layout, head, ops, first)

    def _shape(self, head: FrameHead) -> HeadGroup:
        for shape in self._shapes:
            if (shape.size, shape.mask) == (head.size, head.mask):
                return shape
        self._shapes.append(HeadGroup(head))
        return self._shapes[-1]
