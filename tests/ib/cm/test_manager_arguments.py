"""What owners may get wrong in a call of the manager's is a ``VerbsError`` that changes nothing."""

from collections.abc import Callable
from errno import EINVAL
from random import Random
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.qp import QueuePair
from rdmawire.units import us
from rdmawire.verbs.enums import QPType
from tests.ib.cm.stage import SERVICE, Two

NO_TIMES: tuple[Any, ...] = (None, "now", 1.5, float("nan"), [], -1.0)


def _destroyed(two: Two) -> QueuePair:
    qp = two.client.qp()
    two.client.nic.destroy_qp(qp)
    return qp


NOT_MINE: dict[str, Callable[[Two], Any]] = {
    "another adapter's": lambda two: two.server.qp(),
    "destroyed": _destroyed,
    "a number": lambda _: 17,
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("qp", NOT_MINE.values(), ids=list(NOT_MINE))
def test_a_connection_is_of_a_queue_pair_of_this_adapter(qp: Callable[[Two], Any]) -> None:
    two = Two()
    with pytest.raises(VerbsError, match="no QP of this adapter, or was destroyed") as caught:
        two.client.manager.connect(qp(two), two.client.path_to(two.server), SERVICE, 0)
    assert caught.value.errno == EINVAL
    assert not len(two.client.manager.registry)
    assert not two.client.nic.transmit(0)


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UD])
def test_a_connection_is_granted_with_a_queue_pair_of_this_adapter(kind: QPType) -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    foreign = two.client.qp(kind)
    number = two.server.connection().id
    with pytest.raises(VerbsError, match="no QP of this adapter"):
        two.server.manager.accept(number, foreign, two.simulator.now)
    assert not two.server.nic.transmit(two.simulator.now)


@pytest.mark.parametrize("now", NO_TIMES)
def test_a_time_is_whole_nanoseconds(now: Any) -> None:
    two = Two()
    client = two.client
    manager, path = client.manager, client.path_to(two.server)
    calls: tuple[Callable[[], object], ...] = (
        lambda: manager.connect(client.qp(), path, SERVICE, now),
        lambda: manager.disconnect(1, now),
        lambda: manager.poll(now),
        lambda: manager.handle_timer(now),
    )
    for call in calls:
        with pytest.raises(VerbsError, match="now: ") as caught:
            call()
        assert caught.value.errno == EINVAL
    assert not len(manager.registry)
    assert manager.now == 0


@pytest.mark.parametrize("service", [None, "7174", float("nan"), b"", []])
def test_a_service_is_a_number(service: Any) -> None:
    manager = Two().client.manager
    yes: Any = bytearray(b"yes")
    for call in (manager.listen, manager.stop_listening):
        with pytest.raises(VerbsError, match="service_id"):
            call(service)
        with pytest.raises(VerbsError, match="datagrams"):
            call(SERVICE + 1, datagrams=yes)


@pytest.mark.parametrize("wrong", [None, 7, "text", object(), Random])
@pytest.mark.parametrize("place", range(4), ids=["nic", "neighbours", "random", "settings"])
def test_a_manager_is_made_of_what_it_needs(place: int, wrong: Any) -> None:
    nic = Host().nic
    nobody: dict[bytes, bytes] = {}
    given: list[Any] = [nic, nobody.get, Random(1), Two().client.manager.settings]
    given[place] = wrong
    with pytest.raises(VerbsError):
        ManagedPort(*given)
    ManagedPort(nic, nobody.get, Random(1))  # queue pair 1 is free still
