"""A CUDA driver in Python: the functions that are called, over memory of this process."""

from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class Result(IntEnum):
    """Results of the driver."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_DEVICE = 101


OK = Result.CUDA_SUCCESS
BASE = 0x7F00_0000_0000
BLOCK = 1 << 21


class FakeDriver:
    """One GPU of ``memory`` bytes; ``copies`` are the copies to it: address and length."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76,
        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED=124,
    )
    CUmemRangeHandleType = SimpleNamespace(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD=1)
    CUdeviceptr = int

    def __init__(self, memory: int = 1 << 26) -> None:
        self.memory = memory
        self.blocks: dict[int, bytearray] = {}
        self.copies: list[tuple[int, int]] = []
        self.fails = False
        self._next = BASE

    def cuInit(self, _: int) -> tuple[Result]:  # noqa: N802
        return (OK,)

    def cuDeviceGet(self, number: int) -> tuple[Result, int]:  # noqa: N802
        return (Result.CUDA_ERROR_INVALID_DEVICE if number else OK, number)

    def cuDeviceGetName(self, length: int, _: object) -> tuple[Result, bytes]:  # noqa: N802
        return OK, b"Fake GPU".ljust(length, b"\0")

    def cuDeviceTotalMem(self, _: object) -> tuple[Result, int]:  # noqa: N802
        return OK, self.memory

    def cuDeviceGetAttribute(self, kind: int, _: object) -> tuple[Result, int]:  # noqa: N802
        return OK, {75: 9, 76: 0, 124: 1}[kind]

    def cuDevicePrimaryCtxRetain(self, handle: object) -> tuple[Result, object]:  # noqa: N802
        return OK, handle

    def cuCtxSetCurrent(self, _: object) -> tuple[Result]:  # noqa: N802
        return (OK,)

    def cuMemAlloc(self, size: int) -> tuple[Result, int]:  # noqa: N802
        if size > self.memory:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        address = self._next
        self.blocks[address] = bytearray(size)
        self._next += size + -size % BLOCK
        return OK, address

    def cuMemFree(self, address: int) -> tuple[Result]:  # noqa: N802
        del self.blocks[address]
        return (OK,)

    def _block(self, address: int) -> tuple[int, bytearray]:
        for base, data in self.blocks.items():
            if base <= address < base + len(data):
                return base, data
        raise KeyError(address)

    def cuMemGetAddressRange(self, address: int) -> tuple[Result, int, int]:  # noqa: N802
        try:
            base, data = self._block(address)
        except KeyError:
            return Result.CUDA_ERROR_INVALID_VALUE, 0, 0
        return OK, base, len(data)

    def cuMemcpyHtoD(self, address: int, source: Any, size: int) -> tuple[Result]:  # noqa: N802
        if self.fails:
            return (Result.CUDA_ERROR_INVALID_VALUE,)
        base, data = self._block(address)
        data[address - base : address - base + size] = bytes(source)[:size]
        self.copies.append((address, size))
        return (OK,)

    def cuMemcpyDtoH(self, target: Any, address: int, size: int) -> tuple[Result]:  # noqa: N802
        base, data = self._block(address)
        target[:size] = data[address - base : address - base + size]
        return (OK,)

    def cuMemGetHandleForAddressRange(  # noqa: N802
        self, address: int, size: int, kind: int, flags: int
    ) -> tuple[Result, int]:
        assert (kind, flags) == (1, 0)
        wrong = address % 4096 or size % 4096
        return (Result.CUDA_ERROR_INVALID_VALUE if wrong else OK, 77)
