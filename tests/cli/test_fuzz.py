"""`rdmawire fuzz`: campaigns, findings and their replay from the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire, refused


def test_a_healthy_engine_ends_with_0(tmp_path: Path) -> None:
    done = rdmawire("fuzz", "run", "--runs", "300", "--seed", "1", "-o", str(tmp_path))
    assert done.returncode == 0
    assert "fuzzing engine; seed 1" in done.stdout
    assert "300 cases" in done.stdout
    assert "0 findings" in done.stdout


def test_findings_end_with_1_and_are_played_again(tmp_path: Path) -> None:
    words = ("--profile", "rxe", "--runs", "50", "--seed", "1", "--max-findings", "3")
    done = rdmawire("fuzz", "run", *words, "-o", str(tmp_path), "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["seed"] == 1
    assert found["target"] == {"kind": "engine", "profile": "rxe"}
    folder = found["findings"][0]["folder"]
    again = rdmawire("fuzz", "replay", folder)
    assert again.returncode == 1
    assert found["findings"][0]["clause"] in again.stdout
    shown = json.loads(rdmawire("fuzz", "replay", folder, "--json").stdout)
    assert shown[0]["violation"]["expected"] == found["findings"][0]["expected"]
    lines = rdmawire("dissect", str(Path(folder) / "packets.pcapng")).stdout.splitlines()
    assert "RoCE" in lines[0]


def test_a_campaign_goes_on_with_its_seed(tmp_path: Path) -> None:
    words = ("fuzz", "run", "--runs", "100", "-o", str(tmp_path))
    assert rdmawire(*words, "--seed", "7").returncode == 0
    done = rdmawire(*words)
    assert "seed 7" in done.stdout
    assert "200 cases" in done.stdout


def test_an_adapter_is_fuzzed_as_a_requester(tmp_path: Path) -> None:
    words = ("--role", "requester", "--runs", "100", "--seed", "1", "-o", str(tmp_path), "--json")
    done = rdmawire("fuzz", "run", *words)
    assert done.returncode == 0
    assert json.loads(done.stdout)["target"] == {"kind": "requester"}


def test_targets_are_listed() -> None:
    assert "engine" in rdmawire("fuzz", "list").stdout
    assert "engine" in json.loads(rdmawire("fuzz", "list", "--json").stdout)["targets"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rum",), "no subcommand is named 'rum'; the nearest is run"),
        (("run", "engin"), "no fuzzer is named 'engin'; the nearest is engine"),
        (("run", "--profile", "rxf"), "no profile is named 'rxf'"),
        (("run", "--service", "RD"), "service 'RD' is none of rc, uc, ud, xrc, all"),
        (("run", "requester", "--role", "requester"), "--role is for the target engine"),
        (("run", "--role", "both"), "'both' is not one of 'responder', 'requester'"),
        (("run", "--time", "soon"), "'soon' is no time such as 60s"),
        (("run", "--time", "-1s"), "no time such as 60s"),
        (("replay", "no-such"), "no-such"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("fuzz", *words, status=2)
