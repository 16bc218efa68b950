"""gdrcopy: a processor's own mapping of pinned GPU memory, through BAR1."""

from errno import EACCES, EINVAL

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.gpu.device import PageTable, TableState
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import PageList
from rdmawire.validate import BytesLike, check_int, check_time, check_type


class Processor:
    """A CPU as an initiator on the bus; ``now`` is its time (ns)."""

    def __init__(self) -> None:
        self.now = 0


class GdrMapping:
    """Bytes of GPU memory that a processor reads (slowly) and writes (combined).

    Reads go through BAR1, so they see all earlier writes; the processor's writes are posted,
    like an adapter's (:mod:`rdmawire.memory.gpu.aperture`).
    """

    def __init__(
        self, driver: GpuDriver, table: PageTable, size: int, processor: Processor
    ) -> None:
        self.size = size
        self.alive = True
        self._processor = processor
        self._pages = PageList(driver.space, 0, table.addresses, table.gpu.page_size)
        self._pages.originate(processor, relaxed=False)

    def _check(self, offset: int, length: int) -> None:
        if not self.alive:
            raise MemoryFault("gdrcopy mapping is gone", offset, length)
        if offset < 0 or offset + length > self.size:
            raise MemoryFault(f"outside gdrcopy mapping of {self.size} bytes", offset, length)

    def read(self, offset: int, length: int) -> bytes:
        self._check(offset, length)
        return self._pages.read(offset, length)

    def write(self, offset: int, data: BytesLike, now: int = 0) -> None:
        """Copy ``data`` to the mapping at ``now`` (ns), or at the latest time passed so far."""
        self._check(offset, len(data))
        check_time(now)
        self._processor.now = max(self._processor.now, now)
        self._pages.write(offset, data)


class GdrBuffer:
    """A pinned buffer: ``size`` bytes requested at ``address``, pinned as full pages."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self.table: PageTable
        self.mapping: GdrMapping | None = None

    @property
    def valid(self) -> bool:
        return self.table.state is TableState.LIVE

    def revoked(self) -> None:
        """End the mapping: the owner freed the memory."""
        self.unmap()

    def unmap(self) -> None:
        """End the mapping, if there is one."""
        if self.mapping is not None:
            self.mapping.alive = False
        self.mapping = None


class Gdr:
    """An open handle of a process for the gdrdrv device."""

    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        self._buffers: list[GdrBuffer] = []
        self._processor = Processor()

    def pin_buffer(self, address: int, size: int) -> GdrBuffer:
        """gdr_pin_buffer: any address; rounded to pages of 64 KiB. Errors as for ``get_pages``."""
        check_int("address", address)
        check_type("size", size, int)
        start = address - address % PAGE_64K
        length = address + size - start
        buffer = GdrBuffer(address, size)
        pages = length + -length % PAGE_64K
        buffer.table = self._driver.get_pages(start, pages, buffer.revoked)
        self._buffers.append(buffer)
        return buffer

    def map(self, buffer: GdrBuffer, size: int, offset: int = 0) -> GdrMapping:
        """gdr_map. EACCES for a buffer of another process.

        EINVAL for an offset, an address that is not aligned to 64 KiB, a second mapping, a buffer
        whose memory was freed, and a size beyond the pinned bytes.
        """
        if buffer not in self._buffers:
            raise VerbsError("the buffer was pinned by another process", EACCES)
        refusals = {
            f"offset {offset}, not 0": bool(offset),
            f"address {buffer.address:#x} is not aligned to 64 KiB": buffer.address % PAGE_64K,
            "the buffer is mapped already": buffer.mapping is not None,
            "the buffer's memory is gone": not buffer.valid,
            f"{size} bytes, not 1 to {buffer.table.length}": (not 0 < size <= buffer.table.length),
        }
        for reason, broken in refusals.items():
            if broken:
                raise VerbsError(reason, EINVAL)
        buffer.mapping = GdrMapping(self._driver, buffer.table, size, self._processor)
        return buffer.mapping

    def unpin_buffer(self, buffer: GdrBuffer) -> None:
        """gdr_unpin_buffer: unmaps as well; EACCES for a buffer of another process."""
        if buffer not in self._buffers:
            raise VerbsError("the buffer was pinned by another process", EACCES)
        buffer.unmap()
        self._buffers.remove(buffer)
        if buffer.valid:
            self._driver.put_pages(buffer.table)
