"""Parts of a capture: how bounds are written, and which frames are between them."""

import time
from collections.abc import Iterator

import pytest

from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.select import Bound, BoundError, BoundKind, Window

SECOND = 1_000_000_000
NOON = 1_795_262_400 * SECOND
"""2026-11-21T12:00:00Z."""


@pytest.fixture
def kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is 5 hours and 45 minutes ahead of UTC."""
    monkeypatch.setenv("TZ", "NPT-5:45")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0", BoundKind.NUMBER, 0),
        ("17", BoundKind.NUMBER, 17),
        ("0017", BoundKind.NUMBER, 17),
        ("9" * 18, BoundKind.NUMBER, 10**18 - 1),
        ("0s", BoundKind.RELATIVE, 0),
        ("1.5s", BoundKind.RELATIVE, 1_500_000_000),
        ("20ms", BoundKind.RELATIVE, 20_000_000),
        ("7us", BoundKind.RELATIVE, 7_000),
        ("9ns", BoundKind.RELATIVE, 9),
        ("0.000000001s", BoundKind.RELATIVE, 1),
        ("1.0000015ms", BoundKind.RELATIVE, 1_000_001),
        ("2.9ns", BoundKind.RELATIVE, 2),
        ("2026-11-21T12:00:00Z", BoundKind.EPOCH, NOON),
        ("2026-11-21 12:00:00+00:00", BoundKind.EPOCH, NOON),
        ("2026-11-21T14:30:00+02:30", BoundKind.EPOCH, NOON),
        ("2026-11-21T12:00:00.000000001Z", BoundKind.EPOCH, NOON + 1),
        ("2026-11-21T12:00:00,25Z", BoundKind.EPOCH, NOON + SECOND // 4),
        ("2026-11-21T17:45:00", BoundKind.EPOCH, NOON),
        ("2026-11-21T17:45", BoundKind.EPOCH, NOON),
        ("2026-11-21T17:45:00.5", BoundKind.EPOCH, NOON + SECOND // 2),
        ("2026-11-22", BoundKind.EPOCH, NOON + (6 * 3600 + 15 * 60) * SECOND),
        ("1969-12-31T23:59:59.5Z", BoundKind.EPOCH, -SECOND // 2),
    ],
)
@pytest.mark.usefixtures("kathmandu")
def test_a_bound_is_a_number_a_time_or_a_date(text: str, kind: BoundKind, value: int) -> None:
    assert Bound.parse(text) == Bound(kind, value)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-1", "+1", "1 7", "0x11", "1_000", "1e3", "seventeen", "\uff11", "1" * 19),
        *("s", "1.s", ".5s", "1.5", "1,5s", "-1s", "1m", "1 s", "1S", "1.0000000001s", "1.5.5s"),
        *("2026-13-01", "2026-11-31", "2026-11-21T25:00:00Z", "21.11.2026", "12:00", "today"),
        *("2026-11-21T12:00:00.0000000001Z", "2026-11-21T12:00:00.Z", "2026-11-21T12:00.5Z"),
        *(
            "2026-11-21Z",
            "2026-11-21.5",
            "20261121T120000Z",
            "2026-11-21x12:00:00Z",
            "0000-01-01T00:00:00Z",
        ),
    ],
)
def test_another_text_is_an_error_that_lists_the_forms(text: str) -> None:
    with pytest.raises(BoundError) as caught:
        Bound.parse(text)
    assert str(caught.value) == (
        f"{text!r} is no frame number (17), no time since the first frame "
        "(1.5s, 20ms), and no date (2026-11-21T02:15:59Z)"
    )


def frame(number: int) -> Dissection:
    """Frame 1 comes at noon, each of the others ten seconds after the one before."""
    found = Dissection(number, b"", 0, NOON + (number - 1) * 10 * SECOND)
    found.first_ns = NOON
    return found


FRAMES = [frame(number) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("start", "end", "numbers"),
    [
        ("", "", [1, 2, 3, 4, 5]),
        ("3", "", [3, 4, 5]),
        ("", "3", [1, 2, 3]),
        ("2", "4", [2, 3, 4]),
        ("4", "4", [4]),
        ("6", "", []),
        ("10s", "30s", [2, 3, 4]),
        ("10.000000001s", "29.999999999s", [3]),
        ("2026-11-21T12:00:20Z", "2026-11-21T12:00:30Z", [3, 4]),
        ("2", "20s", [2, 3]),
        ("4", "10s", []),
    ],
)
def test_a_window_holds_both_its_bounds(start: str, end: str, numbers: list[int]) -> None:
    window = Window(*(Bound.parse(text) if text else None for text in (start, end)))
    assert [frame.number for frame in FRAMES if frame in window] == numbers


@pytest.mark.parametrize(
    ("start", "end"), [("5", "4"), ("2s", "1999ms"), ("2026-11-21", "2026-11-20")]
)
def test_a_window_that_ends_before_it_begins_is_refused(start: str, end: str) -> None:
    with pytest.raises(BoundError, match="the window ends before it begins"):
        Window(Bound.parse(start), Bound.parse(end))


def test_only_a_number_tells_that_no_later_frame_is_in_the_window() -> None:
    assert [Window(end=Bound.parse("3")).is_over(each) for each in FRAMES] == [
        *(False, False, True, True, True)
    ]
    for end in ("20s", "2026-11-21T12:00:20Z"):
        assert not any(Window(end=Bound.parse(end)).is_over(each) for each in FRAMES)
    assert not any(Window(Bound.parse("1")).is_over(each) for each in FRAMES)
