"""`rdmawire gen gpu-write`: the timeline, forgotten steps, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


def test_the_timeline_is_printed() -> None:
    done = run("gen", "gpu-write", "--messages", "1")
    assert done.returncode == 0
    steps = ["data of message 1", "WQEs", "the doorbell is rung", "a doorbell arrives", "the flag"]
    places = [done.stdout.index(step) for step in steps]
    assert places == sorted(places)
    assert done.stdout.endswith("all data was right\n")


def test_a_forgotten_step_is_explained() -> None:
    words = ("--gpu", "A100", "--notify", "cqe", "--forget", "flush", "--seeds", "100")
    done = run("gen", "gpu-write", *words)
    assert done.returncode == 1
    assert "without flush, a completion in host memory may be visible before" in done.stdout
    seed = done.stdout.partition("--seed ")[2].split()[0]
    again = run("gen", "gpu-write", *words[:-2], "--seed", seed)
    assert again.stdout == done.stdout


def test_json_has_the_timeline() -> None:
    found = json.loads(run("gen", "gpu-write", "--json", "--messages", "2").stdout)
    assert found["wrong"] == []
    assert found["stuck"] is None
    assert {entry["who"] for entry in found["timeline"]} == {"a.warp", "a.adapter", "b.warp"}


def test_a_capture_is_written(tmp_path: Path) -> None:
    path = tmp_path / "doorbell.pcap"
    run("gen", "gpu-write", "--mode", "proxy", "--messages", "1", "-q", "-w", str(path))
    assert "RDMA_WRITE" in run("dissect", str(path)).stdout.upper().replace(" ", "_")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--forget", "data-fence"), "a kernel has no data-fence"),
        (("--forget", "flush"), "there is no flush to forget"),
        (("--size", "2M"), "at most 1048576"),
        (("-w", "x.txt"), "names no format"),
        (("--json", "-q"), "give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", "gpu-write", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "line.svg"
    run("gen", "gpu-write", "--messages", "1", "-q", "--plot", str(path))
    assert "<!-- the doorbell is rung -->" in path.read_text(encoding="utf-8")
