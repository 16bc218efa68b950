"""The scenario in the folder of a finding: it shows the bug, and passes without it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.finding import Finding, write_finding
from rdmawire.fuzz.fuzzer import (
    Batch,
    BatchFuzzer,
    EngineFuzzer,
    Found,
    Frame,
    ScenarioFuzzer,
    make_fuzzer,
)
from rdmawire.fuzz.inputs import Case, PacketInput
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS, pending_bugs
from rdmawire.fuzz.setup import Setup
from rdmawire.ib.rules import Rules
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.wire.opcode import Opcode
from tests.fuzz.bugs_of_rc import BUGS
from tests.fuzz.parameters import fast_or_slow
from tests.fuzz.planted_bug_runs import SEED, first_found, found_by

SPEC = {"kind": "engine", "service": "rc"}


PENDING = "pending replies"


def is_pending(found: Found) -> bool:
    """Whether it is about replies that wait: these have no scenario."""
    return found.violation.what == PENDING


def has_scenario(found: Found) -> bool:
    """Whether a scenario can play it: native InfiniBand has none, either."""
    network = found.case["setup"].get("network", "")
    return not is_pending(found) and not network.startswith("IB_")


def written(found: Found, folder: Path, fuzzer: Any, **spec: str) -> tuple[Path, str]:
    """The folder of a finding, and the text of its report."""
    finding = Finding({**SPEC, **spec}, SEED, found.run, found.violation, found.case)
    place = write_finding(folder, finding, fuzzer)
    return place, (place / "report.txt").read_text()


def passes(place: Path, rules: dict[str, Rules]) -> bool:
    return play(read_scenario_text((place / "scenario.yaml").read_text()), rules=rules).passed


SEARCHED = ["a key of 24 bits", "no check of DMA lengths", "the last byte may be missing"]
"""Bugs that few runs find."""


@pytest.mark.parametrize("name", fast_or_slow(BUGS, BUGS.keys() - SEARCHED))
def test_the_scenario_of_a_finding_shows_the_bug(name: str, tmp_path: Path) -> None:
    fuzzer = EngineFuzzer({**SPEC, "bug": "planted"}, EngineTarget(rules=BUGS[name]))
    found = found_by(fuzzer, wanted=has_scenario)
    place, report = written(fuzzer.minimised(found), tmp_path, fuzzer, bug="planted")
    assert passes(place, {}), report
    assert not passes(place, {"server": BUGS[name]}), report
    assert "rdmawire run --bug server=planted FOLDER/scenario.yaml" in report
    assert "It passes without the bug: rdmawire run FOLDER/scenario.yaml" in report


def test_the_scenario_has_the_profile(tmp_path: Path) -> None:
    spec = {**SPEC, "profile": "rxe"}
    fuzzer = EngineFuzzer(spec)
    found = found_by(fuzzer, wanted=has_scenario)
    place, report = written(fuzzer.minimised(found), tmp_path, fuzzer, profile="rxe")
    assert "    profile: rxe\n" in (place / "scenario.yaml").read_text()
    assert not passes(place, {})
    assert "Play it as a scenario, which fails: rdmawire run FOLDER/scenario.yaml" in report


TRANSMITS_LATER = [bug.name for bug in pending_bugs.BUGS]


@pytest.mark.parametrize("name", fast_or_slow(TRANSMITS_LATER, ["one-read-too-few"]))
def test_a_target_that_transmits_later_has_no_scenario(name: str, tmp_path: Path) -> None:
    bug = PLANTED_BUGS[name]
    fuzzer: Any = make_fuzzer(bug.spec)
    found = first_found(bug, is_pending)
    smallest = fuzzer.minimised(found)
    assert len(smallest.case["inputs"]) <= 8
    place, report = written(smallest, tmp_path, fuzzer, **bug.spec)
    assert not (place / "scenario.yaml").exists()
    assert "a scenario cannot play this case: the target transmits later" in report


WITH_SCENARIO = [
    name
    for name, bug in PLANTED_BUGS.items()
    if bug.kind in ("engine", "requester") and name not in TRANSMITS_LATER
]
FAST = [
    "any-access-right",
    "short-writes",
    "pad-of-sends",
    "completed-twice",
    "any-qkey",
    "uc-ignores-gaps",
    "xrc-any-srq",
    "any-peer",
    "naks-repeated",
    "without-credits",
    "ud-local-error-is-fatal",
    "xrc-first-names-queue",
    "atomic-operands-exchanged",
]
"""Bugs of both roles and of each service, in replies, memory, completions and requests."""
NOT_SHOWN = ["atomic-operands-exchanged"]
"""Bugs whose smallest case shows nothing in a scenario: its memory and keys are other ones."""


@pytest.mark.parametrize("name", fast_or_slow(WITH_SCENARIO, FAST))
def test_the_scenario_of_a_planted_bug_fails_with_it_alone(name: str, tmp_path: Path) -> None:
    bug = PLANTED_BUGS[name]
    fuzzer: Any = make_fuzzer(bug.spec)
    found = first_found(bug, has_scenario)
    place, report = written(fuzzer.minimised(found), tmp_path, fuzzer, **bug.spec)
    if bug.name in NOT_SHOWN:
        assert report.splitlines()[-1].endswith("it does not show the violation")
        return
    assert passes(place, {}), report
    assert not passes(place, {"server": bug.rules}), report
    assert f"which fails: rdmawire run --bug server={bug.name} FOLDER/scenario.yaml" in report
    assert "It passes without the bug: rdmawire run FOLDER/scenario.yaml" in report


def test_the_report_names_a_scenario_that_does_not_show_the_fault(tmp_path: Path) -> None:
    found = Found(Violation(0, "replies", "", "", "", "replies"), CASE, 0)
    place, report = written(found, tmp_path, EngineFuzzer(SPEC))
    assert passes(place, {})
    assert report.splitlines()[-2:] == [
        "See the packets in a scenario: rdmawire run FOLDER/scenario.yaml",
        "It passes: what it expects does not tell the fault from a healthy adapter.",
    ]


CASE: dict[str, Any] = Case(Setup(), (PacketInput(int(Opcode.RC_SEND_ONLY)),)).as_json()


def test_the_scenario_of_a_finding_on_rocev1_shows_the_bug(tmp_path: Path) -> None:
    bug = PLANTED_BUGS["short-writes"]
    fuzzer = EngineFuzzer(bug.spec)
    found = first_found(bug, has_scenario)
    smallest = fuzzer.minimised(found)
    case = {**smallest.case, "setup": {**smallest.case["setup"], "network": "ROCE1"}}
    place, report = written(smallest._replace(case=case), tmp_path, fuzzer, **bug.spec)
    assert "gid type: ROCE_V1" in (place / "scenario.yaml").read_text()
    assert passes(place, {}), report
    assert not passes(place, {"server": bug.rules}), report


def test_the_report_of_native_infiniband_names_no_scenario(tmp_path: Path) -> None:
    bug = PLANTED_BUGS["short-writes"]
    fuzzer = EngineFuzzer(bug.spec)
    found = first_found(bug, has_scenario)
    case = {**found.case, "setup": {**found.case["setup"], "network": "IB_LOCAL"}}
    place, report = written(found._replace(case=case), tmp_path, fuzzer, **bug.spec)
    assert not (place / "scenario.yaml").exists()
    assert report.splitlines()[-1] == (
        "No scenario.yaml: a scenario cannot play this case: its links are Ethernet, "
        "not native InfiniBand"
    )


class NoScenario(BatchFuzzer):
    """A fuzzer of something that has no scenarios."""

    def parts(self, _: int, first: int, runs: int) -> Iterator[Batch]:
        yield Batch(first, runs, 0, [])

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        return found

    def replay(self, _: Any) -> tuple[Violation | None, list[Frame]]:
        return None, []

    def describe(self, case: Any) -> list[str]:
        return [str(case)]


class RefusedScenario(NoScenario):
    """A fuzzer whose cases no scenario can play."""

    is_software_rnic = True

    def scenario(self, case: Any, _: Violation) -> str:
        raise FuzzError(f"no scenario has value {case['value']}")

    def passes(self, _: str, *, healthy: bool = False) -> bool:
        return healthy


@pytest.mark.parametrize(
    ("fuzzer", "why"),
    [
        (NoScenario(), "No scenario.yaml: a scenario cannot play findings of this kind"),
        (RefusedScenario(), "No scenario.yaml: no scenario has value 7"),
    ],
)
def test_a_report_has_the_reason_why_there_is_no_scenario(
    fuzzer: NoScenario, why: str, tmp_path: Path
) -> None:
    shown = Violation(0, "a value", "6", "7", "", "values | 7")
    place, report = written(Found(shown, {"value": 7}, 0), tmp_path, fuzzer)
    assert report.splitlines()[-1] == why
    assert not (place / "scenario.yaml").exists()
    assert isinstance(fuzzer, ScenarioFuzzer) == isinstance(fuzzer, RefusedScenario)
