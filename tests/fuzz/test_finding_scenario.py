"""The scenario in the folder of a finding: it shows the bug, and passes without it."""

from pathlib import Path
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.campaign import RUNS_OF_BATCH
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.finding import Finding, write_finding
from rdmawire.fuzz.fuzzer import Batch, EngineFuzzer, Found, Frame, ScenarioFuzzer
from rdmawire.fuzz.oracle import Violation
from rdmawire.ib.rules import Rules
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play
from tests.fuzz.bugs_of_rc import BUGS

SEED = 1
SPEC = {"kind": "engine", "service": "rc"}


def first_findings(fuzzer: EngineFuzzer, most: int = 3) -> list[Found]:
    """Findings with different signatures, of the first batch that has any."""
    for first in range(0, 10 * RUNS_OF_BATCH, RUNS_OF_BATCH):
        batch = fuzzer.batch(SEED, first, RUNS_OF_BATCH)
        if batch.found:
            return list({one.violation.signature: one for one in batch.found}.values())[:most]
    return []


def written(found: Found, folder: Path, fuzzer: Any, **spec: str) -> tuple[Path, str]:
    """The folder of a finding, and the text of its report."""
    finding = Finding({**SPEC, **spec}, SEED, found.run, found.violation, found.case)
    place = write_finding(folder, finding, fuzzer)
    return place, (place / "report.txt").read_text()


def passes(place: Path, rules: dict[str, Rules]) -> bool:
    return play(read_scenario_text((place / "scenario.yaml").read_text()), rules=rules).passed


@pytest.mark.parametrize("name", BUGS)
def test_the_scenario_of_a_finding_shows_the_bug(name: str, tmp_path: Path) -> None:
    fuzzer = EngineFuzzer({**SPEC, "bug": "planted"}, EngineTarget(rules=BUGS[name]))
    findings = first_findings(fuzzer)
    assert findings
    for found in findings:
        place, report = written(fuzzer.minimised(found), tmp_path, fuzzer, bug="planted")
        assert passes(place, {}), report
        assert not passes(place, {"server": BUGS[name]}), report
        assert "rdmawire run --bug server=planted FOLDER/scenario.yaml" in report
        assert "It passes without the bug: rdmawire run FOLDER/scenario.yaml" in report


def test_the_scenario_has_the_profile(tmp_path: Path) -> None:
    spec = {**SPEC, "profile": "rxe"}
    fuzzer = EngineFuzzer(spec)
    (found,) = first_findings(fuzzer, 1)
    place, report = written(fuzzer.minimised(found), tmp_path, fuzzer, profile="rxe")
    assert "    profile: rxe\n" in (place / "scenario.yaml").read_text()
    assert not passes(place, {})
    assert "Play it as a scenario: rdmawire run FOLDER/scenario.yaml" in report


class NoScenario:
    """A fuzzer of something that has no scenarios."""

    def batch(self, _: int, first: int, runs: int) -> Batch:
        return Batch(first, runs, 0, [])

    def minimised(self, found: Found) -> Found:
        return found

    def replay(self, _: Any) -> tuple[Violation | None, list[Frame]]:
        return None, []

    def describe(self, case: Any) -> list[str]:
        return [str(case)]


class RefusedScenario(NoScenario):
    """A fuzzer whose cases no scenario can play."""

    def scenario(self, case: Any, _: Violation) -> str:
        raise FuzzError(f"no scenario has value {case['value']}")


@pytest.mark.parametrize(
    ("fuzzer", "why"),
    [
        (NoScenario(), "No scenario.yaml: a scenario cannot play findings of this kind"),
        (RefusedScenario(), "No scenario.yaml: no scenario has value 7"),
    ],
)
def test_a_report_says_why_there_is_no_scenario(
    fuzzer: NoScenario, why: str, tmp_path: Path
) -> None:
    shown = Violation(0, "a value", "6", "7", "", "values | 7")
    place, report = written(Found(shown, {"value": 7}, 0), tmp_path, fuzzer)
    assert report.splitlines()[-1] == why
    assert not (place / "scenario.yaml").exists()
    assert isinstance(fuzzer, ScenarioFuzzer) == isinstance(fuzzer, RefusedScenario)
