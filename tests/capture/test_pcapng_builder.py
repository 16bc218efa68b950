"""Building pcapng."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import Interface, Record
from rdmawire.capture.pcapng import PcapngBuilder
from rdmawire.errors import CaptureError

from . import samples
from .samples import NANO, RECORDS, SECOND, enhanced, interface, read, section

USUAL = Interface(1, 262144, resolution=SECOND)
option_lists = st.lists(st.tuples(st.integers(1, 8), st.binary(max_size=12)), max_size=3)


def built(*records: Record, order: str = "<", usual: Interface = USUAL) -> bytes:
    builder = PcapngBuilder(order, usual)
    for record in records:
        builder.record(record)
    return bytes(builder.pending)


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_is_built_is_what_the_format_says(order: str) -> None:
    expected = section(order) + interface(1, NANO, order=order, snap_length=262144)
    expected += b"".join(enhanced(r.data, r.time_ns, r.length, order=order) for r in RECORDS)
    assert built(*RECORDS, order=order) == expected


@given(
    st.lists(st.tuples(samples.records(), option_lists.map(tuple)), max_size=4),
    st.sampled_from("<>"),
    st.sampled_from([1_000_000, SECOND, 10**12, 1 << 40]),
)
def test_what_is_built_is_read_again(
    content: list[tuple[Record, tuple[tuple[int, bytes], ...]]], order: str, units: int
) -> None:
    usual = Interface(1, 0, resolution=units)
    # Picoseconds in 64 bits end in the summer of 1970.
    records = [r._replace(options=o, time_ns=r.time_ns % 10**16) for r, o in content]
    found, damage = read(built(*records, order=order, usual=usual))
    times = [usual.time_ns(usual.ticks(record.time_ns)) for record in records]
    assert damage is None
    assert found == [r._replace(time_ns=t) for r, t in zip(records, times, strict=True)]


def test_records_go_to_the_interface_that_they_name() -> None:
    builder = PcapngBuilder("<", USUAL)
    assert builder.add(Interface(1, name="a")) == 0
    assert builder.add(Interface(247, name="b")) == 1
    builder.record(Record(b"", 0, 0, 247, 1))
    builder.record(Record(b"", 0, 0, 1, 0))
    assert [record.interface for record in read(bytes(builder.pending))[0]] == [1, 0]
    assert len(builder.interfaces) == 2


def test_an_interface_is_added_for_each_link_type_and_number_that_is_new() -> None:
    names = [(5, 247), (0, 1), (5, 247), (0, 247), (5, 1), (0, 1)]
    found, _ = read(built(*[Record(b"", 0, 0, link, number) for number, link in names]))
    assert [record.interface for record in found] == [0, 1, 0, 2, 3, 1]
    assert [record.link_type for record in found] == [link for _, link in names]


def test_the_whole_description_of_an_interface_is_kept() -> None:
    described = Interface(
        247, 96, "ib0", "first port", 1 << 20, -3600, ((1, b"note"), (8, bytes(range(8))))
    )
    builder = PcapngBuilder(">", USUAL)
    builder.add(described)
    builder.record(Record(b"", 0, 0, 247))
    with samples.opened(bytes(builder.pending)) as reader:
        assert next(iter(reader)).time_ns == 0
        assert reader.interfaces == [described]


def test_times_before_1970_fit_an_interface_with_an_offset() -> None:
    usual = Interface(1, resolution=SECOND, offset_seconds=-10)
    assert read(built(Record(b"", -1, 0, 1), usual=usual))[0][0].time_ns == -1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            Record(b"", -1, 0, 1),
            "Record.time_ns: -1 is not an integer from 0 to 18446744073709551615",
        ),
        (Record(b"", 1 << 64, 0, 1), "Record.time_ns: 18446744073709551616 is not an integer"),
        (Record(b"", 0.5, 0, 1), "Record.time_ns: 0.5 .* is not an integer"),  # type: ignore[arg-type]
        (Record(b"", 0, 1 << 32, 1), "Record.length: 4294967296 is not an integer"),
        (
            Record(bytes(10), 0, 9, 1),
            "Record.data: 10 bytes do not fit, the snap length allows 9",
        ),
        (Record("text", 0, 4, 1), "Record.data: 'text' .* is not bytes"),  # type: ignore[arg-type]
        (
            Record(b"", 0, 0, 1, 0, ((0, b""),)),
            "options: the code: 0 is not an integer from 1 to 65535",
        ),
        (Record(b"", 0, 0, None), "Interface.link_type: None .* is not an integer"),  # type: ignore[arg-type]
        (
            Record(b"", 0, 0, 1 << 16),
            "Interface.link_type: 65536 is not an integer from 0 to 65535",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_leaves_no_trace(
    record: Record, reason: str
) -> None:
    builder = PcapngBuilder("<", Interface(1, 9, resolution=SECOND))
    builder.add(Interface(1, 9, resolution=SECOND))
    before = bytes(builder.pending)
    with pytest.raises(CaptureError, match=reason):
        builder.record(record)
    assert bytes(builder.pending) == before
    assert len(builder.interfaces) == 1


def test_after_a_refused_record_of_a_new_interface_others_are_right() -> None:
    builder = PcapngBuilder("<", USUAL)
    with pytest.raises(CaptureError):
        builder.record(Record(b"", -1, 0, 1, 4))
    builder.record(Record(b"", 1, 0, 247, 5))
    assert read(bytes(builder.pending)) == ([Record(b"", 1, 0, 247, 1)], None)


def test_more_interfaces_than_can_be_read_are_refused() -> None:
    builder = PcapngBuilder("<", USUAL)
    long = Interface(options=((1, bytes(65532)),) * 15)
    for _ in range(17):
        builder.add(long)
    with pytest.raises(CaptureError, match="interfaces: bytes of their descriptions"):
        builder.add(long)
    assert len(builder.interfaces) == 17
