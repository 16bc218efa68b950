"""`rdmawire doctor`: hosts, scenarios, captures, and what is none of these."""

import json
from pathlib import Path

import pytest

from tests.cli.command import RNR, WRITE
from tests.cli.command import rdmawire as run


def test_a_host() -> None:
    done = run("doctor", "two-sockets")
    assert done.returncode == 1
    assert "shown by: GPU1 is on node 1, the nearest adapter, mlx5_0, on node 0" in done.stdout
    assert done.stdout.endswith("two-sockets, a host: 1 problem found\n")
    good = run("doctor", "dgx-h200")
    assert (good.returncode, good.stdout) == (0, "dgx-h200, a host: no problem found\n")


def test_a_scenario_and_captures() -> None:
    assert "(bar1-full)" in run("doctor", "bar1-exhausted").stdout
    assert "65 RNR NAKs" in run("doctor", RNR).stdout
    assert run("doctor", WRITE).returncode == 0


def test_a_file_of_a_scenario(tmp_path: Path) -> None:
    text = Path("rdmawire/traffic/scenarios/lost-last.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    assert "(tail-loss)" in run("doctor", str(path)).stdout
    assert "(tail-loss)" in run("doctor", "-", stdin=text.encode()).stdout


def test_standard_input_with_a_matrix() -> None:
    matrix = run("topo", "two-sockets", "-m").stdout
    assert "(other-socket)" in run("doctor", "-", stdin=matrix.encode()).stdout


def test_json_and_lists() -> None:
    found = json.loads(run("doctor", "two-sockets", "--json").stdout)
    assert found["subject"] == "host"
    assert found["findings"][0]["check"] == "other-socket"
    checks = json.loads(run("doctor", "--list", "--json").stdout)
    assert {"host", "scenario", "capture"} == {check["subject"] for check in checks}
    names = [check["check"] for check in checks]
    assert len(set(names)) == len(names)
    assert len(run("doctor", "--list").stdout.splitlines()) == len(names)


def test_one_check_alone() -> None:
    assert run("doctor", "vm", "--check", "iommu").stdout.count("remedy") == 1
    assert run("doctor", "vm", "--check", "acs").returncode == 0
    wrong = run("doctor", "vm", "--check", "none")
    assert "checks are no-adapter" in wrong.stderr


@pytest.mark.parametrize("content", [b"", b"\0\1\2", b"\xff" * 100, b"hosts: [", b"x: y"])
def test_a_file_of_no_known_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    done = run("doctor", str(path))
    assert done.returncode == 2
    assert done.stderr
    assert run("doctor", "no-such-thing").returncode == 2
