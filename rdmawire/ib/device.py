"""State shared by all queue pairs of one adapter. Times are in ns."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

from rdmawire.errors import raise_error
from rdmawire.ib.hw_counters import (
    ADAPTER_COUNTERS,
    DATA_UNIT,
    QP_COUNTERS,
    AdapterCounters,
    QPCounters,
)
from rdmawire.ib.rules import Rules
from rdmawire.ib.rx_parser import DAMAGED, NO_PACKET, Drop
from rdmawire.identifier import Counted, Drawn, Numbers, Randomness
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.mr_table import Limits, MemoryRegionTable, PeerMemory
from rdmawire.validate import check_time
from rdmawire.verbs.async_event import AsyncChannel, Event, PortEvent
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.engine import Clock
from rdmawire.verbs.multicast import MULTICAST_QPN
from rdmawire.verbs.profile import Profile
from rdmawire.verbs.srq import SharedReceiveQueue, XRCDomains
from rdmawire.verbs.timers import Timers, Waiter
from rdmawire.wire.roce import Medium


class HasCounters(Protocol):
    """The part of a queue pair that its device uses."""

    counters: QPCounters


Q = TypeVar("Q", bound=HasCounters)


class QPTimer(Waiter, Protocol[Q]):
    """A timer of one queue pair, from :mod:`rdmawire.ib.retransmit_timer`."""

    qp: Q


class RateControl(Protocol):
    """The congestion control of one queue pair, as the engine and the queue pair use it.

    ``deadline`` and ``place`` are those of :class:`rdmawire.verbs.timers.Waiter`. Times are in ns.
    """

    deadline: int | None
    place: int | None

    @property
    def scheme(self) -> object:
        """The congestion controller, or the one for a plain rate limit."""

    def transmit(self, frames: list[bytes], room: int) -> None:
        """Append frames that may be sent now, until there are ``room`` frames."""

    def acknowledged(self) -> None:
        """A response advanced the send queue."""

    def went_back(self) -> None:
        """Packets are being retransmitted."""

    def notified(self) -> None:
        """A CNP arrived."""

    def obey_limit(self) -> None:
        """Apply the queue pair's ``rate_limit``."""

    def due(self, now: int) -> None:
        """Act at the deadline."""

    def stop(self) -> None:
        """Remove the deadline."""


class LocalPeer(Protocol):
    """The peer of a queue pair in the same process: :mod:`rdmawire.ib.local_connection`."""

    def may_send(self, opcode: int) -> bool:
        """Whether work of this type may need no packets."""

    def send_posted(self) -> int:
        """Send posted work without packets, from the oldest on. Return how many messages."""


class Notifier(Protocol):
    """Sends CNPs for packets with the mark Congestion Experienced. IBA A17.9."""

    def marked(self) -> None:
        """A marked packet arrived."""

    def frame(self) -> bytes:
        """Return the CNP that is due."""


DEFAULT_PKEY = 0xFFFF
"""The default partition, as a full member. IBA 10.9.1.2."""
INVALID_PKEY = 0
"""Invalid: matches no P_Key. IBA 10.9.1.1."""


FULL_MEMBER = 1 << 15
"""The membership bit of a P_Key. IBA 10.9.1."""
GSI_QPN = 1
"""The queue pair of general services: datagrams about connections and more. IBA 3.9, 13.5.1."""
FIRST_QPN = 0x11
"""Queue pairs 0 and 1 are for management, and low numbers look like mistakes."""


def qpns(random: Randomness | None) -> Numbers:
    """The source of queue pair numbers: counted up, or drawn from ``random``."""
    if random is None:
        return Counted(FIRST_QPN, MULTICAST_QPN)
    return Drawn(random, 24, FIRST_QPN, MULTICAST_QPN)


def pkeys_match(own: int, other: int) -> bool:
    """Whether the numbers are equal, and one P_Key is a full member's. IBA 10.9.3.

    Number 0 is that of an invalid P_Key, which matches none.
    """
    number = own % FULL_MEMBER
    same = number != 0 and other % FULL_MEMBER == number
    return same and bool((own | other) & FULL_MEMBER)


class Device(Generic[Q]):
    """State that the queue pairs of one adapter share.

    - ``now`` is the time (ns) of the call in progress: of the frame or timer, or from ``clock``.
    - ``ready`` has queue pairs with frames to send, in the order in which they were added.
    - ``fetch_receives`` is called when a message finds no receive: it may queue some that the
      program posted before, and returns whether it did.
    - ``failed`` is called with an exception and the queue pair whose work raised it: other queue
      pairs go on after it. The default raises it.
    - ``forget_routes`` is called when a queue pair changed: those of each flow are looked up again.
    - ``rcv_packets`` and ``rcv_bytes`` count frames received while the link was up, ``rcv_raw``
      those that went to raw packet queue pairs; ``xmit_packets`` and ``xmit_bytes`` frames sent,
      ``xmit_discards`` those lost while the link was down.
    - ``events`` has the events of the port and of objects without a channel of their own,
      ``async_channels`` the channels.
    - ``retired`` has the sums of the counters of destroyed queue pairs.
    """

    # CPython is slower with the attributes of a class that has more than thirty, without slots.
    __slots__ = (
        "async_channels",
        "clock",
        "cqs",
        "drops",
        "events",
        "failed",
        "fetch_receives",
        "forget_routes",
        "governors",
        "keys",
        "lid",
        "link_downed",
        "lmc",
        "mac",
        "medium",
        "memory",
        "moderated",
        "now",
        "page_waits",
        "pkeys",
        "profile",
        "qps",
        "rcv_bytes",
        "rcv_packets",
        "rcv_raw",
        "ready",
        "retired",
        "rules",
        "source_port",
        "space",
        "srqs",
        "timers",
        "xmit_bytes",
        "xmit_discards",
        "xmit_packets",
        "xrcds",
    )

    def __init__(
        self,
        mac: bytes,
        space: AddressSpace,
        profile: Profile,
        rules: Rules,
        *,
        medium: Medium = Medium.ETHERNET,
        lid: int = 0,
        lmc: int = 0,
        source_port: int | None = None,
        clients: Sequence[PeerMemory] = (),
        random: Randomness | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.now = 0
        self.clock = clock
        self.mac = mac
        self.pkeys = [DEFAULT_PKEY]
        self.profile = profile
        self.rules = rules
        self.medium = medium
        self.lid = lid
        self.lmc = lmc
        self.source_port = source_port
        self.space = space
        limits = Limits(
            profile.max_mr,
            profile.max_mr_size,
            profile.max_mw,
            profile.max_fast_reg_pages,
            profile.window_type_2,
            page_fault_ns=profile.page_fault_ns,
        )
        self.memory = MemoryRegionTable(space, limits, clients, initiator=self, random=random)
        self.keys = self.memory.keys
        self.qps: dict[int, Q] = {}
        self.cqs: dict[int, CompletionQueue] = {}
        self.moderated: dict[int, CompletionQueue] = {}
        self.srqs: dict[int, SharedReceiveQueue] = {}
        self.xrcds = XRCDomains()
        self.events: deque[Event] = deque()
        self.async_channels: list[AsyncChannel] = []
        self.drops: Counter[Drop] = Counter()
        self.retired = QPCounters()
        self.rcv_packets: int = 0
        self.rcv_bytes: int = 0
        self.rcv_raw: int = 0
        self.xmit_packets: int = 0
        self.xmit_bytes: int = 0
        self.xmit_discards: int = 0
        self.link_downed: int = 0
        self.ready: dict[Q, None] = {}
        self.timers: Timers[QPTimer[Q]] = Timers()
        self.governors: Timers[RateControl] = Timers()
        self.page_waits: Timers[QPTimer[Q]] = Timers()
        self.fetch_receives: Callable[[], bool] = _none_to_fetch
        self.failed: Callable[[Exception, Q], None] = raise_error
        self.forget_routes: Callable[[], None] = _nothing_to_forget

    def read_clock(self) -> None:
        """Set ``now`` from ``clock``, if there is one: for verbs, which are called between frames.

        Time never goes back. ``VerbsError`` EINVAL if the clock does not return an integer.
        """
        if self.clock is None:
            return
        now = self.clock()
        if now.__class__ is not int:
            check_time(now)
        self.now = max(self.now, now)

    def report_port(self, event: PortEvent) -> None:
        """Report an event of the port to all channels, as Linux does to all contexts."""
        self.events.append(event)
        for channel in self.async_channels:
            channel.events.append(event)

    def counter(self, name: str) -> int:
        """Return one of :data:`ADAPTER_COUNTERS`. ``KeyError`` for other names."""
        if name not in QP_COUNTERS:
            return _OF_PORT[name](self)
        counted = (self.retired, *(qp.counters for qp in self.qps.values()))
        return sum(int(getattr(counters, name)) for counters in counted)

    def counters(self) -> AdapterCounters:
        """Return the present values of all counters."""
        return AdapterCounters(**{name: self.counter(name) for name in ADAPTER_COUNTERS})

    def pkey_index_of(self, pkey: int) -> int | None:
        """Index in the port's table of a P_Key that ``pkey`` matches, or ``None``.

        An entry equal to ``pkey`` is preferred.
        """
        if pkey in self.pkeys and pkeys_match(pkey, pkey):
            return self.pkeys.index(pkey)
        matching = (index for index, own in enumerate(self.pkeys) if pkeys_match(own, pkey))
        return next(matching, None)

    def pkey_at(self, index: int) -> int:
        """Return the P_Key at ``index`` of the port's table; 0, invalid, beyond its end."""
        return self.pkeys[index] if index < len(self.pkeys) else INVALID_PKEY


def _none_to_fetch() -> bool:
    return False


def _nothing_to_forget() -> None:
    """Do nothing: no frame has been received yet."""


_OF_PORT: Final[Mapping[str, Callable[[Device[Any]], int]]] = MappingProxyType(
    {
        "rx_icrc_encapsulated": lambda device: device.drops[Drop.ICRC],
        "rcvd_pkts": lambda device: (
            device.rcv_packets - device.rcv_raw - _dropped(device, NO_PACKET)
        ),
        "port_rcv_packets": lambda device: device.rcv_packets,
        "port_rcv_data": lambda device: device.rcv_bytes // DATA_UNIT,
        "port_rcv_errors": lambda device: _dropped(device, DAMAGED),
        "port_xmit_packets": lambda device: device.xmit_packets,
        "port_xmit_data": lambda device: device.xmit_bytes // DATA_UNIT,
        "port_xmit_discards": lambda device: device.xmit_discards,
        "link_downed": lambda device: device.link_downed,
    }
)
"""How the port's counters are computed, by their names."""


def _dropped(device: Device[Any], reasons: tuple[Drop, ...]) -> int:
    return sum(device.drops[reason] for reason in reasons)
