"""Services that nobody acknowledges: what was sent is done."""

import pytest

from rdmawire.fabric.pair import Pair
from rdmawire.nic.state import QPType


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_nothing_stays_in_flight(kind: QPType) -> None:
    pair = Pair(kind=kind)
    for _ in range(3):
        pair.server.receive(16)
        pair.client.send(b"gone and done")
        pair.drive()
    assert not pair.client.qp.sq.in_flight
    assert len(pair.server.poll()) == 3
