"""`rdmawire gen deepep`: the summary, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


def test_the_summary() -> None:
    text = run("gen", "deepep", "--gpus", "2").stdout
    assert text.count("all tokens are dispatched") == text.count("all tokens are combined") == 4
    assert "4 ranks with 8 tokens of 528 bytes, each to 2 experts" in text
    assert text.endswith("all tokens and all sums are right\n")


def test_json_and_captures(tmp_path: Path) -> None:
    path = tmp_path / "moe.pcap"
    words = ("--tokens", "2", "--experts", "2", "--topk", "1", "--json", "-w", str(path))
    found = json.loads(run("gen", "deepep", *words).stdout)
    assert (found["ranks"], found["flags"]) == (2, 4)
    shown = run("dissect", str(path)).stdout
    assert shown.count("RC_FETCH_ADD") == 4
    assert shown.count("RC_RDMA_WRITE_ONLY") == found["puts"]


def test_wrong_data_is_reported() -> None:
    done = run("gen", "deepep", "--loss", "5%", "--unordered", "--seed", "2")
    assert done.returncode == 1
    assert "wrong token" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--experts", "9"), "9 experts on 2 ranks"),
        (("--hidden", "130"), "a multiple of 128"),
        (("--loss", "50%"), "--loss"),
        (("--json", "-q"), "give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", "deepep", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "timeline.svg"
    assert run("gen", "deepep", "-q", "--plot", str(path)).stdout == ""
    assert "<!-- Tokens of 2 ranks -->" in path.read_text(encoding="utf-8")
