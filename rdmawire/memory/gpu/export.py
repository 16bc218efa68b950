"""dma-bufs of GPU memory, as cuMemGetHandleForAddressRange exports them."""

from errno import ENODEV

from rdmawire.errors import VerbsError
from rdmawire.memory.dmabuf import DmaBuf
from rdmawire.memory.gpu.device import Gpu
from rdmawire.memory.gpu.driver import GpuDriver, check_pages
from rdmawire.memory.page import PAGE_4K, Path
from rdmawire.validate import check_type


class GpuDmaBuf(DmaBuf):
    """GPU memory as a dma-buf, which keeps the memory alive after its owner freed it."""

    path = Path.GPU_DIRECT

    def __init__(self, gpu: Gpu, address: int, length: int) -> None:
        self.page_size = gpu.page_size
        super().__init__(length, address % gpu.page_size)
        self.address = address - self.skew
        self.end = address + length + -(address + length) % gpu.page_size
        self._gpu = gpu
        gpu.hold(self)

    def pin(self) -> tuple[int, ...]:
        return self._gpu.aperture.pin(range(self.address, self.end, self.page_size))

    def unpin(self) -> None:
        self._gpu.aperture.unpin(range(self.address, self.end, self.page_size))

    def dispose(self) -> None:
        self._gpu.unhold(self)


def export_dmabuf(driver: GpuDriver, address: int, length: int) -> GpuDmaBuf:
    """Share GPU memory. EINVAL unless it is whole pages of 4 KiB that peers may have."""
    check_type("driver", driver, GpuDriver)
    gpu = driver.gpu_at(address)
    if gpu is None:
        raise VerbsError(f"no GPU has address {address:#x}", ENODEV)
    check_pages(gpu, address, length, PAGE_4K)
    start = address - address % gpu.page_size
    end = address + length
    check_pages(gpu, start, end + -end % gpu.page_size - start, gpu.page_size)
    return GpuDmaBuf(gpu, address, length)
