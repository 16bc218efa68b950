"""Captures built byte by byte here, so that the readers are not checked by the writers."""

import struct
from collections.abc import Iterable
from io import BytesIO

from hypothesis import strategies as st

from rdmawire.capture import Reader, Record
from rdmawire.capture.io import InputFile
from rdmawire.errors import CaptureError

SECOND = 1_000_000_000
MAGICS = {1_000_000: 0xA1B2C3D4, SECOND: 0xA1B23C4D}

RECORDS = [
    Record(bytes(range(60)), 1_700_000_000 * SECOND + 123_456_000, 60, 1),
    Record(b"", 0, 0, 1),
    Record(b"cut", 5 * SECOND + 1_000, 1500, 1),
    Record(b"more than there was", (1 << 32) * SECOND - 1_000, 4, 1),
]


def records(link_type: int = 1) -> st.SearchStrategy[Record]:
    """Records that every format can hold, with times in whole microseconds."""
    return st.builds(
        Record,
        data=st.binary(max_size=70),
        time_ns=st.integers(0, (1 << 32) * 1_000_000 - 1).map(lambda us: us * 1000),
        length=st.integers(0, (1 << 32) - 1),
        link_type=st.just(link_type),
        interface=st.just(0),
        options=st.just(()),
    )


def pcap_header(order: str = "<", resolution: int = SECOND, link_type: int = 1) -> bytes:
    magic = MAGICS[resolution]
    return struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, link_type)


def pcap_record(record: Record, order: str = "<", resolution: int = SECOND) -> bytes:
    seconds, rest = divmod(record.time_ns, SECOND)
    fraction = rest * resolution // SECOND
    head = struct.pack(f"{order}IIII", seconds, fraction, len(record.data), record.length)
    return head + record.data


def pcap(
    content: Iterable[Record] = RECORDS,
    order: str = "<",
    resolution: int = SECOND,
    link_type: int = 1,
) -> bytes:
    body = b"".join(pcap_record(record, order, resolution) for record in content)
    return pcap_header(order, resolution, link_type) + body


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def options(*pairs: tuple[int, bytes], order: str = "<") -> bytes:
    parts = [struct.pack(f"{order}HH", code, len(text)) + padded(text) for code, text in pairs]
    return b"".join([*parts, bytes(4)]) if parts else b""


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    size = struct.pack(f"{order}I", 12 + len(body))
    return struct.pack(f"{order}I", kind) + size + body + size


def section(order: str = "<", length: int = -1, major: int = 1) -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, major, 0, length), order)


def interface(
    link_type: int = 1, *pairs: tuple[int, bytes], order: str = "<", snap_length: int = 0
) -> bytes:
    body = struct.pack(f"{order}HHI", link_type, 0, snap_length)
    return block(1, body + options(*pairs, order=order), order)


def enhanced(
    data: bytes,
    ticks: int = 0,
    length: int | None = None,
    number: int = 0,
    *pairs: tuple[int, bytes],
    order: str = "<",
) -> bytes:
    there = len(data) if length is None else length
    fields = (number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), there)
    body = struct.pack(f"{order}IIIII", *fields) + padded(data) + options(*pairs, order=order)
    return block(6, body, order)


def simple(data: bytes, length: int | None = None, order: str = "<") -> bytes:
    there = len(data) if length is None else length
    return block(3, struct.pack(f"{order}I", there) + padded(data), order)


def obsolete(data: bytes, ticks: int, length: int, number: int = 0, order: str = "<") -> bytes:
    fields = (number, 7, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length)
    return block(2, struct.pack(f"{order}HHIIII", *fields) + padded(data), order)


NANO = (9, b"\x09")
"""The option that makes an interface count nanoseconds."""


def pcapng(content: Iterable[Record] = RECORDS, order: str = "<") -> bytes:
    packets = [
        enhanced(r.data, r.time_ns, r.length, r.interface, *r.options, order=order) for r in content
    ]
    return b"".join([section(order), interface(1, NANO, order=order), *packets])


def motley(order: str = "<") -> bytes:
    """A pcapng with every kind of block in two sections of either byte order."""
    other = "<" if order == ">" else ">"
    return b"".join(
        [
            section(order, length=4096),
            block(0xBAD, b"unknown!", order),
            interface(1, NANO, (2, b"eth0"), order=order, snap_length=6),
            enhanced(b"first", 1_700_000_000 * SECOND, order=order),
            enhanced(b"noted", 2 * SECOND, 900, 0, (1, b"a comment"), order=order),
            interface(247, (9, b"\x86"), order=order),
            enhanced(b"ticks of two", 3 * 64 + 1, None, 1, order=order),
            simple(b"simple", 77, order=order),
            obsolete(b"obsolete", 4 * SECOND, 8, order=order),
            section(other),
            interface(113, order=other),
            enhanced(b"micro", 5_000_001, order=other),
            block(5, bytes(40), other),
        ]
    )


def opened(data: bytes, chunk: int = 1 << 20) -> Reader:
    return Reader(InputFile(BytesIO(data), "sample", len(data), chunk))


def read(data: bytes, chunk: int = 1 << 20) -> tuple[list[Record], CaptureError | None]:
    """All records, and the damage after them."""
    found: list[Record] = []
    try:
        for record in opened(data, chunk):
            found.append(record)  # noqa: PERF402 - what came before the error is kept
    except CaptureError as error:
        return found, error
    return found, None


def read_spans(data: bytes, chunk: int = 1 << 20) -> tuple[list[bytes], CaptureError | None]:
    """The data of all records the fast way, and the damage after them."""
    found: list[bytes] = []
    try:
        for buffer, start, end in opened(data, chunk).spans():
            assert type(buffer) is bytes
            found.append(buffer[start:end])
    except CaptureError as error:
        return found, error
    return found, None
