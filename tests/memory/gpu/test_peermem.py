"""Regions of GPU memory: nvidia-peermem, legacy and persistent, and the way round by the host."""

from errno import EFAULT, EINVAL

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.fast_reg import FastRegistration, register_pages
from rdmawire.memory.gpu.device import MIB, AllocationType
from rdmawire.memory.gpu.peermem import GpuPages, reg_bounce_mr
from rdmawire.memory.key import LOCAL_WRITE, KeyFault
from rdmawire.memory.mr_table import Extent, Limits, MemoryRegionTable, Rereg
from rdmawire.memory.page import PAGE_4K, PAGE_64K, Path
from rdmawire.memory.region import Region
from tests.memory.gpu.node import POSTING, SMALL, Node
from tests.memory.machine import FULL

MODES = [False, True]


def direct(node: Node, address: int, length: int) -> Region:
    return node.registrar.reg_mr(node.pd, address, length, FULL)


def bounced(node: Node, address: int, length: int) -> Region:
    return reg_bounce_mr(node.registrar, node.gpu, node.pd, Extent(address, address, length), FULL)


@pytest.mark.parametrize("register", [direct, bounced])
@pytest.mark.parametrize("profile", [SMALL, POSTING])
@given(data=st.data())
def test_a_region_is_a_bytearray_and_its_neighbours_stay(
    register: object, profile: object, data: st.DataObject
) -> None:
    assert callable(register)
    node = Node(profile)  # type: ignore[arg-type]
    size = 3 * PAGE_64K
    memory = node.gpu.allocate(size)
    start = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(1, size - start))
    region = register(node, memory.address + start, length)
    model = bytearray(size)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.sampled_from([0, -start % PAGE_64K, length])) + data.draw(
            st.integers(-20, 20)
        )
        at = min(max(at, 0), length)
        raw = data.draw(st.binary(max_size=40))[: length - at]
        region.write(region.iova + at, raw)
        model[start + at : start + at + len(raw)] = raw
        got = region.read(region.iova + at, len(raw))
        assert bytes(got) == raw
    node.gpu.flush()
    assert node.gpu.read(memory.address, size) == model


@pytest.mark.parametrize("persistent", MODES)
def test_a_free_of_registered_memory(persistent: bool) -> None:
    """The legacy client's region is invalidated, the persistent one's goes on with old pages."""
    node = Node(persistent=persistent)
    memory = node.gpu.allocate(2 * MIB)
    region = direct(node, memory.address + 100, 5000)
    region.write(region.iova, b"early")
    node.gpu.free(memory.address)
    other = node.gpu.allocate(2 * MIB)
    found = node.keys.check(region.key, node.pd, region.iova, 5, LOCAL_WRITE)
    if persistent:
        assert found is region
        assert bytes(region.read(region.iova, 5)) == b"early"
        region.write(region.iova, b"late")
        assert other.address != memory.address
    else:
        assert found is KeyFault.INVALIDATED
        for access in (lambda: region.read(region.iova, 5), lambda: region.write(region.iova, b"")):
            with pytest.raises(MemoryFault, match="no pages"):
                access()
        with pytest.raises(VerbsError, match="lost its pages") as caught:
            node.registrar.rereg_mr(region, Rereg.CHANGE_ACCESS, access=0)
        assert caught.value.errno == EINVAL
    assert node.gpu.read(other.address, 200) == bytes(200)
    node.registrar.dereg_mr(region)
    assert (node.gpu.aperture.free, node.pd.users, node.gpu.held) == (15 * MIB, 0, 0)
    assert not node.gpu.tables
    assert not node.gpu.holders


@pytest.mark.parametrize("persistent", MODES)
def test_deregistration_unpins(persistent: bool) -> None:
    node = Node(persistent=persistent)
    memory = node.gpu.allocate(PAGE_64K)
    region = direct(node, memory.address, PAGE_64K)
    assert node.gpu.aperture.pins(memory.address) == 1
    node.registrar.dereg_mr(region)
    assert node.gpu.aperture.pins(memory.address) == 0
    node.gpu.free(memory.address)


@pytest.mark.parametrize("persistent", MODES)
def test_what_peermem_cannot_pin_is_a_bad_address(persistent: bool) -> None:
    """Every failure means "not mine", and pinning it as host memory fails with EFAULT."""
    node = Node(persistent=persistent)
    big = node.gpu.allocate(16 * MIB)
    managed = node.gpu.allocate(2 * MIB, AllocationType.MANAGED)
    for address, length in (
        (big.address, 16 * MIB),  # more than BAR1 has
        (managed.address, 8),
        (managed.end, 8),  # not allocated
        (node.gpu.end - 8, 16),
    ):
        with pytest.raises(VerbsError, match="Bad address") as caught:
            direct(node, address, length)
        assert caught.value.errno == EFAULT
    assert (len(node.keys), node.gpu.aperture.free) == (0, 15 * MIB)


def test_pages_of_another_size_are_refused() -> None:
    node = Node(SMALL._replace(page_size=2 * PAGE_64K))
    memory = node.gpu.allocate(2 * MIB)
    with pytest.raises(VerbsError, match="131072") as caught:
        direct(node, memory.address, 2 * MIB)
    assert caught.value.errno == EINVAL
    assert not node.gpu.tables


def test_host_memory_is_still_host_memory() -> None:
    node = Node()
    memory = node.space.allocate(PAGE_4K)
    direct(node, memory.base, 8).write(memory.base, b"x")
    assert node.registrar.counter[Path.HOST].bytes == 1


def test_a_mapping_for_one_adapter_is_none_for_another() -> None:
    node = Node()
    other = MemoryRegionTable(node.space, Limits(), node.clients)
    memory = node.gpu.allocate(PAGE_64K)
    table = node.driver.get_pages_persistent(memory.address, PAGE_64K)
    mapping = node.driver.dma_map_pages(table, node.registrar.peer)
    extent = Extent(memory.address, memory.address, PAGE_64K)
    with pytest.raises(VerbsError, match="another adapter") as caught:
        other.register(node.pd, extent, FULL, lambda: GpuPages(node.driver, mapping))
    assert caught.value.errno == EINVAL
    region = node.registrar.register(node.pd, extent, FULL, lambda: GpuPages(node.driver, mapping))
    region.write(region.iova, b"x")
    assert node.gpu.read(memory.address, 1) == b"x"


@pytest.mark.parametrize("persistent", MODES)
def test_a_flush_of_an_older_gpu_is_a_read_of_one_byte(persistent: bool) -> None:
    """What NCCL does: a read through the adapter pushes the writes before it."""
    node = Node(POSTING, persistent=persistent)
    memory = node.gpu.allocate(PAGE_64K)
    region = direct(node, memory.address, PAGE_64K)
    for round_ in (b"one", b"two"):
        before = node.gpu.read(memory.address, 3)
        region.write(region.iova, round_)
        assert node.gpu.read(memory.address, 3) == before
        region.read(region.iova + 1000, 1)
        assert node.gpu.read(memory.address, 3) == round_


def test_zero_copy_is_a_figure() -> None:
    node = Node()
    memory, counter = node.gpu.allocate(2 * MIB), node.registrar.counter
    for region in (direct(node, memory.address, 2 * MIB), bounced(node, memory.address, 2 * MIB)):
        for _ in range(3):
            region.write(region.iova + 10, bytes(PAGE_64K))
        region.read(region.iova, 5)
        region.fetch_add(region.iova, 1)
    for path, copies in ((Path.GPU_DIRECT, 0), (Path.BOUNCE, 6)):
        tally = counter[path]
        assert (tally.bytes, tally.transactions, tally.copies) == (3 * PAGE_64K + 21, 6, copies)
    assert counter[Path.HOST].transactions == 0


def test_a_bounced_region_needs_no_bar1_and_faults_once_freed() -> None:
    node = Node(POSTING)
    memory = node.gpu.allocate(16 * MIB)
    windows = node.space.mappings
    region = bounced(node, memory.address, 16 * MIB)
    region.write(region.iova, b"seen")
    assert node.gpu.read(memory.address, 4) == b"seen"
    assert node.gpu.aperture.free == 15 * MIB
    node.gpu.free(memory.address)
    with pytest.raises(MemoryFault, match="illegal GPU"):
        region.write(region.iova, b"x")
    with pytest.raises(MemoryFault, match="illegal GPU"):
        region.read(region.iova, 1)
    node.registrar.dereg_mr(region)
    assert node.space.mappings == windows


def test_a_fast_registration_of_bar1_pages() -> None:
    node = Node()
    memory = node.gpu.allocate(2 * PAGE_64K)
    table = node.driver.get_pages(memory.address, 2 * PAGE_64K, lambda: None)
    region = node.registrar.alloc_mr(node.pd, 2)
    registration = FastRegistration(region.key, 0, 2 * PAGE_64K, FULL, table.addresses, PAGE_64K)
    register_pages(node.keys, node.space, region, registration)
    region.write(PAGE_64K - 2, b"abcd")
    assert node.gpu.read(memory.address + PAGE_64K - 2, 4) == b"abcd"
    assert node.registrar.counter[Path.GPU_DIRECT].bytes == 4
    node.gpu.free(memory.address)
    with pytest.raises(MemoryFault, match="no GPU page"):
        region.write(PAGE_64K - 2, b"abcd")


def test_rereg_moves_a_region_from_gpu_to_host() -> None:
    node = Node()
    memory, host = node.gpu.allocate(PAGE_64K), node.space.allocate(PAGE_4K)
    region = direct(node, memory.address, PAGE_64K)
    node.registrar.rereg_mr(region, 1, address=host.base, length=8)
    assert node.gpu.aperture.free == 15 * MIB
    region.write(host.base, b"x")
    assert node.registrar.counter[Path.HOST].bytes == 1
    node.registrar.rereg_mr(region, 1, address=memory.address, length=8)
    assert node.gpu.aperture.pins(memory.address) == 1
