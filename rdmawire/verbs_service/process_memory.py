"""VirtualMemory of the processes that use the service: pages behind regions.

:class:`ProcessMemory` reads and writes through ``/proc/PID/mem``. Where Linux refuses that, or the
memory is that of a GPU, :class:`CopyThread` asks a thread of the library to copy.
"""

import os
import socket
from collections.abc import Sequence
from errno import EFAULT
from mmap import PAGESIZE
from typing import Final, NoReturn, Protocol

from rdmawire.errors import MemoryFault, OwnerGone, VerbsError
from rdmawire.memory.page import Path
from rdmawire.memory.region import Backing
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
_COPY_TIMEOUT: Final = 2.0
"""Seconds that a library may take for one copy. The service waits meanwhile; after a timeout it
asks this library for no more copies."""
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


class CopyThread:
    """Has a thread of the library copy, one request at a time, through shared memory.

    ``OSError`` without descriptors or memory.
    """

    def __init__(self) -> None:
        kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
        self._buffer = SharedMemory("rdmawire-copy", COPY_BUFFER_BYTES)
        try:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, kind)
        except OSError:
            self._buffer.close()
            raise
        self._socket.settimeout(_COPY_TIMEOUT)
        self._theirs = theirs.detach()
        self._broken = False

    def take_fds(self) -> tuple[int, int]:
        """Return the library's ends, which the caller closes: the socket and the buffer."""
        socket_fd, self._theirs = self._theirs, -1
        return socket_fd, self._buffer.take_fd()

    def _ask(self, direction: int, region: "CopiedRegion", address: int, length: int) -> None:
        """Have the library copy. ``MemoryFault`` if it refuses, is gone or takes too long."""
        request = _REQUEST.pack(direction, region.memory, region.handle, address, length)
        try:
            if self._broken:
                raise OSError
            self._socket.send(request)
            answer = self._socket.recv(_ERRNO)
        except ConnectionError as error:
            raise OwnerGone(_GONE, address, length) from error
        except OSError as error:
            self._broken = True
            raise MemoryFault("the library does not copy", address, length) from error
        if not answer:
            raise OwnerGone(_GONE, address, length)
        if answer != bytes(_ERRNO):
            raise MemoryFault(_UNMAPPED, address, length)

    def read(self, region: "CopiedRegion", address: int, length: int) -> bytes:
        """Read bytes of a region."""
        parts = []
        for start in range(0, length, COPY_BUFFER_BYTES):
            size = min(length - start, COPY_BUFFER_BYTES)
            self._ask(COPY_READ, region, address + start, size)
            parts.append(self._buffer.map[:size])
        return b"".join(parts)

    def write(self, region: "CopiedRegion", address: int, data: BytesLike) -> None:
        """Write bytes of a region."""
        source = memoryview(data)
        for start in range(0, len(data), COPY_BUFFER_BYTES):
            some = source[start : start + COPY_BUFFER_BYTES]
            self._buffer.map[: len(some)] = bytes(some)
            self._ask(COPY_WRITE, region, address + start, len(some))

    def close(self) -> None:
        """Free the socket and the buffer."""
        self._socket.close()
        if self._theirs >= 0:
            os.close(self._theirs)
        self._buffer.close()


class CopiedRegion:
    """The region that a copy request names: ``memory`` is one of :data:`MEMORY_OF_HOST` and so on.

    ``handle`` is 0 until the region has one.
    """

    __slots__ = ("handle", "memory")

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.handle = 0


class CopiedMemory:
    """The memory behind one region, which the library copies."""

    def __init__(self, thread: CopyThread, region: CopiedRegion) -> None:
        self._thread = thread
        self._region = region

    def read(self, address: int, length: int) -> bytes:
        return self._thread.read(self._region, address, length)

    def write(self, address: int, data: BytesLike) -> None:
        self._thread.write(self._region, address, data)

    def write_all(self, address: int, parts: Sequence[BytesLike]) -> None:
        self._thread.write(self._region, address, b"".join(parts))


class ProcessPages(Backing):
    """Pages of a process. Linear addresses are its virtual addresses."""

    path = Path.HOST
    page_size = PAGESIZE
    by_bus_address = False
    is_simple = True
    is_bulk = True
    lends = False

    def __init__(self, memory: VirtualMemory, kind: int = MEMORY_OF_HOST) -> None:
        self.path = Path.HOST if kind == MEMORY_OF_HOST else Path.GPU_DIRECT
        self.read = memory.read  # type: ignore[method-assign]
        self.write = memory.write  # type: ignore[method-assign]
        self.write_all = memory.write_all  # type: ignore[method-assign]

    def lend(self, address: int) -> memoryview | None:  # noqa: ARG002  there are no views
        return None

    def read(self, address: int, length: int) -> bytes:
        raise NotImplementedError

    def write(self, address: int, data: BytesLike) -> None:
        raise NotImplementedError

    def push(self, address: int) -> None:
        """Do nothing: writes are complete at once."""


def check_mapped(memory: VirtualMemory, address: int, length: int) -> None:
    """``VerbsError`` EFAULT if the first or the last byte of a range is not mapped."""
    try:
        for at in (address, address + length - 1):
            memory.read(at, 1)
    except MemoryFault as fault:
        raise VerbsError(f"Bad address: {fault}", EFAULT) from fault
