"""The shipped captures: what their manifests say, sound where they claim to be, repeatable."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import open_capture
from rdmawire.dissect.dissector import Dissector
from rdmawire.vectors.index import frames
from rdmawire.wire import native, roce
from tests.captures import CAPTURES, CHOSEN, CHOSEN_NAMES, EVERY

ROOT = Path(__file__).parents[2]


def entries() -> list[tuple[Path, dict[str, Any]]]:
    return [
        (manifest.parent / entry["file"], entry)
        for manifest in sorted(CAPTURES.glob("*/manifest.toml"))
        for entry in tomllib.loads(manifest.read_text())["capture"]
    ]


ENTRIES = entries()
SOUND = [path for path, _ in ENTRIES if path.parent.name != "faulty"]


def test_every_capture_has_a_line_in_its_manifest() -> None:
    assert {path for path, _ in ENTRIES} == set(EVERY) == set(CAPTURES.rglob("*.pcap*"))
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


LARGE = 200
"""Frames of captures that are too large for fast tests of many captures."""


def test_chosen_captures_are_small_and_exist() -> None:
    frames_of = {path: entry["frames"] for path, entry in ENTRIES}
    assert all(frames_of[path] <= LARGE for path in CHOSEN)
    names = {(folder, name) for folder, line in CHOSEN_NAMES.items() for name in line.split()}
    assert names == {(path.parent.name, path.stem) for path in CHOSEN}
    assert {path for path in EVERY if path.parent.name == "faulty"} < set(CHOSEN)


def test_chosen_captures_show_every_row_of_the_index() -> None:
    """Each row: of small captures that show it, one is chosen."""
    small = {str(path.relative_to(CAPTURES)) for path, e in ENTRIES if e["frames"] <= LARGE}
    chosen = {str(path.relative_to(CAPTURES)) for path in CHOSEN}
    index = tomllib.loads((CAPTURES / "index.toml").read_text())
    for table, rows in index.items():
        for row, places in rows.items():
            shown_by = {file for file, _ in places} & small
            assert not shown_by or shown_by & chosen, f"no chosen capture has {table} {row}"


def traits(path: Path) -> set[tuple[str, str]]:
    """What a capture has: its format, tables of headers, carriers, and faults, without numbers."""
    found = {("format", path.suffix)}
    for frame, _ in frames(path):
        headers = [type(header).__name__ for header in frame.headers()]
        carriers = (name for name in headers if name in CARRIERS)
        found |= {("header", name) for name in headers} | {("carried by", "/".join(carriers))}
        found |= {(check.name, str(check.good)) for check in frame.checks}
        found |= {("snapped", str(frame.length > len(frame.data)))}
        if frame.malformed:
            found.add(("malformed", re.sub(r"\b(0x)?[0-9a-f]+\b", "N", frame.malformed.reason)))
    return found


CARRIERS = ("Ethernet", "VLAN", "IPv4", "IPv6", "GRH", "LRH", "UDP", "VXLAN", "TCP", "BTH")


@pytest.mark.slow
def test_chosen_captures_have_every_header_carrier_and_fault_of_small_ones() -> None:
    small = [path for path, entry in ENTRIES if entry["frames"] <= LARGE]
    missing = {trait: path for path in small for trait in traits(path)}
    for path in CHOSEN:
        missing = {trait: missing[trait] for trait in missing.keys() - traits(path)}
    assert not missing


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


@pytest.mark.parametrize(
    "name",
    [
        "elsewhere",
        pytest.param("without hash seeds", marks=pytest.mark.slow),
        pytest.param("by chance", marks=pytest.mark.slow),
    ],
)
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
