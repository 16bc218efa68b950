"""The command line where a stream is closed, full, not read, or set not to wait."""

import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import CAPTURES, RDMAWIRE, RNR, rdmawire
from tests.waiting import HANG

BAD_ICRC = str(CAPTURES / "faulty" / "bad_icrc.pcap")
FAILURES = [
    (("dissect", "nowhere"), 1),
    (("dissect", "-q", "--fail-on-bad-checksum", BAD_ICRC), 1),
    (("fields", "zzzzzz"), 1),
    (("dissect", "--nope"), 2),
    (("dissect", RNR), 0),
]


def shell(line: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``line`` in bash, where ``"$@"`` is rdmawire with these words."""
    command = ["bash", "-o", "pipefail", "-c", line, "bash", *RDMAWIRE, *words]
    return subprocess.run(command, capture_output=True, check=False, timeout=HANG)


def pairs() -> Iterator[object]:
    """Each failure with each place for the errors; all but one of each are slow."""
    for number, (words, status) in enumerate(FAILURES):
        for place, elsewhere in enumerate(("2>&-", "2>/dev/full", "2> >(exec true)")):
            marks = () if place == number % 3 else (pytest.mark.slow,)
            yield pytest.param(elsewhere, words, status, marks=marks)


@pytest.mark.parametrize(("elsewhere", "words", "status"), [*pairs()])
def test_errors_that_cannot_be_written_change_nothing(
    elsewhere: str, words: tuple[str, ...], status: int
) -> None:
    expected = rdmawire(*words)
    found = shell(f'"$@" {elsewhere}', *words)
    assert found.returncode == expected.returncode == status
    assert found.stdout.decode() == expected.stdout


def test_the_other_files_are_read_when_errors_cannot_be_written() -> None:
    found = shell('"$@" 2> >(exec true)', "dissect", "nowhere", RNR)
    assert len(found.stdout.splitlines()) == 153
    assert found.returncode == 1


def test_a_stream_that_does_not_wait_gets_all_of_the_output() -> None:
    words = [*RDMAWIRE, "dissect", "-V", RNR]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    running = subprocess.Popen(words, stdout=writing, stderr=subprocess.DEVNULL)
    while running.poll() is None and select.select([], [writing], [], 0)[1]:
        pass  # until the pipe is full
    os.close(writing)
    with open(reading, "rb") as pipe:
        found = pipe.read()
    assert running.wait(timeout=HANG) == 0
    assert found == subprocess.run(words, capture_output=True, check=True).stdout


WRITERS = {
    "dissect": ("dissect", "-V", RNR),
    "dissect, json": ("dissect", "-T", "json", RNR),
    "dissect, csv": ("dissect", "-T", "csv", RNR),
    "dissect, parquet": ("dissect", "-T", "parquet", RNR),
    "stats": ("stats", RNR),
    "gen": ("gen", "write", "--count", "2000", "-w", "-"),
    "gen, its summary": ("gen", "write", "--count", "1", "-w", os.devnull),
    "edit": ("edit", "--qpn", "0x11=0x12", "-q", "-w", "-", RNR),
    "run": ("run", "-q", "lost-first", "-w", "-"),
    "run, a list": ("run", "--list"),
    "vectors": ("vectors", "-w", "-", "rc-write"),
    "vectors, a list": ("vectors",),
    "fields": ("fields",),
    "completion": ("completion", "bash"),
}


_FAST = {"dissect", "dissect, parquet", "stats", "gen", "edit", "run, a list", "fields"}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=name, marks=() if name in _FAST else (pytest.mark.slow,))
        for name, words in WRITERS.items()
    ],
)
def test_a_closed_pipe_ends_every_command_without_an_error(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*RDMAWIRE, *words], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=HANG
    )
    os.close(writing)
    assert (done.returncode, b"rdmawire: " in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(("target", "status"), [(">/dev/full", 1), ("| head -c1", 0)])
def test_help_that_cannot_be_printed_is_the_error_of_frames(target: str, status: int) -> None:
    done = shell(f'"$@" {target}')
    assert done.returncode == status
    assert done.stderr.count(b"\n") == status
    assert b"Traceback" not in done.stderr


def test_a_closed_standard_output_is_an_error() -> None:
    done = shell('"$@" >&-', "fields")
    assert done.returncode == 1
    assert b"standard output is closed" in done.stderr


def test_errors_harm_no_terminal(tmp_path: Path) -> None:
    odd = tmp_path / "\x9b31m red"
    odd.touch()
    done = shell('"$@"', str(odd))
    assert f"rdmawire dissect '{tmp_path}/\\x9b31m red'" in done.stderr.decode()
