"""Clients with very many objects: calls, events and the end of one of them hold up no other."""

import os
import sys
from collections.abc import Callable, Iterator
from errno import ENOMEM
from itertools import count
from pathlib import Path

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import PortSpace
from rdmawire.live import now
from rdmawire.units import us
from rdmawire.verbs_service import calls, cm_id, server
from tests.verbs_service.client import RC, UD, Connection
from tests.verbs_service.stepped import Stepped, SteppedClient, SteppedConnection, stepped

MANY = 1000
FEW_CALLS = 900
"""More than a call takes that looks at no other object, and less than one for each of them."""
USER_EVENT = 18
LAST_WQE, ERR = 16, 6


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Stepped]:
    with stepped(tmp_path) as found:
        yield found


def calls_in(work: Callable[[], object]) -> int:
    """How many functions are called, in Python or C, while ``work`` is done in this thread."""
    found = [0]

    def note(_frame: object, event: str, _what: object) -> None:
        found[0] += event.endswith("call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found[0]


def client_of_many(service: Stepped) -> SteppedClient:
    client = SteppedClient(service, 0)
    for _ in range(MANY):
        client.call("create_comp_cntr", 0)
    return client


def test_events_and_counters_look_at_no_other_object(service: Stepped) -> None:
    client = client_of_many(service)
    (srq, *_) = client.call("create_srq", client.pd, 0, 4, 1, 0, 0, 0)
    qp = client.create_qp(client.create_cq(4), srq=srq)
    client.modify(qp, 0x39, qp_state=1, port_num=1)
    os.set_blocking(client.async_events, False)
    assert calls_in(lambda: client.modify(qp, 1, qp_state=ERR)) < FEW_CALLS
    assert client.async_event() == (LAST_WQE, qp.number)
    assert calls_in(lambda: client.call("read_counters", 0)) < FEW_CALLS


def test_destroying_counters_looks_at_no_other_object(service: Stepped) -> None:
    client = client_of_many(service)
    (flows,), (completions,) = client.call("create_counters"), client.call("create_comp_cntr", 0)
    assert calls_in(lambda: client.call("destroy_counters", flows)) < FEW_CALLS
    assert calls_in(lambda: client.call("destroy_comp_cntr", completions)) < FEW_CALLS


def test_destroying_a_queue_pair_looks_at_no_groups_of_others(
    service: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_GROUPS", MANY)
    client = SteppedClient(service, 0)
    cq = client.create_cq(4)
    qps = [client.create_qp(cq, kind=UD, depth=1) for _ in range(2)]
    for qp in qps:
        client.bring_up_ud(qp, 1)
    for number in range(MANY):
        client.call("attach_mcast", qps[0].handle, 0x0EFF, number, 0)
    with pytest.raises(VerbsError, match="the maximum") as refused:
        client.call("attach_mcast", qps[0].handle, 0x0EFF, MANY, 0)
    assert refused.value.errno == ENOMEM
    client.call("attach_mcast", qps[1].handle, 0x0EFF, MANY, 0)
    assert calls_in(lambda: client.call("destroy_qp", qps[1].handle)) < FEW_CALLS
    client.call("detach_mcast", qps[0].handle, 0x0EFF, 0, 0)
    client.call("attach_mcast", qps[0].handle, 0x0EFF, MANY, 0)
    client.call("destroy_qp", qps[0].handle)
    assert not service.server.devices[0].nic.groups


def client_of_ids(service: Stepped, number: int) -> tuple[SteppedConnection, int, list[int]]:
    """A client of the connection manager: its channel, and its ids."""
    client = SteppedConnection(service)
    (channel,), (fd,) = client.call_for_fds("cm_create_channel")
    os.close(fd)
    return client, channel, [new_id(client, channel) for _ in range(number)]


def new_id(client: Connection, channel: int) -> int:
    (made,) = client.call("cm_create_id", channel, PortSpace.TCP, RC)
    return made


def test_destroying_an_id_looks_at_no_events_of_others(service: Stepped) -> None:
    client, channel, ids = client_of_ids(service, 2)
    for _ in range(MANY):
        client.call("cm_write_event", ids[0], USER_EVENT, 0, 0)
    client.call("cm_write_event", ids[1], USER_EVENT, 0, 7)
    assert calls_in(lambda: client.call("cm_destroy_id", ids[1])) < FEW_CALLS
    event, _, owner, *_ = client.call("cm_get_event", channel)
    assert (event, owner) == (USER_EVENT, ids[0])


def test_ids_of_a_client_that_is_gone_are_destroyed_in_several_steps(
    service: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, ids = client_of_ids(service, 500)
    other, channel, _ = client_of_ids(service, 0)
    client.call("cm_bind", ids[0], 4, 0, 0xFFFF_0000, 7000)
    clock = count(now(), 1000)
    monkeypatch.setattr(server, "now", lambda: next(clock))
    monkeypatch.setattr(server, "_MAX_CLOSING", us(100))
    client.close()
    service.until(lambda: service.server._closing)
    assert new_id(other, channel)
    assert service.server._closing
    service.until(lambda: not service.server._closing)
    other.call("cm_bind", new_id(other, channel), 4, 0, 0xFFFF_0000, 7000)


def test_events_of_an_id_are_moved_to_a_channel_that_has_room(
    service: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cm_id, "MAX_EVENTS", 3)
    client, channel, ids = client_of_ids(service, 2)
    (second,), (fd,) = client.call_for_fds("cm_create_channel")
    os.close(fd)
    client.call("cm_migrate_id", ids[1], second)
    for one in (ids[0], ids[0], ids[1], ids[1]):
        client.call("cm_write_event", one, USER_EVENT, 0, 0)
    with pytest.raises(VerbsError) as refused:
        client.call("cm_migrate_id", ids[0], second)
    assert refused.value.errno == ENOMEM
    client.call("cm_get_event", second)
    client.call("cm_migrate_id", ids[0], second)
    owners = [client.call("cm_get_event", second)[2] for _ in range(3)]
    assert owners == [ids[1], ids[0], ids[0]]
    client.call("cm_destroy_id", ids[0])
    client.call("cm_destroy_channel", channel)
