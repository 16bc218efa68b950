"""The shipped captures: what their manifests say, sound where they claim to be, repeatable."""

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import open_capture
from rdmawire.dissect.dissector import Dissector
from rdmawire.wire import native, roce

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "captures"


def entries() -> list[tuple[Path, dict[str, Any]]]:
    return [
        (manifest.parent / entry["file"], entry)
        for manifest in sorted(CAPTURES.glob("*/manifest.toml"))
        for entry in tomllib.loads(manifest.read_text())["capture"]
    ]


ENTRIES = entries()
SOUND = [path for path, _ in ENTRIES if path.parent.name != "faulty"]


def test_every_capture_has_a_line_in_its_manifest() -> None:
    assert {path for path, _ in ENTRIES} == set(CAPTURES.rglob("*.pcap*"))
    assert len([path for path in SOUND if path.parent.name == "linux"]) == 53


@pytest.mark.parametrize(("path", "entry"), ENTRIES, ids=lambda value: getattr(value, "name", ""))
def test_the_manifest_is_true(path: Path, entry: dict[str, Any]) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
    with open_capture(path) as reader:
        assert sum(1 for _ in reader) == entry["frames"]


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.name)
def test_every_checksum_is_good_and_nothing_malformed(path: Path) -> None:
    dissector = Dissector()
    with open_capture(path) as reader:
        for record in reader:
            frame = dissector.dissect(record.data, link_type=record.link_type, length=record.length)
            assert not frame.bad_checks, f"frame {frame.number}: {frame.bad_checks[0]}"
            assert frame.malformed is None, f"frame {frame.number}: {frame.malformed}"


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.name)
def test_parse_then_build_gives_the_same_bytes(path: Path) -> None:
    with open_capture(path) as reader:
        for record in (record for record in reader if len(record.data) == record.length):
            if record.link_type == 247:
                assert native.parse(record.data).build() == record.data
            elif roce.bth_offset(record.data, 0, len(record.data)) >= 0 and record.link_type == 1:
                frame = roce.parse(record.data)
                assert frame.build() == record.data
                assert frame.seal() == frame


ENVIRONMENTS = {
    "without hash seeds": {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"},
    "elsewhere": {"PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8"},
    "by chance": {"PYTHONHASHSEED": "random", "TZ": "America/St_Johns", "LC_ALL": "POSIX"},
}
ON_ONE_CORE = """
import os, runpy
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
runpy.run_module("tools.make_captures", run_name="__main__")
"""
MADE = ("generated", "faulty", "golden")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_captures_are_the_same_whatever_the_environment(name: str, tmp_path: Path) -> None:
    env = {**os.environ, **ENVIRONMENTS[name]}
    program = ["-c", ON_ONE_CORE] if name == "by chance" else ["-m", "tools.make_captures"]
    command = [sys.executable, *program, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    assert (tmp_path / "index.toml").read_bytes() == (CAPTURES / "index.toml").read_bytes()
    for folder in MADE:
        made = {path.name: digest(path) for path in (tmp_path / folder).iterdir()}
        shipped = {path.name: digest(path) for path in (CAPTURES / folder).iterdir()}
        assert made == shipped


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_golden_pack_is_small() -> None:
    assert sum(path.stat().st_size for path in (CAPTURES / "golden").iterdir()) < 1_000_000
