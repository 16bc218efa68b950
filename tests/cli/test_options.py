"""Options that mean the same in every command: -r reads, -w and -o write, --json is -T json."""

import os
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from tests.cli.command import RNR, rdmawire, refused
from tests.cli.in_process import run_in_process

WRITING = {
    "dissect": ("dissect", "-T", "csv", "-e", "frame.number", RNR),
    "edit": ("edit", "-q", "--qpn", "0x11=0x12", RNR),
    "gen": ("gen", "-q", "write", "--count", "3"),
    "run": ("run", "-q", "lost-first"),
    "vectors": ("vectors", "rnr-timer-12"),
}


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_each_name_of_the_option_writes_the_same(tmp_path: Path, words: tuple[str, ...]) -> None:
    suffix = ".csv" if "csv" in words else ".pcap"
    found = set()
    for number, option in enumerate(("-w", "--write", "-o", "--output")):
        path = tmp_path / f"{number}{suffix}"
        done = rdmawire(*words, option, str(path))
        assert done.returncode == 0, done.stderr
        found.add(path.read_bytes())
    assert len(found) == 1
    assert found != {b""}


READING = {
    "dissect": ("dissect", "-q"),
    "stats": ("stats",),
    "edit": ("edit", "--qpn", "0x11=0x12", "-w", "/dev/null"),
    "run": ("run", "--check"),
}


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_files_are_read_by_option_or_by_place(words: tuple[str, ...]) -> None:
    file = "lost-first" if "run" in words else RNR
    by_place = rdmawire(*words, file)
    assert by_place.returncode == 0, by_place.stderr
    for option in ("-r", "--read"):
        by_option = rdmawire(*words, option, file)
        assert (by_option.stdout, by_option.returncode) == (by_place.stdout, 0)


def test_files_of_both_kinds_are_read_one_after_the_other() -> None:
    done = rdmawire("run", "--check", "-r", "lost-first", "write")
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["lost-first", "write"]
    line = refused("edit", "-r", RNR, "-w", "x.pcap", "other.pcap", status=2)
    assert "are two files: give one" in line


JSON = {
    "dissect": ("dissect", "-c", "2", RNR),
    "stats": ("stats", RNR),
    "gen": ("gen", "write", "--count", "2", "-w", "/dev/null"),
    "run": ("run", "lost-first"),
    "vectors": ("vectors", "rnr-timer-12"),
    "fields": ("fields", "aeth"),
}


def printed(*words: str) -> str:
    """What a command prints, but for how long it took."""
    done = rdmawire(*words)
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if "wall_s" not in line)


@pytest.mark.parametrize("words", JSON.values(), ids=JSON)
def test_both_options_ask_for_json(words: tuple[str, ...]) -> None:
    assert printed(*words, "--json")[0] in "[{"
    assert printed(*words, "--json")[:200] == printed(*words, "-T", "json")[:200]
    assert printed(*words, "-T", "text")[0] not in "[{"
    assert printed(*words, "--json", "-T", "json")[0] in "[{"
    line = refused(*words, "--json", "-T", "text", status=2)
    assert "--json is -T json, and not -T text" in line


def test_a_run_keeps_comments_on_standard_output(tmp_path: Path) -> None:
    """In a pcapng, as in a file of that name."""
    file, output = tmp_path / "file.pcapng", tmp_path / "output"
    assert rdmawire("run", "-q", "lost-first", "-w", str(file)).returncode == 0
    program = rdmawire_bytes("run", "-q", "lost-first", "-w", "-")
    output.write_bytes(program)
    assert program == file.read_bytes()
    with open_capture(output) as reader:
        comments = [option for record in reader for option in record.options]
    assert comments == [(1, b"lost on the link")]


def test_several_taps_share_standard_output() -> None:
    both = rdmawire_bytes("run", "-q", "write", "--tap", "client", "--tap", "server", "-w", "-")
    assert b"client" in both
    assert b"server" in both


def rdmawire_bytes(*words: str) -> bytes:
    """What a command writes to standard output, byte for byte."""
    status, output, errors = run_in_process(words, b"", {**os.environ})
    assert status == 0, errors
    return output
