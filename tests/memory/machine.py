"""A host with an adapter, for tests."""

from rdmawire.memory.address_space import AddressSpace, HostMemory
from rdmawire.memory.key import Access, ProtectionDomain
from rdmawire.memory.mr_table import Limits, MemoryRegionTable
from rdmawire.memory.page import PAGE_4K
from rdmawire.memory.region import Region

FULL = (
    Access.LOCAL_WRITE
    | Access.REMOTE_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
)


class Machine:
    """An address space, an adapter's registrar and one protection domain."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.space = AddressSpace()
        self.registrar = MemoryRegionTable(self.space, limits)
        self.keys = self.registrar.keys
        self.pd = ProtectionDomain(1)

    def region(
        self, size: int = 4 * PAGE_4K, access: int = FULL, page_size: int = PAGE_4K
    ) -> tuple[HostMemory, Region]:
        """Memory of ``size`` bytes, all of it registered."""
        memory = self.space.allocate(size, page_size)
        return memory, self.registrar.reg_mr(self.pd, memory.base, size, access)
