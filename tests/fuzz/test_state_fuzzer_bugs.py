"""State-level fuzzing finds each bug by a fixed seed, and nothing on healthy adapters."""

import sys
from pathlib import Path

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.state_fuzzer import StateFinding, StateFuzzer, replay, shortened
from tests.fuzz.parameters import fast_or_slow, slow
from tests.fuzz.state_bugs import BUGS, StateBug

SEED = 2
RUNS = 400
"""Sequences within which each bug must be found: ten take about a second."""


def found(fuzzer: StateFuzzer) -> StateFinding:
    """Play until something is found, and return it."""
    return fuzzer.run(lambda: bool(fuzzer.findings) or fuzzer.runs > RUNS)[0]


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_the_oracle_reports_a_bug(bug: StateBug) -> None:
    shown, _ = replay(bug.case, {0: bug.rules})
    assert shown is not None
    assert shown.what == bug.what
    assert replay(bug.case)[0] is None  # without the bug


@pytest.mark.parametrize("name", fast_or_slow(BUGS, ["not counted", "stuck"]))
def test_a_bug_is_found_within_its_budget(name: str) -> None:
    bug = BUGS[name]
    rules = {0: bug.rules}
    one = found(StateFuzzer(SEED, rules=rules, services=(bug.service,), shrinks=False))
    assert one.violation.what == bug.what
    assert replay(one.case, rules)[0] == one.violation
    assert replay(one.case)[0] is None  # without the bug


@pytest.mark.parametrize("name", ["not counted", *slow(["stuck"])])
def test_findings_are_shrunk_by_hypothesis(name: str) -> None:
    fuzzer = StateFuzzer(SEED, rules={0: BUGS[name].rules}, services=("RC",))
    one = found(fuzzer)
    assert len(one.case["steps"]) <= 3
    assert replay(one.case, fuzzer.rules)[0] == one.violation
    assert one.frames


def test_the_database_of_hypothesis_has_failing_sequences(tmp_path: Path) -> None:
    rules = {0: BUGS["not counted"].rules}
    first = StateFuzzer(SEED, tmp_path, rules=rules, services=("RC",), shrinks=False)
    one = found(first)
    again = StateFuzzer(SEED + 1, tmp_path, rules=rules, services=("RC",), shrinks=False)
    assert found(again).violation.signature == one.violation.signature
    assert again.runs <= first.runs


def test_a_case_is_shortened_to_the_steps_that_it_needs() -> None:
    bug = BUGS["stuck"]
    steps = [*BUGS["range too long"].case["steps"], *bug.steps, *bug.steps]
    case = shortened({**bug.case, "steps": steps}, "stuck | settle", {0: bug.rules})
    assert case == bug.case


@pytest.mark.parametrize("runs", [25, *slow([100])])
def test_healthy_adapters_have_no_findings(runs: int) -> None:
    fuzzer = StateFuzzer(SEED)
    assert fuzzer.run(runs) == []
    assert fuzzer.executed > 30 * runs


def test_a_seed_plays_the_same_sequences() -> None:
    batches = [make_fuzzer({"kind": "state"}).batch(5, 0, 4) for _ in range(2)]
    assert batches[0] == batches[1]


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    spec = {"kind": "state", "service": "rc"}
    assert Campaign(spec, SEED, tmp_path, runs=6).run() == []
    resumed = Campaign(spec, SEED, tmp_path, runs=6)
    assert resumed.run() == []
    assert resumed.progress.runs == 12


def test_without_hypothesis_a_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdmawire.fuzz.state_machine", None)
    with pytest.raises(FuzzError, match=r"needs Hypothesis: .*rdmawire\[hypothesis\]"):
        make_fuzzer({"kind": "state"})
