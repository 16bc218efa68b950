# SPDX-License-Identifier: GPL-2.0-only
"""Checksums of packets with a route, as Scapy makes them."""

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from tests.wire.test_checksum import CASES, sealed


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("type", "segments"))])
def test_scapy_makes_the_same_checksums(name: str) -> None:
    """Scapy knows a home address only without other options beside it."""
    kind, extensions, *_ = CASES[name]
    packet = Ether(sealed(kind, extensions))
    found = packet[UDP].chksum
    del packet[UDP].chksum
    assert Ether(bytes(packet))[UDP].chksum == found
