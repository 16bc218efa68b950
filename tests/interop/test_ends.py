"""Checksums of packets with a route, or from a host away from home, by tshark."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdmawire.capture import Record, create_capture
from rdmawire.dissect import generated
from tests.wire.test_checksum import CASES, sealed

NOT_ALLOWED = "no home among hop by hop"
"""RFC 6275, 6.3: the option occurs in destination options alone. tshark takes it here, too."""


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_finds_the_checksums_good(tmp_path: Path) -> None:
    path = tmp_path / "ends.pcap"
    with create_capture(path) as writer:
        for kind, extensions, *_ in CASES.values():
            data = sealed(kind, extensions)
            writer.write(Record(data, 0, len(data), 1))
    words = ("tshark", "-r", path, "-o", "udp.check_checksum:TRUE", "-T", "fields")
    done = subprocess.run(
        [*words, "-e", "udp.checksum.status"], capture_output=True, text=True, check=True
    )
    found = dict(zip(CASES, map(int, done.stdout.split()), strict=True))
    assert found.pop(NOT_ALLOWED) == generated.BAD
    assert set(found.values()) == {generated.GOOD}
