"""Memory of a device: ibv_alloc_dm(3) and ibv_alloc_null_mr(3)."""

from collections.abc import Sequence
from errno import EINVAL, ENOMEM
from fcntl import F_DUPFD_CLOEXEC, fcntl
from mmap import PAGESIZE
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.validate import BytesLike
from rdmawire.verbs_service.process_memory import PagesWithoutViews
from rdmawire.verbs_service.ring import SharedMemory

MAX_DM_SIZE: Final = 1 << 20
"""Maximum bytes of one allocation, the ``max_dm_size`` that programs read."""
MEMORY_OF_DEVICE: Final = 64 << 20
"""Bytes of memory that a device has for all allocations."""
MAX_LOG_ALIGNMENT: Final = PAGESIZE.bit_length() - 1
"""Maximum ``log_align_req``: allocations begin at a page."""


class DeviceMemoryPool:
    """The memory of one device, of which ``allocated`` bytes are in use, in whole pages."""

    def __init__(self) -> None:
        self.allocated = 0

    def allocate(self, length: int, log_alignment: int) -> "DeviceMemory":
        """Allocate ``length`` bytes, aligned to ``1 << log_alignment``: ibv_alloc_dm(3).

        ``VerbsError`` EINVAL for a length or an alignment that is too big, ENOMEM if all is in use.
        """
        if not 0 < length <= MAX_DM_SIZE:
            raise VerbsError(f"length {length}: not 1 to {MAX_DM_SIZE}", EINVAL)
        if log_alignment > MAX_LOG_ALIGNMENT:
            text = f"log_align_req {log_alignment}: at most {MAX_LOG_ALIGNMENT}"
            raise VerbsError(text, EINVAL)
        size = length + -length % PAGESIZE
        if self.allocated + size > MEMORY_OF_DEVICE:
            raise VerbsError(f"all {MEMORY_OF_DEVICE} bytes of device memory are in use", ENOMEM)
        memory = DeviceMemory(self, length, size)
        self.allocated += size
        return memory


class DeviceMemory:
    """``length`` bytes of device memory, which take ``size`` bytes of the pool, in whole pages.

    ``shared`` is the memory, which processes can map; ``regions`` is the number of regions of it.
    ``OSError`` without descriptors or memory.
    """

    def __init__(self, pool: DeviceMemoryPool, length: int, size: int) -> None:
        self.length = length
        self.regions = 0
        self.shared = SharedMemory("rdmawire-dm", size)
        self._pool = pool
        self._size = size

    def duplicate_fd(self) -> int:
        """Return a new descriptor of the memory, which the caller closes."""
        return int(fcntl(self.shared.fd, F_DUPFD_CLOEXEC, 0))

    def check_range(self, offset: int, length: int) -> None:
        """``VerbsError`` EINVAL for a range beyond the end. Linux allows an empty one."""
        if offset + length > self.length:
            text = f"{length} bytes at {offset} exceed the device memory of {self.length}"
            raise VerbsError(text, EINVAL)

    def free(self) -> None:
        """Return the memory to its device."""
        self._pool.allocated -= self._size
        self.shared.close()


class DevicePages(PagesWithoutViews):
    """Pages of device memory. Linear addresses are offsets in it; the region has checked them."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._map = memory.shared.map
        memory.regions += 1

    def read(self, address: int, length: int) -> bytes:
        return self._map[address : address + length]

    def write(self, address: int, data: BytesLike) -> None:
        self._map[address : address + len(data)] = bytes(data)

    def release(self) -> None:
        self._memory.regions -= 1


class NullPages(PagesWithoutViews):
    """Pages that read as zeros, and discard what is written: those of ibv_alloc_null_mr(3)."""

    def read(self, address: int, length: int) -> bytes:  # noqa: ARG002  all are zeros
        return bytes(length)

    def write(self, address: int, data: BytesLike) -> None:
        """Discard the data."""

    def write_all(self, address: int, parts: Sequence[BytesLike]) -> None:
        """Discard the data."""
