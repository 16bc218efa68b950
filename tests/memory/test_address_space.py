"""Address spaces: windows, pages, borders."""

from errno import EEXIST, EINVAL, ENOMEM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.address_space import AddressSpace, DoorbellPage, HostMemory
from rdmawire.memory.page import PAGE_2M, PAGE_4K, PAGE_64K, SparsePages

BASE = 0x4000_0000
TIB = 1 << 40
EDGES = [
    border + offset
    for border in (PAGE_4K, PAGE_64K, PAGE_2M)
    for offset in (-33, -32, -9, -8, -7, -1, 0, 1, 7, 8, 31)
]


def space_of(*windows: HostMemory) -> AddressSpace:
    space = AddressSpace()
    for window in windows:
        space.map(window)
    return space


def pattern(length: int) -> bytes:
    return bytes(1 + i % 255 for i in range(length))


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("page_size", [PAGE_4K, PAGE_2M])
def test_short_accesses_round_borders(edge: int, page_size: int) -> None:
    for length in range(33):
        space = space_of(HostMemory(BASE, 2 * PAGE_2M, page_size))
        space.write(BASE + edge, pattern(length))
        assert space.read(BASE + edge, length) == pattern(length)
        around = space.read(BASE + edge - 40, length + 80)
        assert around == bytes(40) + pattern(length) + bytes(40)


@given(st.data())
def test_writes_are_those_to_a_bytearray(data: st.DataObject) -> None:
    """Windows of several page sizes side by side are one memory."""
    windows = [
        HostMemory(BASE, PAGE_2M, PAGE_2M),
        HostMemory(BASE + PAGE_2M, 3 * PAGE_4K),
        HostMemory(BASE + PAGE_2M + 3 * PAGE_4K, PAGE_64K),
    ]
    size = sum(window.size for window in windows)
    space, model = space_of(*windows), bytearray(size)
    near = st.sampled_from([0, PAGE_4K, PAGE_2M, PAGE_2M + 3 * PAGE_4K, size])
    for _ in range(data.draw(st.integers(1, 6))):
        at = min(max(0, data.draw(near) + data.draw(st.integers(-64, 64))), size)
        raw = data.draw(st.binary(max_size=96))[: size - at]
        space.write(BASE + at, raw)
        model[at : at + len(raw)] = raw
    assert space.read(BASE, size) == model


def test_a_tebibyte_costs_what_is_touched() -> None:
    window = HostMemory(BASE, TIB)
    space = space_of(window)
    assert space.read(BASE + TIB // 2, 100) == bytes(100)
    assert window.pages.held == 0
    for at in (0, TIB // 2, TIB - 1):
        space.write(BASE + at, b"x")
    assert window.pages.held == 3 * PAGE_64K


def test_a_dropped_page_reads_as_zeros() -> None:
    pages = SparsePages(PAGE_4K)
    pages.write(PAGE_4K, b"old")
    pages.drop(1)
    assert pages.read(PAGE_4K, 3) == bytes(3)
    assert pages.held == 0


def test_an_access_into_a_hole_says_where_and_writes_nothing() -> None:
    space = space_of(HostMemory(BASE, PAGE_4K), HostMemory(BASE + 2 * PAGE_4K, PAGE_4K))
    at = BASE + PAGE_4K - 4
    for access in (lambda: space.write(at, b"12345678"), lambda: space.read(at, 8)):
        with pytest.raises(MemoryFault, match="unmapped") as caught:
            access()
        assert (caught.value.address, caught.value.length) == (BASE + PAGE_4K, 4)
    assert space.read(at, 4) == bytes(4)


@pytest.mark.parametrize("address", [0, BASE - 1, BASE + PAGE_4K, (1 << 64) - 1])
def test_nothing_is_mapped_outside(address: int) -> None:
    with pytest.raises(MemoryFault, match=f"{address:#x}"):
        space_of(HostMemory(BASE, PAGE_4K)).read(address, 1)


def test_read_only_memory_stays_as_it_is() -> None:
    space = space_of(HostMemory(BASE, PAGE_4K), HostMemory(BASE + PAGE_4K, PAGE_4K, read_only=True))
    with pytest.raises(MemoryFault, match="read-only") as caught:
        space.write(BASE + PAGE_4K - 1, b"ab")
    assert (caught.value.address, caught.value.length) == (BASE + PAGE_4K, 1)
    assert space.read(BASE + PAGE_4K - 1, 2) == bytes(2)
    with pytest.raises(MemoryFault, match="read-only"):
        space.compare_swap(BASE + PAGE_4K, 1, 2)


def test_the_last_byte_of_the_address_space() -> None:
    space = space_of(HostMemory((1 << 64) - PAGE_4K, PAGE_4K))
    space.write((1 << 64) - 1, b"z")
    assert space.read((1 << 64) - 2, 2) == b"\0z"
    with pytest.raises(MemoryFault):
        space.write((1 << 64) - 1, b"zz")


@pytest.mark.parametrize("offset", range(8))
def test_atomics_need_alignment(offset: int) -> None:
    space = space_of(HostMemory(BASE, PAGE_4K))
    if offset:
        with pytest.raises(MemoryFault, match="aligned"):
            space.fetch_add(BASE + offset, 1)
        with pytest.raises(MemoryFault, match="aligned"):
            space.compare_swap(BASE + offset, 0, 1)
    else:
        assert space.fetch_add(BASE, 1) == 0
    assert space.read(BASE, 8) == bytes([not offset]) + bytes(7)


words = st.integers(0, (1 << 64) - 1)


@given(words, words)
def test_fetch_add_wraps_and_is_little_endian(start: int, value: int) -> None:
    space = space_of(HostMemory(BASE, PAGE_4K))
    space.write(BASE + 8, start.to_bytes(8, "little"))
    assert space.fetch_add(BASE + 8, value) == start
    expected = ((start + value) % (1 << 64)).to_bytes(8, "little")
    assert space.read(BASE, 24) == bytes(8) + expected + bytes(8)


@given(words, words, words)
def test_compare_swap_swaps_if_equal(start: int, compare: int, swap: int) -> None:
    space = space_of(HostMemory(BASE, PAGE_4K))
    space.write(BASE, start.to_bytes(8, "little"))
    assert space.compare_swap(BASE, compare, swap) == start
    assert int.from_bytes(space.read(BASE, 8), "little") == (swap if compare == start else start)
    assert space.compare_swap(BASE, int.from_bytes(space.read(BASE, 8), "little"), 7) is not None
    assert int.from_bytes(space.read(BASE, 8), "little") == 7


@pytest.mark.parametrize(("base", "size"), [(1, PAGE_4K), (0, 100), (0, 0), (-PAGE_4K, PAGE_4K)])
def test_windows_are_whole_pages(base: int, size: int) -> None:
    with pytest.raises(VerbsError) as caught:
        HostMemory(base, size)
    assert caught.value.errno == EINVAL


def test_host_pages_have_two_sizes() -> None:
    with pytest.raises(VerbsError, match="65536"):
        HostMemory(0, PAGE_2M, PAGE_64K)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_windows_do_not_overlap(offset: int) -> None:
    space = space_of(HostMemory(BASE, 2 * PAGE_4K))
    with pytest.raises(VerbsError, match="in use") as caught:
        space.map(HostMemory(BASE + offset * PAGE_4K, 2 * PAGE_4K))
    assert caught.value.errno == EEXIST
    space.map(HostMemory(BASE + 2 * PAGE_4K, PAGE_4K))
    space.map(HostMemory(BASE - PAGE_4K, PAGE_4K))
    assert space.read(BASE - PAGE_4K, 4 * PAGE_4K) == bytes(4 * PAGE_4K)


def test_unmapped_memory_is_gone_and_its_place_free() -> None:
    window = HostMemory(BASE, PAGE_4K)
    space = space_of(window)
    space.unmap(window)
    with pytest.raises(MemoryFault):
        space.read(BASE, 1)
    with pytest.raises(VerbsError, match="no such mapping"):
        space.unmap(window)
    space.map(HostMemory(BASE, PAGE_4K))
    assert space.read(BASE, 1) == b"\0"


@given(st.lists(st.tuples(st.integers(1, 5 * PAGE_2M), st.sampled_from([PAGE_4K, PAGE_2M]))))
def test_allocations_stand_apart(wishes: list[tuple[int, int]]) -> None:
    space = space_of(HostMemory(0x1200_0000, PAGE_2M))
    for size, page_size in wishes:
        window = space.allocate(size, page_size)
        assert window.base % page_size == 0
        assert window.size >= size
        for outside in (window.base - 1, window.end):
            with pytest.raises(MemoryFault):
                space.read(outside, 1)


@pytest.mark.parametrize("size", [0, -1])
def test_an_allocation_has_a_byte_or_more(size: int) -> None:
    with pytest.raises(VerbsError, match=f"size: {size} is not a number of bytes from 1") as caught:
        AddressSpace().allocate(size)
    assert caught.value.errno == EINVAL


def test_no_addresses_left() -> None:
    with pytest.raises(VerbsError) as caught:
        AddressSpace().allocate(1 << 64)
    assert caught.value.errno == ENOMEM


def test_a_doorbell_rings_and_cannot_be_read() -> None:
    space, heard = AddressSpace(), list[tuple[int, bytes]]()
    quiet = DoorbellPage(0x1000)
    space.map(quiet)
    space.map(DoorbellPage(0x2000, lambda offset, data: heard.append((offset, data))))
    space.write(0x1FFC, bytearray(b"lastnext"))
    assert list(quiet.rings) == [(0xFFC, b"last")]
    assert heard == [(0, b"next")]
    with pytest.raises(MemoryFault, match="write-only") as caught:
        space.read(0x1008, 8)
    assert caught.value.address == 0x1008
    with pytest.raises(MemoryFault, match="write-only"):
        space.fetch_add(0x1008, 1)
    assert len(quiet.rings) == 1
