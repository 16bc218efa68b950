"""Memory windows, IBA 10.6.6: part of a region under a key of its own, bound and unbound freely.

A window is bound by a work request (type 2) or by a verb (type 1). The rules of a bind are
the table of refusals; each is EINVAL to the caller, and a bind error to a work request.
"""

from collections.abc import Callable
from enum import Enum, auto
from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.address_space import ATOMIC_SIZE
from rdmawire.memory.key import (
    CHANGES_MEMORY,
    LOCAL_WRITE,
    VARIANTS,
    WINDOW_FLAGS,
    Access,
    Footprint,
    Grant,
    KeyFault,
    KeyTable,
    ProtectionDomain,
    next_variant,
)
from rdmawire.memory.page import LAST_ADDRESS
from rdmawire.memory.region import Region
from rdmawire.validate import BytesLike, check_int, check_type

_ZERO_BASED: Final = Access.ZERO_BASED.value


class WindowType(Enum):
    """Allowed users of a window: IBA 10.6.7.2. To libibverbs, 2A and 2B are both type 2."""

    TYPE_1 = auto()  # any queue pair of the domain
    TYPE_2A = auto()  # the queue pair it was bound on
    TYPE_2B = auto()  # the queue pair it was bound on, in the domain of the window

    @property
    def ibv_number(self) -> int:
        """The ``ibv_mw_type``."""
        return 1 if self is WindowType.TYPE_1 else 2


class Bind(NamedTuple):
    """Parameters of a bind: ``length`` bytes at ``address`` (an iova of the region).

    Type 2 needs the number of the queue pair, its domain, and the key with its new variant; type 1
    is bound in the domain of a queue pair, too, if there is one.
    """

    address: int
    length: int
    access: int
    qpn: int = 0
    pd: ProtectionDomain | None = None
    rkey: int = 0


class MemoryWindow(Grant):
    """A window. Unbound, it has a key but grants nothing."""

    __slots__ = ("_delta", "home", "region", "type")
    label = "MW"

    def __init__(self, pd: ProtectionDomain, mw_type: WindowType) -> None:
        super().__init__(pd)
        self.home = pd
        self.type = mw_type
        self.region: Region | None = None
        self._delta = 0

    @property
    def rkey(self) -> int:
        return self.key

    def bind(self, region: Region, bind: Bind) -> None:
        """Apply ``bind``, which was checked."""
        self.unbind()
        zero_based = bind.access & _ZERO_BASED
        self.permit(0 if zero_based else bind.address, bind.length, bind.access, local=False)
        self._delta = bind.address if zero_based else 0
        self.region = region
        region.windows.add(self)
        if self.type is not WindowType.TYPE_1:
            self.qpn = bind.qpn
        if self.type is WindowType.TYPE_2A:
            self.pd = None

    def unbind(self) -> None:
        """Deny all access."""
        if self.region is not None:
            self.region.windows.discard(self)
        self.region = None
        self.pd = self.home
        self.qpn = 0
        self.deny(KeyFault.NOT_BOUND)

    def _checked(self, iova: int, length: int) -> Region:
        if self.region is None:
            raise MemoryFault(f"window {self.key:#x} is not bound", iova, length)
        if iova < self.iova or iova + length > self.end:
            raise MemoryFault(f"outside window {self.key:#x}", iova, length)
        return self.region

    def read(self, iova: int, length: int) -> bytes | memoryview:
        return self._checked(iova, length).read(iova + self._delta, length)

    def write(self, iova: int, data: BytesLike) -> None:
        self._checked(iova, len(data)).write(iova + self._delta, data)

    def place(self, iova: int) -> int:
        return self._checked(iova, 0).place(iova + self._delta)

    def footprint(self, iova: int, length: int) -> Footprint:
        if self.region is None:
            return Footprint(self, iova, iova + length)
        return self.region.footprint(iova + self._delta, length)

    def fault_in(self, iova: int, length: int) -> None:
        self._checked(iova, length).fault_in(iova + self._delta, length)

    def push(self, iova: int) -> None:
        self._checked(iova, 1).push(iova + self._delta)

    def fetch_add(self, iova: int, value: int) -> int:
        return self._checked(iova, ATOMIC_SIZE).fetch_add(iova + self._delta, value)

    def compare_swap(self, iova: int, compare: int, swap: int) -> int:
        return self._checked(iova, ATOMIC_SIZE).compare_swap(iova + self._delta, compare, swap)


Broken = Callable[[MemoryWindow, Region, Bind], bool]


def _type_2(broken: Broken) -> Broken:
    return lambda mw, mr, bind: mw.type is not WindowType.TYPE_1 and broken(mw, mr, bind)


_OTHER_DOMAIN: Final = "the queue pair is of another domain"


def _is_of_other_domain(mw: MemoryWindow, bind: Bind) -> bool:
    """Whether the domain differs; only type 1 may be bound without one."""
    by_none = bind.pd is None and mw.type is WindowType.TYPE_1
    return bind.pd is not mw.home and not by_none


def _wrong_variant(mw: MemoryWindow, _: Region, bind: Bind) -> bool:
    return bind.rkey // VARIANTS != mw.key // VARIANTS or bind.rkey == mw.key


# IBA 10.6.6.2, 10.6.7.2.2 and 11.2.13; ibv_bind_mw(3).
REFUSALS: Final[tuple[tuple[str, Broken], ...]] = (
    ("the region grants nothing now", lambda _, mr, __: not mr.valid),
    ("region and window are of two domains", lambda mw, mr, _: mr.pd is not mw.home),
    ("the region lacks MW_BIND", lambda _, mr, __: not mr.access & Access.MW_BIND.value),
    ("the region is zero-based", lambda _, mr, __: mr.zero_based),
    ("a window has no such right", lambda _, __, bind: bool(bind.access & ~WINDOW_FLAGS)),
    (
        "remote changes need LOCAL_WRITE of the region",
        lambda _, mr, bind: bool(bind.access & CHANGES_MEMORY) and not mr.access & LOCAL_WRITE,
    ),
    (
        "the window exceeds the region",
        lambda _, mr, bind: bind.address < mr.iova or bind.address + bind.length > mr.end,
    ),
    (
        "type 1 is never zero-based",
        lambda mw, _, bind: mw.type is WindowType.TYPE_1 and bool(bind.access & _ZERO_BASED),
    ),
    ("type 2 binds no empty range", _type_2(lambda _, __, bind: not bind.length)),
    ("type 2 must be invalidated before it is bound again", _type_2(lambda mw, _, __: mw.valid)),
    ("type 2 needs a queue pair", _type_2(lambda _, __, bind: not bind.qpn)),
    (_OTHER_DOMAIN, lambda mw, _, bind: _is_of_other_domain(mw, bind)),
    ("type 2 needs a new variant of its key", _type_2(_wrong_variant)),
)  # fmt: skip


_LARGEST: Final = {
    "address": LAST_ADDRESS,
    "length": LAST_ADDRESS,
    "access": 0xFFFF_FFFF,
    "qpn": 0xFF_FFFF,
    "rkey": 0xFFFF_FFFF,
}
"""Maximum of each number of a bind."""


def bind_window(keys: KeyTable, window: MemoryWindow, region: Region | None, bind: Bind) -> int:
    """Bind; return the valid key. ``VerbsError`` EINVAL if a rule is violated.

    A window of type 1 gets its new key here. Length 0 unbinds it: address and rights are
    ignored then, and ``region`` may be ``None`` (IBA 10.6.6.2, ibv_bind_mw(3)).
    """
    check_type("window", window, MemoryWindow)
    check_type("bind", bind, Bind)
    keys.check_own(window)
    for name, most in _LARGEST.items():
        check_int(name, getattr(bind, name), 0, most)
    type_1 = window.type is WindowType.TYPE_1
    if type_1 and not bind.length:
        return _unbind(keys, window, bind)
    if region is None:
        raise VerbsError(f"a bind of {bind.length} bytes needs a region", EINVAL)
    _check_bind(keys, window, region, bind)
    keys.rekey(window, next_variant(window.key) if type_1 else bind.rkey)
    window.bind(region, bind)
    return window.key


def _unbind(keys: KeyTable, window: MemoryWindow, bind: Bind) -> int:
    """Unbind a window of type 1, whether it was bound or not; returns its new key."""
    if _is_of_other_domain(window, bind):
        raise VerbsError(f"cannot unbind {window.key:#x}: {_OTHER_DOMAIN}", EINVAL)
    window.unbind()
    keys.rekey(window, next_variant(window.key))
    return window.key


def _check_bind(keys: KeyTable, window: MemoryWindow, region: Region, bind: Bind) -> None:
    """``VerbsError`` EINVAL if a rule is violated or the region is of another adapter."""
    check_type("region", region, Region)
    keys.check_own(region)
    for reason, broken in REFUSALS:
        if broken(window, region, bind):
            raise VerbsError(f"cannot bind {window.key:#x} to {region.key:#x}: {reason}", EINVAL)
