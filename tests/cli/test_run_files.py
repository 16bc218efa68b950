"""What `rdmawire run` reads, what it writes, and which options go together."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import RDMAWIRE, rdmawire, refused
from tests.cli.test_run import WRITE

WRONG = WRITE.replace("on: client/a", "onn: client/a")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario in it, in which commands run."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(WRITE)
    return path


@pytest.mark.parametrize("target", ["mine.yaml", "./mine.yaml", "soft.pcap", "hard.pcap"])
def test_a_scenario_is_not_written_over(here: Path, target: str) -> None:
    os.symlink("mine.yaml", "soft.pcap")
    os.link("mine.yaml", "hard.pcap")
    assert f"{target} is a SCENARIO" in refused("run", "-q", "mine.yaml", "-w", target, status=2)
    assert here.read_text() == WRITE


def test_a_scenario_in_the_folder_of_captures_is_not_written_over(here: Path) -> None:
    os.rename(here, "mine.pcapng")
    said = refused("run", "mine.pcapng", "write", "-w", ".", status=2)
    assert "./mine.pcapng is a SCENARIO" in said
    assert Path("mine.pcapng").read_text() == WRITE


def test_a_scenario_on_standard_input_is_not_written_over(here: Path) -> None:
    with open(here, "rb") as stdin:
        words = [*RDMAWIRE, "run", "-", "-w", "mine.yaml"]
        done = subprocess.run(words, stdin=stdin, capture_output=True, check=False)
    assert (done.returncode, here.read_text()) == (2, WRITE)
    assert b"mine.yaml is a SCENARIO" in done.stderr


def test_what_comes_from_standard_input_has_one_name(here: Path) -> None:
    os.rename(here, "standard input.yaml")
    words = ("run", "-q", "-", "standard input.yaml", "-w")
    done = rdmawire(*words, "captures/", stdin=WRITE.encode())
    assert (done.returncode, os.path.exists("captures")) == (2, False)
    assert "captures/standard input.pcapng would be written twice" in done.stderr
    assert rdmawire("run", "-q", "-", "-w", "captures/", stdin=WRITE.encode()).returncode == 0
    assert os.listdir("captures") == ["standard input.pcapng"]


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (("--list", "mine.yaml"), "--list and a SCENARIO"),
        (("--list", "--schema"), "--list and --schema"),
        (("--list", "--all"), "--list and --all"),
        (("--schema", "-q"), "--schema and -q"),
        (("--show", "--check", "mine.yaml"), "--show and --check"),
        (("--show", "mine.yaml", "-w", "x.pcap"), "--show and -w"),
        (("--show", "mine.yaml", "--json"), "--show and --json"),
        (("--check", "mine.yaml", "-w", "x.pcap"), "--check and -w"),
    ],
)
def test_options_that_would_not_be_heeded_are_refused(
    here: Path, words: tuple[str, ...], both: str
) -> None:
    assert f"{both} do not go together" in refused("run", *words, status=2)
    assert os.listdir() == [here.name]


def test_standard_input_is_shown() -> None:
    assert rdmawire("run", "--show", "-", stdin=WRITE.encode()).stdout == WRITE


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"name: \xff\n", ":1:7: found byte 0xff; expected text in UTF-8"),
        (b"#" * (1 << 21), ":1:1: found more than 1048576 bytes; expected a smaller file"),
    ],
)
def test_what_cannot_be_a_scenario_is_not_shown(here: Path, data: bytes, said: str) -> None:
    here.write_bytes(data)
    assert refused("run", "--show", "mine.yaml", status=2) == f"rdmawire: mine.yaml{said}"


def test_the_name_of_a_file_is_printed_in_one_line() -> None:
    assert "a\\nb: found no such file" in refused("run", "a\nb", status=2)


def test_mistakes_are_in_json_too(here: Path) -> None:
    here.write_text(WRONG)
    done = rdmawire("run", "--json", "mine.yaml", "wrte")
    document = json.loads(done.stdout)
    assert (done.returncode, document["scenarios"]) == (2, [])
    assert document["more_mistakes"] == 0
    assert document["mistakes"][1] == {
        "file": "mine.yaml",
        "line": 8,
        "column": 13,
        "found": "key 'onn'",
        "expected": document["mistakes"][1]["expected"],
        "hint": "on",
    }
    missing = document["mistakes"][-1]
    assert (missing["file"], missing["line"], missing["hint"]) == ("wrte", None, "write")
    assert len(done.stderr.splitlines()) == len(document["mistakes"])


def test_what_has_no_mistakes_has_none_in_json(here: Path) -> None:
    for words in ("--check",), ():
        done = rdmawire("run", "--json", *words, str(here))
        assert (done.returncode, json.loads(done.stdout)["mistakes"]) == (0, [])
