"""Interfaces and how they count time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture.pcapng import interface_clock, interface_options, parse_interface
from rdmawire.capture.record import Interface
from rdmawire.errors import CaptureError

from .samples import SECOND

DECIMAL = [10**exponent for exponent in range(13)]
BINARY = [2**exponent for exponent in (0, 1, 6, 10, 20, 30, 40, 64)]
offsets = st.integers(-(1 << 40), 1 << 40)
ticks = st.integers(0, (1 << 64) - 1)


@given(st.sampled_from(DECIMAL[:10]), offsets, ticks)
def test_decimal_units_down_to_nanoseconds_are_exact(units: int, offset: int, count: int) -> None:
    interface = Interface(resolution=units, offset_seconds=offset)
    time_ns = interface.time_ns(count)
    assert (time_ns - offset * SECOND) * units == count * SECOND
    assert interface.ticks(time_ns) == count


@given(st.sampled_from(DECIMAL + BINARY), offsets, ticks)
def test_a_time_from_a_file_reads_back_equal(units: int, offset: int, count: int) -> None:
    interface = Interface(resolution=units, offset_seconds=offset)
    time_ns = interface.time_ns(count)
    assert interface.time_ns(interface.ticks(time_ns)) == time_ns


@given(st.sampled_from(DECIMAL + BINARY), offsets, st.integers(0, 1 << 62))
def test_other_times_are_rounded_down_to_the_unit(units: int, offset: int, time_ns: int) -> None:
    interface = Interface(resolution=units, offset_seconds=offset)
    count = interface.ticks(time_ns)
    assert interface.time_ns(count) <= time_ns
    # The next unit is later: compared without dividing.
    assert (count + 1) * SECOND > (time_ns - offset * SECOND) * units


@given(st.sampled_from(DECIMAL + BINARY), offsets, ticks)
def test_the_clock_of_an_interface_counts_as_the_interface(
    units: int, offset: int, count: int
) -> None:
    interface = Interface(resolution=units, offset_seconds=offset)
    fast = interface_clock(interface, 0)
    assert count * fast.multiplier // fast.divisor + fast.offset_ns == interface.time_ns(count)


@given(
    st.builds(
        Interface,
        link_type=st.integers(0, 65535),
        snap_length=st.integers(0, (1 << 32) - 1),
        name=st.text(max_size=10),
        description=st.text(max_size=10),
        resolution=st.sampled_from(DECIMAL + BINARY),
        offset_seconds=offsets,
        options=st.lists(st.tuples(st.sampled_from((4, 8, 12)), st.binary(max_size=9))).map(tuple),
    )
)
def test_an_interface_is_what_its_options_describe(interface: Interface) -> None:
    options = interface_options(interface)
    assert parse_interface(interface.link_type, interface.snap_length, options) == interface


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (Interface(resolution=3000), "Interface.resolution: 3000 "),
        (Interface(resolution=0), "Interface.resolution: 0 "),
        (Interface(resolution=10**128), "Interface.resolution: 1000"),
        (Interface(offset_seconds=1 << 63), "Interface.offset_seconds: 9223372036854775808 "),
        (Interface(name="\ud800"), "Interface.name: '\\ud800' cannot"),
        (Interface(name=None), "Interface.name: None (NoneType) is not of type str"),  # type: ignore[arg-type]
        (
            Interface(offset_seconds=None),  # type: ignore[arg-type]
            "Interface.offset_seconds: None (NoneType) is not an integer",
        ),
        (Interface(resolution="\udcff"), r"Interface.resolution: '\udcff' units"),  # type: ignore[arg-type]
        (Interface(resolution=10.0), "Interface.resolution: 10.0 units"),  # type: ignore[arg-type]
        (Interface(description="\ud800"), "Interface.description: "),
        (Interface(options=((2, b"eth0"),)), "Interface.options: 2 is what name is for"),
        (Interface(options=((9, b"\6"),)), "Interface.options: 9 is what resolution is for"),
    ],
)
def test_what_cannot_be_described_is_refused_by_name(interface: Interface, reason: str) -> None:
    with pytest.raises(CaptureError) as caught:
        interface_options(interface)
    assert caught.value.reason.startswith(reason)


def test_an_interface_without_a_resolution_counts_microseconds() -> None:
    assert parse_interface(1, 0, ()).resolution == 1_000_000
