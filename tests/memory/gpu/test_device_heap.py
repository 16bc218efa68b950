"""Where cudaMalloc and cuMemCreate put things."""

from errno import EINVAL, ENOMEM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.memory.gpu.device import MIB, Allocation, AllocationType, FreeRanges, Heap

BASE = 0x7000_0000_0000
BLOCK = 2 * MIB


@pytest.mark.parametrize("length", [1, 2, 255, 256])
def test_small_allocations_are_512_bytes_apart_in_one_block(length: int) -> None:
    """Read off an H200."""
    heap = Heap(BASE, 64 * MIB)
    addresses = [heap.allocate(length).address for _ in range(100)]
    assert addresses == [BASE + 512 * i for i in range(100)]


@pytest.mark.parametrize("length", [MIB, MIB + 1, BLOCK, BLOCK + 1, 5 * MIB])
def test_large_allocations_begin_blocks(length: int) -> None:
    """Read off an H200: from 1 MiB on, on 2 MiB borders."""
    heap = Heap(BASE, 64 * MIB)
    heap.allocate(1)
    first, second = heap.allocate(length), heap.allocate(length)
    assert (first.address - BASE) % BLOCK == (second.address - BASE) % BLOCK == 0
    assert second.address - first.address == length + -length % BLOCK
    assert heap.allocate(MIB - 1).address == BASE + 512


@given(st.lists(st.integers(257, MIB - 1), max_size=20))
def test_allocations_between_are_aligned_to_512(lengths: list[int]) -> None:
    heap = Heap(BASE, 64 * MIB)
    assert all(heap.allocate(length).address % 512 == 0 for length in lengths)


@pytest.mark.parametrize("kind", AllocationType)
@pytest.mark.parametrize("length", [-1, 0])
def test_nothing_cannot_be_allocated(kind: AllocationType, length: int) -> None:
    with pytest.raises(VerbsError) as caught:
        Heap(BASE, 64 * MIB).allocate(length, kind)
    assert caught.value.errno == EINVAL


@pytest.mark.parametrize("kind", [AllocationType.VMM, AllocationType.VMM_PLAIN])
def test_granularity_of_virtual_memory_management(kind: AllocationType) -> None:
    heap = Heap(BASE, 64 * MIB)
    with pytest.raises(VerbsError) as caught:
        heap.allocate(MIB, kind)
    assert caught.value.errno == EINVAL
    assert heap.allocate(BLOCK, kind).length == BLOCK


@pytest.mark.parametrize("length", [65 * MIB, 1 << 62])
def test_too_much_is_refused_and_all_is_not(length: int) -> None:
    heap = Heap(BASE, 64 * MIB)
    with pytest.raises(VerbsError) as caught:
        heap.allocate(length)
    assert caught.value.errno == ENOMEM
    everything = heap.allocate(64 * MIB)
    for more in (1, MIB):
        with pytest.raises(VerbsError):
            heap.allocate(more)
    heap.reclaim(heap.release(everything.address))
    assert heap.allocate(1).address == BASE


def test_what_is_released_is_given_out_again_once_reclaimed() -> None:
    heap = Heap(BASE, BLOCK)
    first = heap.allocate(512)
    heap.release(first.address)
    second = heap.allocate(512)
    assert second.address == BASE + 512
    heap.reclaim(first)
    assert heap.allocate(512) == first
    with pytest.raises(VerbsError, match="no allocation begins"):
        heap.release(BASE + 256)


sizes = st.one_of(st.integers(1, 2000), st.integers(MIB - 2, 5 * MIB))


@given(st.lists(st.one_of(sizes, st.integers(-9, -1)), max_size=40))
def test_allocations_never_overlap_and_all_comes_back(steps: list[int]) -> None:
    """Positive steps allocate so many bytes, negative ones free an allocation."""
    heap, live = Heap(BASE, 32 * MIB), list[Allocation]()
    for step in steps:
        if step > 0:
            try:
                live.append(heap.allocate(step))
            except VerbsError:
                assert sum(a.extent for a in live) + step > 16 * MIB
        elif live:
            heap.reclaim(heap.release(live.pop(step % len(live)).address))
        for one, next_one in zip(ordered := sorted(live), ordered[1:], strict=False):
            assert one.end <= next_one.address
        assert list(heap.overlapping(BASE, BASE + 32 * MIB)) == sorted(live)
    for allocation in live:
        heap.reclaim(heap.release(allocation.address))
    assert heap.allocate(32 * MIB).address == BASE


@given(st.data())
def test_overlapping_is_what_overlaps(data: st.DataObject) -> None:
    heap = Heap(BASE, 32 * MIB)
    live = [heap.allocate(length) for length in data.draw(st.lists(sizes, max_size=5))]
    start = BASE + data.draw(st.integers(0, 12 * MIB))
    end = start + data.draw(st.integers(1, 4 * MIB))
    expected = [a for a in sorted(live) if a.address < end and start < a.end]
    assert list(heap.overlapping(start, end)) == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=60))
def test_free_ranges_are_a_set_of_numbers(steps: list[tuple[bool, int]]) -> None:
    ranges, free, taken = FreeRanges(0, 100), set(range(100)), list[tuple[int, int]]()
    for take, length in steps:
        if take:
            start = ranges.take(length)
            fits = [s for s in range(101 - length) if free.issuperset(range(s, s + length))]
            assert start == (fits[0] if fits else None)
            if start is not None:
                free -= set(range(start, start + length))
                taken.append((start, length))
        elif taken:
            given, size = taken.pop(length % len(taken))
            ranges.give(given, size)
            free |= set(range(given, given + size))
        assert ranges.free_bytes == len(free)
