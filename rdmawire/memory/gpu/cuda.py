"""Memory of a real GPU behind a region: what an emulated adapter writes, CUDA kernels see.

::

    device = CudaDevice()
    memory = device.allocate(1 << 20)
    host.nic.memory.clients.append(CudaPeermem([memory]))
    region = host.pd.reg_mr(memory.address, memory.size, ALL_ACCESS)

An access of the adapter is a copy by the CUDA driver, between host memory and the GPU. Memory of
another library, such as a tensor, is used with :meth:`CudaDevice.adopt`. This module needs an
NVIDIA driver and the bindings of CUDA Python.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

from rdmawire.errors import CudaError, MemoryFault
from rdmawire.memory.page import PAGE_64K, Path
from rdmawire.memory.region import Backing
from rdmawire.validate import BytesLike, byte_count, check_int, check_range

__all__ = ["CudaDevice", "CudaMemory", "CudaPeermem"]

MAX_ALLOCATION: Final = 1 << 40
_MAX_COPY: Final = 1 << 32
_NAME_BYTES: Final = 256
_ARENA: Final = 1 << 22
_MAX_ARENA: Final = 1 << 27
"""Bytes for the data of the last reads of a region."""


class CudaDevice:
    """A GPU of this machine by its number, with its primary context in this thread.

    ``name`` is that of the model, ``memory`` its size in bytes, ``compute_capability`` its major
    and minor number. ``driver`` has the functions of ``cuda.bindings.driver``. ``ImportError``
    without these bindings; :class:`CudaError` without a driver or such a GPU.
    """

    def __init__(self, number: int = 0, driver: Any = None) -> None:
        check_int("number", number, 0, 1023)
        self._driver = _bindings() if driver is None else driver
        self.call("cuInit", 0)
        self._handle = self.call("cuDeviceGet", number)
        name = self.call("cuDeviceGetName", _NAME_BYTES, self._handle)
        self.name = bytes(name).split(b"\0")[0].decode("ascii", "replace")
        self.memory = int(self.call("cuDeviceTotalMem", self._handle))
        attributes = self._driver.CUdevice_attribute
        kind = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY"
        major, minor = (
            int(self.call("cuDeviceGetAttribute", getattr(attributes, word), self._handle))
            for word in (f"{kind}_MAJOR", f"{kind}_MINOR")
        )
        self.compute_capability = major, minor
        self._context = self.call("cuDevicePrimaryCtxRetain", self._handle)
        self.use()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.memory} bytes>"

    def use(self) -> None:
        """Make the GPU's context that of this thread: each thread that accesses memory needs it."""
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function of the driver; return its result. :class:`CudaError` if it fails."""
        error, *results = getattr(self._driver, name)(*arguments)
        if int(error):
            reason = getattr(error, "name", None) or f"error {int(error)}"
            raise CudaError(f"{name}: {reason}")
        return results[0] if results else None

    def copier(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """Return a function of the driver, for accesses that are to be fast."""
        found: Callable[..., tuple[Any, ...]] = getattr(self._driver, name)
        return found

    @property
    def supports_dmabuf(self) -> bool:
        """Whether memory can be exported as a dma-buf."""
        kind = self._driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
        return bool(self.call("cuDeviceGetAttribute", kind, self._handle))

    def allocate(self, size: int, *, combine: int = 0) -> "CudaMemory":
        """Allocate ``size`` bytes, as cuMemAlloc does; see :class:`CudaMemory`."""
        check_int("size", size, 1, MAX_ALLOCATION)
        address = int(self.call("cuMemAlloc", size))
        return CudaMemory(self, address, size, combine=combine, is_owner=True)

    def adopt(self, address: int, size: int, *, combine: int = 0) -> "CudaMemory":
        """Use memory that another library allocated on this GPU, and keeps while it is used.

        ``address`` is a device pointer, such as a tensor's ``data_ptr()``. :class:`CudaError` if
        it is not within one allocation.
        """
        check_int("address", address, 0, (1 << 64) - 1)
        check_int("size", size, 1, MAX_ALLOCATION)
        driver = self._driver
        error, base, length = driver.cuMemGetAddressRange(driver.CUdeviceptr(address))
        if int(error) or not int(base) <= address <= address + size <= int(base) + int(length):
            raise CudaError(f"{size} bytes at {address:#x} are not within one allocation")
        return CudaMemory(self, address, size, combine=combine)

    def export_dmabuf(self, address: int, size: int) -> int:
        """Export memory as a dma-buf; return its file descriptor, which the caller closes.

        ``address`` and ``size`` are multiples of the host's page size (the driver function is
        cuMemGetHandleForAddressRange).
        """
        kind = self._driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
        pointer = self._driver.CUdeviceptr(address)
        return int(self.call("cuMemGetHandleForAddressRange", pointer, size, kind, 0))


def _bindings() -> Any:
    try:
        return import_module("cuda.bindings.driver")
    except ImportError as error:
        raise ImportError("GPU memory needs CUDA Python: pip install 'rdmawire[cuda]'") from error


class CudaMemory:
    """``size`` bytes of a GPU's memory at the device pointer ``address``.

    With ``combine``, consecutive writes of together at most this number of bytes become one copy:
    then kernels see a write after :meth:`flush`, or after a read, and it is much faster for
    packets. Without it they see each write at once.
    """

    def __init__(
        self,
        device: CudaDevice,
        address: int,
        size: int,
        *,
        combine: int = 0,
        is_owner: bool = False,
    ) -> None:
        check_int("combine", combine, 0, _MAX_COPY)
        self.device = device
        self.address = address
        self.size = size
        self.end = address + size
        self._combine = combine
        self._is_owner = is_owner
        self._pending = bytearray()
        self._pending_at = 0
        self._write = device.copier("cuMemcpyHtoD")
        self._read = device.copier("cuMemcpyDtoH")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.size} bytes at {self.address:#x}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def read(self, address: int, length: int) -> bytes:
        """Read bytes, after all writes before; ``MemoryFault`` outside of the memory."""
        check_range(address, length)
        data = bytearray(length)
        self.read_into(memoryview(data), address)
        return bytes(data)

    def read_into(self, target: memoryview, address: int) -> None:
        """Read as many bytes as ``target`` has; see :meth:`read`."""
        length = len(target)
        self._check(address, length)
        self.flush()
        if length:
            _check_copy("cuMemcpyDtoH", self._read(target, address, length))

    def write(self, address: int, data: BytesLike) -> None:
        """Write bytes; ``MemoryFault`` outside of the memory."""
        length = byte_count(data)
        self._check(address, length)
        if length >= self._combine:
            self.flush()
            if length:
                source = data if type(data) is bytes else bytes(data)
                _check_copy("cuMemcpyHtoD", self._write(address, source, length))
            return
        is_next = address == self._pending_at + len(self._pending)
        if not is_next or len(self._pending) + length > self._combine:
            self.flush()
            self._pending_at = address
        self._pending += data

    def flush(self) -> None:
        """Copy what is combined: kernels see all writes."""
        if self._pending:
            pending, self._pending = self._pending, bytearray()
            _check_copy("cuMemcpyHtoD", self._write(self._pending_at, pending, len(pending)))

    def _check(self, address: int, length: int) -> None:
        if not self.address <= address <= address + length <= self.end:
            raise MemoryFault(f"outside the {self.size} bytes of CUDA memory", address, length)

    def export_dmabuf(self) -> int:
        """Export the memory as a dma-buf: see :meth:`CudaDevice.export_dmabuf`."""
        return self.device.export_dmabuf(self.address, self.size)

    def free(self) -> None:
        """Free memory that was allocated here; from now on accesses raise ``MemoryFault``."""
        if self._is_owner and self.size:
            self.flush()
            self.device.call("cuMemFree", self.address)
        self.end = self.address
        self.size = 0


def _check_copy(name: str, results: tuple[Any, ...]) -> None:
    """Raise :class:`CudaError` if a copy failed."""
    if results[0]:
        reason = getattr(results[0], "name", None) or f"error {int(results[0])}"
        raise CudaError(f"{name}: {reason}")


class CudaPages(Backing):
    """The pages of a region in CUDA memory; linear addresses are device pointers."""

    path = Path.GPU_DIRECT
    page_size = PAGE_64K

    def __init__(self, memory: CudaMemory) -> None:
        self._memory = memory
        self._arena = memoryview(bytearray(_ARENA))
        self._used = 0

    def lend(self, address: int) -> None:  # noqa: ARG002
        """Return ``None``: each access is a copy."""
        return

    def read(self, address: int, length: int) -> bytes:
        """Return a view that lasts until as many bytes are read again: new memory would be slow.

        The memory of views is twice the longest read, up to 128 MiB. Reads of more than 64 MiB have
        new memory.
        """
        target = self._room(length)
        self._memory.read_into(target, address)
        return target  # type: ignore[return-value]  # as bytes, for what the engine does

    def _room(self, length: int) -> memoryview:
        if length > _MAX_ARENA // 2:
            return memoryview(bytearray(length))
        if length > len(self._arena) // 2:
            self._arena, self._used = memoryview(bytearray(2 * length)), 0
        if self._used + length > len(self._arena):
            self._used = 0
        start = self._used
        self._used += length
        return self._arena[start : self._used]

    def write(self, address: int, data: BytesLike) -> None:
        self._memory.write(address, data)

    def push(self, address: int) -> None:  # noqa: ARG002
        """Make earlier writes visible."""
        self._memory.flush()


class CudaPeermem:
    """The client of an adapter's region table for ``memories``, to which others may be added."""

    def __init__(self, memories: Sequence[CudaMemory] = ()) -> None:
        self.memories = list(memories)

    def claim(self, address: int, length: int, peer: object) -> CudaPages | None:  # noqa: ARG002
        """Return the pages of a range that is within one of the memories, else ``None``."""
        for memory in self.memories:
            if memory.address <= address <= address + length <= memory.end:
                return CudaPages(memory)
        return None
