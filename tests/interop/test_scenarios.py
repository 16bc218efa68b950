"""What scenarios put on the wire, field by field, against tshark: all of them in one capture."""

import shutil
from itertools import islice
from pathlib import Path

import pytest

from rdmawire.capture import create_capture, open_capture
from rdmawire.traffic.scenario.reader import read_shipped, shipped
from rdmawire.traffic.scenario.runner.play import play
from tests.interop.comparison import compared

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


@pytest.mark.parametrize("frames", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_every_field_is_what_tshark_finds(frames: int, tmp_path: Path) -> None:
    """Compare the first frames of each scenario: those after them are more of the same."""
    whole, one = tmp_path / "scenarios.pcap", tmp_path / "one.pcap"
    with create_capture(whole) as writer:
        for name in shipped():
            play(read_shipped(name), capture=one)
            with open_capture(one) as records:
                for record in islice(records, frames):
                    writer.write(record)
    _, unexplained = compared(whole)
    assert not unexplained, "\n".join(unexplained[:20])
