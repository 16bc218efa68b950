"""A host with GPUs and an adapter, for tests."""

from collections.abc import Sequence
from random import Random

from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.dmabuf import DmaBufFiles
from rdmawire.memory.gpu.device import MIB, GpuProfile
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.peermem import Peermem
from rdmawire.memory.key import ProtectionDomain
from rdmawire.memory.mr_table import Limits, MemoryRegionTable, PeerMemory

SMALL = GpuProfile("small", 64 * MIB, 16 * MIB, (9, 0))
POSTING = SMALL._replace(name="posting", compute_capability=(8, 9))


class Node:
    """One GPU, one adapter; ``persistent`` is the mode of nvidia-peermem."""

    def __init__(
        self,
        profile: GpuProfile = SMALL,
        random: Random | None = None,
        *,
        persistent: bool = True,
    ) -> None:
        self.space = AddressSpace()
        self.driver = GpuDriver(self.space)
        self.gpu = self.driver.add(profile, random)
        self.clients: Sequence[PeerMemory] = [Peermem(self.driver, persistent=persistent)]
        self.registrar = MemoryRegionTable(self.space, Limits(), self.clients)
        self.keys = self.registrar.keys
        self.files = DmaBufFiles()
        self.pd = ProtectionDomain(1)
