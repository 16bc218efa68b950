"""Reading pcapng."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import MAX_RECORD, Interface, Record

from . import samples
from .samples import (
    NANO,
    RECORDS,
    SECOND,
    block,
    enhanced,
    interface,
    motley,
    obsolete,
    pcapng,
    read,
    read_spans,
    section,
    simple,
)

orders = pytest.mark.parametrize("order", ["<", ">"])

MOTLEY = [
    Record(b"first", 1_700_000_000 * SECOND, 5, 1),
    Record(b"noted", 2 * SECOND, 900, 1, 0, ((1, b"a comment"),)),
    Record(b"ticks of two", 3 * SECOND + SECOND // 64, 12, 247, 1),
    Record(b"simple", 0, 77, 1),
    Record(b"obsolete", 4 * SECOND, 8, 1),
    Record(b"micro", 5_000_001_000, 5, 113, 2),
]


@orders
def test_every_kind_of_block_is_read_in_sections_of_both_orders(order: str) -> None:
    with samples.opened(motley(order)) as reader:
        assert reader.format == "pcapng"
        assert reader.interfaces == []
        assert list(reader) == MOTLEY
        assert reader.interfaces == [
            Interface(1, 6, "eth0", resolution=SECOND),
            Interface(247, 0, resolution=64),
            Interface(113, 0, resolution=1_000_000),
        ]


@orders
@given(st.lists(samples.records(), max_size=5))
def test_plain_packets_are_read(order: str, content: list[Record]) -> None:
    assert read(pcapng(content, order)) == (content, None)


@pytest.mark.parametrize(
    ("byte", "ticks", "time_ns"),
    [
        (b"\x00", 7, 7 * SECOND),
        (b"\x03", 7, 7_000_000),
        (b"\x06", 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (b"\x09", (1 << 64) - 1, (1 << 64) - 1),
        (b"\x0c", 1_999, 1),
        (b"\x7f", (1 << 64) - 1, 0),
        (b"\x80", 9, 9 * SECOND),
        (b"\x81", 3, 1_500_000_000),
        (b"\xa0", 1 << 31, 500_000_000),
        (b"\xff", (1 << 64) - 1, 0),
    ],
)
def test_time_counts_in_the_resolution_of_the_interface(
    byte: bytes, ticks: int, time_ns: int
) -> None:
    data = section() + interface(1, (9, byte)) + enhanced(b"", ticks)
    assert read(data)[0][0].time_ns == time_ns


@orders
@pytest.mark.parametrize("seconds", [0, 1, -1, -(1 << 63), (1 << 63) - 1])
def test_times_are_moved_by_the_offset_of_the_interface(order: str, seconds: int) -> None:
    moved = (14, struct.pack(f"{order}q", seconds))
    data = section(order) + interface(1, NANO, moved, order=order)
    data += enhanced(b"", 17, order=order)
    assert read(data)[0][0].time_ns == seconds * SECOND + 17


def test_a_simple_packet_is_cut_at_the_snap_length_of_the_first_interface() -> None:
    data = section() + interface(1, snap_length=4) + interface(247) + simple(b"abcd", 9)
    assert read(data) == ([Record(b"abcd", 0, 9, 1)], None)


def test_interfaces_are_counted_through_all_sections_of_a_file() -> None:
    part = section() + interface() + interface(247) + enhanced(b"", 0, 0, 1)
    found, _ = read(part * 3)
    assert [record.interface for record in found] == [1, 3, 5]


def test_an_interface_may_be_declared_between_packets() -> None:
    data = section() + interface() + enhanced(b"a") + interface(247) + enhanced(b"b", 0, 1, 1)
    assert [record.link_type for record in read(data)[0]] == [1, 247]


@orders
def test_numbers_in_options_are_given_little_endian(order: str) -> None:
    flags = (2, struct.pack(f"{order}I", 0x01020304))
    speed = (8, struct.pack(f"{order}Q", 100_000_000_000))
    data = section(order) + interface(1, speed, order=order)
    data += enhanced(b"x", 0, 1, 0, flags, order=order)
    with samples.opened(data) as reader:
        assert next(iter(reader)).options == ((2, b"\4\3\2\1"),)
        assert reader.interfaces[0].options == ((8, (10**11).to_bytes(8, "little")),)


def test_bytes_of_a_name_that_are_no_text_are_replaced() -> None:
    data = section() + interface(1, (2, b"e\xff"), (3, b"port")) + enhanced(b"")
    with samples.opened(data) as reader:
        list(reader)
        assert reader.interfaces[0].name == "e\ufffd"
        assert reader.interfaces[0].description == "port"


def test_more_bytes_captured_than_there_were_are_kept() -> None:
    data = section() + interface() + enhanced(b"four", 0, 2)
    assert read(data) == ([Record(b"four", 0, 2, 1)], None)


@orders
@pytest.mark.parametrize("chunk", [1 << 20, 1, 7])
def test_a_file_cut_anywhere_gives_its_whole_records_then_an_error(order: str, chunk: int) -> None:
    whole = motley(order)
    ends, at = [], 0
    little = order == "<"
    while at < len(whole):
        if whole[at : at + 4] == b"\n\r\r\n":
            little = whole[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a"
        at += int.from_bytes(whole[at + 4 : at + 8], "little" if little else "big")
        ends.append(at)
    packets = [ends[index] for index in (3, 4, 6, 7, 8, 11)]
    for length in range(len(whole)):
        found, damage = read(whole[:length], chunk)
        assert found == MOTLEY[: sum(end <= length for end in packets)]
        assert (damage is None) == (length in ends)


START = section() + interface() + enhanced(b"good", 1)
AT = len(START)
GOOD = [Record(b"good", 1000, 4, 1)]


def changed(data: bytes, at: int, value: int, size: int = 4) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


PACKET = enhanced(b"data", 0)
OPTION = enhanced(b"data", 0, 4, 0, (1, b"text"))
DAMAGE = {
    "head": (b"\6\0\0\0\4", "a pcapng block takes at least 12 bytes, 5 are there", 0),
    "cut": (PACKET[:-1], "enhanced block claims 36 bytes, 35 are there", 0),
    "cut unknown": (
        block(0xBAD, bytes(8))[:-1],
        "block of type 0xbad claims 20 bytes, 19 are there",
        0,
    ),
    "cut in the section": (section()[:20], "a section header takes 28 bytes, 20 are there", 0),
    "no multiple of four": (
        changed(PACKET, 4, 37),
        "enhanced block claims a length of 37 bytes, multiples of 4 from 32 on are allowed",
        0,
    ),
    "no length": (
        changed(PACKET, 4, 0),
        "enhanced block claims a length of 0 bytes, multiples of 4 from 32 on are allowed",
        0,
    ),
    "short interface": (
        block(1, bytes(4)),
        "interface block claims a length of 16 bytes, multiples of 4 from 20 on are allowed",
        0,
    ),
    "short unknown": (
        changed(block(0xBAD, b""), 4, 8),
        "block of type 0xbad claims a length of 8 bytes, multiples of 4 from 12 on are allowed",
        0,
    ),
    "length too great": (
        changed(PACKET, 4, 0xFFFF_FFFC),
        "enhanced block claims 4294967292 bytes, 1310748 are allowed",
        0,
    ),
    "interface too great": (
        changed(interface(), 4, 0x7FFF_FFFC),
        "interface block claims 2147483644 bytes, 1048576 are allowed",
        0,
    ),
    "other length at the end": (
        changed(PACKET, 32, 40),
        "enhanced block of 36 bytes claims 40 at its end",
        32,
    ),
    "other length at the end of an unknown": (
        changed(block(0xBAD, b""), 8, 16),
        "block of type 0xbad of 12 bytes claims 16 at its end",
        8,
    ),
    "undeclared": (
        enhanced(b"", 0, 0, 1),
        "a packet of interface 1, 1 are declared in its section",
        8,
    ),
    "undeclared in this section": (
        section() + simple(b""),
        "a packet of interface 0, 0 are declared in its section",
        28,
    ),
    "captured beyond the block": (
        changed(PACKET, 20, 8),
        "a packet claims 8 captured bytes, 4 are allowed here",
        20,
    ),
    "captured beyond all": (
        enhanced(bytes(MAX_RECORD + 1)),
        "a packet claims 262145 captured bytes, 262144 are allowed here",
        20,
    ),
    "simple beyond the block": (
        changed(simple(b"data"), 8, 5),
        "a packet claims 5 captured bytes, 4 are allowed here",
        8,
    ),
    "option beyond the block": (
        changed(OPTION, 34, 9, 2),
        "option 1 claims 9 bytes, its block has 8 left",
        32,
    ),
    "byte order": (
        changed(section(), 8, 0x1A2B3C4E),
        (
            "a section header shows its byte order by 4e 3c 2b 1a,"
            " known are 4d 3c 2b 1a and 1a 2b 3c 4d"
        ),
        8,
    ),
    "version": (section(major=2), "pcapng version 2.0, known is 1", 12),
    "units": (interface(1, (9, b"")), "option 9 of an interface has 0 bytes, 1 are allowed", 0),
    "offset": (interface(1, (14, b"")), "option 14 of an interface has 0 bytes, 8 are allowed", 0),
}


@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.parametrize("chunk", [1 << 20, 1])
def test_damage_is_reported_after_the_records_before_it(case: str, chunk: int) -> None:
    damaged, reason, offset = DAMAGE[case]
    if len(damaged) > 1000 and chunk == 1:
        chunk = 1000
    found, damage = read(START + damaged, chunk)
    assert found == GOOD
    assert damage is not None
    assert damage.reason == f"sample: {reason}"
    assert damage.offset == AT + offset
    data, same = read_spans(START + damaged, chunk)
    assert data == [b"good"]
    assert str(same) == str(damage)


def test_a_file_that_is_damaged_from_the_start_is_refused_at_once() -> None:
    found, damage = read(section(major=2))
    assert found == []
    assert damage is not None
    assert damage.offset == 12


def test_a_packet_before_any_interface_is_damage() -> None:
    found, damage = read(section() + enhanced(b"data"))
    assert found == []
    assert damage is not None
    assert damage.reason == "sample: a packet of interface 0, 0 are declared in its section"


def test_interfaces_without_end_are_refused() -> None:
    described = interface(1, *[(1, bytes(65532))] * 15)
    found, damage = read(section() + described * 18)
    assert found == []
    assert damage is not None
    assert damage.reason == "sample: interface descriptions of more than 16777216 bytes in all"
    assert damage.offset == 28 + 17 * len(described)


def test_a_block_that_is_not_known_may_be_of_any_length() -> None:
    long = block(0xBAD, bytes(3_000_000))
    assert read(START + long + PACKET, 1000)[1] is None
    assert len(read(START + long + PACKET)[0]) == 2


def test_packets_of_links_with_long_frames_are_read() -> None:
    data = bytes(MAX_RECORD + 1)
    assert read(section() + interface(231) + enhanced(data))[0][0].data == data


def test_the_obsolete_block_has_sixteen_bits_of_interface() -> None:
    data = section(">") + interface(order=">") + interface(247, NANO, order=">")
    data += obsolete(b"x", 99, 1, 1, order=">")
    assert read(data) == ([Record(b"x", 99, 1, 247, 1)], None)


def test_records_of_the_format_are_those_of_the_plain_one() -> None:
    assert read(pcapng(RECORDS))[0] == read(samples.pcap(RECORDS))[0]
