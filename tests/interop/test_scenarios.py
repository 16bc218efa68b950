"""What scenarios put on the wire, field by field, against tshark: all of them in one capture."""

import shutil
from itertools import islice
from pathlib import Path

import pytest

from rdmawire.capture import create_capture, open_capture
from rdmawire.traffic.scenario.reader import read_shipped, shipped
from rdmawire.traffic.scenario.runner.play import play
from tests.interop.test_tshark import differences_used

MOST = 100
"""Frames of each scenario: those after them are more of the same."""

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


def test_every_field_is_what_tshark_finds(tmp_path: Path) -> None:
    whole, one = tmp_path / "scenarios.pcap", tmp_path / "one.pcap"
    with create_capture(whole) as writer:
        for name in shipped():
            play(read_shipped(name), capture=one)
            with open_capture(one) as records:
                for record in islice(records, MOST):
                    writer.write(record)
    _, unexplained = differences_used(whole)
    assert not unexplained, "\n".join(unexplained[:20])
