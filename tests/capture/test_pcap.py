"""The pcap format."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import MAX_RECORD, Interface, Record
from rdmawire.capture.pcap import PcapBuilder
from rdmawire.errors import CaptureError

from . import samples
from .samples import RECORDS, SECOND, pcap, pcap_header, pcap_record, read

orders = pytest.mark.parametrize("order", ["<", ">"])
resolutions = pytest.mark.parametrize("resolution", [1_000_000, SECOND])


@orders
@resolutions
def test_records_are_read_in_both_byte_orders_and_resolutions(order: str, resolution: int) -> None:
    with samples.opened(pcap(RECORDS, order, resolution, 247)) as reader:
        assert reader.interfaces == [Interface(247, 262144, resolution=resolution)]
        assert reader.format == "pcap"
        found = list(reader)
    assert found == [record._replace(link_type=247) for record in RECORDS]


@given(st.lists(samples.records(), max_size=5), st.sampled_from("<>"))
def test_what_is_built_is_what_the_format_says(content: list[Record], order: str) -> None:
    for resolution in (1_000_000, SECOND):
        builder = PcapBuilder(order, Interface(1, resolution=resolution))
        for record in content:
            builder.record(record)
        assert bytes(builder.pending) == pcap(content, order, resolution)


def test_nanoseconds_are_exact() -> None:
    times = [0, 1, 999_999_999, 1_700_000_000_123_456_789, (1 << 32) * SECOND - 1]
    content = [Record(b"", time, 0, 1) for time in times]
    assert [record.time_ns for record in read(pcap(content))[0]] == times


def test_microseconds_are_rounded_down() -> None:
    builder = PcapBuilder("<", Interface(1, resolution=1_000_000))
    builder.record(Record(b"", 1_999_999_999, 0, 1))
    found, _ = read(bytes(builder.pending))
    assert found[0].time_ns == 1_999_999_000


def test_a_fraction_of_more_than_a_second_is_taken_as_it_is() -> None:
    record = struct.pack("<IIII", 7, 2_500_000, 0, 0)
    assert read(pcap_header(resolution=1_000_000) + record)[0][0].time_ns == 9_500_000_000


def test_checksum_bits_above_the_link_type_are_no_part_of_it() -> None:
    header = pcap_header(link_type=0x14000001)
    assert read(header + pcap_record(RECORDS[0]))[0][0].link_type == 1


@orders
def test_a_file_cut_anywhere_gives_its_whole_records_then_an_error(order: str) -> None:
    whole = pcap(RECORDS, order)
    ends = [24]
    for record in RECORDS:
        ends.append(ends[-1] + 16 + len(record.data))
    for length in range(len(whole)):
        found, damage = read(whole[:length])
        complete = sum(end <= length for end in ends[1:])
        assert found == RECORDS[:complete]
        assert (damage is None) == (length in ends)


@pytest.mark.parametrize(
    ("length", "reason", "offset"),
    [
        (0, "sample: is empty", 0),
        (2, "sample: is no capture: its only bytes are 4d 3c", 0),
        (23, "sample: a pcap header takes 24 bytes, 23 are there", 0),
        (24 + 15, "sample: a record header takes 16 bytes, 15 are there", 24),
        (24 + 16 + 59, "sample: a record claims 60 bytes, 59 are there", 24),
        (24 + 16, "sample: a record claims 60 bytes, 0 are there", 24),
    ],
)
def test_a_cut_is_reported_with_what_is_missing(length: int, reason: str, offset: int) -> None:
    _, damage = read(pcap()[:length])
    assert damage is not None
    assert damage.reason.startswith(reason)
    assert damage.offset == offset


@pytest.mark.parametrize("claim", [MAX_RECORD + 1, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_a_record_longer_than_any_is_damage_however_much_follows(claim: int) -> None:
    wild = struct.pack("<IIII", 0, 0, claim, claim) + bytes(2 * MAX_RECORD)
    found, damage = read(pcap(RECORDS[:1]) + wild)
    assert found == RECORDS[:1]
    assert damage is not None
    assert damage.reason == f"sample: a record claims {claim} bytes, {MAX_RECORD} are allowed"
    assert damage.offset == 24 + 76


def test_a_record_of_the_greatest_length_is_read() -> None:
    record = Record(bytes(MAX_RECORD), 0, MAX_RECORD, 1)
    assert read(pcap([record])) == ([record], None)


def test_frames_that_are_long_by_nature_are_read() -> None:
    record = Record(bytes(MAX_RECORD + 1), 0, MAX_RECORD + 1, 249)
    assert read(pcap([record], link_type=249)) == ([record], None)


def test_another_version_is_refused() -> None:
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 3, 4, 0, 0, 65535, 1)
    _, damage = read(header)
    assert damage is not None
    assert damage.reason == "sample: pcap version 3.4, known is 2"
    assert damage.offset == 4


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            Record(b"", -1, 0, 1),
            "Record.time_ns: -1 is not an integer from 0 to 4294967295999999999",
        ),
        (
            Record(b"", SECOND << 32, 0, 1),
            "Record.time_ns: 4294967296000000000 in a pcap, whose times end at .* write a pcapng",
        ),
        (Record(b"", 0.5, 0, 1), "Record.time_ns: 0.5 .* is not an integer"),  # type: ignore[arg-type]
        (
            Record(b"", 0, 1 << 32, 1),
            "Record.length: 4294967296 is not an integer from 0 to 4294967295",
        ),
        (Record(b"", 0, -1, 1), "Record.length: -1 is not an integer"),
        (Record(b"", 0, "1", 1), "Record.length: '1' .* is not an integer"),  # type: ignore[arg-type]
        (
            Record(bytes(10), 0, 9, 1),
            "Record.data: 10 bytes do not fit, the snap length allows 9",
        ),
        (Record("text", 0, 4, 1), "Record.data: 'text' .* is not bytes"),  # type: ignore[arg-type]
        (Record(b"", 0, 0, "\udcff"), r"Record.link_type: '\\udcff' .* is not an integer"),  # type: ignore[arg-type]
        (Record(b"", 0, 0, 247), "Record.link_type: 247 in a pcap of link type 1; .* pcapng"),
        (Record(b"", 0, 0, 1, 0, ((1, b"c"),)), "Record.options: a pcap cannot have any"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_leaves_no_trace(
    record: Record, reason: str
) -> None:
    builder = PcapBuilder("<", Interface(1, 9, resolution=SECOND))
    before = bytes(builder.pending)
    with pytest.raises(CaptureError, match=reason):
        builder.record(record)
    assert bytes(builder.pending) == before


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (Interface(1 << 16, resolution=SECOND), "link_type: 65536 is not an integer"),
        (Interface(1, -1, resolution=SECOND), "snap_length: -1 is not an integer"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(interface: Interface, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        PcapBuilder("<", interface)
