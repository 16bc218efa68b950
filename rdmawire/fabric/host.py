"""Hosts: memory, an adapter that reaches it, and what a test or an example needs of both."""

from errno import EINVAL
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol, Self

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.identifier import Randomness
from rdmawire.memory.access import Access
from rdmawire.memory.address_space import AddressSpace, HostMemory
from rdmawire.memory.argument import check_kind, check_number, length_of
from rdmawire.memory.page import PAGE_4K, Octets
from rdmawire.memory.region import Region
from rdmawire.verbs.ah import AddressHandle, mapped
from rdmawire.verbs.async_event import Event
from rdmawire.verbs.enums import QPState
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, Needs, QPAttributes, QPAttrMask
from rdmawire.verbs.wr import Sge
from rdmawire.wire.address import mac_octets

ALL_ACCESS: Final = (
    Access.LOCAL_WRITE
    | Access.REMOTE_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
    | Access.FLUSH_GLOBAL
    | Access.FLUSH_PERSISTENT
)
_IPV4_OCTETS: Final = 4
_MOST_HOSTS: Final = 254
_WAY_UP: Final = (QPState.INIT, QPState.RTR, QPState.RTS)


class Memory(Protocol):
    """Octets by address: a host's window, or a GPU."""

    def read(self, address: int, length: int) -> bytes: ...

    def write(self, address: int, data: Octets) -> None: ...


class Registered:
    """A region and the memory behind it, by octets from its start.

    Any region may be had so: ``Registered(gpu, region)`` is a GPU's, as its kernels see it.
    """

    def __init__(self, memory: Memory, region: Region) -> None:
        self.memory = memory
        self.region = region

    def __repr__(self) -> str:
        place = f"{self.region.length} octets at {self.address:#x}"
        return f"<{type(self).__name__}: {place}, rkey {self.rkey:#x}>"

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
        check_kind("offset", offset, int)
        size = self.region.length - offset if length is None else length
        return self.memory.read(self._place(offset, size), size)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Put octets there, as an application does."""
        check_kind("offset", offset, int)
        self.memory.write(self._place(offset, length_of(data)), data)

    def _place(self, offset: int, length: int) -> int:
        """The address of octets of it; ``MemoryFault`` for others."""
        check_kind("length", length, int)
        address = self.region.address + offset
        if min(offset, length) < 0 or offset + length > self.region.length:
            raise MemoryFault(f"outside the {self.region.length} octets", address, length)
        return address

    def sge(self, length: int | None = None, offset: int = 0) -> Sge:
        """The piece of local memory that work requests name."""
        size = self.region.length - offset if length is None else length
        return Sge(self.address + offset, size, self.region.lkey)


class Buffer(Registered):
    """Registered memory of a host."""

    memory: HostMemory


class Place(NamedTuple):
    """Where a host is found: an Ethernet address of 6 octets, and a GID of 16."""

    mac: bytes
    gid: bytes

    @classmethod
    def of(cls, mac: str, address: str) -> Self:
        """From text: ``0c:c4:7a:00:00:01``, and ``192.168.1.10`` or ``fd00::10``.

        ``VerbsError`` EINVAL for what is no such address.
        """
        check_kind("mac", mac, str)
        check_kind("address", address, str)
        try:
            octets, packed = mac_octets(mac), ip_address(address).packed
        except ValueError as error:
            raise VerbsError(str(error), EINVAL) from error
        return cls(octets, mapped(packed) if len(packed) == _IPV4_OCTETS else packed)

    @classmethod
    def numbered(cls, number: int, *, ipv6: bool = False) -> Self:
        """02:00:00:00:00:01 and 10.0.0.1 for number 1, or fd00::1 with ``ipv6``; up to 254.

        ``VerbsError`` EINVAL for other numbers.
        """
        check_number("host number", number, 1, _MOST_HOSTS)
        address = f"fd00::{number:x}" if ipv6 else f"10.0.0.{number}"
        return cls.of(f"02:00:00:00:00:{number:02x}", address)


class Host:
    """One machine with one adapter; ``number`` (1 to 254) makes its place, if that is not given.

    Numbers of queue pairs and keys are drawn from ``random`` where it is given, as :class:`Nic`
    has it.
    """

    def __init__(
        self,
        number: int = 1,
        *,
        profile: Profile = IBTA,
        rules: Rules = STANDARD,
        ipv6: bool = False,
        place: Place | None = None,
        random: Randomness | None = None,
    ) -> None:
        if place is None:
            place = Place.numbered(number, ipv6=ipv6)
        check_kind("place", place, Place)
        self.mac, self.gid = place
        self.space = AddressSpace()
        self.nic = Nic(
            self.mac, [self.gid], self.space, profile=profile, rules=rules, random=random
        )
        self.pd = self.nic.alloc_pd()

    def buffer(self, size: int, access: int = ALL_ACCESS, page_size: int = PAGE_4K) -> Buffer:
        """New memory of so many octets, all registered, with nothing mapped around it."""
        memory = self.space.allocate(size, page_size)
        return Buffer(memory, self.nic.memory.reg_mr(self.pd, memory.base, size, access))

    def filled(self, data: bytes) -> Buffer:
        """A buffer that holds these octets."""
        buffer = self.buffer(max(length_of(data), 1))
        buffer.write(data)
        return buffer

    def path_to(self, other: "Host", traffic_class: int = 0) -> AddressHandle:
        """How packets get to another host on the same link, or to this one."""
        check_kind("other", other, Host)
        return AddressHandle(other.mac, other.gid, self.gid, traffic_class=traffic_class)

    def events(self) -> list[Event]:
        """What the adapter told unasked, and nobody took yet."""
        found = []
        while (event := self.nic.next_event()) is not None:
            found.append(event)
        return found

    def bring_up(self, qp: QueuePair, attributes: QPAttributes) -> None:
        """From RESET to RTS, with those of the attributes that each step needs.

        ``VerbsError`` EINVAL from another state, as :meth:`Nic.modify_qp` has it.
        """
        check_kind("qp", qp, QueuePair)
        check_kind("attributes", attributes, QPAttributes)
        for state in _WAY_UP:
            needed = QP_TRANSITIONS.get((qp.type, qp.state, state), Needs()).required
            wanted = attributes._replace(qp_state=state)
            self.nic.modify_qp(qp, wanted, needed | QPAttrMask.STATE)
