"""Numbers of the manager: of events, of waits, of connections."""

import pytest

from rdmawire.fabric.clock import us
from rdmawire.nic.cm.event import (
    ConnectRequest,
    ConnectResponse,
    Disconnected,
    Established,
    TimewaitExit,
)
from rdmawire.nic.cm.settings import (
    CMSettings,
    ack_timeout,
)
from rdmawire.nic.profile import RXE
from tests.nic.cm.stage import MessageLink, Two, connected

GENERIC = 0x0002_C901_0000_0007
"""A service id without IP header."""


def test_events_have_the_numbers_of_rdma_cm() -> None:
    kinds = (ConnectRequest, ConnectResponse, Established, Disconnected, TimewaitExit)
    assert [int(kind.TYPE) for kind in kinds] == [4, 5, 9, 10, 15]


@pytest.mark.parametrize(
    ("life", "delay", "exponent"),
    [(18, 15, 19), (18, 16, 19), (18, 18, 20), (18, 25, 25), (30, 31, 31)],
)
def test_an_ack_timeout_is_there_and_back_and_the_peers_delay(
    life: int, delay: int, exponent: int
) -> None:
    assert ack_timeout(life, delay) == exponent


def test_soft_roce_is_managed_as_well() -> None:
    _, mine, _ = connected(Two(profile=RXE))
    assert mine.max_rd_atomic == 128


def test_settings_are_the_owners() -> None:
    two = Two(MessageLink(lost={"REQ"}), settings=CMSettings(10, 2, packet_life=5))
    two.ask()
    two.drive()
    assert two.messages() == ["REQ"] * 3 + ["REJ"]
    assert two.world.now == pytest.approx(3 * ((4096 << 10) + 2 * (4096 << 5)), abs=us(5))


def test_ids_are_never_used_twice_at_a_time() -> None:
    two = Two()
    manager = two.client.manager

    class Same:
        def __init__(self) -> None:
            self.numbers = [0, 5, 1, 1, 5, 5, 6, 2, 2]

        def getrandbits(self, _: int, /) -> int:
            return self.numbers.pop(0)

    manager.random = Same()
    path = two.client.path_to(two.server)
    first = manager.connect(two.client.qp(), path, GENERIC, 0)
    second = manager.connect(two.client.qp(), path, GENERIC, 0)
    assert (first, second) == (5, 6)
