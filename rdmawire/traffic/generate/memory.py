"""Memory for traffic: a page of random octets that stands for as many octets as are asked for.

A region is a list of pages, and nothing says that they differ. So a message of 2 GiB costs one
page, and what it carries is that page again and again.
"""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from rdmawire.fabric.host import ALL_ACCESS, Host
from rdmawire.memory.backing import PageList
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.profile import H200
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import Region
from rdmawire.memory.registrar import Extent

PAGE: Final = PAGE_64K


class Pages(NamedTuple):
    """Pages next to each other: where, and at what bus addresses."""

    address: int
    bus: tuple[int, ...]


class _Lent(PageList):
    """Pages that stay pinned, so that views of them may be kept, a GPU's too."""

    lends_devices = True


def host_memory(host: Host) -> Callable[[int, bytes], Pages]:
    """What gives pages of a host's memory, with these octets at their start."""

    def allocate(count: int, octets: bytes) -> Pages:
        memory = host.space.allocate(count * PAGE)
        memory.write(memory.base, octets)
        return Pages(memory.base, tuple(range(memory.base, memory.base + count * PAGE, PAGE)))

    return allocate


def gpu_memory(host: Host) -> Callable[[int, bytes], Pages]:
    """What gives pages of a GPU's memory, pinned behind its BAR1."""
    driver = GpuDriver(host.space)
    gpu = driver.add(H200)

    def allocate(count: int, octets: bytes) -> Pages:
        address = gpu.allocate(count * PAGE).address
        gpu.write(address, octets)
        return Pages(address, driver.get_pages_persistent(address, count * PAGE).addresses)

    return allocate


class Store:
    """The memory of one host. ``source`` is sent from, ``sink`` placed in; ``words`` are counters.

    The first two have room for ``longest`` octets, the last for ``words`` times eight.
    """

    def __init__(self, host: Host, *, longest: int, words: int, gpu: bool, random: Random) -> None:
        self._host = host
        allocate = gpu_memory(host) if gpu else host_memory(host)
        times = max(-(-longest // PAGE), 1)
        self.source = self._register(allocate(1, random.randbytes(PAGE)), times)
        self.sink = self._register(allocate(1, b"\0"), times)
        octets = random.randbytes(8 * words)
        self.words = self._register(allocate(max(-(-len(octets) // PAGE), 1), octets), 1)

    def _register(self, pages: Pages, times: int) -> Region:
        """The pages, one time after the other."""
        bus, host = pages.bus * times, self._host
        extent = Extent(pages.address, pages.address, len(bus) * PAGE)
        return host.nic.memory.register(
            host.pd, extent, ALL_ACCESS, lambda: _Lent(host.space, pages.address, bus, PAGE)
        )
