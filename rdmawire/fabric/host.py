"""Hosts: memory, an adapter that accesses it, and helpers for tests and examples."""

from collections.abc import Callable, Sequence
from errno import EINVAL
from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.ib.cm.event import CMEvent
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.identifier import Randomness
from rdmawire.memory.address_space import AddressSpace, HostMemory
from rdmawire.memory.key import Access
from rdmawire.memory.page import PAGE_4K
from rdmawire.memory.region import Region
from rdmawire.validate import BytesLike, InstanceOf, byte_count, check, check_int, check_type
from rdmawire.verbs.ah import AddressHandle, mapped
from rdmawire.verbs.async_event import Event
from rdmawire.verbs.engine import BURST, Clock, Engine
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, Needs, QPAttributes, QPAttrMask
from rdmawire.verbs.wr import Sge
from rdmawire.wire.inet import mac_bytes
from rdmawire.wire.roce import Medium

ALL_ACCESS: Final = (
    Access.LOCAL_WRITE
    | Access.REMOTE_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
    | Access.FLUSH_GLOBAL
    | Access.FLUSH_PERSISTENT
)
_IPV4_BYTES: Final = 4
_MAX_HOSTS: Final = 254
_WAY_UP: Final = (QPState.INIT, QPState.RTR, QPState.RTS)


class Memory(Protocol):
    """Bytes by address: a host's window, or a GPU."""

    def read(self, address: int, length: int) -> bytes: ...

    def write(self, address: int, data: BytesLike) -> None: ...


class Registered:
    """A memory region and its memory, addressed by offset in bytes.

    ``Registered(gpu, region)`` is a region in GPU memory, as kernels of the GPU see it.
    """

    def __init__(self, memory: Memory, region: Region) -> None:
        self.memory = memory
        self.region = region

    def __repr__(self) -> str:
        place = f"{self.region.length} bytes at {self.address:#x}"
        return f"<{type(self).__name__}: {place}, rkey {self.rkey:#x}>"

    @property
    def address(self) -> int:
        """Address of the first byte for work requests."""
        return self.region.iova

    @property
    def rkey(self) -> int:
        """Remote key of the region."""
        return self.region.rkey

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """Read ``length`` bytes at ``offset``; up to the end without a length."""
        check_type("offset", offset, int)
        size = self.region.length - offset if length is None else length
        return self.memory.read(self._place(offset, size), size)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Write bytes at ``offset``, as the application does."""
        check_type("offset", offset, int)
        self.memory.write(self._place(offset, byte_count(data)), data)

    def _place(self, offset: int, length: int) -> int:
        """Check a range. Return its address; ``MemoryFault`` if it is outside."""
        check_type("length", length, int)
        address = self.region.address + offset
        if min(offset, length) < 0 or offset + length > self.region.length:
            raise MemoryFault(f"outside the {self.region.length} bytes", address, length)
        return address

    def sge(self, length: int | None = None, offset: int = 0) -> Sge:
        """An SGE of ``length`` bytes at ``offset``; up to the end without a length."""
        size = self.region.length - offset if length is None else length
        return Sge(self.address + offset, size, self.region.lkey)


class Buffer(Registered):
    """Registered memory of a host."""

    memory: HostMemory


LMC: Final = 1
"""The LMC of a host's port on an InfiniBand link."""


class Place(NamedTuple):
    """Addresses of a host: a MAC address (6 bytes) and a GID (16 bytes)."""

    mac: bytes
    gid: bytes

    @classmethod
    def of(cls, mac: str, address: str) -> Self:
        """From text: ``0c:c4:7a:00:00:01``, and ``192.168.1.10`` or ``fd00::10``.

        ``VerbsError`` EINVAL for an invalid address.
        """
        check_type("mac", mac, str)
        check_type("address", address, str)
        try:
            data, packed = mac_bytes(mac), ip_address(address).packed
        except ValueError as error:
            raise VerbsError(str(error), EINVAL) from error
        return cls(data, mapped(packed) if len(packed) == _IPV4_BYTES else packed)

    @classmethod
    def numbered(cls, number: int, *, ipv6: bool = False) -> Self:
        """02:00:00:00:00:01 and 10.0.0.1 for number 1, or fd00::1 with ``ipv6``; up to 254.

        ``VerbsError`` EINVAL for other numbers.
        """
        check("host number", number, InstanceOf(int, but=(bool,)))
        check_int("host number", number, 1, _MAX_HOSTS)
        address = f"fd00::{number:x}" if ipv6 else f"10.0.0.{number}"
        return cls.of(f"02:00:00:00:00:{number:02x}", address)


class Host:
    """A host with one adapter. ``number`` (1 to 254) makes its addresses without a ``place``.

    The other arguments are those of :class:`Nic`. A simulator carries ``Medium.ETHERNET``, and
    ``Medium.INFINIBAND`` on links for it. With the latter the port has two LIDs, from ``number``
    times two on, and a GID of IPv6.
    """

    def __init__(
        self,
        number: int = 1,
        *,
        profile: Profile = IBTA,
        rules: Rules = STANDARD,
        ipv6: bool = False,
        place: Place | None = None,
        medium: Medium = Medium.ETHERNET,
        source_port: int | None = None,
        random: Randomness | None = None,
        clock: Clock | None = None,
    ) -> None:
        native = medium is Medium.INFINIBAND
        if place is None:
            place = Place.numbered(number, ipv6=ipv6 or native)
        check_type("place", place, Place)
        self.mac, self.gid = place
        self.space = AddressSpace()
        self.nic = Nic(
            self.mac,
            [self.gid],
            self.space,
            profile=profile,
            rules=rules,
            medium=medium,
            lid=number << LMC if native else 0,
            lmc=LMC if native else 0,
            source_port=source_port,
            random=random,
            clock=clock,
        )
        self.pd = self.nic.alloc_pd()

    def __repr__(self) -> str:
        address = IPv6Address(self.gid)
        return f"<{type(self).__name__} {address.ipv4_mapped or address}: {self.nic!r}>"

    @property
    def lids(self) -> range:
        """The LIDs of the port; none on a link without LIDs."""
        port = self.nic.query_port()
        return range(port.lid, port.lid + (1 << port.lmc) if port.lid else port.lid)

    def buffer(self, size: int, access: int = ALL_ACCESS, page_size: int = PAGE_4K) -> Buffer:
        """Allocate and register ``size`` bytes of memory, with unmapped addresses on both sides."""
        memory = self.space.allocate(size, page_size)
        return Buffer(memory, self.nic.memory.reg_mr(self.pd, memory.base, size, access))

    def filled(self, data: bytes) -> Buffer:
        """Allocate and register a buffer that contains ``data``."""
        buffer = self.buffer(max(byte_count(data), 1))
        buffer.write(data)
        return buffer

    def path_to(self, other: "Host", traffic_class: int = 0) -> AddressHandle:
        """Address handle for another host on the same link, or for this one."""
        check_type("other", other, Host)
        path = AddressHandle(other.mac, other.gid, self.gid, traffic_class=traffic_class)
        lid = other.nic.query_port().lid
        return path._replace(dlid=lid, is_global=False) if lid else path

    def events(self) -> list[Event]:
        """Remove and return the pending asynchronous events of the adapter."""
        found = []
        while (event := self.nic.next_event()) is not None:
            found.append(event)
        return found

    def bring_up(self, qp: QueuePair, attributes: QPAttributes) -> None:
        """Move a QP from RESET to RTS, with the attributes that each transition needs.

        ``VerbsError`` EINVAL in another state, as for :meth:`Nic.modify_qp`.
        """
        check_type("qp", qp, QueuePair)
        check_type("attributes", attributes, QPAttributes)
        for state in _WAY_UP:
            wanted = attributes._replace(qp_state=state)
            self.nic.modify_qp(qp, wanted, _needed(qp.type, qp.state, state))


@lru_cache(maxsize=64)
def _needed(kind: QPType, state: QPState, end: QPState) -> QPAttrMask:
    """The attributes of a transition, with the state."""
    return QP_TRANSITIONS.get((kind, state, end), Needs()).required | QPAttrMask.STATE


OnTaken: TypeAlias = Callable[[bytes, int], None]
"""Function called with a frame's bytes and the time (ns) after the frame was processed."""

OnEvent: TypeAlias = Callable[[Event | CMEvent], None]
"""Function called with each event."""


class NotifyingPort:
    """A port that calls its application for each event, at the time of the event.

    ``nic`` is the adapter, ``managed`` the adapter with its connection manager, if there is one.
    ``on_event`` is called with each event of both; it may post work. If it posts work on other
    hosts, it must wake them (:meth:`~rdmawire.fabric.network.Network.wake`). Functions in
    ``on_taken`` are called with each frame after it was processed and its events were delivered::

        port = NotifyingPort(host.nic, managed)
        port.on_event = lambda event: print(event)
        simulator.attach(port, host.mac, link)
    """

    def __init__(self, nic: Engine, managed: ManagedPort | None = None) -> None:
        self.nic = nic
        self.managed = managed
        self.on_event: OnEvent = _ignore
        self.on_taken: list[OnTaken] = []
        self._port: Engine | ManagedPort = nic if managed is None else managed

    @property
    def medium(self) -> Medium:
        """What the adapter's frames begin with."""
        return getattr(self.nic, "medium", Medium.ETHERNET)

    @property
    def clock(self) -> Clock | None:
        """The adapter's clock: returns the time (ns) for verbs."""
        return self.nic.clock

    @clock.setter
    def clock(self, clock: Clock | None) -> None:
        self.nic.clock = clock

    def receive(self, frame: bytes, now: int) -> None:
        """Receive one Ethernet frame, without its FCS."""
        self._port.receive(frame, now)
        self.deliver_events()
        for taken in self.on_taken:
            taken(frame, now)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Receive frames one by one, with the events of each."""
        check_type("frames", frames, Sequence)
        for frame in frames:
            self.receive(frame, now)

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        """Return the next frames to send, at most ``most``.

        Work that completes without frames may cause more work.
        """
        frames = self._port.transmit(now, most)
        while self.deliver_events() and not frames:
            frames = self._port.transmit(now, most)
        return frames

    @property
    def sends_more(self) -> bool:
        """Whether ``transmit`` may have more frames, before anything else happens."""
        return self.nic.sends_more

    def next_timer(self) -> int | None:
        """Time at which ``handle_timer`` is due (ns), if any. Changes no state."""
        return self._port.next_timer()

    def handle_timer(self, now: int) -> None:
        """Handle the timers that are due."""
        self._port.handle_timer(now)
        self.deliver_events()

    def deliver_events(self) -> bool:
        """Deliver all pending events. Return whether there were any."""
        event = first = self._next_event()
        while event is not None:
            self.on_event(event)
            event = self._next_event()
        return first is not None

    def _next_event(self) -> Event | CMEvent | None:
        event = self.nic.next_event()
        if event is None and self.managed is not None:
            return self.managed.next_event()
        return event


_LOOPBACK: Final = 547 // 2
"""Time (ns) of a packet that an adapter sends to itself: half of a read over PCIe.

Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018: 547 ns for a read of 64 bytes.
"""


class LoopbackPort(NotifyingPort):
    """A port whose frames to its own address ``mac`` do not leave the adapter.

    They are received ``delay`` ns after they were sent: ``call_at`` calls a function at a time
    (ns), and ``wake`` is called when the adapter may have more to send.
    """

    def __init__(
        self,
        nic: Engine,
        mac: bytes,
        call_at: Callable[[int, Callable[[], None]], object],
        wake: Callable[[], None],
        delay: int = _LOOPBACK,
    ) -> None:
        super().__init__(nic)
        self._mac = mac
        self._call_at = call_at
        self._wake = wake
        self._delay = delay

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        frames = super().transmit(now, most)
        own = [frame for frame in frames if frame.startswith(self._mac)]
        if not own:
            return frames
        arrival = now + self._delay
        for frame in own:
            self._call_at(arrival, partial(self._return, frame, arrival))
        return [frame for frame in frames if not frame.startswith(self._mac)]

    def _return(self, frame: bytes, now: int) -> None:
        self.receive(frame, now)
        self._wake()


def _ignore(_: Event | CMEvent) -> None:
    """Ignore the event: no listener is set."""
