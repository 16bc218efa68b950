"""Writes through BAR1 become visible to kernels in time, in the order of each initiator."""

from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.memory.dmabuf import DmaBufRange, reg_dmabuf_mr
from rdmawire.memory.fast_reg import FastRegistration, register_pages
from rdmawire.memory.gpu.aperture import MAX_POSTED, PostedWrites
from rdmawire.memory.gpu.driver import export_dmabuf
from rdmawire.memory.gpu.gdrcopy import Gdr, GdrMapping, Processor
from rdmawire.memory.key import Access, next_variant
from rdmawire.memory.mr_table import Limits, MemoryRegionTable, Rereg
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import Region
from tests.memory.gpu.node import POSTING, SMALL, Node
from tests.memory.machine import FULL

MAX = 5_000
RELAXED = int(FULL | Access.RELAXED_ORDERING)
DMABUF = Access.LOCAL_WRITE | Access.REMOTE_WRITE


class Bench(Node):
    """A GPU that posts, and adapters with clocks of their own."""

    def __init__(self, max_visible_ns: int | None = MAX, seed: int = 0) -> None:
        super().__init__(POSTING._replace(max_visible_ns=max_visible_ns), Random(seed))
        self.memory = self.gpu.allocate(2 * PAGE_64K)

    def adapter(self, access: int = FULL) -> tuple[Processor, Region]:
        """Another adapter's clock, and a region of the memory that it writes to."""
        clock = Processor()
        registrar = MemoryRegionTable(self.space, Limits(), self.clients, initiator=clock)
        return clock, registrar.reg_mr(self.pd, self.memory.address, 2 * PAGE_64K, access)

    def seen(self, now: int | None, at: int = 0, length: int = 1) -> bytes:
        return self.gpu.read(self.memory.address + at, length, now)


def write(region: Region, at: int, data: bytes = b"\1") -> None:
    region.write(region.iova + at, data)


def test_a_write_becomes_visible_within_the_bound_and_stays() -> None:
    delays = []
    for seed in range(50):
        bench = Bench(seed=seed)
        clock, region = bench.adapter()
        clock.now = 1_000_000
        write(region, 0)
        due = bench.gpu.next_visible()
        assert due is not None
        delays.append(due - clock.now)
        assert bench.seen(due - 1) == b"\0"
        assert bench.seen(due) == b"\1"
        assert bench.gpu.next_visible() is None
        assert bench.seen(due - 1) == b"\1"  # time does not go back
    assert 0 <= min(delays) < MAX // 4
    assert 3 * MAX // 4 < max(delays) <= MAX


def test_the_same_seed_gives_the_same_times() -> None:
    def times(seed: int) -> list[int | None]:
        bench = Bench(seed=seed)
        clock, region = bench.adapter()
        found = []
        for number in range(20):
            clock.now = number * 10 * MAX
            write(region, number)
            found.append(bench.gpu.next_visible())
        return found

    assert times(1) == times(1) != times(2)


def test_a_snapshot_goes_on_as_the_original() -> None:
    bench = Bench()
    clock, region = bench.adapter()
    write(region, 0)
    other_bench, other_clock, other_region = deepcopy((bench, clock, region))
    clock.now = other_clock.now = 17
    write(region, 1)
    write(other_region, 1)
    for now in range(0, MAX + 18, 50):
        assert bench.seen(now, 0, 2) == other_bench.seen(now, 0, 2)


Made = Callable[[Bench, Processor], Region]


def by_peermem(bench: Bench, clock: Processor) -> Region:
    registrar = MemoryRegionTable(bench.space, Limits(), bench.clients, initiator=clock)
    return registrar.reg_mr(bench.pd, bench.memory.address, 2 * PAGE_64K, FULL)


def by_dmabuf(bench: Bench, clock: Processor) -> Region:
    registrar = MemoryRegionTable(bench.space, Limits(), initiator=clock)
    fd = bench.files.open(export_dmabuf(bench.driver, bench.memory.address, 2 * PAGE_64K))
    wanted = DmaBufRange(0, 2 * PAGE_64K, 0, fd)
    return reg_dmabuf_mr(registrar, bench.files, bench.pd, wanted, DMABUF)


def by_moved_dmabuf(bench: Bench, clock: Processor) -> Region:
    region = by_dmabuf(bench, clock)
    bench.files.get(3).move()
    return region


def by_fast_registration(bench: Bench, clock: Processor) -> Region:
    table = bench.driver.get_pages_persistent(bench.memory.address, 2 * PAGE_64K)
    registrar = MemoryRegionTable(bench.space, Limits(), initiator=clock)
    region = registrar.alloc_mr(bench.pd, 2)
    key = next_variant(region.rkey)
    wanted = FastRegistration(key, 0, 2 * PAGE_64K, FULL, table.addresses, PAGE_64K)
    register_pages(registrar.keys, bench.space, region, wanted)
    return region


@pytest.mark.parametrize("make", [by_peermem, by_dmabuf, by_moved_dmabuf, by_fast_registration])
def test_every_way_to_register_posts_at_the_time_of_the_adapter(make: Made) -> None:
    bench, clock = Bench(), Processor()
    region = make(bench, clock)
    clock.now = 10**9
    write(region, PAGE_64K - 1, b"ab")  # in two pages
    due = bench.gpu.next_visible()
    assert due is not None
    assert clock.now <= due <= clock.now + MAX
    assert bench.seen(due - 1, PAGE_64K - 1, 2) == bytes(2)
    assert bench.seen(clock.now + MAX, PAGE_64K - 1, 2) == b"ab"


def polled(bench: Bench, *places: int) -> list[bytes]:
    """What a kernel sees that looks at these places every 10 ns, each sight once."""
    sights: list[bytes] = []
    for now in range(0, 2 * MAX, 10):
        sight = b"".join(bench.seen(now, at) for at in places)
        if sight not in sights:
            sights.append(sight)
    return sights


@pytest.mark.parametrize("seed", range(10))
def test_a_flag_behind_its_data_is_never_seen_first(seed: int) -> None:
    bench = Bench(seed=seed)
    _, region = bench.adapter()
    for at in (100, 200, 0):  # the last one is the flag
        write(region, at)
    assert polled(bench, 0, 100, 200)[-1] == b"\1\1\1"
    bench = Bench(seed=seed)
    _, region = bench.adapter()
    for at in (100, 200, 0):
        write(region, at)
    for sight in polled(bench, 0, 100, 200):
        assert sight[0] == 0 or sight == b"\1\1\1"


def overtaken(make: Callable[[Bench], object]) -> int:
    """For how many of 40 seeds a kernel sees the flag, at 0, before the data, at 100."""
    count = 0
    for seed in range(40):
        bench = Bench(seed=seed)
        make(bench)
        count += b"\1\0" in polled(bench, 0, 100)
    return count


def by_two_adapters(bench: Bench) -> None:
    write(bench.adapter()[1], 100)
    write(bench.adapter()[1], 0)


def by_adapter_and_processor(bench: Bench) -> None:
    gdr = Gdr(bench.driver)
    mapping = gdr.map(gdr.pin_buffer(bench.memory.address, 8), 8)
    write(bench.adapter()[1], 100)
    mapping.write(0, b"\1")


def by_relaxed_flag(bench: Bench) -> None:
    _, region = bench.adapter(RELAXED)
    write(region, 100)
    write(region, 0)


def by_two_regions(bench: Bench) -> None:
    """Both are of one adapter, the data's is relaxed and the flag's is not."""
    clock = Processor()
    registrar = MemoryRegionTable(bench.space, Limits(), bench.clients, initiator=clock)
    for access, at in ((RELAXED, 100), (FULL, 0)):
        region = registrar.reg_mr(bench.pd, bench.memory.address, PAGE_64K, access)
        write(region, at)


def by_region_no_longer_relaxed(bench: Bench) -> None:
    clock = Processor()
    registrar = MemoryRegionTable(bench.space, Limits(), bench.clients, initiator=clock)
    region = registrar.reg_mr(bench.pd, bench.memory.address, PAGE_64K, RELAXED)
    registrar.rereg_mr(region, Rereg.CHANGE_ACCESS, access=FULL)
    write(region, 100)
    write(region, 0)


@pytest.mark.parametrize("make", [by_two_adapters, by_adapter_and_processor, by_relaxed_flag])
def test_a_flag_that_may_overtake_its_data(make: Callable[[Bench], object]) -> None:
    assert 8 < overtaken(make) < 32


@pytest.mark.parametrize("make", [by_two_regions, by_region_no_longer_relaxed])
def test_a_flag_that_may_not_overtake_its_data(make: Callable[[Bench], object]) -> None:
    assert overtaken(make) == 0


SEES: dict[str, Callable[[Bench, Region], object]] = {
    "flush": lambda bench, _: bench.gpu.flush(),
    "read": lambda _, region: region.read(region.iova + PAGE_64K, 1),
    "atomic": lambda _, region: region.fetch_add(region.iova + PAGE_64K, 0),
    "push": lambda _, region: region.push(region.iova),
    "processor": lambda bench, _: mapped(bench).read(0, 1),
}


def mapped(bench: Bench) -> GdrMapping:
    gdr = Gdr(bench.driver)
    return gdr.map(gdr.pin_buffer(bench.memory.address, 8), 8)


@pytest.mark.parametrize("how", SEES)
@pytest.mark.parametrize("bound", [MAX, None])
def test_a_flush_or_a_read_behind_writes_makes_all_of_them_visible(
    how: str, bound: int | None
) -> None:
    bench = Bench(bound)
    for at in range(20):
        write(bench.adapter(RELAXED if at % 2 else FULL)[1], at)
    SEES[how](bench, bench.adapter()[1])
    assert bench.seen(None, 0, 20) == b"\1" * 20


def test_without_a_bound_only_a_flush_makes_them_visible() -> None:
    bench = Bench(None)
    clock, region = bench.adapter()
    write(region, 0)
    clock.now = 10**15
    write(region, 1)
    assert bench.gpu.next_visible() is None
    assert bench.seen(10**18, 0, 2) == bytes(2)
    bench.gpu.flush()
    assert bench.seen(None, 0, 2) == b"\1\1"


def test_a_write_that_is_due_is_there_before_what_a_kernel_writes_later() -> None:
    bench = Bench()
    _, region = bench.adapter()
    write(region, 0, b"peer")
    bench.gpu.write(bench.memory.address, b"mine", MAX)
    assert bench.seen(2 * MAX, 0, 4) == b"mine"


def test_without_a_time_nothing_more_becomes_visible() -> None:
    bench = Bench()
    _, region = bench.adapter()
    write(region, 0)
    assert bench.seen(None) == b"\0"


@pytest.mark.parametrize("now", [-1, 0.5, "1"])
def test_what_is_no_time_is_refused(now: object) -> None:
    bench = Bench()
    for access in (
        lambda: bench.gpu.read(bench.memory.address, 1, now),  # type: ignore[arg-type]
        lambda: bench.gpu.write(bench.memory.address, b"x", now),  # type: ignore[arg-type]
    ):
        with pytest.raises(VerbsError):
            access()


def test_what_is_no_generator_is_refused() -> None:
    with pytest.raises(VerbsError, match="random: 7"):
        Node().driver.add(SMALL, 7)  # type: ignore[arg-type]


def test_a_gpu_that_posts_nothing_shows_all_at_once() -> None:
    node = Node(SMALL)
    memory = node.gpu.allocate(PAGE_64K)
    region = node.registrar.reg_mr(node.pd, memory.address, PAGE_64K, FULL)
    write(region, 0)
    assert node.gpu.next_visible() is None
    assert node.gpu.read(memory.address, 1, 0) == b"\1"


def test_only_so_many_bytes_wait() -> None:
    stored: list[tuple[int, bytes]] = []
    posted = PostedWrites(lambda *write: stored.append(write), None, Random(0))
    half = bytes(MAX_POSTED // 2)
    for address in range(4):
        posted.push(address, half, None, relaxed=False)
    assert [address for address, _ in stored] == [0, 1]


WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, MAX)), min_size=1, max_size=30
)


@given(seed=st.integers(0, 1 << 16), writes=WRITES, step=st.integers(1, MAX))
def test_order_and_bound_hold_for_any_writes(
    seed: int, writes: list[tuple[int, bool, int]], step: int
) -> None:
    """Each write has a place of its own; what is seen when follows from the rules alone."""
    memory: dict[int, bytes] = {}
    made: list[tuple[int, bool, int]] = []
    clocks = [Processor() for _ in range(3)]
    posted = PostedWrites(memory.__setitem__, MAX, Random(seed))
    now = 0
    for place, (who, relaxed, later) in enumerate(writes):
        now += later
        clocks[who].now = now
        posted.push(place, b"\1", clocks[who], relaxed)
        made.append((who, relaxed, now))
        _check(memory, made)
    for later in range(now, now + 2 * MAX * len(writes) + step, step):
        posted.advance(later)
        _check(memory, made, later)
    assert len(memory) == len(made)


def _check(memory: dict[int, bytes], made: list[tuple[int, bool, int]], now: int = 0) -> None:
    for place, (who, relaxed, _) in enumerate(made):
        before = [other for other in range(place) if made[other][0] == who]
        if place in memory and not relaxed:
            assert all(other in memory for other in before)
        latest = max(time for other, _, time in made[: place + 1] if other == who)
        if now >= latest + MAX:
            assert place in memory
