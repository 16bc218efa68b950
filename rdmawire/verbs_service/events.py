"""Pipes for events: those of completion channels, and asynchronous ones.

A library reads the events when its application asks for them. A pipe that is full leaves its events
pending here, so that a client that reads nothing does not delay others.
"""

import os
from collections import deque
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from typing import Final

from rdmawire.verbs.cq import CompChannel

_PIPE_BYTES: Final = 1 << 16
MAX_PENDING: Final = 1 << 16
"""Maximum events that wait for room in a pipe. More are dropped: their reader is thousands of
events behind, and finds in the older ones what it needs."""


class EventPipe:
    """A pipe whose read end is the library's."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._read, True)
        with suppress(PermissionError):  # the user's pipes have all the memory they may: pipe(7)
            fcntl(self._write, F_SETPIPE_SZ, _PIPE_BYTES)
        self._pending: deque[bytes] = deque()

    def take_read_end(self) -> int:
        """Return the descriptor that events are read from, which the caller closes."""
        fd, self._read = self._read, -1
        return fd

    @property
    def is_full(self) -> bool:
        """Whether events are pending."""
        return bool(self._pending)

    def put(self, event: bytes) -> None:
        """Write an event, or keep it until there is room."""
        if not self._pending and self._write_one(event):
            return
        if len(self._pending) < MAX_PENDING:
            self._pending.append(event)

    def flush(self) -> None:
        """Write pending events while there is room."""
        while self._pending and self._write_one(self._pending[0]):
            self._pending.popleft()

    def _write_one(self, event: bytes) -> bool:
        """Write an event. ``False`` if there is no room. Without a reader the event is dropped."""
        try:
            os.write(self._write, event)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        return True

    def close(self) -> None:
        """Close the descriptors that were not taken."""
        for fd in (self._read, self._write):
            if fd >= 0:
                os.close(fd)


class Channel(CompChannel):
    """A completion channel: the pipe, and how many CQs use it."""

    __slots__ = ("pipe", "users")

    def __init__(self) -> None:
        super().__init__()
        self.pipe = EventPipe()
        self.users = 0
