"""Memory that is asked for what it does not have: it refuses, and holds on to nothing."""

from collections.abc import Callable
from errno import EFAULT, EINVAL
from typing import Any

import pytest

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.address_space import AddressSpace, HostMemory
from rdmawire.memory.dmabuf import DmaBufFiles, DmaBufRange, reg_dmabuf_mr
from rdmawire.memory.fast_reg import FastRegistration, register_pages
from rdmawire.memory.gpu.device import MIB, T4
from rdmawire.memory.gpu.driver import GpuDriver, export_dmabuf
from rdmawire.memory.gpu.gdrcopy import Gdr
from rdmawire.memory.gpu.peermem import Peermem, reg_bounce_mr
from rdmawire.memory.key import Access
from rdmawire.memory.mr_table import Extent, MemoryRegionTable, Rereg
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.memory.page import LAST_ADDRESS, PAGE_64K
from tests.memory.machine import FULL, Machine

VALUES: list[Any] = [
    None, "", "text", b"", 1.5, -1, 1 << 64, 1 << 20_000, [], (), {}, object(), int,
]  # fmt: skip


class Bench(Machine):
    """A machine with a GPU, and one buffer of it."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.mr = self.region()
        self.driver = GpuDriver(self.space)
        self.gpu = self.driver.add(T4)
        self.tensor = self.gpu.allocate(8 * MIB)
        self.files = DmaBufFiles()
        self.fd = self.files.open(export_dmabuf(self.driver, self.tensor.address, 8 * MIB))

    def register(self, **changes: Any) -> None:
        wanted = {"address": self.memory.base, "length": 8, "access": FULL, "iova": None}
        self.registrar.reg_mr(**({"pd": self.pd} | wanted | changes))

    def share(self, **changes: Any) -> None:
        wanted = DmaBufRange(0, 8, 0, self.fd)._replace(**changes)
        reg_dmabuf_mr(self.registrar, self.files, self.pd, wanted, 7)

    def share_with(self, access: Any) -> None:
        reg_dmabuf_mr(self.registrar, self.files, self.pd, DmaBufRange(0, 8, 0, self.fd), access)

    def extent(self) -> Extent:
        return Extent(self.tensor.address, self.tensor.address, 8)

    def bind(self, kind: int, **changes: Any) -> None:
        window = self.registrar.alloc_mw(self.pd, kind)
        wanted = Bind(self.mr.iova, 8, 4, 9, self.pd, window.key + 1)._replace(**changes)
        bind_window(self.keys, window, self.mr, wanted)

    def fast(self, **changes: Any) -> None:
        region = self.registrar.alloc_mr(self.pd, 1)
        page = self.memory.base
        wanted = FastRegistration(region.key, page, 8, 15, [page])._replace(**changes)
        register_pages(self.keys, self.space, region, wanted)


CALLS: dict[str, Callable[[Bench, Any], object]] = {
    "reg_mr pd": lambda b, x: b.register(pd=x),
    "reg_mr address": lambda b, x: b.register(address=x),
    "reg_mr length": lambda b, x: b.register(length=x),
    "reg_mr access": lambda b, x: b.register(access=x),
    "reg_mr iova": lambda b, x: b.register(iova=x),
    "alloc_mr": lambda b, x: b.registrar.alloc_mr(b.pd, x),
    "alloc_mr pd": lambda b, x: b.registrar.alloc_mr(x, 1),
    "alloc_mw": lambda b, x: b.registrar.alloc_mw(b.pd, x),
    "alloc_mw pd": lambda b, x: b.registrar.alloc_mw(x, 1),
    "dereg_mr": lambda b, x: b.registrar.dereg_mr(x),
    "dealloc_mw": lambda b, x: b.registrar.dealloc_mw(x),
    "advise_mr": lambda b, x: b.registrar.advise_mr(x, 0, 8),
    "advise address": lambda b, x: b.registrar.advise_mr(b.mr, x, 8),
    "advise length": lambda b, x: b.registrar.advise_mr(b.mr, 0, x),
    "rereg flags": lambda b, x: b.registrar.rereg_mr(b.mr, x),
    "rereg pd": lambda b, x: b.registrar.rereg_mr(b.mr, Rereg.CHANGE_PD, pd=x),
    "rereg access": lambda b, x: b.registrar.rereg_mr(b.mr, Rereg.CHANGE_ACCESS, access=x),
    "rereg address": lambda b, x: b.registrar.rereg_mr(b.mr, 1, address=x, length=8),
    "rereg length": lambda b, x: b.registrar.rereg_mr(b.mr, 1, address=b.memory.base, length=x),
    "allocate": lambda b, x: b.space.allocate(x),
    "allocate pages": lambda b, x: b.space.allocate(8, x),
    "window base": lambda _, x: HostMemory(x, 4096),
    "window size": lambda _, x: HostMemory(4096, x),
    "gpu allocate": lambda b, x: b.gpu.allocate(x),
    "gpu kind": lambda b, x: b.gpu.allocate(8, x),
    "gpu free": lambda b, x: b.gpu.free(x),
    "get_pages": lambda b, x: b.driver.get_pages(x, PAGE_64K, print),
    "get_pages length": lambda b, x: b.driver.get_pages(b.tensor.address, x, print),
    "persistent": lambda b, x: b.driver.get_pages_persistent(x, PAGE_64K),
    "export": lambda b, x: export_dmabuf(b.driver, x, 8),
    "export length": lambda b, x: export_dmabuf(b.driver, b.tensor.address, x),
    "pin_buffer": lambda b, x: Gdr(b.driver).pin_buffer(x, 8),
    "pin_buffer size": lambda b, x: Gdr(b.driver).pin_buffer(b.tensor.address, x),
    "dmabuf": lambda b, x: reg_dmabuf_mr(b.registrar, b.files, b.pd, x, 7),
}
CALLS |= {
    "dmabuf registrar": lambda b, x: reg_dmabuf_mr(x, b.files, b.pd, DmaBufRange(0, 8, 0, b.fd), 7),
    "dmabuf files": lambda b, x: reg_dmabuf_mr(b.registrar, x, b.pd, DmaBufRange(0, 8, 0, b.fd), 7),
    "dmabuf access": lambda b, x: b.share_with(x),
    "descriptor": lambda b, x: b.files.get(x),
    "descriptor to close": lambda b, x: b.files.close(x),
    "descriptor of": lambda b, x: b.files.open(x),
    "exporting driver": lambda b, x: export_dmabuf(x, b.tensor.address, 8 * MIB),
    "gpu profile": lambda b, x: b.driver.add(x),
    "put_pages": lambda b, x: b.driver.put_pages(x),
    "dma_map_pages": lambda b, x: b.driver.dma_map_pages(x, b.registrar),
    "dma_unmap_pages": lambda b, x: b.driver.dma_unmap_pages(x),
    "register extent": lambda b, x: b.registrar.register(b.pd, x, FULL, list),  # type: ignore[arg-type]
    "bounce registrar": lambda b, x: reg_bounce_mr(x, b.gpu, b.pd, b.extent(), FULL),
    "bounce gpu": lambda b, x: reg_bounce_mr(b.registrar, x, b.pd, b.extent(), FULL),
    "bounce pd": lambda b, x: reg_bounce_mr(b.registrar, b.gpu, x, b.extent(), FULL),
    "bounce extent": lambda b, x: reg_bounce_mr(b.registrar, b.gpu, b.pd, x, FULL),
    "bounce access": lambda b, x: reg_bounce_mr(b.registrar, b.gpu, b.pd, b.extent(), x),
    "bind window": lambda b, x: bind_window(b.keys, x, b.mr, Bind(b.mr.iova, 8, 4)),
    "bind region": lambda b, x: bind_window(
        b.keys, b.registrar.alloc_mw(b.pd, 1), x, Bind(b.mr.iova, 8, 4)
    ),
    "bind": lambda b, x: bind_window(b.keys, b.registrar.alloc_mw(b.pd, 1), b.mr, x),
    "map": lambda b, x: b.space.map(x),
    "unmap": lambda b, x: b.space.unmap(x),
    "space": lambda _, x: MemoryRegionTable(x),
    "clients": lambda b, x: MemoryRegionTable(b.space, None, [x]),
}
CALLS |= {
    f"dmabuf {field}": lambda b, x, field=field: b.share(**{field: x})  # type: ignore[misc]
    for field in DmaBufRange._fields
}
CALLS |= {
    f"bind {kind} {field}": lambda b, x, field=field, kind=kind: b.bind(kind, **{field: x})  # type: ignore[misc]
    for field in Bind._fields
    for kind in (1, 2)
}
CALLS |= {
    f"fast {field}": lambda b, x, field=field: b.fast(**{field: x})  # type: ignore[misc]
    for field in FastRegistration._fields
}
HARMLESS = {
    "reg_mr iova": [None], "bind 1 qpn": VALUES, "bind 1 pd": VALUES, "bind 1 rkey": VALUES,
}  # fmt: skip
"""What is no mistake: an iova need not be given, and windows of type 1 belong to no queue pair."""


@pytest.mark.parametrize("call", CALLS)
def test_every_wrong_argument_is_refused(call: str) -> None:
    bench = Bench()
    users, free = bench.pd.users, bench.gpu.aperture.free
    for value in VALUES:
        if value in HARMLESS.get(call, ()):
            continue
        with pytest.raises(VerbsError):
            CALLS[call](bench, value)
        assert bench.gpu.aperture.free == free
    if not call.startswith(("bind", "fast")):
        assert bench.pd.users == users


ACCESSES: dict[str, Callable[[Bench, Any], object]] = {
    "read": lambda b, x: b.space.read(x, 8),
    "read length": lambda b, x: b.space.read(b.memory.base, x),
    "write": lambda b, x: b.space.write(x, b"abc"),
    "write data": lambda b, x: b.space.write(b.memory.base, x),
    "fetch_add": lambda b, x: b.space.fetch_add(x, 1),
    "fetch_add value": lambda b, x: b.space.fetch_add(b.memory.base, x),
    "compare_swap": lambda b, x: b.space.compare_swap(x, 0, 1),
    "compare": lambda b, x: b.space.compare_swap(b.memory.base, x, 1),
    "swap": lambda b, x: b.space.compare_swap(b.memory.base, 0, x),
    "kernel reads": lambda b, x: b.gpu.read(x, 8),
    "kernel reads length": lambda b, x: b.gpu.read(b.tensor.address, x),
    "kernel writes": lambda b, x: b.gpu.write(x, b"abc"),
    "kernel writes data": lambda b, x: b.gpu.write(b.tensor.address, x),
}


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("value", [None, "text", 1.5, float("nan"), float("inf"), [], (), object()])
def test_an_access_is_at_whole_numbers_and_of_bytes(access: str, value: Any) -> None:
    bench = Bench()
    with pytest.raises(VerbsError) as caught:
        ACCESSES[access](bench, value)
    assert caught.value.errno == EINVAL
    assert bench.space.read(bench.memory.base, 8) == bytes(8)


@pytest.mark.parametrize("access", [-1, 1 << 40, Access.REMOTE_WRITE])
def test_the_way_by_the_host_grants_what_other_regions_may(access: int) -> None:
    bench = Bench()
    with pytest.raises(VerbsError, match="access") as caught:
        reg_bounce_mr(bench.registrar, bench.gpu, bench.pd, bench.extent(), access)
    assert caught.value.errno == EINVAL


def test_a_dmabuf_of_another_host_stays_unpinned() -> None:
    bench, other = Bench(), Machine()
    free = bench.gpu.aperture.free
    with pytest.raises(VerbsError) as caught:
        reg_dmabuf_mr(other.registrar, bench.files, other.pd, DmaBufRange(0, 8, 0, bench.fd), 7)
    assert caught.value.errno == EFAULT
    assert bench.gpu.aperture.free == free


def test_what_finds_no_room_in_bar1_takes_none() -> None:
    bench = Bench()
    bench.registrar.clients.append(Peermem(bench.driver))
    free = bench.gpu.aperture.free
    large = bench.gpu.allocate(300 * MIB)
    for _ in range(3):
        with pytest.raises(VerbsError, match="Bad address"):
            bench.register(address=large.address, length=300 * MIB)
    assert bench.gpu.aperture.free == free


def test_no_bytes_are_fewer_than_none() -> None:
    bench = Bench()
    bench.gpu.write(bench.tensor.address, b"secret")
    with pytest.raises(MemoryFault):
        bench.gpu.read(bench.tensor.address, -8)


def test_the_last_bytes_of_the_space_are_as_good_as_any() -> None:
    space = AddressSpace()
    machine = Machine()
    top = HostMemory(LAST_ADDRESS + 1 - PAGE_64K, PAGE_64K)
    for where in (space, machine.space):
        where.map(top)
    space.write(LAST_ADDRESS - 7, bytes(range(8)))
    assert space.fetch_add(LAST_ADDRESS - 7, 1) == int.from_bytes(bytes(range(8)), "little")
    with pytest.raises(MemoryFault):
        space.read(LAST_ADDRESS - 3, 8)
    region = machine.registrar.reg_mr(machine.pd, top.base, PAGE_64K, FULL)
    assert bytes(region.read(LAST_ADDRESS, 1)) == b"\7"
    with pytest.raises(MemoryFault):
        region.write(LAST_ADDRESS, b"ab")
    with pytest.raises(VerbsError, match="exceed 64 bits") as caught:
        machine.registrar.reg_mr(machine.pd, top.base, PAGE_64K + 1, FULL)
    assert caught.value.errno == EINVAL


def test_a_tebibyte_costs_what_is_touched() -> None:
    machine = Machine()
    memory, region = machine.region(1 << 40, FULL, 1 << 21)
    region.write(region.iova + (1 << 39), b"here")
    assert bytes(region.read(region.iova + (1 << 39), 4)) == b"here"
    assert region.read(region.iova, 8) == bytes(8)
    assert memory.pages.held == 1 << 21
