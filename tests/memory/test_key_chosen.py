"""Keys that somebody asks for: given, kept apart from all others, and taken back."""

from errno import EBUSY, EINVAL

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import Pair
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.key import VARIANTS, Access, ProtectionDomain
from rdmawire.memory.mr_table import MemoryRegionTable
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import WCStatus

PAGE = 4096


def register(registrar: MemoryRegionTable) -> Region:
    """One more region."""
    memory = registrar.space.allocate(PAGE)
    return registrar.reg_mr(ProtectionDomain(1), memory.base, PAGE, Access.LOCAL_WRITE)


def test_a_region_gets_the_key_asked_for_and_loses_its_own() -> None:
    pair = Pair()
    old = pair.server.region.rkey
    pair.server.nic.memory.choose_key(pair.server.region.region, 0x12345678)
    assert pair.server.region.rkey == 0x12345678
    pair.client.write(b"by the new key", to=pair.server.region)
    pair.drive()
    assert pair.client.poll()[0].status is WCStatus.SUCCESS
    assert pair.server.nic.memory.keys.find(old) is None


@pytest.mark.parametrize("beside", [-VARIANTS, -1, 0, 1, VARIANTS])
def test_a_key_at_or_beside_another_is_refused(beside: int) -> None:
    registrar = MemoryRegionTable(AddressSpace())
    first, second = register(registrar), register(registrar)
    before = second.key
    with pytest.raises(VerbsError) as caught:
        registrar.choose_key(second, first.key + beside)
    assert caught.value.errno == EBUSY
    assert second.key == before


@pytest.mark.parametrize("key", [-1, 1 << 32])
def test_a_key_has_32_bits(key: int) -> None:
    registrar = MemoryRegionTable(AddressSpace())
    with pytest.raises(VerbsError) as caught:
        registrar.choose_key(register(registrar), key)
    assert caught.value.errno == EINVAL


@given(st.lists(st.tuples(st.sampled_from(("add", "choose", "remove")), st.integers(0, 80))))
def test_the_number_after_a_key_is_never_valid(steps: list[tuple[str, int]]) -> None:
    registrar, regions = MemoryRegionTable(AddressSpace()), list[Region]()
    for what, number in steps:
        if what == "add":
            regions.append(register(registrar))
        elif what == "remove" and regions:
            registrar.dereg_mr(regions.pop(number % len(regions)))
        elif regions:
            try:
                registrar.choose_key(regions[number % len(regions)], number * VARIANTS + number)
            except VerbsError as refusal:
                assert refusal.errno == EBUSY  # noqa: PT017 - it is often refused
        keys = [region.key for region in regions]
        assert len(set(keys)) == len(keys)
        assert all(
            registrar.keys.find(key) is region for key, region in zip(keys, regions, strict=True)
        )
        assert all(registrar.keys.find(key + 1) is None for key in keys)


@pytest.mark.parametrize("apart", [-2, 2])
def test_a_key_two_indexes_from_another_is_given(apart: int) -> None:
    registrar = MemoryRegionTable(AddressSpace())
    first, second = register(registrar), register(registrar)
    registrar.choose_key(first, 1 << 20)
    key = first.key + apart * VARIANTS
    registrar.choose_key(second, key)
    assert registrar.keys.find(key) is second


@pytest.mark.parametrize("key", [0, (1 << 32) - 1])
def test_the_first_and_the_last_key_are_given(key: int) -> None:
    registrar = MemoryRegionTable(AddressSpace())
    region = register(registrar)
    registrar.choose_key(region, key)
    assert registrar.keys.find(key) is region


@pytest.mark.parametrize(
    ("chosen", "given"),
    [(0x11, [0x14, 0x16]), (0x12, [0x10, 0x14]), (0x13, [0x10, 0x16]), (0x20, [0x10, 0x12])],
)
def test_keys_are_given_from_the_indexes_that_are_not_beside_a_chosen_one(
    chosen: int, given: list[int]
) -> None:
    registrar = MemoryRegionTable(AddressSpace())
    registrar.choose_key(register(registrar), chosen << 8)
    assert [register(registrar).key >> 8 for _ in given] == given


def test_an_index_that_was_chosen_is_free_again_with_its_region() -> None:
    registrar = MemoryRegionTable(AddressSpace())
    region = register(registrar)
    registrar.choose_key(region, 0x12 << 8)
    registrar.dereg_mr(region)
    assert [register(registrar).key >> 8 for _ in range(3)] == [0x10, 0x12, 0x14]
