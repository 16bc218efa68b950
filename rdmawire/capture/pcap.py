"""The pcap format: a header of 24 bytes, then records with headers of 16.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/. The first four bytes show the byte order
and whether fractions of a second are in micro- or nanoseconds.
"""

import struct
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NoReturn

from rdmawire.capture.io import ChunkBuffer
from rdmawire.capture.record import (
    Interface,
    Record,
    RecordLayout,
    RecordSpan,
    longest_record,
    max_bytes,
    refuse,
)
from rdmawire.errors import CaptureError, UnrepresentableError
from rdmawire.units import SECOND
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
_LAST_TIME = (SECOND << 32) - 1
"""The last time (ns) that a record can have."""


class PcapParser:
    """Reads a pcap file, from its first byte on."""

    format = "pcap"

    def __init__(self, file: ChunkBuffer) -> None:
        left = file.need(HEADER)
        if left < HEADER:
            raise file.damage(f"a pcap header takes {HEADER} bytes, {left} are there")
        self._order, self._resolution = MAGICS[file.buffer[:4]]
        major, minor, snap_length, link_type = struct.unpack_from(
            f"{self._order}4xHH8xII", file.buffer
        )
        if major != 2:
            raise file.damage(f"pcap version {major}.{minor}, known is 2", 4)
        file.at += HEADER
        # The upper half gives presence and length of a frame checksum.
        interface = Interface(link_type & 0xFFFF, snap_length, resolution=self._resolution)
        self.interfaces = [interface]
        self._file = file
        self._longest = longest_record(interface.link_type)
        self.spans = self._spans()
        self.records = self._records()

    def _spans(self) -> Iterator[RecordSpan]:
        """One generator frame and no call but ``unpack``: files have 10 million records."""
        unpack = Struct(f"{self._order}8xI4x").unpack_from
        longest = self._longest
        while self._load_record(unpack):
            buffer, at = self._file.buffer, self._file.at
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
            self._file.at = at

    def _load_record(self, unpack: Callable[[bytes, int], tuple[int]]) -> bool:
        """Load the next record into the buffer; return false at the end of the file."""
        file = self._file
        left = file.need(RECORD)
        if left == 0:
            return False
        captured = unpack(file.buffer, file.at)[0] if left >= RECORD else 0
        if captured <= self._longest:
            left = file.need(RECORD + captured)
        if reason := record_damage(captured, left, self._longest):
            raise file.damage(reason)
        return True

    def _records(self) -> Iterator[Record]:
        """Yield the spans with the other fields of their headers."""
        unpack = Struct(f"{self._order}II4xI").unpack_from
        new = tuple.__new__
        unit = SECOND // self._resolution
        link_type = self.interfaces[0].link_type
        for buffer, start, end in self.spans:
            seconds, fraction, length = unpack(buffer, start - 16)
            time_ns = seconds * 1_000_000_000 + fraction * unit
            yield new(Record, (buffer[start:end], time_ns, length, link_type, 0, ()))


def record_damage(captured: int, left: int, longest: int) -> str:
    """Return why the last ``left`` bytes of a file begin with no complete record; "" if they do.

    ``captured`` is the length that the record's header claims, if that is complete, and
    ``longest`` the greatest length allowed, both in bytes.
    """
    if left < RECORD:
        return f"a record header takes {RECORD} bytes, {left} are there"
    if captured > longest:
        return f"a record claims {captured} bytes, {longest} are allowed"
    if left < RECORD + captured:
        return f"a record claims {captured} bytes, {left - RECORD} are there"
    return ""


class PcapBuilder:
    """Builds a pcap file; ``pending`` are the bytes that were not taken yet."""

    format = "pcap"

    def __init__(self, order: str, interface: Interface) -> None:
        check_int("link_type", interface.link_type, 0, 0xFFFF, UnrepresentableError)
        check_int("snap_length", interface.snap_length, 0, 0xFFFF_FFFF, UnrepresentableError)
        self.interfaces = [interface]
        self._link_type = interface.link_type
        self._max_bytes = max_bytes(interface.link_type, interface.snap_length)
        self._unit = SECOND // interface.resolution
        self._pack = Struct(f"{order}IIII").pack
        self.record_layout = RecordLayout(f"{order}u4", 0, interface.resolution, RECORD)
        magic = _MAGICS[interface.resolution]
        self.pending = bytearray(
            struct.pack(
                f"{order}IHHIIII", magic, 2, 4, 0, 0, interface.snap_length, interface.link_type
            )
        )

    def add(self, _: Interface) -> int:
        """Raise :class:`CaptureError`: a pcap has a link type, but no interfaces."""
        raise CaptureError("interfaces: a pcap cannot have any; write a pcapng")

    def record(self, record: Record) -> None:
        """Build a record; raises :class:`CaptureError` naming what does not fit."""
        data, time_ns, length, link_type, _, options = record
        captured = len(data)
        if link_type != self._link_type or options or captured > self._max_bytes:
            self._refuse(record)
        try:
            seconds, rest = divmod(time_ns, 1_000_000_000)
            self.pending += self._pack(seconds, rest // self._unit, captured, length) + data
        except (struct.error, TypeError):
            self._refuse(record)

    def _refuse(self, record: Record) -> NoReturn:
        check_int("Record.link_type", record.link_type, 0, 0xFFFF, UnrepresentableError)
        if record.link_type != self._link_type:
            raise UnrepresentableError(
                f"Record.link_type: {record.link_type} in a pcap of link type {self._link_type};"
                " write a pcapng for several"
            )
        if record.options:
            raise UnrepresentableError("Record.options: a pcap cannot have any; write a pcapng")
        if type(record.time_ns) is int and record.time_ns > _LAST_TIME:
            raise UnrepresentableError(
                f"Record.time_ns: {record.time_ns} in a pcap, whose times end at {_LAST_TIME}"
                " (2106-02-07); write a pcapng"
            )
        refuse(record, self._max_bytes, 0, _LAST_TIME)
