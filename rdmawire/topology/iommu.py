"""Translations of the IOMMU: its cache (the IO-TLB), page walks, and caches of devices by ATS.

Each request of a device that passes a root whose IOMMU translates needs the translation of its
pages. Times are ns, sizes and addresses bytes; a walk takes
:attr:`~rdmawire.topology.cost.Costs.translation_latency`.
"""

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final, NamedTuple

from rdmawire.topology.cost import Costs, Sourced

_PAPER: Final = "Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018, section 6.5"

IOMMU_SOURCES: Final = {
    "entries": Sourced("1", f"{_PAPER}: the rate falls beyond 256 KiB in pages of 4 KiB"),
    "walkers": Sourced("1", f"{_PAPER}: by misses, reads of 64 bytes lose 70% of the rate"),
    "ats_entries": Sourced("1", "assumed, no figure of an adapter is published"),
}
"""Where the values of :class:`IommuLimits` are from, by field."""


class IommuLimits(NamedTuple):
    """The entries of an IO-TLB, the page walks in progress at once, and the entries of a device.

    :data:`IOMMU_SOURCES` says where each is from.
    """

    entries: int = 64
    walkers: int = 6
    ats_entries: int = 1024


IOMMU_LIMITS: Final = IommuLimits()
"""The limits of :data:`IOMMU_SOURCES`."""


class TranslationCounts(NamedTuple):
    """Requests whose translation was in the IO-TLB, and those that needed a walk.

    ``ats_hits`` found it in the cache of their device; ``ats_misses`` asked the IOMMU, where each
    is a hit or a miss, too. ``waited`` is the time (ns) that accesses waited for translations, the
    sum of all.
    """

    hits: int = 0
    misses: int = 0
    ats_hits: int = 0
    ats_misses: int = 0
    waited: float = 0.0

    def plus(self, other: "TranslationCounts") -> "TranslationCounts":
        """Return the sums of both."""
        return TranslationCounts(
            self.hits + other.hits,
            self.misses + other.misses,
            self.ats_hits + other.ats_hits,
            self.ats_misses + other.ats_misses,
            self.waited + other.waited,
        )


class DeviceAccess(NamedTuple):
    """An access of a device: ``size`` bytes from an address on, in a number of requests."""

    device: str
    address: int
    size: int
    requests: int

    def pages(self, page_size: int) -> range:
        """Return the numbers of its pages."""
        last = self.address + max(self.size, 1) - 1
        return range(self.address // page_size, last // page_size + 1)


class TranslationCache:
    """Translations of pages, of which the least recently used is replaced."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self._pages: OrderedDict[tuple[str, int], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def lookup(self, device: str, page: int) -> bool:
        """Return whether the translation of a device's page is there; from now on it is."""
        found = (device, page) in self._pages
        self._pages[device, page] = None
        self._pages.move_to_end((device, page))
        if len(self._pages) > self.entries:
            self._pages.popitem(last=False)
        return found


class RemappingUnit:
    """The IOMMU of a root, with the devices below it.

    ``page_size`` is that of its page table. A request that needs a walk waits for one of the
    ``walkers``.
    """

    def __init__(self, page_size: int, limits: IommuLimits, costs: Costs) -> None:
        self.page_size = page_size
        self.limits = limits
        self.hits = self.misses = self.ats_hits = self.ats_misses = 0
        self.waited = 0.0
        self._costs = costs
        self._cache = TranslationCache(limits.entries)
        self._of_device: dict[str, TranslationCache] = {}
        self._walks: list[float] = []

    @property
    def counts(self) -> TranslationCounts:
        """What was translated."""
        counts = self.hits, self.misses, self.ats_hits, self.ats_misses
        return TranslationCounts(*counts, self.waited)

    def translate(self, access: DeviceAccess, now: float) -> float:
        """Translate the requests of an access from ``now`` on; return when all are translated.

        The first request to a page is a miss if it is not in the cache, the others are hits.
        """
        end, misses = now, 0
        for page in access.pages(self.page_size):
            missed = not self._cache.lookup(access.device, page)
            misses += missed
            time = self._walk(now) if missed else now + self._costs.translation_hit
            end = max(end, time)
        self.misses += misses
        self.hits += max(access.requests - misses, 0)
        return end

    def translate_by_ats(self, access: DeviceAccess, now: float, round_trip: float) -> float:
        """Translate the requests of a device that keeps translations: PCIe Base 6.0, chapter 10.

        For a page that it does not have, it asks the IOMMU, ``round_trip`` ns away.
        """
        device = access.device
        cache = self._of_device.setdefault(device, TranslationCache(self.limits.ats_entries))
        end, misses = now, 0
        for page in access.pages(self.page_size):
            if not cache.lookup(device, page):
                misses += 1
                asked = DeviceAccess(device, page * self.page_size, 1, 1)
                end = max(end, self.translate(asked, now) + round_trip)
        self.ats_misses += misses
        self.ats_hits += max(access.requests - misses, 0)
        return end

    def _walk(self, now: float) -> float:
        """Return when a walk ends: it begins when one of the walkers is free."""
        start = now
        if len(self._walks) >= self.limits.walkers:
            start = max(now, heappop(self._walks))
        end = start + self._costs.translation_latency
        heappush(self._walks, end)
        return end
