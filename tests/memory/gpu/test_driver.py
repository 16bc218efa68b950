"""nvidia_p2p_*: what is pinned, what is refused, what a free does."""

from errno import EBUSY, EINVAL, EIO, ENODEV, ENOMEM
from typing import Any

import pytest

from rdmawire.errors import ENOTSUPP, MemoryFault, VerbsError
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.gpu.device import A100, H200, MIB, T4, AllocationType, GpuProfile, PageTable
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.page import PAGE_4K, PAGE_64K
from tests.memory.gpu.node import POSTING, SMALL, Node


def ignore() -> None:
    """A free callback."""


def errno_of(call: Any, *arguments: Any) -> int:
    with pytest.raises(VerbsError) as caught:
        call(*arguments)
    return caught.value.errno


def test_pages_appear_on_the_bus() -> None:
    node = Node()
    memory = node.gpu.allocate(3 * PAGE_64K)
    table = node.driver.get_pages(memory.address, 3 * PAGE_64K, ignore)
    assert len(table.addresses) == 3
    assert all(bus % PAGE_64K == 0 for bus in table.addresses)
    for number, bus in enumerate(table.addresses):
        node.space.write(bus + 7, b"hello")
        assert node.gpu.read(memory.address + number * PAGE_64K + 7, 5) == b"hello"
    node.gpu.write(memory.address, b"kernel")
    assert node.space.read(table.addresses[0], 6) == b"kernel"
    node.driver.put_pages(table)
    with pytest.raises(MemoryFault, match="no GPU page") as caught:
        node.space.read(table.addresses[1] + 5, 2)
    assert (caught.value.address, caught.value.length) == (table.addresses[1] + 5, 2)


def test_pages_that_are_not_pinned_fault_and_nothing_is_written() -> None:
    node = Node()
    memory = node.gpu.allocate(2 * PAGE_64K)
    table = node.driver.get_pages(memory.address, PAGE_64K, ignore)
    with pytest.raises(MemoryFault) as caught:
        node.space.write(table.addresses[0] + PAGE_64K - 2, b"abcd")
    assert caught.value.address == table.addresses[0] + PAGE_64K
    assert node.gpu.read(memory.address + PAGE_64K - 2, 4) == bytes(4)


@pytest.mark.parametrize("offset", [0, 1, 512, PAGE_4K, PAGE_64K - 1, PAGE_64K])
@pytest.mark.parametrize("length", [0, 1, PAGE_4K, PAGE_64K - 1, PAGE_64K, PAGE_64K + 1, -PAGE_64K])
def test_address_and_length_are_multiples_of_64_kib(offset: int, length: int) -> None:
    node = Node()
    address = node.gpu.allocate(4 * PAGE_64K).address + offset
    if length > 0 and (offset | length) % PAGE_64K == 0:
        assert node.driver.get_pages(address, length, ignore).length == length
        assert node.driver.get_pages_persistent(address, length).length == length
    else:
        assert errno_of(node.driver.get_pages, address, length, ignore) == EINVAL
        assert errno_of(node.driver.get_pages_persistent, address, length) == EINVAL
        assert node.gpu.aperture.free == 15 * MIB


def test_other_refusals() -> None:
    node = Node()
    address = node.gpu.allocate(PAGE_64K).address
    get_pages = node.driver.get_pages
    assert errno_of(get_pages, address, PAGE_64K, None) == EINVAL
    assert errno_of(get_pages, node.gpu.end, PAGE_64K, ignore) == ENODEV
    assert errno_of(get_pages, 0, PAGE_64K, ignore) == ENODEV
    assert errno_of(get_pages, address, 1 << 50, ignore) == EINVAL
    assert errno_of(get_pages, address, 2 * PAGE_64K, ignore) == EINVAL
    node.gpu.aperture.lost = True
    assert errno_of(get_pages, address, PAGE_64K, ignore) == EIO


def test_a_lost_gpu_answers_nobody() -> None:
    node = Node()
    table = node.driver.get_pages(node.gpu.allocate(PAGE_64K).address, PAGE_64K, ignore)
    node.gpu.aperture.lost = True
    with pytest.raises(MemoryFault, match="off the bus"):
        node.space.read(table.addresses[0], 1)


@pytest.mark.parametrize("kind", AllocationType)
def test_kinds_of_memory(kind: AllocationType) -> None:
    """Only cudaMalloc's, and cuMemCreate's if it was asked for GPUDirect."""
    node = Node()
    address = node.gpu.allocate(2 * MIB, kind).address
    if kind in (AllocationType.DEVICE, AllocationType.VMM):
        assert node.driver.get_pages(address, 2 * MIB, ignore).length == 2 * MIB
    else:
        assert errno_of(node.driver.get_pages, address, 2 * MIB, ignore) == EINVAL


def test_partitioned_gpus_have_no_persistent_pages() -> None:
    node = Node(SMALL._replace(partitioned=True))
    address = node.gpu.allocate(PAGE_64K).address
    assert errno_of(node.driver.get_pages_persistent, address, PAGE_64K) == ENOTSUPP
    assert node.driver.get_pages(address, PAGE_64K, ignore).length == PAGE_64K


def test_bar1_runs_out_and_comes_back() -> None:
    node = Node()  # 15 MiB to give
    address = node.gpu.allocate(32 * MIB).address
    assert errno_of(node.driver.get_pages, address, 15 * MIB + PAGE_64K, ignore) == ENOMEM
    table = node.driver.get_pages(address, 15 * MIB, ignore)
    assert node.gpu.aperture.free == 0
    again = node.driver.get_pages(address + MIB, MIB, ignore)  # the same pages cost nothing more
    assert again.addresses == table.addresses[16:32]
    assert errno_of(node.driver.get_pages, address + 14 * MIB, 2 * MIB, ignore) == ENOMEM
    node.driver.put_pages(table)
    assert node.gpu.aperture.free == 14 * MIB
    node.driver.put_pages(again)
    assert node.gpu.aperture.free == 15 * MIB
    assert node.driver.get_pages(address, 15 * MIB, ignore).length == 15 * MIB


@pytest.mark.parametrize(
    ("profile", "free"),
    [(T4, 255 * MIB), (H200, 262143 * MIB), (A100, 131071 * MIB), (SMALL, 15 * MIB)],
)
def test_profiles(profile: GpuProfile, free: int) -> None:
    node = Node(profile)
    assert node.gpu.aperture.free == free
    assert profile.posts_writes == (profile in (T4, A100))
    node.gpu.write(node.gpu.allocate(profile.memory // 2).address + MIB, b"x")
    assert node.gpu.held == PAGE_64K


def test_pages_are_counted_per_pin() -> None:
    node = Node()
    address = node.gpu.allocate(PAGE_64K).address
    tables = [node.driver.get_pages(address, PAGE_64K, ignore) for _ in range(3)]
    tables.append(node.driver.get_pages_persistent(address, PAGE_64K))
    for left, table in zip((4, 3, 2, 1), tables, strict=True):
        assert node.gpu.aperture.pins(address) == left
        assert node.space.read(table.addresses[0], 1) == b"\0"
        node.driver.put_pages(table)
    assert node.gpu.aperture.pins(address) == 0
    assert errno_of(node.driver.put_pages, tables[0]) == EINVAL


def test_a_free_fires_the_callback_once() -> None:
    node = Node()
    memory = node.gpu.allocate(2 * PAGE_64K)
    fired: list[PageTable] = []

    def revoked() -> None:
        node.driver.put_pages(table)  # nothing happens
        node.space.read(table.addresses[0], 1)  # nor are the pages gone yet
        fired.append(table)

    table = node.driver.get_pages(memory.address, 2 * PAGE_64K, revoked)
    node.gpu.free(memory.address)
    assert fired == [table]
    assert errno_of(node.driver.put_pages, table) == EINVAL
    assert errno_of(node.driver.dma_map_pages, table, "nic") == EINVAL
    assert node.gpu.aperture.free == 15 * MIB
    with pytest.raises(MemoryFault, match="no GPU page"):
        node.space.read(table.addresses[0], 1)
    assert errno_of(node.gpu.free, memory.address) == EINVAL
    assert fired == [table]


def test_other_pins_stay_when_one_allocation_goes() -> None:
    node = Node()
    first, second = node.gpu.allocate(2 * MIB), node.gpu.allocate(2 * MIB)
    fired: list[int] = []
    node.driver.get_pages(first.address, PAGE_64K, lambda: fired.append(1))
    node.driver.get_pages(second.address, PAGE_64K, lambda: fired.append(2))
    node.gpu.free(second.address)
    assert fired == [2]


def test_a_page_dies_with_its_last_allocation() -> None:
    node = Node()
    first, second = node.gpu.allocate(100), node.gpu.allocate(100)
    fired: list[str] = []
    node.driver.get_pages(first.address, PAGE_64K, lambda: fired.append("gone"))
    node.gpu.free(first.address)
    assert not fired
    node.gpu.free(second.address)
    assert fired == ["gone"]


def test_persistent_pages_outlive_the_allocation() -> None:
    node = Node()
    memory = node.gpu.allocate(2 * MIB)
    table = node.driver.get_pages_persistent(memory.address, 2 * MIB)
    node.space.write(table.addresses[0], b"still")
    node.gpu.free(memory.address)
    assert node.space.read(table.addresses[0], 5) == b"still"
    node.space.write(table.addresses[1], b"here")
    other = node.gpu.allocate(2 * MIB)
    assert other.address != memory.address
    assert node.gpu.read(other.address, 5) == bytes(5)
    with pytest.raises(MemoryFault, match="illegal"):
        node.gpu.read(memory.address, 5)
    node.driver.put_pages(table)
    assert node.gpu.held == 0
    assert node.gpu.allocate(2 * MIB).address == memory.address
    assert node.gpu.read(memory.address, 5) == bytes(5)


def test_a_mapping_is_of_one_peer_and_holds_the_table() -> None:
    node = Node()
    table = node.driver.get_pages(node.gpu.allocate(PAGE_64K).address, PAGE_64K, ignore)
    mapping = node.driver.dma_map_pages(table, "nic")
    assert mapping.peer == "nic"
    assert errno_of(node.driver.put_pages, table) == EBUSY
    node.driver.dma_unmap_pages(mapping)
    node.driver.put_pages(table)


def test_pages_of_4_kib_are_not_mapped() -> None:
    node = Node(SMALL._replace(page_size=PAGE_4K))
    table = node.driver.get_pages(node.gpu.allocate(PAGE_64K).address, PAGE_64K, ignore)
    assert len(table.addresses) == 16
    assert errno_of(node.driver.dma_map_pages, table, "nic") == EINVAL
    node.space.write(table.addresses[3], b"x")
    assert node.gpu.read(table.address + 3 * PAGE_4K, 1) == b"x"


def test_kernels_stay_in_their_memory() -> None:
    node = Node()
    first, second = node.gpu.allocate(600), node.gpu.allocate(1000)
    assert second.address == first.address + 1024
    node.gpu.write(first.address + 1000, b"x" * 1000)
    for address, length in ((first.address - 1, 1), (second.address + 1000, 25)):
        with pytest.raises(MemoryFault, match="illegal"):
            node.gpu.read(address, length)
        with pytest.raises(MemoryFault, match="illegal"):
            node.gpu.write(address, bytes(length))


def test_gpus_stand_apart() -> None:
    driver = GpuDriver(AddressSpace())
    gpus = [driver.add(profile) for profile in (T4, SMALL, H200, T4)]
    for gpu in gpus:
        assert gpu.aperture.base % gpu.profile.bar1 == 0
        assert driver.gpu_at(gpu.base) is driver.gpu_at(gpu.end - 1) is gpu
        memory = gpu.allocate(PAGE_64K)
        table = driver.get_pages(memory.address, PAGE_64K, ignore)
        driver.space.write(table.addresses[0], gpu.profile.name.encode())
    for gpu in gpus:
        gpu.flush()
        name = gpu.profile.name.encode()
        assert gpu.read(gpu.base, len(name)) == name


@pytest.mark.parametrize("see", ["flush", "read", "unpin", "too many"])
def test_posted_writes_are_seen_after(see: str) -> None:
    node = Node(POSTING)
    memory = node.gpu.allocate(2 * PAGE_64K)
    table = node.driver.get_pages(memory.address, 2 * PAGE_64K, ignore)
    node.space.write(table.addresses[0], b"early")
    assert node.gpu.read(memory.address, 5) == bytes(5)
    if see == "flush":
        node.gpu.flush()
    elif see == "read":
        assert node.space.read(table.addresses[1], 1) == b"\0"
    elif see == "unpin":
        node.driver.put_pages(table)
    else:
        for _ in range(17):
            node.space.write(table.addresses[1], bytes(PAGE_64K))
    assert node.gpu.read(memory.address, 5) == b"early"


def test_posted_writes_keep_their_order() -> None:
    node = Node(POSTING)
    memory = node.gpu.allocate(PAGE_64K)
    table = node.driver.get_pages(memory.address, PAGE_64K, ignore)
    for data in (b"first!", b"second"):
        node.space.write(table.addresses[0], data)
    node.gpu.flush()
    assert node.gpu.read(memory.address, 6) == b"second"
    assert node.space.fetch_add(table.addresses[0] + 8, 5) == 0
    assert node.space.fetch_add(table.addresses[0] + 8, 5) == 5


def test_gpus_from_9_0_on_post_nothing() -> None:
    node = Node(SMALL)
    memory = node.gpu.allocate(PAGE_64K)
    table = node.driver.get_pages(memory.address, PAGE_64K, ignore)
    node.space.write(table.addresses[0], b"seen")
    assert node.gpu.read(memory.address, 4) == b"seen"


@pytest.mark.parametrize("profile", [SMALL, POSTING])
@pytest.mark.parametrize("offset", [*range(-9, 9), PAGE_64K - 3])
def test_the_bus_crosses_gpu_pages(profile: GpuProfile, offset: int) -> None:
    """Neighbours on the bus need not be neighbours in the GPU."""
    node = Node(profile)
    memory = node.gpu.allocate(8 * PAGE_64K)
    pages = [memory.address + number * PAGE_64K for number in (5, 0, 3)]
    buses = [node.driver.get_pages(page, PAGE_64K, ignore).addresses[0] for page in pages]
    assert buses == [buses[0], buses[0] + PAGE_64K, buses[0] + 2 * PAGE_64K]
    for length in range(33):
        data = bytes(1 + i for i in range(length))
        node.space.write(buses[1] + offset, data)
        assert node.space.read(buses[1] + offset, length) == data
        around = node.space.read(buses[1] + offset - 40, length + 80)
        assert around == bytes(40) + data + bytes(40)
        seen = b"".join(node.gpu.read(page, PAGE_64K) for page in pages)
        at = PAGE_64K + offset
        assert seen == bytes(at) + data + bytes(3 * PAGE_64K - at - length)


def test_kernels_do_not_jump_over_holes() -> None:
    node = Node()
    first, hole, last = (node.gpu.allocate(512) for _ in range(3))
    node.gpu.free(hole.address)
    with pytest.raises(MemoryFault, match="illegal") as caught:
        node.gpu.read(first.address + 100, last.end - first.address - 100)
    assert caught.value.address == hole.address


def test_neighbours_in_a_page_keep_what_they_hold() -> None:
    node = Node()
    first, second = node.gpu.allocate(512), node.gpu.allocate(512)
    node.gpu.write(second.address, b"kept")
    node.gpu.free(first.address)
    assert node.gpu.read(second.address, 4) == b"kept"


@pytest.mark.parametrize("freed", range(3))
def test_a_hole_of_one_page_is_not_pinned_over(freed: int) -> None:
    node = Node()
    pages = [node.gpu.allocate(PAGE_64K).address for _ in range(3)]
    node.gpu.free(pages[freed])
    assert errno_of(node.driver.get_pages, pages[0], 3 * PAGE_64K, ignore) == EINVAL
