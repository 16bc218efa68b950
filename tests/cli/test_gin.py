"""`rdmawire gen gin-put` and `gin-alltoall`: the timeline, captures, seeds and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


@pytest.mark.parametrize("backend", ["gdaki", "proxy"])
def test_puts_are_shown(backend: str) -> None:
    done = run("gen", "gin-put", "--puts", "1", "--backend", backend, "--loss", "1%")
    assert done.returncode == 0
    assert "put 0 of 4096 bytes to rank 1" in done.stdout
    assert "put 0 of rank 1 is signaled, its data is right" in done.stdout
    assert done.stdout.endswith("all data was right\n")


def test_json_and_captures(tmp_path: Path) -> None:
    path = tmp_path / "blocks.pcap"
    words = ("--hosts", "3", "--contexts", "2", "--size", "1k", "--json", "-w", str(path))
    found = json.loads(run("gen", "gin-alltoall", *words).stdout)
    assert (found["ranks"], found["puts"], found["wrong"]) == (3, 9, [])
    assert len(run("dissect", str(path)).stdout.splitlines()) >= found["frames"]


def test_a_seed_of_a_forgotten_step_is_repeated() -> None:
    words = ("gen", "gin-put", "--forget", "source-flush")
    done = run(*words, "--seeds", "100")
    assert done.returncode == 1
    line = next(line for line in done.stdout.splitlines() if line.startswith("seed "))
    assert "wrong data in " in done.stdout
    again = run(*words, *line.partition(": ")[2].split()[:2])
    assert again.stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gin-put", "--hosts", "32", "--gpus", "2"), "64 ranks; 1 to 32 are supported"),
        (("gin-put", "--size", "0"), "1 byte or more"),
        (("gin-put", "--size", "2M"), "at most 1048576"),
        (("gin-put", "--json", "-q"), "give one of them"),
        (("gin-put", "--forget", "data-fence"), "the gdaki backend has no data-fence"),
        (("gin-put", "--loss", "60%"), "no share of frames"),
        (("gin-alltoall", "--puts", "2"), "--puts is of gin-put"),
        (("gin-alltoall", "--signal", "inc"), "--signal is of gin-put"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
