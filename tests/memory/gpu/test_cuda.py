"""Regions in CUDA memory: against a driver in Python, and on a real GPU where there is one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire import Pair, Registered
from rdmawire.errors import CudaError, MemoryFault
from rdmawire.fabric import ALL_ACCESS
from rdmawire.memory import Path
from rdmawire.memory.gpu.cuda import CudaDevice, CudaMemory, CudaPeermem
from tests.memory.gpu.cuda_driver import FakeDriver

SIZE = 1 << 16


def drivers() -> list[Any]:
    """Return the driver in Python, and that of this machine if it has a GPU."""
    found: list[Any] = [pytest.param(FakeDriver, id="fake")]
    try:
        CudaDevice()
    except (ImportError, CudaError, RuntimeError):
        return found
    return [*found, pytest.param(lambda: None, id="real")]


@pytest.fixture(params=drivers())
def device(request: pytest.FixtureRequest) -> CudaDevice:
    return CudaDevice(0, request.param())


def registered(pair: Pair, memory: CudaMemory) -> Registered:
    """Register CUDA memory with the server's adapter."""
    pair.server.nic.memory.clients.append(CudaPeermem([memory]))
    region = pair.server.pd.reg_mr(memory.address, memory.size, ALL_ACCESS)
    return Registered(memory, region)


@pytest.mark.parametrize("combine", [0, 10_000])
def test_an_adapter_writes_reads_and_adds(device: CudaDevice, combine: int) -> None:
    with device.allocate(SIZE, combine=combine) as memory:
        pair = Pair()
        there = registered(pair, memory)
        data = bytes(range(256)) * 100
        pair.client.write(data, to=there, offset=32)
        pair.drive()
        assert memory.read(memory.address + 32, len(data)) == data
        posted = pair.client.read(len(data), of=there, offset=32)
        pair.drive()
        assert posted.buffer.read(len(data)) == data
        pair.client.fetch_add(5, of=there, offset=8)
        pair.drive()
        assert memory.read(memory.address + 8, 8) == (5).to_bytes(8, "little")
        counters = pair.server.nic.memory.counter[Path.GPU_DIRECT]
        assert counters.bytes >= 2 * len(data)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "read", "flush"]), st.integers(0, 300), st.binary(max_size=90)
        ),
        max_size=30,
    ),
    st.sampled_from([0, 1, 50, 128]),
)
def test_memory_is_as_a_plain_model(steps: list[tuple[str, int, bytes]], combine: int) -> None:
    driver = FakeDriver()
    memory = CudaDevice(0, driver).allocate(400, combine=combine)
    model = bytearray(400)
    for kind, offset, data in steps:
        if kind == "write":
            memory.write(memory.address + offset, data)
            model[offset : offset + len(data)] = data
        elif kind == "read":
            assert memory.read(memory.address + offset, len(data)) == model[offset:][: len(data)]
        else:
            memory.flush()
            assert driver.blocks[memory.address] == model
    memory.flush()
    assert driver.blocks[memory.address] == model


def test_consecutive_writes_are_one_copy() -> None:
    driver = FakeDriver()
    memory = CudaDevice(0, driver).allocate(SIZE, combine=SIZE)
    for offset in range(0, 40_000, 4000):
        memory.write(memory.address + offset, bytes(4000))
    assert not driver.copies
    memory.flush()
    assert driver.copies == [(memory.address, 40_000)]


def test_a_view_of_a_read_lasts_while_the_next_is_read(device: CudaDevice) -> None:
    with device.allocate(SIZE) as memory:
        region = registered(Pair(), memory).region
        region.write(memory.address, b"first" * 100)
        region.write(memory.address + 1000, b"other" * 100)
        first, other = (region.read(memory.address + at, 500) for at in (0, 1000))
        assert (bytes(first), bytes(other)) == (b"first" * 100, b"other" * 100)


def test_memory_of_others_is_used(device: CudaDevice) -> None:
    with device.allocate(SIZE) as owner:
        part = device.adopt(owner.address + 512, 1024)
        part.write(part.address, b"a tensor")
        assert owner.read(owner.address + 512, 8) == b"a tensor"
        part.free()
        assert owner.read(owner.address + 512, 8) == b"a tensor"
        with pytest.raises(CudaError, match="not within one allocation"):
            device.adopt(owner.address, 1 << 39)


def test_what_is_outside_is_refused(device: CudaDevice) -> None:
    memory = device.allocate(4096)
    for address, length in ((memory.address - 1, 2), (memory.address + 4095, 2)):
        with pytest.raises(MemoryFault):
            memory.read(address, length)
        with pytest.raises(MemoryFault):
            memory.write(address, bytes(length))
    memory.free()
    with pytest.raises(MemoryFault):
        memory.read(memory.address, 1)
    memory.free()


def test_errors_of_the_driver_are_named(device: CudaDevice) -> None:
    with pytest.raises(CudaError, match="cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"):
        device.allocate(1 << 39)
    driver = FakeDriver()
    with pytest.raises(CudaError, match="cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"):
        CudaDevice(3, driver)
    memory = CudaDevice(0, driver).allocate(100)
    driver.fails = True
    with pytest.raises(CudaError, match="cuMemcpyHtoD: CUDA_ERROR_INVALID_VALUE"):
        memory.write(memory.address, b"x")


def test_a_dmabuf_is_exported() -> None:
    device = CudaDevice(0, FakeDriver())
    assert device.supports_dmabuf
    assert device.allocate(SIZE).export_dmabuf() == 77
    with pytest.raises(CudaError, match="cuMemGetHandleForAddressRange"):
        device.allocate(100).export_dmabuf()


def test_without_bindings_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("rdmawire.memory.gpu.cuda.import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'rdmawire\[cuda\]'"):
        CudaDevice()
