"""`rdmawire gen nixl`: the summary, steps, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


def test_the_summary() -> None:
    lines = run("gen", "nixl", "--blocks", "2", "--layers", "1", "--no-merge").stdout.splitlines()
    assert lines[0] == "2 blocks of 16 tokens in 1 layer: 131072 bytes"
    assert lines[1].startswith("4 descriptors, 4 READs, ")
    assert lines[-1] == "all blocks are right"


def test_steps_captures_and_json(tmp_path: Path) -> None:
    path = tmp_path / "kv.pcap"
    words = ("--contiguous", "--layers", "1", "-x", "UCX_TLS=rc_verbs")
    text = run("gen", "nixl", *words, "--steps").stdout
    assert text.count("RDMA_READ of 524288 bytes") == 2
    found = json.loads(run("gen", "nixl", *words, "--json", "-w", str(path)).stdout)
    assert (found["descriptors"], found["reads"]) == (32, 2)
    assert len(run("dissect", str(path)).stdout.splitlines()) >= found["frames"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("two-sockets", "--from", "GPU1"), "prefill: mlx5_0 may not access GPU1"),
        (("--pool", "4"), "16 blocks of a pool of 4"),
        (("--blocks", "4096"), "up to 134217728 are supported"),
        (("--token-bytes", "0"), "token bytes: 0"),
        (("-x", "UCX_TLS=tcp"), "there are rc_verbs, rc_mlx5"),
        (("--json", "-q"), "give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", "nixl", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
