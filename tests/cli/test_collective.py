"""`rdmawire gen allreduce`: a capture of a ring, and its summary."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire, refused


def test_a_ring_is_captured(tmp_path: Path) -> None:
    path = tmp_path / "ring.pcapng"
    done = rdmawire("gen", "allreduce", "--gpus", "2", "--size", "64k", "-w", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("allreduce of 65536 bytes by 4 GPUs: every result is right\n")
    counts = rdmawire("dissect", "-q", str(path))
    assert counts.returncode == 0
    assert "none malformed" in counts.stdout + counts.stderr


def test_the_summary_as_json_and_the_same_bytes_again(tmp_path: Path) -> None:
    words = "gen", "allgather", "--hosts", "3", "--size", "96k", "--loss", "1%", "--seed", "5"
    paths = [tmp_path / f"{number}.pcap" for number in range(2)]
    found = [json.loads(rdmawire(*words, "-w", str(path), "--json").stdout) for path in paths]
    assert found[0]["bytes_per_rank"] == 65536
    assert found[0]["ranks"] == 3
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "1001"), "1001 bytes are no whole number of values"),
        (("--size", "many"), "'many' is no number of bytes, such as 64k or 1MiB"),
        (("--hosts", "1"), "1 GPUs; 2 to 4096 are supported"),
        (("--loss", "2"), "is no share of frames"),
        (("--json", "-q"), "--json prints the summary, -q does not"),
    ],
)
def test_errors_are_one_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    assert message in refused("gen", "reducescatter", *words, "-w", str(path), status=2)
    assert not path.exists()


def test_a_capture_is_not_needed() -> None:
    done = rdmawire("gen", "alltoall", "--size", "64k")
    assert done.returncode == 0
    assert done.stdout.startswith("alltoall of 65536 bytes by 2 GPUs: every result is right\n")


def test_flows_need_no_packets() -> None:
    many = ("gen", "allreduce", "--hosts", "128", "--gpus", "8", "--size", "64M", "--flows")
    found = json.loads(rdmawire(*many, "--json").stdout)
    assert found["ranks"] == 1024
    assert found["duration_ns"] > 1_000_000
    words = ("gen", "allreduce", "--hosts", "8", "--size", "64M", "--flows")
    assert "bus bandwidth" in rdmawire(*words).stdout
    for more, message in (("-w", "x.pcap"), "no packets"), (("--loss", "1%"), "no losses"):
        done = rdmawire(*words, *more)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_failed_connection_is_no_error_of_usage(tmp_path: Path) -> None:
    path = str(tmp_path / "lossy.pcap")
    done = rdmawire("gen", "allreduce", "--loss", "40%", "-w", path)
    assert done.returncode == 1
    assert done.stderr.startswith("rdmawire: the operation failed after ")
    assert "RETRY_EXC_ERR" in done.stderr


@pytest.mark.parametrize("algorithm", ["tree", "collnet", "nvls", "nvls-tree"])
def test_algorithms_of_nccl(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pcapng"
    words = (
        "gen",
        "allreduce",
        "--gpus",
        "2",
        "--hosts",
        "3",
        "--size",
        "96k",
        "--algo",
        algorithm,
    )
    done = rdmawire(*words, "-w", str(path))
    assert done.returncode == 0, done.stderr
    assert f"\n{algorithm}, " in done.stdout
    who = "the busiest rank" if "tree" in algorithm else "each rank"
    assert f"\n{who} sent " in done.stdout
    counts = rdmawire("dissect", "-q", str(path))
    assert "none malformed" in counts.stdout + counts.stderr


def test_the_paths_of_a_host(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pcap")
    done = rdmawire(
        "gen", "allreduce", "--topology", "two-sockets", "--size", "96k", "-w", path, "--json"
    )
    found = json.loads(done.stdout)
    assert found["paths"] == ["SHM"]
    assert found["ranks"] == 4
    message = refused(
        "gen", "allreduce", "--topology", "dgx-h200", "--gpus", "4", "-w", path, status=2
    )
    assert "the layout is of 8 GPUs, the hosts have 4" in message
    assert "none" in refused("gen", "allreduce", "--topology", "none", "-w", path, status=2)


def test_queue_pairs_adaptive_routing_and_flushes(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    words = ("gen", "sendrecv", "--size", "1M", "--qps", "4", "--split", "--ar-threshold", "8k")
    done = rdmawire(*words, "--gdr-flush", "-w", str(path), "--json")
    assert json.loads(done.stdout)["flushes"] == 16
    opcodes = rdmawire(
        "dissect",
        "-Y",
        "infiniband.immdt",
        "-T",
        "fields",
        "-e",
        "infiniband.bth.opcode",
        str(path),
    ).stdout.split()
    assert len(opcodes) == 16 * 4
    assert set(opcodes) == {"11"}


def test_a_root(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pcap")
    for word in ("broadcast", "reduce"):
        done = rdmawire("gen", word, "--hosts", "3", "--root", "1", "--size", "96k", "-w", path)
        assert done.stdout.startswith(f"{word} of 98304 bytes by 3 GPUs: every result is right")
    assert "root 3: ranks are 0 to 2" in refused(
        "gen", "reduce", "--hosts", "3", "--root", "3", "--size", "96k", "-w", path, status=2
    )
