"""Each planted bug is found by packets alone, and the healthy adapter shows nothing."""

from pathlib import Path

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS, PlantedBug, planted, planted_rules
from rdmawire.ib.standard_rules import STANDARD
from tests.fuzz.planted_bug_runs import FIRST_RUNS, first_found, found_within_budget

SLOW_TO_FIND = [planted(name) for name in FIRST_RUNS]


@pytest.mark.parametrize("bug", PLANTED_BUGS.values(), ids=PLANTED_BUGS)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    found = first_found(bug)
    assert make_fuzzer(bug.spec).replay(found.case)[0] is not None
    assert make_fuzzer(bug.healthy_spec).replay(found.case)[0] is None


@pytest.mark.slow
@pytest.mark.parametrize("bug", SLOW_TO_FIND, ids=FIRST_RUNS)
def test_a_planted_bug_is_found_within_its_budget(bug: PlantedBug) -> None:
    assert found_within_budget(bug).run == FIRST_RUNS[bug.name]


@pytest.mark.parametrize("name", ["short-writes", "range-one-too-long", "xrc-any-srq"])
def test_a_minimised_case_has_few_inputs(name: str) -> None:
    bug = planted(name)
    found = first_found(bug)
    smallest = make_fuzzer(bug.spec).minimised(found)
    assert len(smallest.case["inputs"]) <= 3
    assert smallest.violation.signature == found.violation.signature


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
    message = "'short-writes' is a bug of an adapter, not of a connection manager"
    with pytest.raises(FuzzError, match=message):
        make_fuzzer({"kind": "cm", "bug": "short-writes"})


def test_an_unknown_bug_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        FuzzError, match="no planted bug is named 'short-write'; the nearest are short-writes"
    ):
        planted("short-write")
    with pytest.raises(FuzzError, match="no planted bug"):
        make_fuzzer({"kind": "engine", "bug": "x"})
