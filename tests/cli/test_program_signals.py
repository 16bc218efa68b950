"""Captures that are ended half-way: nothing of them is left, and what was there before stays."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import RDMAWIRE, RNR, rdmawire
from tests.waiting import HANG, asleep, wait_until
from tests.writing import has_unnamed_files, unfinished

EDIT = ("edit", "--ttl", "3")
GEN = ("gen", "write", "--count", "100000000")
FEW = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A call that reads half a capture, and waits for the rest."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*RDMAWIRE, *words], stdin=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(Path(RNR).read_bytes()[:5000])
        process.stdin.flush()
        yield process


def is_at_work(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Whether a file is begun in the folder, and is written or waits for input."""
    files = unfinished(folder, process.pid)
    return bool(files) and (files[0].st_size > 0 or asleep(process))


SLOW = pytest.mark.slow


def commands(*given: tuple[str, ...]) -> Iterator[object]:
    """Commands as parameters; all but the first are slow."""
    for number, words in enumerate(given):
        yield pytest.param(words, id=words[0], marks=(SLOW,) if number else ())


@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param(words, number, marks=() if fast else (SLOW,), id=f"{words[0]}-{number.name}")
        for words in (EDIT, GEN)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for fast in [(words, number) in ((EDIT, signal.SIGINT), (GEN, signal.SIGTERM))]
    ],
)
def test_a_signal_leaves_nothing_of_a_capture_and_keeps_the_earlier_file(
    words: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "out.pcap"
    path.write_text("earlier")
    with running(*words, "-w", str(path)) as process:
        wait_until(lambda: is_at_work(process, tmp_path))
        process.send_signal(number)
        _, errors = process.communicate(timeout=HANG)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert errors == (b"rdmawire: interrupted\n" if number == signal.SIGINT else b"")


@pytest.mark.parametrize("words", [*commands(EDIT, GEN)])
def test_a_kill_leaves_nothing_of_a_capture_either(words: tuple[str, ...], tmp_path: Path) -> None:
    if not has_unnamed_files(tmp_path):
        pytest.skip("this file system has no O_TMPFILE")
    path = tmp_path / "out.pcap"
    path.write_text("earlier")
    with running(*words, "-w", str(path)) as process:
        wait_until(lambda: is_at_work(process, tmp_path))
        process.kill()
        process.communicate(timeout=HANG)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]


@pytest.mark.parametrize("words", [*commands((*EDIT, RNR), GEN)])
def test_where_a_file_cannot_grow_nothing_of_it_is_left(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "out.pcap"
    path.write_text("earlier")
    done = rdmawire(*words, "-w", str(path), before=FEW)
    assert done.returncode == 1
    line = f"rdmawire: {path}: it would be longer than files may be; raise that limit, or write"
    assert done.stderr.startswith(line)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]


@pytest.mark.parametrize("words", [(*EDIT, RNR), ("gen", "write", "--count", "9")], ids=str)
def test_a_device_that_is_full_is_one_line(words: tuple[str, ...]) -> None:
    done = rdmawire(*words, "-w", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("rdmawire: /dev/full: no space is left on the device")
