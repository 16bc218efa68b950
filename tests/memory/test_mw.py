"""Memory windows: what a bind must keep to, who may use what is bound, what ends it."""

from collections.abc import Callable
from errno import EBUSY, EINVAL, ENOMEM
from itertools import product
from typing import Any

import pytest

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.fast_reg import invalidate
from rdmawire.memory.key import (
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    VARIANTS,
    Access,
    KeyFault,
    ProtectionDomain,
)
from rdmawire.memory.mr_table import Limits
from rdmawire.memory.mw import Bind, WindowType, bind_window
from rdmawire.memory.page import PAGE_4K
from tests.memory.machine import FULL, Machine

QPN = 0x11
TYPES = list(WindowType)
TYPE_2 = [WindowType.TYPE_2A, WindowType.TYPE_2B]


class Bench(Machine):
    """A region, and a window of some type that is not bound."""

    def __init__(self, mw_type: WindowType, access: int = FULL) -> None:
        kind = WindowType.TYPE_2B if mw_type is WindowType.TYPE_1 else mw_type
        super().__init__(Limits(window_type_2=kind))
        self.memory, self.mr = self.region(access=access)
        self.mw = self.registrar.alloc_mw(self.pd, mw_type.ibv_number)
        assert self.mw.type is mw_type

    def next_key(self) -> int:
        return self.mw.key ^ 0x80

    def request(self, **changes: Any) -> Bind:
        right = Bind(self.mr.iova + 8, 64, REMOTE_WRITE, QPN, self.pd, self.next_key())
        return right._replace(**changes)

    def bind(self, **changes: Any) -> int:
        return bind_window(self.keys, self.mw, self.mr, self.request(**changes))

    def check(self, access: int = REMOTE_WRITE, qpn: int = QPN) -> object:
        return self.keys.check(self.mw.key, self.pd, self.mr.iova + 8, 64, access, qpn)


@pytest.mark.parametrize("mw_type", TYPES)
def test_what_is_bound_is_reached_and_nothing_beside_it(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    unbound = bench.mw.key
    assert bench.check() is KeyFault.NOT_BOUND
    assert bench.check(0) is KeyFault.NOT_BOUND
    key = bench.bind()
    assert key == bench.mw.key != unbound
    assert key // VARIANTS == unbound // VARIANTS
    assert bench.keys.find(unbound) is None
    assert bench.check() is bench.mw
    bench.mw.write(bench.mr.iova + 8, b"\xff" * 64)
    assert bench.space.read(bench.memory.base, 80) == bytes(8) + b"\xff" * 64 + bytes(8)
    assert bytes(bench.mw.read(bench.mr.iova + 70, 2)) == b"\xff\xff"
    assert bench.mw.fetch_add(bench.mr.iova + 8, 1) == (1 << 64) - 1
    assert bench.mw.compare_swap(bench.mr.iova + 8, 0, 5) == 0
    for iova, length in ((7, 1), (8, 65), (72, 1)):
        with pytest.raises(MemoryFault, match="outside window"):
            bench.mw.write(bench.mr.iova + iova, bytes(length))
        found = bench.keys.check(key, bench.pd, bench.mr.iova + iova, length, REMOTE_WRITE, QPN)
        assert found is KeyFault.OUT_OF_RANGE


SAME, OTHER = "same", "other"
ADMITTED = {
    (WindowType.TYPE_1, SAME, SAME): None,
    (WindowType.TYPE_1, SAME, OTHER): None,
    (WindowType.TYPE_1, OTHER, SAME): KeyFault.WRONG_PD,
    (WindowType.TYPE_1, OTHER, OTHER): KeyFault.WRONG_PD,
    (WindowType.TYPE_2A, SAME, SAME): None,
    (WindowType.TYPE_2A, SAME, OTHER): KeyFault.WRONG_QP,
    (WindowType.TYPE_2A, OTHER, SAME): None,
    (WindowType.TYPE_2A, OTHER, OTHER): KeyFault.WRONG_QP,
    (WindowType.TYPE_2B, SAME, SAME): None,
    (WindowType.TYPE_2B, SAME, OTHER): KeyFault.WRONG_QP,
    (WindowType.TYPE_2B, OTHER, SAME): KeyFault.WRONG_PD,
    (WindowType.TYPE_2B, OTHER, OTHER): KeyFault.WRONG_PD,
}


@pytest.mark.parametrize(("mw_type", "domain", "queue"), ADMITTED)
def test_who_may_use_a_window(mw_type: WindowType, domain: str, queue: str) -> None:
    bench = Bench(mw_type)
    key = bench.bind()
    pd = bench.pd if domain == SAME else ProtectionDomain(2)
    qpn = QPN if queue == SAME else QPN + 1
    found = bench.keys.check(key, pd, bench.mr.iova + 8, 64, REMOTE_WRITE, qpn)
    assert found is (ADMITTED[mw_type, domain, queue] or bench.mw)


@pytest.mark.parametrize("mw_type", TYPES)
@pytest.mark.parametrize("mr_access", range(32))
def test_rights_of_window_and_region(mw_type: WindowType, mr_access: int) -> None:
    """Every set of rights of a region with every set of a window's."""
    if mr_access & 10 and not mr_access & 1:
        return
    for remote in product((0, REMOTE_WRITE), (0, REMOTE_READ), (0, REMOTE_ATOMIC)):
        access = sum(remote)
        bench = Bench(mw_type, mr_access)
        changes = access & (REMOTE_WRITE | REMOTE_ATOMIC)
        if mr_access & Access.MW_BIND and (not changes or mr_access & Access.LOCAL_WRITE):
            bench.bind(access=access)
            for asked in (REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC):
                allowed = bench.mw if access & asked else KeyFault.NO_ACCESS
                assert bench.check(asked) is allowed
            assert bench.check(0) is KeyFault.NO_ACCESS  # a window has no local key
        else:
            with pytest.raises(VerbsError, match=r"MW_BIND|LOCAL_WRITE"):
                bench.bind(access=access)
            assert bench.check() is KeyFault.NOT_BOUND


Changes = dict[str, Callable[[Bench], dict[str, Any]]]

REFUSED: Changes = {
    "exceeds the region: below": lambda b: {"address": b.mr.iova - 1},
    "exceeds the region: above": lambda b: {"length": b.mr.length - 7},
    "no such right: local": lambda _: {"access": int(Access.LOCAL_WRITE | REMOTE_WRITE)},
    "no such right: bind": lambda _: {"access": int(Access.MW_BIND)},
    "another domain": lambda _: {"pd": ProtectionDomain(3)},
}
REFUSED_TYPE_2: Changes = {
    "empty": lambda _: {"length": 0},
    "no queue pair": lambda _: {"qpn": 0},
    "no domain": lambda _: {"pd": None},
    "the same key": lambda b: {"rkey": b.mw.key},
    "another index": lambda b: {"rkey": b.mw.key + 2 * VARIANTS},
}


def refused(bench: Bench, **changes: Any) -> None:
    before = bench.mw.key
    with pytest.raises(VerbsError, match="cannot bind") as caught:
        bench.bind(**changes)
    assert caught.value.errno == EINVAL
    assert (bench.mw.key, bench.mr.windows) == (before, set())
    assert bench.check() is KeyFault.NOT_BOUND


@pytest.mark.parametrize("mw_type", TYPES)
@pytest.mark.parametrize("wrong", REFUSED)
def test_binds_refused(mw_type: WindowType, wrong: str) -> None:
    bench = Bench(mw_type)
    refused(bench, **REFUSED[wrong](bench))


@pytest.mark.parametrize("mw_type", TYPE_2)
@pytest.mark.parametrize("wrong", REFUSED_TYPE_2)
def test_binds_of_type_2_refused(mw_type: WindowType, wrong: str) -> None:
    bench = Bench(mw_type)
    refused(bench, **REFUSED_TYPE_2[wrong](bench))


@pytest.mark.parametrize("mw_type", TYPES)
def test_regions_that_take_no_window(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    bench.mr = bench.registrar.reg_mr(
        bench.pd, bench.memory.base, PAGE_4K, FULL | Access.ZERO_BASED
    )
    refused(bench)
    bench.mr = bench.registrar.reg_mr(ProtectionDomain(2), bench.memory.base, PAGE_4K, FULL)
    refused(bench)
    bench.mr = bench.registrar.alloc_mr(bench.pd, 1)
    refused(bench)


def test_type_1_is_bound_again_and_unbound_by_an_empty_range() -> None:
    bench = Bench(WindowType.TYPE_1)
    seen = {bench.bind(), bench.bind(), bench.bind(access=REMOTE_READ)}
    assert len(seen) == 3
    assert bench.mr.windows == {bench.mw}
    assert bench.check(REMOTE_WRITE) is KeyFault.NO_ACCESS
    bench.bind(length=0)
    assert bench.check() is KeyFault.NOT_BOUND
    assert not bench.mr.windows
    with pytest.raises(VerbsError, match="zero-based"):
        bench.bind(access=int(Access.ZERO_BASED))


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("access", [0, int(REMOTE_WRITE), int(Access.ZERO_BASED)])
@pytest.mark.parametrize("address", [0, 8, 1 << 63])
def test_an_unbind_of_type_1_looks_at_no_region(bound: bool, access: int, address: int) -> None:
    bench = Bench(WindowType.TYPE_1)
    key = bench.bind() if bound else bench.mw.key
    unbind = bench.request(address=address, length=0, access=access, rkey=0)
    assert bind_window(bench.keys, bench.mw, None, unbind) == bench.mw.key != key
    assert bench.keys.find(key) is None
    assert bench.check() is KeyFault.NOT_BOUND
    assert not bench.mr.windows
    bench.bind()
    assert bench.check() is bench.mw


def test_type_1_is_unbound_from_a_region_that_is_gone() -> None:
    bench = Bench(WindowType.TYPE_1)
    bench.bind()
    bench.mr.invalidate()
    bench.bind(address=0, length=0, access=0)
    bench.registrar.dereg_mr(bench.mr)
    bench.bind(address=0, length=0, access=0)
    assert bench.check() is KeyFault.NOT_BOUND


def test_type_1_is_unbound_by_its_own_domain_and_adapter_alone() -> None:
    bench = Bench(WindowType.TYPE_1)
    key = bench.bind()
    with pytest.raises(VerbsError, match=r"cannot unbind .* another domain") as caught:
        bench.bind(length=0, pd=ProtectionDomain(3))
    assert caught.value.errno == EINVAL
    assert (bench.mw.key, bench.mr.windows) == (key, {bench.mw})
    with pytest.raises(VerbsError, match="not registered"):
        bind_window(Machine().keys, bench.mw, None, bench.request(length=0))


@pytest.mark.parametrize("mw_type", TYPES)
def test_a_bind_without_a_region_is_refused(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    with pytest.raises(VerbsError, match="64 bytes needs a region") as caught:
        bind_window(bench.keys, bench.mw, None, bench.request())
    assert caught.value.errno == EINVAL


@pytest.mark.parametrize("mw_type", TYPE_2)
def test_type_2_is_zero_based_if_asked(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    bench.bind(access=int(REMOTE_WRITE | Access.ZERO_BASED))
    assert bench.keys.check(bench.mw.key, bench.pd, 0, 64, REMOTE_WRITE, QPN) is bench.mw
    assert bench.check() is KeyFault.OUT_OF_RANGE
    bench.mw.write(1, b"x")
    assert bench.space.read(bench.mr.iova + 8, 3) == b"\0x\0"
    assert bench.mw.fetch_add(0, 1) == 0x7800


@pytest.mark.parametrize("mw_type", TYPE_2)
def test_type_2_is_invalidated_before_it_is_bound_again(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    key = bench.bind()
    with pytest.raises(VerbsError, match="invalidated before"):
        bench.bind()
    assert bench.check() is bench.mw
    assert invalidate(bench.keys, key + 1, bench.pd, QPN) is KeyFault.INVALID_KEY
    assert invalidate(bench.keys, key, bench.pd, QPN + 1) is KeyFault.WRONG_QP
    assert bench.check() is bench.mw
    assert invalidate(bench.keys, key, bench.pd, QPN) is None
    assert bench.check() is KeyFault.NOT_BOUND
    with pytest.raises(MemoryFault, match="not bound"):
        bench.mw.write(bench.mr.iova + 8, b"x")
    assert invalidate(bench.keys, key, bench.pd, QPN) is None
    assert bench.bind() != key


@pytest.mark.parametrize("mw_type", TYPES)
def test_invalidation_by_a_stranger(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    key = bench.bind()
    expected = {WindowType.TYPE_2A: None}.get(mw_type, KeyFault.WRONG_PD)
    assert invalidate(bench.keys, key, ProtectionDomain(2), QPN) is expected


def test_type_1_and_plain_regions_are_not_invalidated() -> None:
    bench = Bench(WindowType.TYPE_1)
    key = bench.bind()
    assert invalidate(bench.keys, key, bench.pd, QPN) is KeyFault.NO_ACCESS
    assert invalidate(bench.keys, bench.mr.key, bench.pd, QPN) is KeyFault.NO_ACCESS
    assert bench.check() is bench.mw


@pytest.mark.parametrize("mw_type", TYPES)
def test_a_region_with_windows_stays(mw_type: WindowType) -> None:
    bench = Bench(mw_type)
    bench.bind()
    attempts: list[Callable[[], object]] = [
        lambda: bench.registrar.dereg_mr(bench.mr),
        lambda: bench.registrar.rereg_mr(bench.mr, 4, access=0),
    ]
    for attempt in attempts:
        with pytest.raises(VerbsError, match="1 windows") as caught:
            attempt()
        assert caught.value.errno == EBUSY
    bench.registrar.dealloc_mw(bench.mw)
    bench.registrar.dereg_mr(bench.mr)
    assert (len(bench.keys), bench.pd.users) == (0, 0)


def test_a_window_of_a_region_that_lost_its_pages() -> None:
    bench = Bench(WindowType.TYPE_1)
    bench.bind()
    bench.mr.invalidate()
    assert bench.check() is KeyFault.INVALIDATED
    with pytest.raises(MemoryFault, match="no pages"):
        bench.mw.write(bench.mr.iova + 8, b"x")
    with pytest.raises(VerbsError, match="grants nothing"):
        bench.bind()


def test_allocation_of_windows() -> None:
    machine = Machine(Limits(max_mw=1, window_type_2=WindowType.TYPE_2A))
    for wrong in (0, 3):
        with pytest.raises(VerbsError, match=r"integer from 1 to 2") as caught:
            machine.registrar.alloc_mw(machine.pd, wrong)
        assert caught.value.errno == EINVAL
    window = machine.registrar.alloc_mw(machine.pd, 2)
    assert (window.type, window.rkey) == (WindowType.TYPE_2A, window.key)
    with pytest.raises(VerbsError) as caught:
        machine.registrar.alloc_mw(machine.pd, 1)
    assert caught.value.errno == ENOMEM
    machine.registrar.dealloc_mw(window)
    with pytest.raises(VerbsError, match="not registered"):
        machine.registrar.dealloc_mw(window)
