"""Hosts: memory, an adapter that reaches it, and what a test or an example needs of both."""

from typing import Final

from rdmawire.memory.access import Access
from rdmawire.memory.page import PAGE_4K
from rdmawire.memory.region import Region
from rdmawire.memory.space import AddressSpace
from rdmawire.memory.window import HostMemory
from rdmawire.nic.address import AddressHandle, mapped
from rdmawire.nic.attribute import QPAttributes, QPAttrMask
from rdmawire.nic.engine import Nic
from rdmawire.nic.profile import IBTA, Profile
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.state import QPState
from rdmawire.nic.transition import QP_TRANSITIONS
from rdmawire.nic.work import Sge

ALL_ACCESS: Final = (
    Access.LOCAL_WRITE
    | Access.REMOTE_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
    | Access.FLUSH_GLOBAL
    | Access.FLUSH_PERSISTENT
)
_WAY_UP: Final = (QPState.INIT, QPState.RTR, QPState.RTS)


class Buffer:
    """Registered memory of a host, by octets from its start."""

    def __init__(self, memory: HostMemory, region: Region) -> None:
        self.memory = memory
        self.region = region

    @property
    def address(self) -> int:
        """Where it begins."""
        return self.region.iova

    @property
    def rkey(self) -> int:
        """The key for peers."""
        return self.region.rkey

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """What stands there now: up to the end, if no length is given."""
        size = self.region.length - offset if length is None else length
        return self.memory.read(self.region.address + offset, size)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Put octets there, as an application does."""
        self.memory.write(self.region.address + offset, data)

    def sge(self, length: int | None = None, offset: int = 0) -> Sge:
        """The piece of local memory that work requests name."""
        size = self.region.length - offset if length is None else length
        return Sge(self.address + offset, size, self.region.lkey)


class Host:
    """One machine with one adapter; ``number`` (1 to 254) makes its addresses.

    They are 02:00:00:00:00:01 and 10.0.0.1, or fd00::1 with ``ipv6``.
    """

    def __init__(self, number: int = 1, *, profile: Profile = IBTA, ipv6: bool = False) -> None:
        self.mac = bytes((2, 0, 0, 0, 0, number))
        ipv4 = mapped(bytes((10, 0, 0, number)))
        self.gid = bytes((0xFD, *bytes(14), number)) if ipv6 else ipv4
        self.space = AddressSpace()
        self.nic = Nic(self.mac, [self.gid], self.space, profile=profile)
        self.pd = self.nic.alloc_pd()

    def buffer(self, size: int, access: int = ALL_ACCESS, page_size: int = PAGE_4K) -> Buffer:
        """New memory of so many octets, all registered, with nothing mapped around it."""
        memory = self.space.allocate(size, page_size)
        return Buffer(memory, self.nic.memory.reg_mr(self.pd, memory.base, size, access))

    def filled(self, data: bytes) -> Buffer:
        """A buffer that holds these octets."""
        buffer = self.buffer(max(len(data), 1))
        buffer.write(data)
        return buffer

    def path_to(self, other: "Host") -> AddressHandle:
        """How packets get to another host on the same link, or to this one."""
        return AddressHandle(other.mac, other.gid, self.gid)

    def bring_up(self, qp: QueuePair, attributes: QPAttributes) -> None:
        """From RESET to RTS, with those of the attributes that each step needs."""
        for state in _WAY_UP:
            needed = QP_TRANSITIONS[qp.type, qp.state, state].required
            wanted = attributes._replace(qp_state=state)
            self.nic.modify_qp(qp, wanted, needed | QPAttrMask.STATE)
