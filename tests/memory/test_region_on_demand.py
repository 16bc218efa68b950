"""On-demand paging: faults are counted, unmapped pages are lost, nothing is pinned."""

import gc
import weakref
from errno import EFAULT, EINVAL

import pytest

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.address_space import DoorbellPage, HostMemory
from rdmawire.memory.key import Access
from rdmawire.memory.mr_table import WHOLE_SPACE
from rdmawire.memory.page import PAGE_2M, PAGE_4K
from tests.memory.machine import FULL, Machine

ON_DEMAND = FULL | Access.ON_DEMAND


def test_the_first_access_to_a_page_is_a_fault() -> None:
    machine = Machine()
    memory, region = machine.region(64 * PAGE_4K, ON_DEMAND)
    assert region.page_faults == 0
    region.read(memory.base + PAGE_4K, 8)
    region.write(memory.base + PAGE_4K + 8, b"x")
    region.write(memory.base + PAGE_4K + 9, b"x")
    assert region.page_faults == 1
    region.write(memory.base + 2 * PAGE_4K - 1, b"ab")
    assert region.page_faults == 2
    region.write(memory.base, bytes(64 * PAGE_4K))
    assert region.page_faults == 64


def test_huge_pages_fault_in_whole() -> None:
    machine = Machine()
    memory, region = machine.region(2 * PAGE_2M, ON_DEMAND, PAGE_2M)
    for at in range(0, 2 * PAGE_2M, PAGE_2M // 8):
        region.write(memory.base + at, b"x")
    assert region.page_faults == 2


def test_an_implicit_region_is_all_there_is_and_will_be() -> None:
    machine = Machine()
    region = machine.registrar.reg_mr(machine.pd, 0, WHOLE_SPACE, ON_DEMAND)
    memory = machine.space.allocate(PAGE_4K)
    assert machine.keys.check(region.key, machine.pd, memory.base, 4096, 1) is region
    region.write(memory.base + 10, b"found")
    assert machine.space.read(memory.base + 9, 7) == b"\0found\0"
    assert region.page_faults == 1
    for nowhere in (0, memory.base - 1, memory.end):
        with pytest.raises(MemoryFault, match="unmapped") as caught:
            region.write(nowhere, b"x")
        assert caught.value.address == nowhere
    assert region.page_faults == 1


def test_what_is_unmapped_is_lost_and_found_anew() -> None:
    machine = Machine()
    memory, region = machine.region(PAGE_4K, ON_DEMAND)
    region.write(memory.base, b"old")
    machine.space.unmap(memory)
    for access in (lambda: region.read(memory.base, 3), lambda: region.write(memory.base, b"x")):
        with pytest.raises(MemoryFault, match="unmapped"):
            access()
    machine.space.map(HostMemory(memory.base, PAGE_4K))
    assert bytes(region.read(memory.base, 3)) == bytes(3)
    region.write(memory.base, b"new")
    assert machine.space.read(memory.base, 3) == b"new"
    assert region.page_faults == 2
    assert memory.read(memory.base, 3) == b"old"


def test_a_region_on_demand_may_begin_before_its_memory() -> None:
    machine = Machine()
    region = machine.registrar.reg_mr(machine.pd, 0x5000_0000, PAGE_4K, ON_DEMAND)
    with pytest.raises(MemoryFault):
        region.read(0x5000_0000, 1)
    machine.space.map(HostMemory(0x5000_0000, PAGE_4K, read_only=True))
    assert bytes(region.read(0x5000_0000, 1)) == b"\0"
    with pytest.raises(MemoryFault, match="read-only"):
        region.write(0x5000_0000, b"x")


def test_devices_do_not_page() -> None:
    machine = Machine()
    doorbell = DoorbellPage(0x5000_0000)
    machine.space.map(doorbell)
    region = machine.registrar.reg_mr(machine.pd, 0, WHOLE_SPACE, ON_DEMAND)
    with pytest.raises(MemoryFault, match="paged"):
        region.write(0x5000_0000, b"x")
    assert not doorbell.rings


def test_prefetch() -> None:
    machine = Machine()
    memory, region = machine.region(8 * PAGE_4K, ON_DEMAND)
    machine.registrar.advise_mr(region, memory.base + PAGE_4K - 1, PAGE_4K + 2)
    assert region.page_faults == 3
    region.write(memory.base, bytes(3 * PAGE_4K))
    assert region.page_faults == 3


def test_prefetches_refused() -> None:
    machine = Machine()
    memory, region = machine.region(8 * PAGE_4K, ON_DEMAND)
    _, pinned = machine.region()
    hole = machine.registrar.reg_mr(machine.pd, memory.base, 9 * PAGE_4K, ON_DEMAND)
    for target, address, length, errno in (
        (pinned, pinned.iova, 1, EINVAL),
        (region, memory.base - 1, 1, EINVAL),
        (region, memory.base, 8 * PAGE_4K + 1, EINVAL),
        (hole, memory.base, 8 * PAGE_4K + 1, EFAULT),
    ):
        with pytest.raises(VerbsError) as caught:
            machine.registrar.advise_mr(target, address, length)
        assert caught.value.errno == errno
    assert (region.page_faults, pinned.page_faults, hole.page_faults) == (0, 0, 0)


def test_after_deregistration_nobody_listens() -> None:
    machine = Machine()
    memory, region = machine.region(PAGE_4K, ON_DEMAND)
    backing = weakref.ref(region.backing)
    machine.registrar.dereg_mr(region)
    gc.collect()
    assert backing() is None
    machine.space.unmap(memory)
    with pytest.raises(MemoryFault, match="no pages"):
        region.read(memory.base, 1)


def test_a_region_without_pages_has_met_no_page_fault() -> None:
    machine = Machine()
    memory, region = machine.region(access=FULL | Access.ON_DEMAND)
    region.write(memory.base, b"x")
    assert region.page_faults == 1
    machine.registrar.dereg_mr(region)
    assert region.page_faults == 0
