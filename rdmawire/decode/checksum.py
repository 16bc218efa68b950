"""The checksums of a frame: what each covers, where it is stored, and how it follows an edit.

Every checksum here is linear, in ones' complement or in bits, so it can be changed by what changed
in the bytes that it covers. One that was right is right again, one that was wrong is wrong by the
same difference, and editing back gives the first bytes. It also works where the capture kept only
part of a frame, as long as it kept the checksum.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, NamedTuple

from rdmawire.wire.checksum import internet_checksum
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC, FlowControl
from rdmawire.wire.icrc import VCRC_STEP, vcrc
from rdmawire.wire.inet import TCP, UDP, IPProtocol, IPv4

NOWHERE = 1 << 62
"""The end of a packet that is not complete."""

_ONES = 0xFFFF
_number = int.from_bytes


class Addresses(NamedTuple):
    """Offsets of the addresses that a pseudo header covers, each of ``size`` bytes.

    ``known`` is false if a routing header leaves the final destination unknown.
    """

    source: int
    destination: int
    size: int
    known: bool = True

    def read(self, data: bytes) -> tuple[bytes, bytes]:
        """Source and destination."""
        source, destination, size, _ = self
        return data[source : source + size], data[destination : destination + size]

    def total(self, data: bytes | bytearray) -> int:
        """Their part of the sum over a pseudo header; the source's alone if only it is known."""
        source, destination, size, known = self
        if destination == source + size and known:
            return _number(data[source : destination + size], "big")
        total = _number(data[source : source + size], "big")
        return total + _number(data[destination : destination + size], "big") if known else total


class Checksum(ABC):
    """A checksum at offset ``at``; the bytes that it covers end at ``end`` if it was captured.

    ``end`` is also an argument of every method, as frames that are laid out alike differ in length.
    ``table`` is the header that holds the checksum.
    """

    __slots__ = ("at", "end")
    table: type[Header]
    size: ClassVar[int] = 2

    at: int
    end: int

    @abstractmethod
    def adjust(self, old: bytes, new: bytearray, reach: int, end: int) -> bool | None:
        """Change the checksum by what changed; return whether it was right, if that is found out.

        No byte from ``reach`` on has changed, but for the checksums after the packet.
        """

    @abstractmethod
    def recompute(self, new: bytearray, end: int) -> None:
        """Make the checksum right, if all that it covers is there."""

    def put(self, new: bytearray, value: int, end: int) -> None:  # noqa: ARG002 - others need it
        """Store a value."""
        new[self.at : self.at + self.size] = value.to_bytes(self.size, "big")


def less(data: bytes, at: int, change: int) -> int:
    """The Internet checksum at an offset, less ``change``."""
    return ((data[at] << 8 | data[at + 1]) - change) % _ONES


class HeaderSum(Checksum):
    """The checksum of an IPv4 header from ``start`` to ``end``. RFC 791, 3.1."""

    __slots__ = ("start",)
    table = IPv4

    def __init__(self, start: int, end: int) -> None:
        self.at = start + 10
        self.start = start
        self.end = end

    def change(self, old: bytes, new: bytearray) -> int:
        """What is taken from the checksum for what changed in the header."""
        start, end = self.start, self.end
        return (_number(new[start:end], "big") - _number(old[start:end], "big")) % _ONES

    def adjust(self, old: bytes, new: bytearray, reach: int, end: int) -> None:  # noqa: ARG002
        if change := self.change(old, new):
            self.put(new, less(old, self.at, change), 0)

    def recompute(self, new: bytearray, end: int) -> None:  # noqa: ARG002
        if self.end <= len(new):
            self.put(new, 0, 0)
            self.put(new, internet_checksum(bytes(new[self.start : self.end])), 0)


class PseudoSum(NamedTuple):
    """A checksum with a pseudo header: in which header, at which offset, and its protocol.

    One that ``may_be_absent`` is zero then, and never zero otherwise (RFC 768).
    """

    table: type[Header]
    at: int
    protocol: int
    may_be_absent: bool = False


UDP_SUM = PseudoSum(UDP, 6, IPProtocol.UDP, may_be_absent=True)
TCP_SUM = PseudoSum(TCP, 16, IPProtocol.TCP)
ICMPV6_SUM = PseudoSum(Header, 2, IPProtocol.ICMPV6)


class TransportSum(Checksum):
    """A checksum over a pseudo header and all bytes from ``start`` on: UDP, TCP, ICMPv6.

    ``addresses`` are those of the pseudo header, ``None`` without an IP header. The checksum of a
    packet that IP has fragmented is not ``whole``.
    """

    __slots__ = ("_addresses", "kind", "start", "whole")

    def __init__(
        self, kind: PseudoSum, start: int, end: int, addresses: Addresses | None, whole: bool
    ) -> None:
        self.kind = kind
        self.start = start
        self.end = end
        self.whole = whole
        self._addresses = addresses
        self.at = start + kind.at

    @property
    def table(self) -> type[Header]:  # type: ignore[override]
        """The header that holds the checksum."""
        return self.kind.table

    @property
    def verifiable(self) -> bool:
        """Whether all that it covers is known: the packet, and the addresses."""
        addresses = self._addresses
        return self.whole and self.end != NOWHERE and addresses is not None and addresses.known

    def adjust(self, old: bytes, new: bytearray, reach: int, end: int) -> None:
        at, start, addresses = self.at, self.start, self._addresses
        found = old[at] << 8 | old[at + 1]
        if not found and self.kind.may_be_absent:
            return
        change = 0 if addresses is None else addresses.total(new) - addresses.total(old)
        stop = min(reach + (reach - start) % 2, end, len(old))
        change += _difference(old, new, start, stop)
        if stop < end <= len(old):
            crc = end - ICRC.SIZE - (end - start) % 2
            change += _difference(old, new, max(stop, crc), end)
        if change := change % _ONES:
            self._put_sum(new, (found - change) % _ONES)

    def _put_sum(self, new: bytearray, value: int) -> None:
        self.put(new, value or (_ONES if self.kind.may_be_absent else 0), 0)

    def recompute(self, new: bytearray, end: int) -> None:
        absent = not any(new[self.at : self.at + 2]) and self.kind.may_be_absent
        if not absent and self.verifiable and end <= len(new):
            self._put_sum(new, self.expected(new, end))

    def expected(self, data: bytes | bytearray, end: int) -> int:
        """The checksum that the bytes must carry, whatever it is now."""
        assert self._addresses is not None
        at = self.at - self.start
        covered = bytes(data[self.start : end])
        covered = covered[:at] + b"\0\0" + covered[at + 2 :]
        pseudo = self._addresses.total(data) + self.kind.protocol + len(covered)
        found = internet_checksum(covered, pseudo)
        return found or (_ONES if self.kind.may_be_absent else 0)


def _difference(old: bytes, new: bytearray, start: int, end: int) -> int:
    """How much more the new bytes come to than the old ones, as words from ``start`` on."""
    change = _number(new[start:end], "big") - _number(old[start:end], "big")
    return change << 8 if (end - start) % 2 else change


ComputeICRC = Callable[[bytes | bytearray, int, int, int], int]
"""The ICRC of a packet: buffer, offset of the first header covered, end of the pad, BTH."""


class ICRCStart(NamedTuple):
    """How an ICRC begins: which header ``compute`` begins with, and that header's offset.

    ``bth`` is the offset of the BTH if the header says it, else 0. The bytes may be edited
    afterwards: what they say of the layout then does not count.
    """

    compute: ComputeICRC
    start: int
    bth: int = 0


class InvariantCRC(Checksum):
    """The ICRC of the packet with this BTH; ``end`` is after the ICRC. IBA 7.8.1."""

    __slots__ = ("_begin", "bth")
    table = ICRC
    size = ICRC.SIZE

    def __init__(self, begin: ICRCStart, bth: int, end: int) -> None:
        self.at = end - ICRC.SIZE
        self.end = end
        self.bth = bth
        self._begin = begin

    def expected(self, data: bytes | bytearray, end: int) -> int:
        """The ICRC that the bytes must carry; ``end`` is that of the ICRC."""
        compute, start, bth = self._begin
        return compute(data, start, end - ICRC.SIZE, bth or self.bth)

    def adjust(self, old: bytes, new: bytearray, reach: int, end: int) -> bool | None:  # noqa: ARG002
        if end > len(old):
            return None
        at = end - ICRC.SIZE
        found, before = _number(old[at:end], "big"), self.expected(old, end)
        change = before ^ self.expected(new, end)
        if change:
            new[at:end] = (found ^ change).to_bytes(ICRC.SIZE, "big")
        return found == before

    def recompute(self, new: bytearray, end: int) -> None:
        if end <= len(new):
            self.put(new, self.expected(new, end), end)

    def put(self, new: bytearray, value: int, end: int) -> None:
        if end <= len(new):
            new[end - ICRC.SIZE : end] = value.to_bytes(ICRC.SIZE, "big")


class LinkCRC(Checksum):
    """The VCRC of a native packet that begins at ``start``, or an LPCRC; both begin at ``end``.

    IBA 7.8.2, 7.9.4.
    """

    __slots__ = ("start", "table")
    size = VCRC.SIZE

    def __init__(self, table: type[VCRC | FlowControl], start: int, end: int) -> None:
        self.at = self.end = end
        self.table = table
        self.start = start

    def adjust(self, old: bytes, new: bytearray, reach: int, end: int) -> None:
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

    def recompute(self, new: bytearray, end: int) -> None:
        if end + self.size <= len(new):
            self.put(new, vcrc(new, self.start, end), end)

    def put(self, new: bytearray, value: int, end: int) -> None:
        if end + self.size <= len(new):
            new[end : end + self.size] = value.to_bytes(self.size, "big")


_BITS = 16
_Step = tuple[int, ...]
"""A linear step of the VCRC's register: what becomes of each of its bits, the lowest first."""


def vcrc_change(change: bytes, after: int) -> int:
    """What changes in a VCRC where ``change`` is xored in, ``after`` bytes before its end.

    A number as of :func:`~rdmawire.wire.icrc.vcrc`, to be xored with it.
    """
    change = change.lstrip(b"\0")
    plain = vcrc(change) ^ vcrc(bytes(len(change)))
    register = _applied(_zeros(after), plain >> 8 | (plain & 0xFF) << 8)
    return register >> 8 | (register & 0xFF) << 8


def _applied(step: _Step, register: int) -> int:
    after = 0
    for bit, image in enumerate(step):
        if register >> bit & 1:
            after ^= image
    return after


@lru_cache(maxsize=4096)
def _zeros(count: int) -> _Step:
    """The step of ``count`` bytes of zero."""
    if count == 0:
        return tuple(1 << bit for bit in range(_BITS))
    if count == 1:
        return tuple(_one_zero(1 << bit) for bit in range(_BITS))
    half = _zeros(count // 2)
    both = tuple(_applied(half, image) for image in half)
    return tuple(_applied(_zeros(1), image) for image in both) if count % 2 else both


def _one_zero(register: int) -> int:
    return register >> 8 ^ VCRC_STEP[register & 0xFF]
