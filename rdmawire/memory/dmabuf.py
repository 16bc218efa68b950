"""Memory shared by file descriptor: dma-bufs, and regions made of them."""

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
    """Who maps a dma-buf, and is told what becomes of it."""

    def moved(self) -> None:
        """move_notify: unmap; the pages are elsewhere when they are mapped again."""

    def revoked(self) -> None:
        """The pages are gone for ever."""


class DmaBuf(ABC):
    """``size`` bytes that their exporter shares; the first is ``skew`` bytes into a page.

    ``fenced`` while work on the buffer goes on that must end before it is mapped, and does not.
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
        """Pin the pages once more; their bus addresses."""

    @abstractmethod
    def unpin(self) -> None:
        """Take one pin back."""

    @abstractmethod
    def dispose(self) -> None:
        """The last reference is gone."""

    def attach(self, importer: Importer) -> None:
        """Hold the buffer, and hear of it."""
        self._importers.append(importer)

    def detach(self, importer: Importer) -> None:
        """The importer is done; it has unmapped."""
        self._importers.remove(importer)
        self._dispose_unused()

    def map(self) -> tuple[int, ...]:
        """Bus addresses of the pages; EINVAL once revoked, ETIMEDOUT if a fence stays."""
        if self.dead:
            raise VerbsError("the dma-buf is revoked", EINVAL)
        if self.fenced:
            raise VerbsError("a fence of the dma-buf was not signalled", ETIMEDOUT)
        return self.pin()

    def move(self) -> None:
        """The exporter moves the pages: importers unmap, and map again when they need them."""
        for importer in tuple(self._importers):
            importer.moved()

    def revoke(self) -> None:
        """The exporter takes the pages away."""
        self.dead = True
        for importer in tuple(self._importers):
            importer.revoked()

    def close(self) -> None:
        """The descriptor is closed."""
        self._open = False
        self._dispose_unused()

    def _dispose_unused(self) -> None:
        if not self._open and not self._importers:
            self.dispose()

    def mmap(self) -> NoReturn:
        """A processor wants to map the buffer: GPUs' refuse, ENOTSUPP."""
        raise VerbsError("the exporter maps nothing for processors", ENOTSUPP)


class DmaBufFiles:
    """The descriptors of a process."""

    def __init__(self) -> None:
        self._files: dict[int, DmaBuf] = {}
        self._next = _FIRST_FD

    def open(self, buf: DmaBuf) -> int:
        """A new descriptor."""
        check_type("buf", buf, DmaBuf)
        fd, self._next = self._next, self._next + 1
        self._files[fd] = buf
        return fd

    def get(self, fd: int) -> DmaBuf:
        """``VerbsError`` EBADF if nothing is open there."""
        if not isinstance(fd, int) or fd not in self._files:
            raise VerbsError(f"descriptor {describe(fd)} is not open", EBADF)
        return self._files[fd]

    def close(self, fd: int) -> None:
        """Close a descriptor; EBADF if it is not open."""
        self.get(fd).close()
        del self._files[fd]


class DmaBufPages(Backing):
    """A mapped dma-buf; linear addresses begin at the page of its first byte.

    Pages that moved are mapped again at the next access, which counts as a page fault.
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
    """Bus pages of an exporter, which says when they go."""

    lends_devices = True


class DmaBufRange(NamedTuple):
    """``length`` bytes from ``offset`` of a dma-buf, found by keys at ``iova``."""

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
    """ibv_reg_dmabuf_mr(3); ``files`` is ``None`` where dma-bufs are not supported.

    EOPNOTSUPP without support, and EBADF for a descriptor that is not open whatever the range:
    applications probe with one. EINVAL for rights that dma-bufs do not have, an iova that differs
    from the offset within a page, a range outside the buffer, and a revoked buffer.
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
