"""The way without GPUDirect: the adapter meets host memory, and the GPU copies."""

from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.gpu.device import Gpu
from rdmawire.memory.grant import ProtectionDomain
from rdmawire.memory.mr_table import Extent, MemoryRegionTable
from rdmawire.memory.page import PAGE_64K, Path, split
from rdmawire.memory.region import Backing, Region
from rdmawire.validate import BytesLike, check_type


class BouncePages(Backing):
    """GPU memory behind a staging buffer of the host; linear addresses are GPU addresses.

    Every DMA is a copy more, by the GPU's copy engine. Its kernels need no flush to see it.
    """

    path = Path.BOUNCE
    page_size = PAGE_64K
    copies = 1

    def __init__(self, space: AddressSpace, gpu: Gpu) -> None:
        self._space = space
        self._gpu = gpu
        self._staging = space.allocate(PAGE_64K)

    def lend(self, address: int) -> None:  # noqa: ARG002
        """Nothing: every access is staged."""
        return

    def read(self, address: int, length: int) -> bytes:
        return b"".join(self._fetch(*part) for part in split(address, length, PAGE_64K))

    def _fetch(self, address: int, length: int) -> bytes:
        staging = self._staging
        staging.write(staging.base, self._gpu.read(address, length))
        return staging.read(staging.base, length)

    def write(self, address: int, data: BytesLike) -> None:
        self._gpu.check(address, len(data))
        staging, source = self._staging, memoryview(data)
        for start, size in split(address, len(data), PAGE_64K):
            staging.write(staging.base, source[start - address : start - address + size])
            self._gpu.write(start, staging.read(staging.base, size))

    def release(self) -> None:
        self._space.unmap(self._staging)


def reg_bounce_mr(
    registrar: MemoryRegionTable, gpu: Gpu, pd: ProtectionDomain, extent: Extent, access: int
) -> Region:
    """A region of GPU memory that an adapter reaches by way of the host.

    ``extent.address`` is a GPU address. Once the memory is freed, accesses are ``MemoryFault``.
    """
    check_type("registrar", registrar, MemoryRegionTable)
    check_type("gpu", gpu, Gpu)
    return registrar.register(pd, extent, access, lambda: BouncePages(registrar.space, gpu))
