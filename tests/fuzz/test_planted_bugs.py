"""Each planted bug is found by packets alone, and the healthy adapter shows nothing."""

from pathlib import Path

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.fuzzer import Fuzzer, make_fuzzer
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS, PlantedBug, planted, planted_rules
from rdmawire.ib.standard_rules import STANDARD

SEED = 1
BUDGET = 25_000
"""Packets within which each bug must be found."""
RUNS = 20


def fuzzer(bug: PlantedBug) -> Fuzzer:
    return make_fuzzer(bug.spec)


@pytest.mark.parametrize("bug", PLANTED_BUGS.values(), ids=PLANTED_BUGS)
def test_a_planted_bug_is_found_within_its_budget(bug: PlantedBug) -> None:
    fuzz, executed, first = fuzzer(bug), 0, 0
    while executed < BUDGET:
        batch = fuzz.batch(SEED, first, RUNS)
        executed, first = executed + batch.executed, first + RUNS
        if batch.found:
            break
    assert batch.found, f"{executed} packets"
    shown, _ = fuzz.replay(batch.found[0].case)
    assert shown is not None
    healthy = make_fuzzer(bug.healthy_spec)
    assert healthy.replay(batch.found[0].case)[0] is None


@pytest.mark.parametrize("name", ["short-writes", "range-one-too-long", "xrc-any-srq"])
def test_a_minimised_case_has_few_inputs(name: str) -> None:
    fuzz = fuzzer(planted(name))
    found = fuzz.batch(SEED, 0, 1000).found
    smallest = fuzz.minimised(found[0])
    assert len(smallest.case["inputs"]) <= 3
    assert smallest.violation.signature == found[0].violation.signature


def test_there_are_at_least_forty_bugs_with_a_clause_each() -> None:
    assert len(PLANTED_BUGS) >= 40
    for bug in PLANTED_BUGS.values():
        assert (bug.rules is STANDARD) == (bug.kind in ("parser", "cm", "mpa"))
        assert bug.about
        assert bug.clause.startswith(("IBA ", "RFC "))


def test_the_page_has_a_row_for_each_bug() -> None:
    page = (Path(__file__).parents[2] / "docs" / "planted-bugs.md").read_text()
    rows = [line.split(" | ")[:5] for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        [f"| `{bug.name}`", bug.about, bug.kind, shown_service(bug), bug.clause]
        for bug in PLANTED_BUGS.values()
    ]


def shown_service(bug: PlantedBug) -> str:
    return bug.service if bug.kind in ("parser", "cm", "mpa") else bug.service.upper()


def test_a_bug_of_a_parser_is_not_one_of_an_adapter() -> None:
    with pytest.raises(FuzzError, match="'pad-of-one-bit' is a bug of a parser"):
        planted_rules("pad-of-one-bit")
    with pytest.raises(FuzzError, match="'short-writes' is a bug of an adapter"):
        make_fuzzer({"kind": "parser", "bug": "short-writes"})


def test_a_bug_of_a_connection_manager_is_not_one_of_an_adapter() -> None:
    with pytest.raises(FuzzError, match="'no-timewait' is a bug of a connection manager"):
        planted_rules("no-timewait")
    said = "'short-writes' is a bug of an adapter, not of a connection manager"
    with pytest.raises(FuzzError, match=said):
        make_fuzzer({"kind": "cm", "bug": "short-writes"})


def test_an_unknown_bug_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        FuzzError, match="no planted bug is named 'short-write'; the nearest are short-writes"
    ):
        planted("short-write")
    with pytest.raises(FuzzError, match="no planted bug"):
        make_fuzzer({"kind": "engine", "bug": "x"})
