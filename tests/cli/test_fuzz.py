"""`rdmawire fuzz`: campaigns, findings and their replay from the command line."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import mistake, rdmawire, refused


def test_a_healthy_engine_ends_with_0(tmp_path: Path) -> None:
    done = rdmawire("fuzz", "run", "--runs", "60", "--seed", "1", "-o", str(tmp_path))
    assert done.returncode == 0
    assert "fuzzing engine; seed 1" in done.stdout
    assert "60 cases" in done.stdout
    assert "0 findings" in done.stdout


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


def test_a_campaign_goes_on_with_its_seed(tmp_path: Path) -> None:
    words = ("fuzz", "run", "--runs", "20", "-o", str(tmp_path))
    assert rdmawire(*words, "--seed", "7").returncode == 0
    done = rdmawire(*words)
    assert "seed 7" in done.stdout
    assert "goes on after 20 cases with 0 findings" in done.stdout
    assert "in all 40 cases" in done.stdout
    shown = json.loads(rdmawire(*words, "--json").stdout)
    assert (shown["runs"], shown["earlier_runs"]) == (60, 40)


def test_an_adapter_is_fuzzed_as_a_requester(tmp_path: Path) -> None:
    words = ("--role", "requester", "--runs", "30", "--seed", "1", "-o", str(tmp_path), "--json")
    done = rdmawire("fuzz", "run", *words)
    assert done.returncode == 0
    assert json.loads(done.stdout)["target"] == {"kind": "requester"}


def test_targets_are_listed() -> None:
    listed = rdmawire("fuzz", "list").stdout
    assert "engine" in listed
    (line,) = (line for line in listed.splitlines() if line.startswith("  any-qkey "))
    assert line.split()[1] == "ud"  # where the bug shows
    assert "  --profile   ibta, rxe" in listed
    values = json.loads(rdmawire("fuzz", "list", "--json").stdout)
    assert "engine" in values["targets"]
    assert "frames" in values["options"]["--function"]


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json:laods", "module 'json' has no attribute 'laods': write package.module:name"),
        (".json:loads", "no module has such a name: write package.module:name"),
        (":loads", "no module has such a name: write package.module:name"),
        ("json:__doc__", "'json:__doc__' cannot be called"),
        ("needs:loads", "importing it raises ModuleNotFoundError: No module named 'no_such'"),
        ("x" * 5000 + ":f", "there is no module 'xxx"),
    ],
)
def test_a_function_that_is_not_there_is_one_line(
    name: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("needs.py").write_text("import no_such\n")
    line = mistake("fuzz", "run", "--function", name)
    assert message in line
    assert len(line) < 500


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


def test_a_replay_says_which_finding_cannot_be_played(
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


def test_a_folder_that_cannot_be_written_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("--bug", "short-writes", "--seed", "1", "--runs", "20")
    line = mistake("fuzz", "run", *words, "-o", str(tmp_path / "file" / "found"))
    assert "cannot write" in line


def test_a_parser_of_the_package_is_healthy_and_needs_no_trust(tmp_path: Path) -> None:
    done = rdmawire(
        "fuzz", "run", "--function", "headers", "--runs", "50", "--seed", "1", "-o", str(tmp_path)
    )
    assert done.returncode == 0, done.stdout
    assert "fuzzing parser (function headers)" in done.stdout


def test_a_bug_of_a_requester_is_looked_for_in_the_requester(tmp_path: Path) -> None:
    words = ("--bug", "ack-too-short", "--seed", "1", "--max-findings", "1", "-o", str(tmp_path))
    done = rdmawire("fuzz", "run", *words, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["target"] == {"kind": "requester", "bug": "ack-too-short"}


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--service", "ud"), True),
        (("--role", "requester"), True),
        (("--service", "RC"), False),
        ((), False),
    ],
)
def test_a_bug_that_the_service_may_not_show_is_warned_of(
    options: tuple[str, ...], warned: bool, tmp_path: Path
) -> None:
    words = ("fuzz", "run", "--bug", "short-writes", *options, "--seed", "1", "--runs", "1")
    done = rdmawire(*words, "-o", str(tmp_path / "found"))
    warning = (
        "rdmawire: warning: 'short-writes' is known to show with --role responder --service rc; "
        "this may find nothing\n"
    )
    assert done.stderr == (warning if warned else "")


def with_tshark(folder: Path, lines: str) -> dict[str, str]:
    """The environment for a shell script that is found as tshark, and an empty pyshark."""
    module = folder / "modules" / "pyshark" / "tshark" / "output_parser" / "tshark_xml.py"
    module.parent.mkdir(parents=True)
    module.write_text("packet_from_xml_packet = None\n")
    program = folder / "bin" / "tshark"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)
    modules = (str(folder / "modules"), os.environ.get("PYTHONPATH", ""))
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, modules))}


@pytest.mark.slow
def test_a_crash_of_tshark_is_a_finding_that_is_played_again(tmp_path: Path) -> None:
    only_header = 'test "$(wc -c < "$3")" -le 24'
    env = with_tshark(tmp_path, f"{only_header} || {{ echo failed >&2; kill -SEGV $$; }}")
    words = ("dissectors", "--runs", "30", "--seed", "1", "--max-findings", "1", "--json")
    done = rdmawire("fuzz", "run", *words, "-o", str(tmp_path / "found"), env=env)
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    assert found["expected"] == "tshark shows each frame"
    assert found["happened"] == "tshark ended with signal SIGSEGV: failed"
    folder = Path(found["folder"])
    (case,) = json.loads((folder / "finding.json").read_text())["case"]["inputs"]
    assert case["mutations"] == []
    assert "tshark ended with signal SIGSEGV" in (folder / "report.txt").read_text()
    assert len(rdmawire("dissect", str(folder / "packets.pcapng")).stdout.splitlines()) == 1
    again = rdmawire("fuzz", "replay", str(folder), env=env)
    assert again.returncode == 1
    assert found["happened"] in again.stdout


def test_a_tshark_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    env = with_tshark(tmp_path, "echo no such library >&2; exit 127")
    words = ("dissectors", "--runs", "5", "--seed", "1", "-o", str(tmp_path / "found"))
    done = rdmawire("fuzz", "run", *words, env=env)
    assert done.returncode == 2
    line = "tshark ended with status 127: no such library: with a capture without frames"
    assert done.stderr == f"rdmawire: {line}\n"


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.skipif(find_spec("pyshark") is None, reason="pyshark is not installed")
def test_the_dissector_is_compared_with_tshark(tmp_path: Path) -> None:
    words = ("dissectors", "--runs", "20", "--seed", "1", "-o", str(tmp_path), "--json")
    done = rdmawire("fuzz", "run", *words)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["target"] == {"kind": "dissectors"}
