"""Strategies: legal packets of every opcode, and a plain word where Hypothesis is missing."""

import subprocess
import sys

from hypothesis import find

from rdmawire.testing.strategies import packets
from rdmawire.wire.opcode import Opcode

WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
import rdmawire.testing
import rdmawire.testing.strategies
"""


def test_without_hypothesis_the_error_is_one_line_that_says_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HYPOTHESIS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: rdmawire.testing.strategies needs Hypothesis: "
        'pip install "rdmawire[hypothesis]"'
    )
    assert "another exception" not in done.stderr


def test_the_smallest_packet_of_an_opcode_is_found() -> None:
    packet = find(packets(), lambda packet: packet.bth.opcode == Opcode.RC_RDMA_WRITE_ONLY)
    assert packet.payload == b""
    packet.check()
