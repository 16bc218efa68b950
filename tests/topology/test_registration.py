"""Registration: pages, entries and times as published, and a cache against a plain model."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import TopologyError
from rdmawire.topology import (
    PAGE_SIZES,
    Costs,
    RegisteredKind,
    Registrar,
    RegistrationCache,
    RegistrationMode,
    registration,
)

HOST, PEERMEM, DMABUF = RegisteredKind
GIB = 1 << 30
KINDS = [(kind, size) for kind, sizes in PAGE_SIZES.items() for size in sizes]
COSTS = Costs()


@pytest.mark.parametrize("size", [4096, 1 << 20, 1 << 28])
def test_host_memory_takes_what_ucx_assumes(size: int) -> None:
    assert registration(HOST, size).time == pytest.approx(16_000 + 0.06 * size, rel=0.02)


def test_256_gib_take_some_20_seconds_as_reported() -> None:
    """More than 20 s are reported for libfabric's fi_mr_reg: ofiwg/libfabric, issue 4738."""
    assert 15 < registration(HOST, 256 * GIB).time / 1e9 < 25


def test_a_gibibyte_of_huge_pages_is_registered_and_deregistered_as_measured() -> None:
    """1861 us, and 8480 us when each part of a huge page is unpinned: Linux, RDMA/umem."""
    row = registration(HOST, GIB, page_size=1 << 21)
    assert (row.time + row.dereg_time) / 1000 == pytest.approx(1861, rel=0.02)
    apart = row.dereg_time + GIB // 4096 * COSTS.unpin_page
    assert (row.time + apart) / 1000 == pytest.approx(8480, rel=0.02)


def test_pinning_gpu_memory_takes_10_us_to_1_ms() -> None:
    for size, least, most in ((4096, 10_000, 11_000), (256 << 20, 0.9e6, 1.1e6)):
        whole = registration(DMABUF, size)
        entries = whole.entries * COSTS.mtt_entry
        pinned = whole.time - COSTS.reg_launch - COSTS.export_dmabuf - entries
        assert least <= pinned <= most


@given(st.sampled_from(KINDS), st.integers(1, 1 << 40), st.integers(0, 1 << 30))
def test_pages_cover_the_bytes_and_entries_the_pages(
    kind: tuple[RegisteredKind, int], size: int, address: int
) -> None:
    page = kind[1]
    row = registration(kind[0], size, address=address, page_size=page)
    touched = {address // page, (address + size - 1) // page}
    assert row.pages == max(touched) - min(touched) + 1
    assert row.entries == row.pages
    assert row.entries <= 512**row.levels
    assert row.levels == 0 or row.entries > 512 ** (row.levels - 1)
    larger = registration(kind[0], size + page, address=address, page_size=page)
    assert larger.time > row.time
    assert larger.dereg_time > row.dereg_time


def test_peermem_pins_twice_and_a_dmabuf_is_exported() -> None:
    by_peermem, by_dmabuf = registration(PEERMEM, 1 << 20), registration(DMABUF, 1 << 20)
    once = COSTS.pin_gpu + 16 * COSTS.pin_gpu_page
    assert by_peermem.time - by_dmabuf.time == pytest.approx(2 * once - COSTS.export_dmabuf)


def test_larger_pages_need_fewer_entries() -> None:
    small, large = registration(HOST, GIB), registration(HOST, GIB, page_size=1 << 21)
    assert (small.entries, small.levels) == (1 << 18, 2)
    assert (large.entries, large.levels) == (512, 1)
    assert large.time < small.time / 30


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"size": 0}, "0 bytes"),
        ({"size": 8, "page_size": 1 << 16}, None),
        ({"size": 8, "page_size": 8192}, "pages of host memory have 4096, 65536, 2097152"),
        ({"size": 8192, "max_entries": 1}, "need 2 translation entries, the adapter has 1"),
    ],
)
def test_what_cannot_be_registered(given_: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert registration(HOST, **given_).pages == 1
        return
    with pytest.raises(TopologyError, match=message):
        registration(HOST, **given_)


# The cache.

PAGE = 4096
Use = tuple[int, int, bool]
USES = st.lists(
    st.tuples(st.integers(0, 12 * PAGE), st.integers(1, 4 * PAGE), st.booleans()), max_size=30
)


@settings(max_examples=100)
@given(USES, st.none() | st.integers(1, 3), st.none() | st.integers(PAGE, 8 * PAGE))
def test_the_cache_against_a_list_of_pages(
    uses: list[Use], regions: int | None, most: int | None
) -> None:
    """A plain model: a set of registered pages, least recently used regions last."""
    cache = RegistrationCache(HOST, max_regions=regions, max_bytes=most)
    model: list[tuple[int, int]] = []
    for address, size, _ in uses:
        first, last = address // PAGE, (address + size - 1) // PAGE
        hit = next((one for one in model if one[0] <= first and last <= one[1]), None)
        found = cache.get(address, size)
        assert found.is_hit == (hit is not None)
        if hit is None:
            while over := [one for one in model if one[0] <= last and first <= one[1]]:
                first, last = min(first, *(a for a, _ in over)), max(last, *(b for _, b in over))
                model = [one for one in model if one not in over]
            hit = first, last
        model = [*(one for one in model if one != hit), hit]
        while len(model) > 1 and (
            (regions is not None and len(model) > regions)
            or (most is not None and sum(b - a + 1 for a, b in model) * PAGE > most)
        ):
            model.pop(0)
        cache.put(found.region)
        assert [(one.start // PAGE, one.end // PAGE - 1) for one in cache.regions] == model
    assert cache.hits + cache.misses == len(uses)
    assert cache.registered_bytes == sum(b - a + 1 for a, b in model) * PAGE


def test_a_region_in_use_is_not_deregistered() -> None:
    cache = RegistrationCache(HOST, max_regions=1)
    one = cache.get(0, PAGE)
    other = cache.get(10 * PAGE, PAGE)
    assert len(cache.regions) == 2
    assert cache.put(one.region) == cache.put(other.region) == 0.0
    third = cache.get(20 * PAGE, PAGE)
    assert (cache.evictions, cache.regions) == (2, [third.region])
    dereg = 2 * registration(HOST, PAGE).dereg_time
    assert third.time == pytest.approx(180 + registration(HOST, PAGE).time + dereg)


def test_a_merged_region_stays_until_it_has_no_users() -> None:
    cache = RegistrationCache(HOST)
    small = cache.get(0, PAGE).region
    large = cache.get(0, 4 * PAGE)
    assert (cache.merges, cache.registered_bytes) == (1, 5 * PAGE)
    assert cache.put(small) == registration(HOST, PAGE).dereg_time
    assert cache.registered_bytes == large.region.size == 4 * PAGE
    with pytest.raises(TopologyError, match="not in use"):
        cache.put(small)


def test_freed_memory_is_registered_again() -> None:
    cache = RegistrationCache(PEERMEM)
    cache.put(cache.get(0, 100).region)
    assert cache.get(50, 10).is_hit
    assert cache.invalidate(1 << 20, 10) == 0.0
    cache.put(cache.regions[0])
    assert cache.invalidate(60_000, 1) == registration(PEERMEM, 1 << 16).dereg_time
    assert not cache.get(50, 10).is_hit


@pytest.mark.parametrize(
    ("mode", "counted"), [("none", (0, 0)), ("each", (3, 3)), ("cache", (1, 0))]
)
def test_a_registrar_counts(mode: str, counted: tuple[int, int]) -> None:
    registrar = Registrar(RegistrationMode(mode), RegistrationCache(HOST))
    total = 0.0
    for _ in range(3):
        time, region = registrar.acquire(0, PAGE)
        total += time + registrar.release(region)
    assert (registrar.registered, registrar.deregistered) == counted
    assert registrar.time == total
    assert registrar.mode.meaning
