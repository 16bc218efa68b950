"""Fast registration: what REG_MR takes, where its pages are, what LOCAL_INV ends."""

from errno import EFAULT, EINVAL
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.fast_reg import FastRegistration, invalidate, register_pages
from rdmawire.memory.key import LOCAL_WRITE, VARIANTS, KeyFault, ProtectionDomain
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.memory.page import PAGE_2M, PAGE_4K, PAGE_64K
from rdmawire.memory.region import Region
from tests.memory.machine import FULL, Machine

IOVA = 0xFEED_0000_0100


class Bench(Machine):
    """Host memory, and a free region for eight pages."""

    def __init__(self, page_size: int = PAGE_4K) -> None:
        super().__init__()
        self.memory = self.space.allocate(16 * page_size)
        self.page_size = page_size
        self.mr = self.registrar.alloc_mr(self.pd, 8)

    def page(self, number: int) -> int:
        return self.memory.base + number * self.page_size

    def register(self, **changes: Any) -> None:
        pages = [self.page(number) for number in (7, 2, 9)]
        right = FastRegistration(
            self.mr.key ^ 0xF0, IOVA, 2 * self.page_size, FULL, pages, self.page_size
        )
        register_pages(self.keys, self.space, self.mr, right._replace(**changes))


def test_a_free_region_grants_nothing() -> None:
    bench = Bench()
    assert bench.keys.check(bench.mr.key, bench.pd, 0, 0, 0) is KeyFault.NOT_BOUND
    with pytest.raises(MemoryFault, match="no pages"):
        bench.mr.read(IOVA, 1)


@pytest.mark.parametrize("page_size", [PAGE_4K, PAGE_64K, PAGE_2M])
def test_pages_in_any_order_are_one_range(page_size: int) -> None:
    bench = Bench(page_size)
    free = bench.mr.key
    bench.register()
    assert bench.keys.check(free, bench.pd, IOVA, 1, 0) is KeyFault.INVALID_KEY
    assert bench.mr.key == free ^ 0xF0
    found = bench.keys.check(bench.mr.key, bench.pd, IOVA, 2 * page_size, LOCAL_WRITE)
    assert found is bench.mr
    border = (IOVA & -page_size) + page_size
    for _ in range(2):
        bench.mr.write(border - 3, b"abcdef")
        assert bytes(bench.mr.read(border - 3, 6)) == b"abcdef"
    assert bench.space.read(bench.page(8) - 3, 4) == b"abc\0"
    assert bench.space.read(bench.page(2) - 1, 4) == b"\0def"


@given(st.data())
def test_writes_are_those_to_a_bytearray(data: st.DataObject) -> None:
    bench = Bench()
    numbers = data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True))
    offset = data.draw(st.integers(0, PAGE_4K - 1))
    length = data.draw(st.integers(1, len(numbers) * PAGE_4K - offset))
    iova = (IOVA & -PAGE_4K) + offset
    bench.register(iova=iova, length=length, pages=[bench.page(number) for number in numbers])
    model = bytearray(16 * PAGE_4K)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, length))
        raw = data.draw(st.binary(max_size=40))[: length - at]
        bench.mr.write(iova + at, raw)
        for i, byte in enumerate(raw):
            page, place = divmod(offset + at + i, PAGE_4K)
            model[numbers[page] * PAGE_4K + place] = byte
    assert bench.space.read(bench.memory.base, 16 * PAGE_4K) == model


WRONG: dict[str, dict[str, Any]] = {
    "too many pages": {"pages": [0] * 9},
    "no pages": {"pages": []},
    "pages too few": {"length": 3 * PAGE_4K - 0xFF},
    "empty": {"length": 0},
    "small pages": {"page_size": 2048},
    "odd pages": {"page_size": 3 * PAGE_4K},
    "giant pages": {"page_size": 1 << 32},
    "rights": {"access": 2},
    "negative": {"iova": -PAGE_4K},
    "beyond": {"iova": (1 << 64) - PAGE_4K},
    "askew": {"pages": [0x1000_0001] * 3},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_registrations_refused(wrong: str) -> None:
    bench = Bench()
    key = bench.mr.key
    with pytest.raises(VerbsError) as caught:
        bench.register(**WRONG[wrong])
    assert caught.value.errno == EINVAL
    assert (bench.mr.key, bench.mr.valid, bench.mr.backing) == (key, False, None)


def test_pages_that_are_none() -> None:
    bench = Bench()
    for page in (0, bench.memory.end):
        with pytest.raises(VerbsError, match="no page") as caught:
            bench.register(pages=[bench.page(0), bench.page(1), page])
        assert caught.value.errno == EFAULT


def test_only_the_variant_may_change() -> None:
    bench = Bench()
    with pytest.raises(VerbsError, match="another index"):
        bench.register(key=bench.mr.key + 2 * VARIANTS)


def test_a_valid_region_is_invalidated_first() -> None:
    bench = Bench()
    bench.register()
    with pytest.raises(VerbsError, match="invalidate it first"):
        bench.register()
    key = bench.mr.key
    assert invalidate(bench.keys, key, ProtectionDomain(2), 0) is KeyFault.WRONG_PD
    assert invalidate(bench.keys, key + 1, bench.pd, 0) is KeyFault.INVALID_KEY
    assert bench.keys.check(key, bench.pd, IOVA, 1, 0) is bench.mr
    assert invalidate(bench.keys, key, bench.pd, 0) is None
    assert bench.keys.check(key, bench.pd, IOVA, 1, 0) is KeyFault.NOT_BOUND
    with pytest.raises(MemoryFault, match="no pages"):
        bench.mr.write(IOVA, b"x")
    bench.register()
    assert isinstance(bench.keys.check(bench.mr.key, bench.pd, IOVA, 1, 0), Region)


def test_a_plain_region_takes_no_fast_registration() -> None:
    bench = Bench()
    _, bench.mr = bench.region()
    with pytest.raises(VerbsError, match="not made for"):
        bench.register()
    rereg = bench.registrar.rereg_mr
    with pytest.raises(VerbsError, match="for fast registration"):
        rereg(bench.registrar.alloc_mr(bench.pd, 1), 4, access=0)


def test_windows_hold_a_region() -> None:
    bench = Bench()
    bench.register()
    window = bench.registrar.alloc_mw(bench.pd, 1)
    bind_window(bench.keys, window, bench.mr, Bind(IOVA, 8, 0))
    assert invalidate(bench.keys, bench.mr.key, bench.pd, 0) is KeyFault.NO_ACCESS
    bench.registrar.dealloc_mw(window)
    assert invalidate(bench.keys, bench.mr.key, bench.pd, 0) is None


@pytest.mark.parametrize("pages", [0, -1, (1 << 16) + 1])
def test_page_lists_are_bounded(pages: int) -> None:
    machine = Machine()
    with pytest.raises(VerbsError) as caught:
        machine.registrar.alloc_mr(machine.pd, pages)
    assert caught.value.errno == EINVAL


def test_registered_pages_outlive_their_mapping() -> None:
    bench = Bench()
    bench.register()
    bench.space.unmap(bench.memory)
    bench.mr.write(IOVA, bytes(2 * PAGE_4K))
    assert bytes(bench.mr.read(IOVA, 1)) == b"\0"
