"""What is known of a frame as a whole."""

import time
from collections.abc import Iterator

import pytest

from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.fields import calendar
from rdmawire.dissect.select import Selection
from rdmawire.units import decimal_seconds

SECOND = 1_000_000_000


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0.000000000"),
        (1, "0.000000001"),
        (-1, "-0.000000001"),
        (-1_500_000_000, "-1.500000000"),
        (1_795_262_400_000_000_007, "1795262400.000000007"),
    ],
)
def test_seconds_are_exact(nanoseconds: int, text: str) -> None:
    assert decimal_seconds(nanoseconds) == text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "Jan  1, 1970 01:00:00.000000000 CET"),
        (-1, "Jan  1, 1970 00:59:59.999999999 CET"),
        (1_783_036_799 * SECOND + 5, "Jul  3, 2026 01:59:59.000000005 CEST"),
        (1_795_262_400 * SECOND, "Nov 21, 2026 13:00:00.000000000 CET"),
        (1 << 90, f"{(1 << 90) // SECOND}.{(1 << 90) % SECOND:09d} s since the epoch"),
    ],
)
@pytest.mark.usefixtures("central_europe")
def test_the_time_of_day_is_local(time_ns: int, text: str) -> None:
    assert calendar(time_ns) == text


def frame() -> Dissection:
    found = Dissection(7, bytes(30), 100, 5 * SECOND)
    found.first_ns, found.previous_ns = 1 * SECOND, 6 * SECOND
    return found


def values(found: Dissection, name: str) -> list[str]:
    return Selection([name]).values(found)[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frame.number", ["7"]),
        ("frame.time_epoch", ["5.000000000"]),
        ("frame.time_delta", ["-1.000000000"]),
        ("frame.time_relative", ["4.000000000"]),
        ("frame.len", ["100"]),
        ("frame.cap_len", ["30"]),
        ("frame.interface_id", []),
        ("frame.interface_name", []),
        ("frame.interface_description", []),
        ("frame.comment", []),
        ("rdmawire.file", []),
    ],
)
def test_every_frame_has_numbers_and_times(name: str, value: list[str]) -> None:
    assert values(frame(), name) == value


def test_a_frame_is_never_shorter_than_nothing() -> None:
    """A record of ERF may say that fewer bytes were on the wire than its own header has."""
    found = frame()
    found.length, found.lead = 7, 16
    assert values(found, "frame.len") == ["0"]


def test_some_frames_have_more() -> None:
    found = frame()
    found.lead, found.interface, found.comments = 8, 0, ("first", "second\n")
    found.file = "a.pcap"
    found.interface_name, found.interface_description = "eth0\n", "the left port"
    assert values(found, "frame.len") == ["92"]
    assert values(found, "frame.cap_len") == ["22"]
    assert values(found, "frame.interface_id") == ["0"]
    assert values(found, "frame.interface_name") == [r"eth0\n"]
    assert values(found, "frame.interface_description") == ["the left port"]
    assert values(found, "frame.comment") == ["first", r"second\n"]
    assert values(found, "rdmawire.file") == ["a.pcap"]
