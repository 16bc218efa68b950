"""Every field of every capture, frame by frame, against tshark."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, open_capture
from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES, KnownDifference
from rdmawire.fuzz.tshark_fields import differing, own_values, shared_fields, tshark_values

CAPTURES = Path(__file__).parents[2] / "captures"
FILES = sorted([*CAPTURES.rglob("*.pcap"), *CAPTURES.rglob("*.pcapng")])
FIELDS = shared_fields()

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


def differences_used(path: Path) -> tuple[Counter[KnownDifference], list[str]]:
    """The known differences that a capture shows, and the differences that no row covers."""
    used: Counter[KnownDifference] = Counter()
    unexplained = []
    for (frame, mine), their in zip(
        own_values(path, FIELDS), tshark_values(path, FIELDS), strict=True
    ):
        for name in sorted(differing(mine, their)):
            covering = [row for row in KNOWN_DIFFERENCES if row.covers(name, frame, path.name)]
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
    used, unexplained = differences_used(path)
    assert not unexplained, "\n".join(unexplained[:20])
    needed = {row.where for row in KNOWN_DIFFERENCES if row.seen_in == path.name}
    assert needed <= {row.where for row in used}


def test_every_known_difference_is_seen_in_a_capture() -> None:
    assert {row.seen_in for row in KNOWN_DIFFERENCES} <= {path.name for path in FILES}


def test_only_native_infiniband_cannot_be_compared() -> None:
    samples = {frozenset(link_types(path)): path for path in FILES}
    refused = {types for types, path in samples.items() if not opens(path)}
    assert refused == {frozenset({UNREADABLE})}
    unreadable = {path.name for path in FILES if not is_readable(path)}
    assert unreadable == {"native.pcap", "bad_vcrc.pcap", "carried_infiniband.pcap"}


def opens(path: Path) -> bool:
    command = ["tshark", "-r", str(path), "-c", "1"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
