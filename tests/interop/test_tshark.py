"""Every field of every capture, frame by frame, against tshark."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, open_capture
from tests.interop.blind_spots import BLIND_SPOTS, BlindSpot
from tests.interop.tshark import Values, ours, shared_fields, theirs

CAPTURES = Path(__file__).parents[2] / "captures"
FILES = sorted([*CAPTURES.rglob("*.pcap"), *CAPTURES.rglob("*.pcapng")])
FIELDS = shared_fields()

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


def differing(one: Values, other: Values) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def spots_used(path: Path) -> tuple[Counter[BlindSpot], list[str]]:
    """The blind spots that a capture shows, and the differences that none of them covers."""
    used: Counter[BlindSpot] = Counter()
    unexplained = []
    for (frame, mine), their in zip(ours(path, FIELDS), theirs(path, FIELDS), strict=True):
        for name in sorted(differing(mine, their)):
            covering = [spot for spot in BLIND_SPOTS if spot.covers(name, frame, path.name)]
            used.update(covering[:1])
            if not covering:
                found = f"{mine.get(name)} here, {their.get(name)} in tshark"
                unexplained.append(f"frame {frame.number}: {name}: {found[:300]}")
    return used, unexplained


UNREADABLE = LinkType.INFINIBAND
"""The one link type that tshark cannot open."""


def link_types(path: Path) -> set[int]:
    with open_capture(path) as reader:
        return {record.link_type for record in reader}


def is_readable(path: Path) -> bool:
    """Whether tshark knows the capture's link types."""
    return UNREADABLE not in link_types(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_field_is_what_tshark_finds(path: Path) -> None:
    if not is_readable(path):
        pytest.skip("tshark cannot open this link type")
    used, unexplained = spots_used(path)
    assert not unexplained, "\n".join(unexplained[:20])
    needed = {spot.where for spot in BLIND_SPOTS if spot.seen_in == path.name}
    assert needed <= {spot.where for spot in used}


def test_every_blind_spot_is_seen_in_a_capture() -> None:
    assert {spot.seen_in for spot in BLIND_SPOTS} <= {path.name for path in FILES}


def test_only_native_infiniband_cannot_be_compared() -> None:
    samples = {frozenset(link_types(path)): path for path in FILES}
    refused = {types for types, path in samples.items() if not opens(path)}
    assert refused == {frozenset({UNREADABLE})}
    unreadable = {path.name for path in FILES if not is_readable(path)}
    assert unreadable == {"native.pcap", "bad_vcrc.pcap", "carried_infiniband.pcap"}


def opens(path: Path) -> bool:
    command = ["tshark", "-r", str(path), "-c", "1"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
