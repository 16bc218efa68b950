"""Every field of every capture, frame by frame, against tshark."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES
from tests.captures import CHOSEN, EVERY, captures_at_once
from tests.interop.comparison import UNREADABLE, compared, is_readable, link_types, merged

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


@captures_at_once()
def test_every_field_is_what_tshark_finds(paths: list[Path], tmp_path: Path) -> None:
    needed = {(row.seen_in, row.where) for row in KNOWN_DIFFERENCES}
    for path, names in merged(paths, tmp_path):
        known, unexplained = compared(path, names)
        assert not unexplained, "\n".join(unexplained[:20])
        needed -= {(capture, row.where) for capture, row in known}
    assert not [row for row in needed if row[0] in {path.name for path in paths}]


def test_every_known_difference_is_seen_in_a_capture() -> None:
    assert {row.seen_in for row in KNOWN_DIFFERENCES} <= {path.name for path in EVERY}


def test_only_native_infiniband_cannot_be_compared() -> None:
    """What tshark opens, it opens in :func:`test_every_field_is_what_tshark_finds`."""
    unreadable = [path for path in EVERY if not is_readable(path)]
    assert {path.name for path in unreadable} == {
        *("native.pcap", "bad_vcrc.pcap", "carried_infiniband.pcap"),
    }
    assert link_types(unreadable[0]) == {UNREADABLE}
    assert not opens(unreadable[0])
    assert opens(next(filter(is_readable, CHOSEN)))


def opens(path: Path) -> bool:
    command = ["tshark", "-r", str(path), "-c", "1"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
