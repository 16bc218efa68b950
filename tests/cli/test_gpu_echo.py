"""`rdmawire gen gpu-echo`: steps, counts, forgotten steps, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import broken, refused
from tests.cli.command import rdmawire as run


def test_the_steps_and_counts_are_printed() -> None:
    done = run("gen", "gpu-echo", "--packets", "100", "--warps", "2")
    assert done.returncode == 0
    assert "answered by the operating system" in done.stdout
    assert "queue 0: " in done.stdout
    assert "queue 1: " in done.stdout
    assert "100 requests with 56 bytes: 100 answered in " in done.stdout
    assert done.stdout.endswith("all replies that came were right\n")
    assert "more steps, which --json has" in done.stdout


def test_discarded_and_lost_packets_are_counted() -> None:
    words = ("--packets", "100", "--burst", "100", "--work", "20us", "--buffers", "8")
    assert "92 packets discarded: no buffer was free" in run("gen", "gpu-echo", *words).stdout
    lossy = run("gen", "gpu-echo", "--packets", "100", "--loss", "10%")
    assert lossy.returncode == 0
    assert "packets lost on the client's link" in lossy.stdout


def test_a_forgotten_step_is_explained() -> None:
    words = ("--kernels", "two", "--forget", "semaphore-fence", "--seeds", "50")
    done = run("gen", "gpu-echo", *words)
    assert done.returncode == 1
    assert "without semaphore-fence, the status of a semaphore may be visible" in done.stdout
    seed = done.stdout.partition("--seed ")[2].split()[0]
    again = run("gen", "gpu-echo", *words[:-2], "--seed", seed)
    assert again.stdout == done.stdout


def test_json_has_the_counts_and_the_timeline() -> None:
    found = json.loads(run("gen", "gpu-echo", "--json", "--protocol", "udp").stdout)
    assert (found["sent"], found["answered"], found["wrong"], found["missing"]) == (16, 16, 0, 0)
    assert found["queues"] == [{"received": 16, "answered": 16, "ignored": 0, "discarded": 0}]
    assert len(found["times_ns"]) == 16
    assert {"server.warp0", "server.processor"} < {entry["who"] for entry in found["timeline"]}


def test_a_capture_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "echo.pcap"
    assert run("gen", "gpu-echo", "--packets", "8", "-q", "-w", str(path)).returncode == 0
    done = run("gen", "gpu-echo", "-r", str(path), "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["sent"] == 18
    assert found["answered"] == 9  # eight echo requests, and the question of ARP
    assert found["queues"][0]["ignored"] == 8


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "line.svg"
    run("gen", "gpu-echo", "--packets", "1", "-q", "--plot", str(path))
    assert "<!-- 1 answered: the doorbell is rung -->" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--forget", "semaphore-fence"), "there is no semaphore-fence"),
        (("--forget", "flush"), "there is no flush to forget"),
        (("--size", "10k"), "at most 8972"),
        (("--rate", "fast"), "'fast' is no number of requests"),
        (("--rate", "1"), "send fewer requests, or at a higher rate"),
        (("--work", "2ms"), "work 2000000: 0 to 1000000"),
        (("--timeout", "5"), "'5' is not a duration"),
        (("--loss", "200%"), "'200%' is no share"),
        (("--json", "-q"), "give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("gen", "gpu-echo", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_capture_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert "no capture" in refused("gen", "gpu-echo", "-r", broken(tmp_path, b"x" * 40), status=1)
