"""`rdmawire storage` and `rdmawire gen nvme`: tables, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


def test_all_paths_are_compared() -> None:
    done = run("storage", "dgx-h200", "--block-size", "4k")
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[:4] == ["bytes", "operation", "path", "latency"]
    paths = ["drive", "drive-bounce", "fabric", "fabric-bounce"]
    wanted = [["4096", name, path] for name in ("read", "write") for path in paths]
    assert [line.split()[:3] for line in lines] == wanted


def test_json_has_links_or_a_reason() -> None:
    words = ("--path", "drive", "--path", "fabric", "--operation", "read", "--block-size", "4k")
    refused, found = json.loads(run("storage", "two-sockets", *words, "--json").stdout)
    assert (
        refused["reason"] == "nvme0 may not access GPU0: the path crosses the link between sockets"
    )
    assert (found["reads"], found["writes"], found["bytes"]) == (8, 0, 8 * 4096)
    links = {(one["host"], one["to"]): one["bytes"] for one in found["links"]}
    assert links["host", "GPU0"] >= 8 * 4096


def test_links_are_printed() -> None:
    words = ("--path", "drive", "--operation", "write", "--block-size", "4k", "--links")
    shown = run("storage", "dgx-h200", *words).stdout
    assert "  host: GPU0 -> sw0g: 32768 bytes in 128 transactions" in shown


def test_commands_are_shown_and_captured(tmp_path: Path) -> None:
    path = tmp_path / "nvme.pcap"
    words = ("--reads", "2", "--writes", "1", "--block-size", "4k", "--links", "-w", str(path))
    done = run("gen", "nvme", "dgx-h200", *words)
    assert done.returncode == 0
    assert done.stdout.count("SUCCESS") == 3
    assert "all data was right: namespace and GPU memory" in done.stdout
    assert "target: nvme0 -> sw0n: 8192 bytes" in done.stdout
    shown = run("dissect", str(path), "--checksums", "icrc").stdout
    assert shown.count("CM REQ") == 2
    assert "bad" not in shown.lower()


def test_commands_of_a_capture_are_listed(tmp_path: Path) -> None:
    path = str(tmp_path / "nvme.pcap")
    words = ("--reads", "1", "--writes", "0", "--fault", "lba", "-q", "-w", path)
    assert not run("gen", "nvme", "dgx-h200", *words).stdout
    listed = run("storage", "--read", path).stdout.splitlines()
    assert [line.split()[:5] for line in listed[:1]] == [["4", "queue", "0", "cid", "0"]]
    assert any("READ" in line and line.endswith("LBA_OUT_OF_RANGE") for line in listed)
    rows = json.loads(run("storage", "--read", path, "--json").stdout)
    (read,) = [row for row in rows if row["command"] == "READ"]
    assert (read["slba"], read["blocks"], read["queue"]) == (32768, 128, 1)
    none = run("storage", "--read", "captures/generated/syndromes.pcap")
    assert "no connection of NVMe over RDMA" in none.stderr


def test_commands_are_json() -> None:
    words = ("--reads", "1", "--writes", "0", "--bounce", "--fault", "lba", "--json")
    done = run("gen", "nvme", "dgx-h200", *words)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    (command,) = found["commands"]
    assert (found["path"], command["opcode"]) == ("fabric-bounce", "READ")
    assert (command["slba"], command["status"]) == (32768, "LBA_OUT_OF_RANGE")


def test_a_revoked_region_ends_the_connection() -> None:
    done = run("gen", "nvme", "dgx-h200", "--writes", "0", "--fault", "revoke")
    assert done.returncode == 1
    assert "the target's RDMA WRITE: REM_ACCESS_ERR" in done.stdout
    assert "data of the other commands was right" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("storage", "no-such-host"), "'no-such-host': no such file or directory"),
        (("storage", "vm", "--path", "drive"), "the host has no NVMe drive"),
        (("storage", "dgx-h200", "--block-size", "1000"), "take a multiple of 512 bytes"),
        (("storage", "dgx-h200", "--block-size", "2MiB"), "at most 1048576"),
        (("storage", "dgx-h200", "--drive", "GPU0"), "GPU0 is no NVMe drive"),
        (("storage", "dgx-h200", "--gpu", "GPU9"), "no device is called 'GPU9'"),
        (("storage",), "give a HOST, or --read and a capture"),
        (("gen", "nvme", "vm"), "the host has no NVMe drive"),
        (("gen", "nvme", "dgx-h200", "--block-size", "1000"), "a multiple of 512"),
        (("gen", "nvme", "dgx-h200", "--size", "64k"), "each has other blocks of 65536"),
        (("gen", "nvme", "dgx-h200", "--bounce", "--fault", "revoke"), "without a bounce"),
        (
            ("gen", "nvme", "dgx-h200", "--reads", "1", "--writes", "0", "--fault", "revoke"),
            "between commands: take 2 or more",
        ),
        (("gen", "nvme", "dgx-h200", "--json", "-q"), "give one of them"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
