"""`rdmawire fuzz replay`: what a finding names is run only if it is trusted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import mistake, rdmawire, refused


def test_findings_end_with_1_and_are_played_again(tmp_path: Path) -> None:
    words = ("--profile", "rxe", "--runs", "50", "--seed", "1", "--max-findings", "1")
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rum",), "no subcommand is named 'rum'; the nearest is run"),
        (("run", "engin"), "no target is named 'engin'; the nearest is engine: engine, requester"),
        (("run", "--profile", "rxf"), "no profile is named 'rxf'"),
        (("run", "--service", "RD"), "service 'RD' is none of rc, uc, ud, xrc, all"),
        (("run", "requester", "--role", "requester"), "--role is for the target engine"),
        (("run", "--bug", ""), "no planted bug is named ''"),
        (("run", "--command", ""), "the command needs {pcap}"),
        (("run", "command"), "the target command needs a command: use --command"),
        (("run", "--command", "cat ' {pcap}"), "No closing quotation"),
        (("run", "--role", "both"), "'both' is not one of 'responder', 'requester'"),
        (("run", "--time", "soon"), "'soon' is not a time above 0, such as 60s"),
        (("run", "--time", "-1s"), "not a time above 0, such as 60s"),
        (("run", "--time", "0s"), "not a time above 0, such as 60s"),
        (("run", "parser"), "the target parser needs a function: use --function"),
        (("run", "codecs", "--corpus", "none"), "seed corpus: none: there is no such folder"),
        (("run", "codecs", "--corpus", "."), "seed corpus: .: no file ends with .pcap, .pcapng"),
        (("replay", "no-such"), "no-such"),
        (("replay", "."), ".: no finding.json in it"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in mistake("fuzz", *words)


PARSER = "def last(data):\n    return data[34 + (data[38] << 8 | data[39]) - 1]\n"


def test_a_function_of_this_folder_is_fuzzed_and_played_again_only_there_and_on_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PARSER)
    words = ("--function", "mine:last", "--runs", "50", "--seed", "1", "--max-findings", "1")
    done = rdmawire("fuzz", "run", *words, "--json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["findings"]
    assert "IndexError" in found["happened"]
    folder = str(tmp_path / found["folder"])
    assert "it runs 'mine:last': add --trust" in refused("fuzz", "replay", folder, status=2)
    again = rdmawire("fuzz", "replay", "--trust", folder)
    assert again.returncode == 1
    assert "IndexError" in again.stdout
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert refused("fuzz", "replay", "--trust", folder, status=2) == (
        f"rdmawire: {folder}: 'mine:last': there is no module 'mine' in the current "
        "folder or on PYTHONPATH: run the command in the folder of the module"
    )


@pytest.fixture(scope="module")
def short_writes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A finding of a planted bug, as ``fuzz run --json`` prints it."""
    words = ("--bug", "short-writes", "--seed", "1", "--max-findings", "1", "--json")
    done = rdmawire("fuzz", "run", *words, "-o", str(tmp_path_factory.mktemp("found")))
    (found,) = json.loads(done.stdout)["findings"]
    return dict(found)


def test_all_findings_are_played_again_though_some_are_bad(
    short_writes: dict[str, Any], tmp_path: Path
) -> None:
    found = short_writes
    above = str(Path(found["folder"]).parent)
    folders = (str(tmp_path / "first"), found["folder"], above, found["folder"])
    done = rdmawire("fuzz", "replay", *folders)
    assert done.returncode == 2
    assert done.stdout.count(f"{found['folder']}: memory at input ") == 2
    hint = f"name the folders of its findings, {above}/*/"
    assert done.stderr.splitlines() == [
        f"rdmawire: {folders[0]}: cannot read it: No such file or directory",
        f"rdmawire: {above}: no finding.json in it: {hint}",
    ]
    as_json = json.loads(rdmawire("fuzz", "replay", *folders, "--json").stdout)
    assert [one["folder"] for one in as_json] == list(folders)
    assert [one["violation"] is None for one in as_json] == [True, False, True, False]
    assert ["error" in one for one in as_json] == [True, False, True, False]


def test_a_command_of_a_finding_is_not_run_without_trust(tmp_path: Path) -> None:
    done = rdmawire(
        "fuzz", "run", "--command", "false {pcap}", "--runs", "5", "--seed", "1",
        "--max-findings", "1", "-o", str(tmp_path), "--json",
    )  # fmt: skip
    (found,) = json.loads(done.stdout)["findings"]
    path = Path(found["folder"]) / "finding.json"
    values = json.loads(path.read_text())
    flag = tmp_path / "ran"
    values["target"]["command"] = f"touch {flag} {{pcap}}"
    path.write_text(json.dumps(values))
    assert "it runs 'touch" in mistake("fuzz", "replay", found["folder"])
    assert not flag.exists()


def test_a_replay_names_the_finding_that_cannot_be_played(
    short_writes: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "finding.json"
    values = json.loads((Path(short_writes["folder"]) / "finding.json").read_text())
    for name, value in (("kind", []), ("bug", "x" * 1_000_000), ("service", "\x1b[31m")):
        path.write_text(json.dumps({**values, "target": {**values["target"], name: value}}))
        line = mistake("fuzz", "replay", str(tmp_path))
        assert line.startswith(f"rdmawire: {tmp_path}: ")
        assert len(line) < 1000
    setup = {**values["case"]["setup"], "access": []}
    path.write_text(json.dumps({**values, "case": {**values["case"], "setup": setup}}))
    assert "access is true or false" in mistake("fuzz", "replay", str(tmp_path))
