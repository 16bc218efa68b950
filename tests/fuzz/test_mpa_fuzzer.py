"""The fuzzer of MPA: conversations, what is in them, and readers that find something else."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from rdmawire.dissect.mpa_event import CRCStatus
from rdmawire.errors import FuzzError
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.mpa_conversation import (
    FPDU,
    NOT_IWARP,
    START_UP,
    Conversation,
    Cut,
    Damage,
    Side,
    StreamItem,
    TCPSegment,
    Unit,
    damaged,
    parts,
    segments,
    truth,
)
from rdmawire.fuzz.mpa_fuzzer import MPAFuzzer, compared, drawn, read_segments
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS
from rdmawire.fuzz.small_mpa_reader import small_reader
from rdmawire.wire.mpa import parse_fpdu

PLAIN = Conversation(units=(Unit(0, 60), Unit(0, 61, 1), Unit(1, 700)), seed=3)
MARKED = replace(PLAIN, sides=(Side(m=1, c=1), Side(m=1, private=8)))


def streams(found: Sequence[TCPSegment]) -> list[bytes]:
    """Both streams, from segments that lack nothing."""
    made = [bytearray(), bytearray()]
    for one in sorted(found, key=lambda one: one.position):
        del made[one.side][one.position :]
        made[one.side] += one.data
    return [bytes(one) for one in made]


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("case", [PLAIN, MARKED])
def test_however_it_is_cut_the_bytes_are_the_same(case: Conversation, cut: Cut) -> None:
    case = replace(case, cut=cut)
    whole = [b"".join(part.data for part in parts(case) if part.side == side) for side in (0, 1)]
    covered: list[dict[int, int]] = [{}, {}]
    for one in segments(case):
        for position, byte in enumerate(one.data, one.position):
            assert covered[one.side].setdefault(position, byte) == byte
    assert [bytes(each[at] for at in sorted(each)) for each in covered] == whole
    assert [sorted(each) for each in covered] == [list(range(len(each))) for each in whole]


def test_cuts_are_different() -> None:
    shapes = {cut: [one[:2] for one in segments(replace(MARKED, cut=cut))] for cut in Cut}
    assert len({tuple(shape) for shape in shapes.values()}) == len(Cut)
    swapped = [one.position for one in segments(replace(MARKED, cut=Cut.SWAPPED)) if one.side == 1]
    assert any(first > second for first, second in pairwise(swapped))


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("case", [PLAIN, MARKED])
@pytest.mark.parametrize("read", [read_segments, small_reader()])
def test_readers_find_what_was_sent(case: Conversation, cut: Cut, read: Any) -> None:
    found = read(segments(replace(case, cut=cut)))
    assert [one.kind for one in found[0]] == [START_UP, FPDU, FPDU]
    assert {one.status for each in found for one in each[1:]} == {
        "good" if case.checks_crc else "absent"
    }
    assert found == truth(case).seen


def test_a_changed_byte_is_a_bad_crc_and_nothing_else() -> None:
    for damage in (Damage.BODY, Damage.MARKER):
        for at in range(40):
            case = replace(MARKED, damage=damage, damaged_part=2, at=at)
            found = read_segments(segments(case))
            assert [one.status for each in found for one in each if one.kind == FPDU] == [
                *("good", "good"),
                "bad",
            ]
            assert compared(case, found) is None


def test_a_capture_that_ends_anywhere_has_the_parts_before() -> None:
    whole = sum(len(part.data) for part in parts(PLAIN))
    counts = []
    for at in range(whole + 1):
        case = replace(PLAIN, damage=Damage.END, at=at, cut=Cut.RANDOM)
        found = read_segments(segments(case))
        assert compared(case, found) is None
        counts.append(sum(map(len, found)))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 5)


@pytest.mark.parametrize("side", [0, 1])
def test_another_key_is_not_iwarp(side: int) -> None:
    for at in range(64):
        case = replace(PLAIN, damage=Damage.KEY, damaged_part=side, at=at)
        found = read_segments(segments(case))
        assert found[side] == [StreamItem(NOT_IWARP, 0, 0)]
        assert compared(case, found) is None


def test_a_lost_fpdu_is_found_to_be_lost() -> None:
    units = tuple(Unit(0, 200, number % 2) for number in range(8))
    case = Conversation((Side(c=1), Side()), units, Damage.LOST, damaged_part=3)
    first, _ = read_segments(segments(case))
    assert [one.kind for one in first] == [START_UP, *[FPDU] * 3, "Lost", *[FPDU] * 4]
    assert compared(case, (first, [StreamItem(START_UP, 0, 20)])) is None


def test_what_cannot_be_in_the_bytes_is_a_difference() -> None:
    case = replace(PLAIN, damage=Damage.LENGTH, damaged_part=0, at=0)
    first, second = read_segments(segments(case))
    twice = [*first, *first[-1:]]
    assert first
    assert compared(case, (first, second)) is None
    assert compared(case, (twice, second)) is not None
    beyond = [*first, StreamItem(FPDU, 10_000, 20, "absent")]
    wrong = compared(case, (beyond, second))
    assert wrong is not None
    assert wrong.expected.startswith("nothing after byte ")


def test_the_dissector_reads_damaged_conversations() -> None:
    batch = make_fuzzer({"kind": "mpa"}).batch(4, 0, 200)
    assert batch.found == []
    assert {damage for _, damage, *_ in batch.reached} == {*Damage}


@pytest.mark.slow
def test_the_dissector_has_no_findings() -> None:
    batch = make_fuzzer({"kind": "mpa"}).batch(4, 0, 1500)
    assert batch.found == []
    assert batch.executed > 100_000
    assert {(cut, damage) for cut, damage, *_ in batch.reached} == {
        (cut, damage) for cut in Cut for damage in Damage
    }


def test_the_small_reader_has_no_findings() -> None:
    fuzzer = MPAFuzzer({"kind": "mpa"}, small_reader())
    fuzzer.damages = (Damage.BODY, Damage.MARKER, Damage.KEY, Damage.END)
    assert fuzzer.batch(4, 0, 150).found == []


BUGS = [bug for bug in PLANTED_BUGS.values() if bug.mpa is not None]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_and_minimised(bug: Any) -> None:
    fuzzer = make_fuzzer(bug.spec)
    found = fuzzer.batch(1, 0, 40).found
    assert found
    smallest = fuzzer.minimised(found[0])
    assert len(smallest.case["units"]) <= 2
    assert smallest.violation.signature == found[0].violation.signature
    shown, frames = fuzzer.replay(smallest.case)
    assert shown == smallest.violation
    assert len(frames) == len(segments(Conversation.from_json(smallest.case))) + 2
    assert any("start-up with M" in line for line in fuzzer.describe(smallest.case))
    assert make_fuzzer(bug.healthy_spec).replay(smallest.case)[0] is None


def test_an_exception_of_a_reader_is_a_finding() -> None:
    def fails(found: Sequence[TCPSegment]) -> tuple[list[StreamItem], list[StreamItem]]:
        raise IndexError(f"{len(found)} segments")

    found = MPAFuzzer({"kind": "mpa"}, fails).batch(1, 0, 1).found
    assert found[0].violation.signature.startswith("exception | IndexError test_mpa_fuzzer:fails")
    assert found[0].violation.expected == "no exception"


def test_cases_are_json_and_the_same_for_a_seed() -> None:
    for number in range(50):
        case = drawn(Random(number))
        assert Conversation.from_json(case.as_json()) == case
        assert drawn(Random(number)) == case
        assert damaged(case) == damaged(Conversation.from_json(case.as_json()))


@pytest.mark.parametrize(
    "change",
    [
        {"sides": [[0, 0, 0, 0, 0]]},
        {"sides": [[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]},
        {"sides": [[0, 0, 513, 0, 0], [0, 0, 0, 0, 0]]},
        {"units": [[0, 5, 0]]},
        {"units": [[2, 60, 0]]},
        {"units": [[0, 60, 0]] * 65},
        {"damage": "ALL"},
        {"cut": 3},
        {"seed": -1},
        {"at": "x"},
    ],
)
def test_a_case_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FuzzError, match="case: "):
        Conversation.from_json(PLAIN.as_json() | change)


def test_a_bug_of_something_else_is_refused() -> None:
    with pytest.raises(
        FuzzError, match="'short-writes' is a bug of an adapter, not of a reader of MPA"
    ):
        make_fuzzer({"kind": "mpa", "bug": "short-writes"})
    with pytest.raises(FuzzError, match="mpa has no setting 'service'"):
        make_fuzzer({"kind": "mpa", "service": "rc"})


def test_crcs_that_neither_side_wants_stay_unused_after_a_search() -> None:
    """The initiator's private data is too long, so its FPDUs are searched, by their good CRC."""
    good = [
        replace(PLAIN, damage=Damage.PRIVATE, seed=seed)
        for seed in range(40)
        if all(parse_fpdu(part.data).good for part in parts(replace(PLAIN, seed=seed))[2:])
    ]
    assert good
    for case in good:
        first, second = read_segments(segments(case))
        assert FPDU in [one.kind for one in first]
        assert {one.status for one in second if one.kind == FPDU} == {CRCStatus.ABSENT.value}
