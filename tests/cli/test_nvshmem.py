"""`rdmawire gen nvshmem-put`: the timeline, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


@pytest.mark.parametrize("transport", ["ibgda", "proxy"])
def test_puts_are_shown(transport: str) -> None:
    done = run("gen", "nvshmem-put", "--transport", transport)
    assert done.returncode == 0
    assert "pe0.warp" in done.stdout
    assert "put of 4096 bytes and signal 1 to PE 1" in done.stdout
    assert done.stdout.endswith(": all right\n")


def test_json_and_captures(tmp_path: Path) -> None:
    path = tmp_path / "puts.pcap"
    words = ("--hosts", "2", "--gpus", "2", "--json", "-w", str(path))
    found = json.loads(run("gen", "nvshmem-put", *words).stdout)
    assert (found["pes"], found["messages"]) == (4, 1)
    assert len(run("dissect", str(path)).stdout.splitlines()) >= found["frames"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--hosts", "64", "--gpus", "2"), "128 PEs; 1 to 64 are supported"),
        (("--size", "0"), "1 byte or more"),
        (("--size", "2M"), "at most 1048576"),
        (("--json", "-q"), "give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", "nvshmem-put", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "timeline.svg"
    assert run("gen", "nvshmem-put", "-q", "--plot", str(path)).stdout == ""
    assert "<!-- Puts of 2 PEs -->" in path.read_text(encoding="utf-8")
