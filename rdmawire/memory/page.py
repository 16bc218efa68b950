"""Sparse bytes: pages are allocated when they are written."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from rdmawire.validate import BytesLike

PAGE_4K: Final = 1 << 12
PAGE_64K: Final = 1 << 16
PAGE_2M: Final = 1 << 21
LAST_ADDRESS: Final = (1 << 64) - 1


def split(address: int, length: int, page_size: int) -> Iterator[tuple[int, int]]:
    """Split a range at page borders; yield addresses and lengths in bytes."""
    end = address + length
    while address < end:
        border = min(end, (address & -page_size) + page_size)
        yield address, border - address
        address = border


class SparsePages:
    """Bytes at any address, in pages of ``page_size`` (a power of two).

    A page that was never written reads as zeros and takes no memory. An allocated page stays
    the same object until it is dropped, so that views of it may be kept.
    """

    __slots__ = ("_pages", "mask", "page_size", "shift")

    def __init__(self, page_size: int = PAGE_64K) -> None:
        self.page_size = page_size
        self.mask = page_size - 1
        self.shift = page_size.bit_length() - 1
        self._pages: dict[int, memoryview] = {}

    def find(self, number: int) -> memoryview | None:
        """Page ``address >> shift``, if it is allocated."""
        return self._pages.get(number)

    def make(self, number: int) -> memoryview:
        """Page ``address >> shift``, allocated if necessary."""
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = memoryview(bytearray(self.page_size))
        return page

    def drop(self, number: int) -> None:
        """Free a page: it reads as zeros again."""
        self._pages.pop(number, None)

    def read(self, address: int, length: int) -> bytes:
        at = address & self.mask
        if at + length <= self.page_size:
            page = self._pages.get(address >> self.shift)
            return bytes(length) if page is None else bytes(page[at : at + length])
        if length <= self.page_size:  # two pages: no need to count them
            first = self.page_size - at
            return self.read(address, first) + self.read(address + first, length - first)
        return b"".join(self.read(*part) for part in split(address, length, self.page_size))

    def write(self, address: int, data: BytesLike) -> None:
        length = len(data)
        at = address & self.mask
        if at + length <= self.page_size:
            if length:
                self.make(address >> self.shift)[at : at + length] = data
            return
        source = memoryview(data)
        if length <= self.page_size:
            first = self.page_size - at
            self.make(address >> self.shift)[at:] = source[:first]
            self.make((address >> self.shift) + 1)[: length - first] = source[first:]
            return
        for start, size in split(address, length, self.page_size):
            self.write(start, source[start - address : start - address + size])

    def numbers(self, start: int, end: int) -> list[int]:
        """Allocated pages that have bytes from address ``start`` to ``end``."""
        first, last = start >> self.shift, (end - 1) >> self.shift
        if last - first > len(self._pages):
            return [number for number in self._pages if first <= number <= last]
        return [number for number in range(first, last + 1) if number in self._pages]

    def __getstate__(self) -> tuple[int, dict[int, bytes]]:
        """The state of a copy: the page size, and the bytes of each page."""
        return self.page_size, {number: bytes(page) for number, page in self._pages.items()}

    def __setstate__(self, state: tuple[int, dict[int, bytes]]) -> None:
        page_size, pages = state
        self.__init__(page_size)  # type: ignore[misc]
        self._pages = {number: memoryview(bytearray(page)) for number, page in pages.items()}

    @property
    def held(self) -> int:
        """Allocated bytes."""
        return len(self._pages) * self.page_size


class Path(Enum):
    """The path of bytes between an adapter and the memory."""

    HOST = auto()
    GPU_DIRECT = auto()
    BOUNCE = auto()


class PathCounters:
    """DMA on one path: bytes, transactions, and copies made by a processor or GPU.

    ``address`` is that of the last DMA, in the memory's own addresses.
    """

    __slots__ = ("address", "bytes", "copies", "transactions")

    def __init__(self) -> None:
        self.address = 0
        self.bytes = 0
        self.transactions = 0
        self.copies = 0


class DmaCounters:
    """DMA of one adapter, by path. Each access to a region is one DMA, whatever its size."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths = {path: PathCounters() for path in Path}

    def __getitem__(self, path: Path) -> PathCounters:
        return self._paths[path]
