"""A service that follows the protocol and does no work, for tests of the C library.

A subclass may change its replies.
"""

import fcntl
import os
import socket
import threading
from array import array
from contextlib import suppress
from pathlib import Path

from rdmawire.verbs_service.protocol import (
    CALLS,
    COMPLETION,
    COPY_BUFFER_BYTES,
    RING_HEADER,
    WORK_RING_BYTES,
    Call,
)

_CALLS = {call.number: call for call in CALLS}
ENTRIES = 16
_SIZES = {
    "work_ring": RING_HEADER + WORK_RING_BYTES,
    "copy_buffer": COPY_BUFFER_BYTES,
    "ring": RING_HEADER + ENTRIES * COMPLETION.struct.size,
}
_VALUES = {
    "device_count": 1,
    "node_type": 1,
    "name0": int.from_bytes(b"fake", "little"),
    "phys_port_cnt": 1,
    "gid_tbl_len": 2,
    "entries": ENTRIES,
    "cqe": ENTRIES,
    "max_send_wr": 8,
    "max_recv_wr": 8,
    "max_wr": 1 << 20,
    "max_send_sge": 1,
    "max_recv_sge": 1,
    "max_sge": 1,
    "max_inline_data": 8,
    "device": 1,
    "src_family": 4,
    "dst_family": 4,
    "path_mtu": 3,
    "mask": 1,
    "status": 0,
    "private_length": 5,
}
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_EVENTS = (0, 2, 4, 5, 6, 9, 10, 8, 12, 7, 15)
"""Types of events of the connection manager, in a usual order."""


class FakeService:
    """Answers on a Unix socket from a thread for each connection, until it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connections: list[FakeConnection] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                self._connections.append(self.connection(connected))

    def connection(self, connected: socket.socket) -> "FakeConnection":
        """Serve a client."""
        return FakeConnection(connected)

    def end_connections(self) -> None:
        """Close all connections at once, as the death of a service does."""
        for connection in self._connections:
            connection.end()

    def close(self) -> None:
        """End everything."""
        self.path.unlink()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.end_connections()


class FakeConnection:
    """One client, and the descriptors that it was given."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.handles = 0
        self.ids = [0]
        self.event = 0
        self.copy_socket = -1
        self.kept: list[int] = []
        self.pipes: list[int] = []
        self.rings: dict[str, int] = {}
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while (data := self.socket.recv(4096)) and self.answer(data):
                pass
        self.socket.close()
        for fd in self.kept:
            with suppress(OSError):
                os.close(fd)

    def answer(self, data: bytes) -> bool:
        """Answer a request. Returns whether more are served."""
        number, *arguments = array("Q", data)
        call = _CALLS[number]
        if call.name.startswith("cm_"):
            self._report()
        if call.name == "cm_destroy_id" and arguments[0] in self.ids:
            self.ids.remove(arguments[0])
        fds = [self._descriptor(name) for name in call.reply_fds]
        self.reply((0, *(self._value(call, name, arguments) for name in call.reply)), fds)
        for fd in fds:
            os.close(fd)
        return True

    def reply(self, words: tuple[int, ...], fds: list[int]) -> None:
        """Send a reply."""
        socket.send_fds(self.socket, [array("Q", words).tobytes()], fds)

    def _value(self, call: Call, name: str, arguments: list[int]) -> int:
        if name == "qp_state":
            return dict(zip(call.request, arguments, strict=True)).get(name, 0)
        if name in _VALUES:
            return _VALUES[name]
        if name == "event":
            self.event += 1
            return _EVENTS[self.event % len(_EVENTS)]
        if name == "listener" or (name == "id" and self._names_id(call)):
            return self.ids[min(1, len(self.ids) - 1)]
        self.handles += 1
        if name == "id":
            self.ids.append(self.handles)
        return self.handles

    def _names_id(self, call: Call) -> bool:
        """Whether the id of a reply is an earlier one: that of an event which is no request."""
        return call.name == "cm_get_event" and _EVENTS[self.event % len(_EVENTS)] != 4

    def _report(self) -> None:
        """Say that there is an event: each call of the connection manager causes one."""
        for pipe in self.pipes:
            with suppress(OSError):
                os.write(pipe, b"\0")

    def _descriptor(self, name: str) -> int:
        """A descriptor for the client; the service's own end is kept."""
        if name in ("async_events", "events"):
            read, write = os.pipe()
            os.set_blocking(write, False)
            self.kept.append(write)
            self.pipes.append(write)
            return read
        if name == "copy_socket":
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.copy_socket = mine.detach()
            self.kept.append(self.copy_socket)
            return theirs.detach()
        if name == "doorbell":
            return os.eventfd(0)
        memory = os.memfd_create(name, os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, _SIZES[name])
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        self.rings[name] = os.dup(memory)
        self.kept.append(self.rings[name])
        return memory

    def end(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
