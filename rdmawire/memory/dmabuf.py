"""Memory shared by file descriptor: dma-bufs, and regions over them."""

from abc import ABC, abstractmethod
from errno import EBADF, EINVAL, EOPNOTSUPP, ETIMEDOUT
from typing import Final, NamedTuple, NoReturn, Protocol

from rdmawire.errors import ENOTSUPP, MemoryFault, VerbsError
from rdmawire.memory.address_space import AddressSpace, Initiator
from rdmawire.memory.key import DMABUF_FLAGS, ProtectionDomain, check_access
from rdmawire.memory.mr_table import Extent, MemoryRegionTable
from rdmawire.memory.page import LAST_ADDRESS, PAGE_4K, PAGE_64K, Path
from rdmawire.memory.region import Backing, PageList, Region
from rdmawire.terminal import describe
from rdmawire.validate import BytesLike, check_int, check_type

_FIRST_FD: Final = 3


class Importer(Protocol):
    """A user of a dma-buf that is notified of its changes."""

    def moved(self) -> None:
        """move_notify: unmap; the next mapping returns the new pages."""

    def revoked(self) -> None:
        """The pages are permanently gone."""


class DmaBuf(ABC):
    """``size`` bytes that an exporter shares; the first is ``skew`` bytes into a page.

    ``fenced`` is true while a fence is not signalled, so that mapping times out.
    """

    page_size: int
    path: Path

    def __init__(self, size: int, skew: int) -> None:
        self.size = size
        self.skew = skew
        self.fenced = False
        self.dead = False
        self._open = True
        self._importers: list[Importer] = []

    @abstractmethod
    def pin(self) -> tuple[int, ...]:
        """Add a pin to the pages; return their bus addresses."""

    @abstractmethod
    def unpin(self) -> None:
        """Remove one pin."""

    @abstractmethod
    def dispose(self) -> None:
        """Free the pages: the last reference is gone."""

    def attach(self, importer: Importer) -> None:
        """Keep the buffer alive and notify ``importer`` of its changes."""
        self._importers.append(importer)

    def detach(self, importer: Importer) -> None:
        """Release the buffer, which the importer has unmapped."""
        self._importers.remove(importer)
        self._dispose_unused()

    def map(self) -> tuple[int, ...]:
        """Bus addresses of the pages; EINVAL if revoked, ETIMEDOUT while fenced."""
        if self.dead:
            raise VerbsError("the dma-buf is revoked", EINVAL)
        if self.fenced:
            raise VerbsError("a fence of the dma-buf was not signalled", ETIMEDOUT)
        return self.pin()

    def move(self) -> None:
        """Move the pages: importers unmap, and map again at their next access."""
        for importer in tuple(self._importers):
            importer.moved()

    def revoke(self) -> None:
        """Remove the pages permanently."""
        self.dead = True
        for importer in tuple(self._importers):
            importer.revoked()

    def close(self) -> None:
        """Close the descriptor."""
        self._open = False
        self._dispose_unused()

    def _dispose_unused(self) -> None:
        if not self._open and not self._importers:
            self.dispose()

    def mmap(self) -> NoReturn:
        """Map for a processor: GPU exporters refuse, ``VerbsError`` ENOTSUPP."""
        raise VerbsError("the exporter maps nothing for processors", ENOTSUPP)


class DmaBufFiles:
    """The dma-buf file descriptors of a process."""

    def __init__(self) -> None:
        self._files: dict[int, DmaBuf] = {}
        self._next = _FIRST_FD

    def open(self, buf: DmaBuf) -> int:
        """Return a new descriptor."""
        check_type("buf", buf, DmaBuf)
        fd, self._next = self._next, self._next + 1
        self._files[fd] = buf
        return fd

    def get(self, fd: int) -> DmaBuf:
        """Return the dma-buf of a descriptor; ``VerbsError`` EBADF if it is not open."""
        if not isinstance(fd, int) or fd not in self._files:
            raise VerbsError(f"descriptor {describe(fd)} is not open", EBADF)
        return self._files[fd]

    def close(self, fd: int) -> None:
        """Close a descriptor; EBADF if it is not open."""
        self.get(fd).close()
        del self._files[fd]


class DmaBufPages(Backing):
    """A mapped dma-buf; linear addresses begin at the page of its first byte.

    Moved pages are mapped again at the next access, which counts as a page fault.
    """

    def __init__(self, space: AddressSpace, buf: DmaBuf) -> None:
        self.path = buf.path
        self.page_size = min(buf.page_size, PAGE_64K)
        self._space = space
        self._buf = buf
        self._mapped: MappedPages | None = self._map()
        buf.attach(self)

    def _map(self) -> "MappedPages":
        pages = self._buf.map()
        try:
            mapped = MappedPages(self._space, 0, pages, self._buf.page_size)
        except VerbsError:
            self._buf.unpin()
            raise
        mapped.originate(self.initiator, relaxed=self.relaxed)
        return mapped

    def originate(self, initiator: Initiator | None, *, relaxed: bool) -> None:
        super().originate(initiator, relaxed=relaxed)
        if self._mapped is not None:
            self._mapped.originate(initiator, relaxed=relaxed)

    def _pages(self, address: int, length: int) -> "MappedPages":
        if self._mapped is None:
            try:
                self._mapped = self._map()
            except VerbsError as error:
                raise MemoryFault(error.reason, address, length) from error
            self.faults += 1
        return self._mapped

    def moved(self) -> None:
        self._unmap()
        self.owner.forget()

    def _unmap(self) -> None:
        if self._mapped is not None:
            self._mapped = None
            self._buf.unpin()

    def revoked(self) -> None:
        self.owner.invalidate()

    def lend(self, address: int) -> memoryview | None:
        return self._mapped.lend(address) if self._mapped else None

    def read(self, address: int, length: int) -> bytes:
        return self._pages(address, length).read(address, length)

    def write(self, address: int, data: BytesLike) -> None:
        self._pages(address, len(data)).write(address, data)

    def release(self) -> None:
        self._unmap()
        self._buf.detach(self)


class MappedPages(PageList):
    """Bus pages of an exporter, which reports when they are removed."""

    lends_devices = True


class DmaBufRange(NamedTuple):
    """``length`` bytes from ``offset`` of a dma-buf, accessed through keys at ``iova``."""

    offset: int
    length: int
    iova: int
    fd: int


def reg_dmabuf_mr(
    registrar: MemoryRegionTable,
    files: DmaBufFiles | None,
    pd: ProtectionDomain,
    wanted: DmaBufRange,
    access: int,
) -> Region:
    """ibv_reg_dmabuf_mr(3); ``files`` is ``None`` if dma-bufs are not supported.

    EOPNOTSUPP without support; EBADF for a descriptor that is not open, whatever the range, as
    applications use that to probe. EINVAL for access flags that dma-bufs do not support, an iova
    whose page offset differs from ``offset``, a range outside the buffer, and a revoked buffer.
    """
    if files is None:
        raise VerbsError("dma-bufs are not supported", EOPNOTSUPP)
    check_type("registrar", registrar, MemoryRegionTable)
    check_type("files", files, DmaBufFiles)
    access = check_access(access, DMABUF_FLAGS)
    check_type("range", wanted, DmaBufRange)
    for name, value in zip(DmaBufRange._fields, wanted, strict=True):
        check_int(name, value, -LAST_ADDRESS, LAST_ADDRESS)
    offset, length, iova, fd = wanted
    buf = files.get(fd)
    if (iova ^ offset) % PAGE_4K:
        raise VerbsError(f"iova {iova:#x} and offset {offset:#x} differ within a page", EINVAL)
    if offset < 0 or offset + length > buf.size:
        raise VerbsError(f"{length} bytes at {offset} exceed the {buf.size} of {fd}", EINVAL)
    extent = Extent(buf.skew + offset, iova, length)
    return registrar.register(pd, extent, access, lambda: DmaBufPages(registrar.space, buf))
