"""Exceptions in the work of one client, wherever they are raised: the other clients go on."""

import os
import socket
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rdmawire.ib import engine, local_connection
from rdmawire.ib.cm import manager
from rdmawire.live import now
from rdmawire.units import us
from rdmawire.verbs.ah import mapped
from rdmawire.verbs_service import cm, context, posting, server
from rdmawire.verbs_service.attributes import gid_words
from rdmawire.verbs_service.calls import _HANDLERS
from rdmawire.verbs_service.cm_calls import _HANDLERS as _CM_HANDLERS
from rdmawire.verbs_service.cm_id import IPV4, EventChannel
from rdmawire.verbs_service.events import EventPipe
from rdmawire.verbs_service.network import DeviceNetwork, DirectNetwork
from rdmawire.verbs_service.process_memory import ProcessMemory
from rdmawire.verbs_service.protocol import CALLS, CONN_PARAM, PRIVATE_DATA, Call
from rdmawire.verbs_service.ring import CompletionRing
from tests.verbs_service.client import FLUSHED, LOC_QP_OP_ERR, RC_MASKS, WRITE, wait_until
from tests.verbs_service.running import connected, running
from tests.verbs_service.stepped import (
    End,
    Stepped,
    SteppedClient,
    SteppedConnection,
    packets,
    stepped,
)
from tests.verbs_service.test_server_hostile import works

STEPS = 32
"""Maximum steps of the service until work of other clients is done. Without exceptions it is 1."""
TCP, RC = 0x0106, 2


class Broken(Exception):
    """What is raised in the work of one client."""


class Injected:
    """Makes a function raise :class:`Broken` when it works for ``failing``, once that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.failing: Any = None
        self.raised = 0
        original = getattr(owner, name)

        def broken(*arguments: Any, **options: Any) -> Any:
            if self.failing is not None and self._is_for_failing(arguments):
                self.raised += 1
                raise Broken(name)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, broken)

    def _is_for_failing(self, arguments: tuple[Any, ...]) -> bool:
        found = [*arguments, *(getattr(one, "qp", None) for one in arguments)]
        found += [getattr(one, "_context", None) for one in arguments]
        return any(one is self.failing or self.failing.owns(one) for one in found)


@contextmanager
def served(
    folder: Path, network: DeviceNetwork | None = None
) -> Iterator[tuple[Stepped, "Others"]]:
    """A service with eight other clients."""
    with stepped(folder, network) as service:
        service.server._failures._pause = lambda _: None
        yield service, Others(service)


class Others:
    """Eight clients in four pairs, of which each sends to its peer."""

    def __init__(self, service: Stepped) -> None:
        self.service = service
        self.ends = [end for _ in range(4) for end in service.connected()]

    def send(self) -> None:
        """Each posts a WRITE and a SEND."""
        for end in self.ends:
            end.send()

    def check(self) -> None:
        """What they have posted is done within :data:`STEPS` steps."""
        left = dict.fromkeys(self.ends)

        def all_have_sent() -> bool:
            for end in tuple(left):
                if end.has_sent(2):
                    del left[end]
            return not left

        self.service.until(all_have_sent, STEPS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stepped, Others]]:
    """One service for many tests."""
    with served(tmp_path_factory.mktemp("service")) as found:
        yield found


def ends(service: Stepped, others: Others, failing: End, act: Callable[[], None]) -> None:
    """Check that ``act``, between work of the others, ends ``failing`` and no other client."""
    others.send()
    act()
    others.check()
    service.until(lambda: failing.client.is_closed)
    assert failing.served not in service.server._clients.values()
    assert failing.peer.client.call("query_port", 1)
    others.send()
    others.check()


def both_send(failing: End) -> None:
    """Work of the failing client, and of its peer to it."""
    failing.send()
    failing.peer.send()


WORK = [
    (server, "take_work", DirectNetwork),
    (posting, "_queue_pair", DirectNetwork),
    (posting, "_post_sends", DirectNetwork),
    (posting, "enqueue_short", packets),
    (posting, "enqueue_receives", packets),
    (local_connection.LocalConnection, "send", DirectNetwork),
    (local_connection.LocalConnection, "requested", DirectNetwork),
    (local_connection, "_take_receive", DirectNetwork),
    (CompletionRing, "push", DirectNetwork),
    (CompletionRing, "push", packets),
    (ProcessMemory, "read", DirectNetwork),
    (ProcessMemory, "write", DirectNetwork),
    (ProcessMemory, "read", packets),
    (ProcessMemory, "write", packets),
    (engine, "transmit", packets),
    (engine, "respond", packets),
    (engine, "complete", packets),
]


@pytest.mark.parametrize(("owner", "name", "network"), WORK)
def test_exception_in_work_ends_its_client(
    tmp_path: Path,
    owner: Any,
    name: str,
    network: Callable[[], DeviceNetwork],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    injected = Injected(monkeypatch, owner, name)
    with served(tmp_path, network()) as (service, others):
        failing, _ = service.connected()
        injected.failing = failing.served
        ends(service, others, failing, lambda: both_send(failing))
    assert injected.raised
    said = capfd.readouterr().err
    assert said.count("its work raised an exception") == 1
    assert said.startswith(f"rdmawire verbs: process {os.getpid()} on rw0: closed")
    assert f"test_failures.Broken: {name}" in said.splitlines()[-1]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_exception_in_a_call_ends_its_client(
    shared: tuple[Stepped, Others], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, others = shared
    failing, peer = service.connected()
    needs_device = call.number in _HANDLERS
    client: SteppedConnection = failing.client if needs_device else service.connection()
    message = array("Q", (call.number, *(1 for _ in call.request))).tobytes()
    others.send()
    with monkeypatch.context() as patch:
        if needs_device:
            patch.setitem(_HANDLERS, call.number, _raise)
        elif call.number in _CM_HANDLERS:
            patch.setitem(_CM_HANDLERS, call.number, _raise)
        else:
            patch.setattr(server.Server, f"_{call.name}", _raise)
        words, _ = client.send_message(message, tuple(0 for _ in call.request_fds))
    assert not words
    others.check()
    assert client.is_closed
    assert peer.client.call("query_port", 1)
    for one in {client, failing.client, peer.client}:
        one.close()


def _raise(*_: Any) -> Any:
    raise Broken


def test_exceptions_of_events_end_their_client(
    shared: tuple[Stepped, Others], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, others = shared
    for owner, name in ((context.Context, "report_events"), (context.Context, "flush_events")):
        with monkeypatch.context() as patch:
            injected = Injected(patch, owner, name)
            failing, peer = service.connected()
            injected.failing = failing.served
            ends(service, others, failing, partial(_cause_event, failing))
            assert injected.raised
        peer.client.close()


def _cause_event(failing: End) -> None:
    """A WRITE of the peer with an invalid key is an asynchronous event of the failing client."""
    failing.peer.client.send(failing.peer.qp, failing.peer.region.sge(), opcode=WRITE, rkey=1)


def test_exceptions_of_timers_end_their_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injected = Injected(monkeypatch, engine, "timed_out")
    with served(tmp_path, packets()) as (service, others):
        failing, _ = service.connected()
        injected.failing = failing.served
        others.send()
        failing.client.send(failing.qp, failing.region.sge(0, 8))  # no receive: an RNR timer
        others.check()
        service.until(lambda: failing.client.is_closed)
        others.send()
        others.check()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (context.Context, "destroy_qp"),
        (context.Context, "destroy_cq"),
        (context.Context, "dereg_mr"),
        (EventPipe, "close"),
        (ProcessMemory, "close"),
    ],
)
def test_exception_at_the_end_of_a_client_harms_no_other(
    tmp_path: Path, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    injected = Injected(monkeypatch, owner, name)
    with served(tmp_path) as (service, others):
        failing, _ = service.connected()
        injected.failing = opened = failing.served.context
        assert opened is not None
        monkeypatch.setattr(injected, "_is_for_failing", lambda _: True)
        others.send()
        failing.client.close()
        others.check()
        assert injected.raised
        injected.failing = None
        assert failing.served not in service.server._clients.values()
        assert opened.ring.map.closed
        others.send()
        others.check()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (DirectNetwork, "move"),
        (DirectNetwork, "next_timer"),
        (DirectNetwork, "flush"),
        (cm.ConnectionService, "step"),
        (cm.ConnectionService, "next_timer"),
        (manager.ConnectionManager, "poll"),
        (manager.ConnectionManager, "handle_timer"),
        (server.Server, "_accept"),
    ],
)
def test_exception_of_no_client_is_printed_once_and_ends_nothing(
    tmp_path: Path,
    owner: Any,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    injected = Injected(monkeypatch, owner, name)
    monkeypatch.setattr(injected, "_is_for_failing", lambda _: injected.raised < 5)
    with running(tmp_path) as service:
        pair = connected(service)
        pauses: list[float] = []
        service.server._failures._pause = pauses.append
        injected.failing = service
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
            waiting.connect(os.fspath(service.path))
            pair[0].client.call("query_port", 1)

            def has_raised() -> bool:
                service.server.cm.note_call()
                return injected.raised >= 5

            wait_until(has_raised)
        assert works(pair)
        assert len(pauses) == injected.raised
        for end in pair:
            end.client.close()
    said = capfd.readouterr().err
    assert said.count("an exception that belongs to no client: the service goes on") == 1


def test_exception_of_a_connection_manager_ends_the_listener(
    shared: tuple[Stepped, Others], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, others = shared
    with monkeypatch.context() as patch:
        injected = Injected(patch, EventChannel, "put")
        clients = [service.connection(), service.connection()]
        served = [one for one in service.server._clients.values() if one.context is None]
        ids = [_bound_id(client, index) for index, client in enumerate(clients)]
        clients[0].call("cm_listen", ids[0], 1)
        injected.failing = next(one for one in served if one.session and ids[0] in one.session.ids)
        clients[1].call("cm_resolve_addr", ids[1], 0, 0, 0, 0, *_ADDRESSES[0], 9)
        clients[1].call("cm_resolve_route", ids[1])
        others.send()
        clients[1].call(
            "cm_connect", ids[1], *(2 * (name == "qp_num") for name in (*CONN_PARAM, *PRIVATE_DATA))
        )
        service.until(lambda: clients[0].is_closed)
        others.check()
        assert injected.raised
    clients[1].call("cm_destroy_id", ids[1])
    clients[1].close()


_ADDRESSES = [(IPV4, *gid_words(mapped(bytes((10, 0, 0, last))))) for last in (1, 2)]


def _bound_id(client: SteppedConnection, index: int) -> int:
    (channel,), (fd,) = client.call_for_fds("cm_create_channel")
    os.close(fd)
    (made,) = client.call("cm_create_id", channel, TCP, RC)
    if not index:
        client.call("cm_bind", made, *_ADDRESSES[0], 9)
    return made


# Work in states that have none.


@pytest.mark.parametrize(
    ("states", "status"),
    [((), LOC_QP_OP_ERR), ((1,), LOC_QP_OP_ERR), ((1, 6), FLUSHED), ((1, 6, 0), LOC_QP_OP_ERR)],
)
def test_send_before_a_connection_completes_with_an_error(
    shared: tuple[Stepped, Others], states: tuple[int, ...], status: int
) -> None:
    service, others = shared
    client = SteppedClient(service, 0)
    cq = client.create_cq()
    qp = client.create_qp(cq)
    for state in states:
        client.modify(qp, RC_MASKS[0] if state == 1 else 1, qp_state=state, port_num=1)
    others.send()
    client.send_inline(qp, b"x", wr_id=7)
    others.check()
    assert client.query(qp)["qp_state"] == (states[-1] if states else 0)
    assert [(done.wr_id, done.status) for done in cq.poll()] == [(7, status)]
    client.close()


def test_work_beyond_the_queue_ends_its_client(shared: tuple[Stepped, Others]) -> None:
    service, others = shared
    failing, peer = service.connected()
    others.send()
    for _ in range(300):  # its receive queue is empty, so that none of them is done
        failing.client.send(failing.qp, failing.region.sge(0, 8))
    service.until(lambda: failing.client.is_closed)
    others.check()
    peer.client.close()


def test_many_objects_of_a_client_that_is_gone_are_destroyed_in_several_steps(
    shared: tuple[Stepped, Others], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, others = shared
    client = SteppedClient(service, 0)
    for _ in range(500):
        client.call("alloc_mw", client.pd, 1)
    clock = count(now(), 1000)
    monkeypatch.setattr(server, "now", lambda: next(clock))
    monkeypatch.setattr(server, "_MAX_CLOSING", us(100))
    others.send()
    client.close()
    service.until(lambda: service.server._closing)
    others.check()
    assert service.server._closing
    service.until(lambda: not service.server._closing)
    others.send()
    others.check()
