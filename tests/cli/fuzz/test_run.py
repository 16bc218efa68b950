"""`rdmawire fuzz run`: campaigns, signals, output, and what is refused before the work."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from rdmawire.cli.fuzz import run as module
from rdmawire.errors import FuzzError
from tests.cli.command import RDMAWIRE, mistake, rdmawire
from tests.waiting import HANG

RXE = ("--profile", "rxe", "--accept", "none", "--seed", "1")
"""Options with which there are many findings."""


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [*RDMAWIRE, "fuzz", "run", *words]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "jobs"),
    [
        (signal.SIGTERM, "1"),
        (signal.SIGINT, "2"),
        pytest.param(signal.SIGTERM, "2", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, "1", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, "2", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "1", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_campaign_with_its_summary(
    number: signal.Signals, jobs: str, tmp_path: Path
) -> None:
    with started(*RXE, "-j", jobs, "-o", str(tmp_path)) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("  clause: "):  # a finding is printed when it is written
                break
        process.send_signal(number)
        output, errors = process.communicate(timeout=HANG)
    assert process.returncode == (1 if number == signal.SIGINT else -number)
    assert " findings, " in output.splitlines()[-1] or " finding, " in output.splitlines()[-1]
    assert errors == ""
    assert list(tmp_path.glob("*/finding.json"))


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_json_is_one_object_at_the_end_though_a_module_and_its_function_print(
    jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prints.py").write_text("print('imported')\ndef f(data):\n    print(data)\n    1 / 0\n")
    words = ("--function", "prints:f", "--runs", jobs, "--seed", "1", "--json")
    done = rdmawire("fuzz", "run", *words, "-j", jobs, "-o", "found")
    (found,) = json.loads(done.stdout)["findings"]
    assert "ZeroDivisionError" in found["happened"]


@pytest.mark.slow
def test_json_of_a_replay_is_one_object_though_a_module_and_its_function_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prints.py").write_text("print('imported')\ndef f(data):\n    print(data)\n    1 / 0\n")
    words = ("--function", "prints:f", "--runs", "1", "--seed", "1", "--json")
    (found,) = json.loads(rdmawire("fuzz", "run", *words).stdout)["findings"]
    again = rdmawire("fuzz", "replay", "--trust", "--json", found["folder"])
    assert json.loads(again.stdout)[0]["violation"]


def test_what_was_found_before_is_printed_once(tmp_path: Path) -> None:
    words = ("fuzz", "run", *RXE, "-o", str(tmp_path), "--runs", "2")
    first, second = rdmawire(*words).stdout, rdmawire(*words).stdout
    folders = sorted(path.parent for path in tmp_path.glob("*/finding.json"))
    for output in (first, second):
        lines = [line for line in output.splitlines() if line.startswith(str(tmp_path))]
        assert len(lines) == len(set(lines))
    assert second.count("expected: ") == len(folders)


def test_the_time_of_a_call_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hangs.py").write_text("import time\ndef f(data):\n    time.sleep(1000)\n")
    words = ("--function", "hangs:f", "--call-time", "0.2s", "--time", "0.2s", "--seed", "1")
    done = rdmawire("fuzz", "run", *words)
    assert "fuzzing parser (function hangs:f, seconds 0.2); seed 1" in done.stdout
    assert "happened: no result within 0.2 s" in done.stdout
    assert "1 case, " in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--command", "no-such {pcap}"), "no-such: cannot run it: no program"),
        (("--scheduler", "127.0.0.1:1", "--jobs", "2"), "--jobs is for processes of this machine"),
        (("--scheduler", "tls://127.0.0.1:1"), "no Dask scheduler at tls://127.0.0.1:1: "),
        (("--function", "json:loads", "--expected", ""), "expected: a name is empty"),
        (("--function", "json:loads", "--expected", "ValueError,"), "expected: a name is empty"),
        (("--call-time", "0s"), "'0s' is not a time above 0"),
        (("--call-time", "1s"), "engine has no setting 'seconds'"),
        (("--profile", "x" * 90_000), "no profile is named 'xxx"),
        (("--form", "x" * 90_000, "--function", "frames"), "no form is named 'xxx"),
        (("--service", "x" * 90_000), "service 'xxx"),
        (("--bug", "x" * 90_000), "no planted bug is named 'xxx"),
        (("--accept", "x" * 90_000), "xxx"),
        (("--statuses", "x" * 90_000, "--command", "a {pcap}"), "statuses: 'xxx"),
        (("--command", "x" * 90_000), "the command needs {pcap}"),
        (("--command", "'" + "x" * 90_000), "No closing quotation"),
        (("--command", "x" * 90_000 + " {pcap}"), "cannot run it"),
        (("codecs", "--libraries", "x" * 90_000), "xxx"),
        (("codecs", "--corpus", "x" * 90_000), "File name too long"),
        (("--function", "x" * 90_000), "xxx"),
        (("x" * 90_000,), "no target is named 'xxx"),
        (("x" * 90_000, "--role", "requester"), "--role is for the target engine"),
        (("--scheduler", "x" * 90_000), "no Dask scheduler at xxx"),
        (("--time", "x" * 90_000), "'xxx"),
    ],
)
def test_what_cannot_be_run_is_one_short_line_and_leaves_no_folder(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = mistake("fuzz", "run", *words)
    assert message in line
    assert len(line) < 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", "x" * 90_000, "x/" * 3000])
def test_a_folder_that_cannot_be_made_is_one_short_line(path: str) -> None:
    line = mistake("fuzz", "run", "--runs", "1", "-o", path)
    assert ("the path is empty" if not path else "cannot read it: File name too long") in line
    assert len(line) < 500


def test_hypothesis_has_a_folder_in_that_of_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str] = []

    def run(*_: object) -> None:
        folders.append(os.environ["HYPOTHESIS_STORAGE_DIRECTORY"])
        raise FuzzError("ended")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYPOTHESIS_STORAGE_DIRECTORY", raising=False)
    monkeypatch.setattr(module, "_run", run)
    assert mistake("fuzz", "run", "state", "--seed", "1") == "rdmawire: ended"
    assert folders == [str(tmp_path / "findings" / ".hypothesis")]


@pytest.mark.slow
def test_hypothesis_keeps_its_files_in_the_folder_of_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYPOTHESIS_STORAGE_DIRECTORY", raising=False)
    assert rdmawire("fuzz", "run", "state", "--runs", "2", "--seed", "1").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["findings"]


def test_a_case_that_was_changed_by_hand_is_one_input(tmp_path: Path) -> None:
    words = ("fuzz", "run", *RXE, "--runs", "1", "--max-findings", "1", "-o", str(tmp_path))
    assert rdmawire(*words).returncode == 1
    (path,) = tmp_path.glob("*/finding.json")
    values = json.loads(path.read_text())
    changed = {"case": {"inputs": 5}, "clause": "\x1b[31mred", "signature": "\ud800"}
    path.write_text(json.dumps(values | changed | {"expected": "x" * 3_000_000}))
    done = rdmawire(*words)
    assert done.returncode == 1
    assert "(1 input)" in done.stdout
    assert r"clause:   \x1b[31mred" in done.stdout
    assert "\x1b" not in done.stdout
    assert len(done.stdout) < 10_000


def test_all_findings_are_played_again_whatever_their_paths_are(tmp_path: Path) -> None:
    words = ("fuzz", "run", *RXE, "--runs", "1", "--max-findings", "1", "-o", str(tmp_path))
    assert rdmawire(*words).returncode == 1
    (path,) = tmp_path.glob("*/finding.json")
    done = rdmawire("fuzz", "replay", "", "x" * 90_000, f"{path}/below", f"{path.parent}/")
    assert done.returncode == 2
    assert done.stdout.startswith(f"{path.parent}: replies at input ")
    empty, long, below = done.stderr.splitlines()
    assert empty == "rdmawire: the path of a finding is empty"
    assert long.endswith("...: cannot read it: File name too long")
    assert len(long) < 500
    assert below == f"rdmawire: {path}/below: cannot read it: Not a directory"


def test_a_healthy_engine_ends_with_0(tmp_path: Path) -> None:
    done = rdmawire("fuzz", "run", "--runs", "60", "--seed", "1", "-o", str(tmp_path))
    assert done.returncode == 0
    assert "fuzzing engine; seed 1" in done.stdout
    assert "60 cases" in done.stdout
    assert "0 findings" in done.stdout


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
        pytest.param(("--role", "requester"), True, marks=pytest.mark.slow),
        pytest.param(("--service", "RC"), False, marks=pytest.mark.slow),
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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.skipif(find_spec("pyshark") is None, reason="pyshark is not installed")
def test_the_dissector_is_compared_with_tshark(tmp_path: Path) -> None:
    words = ("dissectors", "--runs", "20", "--seed", "1", "-o", str(tmp_path), "--json")
    done = rdmawire("fuzz", "run", *words)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["target"] == {"kind": "dissectors"}
