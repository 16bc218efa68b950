"""What captures amount to."""

import pytest

from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.node import Check, Node
from rdmawire.dissect.output import FrameCounts, counted

GOOD = Check("ICRC", 1, 1, 8)
BAD = Check("ICRC", 0x11, 0x22, 8)
BAD_IP = Check("IPv4 header checksum", 1, 2, 4)


def frame(
    number: int, *checks: Check, absent: tuple[str, ...] = (), reason: str = ""
) -> Dissection:
    found = Dissection(number, b"", 0, 0)
    found.checks += checks
    found.unverified += absent
    if reason:
        found.nodes.append(Node("malformed", 0, b"", reason=reason))
    return found


def tally(*frames: Dissection) -> FrameCounts:
    found = FrameCounts()
    for each in frames:
        found.add(each)
    return found


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([], "0 frames; none malformed"),
        ([frame(1)], "1 frame; none malformed"),
        ([frame(1, GOOD), frame(2, GOOD)], "2 frames; ICRC 2 good; none malformed"),
        (
            [frame(1, GOOD, BAD, absent=("ICRC", "VCRC")), frame(2, reason="short")],
            "2 frames; ICRC 1 good, 1 BAD, 1 not verified; VCRC 1 not verified; 1 malformed",
        ),
    ],
)
def test_a_tally_is_a_line(frames: list[Dissection], text: str) -> None:
    assert str(tally(*frames)) == text


MIXED = tally(
    frame(1, GOOD, absent=("VCRC",)),
    frame(2, GOOD, BAD_IP),
    frame(3, BAD),
    frame(4, BAD, reason="no room"),
    frame(5, reason="reserved"),
)


@pytest.mark.parametrize(
    ("names", "malformed", "expected"),
    [
        (["ICRC"], False, ["2 bad checksums, the first in frame 3: " + str(BAD)]),
        (["ICRC", BAD_IP.name], False, ["3 bad checksums, the first in frame 2: " + str(BAD_IP)]),
        (["VCRC"], False, []),
        ([], True, ["2 malformed frames, first frame 4: no room"]),
        ([BAD_IP.name], True, [
            "1 bad checksum, the first in frame 2: " + str(BAD_IP),
            "2 malformed frames, first frame 4: no room",
        ]),
    ],
)  # fmt: skip
def test_objections_name_what_is_wrong_and_where_first(
    names: list[str], malformed: bool, expected: list[str]
) -> None:
    assert list(MIXED.objections(names, malformed=malformed)) == expected


def test_nothing_is_objected_to_what_holds() -> None:
    sound = tally(frame(1, GOOD, absent=("VCRC",)))
    assert list(sound.objections(["ICRC", "VCRC"], malformed=True)) == []


def test_counts_are_objects_too() -> None:
    assert MIXED.as_object() == {
        "frames": 5,
        "malformed": 2,
        "checksums": {
            "ICRC": {"good": 2, "bad": 2, "not_verified": 0},
            "IPv4 header checksum": {"good": 0, "bad": 1, "not_verified": 0},
            "VCRC": {"good": 0, "bad": 0, "not_verified": 1},
        },
    }


def test_tallies_add_up() -> None:
    both = tally(frame(1, GOOD, BAD))
    both.include(MIXED)
    assert str(both) == (
        "6 frames; ICRC 3 good, 3 BAD; IPv4 header checksum 1 BAD; VCRC 1 not verified; 2 malformed"
    )


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_things_are_counted_in_words(number: int, text: str) -> None:
    assert counted(number, "file") == text


def test_a_check_shows_what_was_found_and_what_was_expected() -> None:
    assert str(BAD) == "ICRC bad: found 0x00000011, expected 0x00000022"
    assert str(GOOD) == "ICRC good"
