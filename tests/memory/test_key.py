"""The table of keys: who gets in, and which key is never valid."""

from errno import EINVAL, ENOMEM
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from rdmawire.errors import VerbsError
from rdmawire.memory.key import (
    LOCAL_READ,
    LOCAL_WRITE,
    MAX_KEYS,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    VARIANTS,
    KeyFault,
    KeyTable,
    ProtectionDomain,
)
from rdmawire.memory.page import PAGE_4K, DmaCounters
from rdmawire.memory.region import Region
from tests.memory.machine import FULL, Machine

ASKED = {
    "local read": LOCAL_READ,
    "local read, said as zero": 0,
    "local write": LOCAL_WRITE,
    "remote write": REMOTE_WRITE,
    "remote read": REMOTE_READ,
    "remote atomic": REMOTE_ATOMIC,
    "write with atomic": REMOTE_WRITE | REMOTE_ATOMIC,
}


def a_region() -> Region:
    return Region(ProtectionDomain(1), DmaCounters())


@pytest.mark.parametrize("access", [a for a in range(16) if a & 1 or not a & 10])
@pytest.mark.parametrize("asked", ASKED)
def test_rights_by_operation(access: int, asked: str) -> None:
    machine = Machine()
    memory, region = machine.region(access=access)
    needed = ASKED[asked] & 15
    expected = region if needed & access == needed else KeyFault.NO_ACCESS
    found = machine.keys.check(region.key, machine.pd, memory.base, 8, ASKED[asked])
    assert found is expected


@pytest.mark.parametrize("length", range(33))
def test_range(length: int) -> None:
    machine = Machine()
    memory = machine.space.allocate(PAGE_4K)
    region = machine.registrar.reg_mr(machine.pd, memory.base + 64, 32, FULL)
    for start in range(130):
        inside = start >= 64 and start + length <= 96
        found = machine.keys.check(region.key, machine.pd, memory.base + start, length, 0)
        assert found is (region if inside else KeyFault.OUT_OF_RANGE)


def test_addresses_do_not_wrap() -> None:
    machine = Machine()
    _, region = machine.region()
    found = machine.keys.check(region.key, machine.pd, (1 << 64) - 1, 1 << 31, 0)
    assert found is KeyFault.OUT_OF_RANGE


def test_what_is_wrong_is_said_in_order() -> None:
    """Key, domain, rights, range: the first that is wrong is the answer."""
    machine, stranger = Machine(), ProtectionDomain(2)
    memory, region = machine.region(access=0)
    check = machine.keys.check
    assert check(region.key + 1, stranger, 0, 1, LOCAL_WRITE) is KeyFault.INVALID_KEY
    assert check(region.key, stranger, 0, 1, LOCAL_WRITE) is KeyFault.WRONG_PD
    assert check(region.key, machine.pd, 0, 1, LOCAL_WRITE) is KeyFault.NO_ACCESS
    assert check(region.key, machine.pd, 0, 1, LOCAL_READ) is KeyFault.OUT_OF_RANGE
    assert check(region.key, machine.pd, memory.base, 1, LOCAL_READ, 77) is region


def test_domains_are_compared_by_identity() -> None:
    machine = Machine()
    memory, region = machine.region()
    twin = ProtectionDomain(machine.pd.handle)
    assert machine.keys.check(region.key, twin, memory.base, 1, 0) is KeyFault.WRONG_PD


def test_a_full_table() -> None:
    table, counter, pd = KeyTable(3), DmaCounters(), ProtectionDomain(1)
    regions = [Region(pd, counter) for _ in range(4)]
    for region in regions[:3]:
        table.add(region)
    with pytest.raises(VerbsError, match="in use") as caught:
        table.add(regions[3])
    assert caught.value.errno == ENOMEM
    table.remove(regions[0])
    assert table.add(regions[3]) != regions[0].key


def test_an_index_comes_back_with_each_of_its_variants() -> None:
    table, region = KeyTable(1), Region(ProtectionDomain(1), DmaCounters())
    keys = []
    for _ in range(VARIANTS):
        keys.append(table.add(region))
        table.remove(region)
    assert len(set(keys)) == VARIANTS
    assert len({key // VARIANTS for key in keys}) == 1


def test_a_key_of_one_queue_pair_is_for_no_other() -> None:
    machine = Machine()
    memory, region = machine.region()
    region.qpn = 1
    check = machine.keys.check
    assert check(region.key, machine.pd, memory.base, 1, 0) is KeyFault.WRONG_QP
    assert check(region.key, machine.pd, memory.base, 1, 0, 2) is KeyFault.WRONG_QP
    assert check(region.key, machine.pd, memory.base, 1, 0, 1) is region
    assert machine.keys.of_qp(1) == [region]
    assert machine.keys.of_qp(2) == []


def test_there_are_keys_for_every_other_index_from_16_on() -> None:
    assert len(range(16, 1 << 24, 2)) == MAX_KEYS
    table = KeyTable()
    indexes = [table.add(a_region()) >> 8 for _ in range(3)]
    assert indexes == [16, 18, 20]


class Keys(RuleBasedStateMachine):
    """Whatever variants are chosen: what is in use is found, what is beside it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.table = KeyTable()
        self.model: dict[int, Region] = {}
        self.gone: set[int] = set()

    regions = Bundle("regions")

    @rule(target=regions)
    def add(self) -> Region:
        region = Region(ProtectionDomain(1), DmaCounters())
        self.model[self.table.add(region)] = region
        return region

    @rule(region=consumes(regions))
    def remove(self, region: Region) -> None:
        self.table.remove(region)
        del self.model[region.key]
        self.gone.add(region.key)

    @rule(region=regions, variant=st.sampled_from([0, 1, 127, 254, 255]))
    def rekey(self, region: Region, variant: int) -> None:
        del self.model[region.key]
        self.table.rekey(region, region.key - region.key % VARIANTS + variant)
        self.model[region.key] = region

    @rule(region=regions, step=st.sampled_from([-VARIANTS, VARIANTS, 2 * VARIANTS]))
    def rekey_elsewhere(self, region: Region, step: int) -> None:
        with pytest.raises(VerbsError) as caught:
            self.table.rekey(region, region.key + step)
        assert caught.value.errno == EINVAL

    @invariant()
    def keys_are_those_of_the_model(self) -> None:
        assert len(self.table) == len(self.model)
        for key, region in self.model.items():
            assert 0 < key < 1 << 32
            assert region.key == key
            assert self.table.find(key) is region
            assert self.table.find(key + 1) is None
        for key in self.gone - set(self.model):
            assert self.table.find(key) is None


Keys.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestKeys = Keys.TestCase


def test_keys_that_are_drawn_have_even_indexes_from_all_there_are() -> None:
    keys = KeyTable(random=Random(1))
    indexes = [keys.add(a_region()) // VARIANTS for _ in range(200)]
    assert all(index % 2 == 0 for index in indexes)
    assert len(set(indexes)) == 200
    assert min(indexes) < 1 << 20
    assert max(indexes) > 15 << 20


class Stuck:
    """Draws the same index and the same variant for ever."""

    def __init__(self, index: int, variant: int) -> None:
        self.drawn = {23: index >> 1, 8: variant}

    def getrandbits(self, k: int, /) -> int:
        return self.drawn[k]


@pytest.mark.parametrize(
    ("stuck", "first", "second"),
    [
        (0x200, 0x200, 0x202),
        (0x10, 0x10, 0x12),
        (0x0E, 0x10, 0x12),
        (0, 0x10, 0x12),
        (0xFFFFFE, 0xFFFFFE, 0x10),
    ],
)
def test_an_index_that_was_drawn_before_is_counted_up_and_round(
    stuck: int, first: int, second: int
) -> None:
    table = KeyTable(random=Stuck(stuck, 0x80))
    assert [table.add(a_region()), table.add(a_region())] == [first << 8 | 0x80, second << 8 | 0x80]


def test_an_index_that_is_drawn_again_gets_its_next_variant() -> None:
    table, region = KeyTable(random=Stuck(0x200, 0x80)), a_region()
    keys = []
    for _ in range(3):
        keys.append(table.add(region))
        table.remove(region)
    assert keys == [0x20080, 0x200B5, 0x200EA]
