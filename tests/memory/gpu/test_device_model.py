"""Allocating, pinning, registering, writing and freeing in any order, beside a dumb model."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.gpu.device import MIB, Allocation, PageTable, TableState
from rdmawire.memory.gpu.peermem import Peermem
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import Region
from tests.memory.gpu.node import POSTING, SMALL, Node
from tests.memory.machine import FULL

LENGTHS = st.sampled_from([1, 512, PAGE_64K, PAGE_64K + 1, MIB, 2 * MIB, 5 * MIB, 20 * MIB])


@dataclass
class Registered:
    """A region, and what it should hold; ``model`` is ``None`` once it is invalidated."""

    region: Region
    memory: Allocation
    persistent: bool
    model: bytearray | None


@dataclass
class Pinned:
    """A page table, and how often its owner was told of its end."""

    table: PageTable
    told: int = 0


class GpuMemory(RuleBasedStateMachine):
    """One GPU with legacy and persistent clients at once."""

    memories: Bundle[Allocation] = Bundle("memories")
    regions: Bundle[Registered] = Bundle("regions")
    pins: Bundle[Pinned] = Bundle("pins")

    @initialize(posting=st.booleans())
    def start(self, posting: bool) -> None:
        self.node = Node(POSTING if posting else SMALL)
        self.live: list[Allocation] = []
        self.registered: list[Registered] = []
        self.pinned: list[Pinned] = []

    @rule(target=memories, length=LENGTHS)
    def allocate(self, length: int) -> Allocation | MultipleResults[Allocation]:
        try:
            memory = self.node.gpu.allocate(length)
        except VerbsError:
            assert self.used() + length > 20 * MIB
            return multiple()
        self.live.append(memory)
        self.node.gpu.flush()
        self.node.gpu.write(memory.address, zeros := bytes(min(memory.length, 64)))
        for entry in self.registered:
            self.mirror(entry, memory.address, zeros)
        return memory

    def used(self) -> int:
        """Bytes in use at most: a small allocation may hold a block, and so may who pinned it."""
        held = sum(pinned.table.length for pinned in self.pinned)
        return (
            held
            + 2 * MIB * (len(self.live) + len(self.registered))
            + sum(memory.extent for memory in self.live)
        )

    @rule(target=regions, memory=memories, persistent=st.booleans())
    def register(self, memory: Allocation, persistent: bool) -> Registered:
        node = self.node
        node.registrar.clients = [Peermem(node.driver, persistent=persistent)]
        length = min(memory.length, 3 * PAGE_64K)
        try:
            region = node.registrar.reg_mr(node.pd, memory.address, length, FULL)
        except VerbsError:
            assert memory not in self.live or node.gpu.aperture.free < 4 * PAGE_64K
            return Registered(node.registrar.alloc_mr(node.pd, 1), memory, True, None)
        assert self.overlaps_live(memory)
        data = bytes(region.read(region.iova, length))
        entry = Registered(region, memory, persistent, bytearray(data))
        self.registered.append(entry)
        return entry

    def overlaps_live(self, memory: Allocation) -> bool:
        first = memory.address - memory.address % PAGE_64K
        return any(a.address < memory.end + PAGE_64K and a.end > first for a in self.live)

    @rule(entry=regions, at=st.integers(0, 1 << 20), byte=st.binary(min_size=1, max_size=9))
    def write(self, entry: Registered, at: int, byte: bytes) -> None:
        region = entry.region
        if region.backing is None:
            with pytest.raises(MemoryFault, match="no pages"):
                region.write(region.iova, byte)
            return
        at %= region.length
        byte = byte[: region.length - at]
        region.write(region.iova + at, byte)
        for other in self.registered:
            self.mirror(other, region.iova + at, byte)

    @staticmethod
    def mirror(entry: Registered, address: int, data: bytes) -> None:
        for offset, byte in enumerate(data, address - entry.region.iova):
            if entry.model is not None and 0 <= offset < len(entry.model):
                entry.model[offset] = byte

    @rule(entry=consumes(regions))
    def deregister(self, entry: Registered) -> None:
        self.node.registrar.dereg_mr(entry.region)
        if entry in self.registered:
            self.registered.remove(entry)

    @rule(target=pins, memory=memories, persistent=st.booleans())
    def pin(self, memory: Allocation, persistent: bool) -> Pinned:
        start = memory.address - memory.address % PAGE_64K
        length = memory.end + -memory.end % PAGE_64K - start
        driver, before = self.node.driver, self.node.gpu.aperture.free
        holder: list[Pinned] = []

        def revoked() -> None:
            holder[0].told += 1

        try:
            if persistent:
                table = driver.get_pages_persistent(start, length)
            else:
                table = driver.get_pages(start, length, revoked)
        except VerbsError:
            assert self.node.gpu.aperture.free == before
            assert memory not in self.live or before < length
            return self.pin_smallest()
        holder.append(Pinned(table))
        self.pinned.append(holder[0])
        return holder[0]

    def pin_smallest(self) -> Pinned:
        """A table that is gone already, where nothing could be pinned."""
        table = PageTable(self.node.gpu, 0, (), None)
        table.state = TableState.GONE
        return Pinned(table)

    @rule(entry=consumes(pins))
    def put(self, entry: Pinned) -> None:
        if entry.table.state is TableState.LIVE:
            self.node.driver.put_pages(entry.table)
            self.pinned.remove(entry)
        with pytest.raises(VerbsError, match="gone"):
            self.node.driver.put_pages(entry.table)

    @rule(memory=consumes(memories))
    def free(self, memory: Allocation) -> None:
        self.live.remove(memory)
        self.node.gpu.free(memory.address)
        for entry in self.registered:
            if entry.region.backing is None:
                assert not entry.persistent
                entry.model = None

    @invariant()
    def regions_hold_what_was_written(self) -> None:
        for entry in self.registered:
            region = entry.region
            assert (entry.model is None) == (region.backing is None) == (not region.valid)
            if entry.model is not None:
                assert bytes(region.read(region.iova, region.length)) == entry.model

    @invariant()
    def pages_are_pinned_as_often_as_tables_say(self) -> None:
        gpu = self.node.gpu
        pages = [page for table in gpu.tables for page in table.pages]
        for page in set(pages):
            assert gpu.aperture.pins(page) == pages.count(page)
        assert gpu.aperture.free == 15 * MIB - len(set(pages)) * PAGE_64K
        used = [bus for table in gpu.tables for bus in table.addresses]
        assert len(set(used)) == len(set(pages))

    @invariant()
    def owners_are_told_once(self) -> None:
        for entry in self.pinned:
            assert entry.told == (entry.table.state is TableState.GONE)
            assert not (entry.told and entry.table.persistent)

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        for entry in self.registered:
            self.node.registrar.dereg_mr(entry.region)
        for pinned in self.pinned:
            if pinned.table.state is TableState.LIVE:
                self.node.driver.put_pages(pinned.table)
        for memory in self.live:
            self.node.gpu.free(memory.address)
        assert self.node.gpu.aperture.free == 15 * MIB
        assert self.node.gpu.held == 0
        assert self.node.gpu.allocate(64 * MIB).address == self.node.gpu.base


GpuMemory.TestCase.settings = settings(stateful_step_count=40)
TestGpuMemory = GpuMemory.TestCase
