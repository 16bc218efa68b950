"""What all queue pairs of one adapter share."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rdmawire.ib.hw_counters import QPCounters
from rdmawire.ib.rules import Rules
from rdmawire.ib.rx_parser import Drop
from rdmawire.identifier import Randomness
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.mr_table import Limits, MemoryRegionTable, PeerMemory
from rdmawire.validate import check_time
from rdmawire.verbs.async_event import AsyncChannel, Event, PortEvent
from rdmawire.verbs.engine import Clock
from rdmawire.verbs.profile import Profile
from rdmawire.verbs.srq import XRCDomains
from rdmawire.verbs.timers import Timers
from rdmawire.wire.roce import Medium

if TYPE_CHECKING:
    from rdmawire.ib.congestion.pacer import Governor
    from rdmawire.ib.qp import QueuePair
    from rdmawire.ib.retransmit_timer import PageWait, RetryState
    from rdmawire.verbs.cq import CompletionQueue
    from rdmawire.verbs.srq import SharedReceiveQueue


DEFAULT_PKEY = 0xFFFF
"""The default partition, as a full member. IBA 10.9.1.2."""
INVALID_PKEY = 0
"""Of no partition: nothing matches it. IBA 10.9.1.1."""


FULL_MEMBER = 1 << 15
"""The membership bit of a P_Key. IBA 10.9.1."""
GSI_QPN = 1
"""The queue pair of general services: datagrams about connections and more. IBA 3.9, 13.5.1."""


def pkeys_match(own: int, other: int) -> bool:
    """P_Keys match if their numbers do, and one of them is a full member's. IBA 10.9.3.

    Number 0 is that of an invalid P_Key, which matches none.
    """
    number = own % FULL_MEMBER
    same = number != 0 and other % FULL_MEMBER == number
    return same and bool((own | other) & FULL_MEMBER)


class Device:
    """Keys, queue pairs by number, those ready to send, and timers.

    - ``now`` is the time (ns) of the call in progress: of the frame or timer, or from ``clock``.
    - ``ready`` has queue pairs in the order in which they had something to send.
    - ``forget_flows`` is called when addresses or queue pairs changed: what is known of flows is
      discarded.
    - ``rcv_packets`` and ``rcv_bytes`` count frames received while the link was up, ``rcv_raw``
      those that went to raw packet queue pairs; ``xmit_packets`` and ``xmit_bytes`` frames sent,
      ``xmit_discards`` those lost while the link was down.
    - ``events`` has the events of the port and of objects without a channel of their own,
      ``async_channels`` the channels.
    - ``retired`` has the sums of the counters of destroyed queue pairs.
    """

    def __init__(
        self,
        mac: bytes,
        space: AddressSpace,
        profile: Profile,
        rules: Rules,
        *,
        medium: Medium = Medium.ETHERNET,
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
        self.qps: dict[int, QueuePair] = {}
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
        self.ready: dict[QueuePair, None] = {}
        self.timers: Timers[RetryState] = Timers()
        self.governors: Timers[Governor] = Timers()
        self.page_waits: Timers[PageWait] = Timers()
        self.forget_flows: Callable[[], None] = _nothing_to_forget

    def read_clock(self) -> None:
        """Set ``now`` from ``clock``, if there is one: for verbs, which are called between frames.

        Time never goes back. ``VerbsError`` EINVAL if the clock returns no integer.
        """
        if self.clock is None:
            return
        now = self.clock()
        if now.__class__ is not int:
            check_time(now)
        self.now = max(self.now, now)

    def report_port(self, event: PortEvent) -> None:
        """Report an event of the port to all readers, as Linux does to all contexts."""
        self.events.append(event)
        for channel in self.async_channels:
            channel.events.append(event)

    def pkey_index_of(self, pkey: int) -> int | None:
        """Index in the port's table of a P_Key that ``pkey`` matches, or ``None``.

        An entry equal to ``pkey`` is preferred.
        """
        if pkey in self.pkeys and pkeys_match(pkey, pkey):
            return self.pkeys.index(pkey)
        matching = (index for index, own in enumerate(self.pkeys) if pkeys_match(own, pkey))
        return next(matching, None)

    def pkey_at(self, index: int) -> int:
        """The P_Key at this place of the port's table; 0, which is invalid, where none was put."""
        return self.pkeys[index] if index < len(self.pkeys) else INVALID_PKEY


def _nothing_to_forget() -> None:
    """No frame has come yet."""
