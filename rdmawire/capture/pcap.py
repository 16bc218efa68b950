"""The pcap format: a header of 24 bytes, then records with headers of 16.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/. The first four bytes tell the byte
order and whether fractions of a second count in micro- or nanoseconds.
"""

import struct
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NoReturn

from rdmawire.capture.record import (
    SECOND,
    Interface,
    Record,
    RecordLayout,
    Span,
    check_record,
    longest_record,
    max_bytes,
)
from rdmawire.capture.source import BytesLike
from rdmawire.errors import CaptureError, UnrepresentableError
from rdmawire.validate import check_int

MICRO, NANO = 1_000_000, SECOND
_MAGICS = {MICRO: 0xA1B2C3D4, NANO: 0xA1B23C4D}
MAGICS = {
    struct.pack(f"{order}I", magic): (order, resolution)
    for order in "<>"
    for resolution, magic in _MAGICS.items()
}
"""First four bytes of a file: byte order, units per second."""

HEADER, RECORD = 24, 16
"""Bytes of the file's header, and of a record's."""


class PcapParser:
    """Reads a pcap file, of which the first byte stands at the place of ``bytes``."""

    format = "pcap"

    def __init__(self, data: BytesLike) -> None:
        left = data.need(HEADER)
        if left < HEADER:
            raise data.damage(f"a pcap header takes {HEADER} bytes, {left} are there")
        self._order, self._resolution = MAGICS[data.buffer[:4]]
        major, minor, snap_length, link_type = struct.unpack_from(
            f"{self._order}4xHH8xII", data.buffer
        )
        if major != 2:
            raise data.damage(f"pcap version {major}.{minor}, known is 2", 4)
        data.at += HEADER
        # The upper half says whether and how long a frame checksum follows.
        interface = Interface(link_type & 0xFFFF, snap_length, resolution=self._resolution)
        self.interfaces = [interface]
        self._bytes = data
        self._longest = longest_record(interface.link_type)
        self.spans = self._spans()
        self.records = self._records()

    def _spans(self) -> Iterator[Span]:
        """One generator frame and no call but ``unpack``: 10 million records pass here."""
        unpack = Struct(f"{self._order}8xI4x").unpack_from
        longest = self._longest
        while self._bring_record(unpack):
            buffer, at = self._bytes.buffer, self._bytes.at
            size = len(buffer)
            last = size - RECORD
            while at <= last:
                (captured,) = unpack(buffer, at)
                start = at + 16
                end = start + captured
                if end > size or captured > longest:
                    break
                yield buffer, start, end
                at = end
            self._bytes.at = at

    def _bring_record(self, unpack: Callable[[bytes, int], tuple[int]]) -> bool:
        """Have the next record stand whole in the buffer; false where the file ends."""
        data = self._bytes
        left = data.need(RECORD)
        if left == 0:
            return False
        captured = unpack(data.buffer, data.at)[0] if left >= RECORD else 0
        if captured <= self._longest:
            left = data.need(RECORD + captured)
        if reason := misfit(captured, left, self._longest):
            raise data.damage(reason)
        return True

    def _records(self) -> Iterator[Record]:
        """The spans, with what their headers say."""
        unpack = Struct(f"{self._order}II4xI").unpack_from
        new = tuple.__new__
        unit = SECOND // self._resolution
        link_type = self.interfaces[0].link_type
        for buffer, start, end in self.spans:
            seconds, fraction, length = unpack(buffer, start - 16)
            time_ns = seconds * 1_000_000_000 + fraction * unit
            yield new(Record, (buffer[start:end], time_ns, length, link_type, 0, ()))


def misfit(captured: int, left: int, longest: int) -> str:
    """Why no whole record begins where ``left`` bytes are left; nothing if one does.

    ``captured`` is what its header says, if that is there, and ``longest`` the most allowed.
    """
    if left < RECORD:
        return f"a record header takes {RECORD} bytes, {left} are there"
    if captured > longest:
        return f"a record claims {captured} bytes, {longest} are allowed"
    if left < RECORD + captured:
        return f"a record promises {captured} bytes, {left - RECORD} are there"
    return ""


class PcapBuilder:
    """Builds the bytes of a pcap file; those not taken away yet are ``pending``."""

    format = "pcap"

    def __init__(self, order: str, interface: Interface) -> None:
        check_int("link_type", interface.link_type, 0, 0xFFFF, UnrepresentableError)
        check_int("snap_length", interface.snap_length, 0, 0xFFFF_FFFF, UnrepresentableError)
        self.interfaces = [interface]
        self._link_type = interface.link_type
        self._most = max_bytes(interface.link_type, interface.snap_length)
        self._unit = SECOND // interface.resolution
        self._pack = Struct(f"{order}IIII").pack
        self.record_layout = RecordLayout(f"{order}u4", 0, interface.resolution, RECORD)
        magic = _MAGICS[interface.resolution]
        header = Struct(f"{order}IHHIIII")
        self.pending = bytearray(
            header.pack(magic, 2, 4, 0, 0, interface.snap_length, interface.link_type)
        )

    def add(self, _: Interface) -> int:
        """A pcap file says nothing of interfaces but one link type."""
        raise CaptureError("interfaces: a pcap cannot name any, a pcapng can")

    def record(self, record: Record) -> None:
        """Build a record; :class:`CaptureError` naming what does not fit."""
        data, time_ns, length, link_type, _, options = record
        captured = len(data)
        if link_type != self._link_type or options or captured > self._most:
            self._refuse(record)
        try:
            seconds, rest = divmod(time_ns, 1_000_000_000)
            self.pending += self._pack(seconds, rest // self._unit, captured, length) + data
        except (struct.error, TypeError):
            self._refuse(record)

    def _refuse(self, record: Record) -> NoReturn:
        """Say what does not fit."""
        check_int("Record.link_type", record.link_type, 0, 0xFFFF, UnrepresentableError)
        if record.link_type != self._link_type:
            raise UnrepresentableError(
                f"Record.link_type: {record.link_type} in a pcap of link type {self._link_type};"
                " a file of several is a pcapng"
            )
        if record.options:
            raise UnrepresentableError("Record.options: a pcap has no place for them, a pcapng has")
        check_record(record, self._most, 0, (SECOND << 32) - 1)
        raise AssertionError(f"{record!r} fits, yet was refused")
