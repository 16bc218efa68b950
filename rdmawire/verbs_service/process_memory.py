"""Memory of the processes that use the service: pages behind regions.

:class:`ProcessMemory` reads and writes through ``/proc/PID/mem``. Where Linux refuses that, or the
memory is that of a GPU or on demand, :class:`CopyThread` asks a thread of the library to copy.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EFAULT
from mmap import PAGESIZE
from select import POLLIN, poll
from typing import Final, NoReturn, Protocol

from rdmawire.errors import MemoryBusy, MemoryFault, OwnerGone, VerbsError
from rdmawire.live import now
from rdmawire.memory.page import Path
from rdmawire.memory.region import Backing
from rdmawire.units import ms, seconds, us
from rdmawire.validate import BytesLike
from rdmawire.verbs_service.protocol import (
    COPY_BUFFER_BYTES,
    COPY_READ,
    COPY_REQUEST,
    COPY_WRITE,
    MEMORY_OF_HOST,
)
from rdmawire.verbs_service.ring import SharedMemory

_REQUEST: Final = COPY_REQUEST.struct
_ERRNO: Final = 4
_SO_PASSRIGHTS: Final = 83
"""Of <asm-generic/socket.h>, since Linux 6.16. Set to 0 it refuses descriptors, whose closing may
wait."""
_MAX_WAIT: Final = ms(25)
"""Maximum time (ns) in each step that the service waits for the copies of one library, before it
serves the others: few copies take so long, and work that is tried again takes longer."""
_EXTRA_WAIT, _EXTRA_EVERY = ms(40), seconds(10)
"""Time (ns) that it waits longer, at most once in a period (ns): a copy that is late once, on a
busy machine, then causes no RNR NAK, which would end the connection of a peer without RNR retries.
"""
_COPY_TIMEOUT: Final = seconds(2)
"""Time (ns) that a library may take for one copy. Then the service asks it for no more."""
_MAX_LATE_ANSWERS: Final = 50
"""Late answers in a row after which the service asks for no more copies."""
_MIN_RETRY, _MAX_RETRY = us(200), ms(20)
_MS: Final = ms(1)
_IOV_MAX: Final = os.sysconf("SC_IOV_MAX")


class VirtualMemory(Protocol):
    """Memory of another process, by its virtual addresses.

    ``MemoryFault`` for addresses that are not mapped, ``OwnerGone`` if the process has ended.
    """

    def read(self, address: int, length: int) -> bytes: ...

    def write(self, address: int, data: BytesLike) -> None: ...

    def write_all(self, address: int, parts: Sequence[BytesLike]) -> None:
        """Write parts, one behind the other, from ``address`` on."""


class ProcessMemory:
    """The memory of a process of user ``uid`` through ``/proc/PID/mem``.

    ``OSError`` if Linux does not let this process open it. A service of root may open that of any
    process, so ``PermissionError`` if it has another owner, as a program with more rights has that
    the process executed after it connected.
    """

    def __init__(self, pid: int, uid: int) -> None:
        self._fd = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        owner = os.fstat(self._fd).st_uid
        if owner != uid:
            os.close(self._fd)
            raise PermissionError(f"process {pid} is of user {owner}, not {uid}")

    def read(self, address: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, address)
        except (OSError, OverflowError) as error:
            raise MemoryFault(_UNMAPPED, address, length) from error
        if len(data) != length:
            _fail(len(data), address, length)
        return data

    def write(self, address: int, data: BytesLike) -> None:
        try:
            written = os.pwrite(self._fd, data, address)
        except (OSError, OverflowError) as error:
            raise MemoryFault(_UNMAPPED, address, len(data)) from error
        if written != len(data):
            _fail(written, address, len(data))

    def write_all(self, address: int, parts: Sequence[BytesLike]) -> None:
        for start in range(0, len(parts), _IOV_MAX):
            some = parts[start : start + _IOV_MAX]
            length = sum(map(len, some))
            try:
                written = os.pwritev(self._fd, some, address)
            except (OSError, OverflowError) as error:
                raise MemoryFault(_UNMAPPED, address, length) from error
            if written != length:
                _fail(written, address, length)
            address += length

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


_UNMAPPED: Final = "no such memory in the process"
_GONE: Final = "the process has ended"


def _fail(done: int, address: int, length: int) -> NoReturn:
    """Raise ``MemoryFault``: only ``done`` bytes were copied.

    Linux copies none, without an error, once the process has no memory any more: mem_rw() of
    fs/proc/base.c.
    """
    if not done:
        raise OwnerGone(_GONE, address, length)
    raise MemoryFault(_UNMAPPED, address, length)


class Turns:
    """Counts the steps of a service: ``number`` is that of the present one."""

    def __init__(self) -> None:
        self.number = 0


class CopyThread:
    """Has a thread of the library copy, one request at a time, through shared memory.

    The service waits for the answers of one library :data:`_MAX_WAIT` at most in each of its
    ``turns``. After that the answer is late: until it is there no more copies are requested, and
    accesses raise :class:`Late`, so that their work is tried again. ``on_late`` is called when an
    answer becomes late, ``on_answer`` when it is there, or is not awaited any more.

    ``OSError`` without descriptors or memory.
    """

    def __init__(self, turns: Turns) -> None:
        kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._buffer = SharedMemory("rdmawire-copy", COPY_BUFFER_BYTES)
        try:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, kind)
        except OSError:
            self._buffer.close()
            raise
        theirs.setblocking(True)
        with suppress(OSError):  # before Linux 6.16
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        self.fd = self._socket.fileno()
        self._ready = poll()
        self._ready.register(self.fd, POLLIN)
        self._theirs = theirs.detach()
        self._turns = turns
        self._turn = self._left = self._extra_at = 0
        self._late_since = self._late_answers = 0
        self._broken = self._gone = False
        self.on_late: Callable[[], None] = do_nothing
        self.on_answer: Callable[[], None] = do_nothing

    def take_fds(self) -> tuple[int, int]:
        """Return the library's ends, which the caller closes: the socket and the buffer."""
        socket_fd, self._theirs = self._theirs, -1
        return socket_fd, self._buffer.take_fd()

    @property
    def is_late(self) -> bool:
        """Whether an answer is late."""
        return self._late_since > 0

    @property
    def retry_time(self) -> int:
        """Time (ns) to wait before a late access is tried again: it grows with the lateness."""
        return min(max((now() - self._late_since) // 8, _MIN_RETRY), _MAX_RETRY)

    def take_late_answer(self) -> None:
        """Take a late answer if it is there, or await it no more after :data:`_COPY_TIMEOUT`."""
        if not self.is_late:
            return
        if self._take_answer() is None:
            self._broken = now() - self._late_since > _COPY_TIMEOUT
            if not self._broken:
                return
        self._late_since = 0
        self._late_answers += 1
        self.on_answer()

    def _check(self, address: int, length: int) -> None:
        """Check that a copy may be requested. ``MemoryFault`` if the library does not copy."""
        self.take_late_answer()
        if self.is_late:
            raise Late
        if self._gone:
            raise OwnerGone(_GONE, address, length)
        if self._broken or self._late_answers > _MAX_LATE_ANSWERS:
            raise MemoryFault("the library does not copy", address, length)

    def _ask(self, direction: int, region: "CopiedRegion", address: int, length: int) -> None:
        """Have the library copy. ``MemoryFault`` if it refuses or is gone."""
        request = _REQUEST.pack(direction, region.memory, region.handle, address, length)
        try:
            self._socket.send(request)
        except OSError as error:
            self._gone = True
            raise OwnerGone(_GONE, address, length) from error
        answer = self._wait_for_answer()
        if not answer:
            raise OwnerGone(_GONE, address, length)
        if answer != bytes(_ERRNO):
            raise MemoryFault(_UNMAPPED, address, length)

    def _wait_for_answer(self) -> bytes:
        """The answer, empty if the library is gone. :class:`Late` if it does not come in time."""
        start = now()
        if self._turn != self._turns.number:
            self._turn, self._left = self._turns.number, _MAX_WAIT
        answer = self._poll(max(self._left, 0))
        if answer is None and start >= self._extra_at:
            self._extra_at = start + _EXTRA_EVERY
            answer = self._poll(_EXTRA_WAIT)
        if answer is not None:
            self._left -= now() - start
            self._late_answers = 0
            return answer
        self._left, self._late_since = 0, start
        self.on_late()
        raise Late

    def _poll(self, time: int) -> bytes | None:
        """The answer, if it comes within ``time`` (ns)."""
        return self._take_answer() if self._ready.poll(time / _MS) else None

    def _take_answer(self) -> bytes | None:
        """The answer, if it is there; empty if the library is gone."""
        try:
            answer = self._socket.recv(_ERRNO)
        except BlockingIOError:
            return None
        except OSError:
            answer = b""
        self._gone = not answer
        return answer

    def read(self, region: "CopiedRegion", address: int, length: int) -> bytes:
        """Read bytes of a region."""
        parts = []
        for start in range(0, length, COPY_BUFFER_BYTES):
            size = min(length - start, COPY_BUFFER_BYTES)
            self._check(address + start, size)
            self._ask(COPY_READ, region, address + start, size)
            parts.append(self._buffer.map[:size])
        return b"".join(parts)

    def write(self, region: "CopiedRegion", address: int, data: BytesLike) -> None:
        """Write bytes of a region."""
        source = memoryview(data)
        for start in range(0, len(data), COPY_BUFFER_BYTES):
            some = source[start : start + COPY_BUFFER_BYTES]
            self._check(address + start, len(some))
            self._buffer.map[: len(some)] = bytes(some)
            self._ask(COPY_WRITE, region, address + start, len(some))

    def close(self) -> None:
        """Free the socket and the buffer."""
        self._gone, self._late_since = True, 0
        self._socket.close()
        if self._theirs >= 0:
            os.close(self._theirs)
        self._buffer.close()


class Late(Exception):
    """Raised for an access while the library is late with a copy."""


def do_nothing() -> None:
    """Do nothing: the default of ``on_late`` and ``on_answer``."""


class CopiedRegion:
    """The region that a copy request names.

    ``memory`` is :data:`MEMORY_OF_HOST`, ``MEMORY_OF_GPU`` or ``MEMORY_OF_DMABUF`` of the protocol;
    ``handle`` is 0 until the region has one.
    """

    __slots__ = ("handle", "memory")

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.handle = 0


class PagesWithoutViews(Backing):
    """Host pages that are read and written by calls, at once: they have no views."""

    path = Path.HOST
    page_size = PAGESIZE
    is_simple = True
    lends = False

    def lend(self, address: int) -> memoryview | None:  # noqa: ARG002  there are no views
        return None

    def push(self, address: int) -> None:
        """Do nothing: writes are complete at once."""


class ProcessPages(PagesWithoutViews):
    """Pages of a process. Linear addresses are its virtual addresses."""

    is_bulk = True

    def __init__(self, memory: VirtualMemory) -> None:
        self.read = memory.read  # type: ignore[method-assign]
        self.write = memory.write  # type: ignore[method-assign]
        self.write_all = memory.write_all  # type: ignore[method-assign]

    def read(self, address: int, length: int) -> bytes:
        raise NotImplementedError

    def write(self, address: int, data: BytesLike) -> None:
        raise NotImplementedError


class CopiedPages(ProcessPages):
    """Pages behind one region, which the library copies.

    An access raises ``MemoryBusy`` while the library is late.
    """

    def __init__(self, thread: CopyThread, region: CopiedRegion) -> None:
        self.path = Path.HOST if region.memory == MEMORY_OF_HOST else Path.GPU_DIRECT
        self._thread = thread
        self._region = region

    def read(self, address: int, length: int) -> bytes:
        try:
            return self._thread.read(self._region, address, length)
        except Late:
            raise self._busy(address, length) from None

    def write(self, address: int, data: BytesLike) -> None:
        try:
            self._thread.write(self._region, address, data)
        except Late:
            raise self._busy(address, len(data)) from None

    def write_all(self, address: int, parts: Sequence[BytesLike]) -> None:
        self.write(address, b"".join(parts))

    def _busy(self, address: int, length: int) -> MemoryBusy:
        time = 0 if self.initiator is None else self.initiator.now
        return MemoryBusy("the library copies", address, length, time + self._thread.retry_time)


def check_mapped(memory: VirtualMemory, address: int, length: int) -> None:
    """``VerbsError`` EFAULT if the first or the last byte of a range is not mapped."""
    try:
        for at in (address, address + length - 1):
            memory.read(at, 1)
    except MemoryFault as fault:
        raise VerbsError(f"Bad address: {fault}", EFAULT) from fault
