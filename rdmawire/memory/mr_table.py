"""Region table of an adapter: creates and destroys regions and windows."""

from collections.abc import Callable, Sequence
from enum import IntFlag
from errno import EBUSY, EFAULT, EINVAL, ENOMEM, EOPNOTSUPP
from functools import partial
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.identifier import Randomness
from rdmawire.memory.address_space import AddressSpace, Initiator
from rdmawire.memory.key import (
    LOCAL_WRITE,
    MAX_KEYS,
    Access,
    Grant,
    KeyFault,
    KeyTable,
    ProtectionDomain,
    check_access,
)
from rdmawire.memory.mw import MemoryWindow, WindowType
from rdmawire.memory.page import LAST_ADDRESS, PAGE_4K, DmaCounters
from rdmawire.memory.region import Backing, HostPages, LockedMemory, OnDemand, Region
from rdmawire.validate import check_int, check_methods, check_type, iterate

WHOLE_SPACE: Final = LAST_ADDRESS  # SIZE_MAX: the length of an implicit on-demand region
_ON_DEMAND: Final = Access.ON_DEMAND.value
_ZERO_BASED: Final = Access.ZERO_BASED.value
_OF_TRANSLATION: Final = _ON_DEMAND | _ZERO_BASED  # flags of the translation, not rights


class Rereg(IntFlag):
    """Flags of ibv_rereg_mr(3): the attributes that change."""

    CHANGE_TRANSLATION = 1
    CHANGE_PD = 2
    CHANGE_ACCESS = 4


_REREG_FLAGS: Final = sum(flag.value for flag in Rereg)


class Limits(NamedTuple):
    """Limits and capabilities of an adapter.

    ``page_fault_ns`` is the time (ns) until a missing page of an on-demand region is present.
    """

    max_mr: int = 1 << 20
    max_mr_size: int = 1 << 63
    max_mw: int = 1 << 20
    max_fast_reg_pages: int = 1 << 16
    window_type_2: WindowType = WindowType.TYPE_2B
    on_demand: bool = True
    page_fault_ns: int = 0


class Extent(NamedTuple):
    """``length`` bytes at linear address ``address``, accessed through keys at ``iova``."""

    address: int
    iova: int
    length: int

    def check(self, largest: int, smallest: int = 1) -> None:
        """``VerbsError`` EINVAL for a range that no region can have.

        Regions have ``smallest`` to ``largest`` bytes, or are of all memory.
        """
        for name, value in zip(self._fields, self, strict=True):
            check_int(name, value)
        if not smallest <= self.length <= (LAST_ADDRESS if self.length == WHOLE_SPACE else largest):
            raise VerbsError(f"length {self.length}, not {smallest} to {largest}", EINVAL)
        for start in (self.address, self.iova):
            if start + self.length > LAST_ADDRESS + 1:
                raise VerbsError(f"{self.length} bytes at {start:#x} exceed 64 bits", EINVAL)


class PeerMemory(Protocol):
    """A client that provides memory other than the host's, as nvidia-peermem does."""

    def claim(self, address: int, length: int, peer: object) -> Backing | None:
        """Pin pages for the adapter ``peer``; ``None`` if the range is not the client's."""


class MemoryRegionTable:
    """Regions and windows of one adapter (``peer`` to the owners of GPUs), and their keys.

    ``initiator`` is the adapter as a bus initiator, with its time. With ``random``, keys are drawn
    from it. ``locked`` counts the host memory that is pinned; set its limit to have ``ulimit -l``.

    Every refusal is a ``VerbsError`` with libibverbs' errno, and has no other effect.
    """

    def __init__(
        self,
        space: AddressSpace,
        limits: Limits | None = None,
        clients: Sequence[PeerMemory] = (),
        peer: object = None,
        initiator: Initiator | None = None,
        *,
        random: Randomness | None = None,
    ) -> None:
        check_type("space", space, AddressSpace)
        self.space = space
        self.limits = limits or Limits()
        self.clients = list(iterate("clients", clients))
        for client in self.clients:
            check_methods("client", client, "claim")
        self.peer = self if peer is None else peer
        self.initiator = initiator
        self.locked = LockedMemory()
        self.keys = KeyTable(MAX_KEYS, random)
        self.counter = DmaCounters()
        self._regions = 0
        self._windows = 0

    @property
    def region_count(self) -> int:
        """Number of registered regions."""
        return self._regions

    def reg_mr(
        self,
        pd: ProtectionDomain,
        address: int,
        length: int,
        access: int,
        iova: int | None = None,
    ) -> Region:
        """ibv_reg_mr(3), ibv_reg_mr_iova(3): host memory, or a GPU's through a client.

        On demand, address 0 and length ``WHOLE_SPACE`` register all present and future memory.
        EINVAL for invalid arguments, EFAULT for unmapped memory, ENOMEM if a limit is reached, that
        of locked memory included.
        """
        access = check_access(access)
        for name, value in (
            ("address", address),
            ("length", length),
            ("iova", 0 if iova is None else iova),
        ):
            check_int(name, value)
        iova = self._iova(address, length, access, iova)
        extent = Extent(address, iova, length)
        return self.register(pd, extent, access, lambda: self._backing(address, length, access))

    def register(
        self,
        pd: ProtectionDomain,
        extent: Extent,
        access: int,
        make_backing: Callable[[], Backing],
        *,
        min_length: int = 1,
    ) -> Region:
        """Register pages of any backing; ``make_backing`` is called after all other checks.

        A region has at least ``min_length`` bytes: 0 for device memory, as in Linux.
        """
        access = check_access(access)
        self.check_domain(pd)
        check_type("extent", extent, Extent)
        extent.check(self.limits.max_mr_size, min_length)
        self._check_room()
        backing = make_backing()
        if backing.peer not in (None, self.peer):
            raise VerbsError("the pages are mapped for another adapter", EINVAL)
        region = Region(pd, self.counter, initiator=self.initiator)
        region.translate(backing, *extent)
        region.allow(access)
        return self._enter(region)

    def _enter(self, region: Region) -> Region:
        self.keys.add(region)
        self._regions += 1
        region.pd.acquire()
        return region

    def choose_key(self, grant: Grant, key: int) -> None:
        """Assign any key to a region or window: see :meth:`KeyTable.choose`."""
        self._check_mine(grant, Grant)
        self.keys.choose(grant, key)

    def alloc_mr(self, pd: ProtectionDomain, max_pages: int) -> Region:
        """Allocate a region for fast registration of at most ``max_pages`` pages."""
        check_int("max_pages", max_pages, 1, self.limits.max_fast_reg_pages)
        self.check_domain(pd)
        self._check_room()
        return self._enter(Region(pd, self.counter, max_pages, self.initiator))

    def dereg_mr(self, region: Region) -> None:
        """ibv_dereg_mr(3): EBUSY while windows are bound to the region."""
        self._check_mine(region, Region)
        self._check_unbound(region)
        region.invalidate()
        self.keys.remove(region)
        self._regions -= 1
        region.pd.release()

    def rereg_mr(
        self,
        region: Region,
        flags: int,
        *,
        pd: ProtectionDomain | None = None,
        address: int = 0,
        length: int = 0,
        access: int = 0,
        make_backing: Callable[[int, int], Backing] | None = None,
    ) -> None:
        """ibv_rereg_mr(3): change the attributes in ``flags`` (:class:`Rereg`) and keep the keys.

        A new translation has its iova at ``address``, or at zero if the region is zero-based.
        ``make_backing`` returns the pages of an address and a length that :meth:`register` would be
        given; without it they are those of :meth:`reg_mr`.
        """
        self._check_rereg(region, flags, pd)
        rights = check_access(access) if flags & Rereg.CHANGE_ACCESS else region.access
        if flags & Rereg.CHANGE_TRANSLATION:
            make = make_backing or partial(self._backing, access=rights)
            self._translate(region, address, length, rights, make)
        else:
            rights = (rights & ~_OF_TRANSLATION) | (region.access & _OF_TRANSLATION)
            self._make_writable(region, rights)
        if flags & Rereg.CHANGE_PD and pd is not None:
            pd.acquire()
            region.pd.release()
            region.pd = pd
        region.allow(rights)

    def _translate(
        self,
        region: Region,
        address: int,
        length: int,
        access: int,
        make_backing: Callable[[int, int], Backing],
    ) -> None:
        check_int("address", address)
        check_int("length", length)
        extent = Extent(address, self._iova(address, length, access, None), length)
        extent.check(self.limits.max_mr_size)
        region.translate(make_backing(address, length), *extent)

    def _make_writable(self, region: Region, access: int) -> None:
        """Pin memory again for writing that was pinned for reading."""
        if access & LOCAL_WRITE and region.backing and not region.backing.writable:
            backing = self._backing(region.address, region.length, access)
            region.translate(backing, region.address, region.iova, region.length)

    def alloc_mw(self, pd: ProtectionDomain, ibv_type: int) -> MemoryWindow:
        """ibv_alloc_mw(3): type 1, or type 2 in the adapter's variant (2A or 2B)."""
        check_int("window type", ibv_type, 1, 2)
        self.check_domain(pd)
        if self._windows >= self.limits.max_mw:
            raise VerbsError(f"all {self.limits.max_mw} windows are in use", ENOMEM)
        mw_type = WindowType.TYPE_1 if ibv_type == 1 else self.limits.window_type_2
        window = MemoryWindow(pd, mw_type)
        self.keys.add(window)
        self._windows += 1
        pd.acquire()
        return window

    def dealloc_mw(self, window: MemoryWindow) -> None:
        """ibv_dealloc_mw(3); a bound window is unbound."""
        self._check_mine(window, MemoryWindow)
        window.unbind()
        self.keys.remove(window)
        self._windows -= 1
        window.home.release()

    def check_unbound_from(self, qpn: int) -> None:
        """``VerbsError`` EBUSY while windows of type 2A are bound on a queue pair. IBA 10.6.7.2."""
        bound = [one for one in self._bound_on(qpn) if one.type is WindowType.TYPE_2A]
        if bound:
            raise VerbsError(f"{len(bound)} windows of type 2A are bound on QP {qpn:#x}", EBUSY)

    def forget_qp(self, qpn: int) -> None:
        """Deny windows bound on a destroyed queue pair, whose number may be reused."""
        for window in self._bound_on(qpn):
            window.deny(KeyFault.WRONG_QP)

    def _bound_on(self, qpn: int) -> list[MemoryWindow]:
        grants = self.keys.of_qp(qpn) if self._windows else []
        return [grant for grant in grants if isinstance(grant, MemoryWindow)]

    def advise_mr(self, region: Region, address: int, length: int) -> None:
        """ibv_advise_mr(3), prefetch: fault pages in now. EINVAL if the region is not on demand."""
        self._check_mine(region, Region)
        check_int("address", address)
        check_int("length", length)
        backing = region.backing
        if not isinstance(backing, OnDemand):
            raise VerbsError(f"region {region.key:#x} is not on demand", EINVAL)
        if address < region.iova or address + length > region.end:
            raise VerbsError(f"{length} bytes at {address:#x} exceed the region", EINVAL)
        try:
            backing.prefetch(address - region.iova + region.address, length)
        except MemoryFault as fault:
            raise VerbsError(str(fault), EFAULT) from fault

    def _backing(self, address: int, length: int, access: int) -> Backing:
        if access & _ON_DEMAND:
            return self._on_demand()
        for client in self.clients:
            backing = client.claim(address, length, self.peer)
            if backing is not None:
                return backing
        writing = bool(access & LOCAL_WRITE)
        return HostPages(self.space, address, length, writing=writing, locked=self.locked)

    def _on_demand(self) -> Backing:
        if not self.limits.on_demand:
            raise VerbsError("the adapter has no paging on demand", EOPNOTSUPP)
        return OnDemand(self.space, self.limits.page_fault_ns)

    @staticmethod
    def _iova(address: int, length: int, access: int, iova: int | None) -> int:
        """Start address for keys; its page offset must equal the memory's (ibv_reg_mr_iova)."""
        if length == WHOLE_SPACE and (address or iova or not access & _ON_DEMAND):
            raise VerbsError("the whole space begins at 0, on demand", EINVAL)
        if iova is None:
            return 0 if access & _ZERO_BASED else address
        if (iova ^ address) % PAGE_4K and not access & _ZERO_BASED:
            raise VerbsError(f"iova {iova:#x} and {address:#x} differ within a page", EINVAL)
        return iova

    def check_domain(self, pd: ProtectionDomain) -> None:
        """``VerbsError`` EINVAL for a domain that is deallocated or belongs to another adapter."""
        check_type("pd", pd, ProtectionDomain)
        if pd.adapter not in (None, self):
            raise VerbsError(f"PD {pd.handle} is of another adapter, or deallocated", EINVAL)

    def _check_room(self) -> None:
        if self._regions >= self.limits.max_mr:
            raise VerbsError(f"all {self.limits.max_mr} regions are in use", ENOMEM)

    def _check_mine(self, grant: Grant, kind: type) -> None:
        check_type("handle", grant, kind)
        self.keys.check_own(grant)

    @staticmethod
    def _check_unbound(region: Region) -> None:
        if region.windows:
            raise VerbsError(f"{len(region.windows)} windows are bound to {region.key:#x}", EBUSY)

    def _check_rereg(self, region: Region, flags: int, pd: ProtectionDomain | None) -> None:
        self._check_mine(region, Region)
        self._check_unbound(region)
        check_int("flags", flags, 0, 0xFFFF_FFFF)
        if not flags or flags & ~_REREG_FLAGS:
            raise VerbsError(f"flags {flags:#x}, not some of {_REREG_FLAGS:#x}", EINVAL)
        if flags & Rereg.CHANGE_PD:
            if pd is None:
                raise VerbsError("no new protection domain given", EINVAL)
            self.check_domain(pd)
        if region.max_pages:
            raise VerbsError(f"region {region.key:#x} is for fast registration", EINVAL)
        if region.backing is None and not flags & Rereg.CHANGE_TRANSLATION:
            raise VerbsError(f"region {region.key:#x} has lost its pages", EINVAL)


class AllocatedPD(ProtectionDomain):
    """A protection domain of an adapter, with the verbs that make regions and windows in it."""

    __slots__ = ("_table",)

    def __init__(self, handle: int, table: MemoryRegionTable) -> None:
        super().__init__(handle, table)
        self._table = table

    def reg_mr(self, addr: int, length: int, access: int, iova: int | None = None) -> Region:
        """Register memory: :meth:`MemoryRegionTable.reg_mr`. ibv_reg_mr(3)."""
        return self._table.reg_mr(self, addr, length, access, iova)

    def alloc_mw(self, mw_type: int) -> MemoryWindow:
        """Allocate a window of type 1 or 2: :meth:`MemoryRegionTable.alloc_mw`. ibv_alloc_mw(3)."""
        return self._table.alloc_mw(self, mw_type)
