"""The GitHub Action and the image run a command on devices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
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


@pytest.mark.parametrize("sudo", [True, False])
def test_packages_are_installed_with_sudo_where_it_is(tmp_path: Path, *, sudo: bool) -> None:
    log = tmp_path / "log"
    stubs = tmp_path / "bin"
    stubs.mkdir()
    venv = 'mkdir -p "$3/bin"; cp "${0%/*}/pip" "$3/bin"'
    texts = {"apt-get": "", "pip": "", "python3": venv} | ({"sudo": '"$@"'} if sudo else {})
    for name, text in texts.items():
        (stubs / name).write_text(f'#!/bin/sh\necho "{name} $1" >> {log}\n{text}\n')
        (stubs / name).chmod(0o755)
    for name in ("bash", "cp", "mkdir", "sh"):
        (stubs / name).symlink_to(str(shutil.which(name)))
    variables = {
        "RUNNER_TEMP": tmp_path,
        "GITHUB_ACTION_PATH": ROOT,
        "GITHUB_ENV": tmp_path / "env",
    }
    subprocess.run(
        ["bash", "-eo", "pipefail", "-c", action()["runs"]["steps"][0]["run"]],
        env={"PATH": str(stubs), **{name: str(path) for name, path in variables.items()}},
        check=True, timeout=HANG,
    )  # fmt: skip
    apt = ["apt-get update", "apt-get install"]
    calls = [line for one in apt for line in (["sudo apt-get"] if sudo else []) + [one]]
    assert log.read_text().splitlines() == [*calls, "python3 -m", "pip install"]
    assert (tmp_path / "env").read_text() == f"RDMAWIRE={tmp_path}/rdmawire/bin/rdmawire\n"


def test_the_action_and_the_image_install_what_the_libraries_need() -> None:
    install = action()["runs"]["steps"][0]["run"]
    image = (ROOT / "Containerfile").read_text()
    for package in ("gcc", "libibverbs-dev", "librdmacm-dev"):
        assert package in install
        assert package in image
    assert 'ENTRYPOINT ["rdmawire", "verbs", "--"]' in image
