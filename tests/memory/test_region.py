"""Regions of host memory: translation, edges, rights, life."""

from copy import deepcopy
from errno import EFAULT, EINVAL, ENOMEM, EOPNOTSUPP

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.address_space import DoorbellPage, HostMemory
from rdmawire.memory.key import LOCAL_WRITE, REMOTE_READ, Access, KeyFault, ProtectionDomain
from rdmawire.memory.mr_table import WHOLE_SPACE, Limits, Rereg
from rdmawire.memory.page import PAGE_2M, PAGE_4K, PAGE_64K, Path
from rdmawire.memory.region import Region
from tests.memory.machine import FULL, Machine


def pattern(length: int) -> bytes:
    return bytes(1 + i % 255 for i in range(length))


@pytest.mark.parametrize("border", [PAGE_4K, PAGE_64K, PAGE_2M])
@pytest.mark.parametrize("page_size", [PAGE_4K, PAGE_2M])
def test_short_accesses_round_borders(border: int, page_size: int) -> None:
    machine = Machine()
    memory, region = machine.region(2 * PAGE_2M, page_size=page_size)
    for offset in (-33, -32, -8, -1, 0, 1, 7, 8):
        for length in range(33):
            at = memory.base + border + offset
            for data in (pattern(length), bytes(length)):
                region.write(at, data)
                assert bytes(region.read(at, length)) == data
                around = machine.space.read(at - 40, length + 80)
                assert around == bytes(40) + data + bytes(40)


@given(st.data())
def test_a_region_is_a_bytearray_and_its_neighbours_stay(data: st.DataObject) -> None:
    machine = Machine()
    size = 3 * PAGE_64K
    memory = machine.space.allocate(size)
    start = data.draw(st.integers(0, 2 * PAGE_64K))
    length = data.draw(st.integers(1, PAGE_64K))
    zero_based = data.draw(st.booleans())
    region = machine.registrar.reg_mr(
        machine.pd, memory.base + start, length, FULL | (Access.ZERO_BASED if zero_based else 0)
    )
    assert region.iova == (0 if zero_based else memory.base + start)
    model = bytearray(size)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, length))
        raw = data.draw(st.binary(max_size=40))[: length - at]
        region.write(region.iova + at, raw)
        model[start + at : start + at + len(raw)] = raw
        assert bytes(region.read(region.iova, length)) == model[start : start + length]
    assert machine.space.read(memory.base, size) == model


@pytest.mark.parametrize("length", range(1, 33))
@pytest.mark.parametrize("warm", [False, True])
def test_one_byte_outside_is_outside(length: int, warm: bool) -> None:
    machine = Machine()
    memory, region = machine.region(PAGE_4K)
    inner = machine.registrar.reg_mr(machine.pd, memory.base + 100, length, FULL)
    if warm:
        inner.write(inner.iova, b"")
        inner.write(inner.iova, bytes(length))
    for iova, size in ((inner.iova - 1, 1), (inner.iova, length + 1), (inner.end, 1)):
        with pytest.raises(MemoryFault, match="outside") as caught:
            inner.write(iova, b"x" * size)
        assert (caught.value.address, caught.value.length) == (iova, size)
        with pytest.raises(MemoryFault, match="outside"):
            inner.read(iova, size)
    assert region.read(region.iova, PAGE_4K) == bytes(PAGE_4K)


def test_an_iova_of_its_own() -> None:
    machine = Machine()
    memory = machine.space.allocate(PAGE_64K)
    iova = 0x7000_0000_0123
    region = machine.registrar.reg_mr(machine.pd, memory.base + 0x123, 5000, FULL, iova)
    region.write(iova + 4090, b"across")
    assert machine.space.read(memory.base + 0x123 + 4090, 6) == b"across"
    with pytest.raises(VerbsError, match="differ within a page") as caught:
        machine.registrar.reg_mr(machine.pd, memory.base + 0x123, 5000, FULL, iova + 1)
    assert caught.value.errno == EINVAL


def test_a_region_across_windows_of_two_page_sizes() -> None:
    machine = Machine()
    base = 0x4000_0000
    machine.space.map(HostMemory(base, PAGE_2M, PAGE_2M))
    machine.space.map(HostMemory(base + PAGE_2M, PAGE_4K))
    machine.space.map(HostMemory(base + PAGE_2M + PAGE_4K, PAGE_64K))
    region = machine.registrar.reg_mr(machine.pd, base, PAGE_2M + PAGE_4K + PAGE_64K, FULL)
    for _ in range(2):  # the second time pages are known
        for at in (PAGE_2M - 3, PAGE_2M + PAGE_4K - 3, PAGE_2M - 2):
            region.write(base + at, pattern(9))
            assert bytes(region.read(base + at, 9)) == pattern(9)
            assert machine.space.read(base + at, 9) == pattern(9)


def test_pinned_pages_outlive_their_mapping() -> None:
    machine = Machine()
    memory, region = machine.region()
    region.write(memory.base, b"before")
    machine.space.unmap(memory)
    machine.space.map(HostMemory(memory.base, PAGE_4K))
    assert bytes(region.read(memory.base, 6)) == b"before"
    assert machine.space.read(memory.base, 6) == bytes(6)


@pytest.mark.parametrize("rights", [0, int(REMOTE_READ)])
def test_read_only_memory_is_registered_for_reading(rights: int) -> None:
    machine = Machine()
    memory = HostMemory(0x1000_0000, PAGE_4K, read_only=True)
    machine.space.map(memory)
    region = machine.registrar.reg_mr(machine.pd, memory.base, 100, rights)
    assert bytes(region.read(memory.base, 4)) == bytes(4)
    with pytest.raises(MemoryFault, match="read-only"):
        region.write(memory.base, b"x")
    for attempt in (
        lambda: machine.registrar.reg_mr(machine.pd, memory.base, 100, LOCAL_WRITE),
        lambda: machine.registrar.rereg_mr(region, Rereg.CHANGE_ACCESS, access=LOCAL_WRITE),
    ):
        with pytest.raises(VerbsError, match="read-only") as caught:
            attempt()
        assert caught.value.errno == EFAULT
    assert region.access == rights


@pytest.mark.parametrize("access", range(64))
def test_remote_changes_need_local_write(access: int) -> None:
    """Every combination of the rights that libibverbs had first."""
    machine = Machine()
    memory = machine.space.allocate(PAGE_4K)
    if access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC) and not access & Access.LOCAL_WRITE:
        with pytest.raises(VerbsError, match="LOCAL_WRITE") as caught:
            machine.registrar.reg_mr(machine.pd, memory.base, 1, access)
        assert caught.value.errno == EINVAL
        assert (machine.pd.users, len(machine.keys)) == (0, 0)
    else:
        assert machine.registrar.reg_mr(machine.pd, memory.base, 1, access).access == access


@pytest.mark.parametrize(
    ("address", "length", "access", "errno"),
    [
        (0x1000_0000, 0, 1, EINVAL),
        (0x1000_0000, -1, 1, EINVAL),
        (-1, 10, 1, EINVAL),
        (0x1000_0000, 1 << 62, 1, EINVAL),
        ((1 << 64) - 10, 11, 1, EINVAL),
        (0, WHOLE_SPACE, 1, EINVAL),
        (4096, WHOLE_SPACE, Access.ON_DEMAND, EINVAL),
        (0x1000_0000, 10, 1 << 12, EINVAL),
        (0x1000_0000, PAGE_4K + 1, 1, EFAULT),
        (0x0FFF_FFFF, 2, 1, EFAULT),
        (0x2000_0000, 8, 1, EFAULT),
        (0, 1, 0, EFAULT),
    ],
)
def test_registrations_refused(address: int, length: int, access: int, errno: int) -> None:
    machine = Machine(Limits(max_mr_size=1 << 40))
    machine.space.map(HostMemory(0x1000_0000, PAGE_4K))
    machine.space.map(DoorbellPage(0x2000_0000))
    with pytest.raises(VerbsError) as caught:
        machine.registrar.reg_mr(machine.pd, address, length, access)
    assert caught.value.errno == errno
    assert (machine.pd.users, len(machine.keys)) == (0, 0)


def test_room_for_so_many_regions() -> None:
    machine = Machine(Limits(max_mr=2))
    memory, first = machine.region()
    machine.registrar.alloc_mr(machine.pd, 1)
    for attempt in (machine.region, lambda: machine.registrar.alloc_mr(machine.pd, 1)):
        with pytest.raises(VerbsError, match="in use") as caught:
            attempt()
        assert caught.value.errno == ENOMEM
    machine.registrar.dereg_mr(first)
    machine.registrar.reg_mr(machine.pd, memory.base, 1, 0)


def test_after_deregistration_nothing_is_reached() -> None:
    machine = Machine()
    memory, region = machine.region()
    key = region.key
    region.write(memory.base, b"x")
    machine.registrar.dereg_mr(region)
    assert machine.keys.check(key, machine.pd, memory.base, 1, 0) is KeyFault.INVALID_KEY
    for access in (lambda: region.read(memory.base, 1), lambda: region.write(memory.base, b"y")):
        with pytest.raises(MemoryFault, match="no pages"):
            access()
    assert machine.pd.users == 0
    with pytest.raises(VerbsError, match="not registered") as caught:
        machine.registrar.dereg_mr(region)
    assert caught.value.errno == EINVAL
    assert machine.space.read(memory.base, 1) == b"x"


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("zero_based", [False, True])
def test_atomics_look_at_the_iova(offset: int, zero_based: bool) -> None:
    """A zero-based region may begin anywhere; what counts is the address in the request."""
    machine = Machine()
    memory = machine.space.allocate(PAGE_64K * 2)
    rights = FULL | (Access.ZERO_BASED if zero_based else 0)
    region = machine.registrar.reg_mr(machine.pd, memory.base + PAGE_64K - 11, 64, rights)
    iova = region.iova + -region.iova % 8 + offset
    if offset:
        with pytest.raises(MemoryFault, match="aligned"):
            region.fetch_add(iova, 1)
        with pytest.raises(MemoryFault, match="aligned"):
            region.compare_swap(iova, 0, 1)
        return
    for step in range(0, 32, 8):
        assert region.fetch_add(iova + step, 3) == 0
        assert region.fetch_add(iova + step, -1) == 3
        assert region.compare_swap(iova + step, 1, 9) == 2
        assert region.compare_swap(iova + step, 2, 1 << 63) == 2
        assert int.from_bytes(region.read(iova + step, 8), "little") == 1 << 63


def test_rereg_changes_what_the_flags_say() -> None:
    machine = Machine()
    memory, region = machine.region()
    other, second = machine.space.allocate(PAGE_4K), ProtectionDomain(2)
    key, rereg = region.key, machine.registrar.rereg_mr
    region.write(memory.base, b"old")
    rereg(region, Rereg.CHANGE_ACCESS, access=0)
    assert (region.access, region.iova, region.pd) == (0, memory.base, machine.pd)
    rereg(region, Rereg.CHANGE_ACCESS, access=Access.ZERO_BASED)
    assert (region.access, region.iova) == (0, memory.base)
    rereg(region, Rereg.CHANGE_PD, pd=second)
    assert (machine.pd.users, second.users, region.pd) == (0, 1, second)
    rereg(region, Rereg.CHANGE_TRANSLATION, address=other.base, length=10)
    assert (region.iova, region.length, region.access) == (other.base, 10, 0)
    assert bytes(region.read(other.base, 3)) == bytes(3)
    assert machine.keys.check(key, second, other.base, 10, 0) is region
    every = Rereg.CHANGE_TRANSLATION | Rereg.CHANGE_PD | Rereg.CHANGE_ACCESS
    rereg(region, every, pd=machine.pd, address=memory.base, length=3, access=FULL)
    assert machine.keys.check(key, machine.pd, memory.base, 3, LOCAL_WRITE) is region
    assert bytes(region.read(memory.base, 3)) == b"old"


@pytest.mark.parametrize(
    ("flags", "arguments", "errno"),
    [
        (0, {}, EINVAL),
        (8, {}, EINVAL),
        (Rereg.CHANGE_PD, {}, EINVAL),
        (Rereg.CHANGE_ACCESS, {"access": 2}, EINVAL),
        (Rereg.CHANGE_TRANSLATION, {"address": 8, "length": 0}, EINVAL),
        (Rereg.CHANGE_TRANSLATION, {"address": 8, "length": 8}, EFAULT),
        (7, {"pd": ProtectionDomain(9), "address": 8, "length": 8, "access": 1}, EFAULT),
    ],
)
def test_a_refused_rereg_changes_nothing(flags: int, arguments: dict[str, int], errno: int) -> None:
    machine = Machine()
    memory, region = machine.region()
    region.write(memory.base, b"kept")
    with pytest.raises(VerbsError) as caught:
        machine.registrar.rereg_mr(region, flags, **arguments)  # type: ignore[arg-type]
    assert caught.value.errno == errno
    assert machine.keys.check(region.key, machine.pd, memory.base, 4, LOCAL_WRITE) is region
    assert bytes(region.read(memory.base, 4)) == b"kept"
    assert (region.access, machine.pd.users) == (FULL, 1)


def test_each_access_is_one_dma() -> None:
    machine = Machine()
    memory, region = machine.region(3 * PAGE_64K)
    tally = machine.registrar.counter[Path.HOST]
    region.write(memory.base + PAGE_64K - 1, bytes(PAGE_64K + 2))  # three pages
    assert (tally.bytes, tally.transactions, tally.copies) == (PAGE_64K + 2, 1, 0)
    region.read(memory.base, 10)
    region.read(memory.base, 0)
    assert (tally.bytes, tally.transactions, tally.copies) == (PAGE_64K + 12, 3, 0)
    with pytest.raises(MemoryFault):
        region.read(memory.base - 1, 10)
    region.fetch_add(memory.base, 1)
    assert (tally.bytes, tally.transactions) == (PAGE_64K + 28, 5)
    assert machine.registrar.counter[Path.GPU_DIRECT].transactions == 0


def test_untouched_pages_of_a_region_take_no_memory() -> None:
    machine = Machine()
    memory, region = machine.region(1 << 40)
    for at in range(0, 1 << 40, 1 << 36):
        assert bytes(region.read(memory.base + at, 4096)) == bytes(4096)
    assert memory.pages.held == 0
    region.write(region.end - 1, b"x")
    assert memory.pages.held == PAGE_64K


def test_a_region_pinned_for_reading_becomes_writable() -> None:
    machine = Machine()
    memory, region = machine.region(access=0)
    machine.registrar.rereg_mr(region, Rereg.CHANGE_ACCESS, access=LOCAL_WRITE)
    region.write(memory.base, b"x")
    assert machine.space.read(memory.base, 1) == b"x"
    assert region.lkey == region.rkey == region.key


def test_domains_count_their_users() -> None:
    machine = Machine()
    _, region = machine.region()
    window = machine.registrar.alloc_mw(machine.pd, 1)
    assert machine.pd.users == 2
    machine.registrar.dealloc_mw(window)
    machine.registrar.dereg_mr(region)
    assert machine.pd.users == 0


def test_on_demand_is_an_option_of_the_adapter() -> None:
    machine = Machine(Limits(on_demand=False))
    with pytest.raises(VerbsError) as caught:
        machine.region(access=Access.ON_DEMAND)
    assert caught.value.errno == EOPNOTSUPP


def test_flags_that_an_adapter_may_ignore() -> None:
    _, region = Machine().region(access=Access.RELAXED_ORDERING | 1 << 29)
    assert region.access == 1 << 20 | 1 << 29


@pytest.mark.parametrize("at", [0, 64, PAGE_64K - 8])
@pytest.mark.parametrize("iova", [None, 0x7000_0000_0000])
def test_an_access_within_a_page_that_was_met_asks_no_backing(
    iova: int | None, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the region it is: also at its first and last byte."""
    machine = Machine()
    memory = machine.space.allocate(PAGE_64K)
    region = machine.registrar.reg_mr(machine.pd, memory.base, PAGE_64K, FULL, iova)
    assert region.backing is not None
    assert region.backing.page_size == PAGE_64K
    region.write(region.iova + 100, b"x")
    for name in ("read", "write", "lend"):
        monkeypatch.setattr(region.backing, name, None)
    region.write(region.iova + at, b"12345678")
    assert region.read(region.iova + at, 8) == b"12345678"
    monkeypatch.undo()
    assert machine.space.read(memory.base + at, 8) == b"12345678"


def test_the_page_that_an_access_ended_in_is_borrowed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, region = Machine().region(2 * PAGE_64K)
    border = memory.base + PAGE_64K
    region.write(border - 1, b"12")
    monkeypatch.setattr(region.backing, "lend", None)
    assert region.read(border - 1, 2) == b"12"
    for name in ("read", "write"):
        monkeypatch.setattr(region.backing, name, None)
    region.write(border, b"34")
    assert region.read(border, 2) == b"34"


def test_the_pages_of_a_region_are_at_its_address_not_at_its_iova(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, iova = Machine(), 0x7000_0000_0000
    memory = machine.space.allocate(PAGE_4K)
    region = machine.registrar.reg_mr(machine.pd, memory.base, PAGE_4K, FULL, iova)
    assert region.footprint(iova + 8, 16) == (None, memory.base + 8, memory.base + 24)
    pushed = list[int]()
    monkeypatch.setattr(region.backing, "push", pushed.append)
    region.push(region.end - 1)
    assert pushed == [memory.base + PAGE_4K - 1]
    with pytest.raises(MemoryFault, match="outside"):
        region.push(region.end)
    rights = FULL | Access.ON_DEMAND
    paged = machine.registrar.reg_mr(machine.pd, memory.base, PAGE_4K, rights, iova)
    paged.fault_in(iova, 1)
    assert paged.page_faults == 1


def test_a_new_translation_forgets_the_pages_of_the_old_one() -> None:
    machine = Machine()
    memory, region = machine.region(PAGE_4K)
    other = machine.space.allocate(PAGE_4K)
    region.write(memory.base, b"old")
    rereg = machine.registrar.rereg_mr
    rereg(region, Rereg.CHANGE_TRANSLATION, address=other.base, length=PAGE_4K)
    machine.space.unmap(memory)
    machine.space.map(HostMemory(memory.base, PAGE_4K))
    rereg(region, Rereg.CHANGE_TRANSLATION, address=memory.base, length=PAGE_4K)
    assert bytes(region.read(memory.base, 3)) == bytes(3)


def test_a_region_without_pages_begins_nowhere() -> None:
    machine = Machine()
    region = machine.registrar.alloc_mr(machine.pd, 1)
    assert (region.address, region.iova, region.length) == (0, 0, 0)


def test_a_copy_of_a_region_is_of_memory_of_its_own() -> None:
    machine = Machine()
    memory, region = machine.region()
    region.write(memory.base, b"one")
    copied_machine, copied = deepcopy((machine, region))
    copied.write(memory.base, b"two")
    assert machine.space.read(memory.base, 3) == bytes(region.read(memory.base, 3)) == b"one"
    assert copied_machine.space.read(memory.base, 3) == b"two"


def limited(limit: int) -> tuple[Machine, HostMemory]:
    """Return a machine whose process may lock ``limit`` bytes, and memory of 16 pages."""
    machine = Machine()
    machine.registrar.locked.limit = limit
    return machine, machine.space.allocate(16 * PAGE_4K)


def test_no_more_memory_is_locked_than_the_limit() -> None:
    machine, memory = limited(4 * PAGE_4K)
    first = machine.registrar.reg_mr(machine.pd, memory.base, 4 * PAGE_4K, FULL)
    with pytest.raises(VerbsError, match="20480 bytes would be locked, and ulimit -l allows 16384"):
        machine.registrar.reg_mr(machine.pd, memory.base + 5 * PAGE_4K, 1, FULL)
    machine.registrar.dereg_mr(first)
    assert machine.registrar.locked.bytes == 0
    machine.registrar.reg_mr(machine.pd, memory.base + 5 * PAGE_4K, 1, FULL)
    assert machine.registrar.locked.bytes == PAGE_4K


def test_memory_that_is_refused_is_not_locked() -> None:
    machine, memory = limited(64 * PAGE_4K)
    with pytest.raises(VerbsError) as refused:
        machine.registrar.reg_mr(machine.pd, memory.end + PAGE_64K, PAGE_4K, FULL)
    assert refused.value.errno == EFAULT
    assert machine.registrar.locked.bytes == 0


def test_a_limit_is_checked_before_the_memory() -> None:
    machine, memory = limited(PAGE_4K)
    with pytest.raises(VerbsError) as refused:
        machine.registrar.reg_mr(machine.pd, memory.end + PAGE_64K, 2 * PAGE_4K, FULL)
    assert refused.value.errno == ENOMEM


@given(st.data())
def test_locked_bytes_are_those_of_all_pages_that_regions_touch(data: st.DataObject) -> None:
    most = data.draw(st.integers(0, 24)) * PAGE_4K
    machine, memory = limited(most)
    live: list[tuple[Region, int]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, 12 * PAGE_4K))
        length = data.draw(st.integers(1, 16 * PAGE_4K - start))
        size = ((start + length - 1) // PAGE_4K - start // PAGE_4K + 1) * PAGE_4K
        if sum(one for _, one in live) + size <= most:
            region = machine.registrar.reg_mr(machine.pd, memory.base + start, length, FULL)
            live.append((region, size))
        else:
            with pytest.raises(VerbsError, match="Cannot allocate memory"):
                machine.registrar.reg_mr(machine.pd, memory.base + start, length, FULL)
            for region, _ in live[-1:]:
                machine.registrar.dereg_mr(region)
            live = live[:-1]
        assert machine.registrar.locked.bytes == sum(one for _, one in live)
