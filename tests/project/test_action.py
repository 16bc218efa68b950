"""The GitHub Action and the image run a command on devices."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.waiting import HANG

ROOT = Path(__file__).parents[2]


def action() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return document


def run(tmp_path: Path, **inputs: str) -> "subprocess.CompletedProcess[str]":
    """What becomes of the last step, with these inputs and the defaults of others."""
    step = action()["runs"]["steps"][-1]
    values = {name: one.get("default", "") for name, one in action()["inputs"].items()} | inputs
    env = {
        name: values[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, text in step["env"].items()
    }
    program = tmp_path / "rdmawire"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rdmawire "$@"\n')
    program.chmod(0o755)
    return subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env={**os.environ, **env, "RDMAWIRE": str(program), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG,
    )  # fmt: skip


def test_the_command_has_devices(tmp_path: Path) -> None:
    done = run(tmp_path, run="ls /sys/class/infiniband\nexit 3", devices="3", pcap="all.pcap")
    assert done.stdout == "rw0\nrw1\nrw2\n"
    assert done.returncode == 3
    assert (tmp_path / "all.pcap").exists()


def test_the_first_line_that_fails_ends_it(tmp_path: Path) -> None:
    done = run(tmp_path, run="false | true\necho not reached", network="latency=1us")
    assert (done.returncode, done.stdout) == (1, "")


def test_the_action_and_the_image_install_what_the_libraries_need() -> None:
    install = action()["runs"]["steps"][0]["run"]
    image = (ROOT / "Containerfile").read_text()
    for package in ("gcc", "libibverbs-dev", "librdmacm-dev"):
        assert package in install
        assert package in image
    assert 'ENTRYPOINT ["rdmawire", "verbs", "--"]' in image
