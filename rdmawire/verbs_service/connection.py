"""Control connections: requests and replies as arrays of integers, with file descriptors beside.

The format is that of :mod:`rdmawire.verbs_service.protocol`. Nothing here raises for what a client
sends: a message that is no request becomes a refusal.
"""

import os
import socket
from _thread import start_new_thread
from array import array
from collections.abc import Iterable
from contextlib import suppress
from errno import EINVAL, ENOPROTOOPT, EPIPE
from select import POLLIN, poll
from struct import Struct
from typing import Final, NamedTuple

from rdmawire.verbs_service.protocol import CALLS, MAX_REASON, MAX_WORDS, Call

_MAX_FDS: Final = 253
"""Most descriptors of a message, SCM_MAX_FD of Linux: it would close those that it cannot give."""
_WORD: Final = 8
_SO_PEERPIDFD: Final = 77
"""Of <asm-generic/socket.h>: Python's ``socket`` has no name for it."""
_CREDENTIALS: Final = Struct("=3i")
_CALLS: Final = {call.number: call for call in CALLS}


class Request(NamedTuple):
    """A valid request: its call, its arguments, and the descriptors beside it."""

    call: Call
    arguments: tuple[int, ...]
    fds: tuple[int, ...]

    def close_fds(self) -> None:
        """Close the descriptors."""
        close_in_threads(self.fds)


class Reply(NamedTuple):
    """The values of a successful call, and descriptors, which are closed once they are sent."""

    values: tuple[int, ...] = ()
    fds: tuple[int, ...] = ()


NO_VALUES: Final = Reply()


class ClientGone(Exception):
    """The client has closed its connection, or its process has ended."""


def close_in_threads(fds: Iterable[int]) -> None:
    """Close descriptors of a client's files, each in a thread: its number is free at once.

    A client decides how long closing takes: by SO_LINGER (socket(7)), or by its file system.
    """
    for fd in fds:
        try:
            start_new_thread(os.close, (fd,))  # does not wait for its start, as Thread does
        except RuntimeError:  # there can be no more threads
            os.close(fd)


def close_connection(sock: socket.socket) -> None:
    """Close a client's socket: in a thread if there are messages, which may have descriptors."""
    with suppress(OSError):  # the client has closed it
        sock.shutdown(socket.SHUT_RDWR)
    try:
        unread = sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        unread = b""
    if unread:
        close_in_threads((sock.detach(),))
    else:
        sock.close()


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Return PID and user of the process that connected, or that listens: unix(7)."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user


class ControlConnection:
    """One client's socket. ``pid`` is the client's process."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self.fd = sock.fileno()
        self.pid, self.uid = peer_of(sock)

    def receive(self) -> Request | None:
        """Return the next request, or ``None`` after an invalid message, which is refused here.

        Raises :class:`ClientGone` at the end of the connection, ``BlockingIOError`` if
        there is no message.
        """
        size = _WORD * MAX_WORDS + 1
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, size, _MAX_FDS)
        except ConnectionError as error:
            raise ClientGone from error
        request = None if flags & socket.MSG_CTRUNC else _request(data, tuple(fds))
        if request is None:
            close_in_threads(fds)
        if not data:
            raise ClientGone
        if request is None:
            self.refuse(EINVAL, "not a request, or not with its arguments and descriptors")
        return request

    def is_of_living_process(self) -> bool:
        """Whether the process that connected still runs, so that no other one has its PID.

        Before Linux 6.5 that is not known: the result is ``True``.
        """
        try:
            process = self._socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            return error.errno == ENOPROTOOPT
        try:
            ended = poll()
            ended.register(process, POLLIN)
            return not ended.poll(0)
        finally:
            os.close(process)

    def reply(self, reply: Reply) -> None:
        """Answer a request, and close the descriptors that the reply has."""
        try:
            self._send((0, *reply.values), reply.fds)
        finally:
            for fd in reply.fds:
                os.close(fd)

    def refuse(self, error: int, reason: str) -> None:
        """Answer a request with an errno, and the reason in words."""
        text = reason.encode()[:MAX_REASON]
        self._send((error, *array("Q", text.ljust(-(-len(text) // _WORD) * _WORD, b"\0"))), ())

    def _send(self, words: Iterable[int], fds: Iterable[int]) -> None:
        data = array("Q", words).tobytes()
        try:
            socket.send_fds(self._socket, [data], list(fds))
        except OSError as error:
            # A client has one request in flight, so its buffer has room unless it breaks that rule.
            # ETOOMANYREFS: too many descriptors were sent to the user's processes and not received.
            raise ClientGone(EPIPE) from error

    def close(self) -> None:
        """Close the socket."""
        close_connection(self._socket)


def _request(data: bytes, fds: tuple[int, ...]) -> Request | None:
    """Parse a message; ``None`` unless it is a call with all of its arguments and descriptors."""
    if not data or len(data) % _WORD or len(data) > _WORD * MAX_WORDS:
        return None
    number, *arguments = array("Q", data)
    call = _CALLS.get(number)
    if call is None or len(arguments) != len(call.request) or len(fds) != len(call.request_fds):
        return None
    return Request(call, tuple(arguments), fds)
