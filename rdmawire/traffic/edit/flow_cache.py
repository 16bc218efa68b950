"""Flows: frames that begin alike are edited alike.

What an edit does up to the PSN is the same for all frames of a flow, so it is worked out once, and
kept as the bits to flip. What follows is read anew in each frame.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, TypeGuard

from isal.isal_zlib import crc32

from rdmawire.decode import By, Checksum, FrameLayout, LengthField, Located, Protocols
from rdmawire.decode.checksum import HeaderSum, InvariantCRC, less
from rdmawire.ib.tx_template import HEAD_OF_BTH
from rdmawire.traffic.edit.rules import Cut, Op, field
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, ICRC, LRH, RWH
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
"""Rows in a head that differ from frame to frame of a flow, and say nothing of the layout."""


_LEADS: Final = (
    *(Ethernet, VLAN, ServiceVLAN, SLL, SLL2, Loopback, LRH, RWH, GRH, IPv4, IPv6, UDP, TCP),
)
"""Headers that may lead to a BTH, and have no more than their first bytes say."""
_PORTS: Final = 4
"""Bytes of the ports that UDP and TCP begin with."""


def head_size(layout: FrameLayout, protocols: Protocols) -> int:
    """How many bytes at the beginning of a frame say how all of it is laid out.

    0 if that is not sure: there is a header of which not all frames of a flow need have the same.
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
    """Whether a packet has the headers that its opcode calls for, and no others."""
    if not isinstance(last, UDP | GRH | LRH) or (By.QP, bth.destqp) in protocols:
        return False
    found = LAYOUTS.get(bth.opcode)
    return found is not None and rest == [*found.headers]


def _head_end(offset: int, header: Header) -> int:
    """The offset up to which a header says how a frame is laid out; 0 before the network's."""
    if isinstance(header, IPv4):
        return offset + header.ihl * 4
    if isinstance(header, IPv6):
        return offset + IPv6.SIZE
    return offset + _PORTS if isinstance(header, UDP | TCP) else 0


def _is_cut_off(last: Header | None, protocols: Protocols) -> bool:
    """Whether the last header is IP's, and what it carries is not there though it is known."""
    if isinstance(last, IPv4):
        return (By.IP, last.protocol) in protocols
    return isinstance(last, IPv6) and (By.IP, last.next_header) in protocols


class Head:
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
        """The bits of a field in the head, taken as one number."""
        return cut.mask << cut.shift << 8 * (self.size - cut.end)

    def shares(self, cut: Cut) -> bool:
        """Whether all these bits are the same in all the frames."""
        return cut.end <= self.size and not self.bits(cut) & ~self.mask


class HeadICRC:
    """Computes the ICRC of frames from the number that their first bytes are.

    Of the ``size`` bytes of the head, the last ``covered`` count. ``low`` are their bits, ``ones``
    those that may change in transit (IBA 7.8.1), and ``start`` is what the CRC begins with.
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
        """The ICRC of a frame with this head, whose pad ends at ``end``.

        A number whose lowest byte is the first one on the wire.
        """
        covered = (head & self._low | self._ones).to_bytes(self._covered, "big")
        crc: int = crc32(data[self._size : end], crc32(covered, self._start))
        return crc


def _covered(headers: Sequence[Located]) -> list[Located]:
    """The headers that the ICRC covers up to the BTH. IBA 7.8.1, A16.3, A17.5."""
    last = next(at for at, each in enumerate(headers) if isinstance(each.header, BTH))
    networks = [at for at in range(last) if isinstance(headers[at].header, IPv4 | IPv6 | GRH)]
    return list(headers[networks[-1] if networks else last - 1 : last + 1])


def _parts(covered: Sequence[Located]) -> Iterator[type[Header] | int]:
    """Their tables, and how many bytes of options stand between them."""
    end = covered[0].offset
    for offset, header in covered:
        if offset > end:
            yield offset - end
        yield type(header)
        end = offset + header.SIZE


_number = int.from_bytes


class FlowSeal:
    """What frames of one head have for checksums, given what becomes of the ``first`` of them.

    ``varying`` are the fields that change otherwise in each frame. ``steady`` checksums of IPv4
    change by the same in all of them, as no such field is in their header.
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
        """Change all by what changed; whether the ICRC was right, ``None`` if it is not there.

        ``before`` and ``after`` are the bytes up to the PSN as numbers, ``end`` is where the
        packet ends. This is done for nearly every frame, so it is one piece.
        """
        was_right, icrc, at = None, self._icrc, end - 4
        if icrc is not None and end <= len(old):
            found, expected = _number(old[at:end], "little"), icrc.of(before, old, at)
            if self._head:  # fields that vary stand in it
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
    """Whether a checksum changes by the same in all the frames."""
    if not isinstance(checksum, HeaderSum):
        return False
    return all(cut.end <= checksum.start or cut.start >= checksum.end for cut in varying)


MAX_FLOWS: Final = 1 << 16
MAX_SHAPES: Final = 16
"""Flows that are kept, and kinds of head; past either, all are found anew."""


class Flow:
    """What is done to frames with one head, of which a ``first`` one is at hand.

    Frames of the flow have ``need`` bytes at least; their packets end where ``end`` reads, at
    ``least`` or later. ``layout`` is that of the first one.
    """

    __slots__ = ("_change", "_ops", "_seal", "_size", "end", "layout", "least", "need", "reach")

    def __init__(self, layout: FrameLayout, head: Head, ops: Sequence[Op], first: bytes) -> None:
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
        """Whether its frames have an ICRC, be it captured or not."""
        return self._seal.has_icrc

    def changed(self, data: bytes, head: int) -> bytearray:
        """A frame of the flow with its fields changed, and its checksums as they were."""
        new = bytearray(data)
        if self._change:
            new[: self._size] = (head ^ self._change).to_bytes(self._size, "big")
        for run in self._ops:
            run(data, new)
        return new

    def seal(self, data: bytes, new: bytearray, head: int, end: int) -> bool | None:
        """Change the checksums by what changed; whether the ICRC was right, if it is there."""
        return self._seal.keep(data, new, head, head ^ self._change, end)


def _after(ops: Sequence[Op], first: bytes) -> bytearray:
    """A frame after these."""
    after = bytearray(first)
    for op in ops:
        op.run(first, after)
    return after


def end_reader(lengths: Sequence[LengthField]) -> Callable[[bytes], int]:
    """What reads where a packet ends; -1 where headers do not agree about it."""
    if len(lengths) == 2 and all((each.mask, each.scale) == (0xFFFF, 1) for each in lengths):
        return _two_ends(*lengths)

    def end(data: bytes) -> int:
        ends = {each.end(data) for each in lengths}
        return ends.pop() if len(ends) == 1 else -1

    return end


def _two_ends(one: LengthField, other: LengthField) -> Callable[[bytes], int]:
    """The same for IP and UDP, as nearly all frames have it."""
    read = Struct(f">{one.offset}xH{other.offset - one.offset - 2}xH").unpack_from
    start, apart = one.start, other.start - one.start

    def end(data: bytes) -> int:
        length, rest = read(data)
        return start + length if length == rest + apart else -1

    return end


class Shape:
    """Flows whose heads are as long as one another, and share the same bits."""

    __slots__ = ("flows", "mask", "size")

    def __init__(self, head: Head) -> None:
        self.size = head.size
        self.mask = head.mask
        self.flows: dict[int, Flow] = {}


class Flows:
    """The flows of one link type that have been met."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._count = 0

    def find(self, data: bytes) -> tuple[Flow, int] | None:
        """The flow of a frame, and its head as a number."""
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
        """Remember the flow of a frame that is laid out like this."""
        head = Head(layout, size)
        key = _number(first[: head.size], "big") & head.mask
        if self._count >= MAX_FLOWS or len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
            self._count = 0
        flows = self._shape(head).flows
        self._count += key not in flows
        flows[key] = Flow(layout, head, ops, first)

    def _shape(self, head: Head) -> Shape:
        for shape in self._shapes:
            if (shape.size, shape.mask) == (head.size, head.mask):
                return shape
        self._shapes.append(Shape(head))
        return self._shapes[-1]
