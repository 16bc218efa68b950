"""A service without descriptors, and clients that take away or hold up what it needs."""

import os
import socket
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL, EMFILE, ENOMEM, EPERM
from fcntl import F_GETFL, F_SETFL, fcntl
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import protocol
from rdmawire.verbs_service.connection import ControlConnection
from rdmawire.verbs_service.process_memory import ProcessMemory
from tests.verbs_service.client import Connection, wait_until
from tests.verbs_service.running import End, Service, connected, running
from tests.verbs_service.test_server_ended_clients import nothing_left
from tests.verbs_service.test_server_hostile import ended, works
from tests.waiting import HANG

FIRST_SPACE = 0x0106
AN_HOUR = 3600
SO_PASSRIGHTS = 83


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path) as found:
        yield found


@pytest.fixture
def pair(service: Service) -> tuple[End, End]:
    return connected(service)


# Memory and descriptors that a client shares with the service.


def test_shared_memory_cannot_be_truncated_by_a_client(
    service: Service, pair: tuple[End, End]
) -> None:
    client = Connection(service.path)
    _, (ring, doorbell, events, copies, buffer) = client.call_for_fds("open_device", 0)
    (handle, _, _), (cq,) = client.call_for_fds("create_cq", 4, 0, 0)
    _, (resized,) = client.call_for_fds("resize_cq", handle, 16)
    for memory in (ring, buffer, cq, resized):
        for size in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(memory, size)
    os.eventfd_write(doorbell, 1)
    assert works(pair)
    for fd in (ring, doorbell, events, copies, buffer, cq, resized):
        os.close(fd)
    client.close()


def test_doorbell_that_blocks_its_readers_holds_up_nothing(
    service: Service, pair: tuple[End, End]
) -> None:
    client = service.connect()
    flags = fcntl(client.doorbell, F_GETFL)
    fcntl(client.doorbell, F_SETFL, flags & ~os.O_NONBLOCK)
    for _ in range(200):
        os.eventfd_write(client.doorbell, 1)
        os.eventfd_read(client.doorbell)  # before the service may
    assert works(pair)
    qp = client.create_qp(client.create_cq(4))
    client.bring_up(qp, qp, client.gid())
    client.close()


def test_descriptors_beside_an_empty_message_are_closed(service: Service) -> None:
    with nothing_left(service):
        for count in (1, 8, 200):
            client = Connection(service.path)
            socket.send_fds(client.socket, [b""], [0] * count)
            assert ended(client)
            client.close()


def test_descriptors_beside_any_message_are_closed(service: Service) -> None:
    with nothing_left(service):
        client = Connection(service.path)
        for count in (1, 7, 8, 9, 253):
            for data in (bytes(8), array("Q", [1, 2]).tobytes(), b"x"):
                words, _ = client.send_message(data, (0,) * count)
                assert words[0] == EINVAL
        client.close()


def slow_to_close() -> tuple[socket.socket, socket.socket]:
    """A socket whose last close waits until the other end, which does not read, is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    slow = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    listener.close()
    slow.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            slow.send(bytes(1 << 16))
    slow.setblocking(True)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, Struct("=2i").pack(1, AN_HOUR))
    return slow, peer


@contextmanager
def held(service: Service) -> Iterator[None]:
    """A service that does nothing meanwhile."""
    is_held, may_go, alarm = threading.Event(), threading.Event(), os.eventfd(1)

    def hold(_: int) -> None:
        os.eventfd_read(alarm)
        is_held.set()
        may_go.wait(HANG)

    service.server.loop.register(alarm, hold)
    is_held.wait(HANG)
    try:
        yield
    finally:
        may_go.set()
        service.server.loop.unregister(alarm)
        os.close(alarm)


@pytest.mark.parametrize(
    ("name", "count", "messages"),
    [
        ("import_device", 1, 1),
        ("alloc_pd", 1, 2),
        pytest.param("alloc_pd", 1, 1, marks=pytest.mark.slow),
        pytest.param("alloc_pd", 9, 1, marks=pytest.mark.slow),
    ],
)
def test_descriptor_that_is_slow_to_close_holds_up_nothing(
    service: Service, pair: tuple[End, End], name: str, count: int, messages: int
) -> None:
    """Nor does one in a message that is never received: the first reply finds no client."""
    slow, peer = slow_to_close()
    client = Connection(service.path)
    (number,) = (call.number for call in protocol.CALLS if call.name == name)
    try:
        with nothing_left(service):
            with held(service):  # so that it closes the last descriptor
                for _ in range(messages):
                    request = array("Q", [number]).tobytes()
                    socket.send_fds(client.socket, [request], [slow.fileno()] * count)
                slow.close()
                client.close()
            assert works(pair)
    finally:
        peer.close()


def test_socket_of_copies_takes_no_descriptors(service: Service) -> None:
    """Linux would close them for the service."""
    client = service.connect()
    if not has_pass_rights():
        pytest.skip("Linux 6.16 is the first that can refuse descriptors")
    with pytest.raises(PermissionError):
        socket.send_fds(client.copy_socket, [bytes(4)], [0])
    client.close()


def has_pass_rights() -> bool:
    """Whether sockets have SO_PASSRIGHTS."""
    one, other = socket.socketpair()
    with one, other:
        try:
            one.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
        except OSError:
            return False
        return True


def test_client_that_takes_no_replies_is_dropped(service: Service, pair: tuple[End, End]) -> None:
    with nothing_left(service):
        client = Connection(service.path)
        request = array("Q", [64]).tobytes()  # cm_create_channel: a descriptor beside each reply
        client.socket.setblocking(False)
        with suppress(ConnectionError):
            while True:
                try:
                    client.socket.send(request)
                except BlockingIOError:
                    os.sched_yield()
        client.close()
    assert works(pair)


def test_event_channel_that_is_not_read_keeps_a_bounded_number_of_events(
    service: Service, pair: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdmawire.verbs_service.cm_id.MAX_EVENTS", 100)
    client = Connection(service.path)
    (channel,), (fd,) = client.call_for_fds("cm_create_channel")
    (made,) = client.call("cm_create_id", channel, FIRST_SPACE, 2)
    destination = (4, 0, 0xFFFF_0000, 7)
    for _ in range(100):
        client.call("cm_resolve_addr", made, 0, 0, 0, 0, *destination)
    assert _refusal(client, "cm_resolve_addr", made, 0, 0, 0, 0, *destination) == ENOMEM
    assert works(pair)
    os.close(fd)
    client.close()


# Connections.


@pytest.mark.parametrize("hundreds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_hundreds_of_connections_are_served(
    service: Service, pair: tuple[End, End], hundreds: int
) -> None:
    with nothing_left(service):
        for _ in range(hundreds):
            some = [Connection(service.path) for _ in range(100)]
            for one in some:
                one.close()
        assert works(pair)


# A service that has no descriptors left.


class Scarcity:
    """Lets the service make ``left`` descriptors; then the system refuses. Others make any."""

    MAKERS = ((os, "memfd_create"), (os, "eventfd"), (os, "pipe2"), (os, "dup"), (os, "open"))

    def __init__(self, monkeypatch: pytest.MonkeyPatch, service: Service, left: int) -> None:
        self.thread = service._thread
        self.left = left
        for module, name in (*self.MAKERS, (socket, "socketpair")):
            monkeypatch.setattr(module, name, self._limited(getattr(module, name)))

    def _limited(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is self.thread:
                self.left -= 1
                if self.left < 0:
                    raise OSError(EMFILE, os.strerror(EMFILE))
            return make(*arguments, **options)

        return made


CALLS = (
    ("create_cq", (4, 0, 0)),
    ("resize_cq", (1, 64)),  # of the first object
    ("create_comp_channel", ()),
)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(left, marks=() if left in (0, 4, 8, 11, 12) else (pytest.mark.slow,))
        for left in range(14)
    ],
)
def test_calls_without_descriptors_are_refused_and_leave_nothing(
    service: Service, pair: tuple[End, End], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nothing_left(service):
        client, manager = Connection(service.path), Connection(service.path)
        with monkeypatch.context() as patch:
            Scarcity(patch, service, left)
            refused = [_refusal(client, "open_device", 0), *_refusals(client)]
            refused.append(_refusal(manager, "cm_create_channel"))
        assert any(refused) == (left < 12)
        assert {*refused} <= {0, EMFILE, ENOMEM, 22}
        client.close()
        manager.close()
    assert works(pair)


def _refusals(client: Connection) -> list[int]:
    return [_refusal(client, name, *arguments) for name, arguments in CALLS]


def _refusal(client: Connection, name: str, *arguments: int) -> int:
    """The errno of a call, whose descriptors are closed; 0 if it is done."""
    try:
        _, fds = client.call_for_fds(name, *arguments)
    except VerbsError as error:
        return error.errno
    for fd in fds:
        os.close(fd)
    return 0


def test_completion_queue_that_cannot_be_resized_is_as_before(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.connect()
    cq = client.create_cq(4)
    with monkeypatch.context() as patch:
        Scarcity(patch, service, 0)
        assert _refusal(client, "resize_cq", cq.handle, 1000)
    qp = client.create_qp(cq)
    client.bring_up(qp, qp, client.gid())
    region = client.buffer(64)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    for _ in range(8):
        client.send_inline(qp, b"x", opcode=0, **place)
        assert cq.wait()[0].status == 0
    assert client.resize_cq(cq, 8).entries == 8
    client.close()


LIMITED = """
import resource
import sys
from pathlib import Path
from rdmawire.verbs_service.device import numbered
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.verbs_service.server import Server

server = Server(Path(sys.argv[1]), numbered(1), DirectNetwork())
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print("ready", flush=True)
server.run()
"""


def test_clients_are_turned_away_while_there_is_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    with subprocess.Popen(
        [sys.executable, "-c", LIMITED, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "ready\n"
        clients = [_connection(path) for _ in range(80)]
        first = clients[0]
        assert first is not None
        assert None in clients
        assert first.call("get_device", 0)[1] == 1
        for one in clients[1:]:
            if one is not None:
                one.close()
        wait_until(lambda: _connection(path) is not None)
        first.close()
        child.kill()
        said = child.stderr.read().splitlines()
    assert said
    assert all("Too many open files" in line for line in said)
    assert len(said) < 40  # not one for each client that waits


def _connection(path: Path) -> Connection | None:
    """A connection, or ``None`` if the service turns it away."""
    one = Connection(path, greet=False)
    try:
        words, _ = one.send_message(array("Q", (1, protocol.version())).tobytes())
    except ConnectionError:
        words = []
    if words:
        return one
    one.close()
    return None


def test_pipes_are_small_where_the_user_has_as_many_as_may_be(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(EPERM, os.strerror(EPERM))

    client = service.connect()
    with monkeypatch.context() as patch:
        patch.setattr("rdmawire.verbs_service.events.fcntl", refuse)
        _, events = client.channel()
    os.close(events)
    client.close()


# Processes.


def test_memory_of_another_user_is_refused() -> None:
    ProcessMemory(os.getpid(), os.getuid()).close()
    with pytest.raises(PermissionError):
        ProcessMemory(os.getpid(), os.getuid() + 1)


CONNECTS_AND_ENDS = """
import socket
import sys

connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connected.connect(sys.argv[1])
with socket.socket(fileno=int(sys.argv[2])) as parent:
    socket.send_fds(parent, [b"x"], [connected.fileno()])
"""


def test_process_that_has_the_pid_of_a_client_that_ended_is_not_read(service: Service) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        command = [sys.executable, "-c", CONNECTS_AND_ENDS, str(service.path), str(theirs.fileno())]
        subprocess.run(command, pass_fds=[theirs.fileno()], check=True)
        _, (fd,), _, _ = socket.recv_fds(mine, 1, 1)
    client = Connection.__new__(Connection)
    client.socket = socket.socket(fileno=fd)
    assert client.call("hello", protocol.version()) == [2]
    (served,) = service.server._clients.values()
    assert served.connection.pid != os.getpid()
    served.connection.pid = os.getpid()  # as if the PID were used again
    (_, copy_thread, *_), fds = client.call_for_fds("open_device", 0)
    assert copy_thread == 1
    for one in fds:
        os.close(one)
    client.close()


def test_living_process_is_known_by_its_connection() -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection = ControlConnection(mine)
    assert connection.is_of_living_process()
    assert connection.pid == os.getpid()
    connection.close()
    theirs.close()
