"""Checksums of an edited frame.

Each is changed by what its bytes changed. So one that was right is right again, one that was
wrong is wrong by the same difference, and editing back gives the first bytes. It also works
where the capture kept only part of a frame, as long as it kept the checksum.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import ClassVar

from rdmawire.wire.checksum import internet_checksum
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC, FlowControl
from rdmawire.wire.icrc import VCRC_STEP, vcrc
from rdmawire.wire.inet import TCP, UDP, IPProtocol, IPv4

_BITS = 16
_Step = tuple[int, ...]
"""A linear step of the VCRC's register: what becomes of each of its bits, the lowest first."""


def vcrc_change(change: bytes, behind: int) -> int:
    """What changes in a VCRC where these bytes are xored in, ``behind`` bytes before its end.

    A number as of :func:`~rdmawire.wire.icrc.vcrc`, to be xored with it.
    """
    change = change.lstrip(b"\0")
    plain = vcrc(change) ^ vcrc(bytes(len(change)))
    register = _applied(_zeros(behind), plain >> 8 | (plain & 0xFF) << 8)
    return register >> 8 | (register & 0xFF) << 8


def _applied(step: _Step, register: int) -> int:
    after = 0
    for bit, image in enumerate(step):
        if register >> bit & 1:
            after ^= image
    return after


@lru_cache(maxsize=4096)
def _zeros(count: int) -> _Step:
    """The step of so many bytes of zero."""
    if count == 0:
        return tuple(1 << bit for bit in range(_BITS))
    if count == 1:
        return tuple(_one_zero(1 << bit) for bit in range(_BITS))
    half = _zeros(count // 2)
    both = tuple(_applied(half, image) for image in half)
    return tuple(_applied(_zeros(1), image) for image in both) if count % 2 else both


def _one_zero(register: int) -> int:
    return register >> 8 ^ VCRC_STEP[register & 0xFF]


ComputeICRC = Callable[[bytes | bytearray, int, int], int]
"""The ICRC of a packet in these bytes, given where its BTH stands and where its pad ends.

What the bytes say of that does not count: they may be edited, and are laid out as they were.
"""

Ends = tuple[range, range | None]
"""Offsets of the source and destination address; ``None`` for a destination that is not known."""

NOWHERE = 1 << 62
"""The end of a packet that is not whole."""

_ONES = 0xFFFF
_number = int.from_bytes


class Sealing(Enum):
    """Which checksums are made to fit."""

    CHANGED = "changed"
    """All that were right; what was wrong stays wrong."""
    ALL = "all"
    NONE = "none"


class Seal(ABC):
    """A checksum: it is at byte ``at``, and what it covers ends at ``end``, if that is captured.

    ``end`` is an argument of every method, as frames that are laid out alike differ in length.
    ``table`` is the header whose checksum it is.
    """

    table: type[Header]
    size: ClassVar[int] = 2

    def __init__(self, at: int, end: int) -> None:
        self.at = at
        self.end = end

    @abstractmethod
    def keep(self, old: bytes, new: bytearray, reach: int, end: int) -> bool | None:
        """Change it by what changed; whether it was right, where that is found out.

        No byte from ``reach`` on has changed, but for the checksums behind the packet.
        """

    @abstractmethod
    def renew(self, new: bytearray, end: int) -> None:
        """Make it right, if all that it covers is there."""

    def put(self, new: bytearray, value: int, end: int) -> None:  # noqa: ARG002 - ICRC.put needs it
        """Have it be this number."""
        new[self.at : self.at + self.size] = value.to_bytes(self.size, "big")


def less(data: bytes, at: int, change: int) -> int:
    """The sum at a byte with so much taken from it."""
    return ((data[at] << 8 | data[at + 1]) - change) % _ONES


class HeaderSum(Seal):
    """The checksum of an IPv4 header, from byte ``start`` to ``end``. RFC 791, 3.1."""

    table = IPv4

    def __init__(self, start: int, end: int) -> None:
        super().__init__(start + 10, end)
        self.start = start

    def change(self, old: bytes, new: bytearray) -> int:
        """What is taken from the checksum for what changed in the header."""
        start, end = self.start, self.end
        return (_number(new[start:end], "big") - _number(old[start:end], "big")) % _ONES

    def keep(self, old: bytes, new: bytearray, reach: int, end: int) -> None:  # noqa: ARG002
        if change := self.change(old, new):
            self.put(new, less(old, self.at, change), 0)

    def renew(self, new: bytearray, end: int) -> None:  # noqa: ARG002
        if self.end > len(new):
            return
        self.put(new, 0, 0)
        self.put(new, internet_checksum(bytes(new[self.start : self.end])), 0)


class TransportSum(Seal):
    """A checksum over a pseudo header and all from byte ``start`` on: UDP, TCP, ICMPv6.

    ``ends`` are the offsets of the source and the destination address that the checksum covers,
    ``None`` for a destination that is not known. A part of a packet that IP cut up is not
    ``whole``.
    """

    def __init__(
        self, kind: "SumKind", start: int, end: int, ends: Ends, *, whole: bool = True
    ) -> None:
        super().__init__(start + kind.at, end)
        self.table = kind.table
        self.kind = kind
        self.start = start
        self.whole = whole
        self._addresses = _merged(ends)
        self._ends_known = None not in ends

    def keep(self, old: bytes, new: bytearray, reach: int, end: int) -> None:
        at, start = self.at, self.start
        found = old[at] << 8 | old[at + 1]
        if not found and self.kind.may_be_absent:
            return
        change = 0
        for first, last in self._addresses:
            change += _number(new[first:last], "big") - _number(old[first:last], "big")
        stop = min(reach + (reach - start) % 2, end, len(old))
        change += _difference(old, new, start, stop)
        if stop < end <= len(old):
            behind = end - ICRC.SIZE - (end - start) % 2
            change += _difference(old, new, max(stop, behind), end)
        if change := change % _ONES:
            self._put_sum(new, (found - change) % _ONES)

    def _put_sum(self, new: bytearray, value: int) -> None:
        self.put(new, value or (_ONES if self.kind.may_be_absent else 0), 0)

    def renew(self, new: bytearray, end: int) -> None:
        absent = not any(new[self.at : self.at + 2]) and self.kind.may_be_absent
        if absent or not self.whole or not self._ends_known or end > len(new):
            return
        self.put(new, 0, 0)
        covered = bytes(new[self.start : end])
        addresses = sum(_number(new[first:last], "big") for first, last in self._addresses)
        pseudo = addresses + self.kind.protocol + len(covered)
        self._put_sum(new, internet_checksum(covered, pseudo))


def _merged(ends: Ends) -> list[tuple[int, int]]:
    """Starts and ends of the addresses; adjacent ones are merged."""
    places = [(one.start, one.stop) for one in ends if one is not None]
    if len(places) == 2 and places[0][1] == places[1][0]:
        return [(places[0][0], places[1][1])]
    return places


def _difference(old: bytes, new: bytearray, start: int, end: int) -> int:
    """How much more the new bytes come to than the old ones, as words from ``start`` on."""
    change = _number(new[start:end], "big") - _number(old[start:end], "big")
    return change << 8 if (end - start) % 2 else change


class SumKind(Enum):
    """The checksums over pseudo headers: whose, where in the header, and the protocol's number.

    One that ``may_be_absent`` is zero then, and never zero otherwise (RFC 768).
    """

    UDP = UDP, 6, IPProtocol.UDP, True
    TCP = TCP, 16, IPProtocol.TCP, False
    ICMPV6 = Header, 2, IPProtocol.ICMPV6, False

    def __init__(self, table: type[Header], at: int, protocol: int, may_be_absent: bool) -> None:
        self.table = table
        self.at = at
        self.protocol = protocol
        self.may_be_absent = may_be_absent


class InvariantCRC(Seal):
    """The ICRC; ``end`` is behind it. IBA 7.8.1."""

    table = ICRC
    size = ICRC.SIZE

    def __init__(self, compute: ComputeICRC, bth: int, end: int) -> None:
        super().__init__(end - ICRC.SIZE, end)
        self._compute = compute
        self._bth = bth

    def keep(self, old: bytes, new: bytearray, reach: int, end: int) -> bool | None:  # noqa: ARG002
        if end > len(old):
            return None
        at = end - ICRC.SIZE
        found, before = _number(old[at:end], "big"), self._compute(old, self._bth, at)
        change = before ^ self._compute(new, self._bth, at)
        if change:
            new[at:end] = (found ^ change).to_bytes(ICRC.SIZE, "big")
        return found == before

    def renew(self, new: bytearray, end: int) -> None:
        if end <= len(new):
            self.put(new, self._compute(new, self._bth, end - ICRC.SIZE), end)

    def put(self, new: bytearray, value: int, end: int) -> None:
        if end <= len(new):
            new[end - ICRC.SIZE : end] = value.to_bytes(ICRC.SIZE, "big")


class LinkCRC(Seal):
    """The VCRC of a native packet that begins at ``start``, or an LPCRC; both begin at ``end``.

    IBA 7.8.2, 7.9.4.
    """

    size = VCRC.SIZE

    def __init__(self, table: type[VCRC | FlowControl], start: int, end: int) -> None:
        super().__init__(end, end)
        self.table = table
        self.start = start

    def keep(self, old: bytes, new: bytearray, reach: int, end: int) -> None:
        if end + self.size > len(old):
            return
        start, stop = self.start, min(reach, end)
        change = self._change(old, new, start, stop, end)
        if stop < end:
            change ^= self._change(old, new, max(stop, end - ICRC.SIZE), end, end)
        found = _number(old[end : end + self.size], "big")
        self.put(new, found ^ change, end)

    @staticmethod
    def _change(old: bytes, new: bytearray, start: int, stop: int, end: int) -> int:
        change = _number(old[start:stop], "big") ^ _number(new[start:stop], "big")
        if not change:
            return 0
        return vcrc_change(change.to_bytes(stop - start, "big"), end - stop)

    def renew(self, new: bytearray, end: int) -> None:
        if end + self.size <= len(new):
            self.put(new, vcrc(new, self.start, end), end)

    def put(self, new: bytearray, value: int, end: int) -> None:
        if end + self.size <= len(new):
            new[end : end + self.size] = value.to_bytes(self.size, "big")
