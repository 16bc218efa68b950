"""What differs between GPUs, as data."""

from typing import Final, NamedTuple

from rdmawire.memory.page import PAGE_64K

MIB: Final = 1 << 20


class GpuProfile(NamedTuple):
    """A model of GPU; sizes in bytes.

    ``page_size`` is that of page tables for peers: 4, 64 or 128 KiB. ``partitioned`` says MIG or
    vGPU, which have no persistent pages. ``max_visible_ns`` is the longest (ns) that what a peer
    wrote stays invisible to kernels where ``posts_writes``; ``None`` if only a flush or a read
    through BAR1 makes it visible. No vendor states a bound; the default is a few times what a write
    takes to cross PCIe.
    """

    name: str
    memory: int
    bar1: int
    compute_capability: tuple[int, int]
    bar1_reserved: int = MIB
    page_size: int = PAGE_64K
    partitioned: bool = False
    max_visible_ns: int | None = 5_000

    @property
    def posts_writes(self) -> bool:
        """Whether what a peer wrote needs a flush before kernels are sure to see it."""
        return self.compute_capability < (9, 0)


T4: Final = GpuProfile("T4", 15360 * MIB, 256 * MIB, (7, 5))
A100: Final = GpuProfile("A100", 81920 * MIB, 131072 * MIB, (8, 0))
H200: Final = GpuProfile("H200", 143771 * MIB, 262144 * MIB, (9, 0))
