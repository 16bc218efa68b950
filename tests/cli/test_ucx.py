"""`rdmawire gen ucx`: the table, steps, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


def test_each_size_has_a_line() -> None:
    done = run("gen", "ucx", "--memory", "host", "--size", "8", "--size", "20k", "--size", "1M")
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [
        ["8", "egr/short"],
        ["20480", "egr/multi/zcopy"],
        ["1048576", "rndv/get/zcopy"],
    ]


def test_steps_and_reasons() -> None:
    words = ("two-sockets", "--from", "GPU1", "--to", "GPU1", "--size", "600k", "--steps")
    text = run("gen", "ucx", *words).stdout
    assert "not registered: mlx5_0 may not access GPU1" in text
    assert text.count("receiver  RNDV_RTR of 61 bytes") == 2
    assert text.count("sender    RDMA_WRITE of") == 2


def test_a_capture_and_json(tmp_path: Path) -> None:
    path = tmp_path / "message.pcap"
    words = ("--size", "64k", "-x", "UCX_RNDV_THRESH=8k", "--json", "-w", str(path))
    (found,) = json.loads(run("gen", "ucx", *words).stdout)
    assert found["protocol"] == "rndv/get/zcopy"
    assert [one["what"] for one in found["posted"]] == ["RNDV_RTS", "RDMA_READ", "RNDV_ATS"]
    shown = run("dissect", str(path), "--checksums", "icrc").stdout
    assert len(shown.splitlines()) >= found["frames"]
    assert "bad" not in shown.lower()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-x", "UCX_RNDV_SCHEME=am"), "there are auto, get_zcopy"),
        (("-m", "disk"), "cuda, host, or two of them"),
        (("-m", "host,host,host"), "cuda, host, or two of them"),
        (("--from", "mlx5_0"), "mlx5_0 is no GPU"),
        (("--size", "1G"), "at most 67108864"),
        (("-w", "x.pcap"), "-w needs one --size"),
        (("--json", "-q"), "give one of them"),
        (("no-such-host",), "no-such-host"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", "ucx", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
