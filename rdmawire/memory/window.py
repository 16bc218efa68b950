"""Windows: ranges of the address space, each with its own way to be read and written.

A space admits an access to every window it touches before any of them changes anything;
``read`` and ``write`` are called only for ranges inside the window that ``admit`` let pass.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from errno import EINVAL
from typing import Final, Protocol

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.argument import check_kind
from rdmawire.memory.counter import Path
from rdmawire.memory.page import LAST_ADDRESS, PAGE_2M, PAGE_4K, PAGE_64K, Octets, SparsePages
from rdmawire.screen import shown

HOST_PAGE_SIZES: Final = (PAGE_4K, PAGE_2M)
_RECORDED_RINGS: Final = 4096


class Initiator(Protocol):
    """A device that reads and writes on the bus; ``now`` is its time (ns)."""

    now: int


class Window(ABC):
    """``size`` octets from ``base``; both are multiples of ``page_size``, else EINVAL."""

    pinnable = False  # whether a region may be made of it as of host memory
    path = Path.HOST

    def __init__(self, base: int, size: int, page_size: int = PAGE_4K) -> None:
        check_kind("base", base, int)
        check_kind("size", size, int)
        if base < 0 or size <= 0 or base + size > LAST_ADDRESS + 1:
            raise VerbsError(
                f"window of {shown(size)} octets at {shown(base)} is outside 64 bits", EINVAL
            )
        if (base | size) % page_size:
            raise VerbsError(f"window of {size} at {base:#x} is not of {page_size} pages", EINVAL)
        self.base = base
        self.size = size
        self.end = base + size
        self.page_size = page_size

    @abstractmethod
    def admit(self, address: int, length: int, *, writing: bool) -> None:
        """``MemoryFault`` if the window refuses this access."""

    @abstractmethod
    def read(self, address: int, length: int) -> bytes: ...

    @abstractmethod
    def write(self, address: int, data: Octets) -> None: ...

    def post(
        self,
        address: int,
        data: Octets,
        initiator: Initiator | None,  # noqa: ARG002  most windows keep no write waiting
        relaxed: bool,  # noqa: ARG002
    ) -> None:
        """Write as ``initiator`` does by DMA; ``relaxed`` may overtake its earlier writes."""
        self.write(address, data)

    def lend(self, address: int, length: int) -> memoryview | None:  # noqa: ARG002
        """These octets themselves, inside one page; ``None`` where each access must come here.

        What is lent once may be kept and written as long as its pages are pinned.
        """
        return None


def check_page_size(page_size: int) -> None:
    """``VerbsError`` EINVAL for pages that hosts do not have."""
    if not isinstance(page_size, int) or page_size not in HOST_PAGE_SIZES:
        raise VerbsError(f"host pages of {shown(page_size)}, not of {HOST_PAGE_SIZES}", EINVAL)


class HostMemory(Window):
    """Sparse host memory; ``page_size`` is what the host pins and faults in, 4 KiB or 2 MiB."""

    pinnable = True

    def __init__(
        self, base: int, size: int, page_size: int = PAGE_4K, *, read_only: bool = False
    ) -> None:
        check_page_size(page_size)
        super().__init__(base, size, page_size)
        self.read_only = read_only
        # Kept in larger pieces than it is paged in: fewer packets meet a border.
        self.pages = SparsePages(max(page_size, PAGE_64K))

    def admit(self, address: int, length: int, *, writing: bool) -> None:
        if writing and self.read_only:
            raise MemoryFault("read-only memory", address, length)

    def read(self, address: int, length: int) -> bytes:
        return self.pages.read(address, length)

    def write(self, address: int, data: Octets) -> None:
        self.pages.write(address, data)

    def lend(self, address: int, length: int) -> memoryview | None:
        pages = self.pages
        page = None if self.read_only else pages.find(address >> pages.shift)
        at = address & pages.mask
        return None if page is None else page[at : at + length]


class DoorbellPage(Window):
    """MMIO of an adapter: every write rings, nothing can be read.

    ``ring(offset, data)`` is called for each write. Without it the last few thousand writes are
    kept in ``rings``.
    """

    def __init__(self, base: int, ring: Callable[[int, bytes], None] | None = None) -> None:
        super().__init__(base, PAGE_4K)
        self.rings: deque[tuple[int, bytes]] = deque(maxlen=_RECORDED_RINGS)
        self._ring = ring or self._record

    def _record(self, offset: int, data: bytes) -> None:
        self.rings.append((offset, data))

    def admit(self, address: int, length: int, *, writing: bool) -> None:
        if not writing:
            raise MemoryFault("write-only doorbell page", address, length)

    def read(self, address: int, length: int) -> bytes:
        raise MemoryFault("write-only doorbell page", address, length)

    def write(self, address: int, data: Octets) -> None:
        self._ring(address - self.base, bytes(data))
