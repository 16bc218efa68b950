"""``pytest --rdmawire-devices``: the tests' own process, and what it starts, has devices."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.waiting import HANG

ROOT = Path(__file__).parents[2]
PLUGIN = "rdmawire.testing.pytest_plugin"
TEST = """
import ctypes, subprocess, sys

def test_devices() -> None:
    verbs, count = ctypes.CDLL("libibverbs.so.1"), ctypes.c_int()
    verbs.ibv_get_device_list(ctypes.byref(count))
    assert count.value == 3

def test_failure() -> None:
    assert subprocess.run(["ls", "/sys/class/infiniband"], capture_output=True).stdout == b""
"""


def pytest_of(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest in a folder with one file of tests."""
    (folder / "test_it.py").write_text(TEST)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTEST_CURRENT_TEST", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN]
    return subprocess.run(
        [*command, *words], cwd=folder, env=env, capture_output=True, text=True, check=False,
        timeout=HANG,
    )  # fmt: skip


def test_tests_run_on_devices_and_their_status_is_passed_on(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, "--rdmawire-devices", "3", "--rdmawire-pcap", "all.pcap")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert r"b'rw0\nrw1\nrw2\n'" in done.stdout
    assert done.stderr.startswith("rdmawire: 3 devices, ")
    assert (tmp_path / "all.pcap").stat().st_size == 24


def test_a_network_needs_devices(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, "--rdmawire-network", "loss=0.1")
    assert done.returncode == 4
    assert "--rdmawire-network goes with --rdmawire-devices N" in done.stderr


def test_the_option_needs_a_command_line(tmp_path: Path) -> None:
    code = f"import pytest; pytest.main(['-p', '{PLUGIN}', '--rdmawire-devices', '2'])"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True,
        check=False, timeout=HANG,
    )  # fmt: skip
    assert "--rdmawire-devices needs a command line" in done.stderr


def test_pytest_finds_the_plugin_by_itself() -> None:
    """The name is that of the module: pytest then loads it once, also with ``-p``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
