"""Numbers of the manager: of events, of waits, of connections."""

from collections.abc import Callable
from errno import EINVAL
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.connection import CMSettings, ConnParam, ack_timeout
from rdmawire.ib.cm.event import (
    ConnectRequest,
    ConnectResponse,
    Disconnected,
    Established,
    TimewaitExit,
)
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.units import us
from rdmawire.verbs.profile import RXE
from tests.ib.cm.stage import SERVICE, UP, MessageLink, Two, connected

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
    two.request()
    two.drive()
    assert two.messages() == ["REQ"] * 3 + ["REJ"]
    assert two.simulator.now == pytest.approx(3 * ((4096 << 10) + 2 * (4096 << 5)), abs=us(5))


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


@pytest.mark.parametrize(
    "settings",
    [
        CMSettings(response_timeout=32),
        CMSettings(max_cm_retries=16),
        CMSettings(mra_timeout=-1),
        CMSettings(packet_life=32),
        CMSettings(max_connections=-1),
    ],
)
def test_settings_that_fit_no_message_are_refused(settings: CMSettings) -> None:
    with pytest.raises(VerbsError) as refused:
        Two(settings=settings)
    assert refused.value.errno == EINVAL


WRONG: list[Any] = [None, "word", 1.5, b"octets", [], -1, 1 << 70]


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_refused_and_change_nothing(wrong: Any) -> None:
    two = Two()
    manager, qp, path = two.client.manager, two.client.qp(), two.client.path_to(two.server)
    calls: list[Callable[[], object]] = [
        lambda: manager.listen(wrong),
        lambda: manager.listen(GENERIC, backlog=wrong),
        lambda: manager.connect(wrong, path, GENERIC, 0),
        lambda: manager.connect(qp, wrong, GENERIC, 0),
        lambda: manager.connect(qp, path, wrong, 0),
        lambda: manager.connect(qp, path, GENERIC, 0, wrong),
        lambda: manager.connect(qp, path, SERVICE, 0, source_port=wrong),
        lambda: manager.connect(qp, path, GENERIC, 0, ConnParam(flow_control=wrong)),
        lambda: manager.connect(qp, path, GENERIC, 0, ConnParam(retry_count=wrong)),
        lambda: manager.accept(wrong, qp, 0),
        lambda: manager.disconnect(wrong, 0),
    ]
    for call in calls:
        with pytest.raises(VerbsError):
            call()
    assert two.client.is_clean()
    two.request()
    two.drive(us(10))
    two.server.accept()
    two.drive(us(10))
    assert two.client.state() is UP


@pytest.mark.parametrize("wrong", [None, "word", 1.5, -1, 1 << 70])
def test_a_wrong_refusal_is_none(wrong: Any) -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    server = two.server.manager
    calls: list[Callable[[], object]] = [
        lambda: server.reject(request.id, 0, wrong),
        lambda: server.reject(request.id, 0, b"", wrong),
        lambda: server.accept(request.id, wrong, 0),
        lambda: server.accept(request.id, two.server.qp(), 0, wrong),
    ]
    for call in calls:
        with pytest.raises(VerbsError):
            call()
    assert two.server.state() is CMState.REQ_RCVD
