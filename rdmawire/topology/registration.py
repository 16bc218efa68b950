"""What it takes to register memory with an adapter: pages, translation entries, time, and a cache.

A registration pins each page and writes one entry for it to the adapter's translation table (MTT).
Times are ns, sizes and addresses bytes. The constants are those of
:class:`~rdmawire.topology.cost.Costs`.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.errors import TopologyError
from rdmawire.topology.cost import H200_COSTS, Costs

PAGE_4K: Final = 1 << 12
PAGE_64K: Final = 1 << 16
PAGE_2M: Final = 1 << 21
MTTS_IN_PAGE: Final = 512
"""Entries in a page of the translation table: 8 bytes each in mlx5, irdma and bnxt_re."""


class RegisteredKind(Enum):
    """The memory that is registered, and what pins it."""

    HOST = "host memory"
    PEERMEM = "GPU memory by nvidia-peermem"
    DMABUF = "GPU memory as a dma-buf"


class _Pinning(NamedTuple):
    """What pins the pages of a size: fields of :class:`Costs`.

    ``times`` is how often the pages are pinned: nvidia-peermem pins them to see whether the memory
    is a GPU's, unpins them, and pins them again (nv_mem_acquire, nv_mem_get_pages in its source).
    """

    page: str
    unpin: str
    launch: tuple[str, ...] = ()
    times: int = 1


_GPU: Final = _Pinning("pin_gpu_page", "pin_gpu_page", ("pin_gpu",))
_PINNING: Final[Mapping[tuple[RegisteredKind, int], _Pinning]] = {
    (RegisteredKind.HOST, PAGE_4K): _Pinning("pin_page", "unpin_page"),
    (RegisteredKind.HOST, PAGE_64K): _Pinning("pin_page", "unpin_page"),
    (RegisteredKind.HOST, PAGE_2M): _Pinning("pin_huge_page", "unpin_huge_page"),
    (RegisteredKind.PEERMEM, PAGE_64K): _GPU._replace(times=2),
    (RegisteredKind.DMABUF, PAGE_64K): _GPU._replace(launch=("pin_gpu", "export_dmabuf")),
}
PAGE_SIZES: Final[Mapping[RegisteredKind, tuple[int, ...]]] = {
    kind: tuple(size for one, size in _PINNING if one is kind) for kind in RegisteredKind
}
"""The page sizes of each kind of memory; the first is the default."""


class Registration(NamedTuple):
    """What a registration takes.

    ``pages`` are pinned, ``entries`` written to the translation table, which has this number of
    ``levels``: none for one page, whose address is in the key itself, one for a page of entries,
    two for a page of such pages. ``time`` is that of ibv_reg_mr, ``dereg_time`` that of
    ibv_dereg_mr.
    """

    pages: int
    entries: int
    levels: int
    time: float
    dereg_time: float


def registration(
    kind: RegisteredKind,
    size: int,
    *,
    address: int = 0,
    page_size: int | None = None,
    max_entries: int | None = None,
    costs: Costs = H200_COSTS,
) -> Registration:
    """Return what it takes to register ``size`` bytes at an address.

    ``page_size`` is that of the memory, by default the first of :data:`PAGE_SIZES`. An adapter
    with ``max_entries`` translation entries refuses more. Raises :class:`TopologyError` for it, for
    a page size that the memory does not have, and for no bytes.
    """
    page_size = PAGE_SIZES[kind][0] if page_size is None else page_size
    row = _pinning(kind, page_size)
    if size <= 0:
        raise TopologyError(f"a registration of {size} bytes; expected one byte at least")
    pages = (address + size - 1) // page_size - address // page_size + 1
    if max_entries is not None and pages > max_entries:
        what = f"{size} bytes in pages of {page_size} need {pages} translation entries"
        raise TopologyError(f"{what}, the adapter has {max_entries}: take larger pages")
    launch = sum(_cost(costs, name) for name in row.launch)
    pinned = row.times * (launch + pages * _cost(costs, row.page))
    again = (row.times - 1) * (launch + pages * _cost(costs, row.unpin))
    unpinned = launch + pages * _cost(costs, row.unpin)
    time = costs.reg_launch + pinned + again + pages * costs.mtt_entry
    return Registration(pages, pages, _levels(pages), time, costs.dereg_launch + unpinned)


def _pinning(kind: RegisteredKind, page_size: int) -> _Pinning:
    if (kind, page_size) not in _PINNING:
        known = ", ".join(map(str, PAGE_SIZES[kind]))
        raise TopologyError(f"pages of {page_size} bytes; pages of {kind.value} have {known}")
    return _PINNING[kind, page_size]


def _cost(costs: Costs, name: str) -> float:
    return float(getattr(costs, name))


def _levels(entries: int) -> int:
    levels, reach = 0, 1
    while reach < entries:
        levels, reach = levels + 1, reach * MTTS_IN_PAGE
    return levels


@dataclass(slots=True, eq=False)
class CachedRegion:
    """A region of a registration cache: bytes from ``start`` to before ``end``, and its users."""

    start: int
    end: int
    dereg_time: float
    users: int = 0

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start


class Lookup(NamedTuple):
    """A region that a cache found or registered, and the time that it took."""

    region: CachedRegion
    is_hit: bool
    time: float


class RegistrationCache:
    """Regions that stay registered, as UCX's rcache and NCCL's cache keep them.

    A lookup in a region is a hit. Else the memory is registered, by whole pages; regions that
    overlap it are merged with it, and deregistered when their last use ends. Regions without users
    are deregistered, the least recently used first, while there are more than ``max_regions`` or
    ``max_bytes`` (``UCX_RCACHE_MAX_REGIONS``, ``UCX_RCACHE_MAX_SIZE``; ``None`` for no limit).
    """

    def __init__(
        self,
        kind: RegisteredKind,
        *,
        page_size: int | None = None,
        max_regions: int | None = None,
        max_bytes: int | None = None,
        costs: Costs = H200_COSTS,
    ) -> None:
        self.kind = kind
        self.page_size = PAGE_SIZES[kind][0] if page_size is None else page_size
        self.max_regions = max_regions
        self.max_bytes = max_bytes
        self.costs = costs
        self.hits = self.misses = self.merges = self.evictions = 0
        self._regions: OrderedDict[int, CachedRegion] = OrderedDict()
        self._left: list[CachedRegion] = []

    @property
    def regions(self) -> list[CachedRegion]:
        """The regions that a lookup can find, the least recently used first."""
        return list(self._regions.values())

    @property
    def registered_bytes(self) -> int:
        """Bytes of all regions, also of those that were merged and still have users."""
        return sum(region.size for region in (*self.regions, *self._left))

    def get(self, address: int, size: int) -> Lookup:
        """Return a region with ``size`` bytes at an address, for use until :meth:`put`."""
        for start, region in self._regions.items():
            if start <= address and address + size <= region.end:
                self._regions.move_to_end(start)
                self.hits += 1
                region.users += 1
                return Lookup(region, is_hit=True, time=self.costs.cache_lookup)
        self.misses += 1
        region, time = self._register(address, size)
        region.users += 1
        return Lookup(region, is_hit=False, time=self.costs.cache_lookup + time + self._evict())

    def put(self, region: CachedRegion) -> float:
        """End a use of a region; return the time of what is deregistered now."""
        if region.users <= 0:
            raise TopologyError("a region that is not in use was given back")
        region.users -= 1
        if region.users or region not in self._left:
            return 0.0
        self._left.remove(region)
        return region.dereg_time

    def invalidate(self, address: int, size: int) -> float:
        """Remove regions of memory that is freed; return the time of what is deregistered now."""
        return sum(self._drop(region) for region in self._overlapping(address, address + size))

    def _register(self, address: int, size: int) -> tuple[CachedRegion, float]:
        page = self.page_size
        start, end, time = address - address % page, -(-(address + size) // page) * page, 0.0
        while merged := self._overlapping(start, end):
            self.merges += len(merged)
            time += sum(self._drop(region) for region in merged)
            start = min(start, *(region.start for region in merged))
            end = max(end, *(region.end for region in merged))
        row = registration(self.kind, end - start, address=start, page_size=page, costs=self.costs)
        region = self._regions[start] = CachedRegion(start, end, row.dereg_time)
        return region, time + row.time

    def _overlapping(self, start: int, end: int) -> list[CachedRegion]:
        return [one for one in self._regions.values() if one.start < end and start < one.end]

    def _drop(self, region: CachedRegion) -> float:
        """Deregister a region when its last use ends; return the time if that is now."""
        del self._regions[region.start]
        if region.users:
            self._left.append(region)
            return 0.0
        return region.dereg_time

    def _evict(self) -> float:
        time = 0.0
        for region in list(self._unused()):
            if not self._is_full:
                break
            self.evictions += 1
            time += self._drop(region)
        return time

    def _unused(self) -> Iterator[CachedRegion]:
        return (region for region in self._regions.values() if not region.users)

    @property
    def _is_full(self) -> bool:
        many = self.max_regions is not None and len(self._regions) > self.max_regions
        return many or (self.max_bytes is not None and self.registered_bytes > self.max_bytes)


class RegistrationMode(Enum):
    """When the memory of a transfer is registered."""

    NONE = "none"
    EACH = "each"
    CACHE = "cache"

    @property
    def meaning(self) -> str:
        """When, in words."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    RegistrationMode.NONE: "once, before the first transfer",
    RegistrationMode.EACH: "for each transfer, and deregistered after it",
    RegistrationMode.CACHE: "by a cache: at the first transfer of a buffer, and after an eviction",
}


class Registrar:
    """Registers the memory of transfers in one of the modes, and counts.

    ``registered`` and ``deregistered`` are numbers of regions, ``time`` (ns) that of both and of
    lookups. The cache is used in the mode :attr:`RegistrationMode.CACHE`.
    """

    def __init__(self, mode: RegistrationMode, cache: RegistrationCache) -> None:
        self.mode = mode
        self.cache = cache
        self.time = 0.0
        self._each = 0

    @property
    def registered(self) -> int:
        """Regions that were registered."""
        return self._each + self.cache.misses

    @property
    def deregistered(self) -> int:
        """Regions that were deregistered by a transfer or by the cache."""
        return self._each + self.cache.merges + self.cache.evictions

    def acquire(self, address: int, size: int) -> tuple[float, CachedRegion | None]:
        """Register memory if it is necessary; return the time, and a region for :meth:`release`."""
        if self.mode is RegistrationMode.NONE:
            return 0.0, None
        if self.mode is RegistrationMode.CACHE:
            found = self.cache.get(address, size)
            self.time += found.time
            return found.time, found.region
        cache = self.cache
        row = registration(
            cache.kind, size, address=address, page_size=cache.page_size, costs=cache.costs
        )
        self._each += 1
        self.time += row.time
        return row.time, CachedRegion(address, address + size, row.dereg_time)

    def release(self, region: CachedRegion | None) -> float:
        """End the use of memory; return the time."""
        if region is None:
            return 0.0
        cached = self.mode is RegistrationMode.CACHE
        time = self.cache.put(region) if cached else region.dereg_time
        self.time += time
        return time
