"""Ends of connections on hosts, each with plain models of its queue pair.

A :class:`Station` is a host whose arena of memory has a model. A :class:`QueueEnd` is one of its
queue pairs: the state that it must have, the work posted to it (:class:`WorkModel`), and what it
must answer. The answers of a reliable connection of the profile ``ibta`` are those of
:class:`ResponderModel`; for other services, only the memory that a packet may change is known.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from rdmawire.fabric.host import Host
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.responder_model import ResponderModel
from rdmawire.fuzz.responder_state import Receive
from rdmawire.fuzz.setup import (
    AREAS,
    ARENA,
    FRESH_ARENA,
    RECEIVE_SLOT,
    RECEIVE_SLOTS,
    RECEIVES,
    WINDOW,
    Setup,
)
from rdmawire.fuzz.state_setup import ATTRIBUTES, PATH_MTU, RD_ATOMIC, RNR_TIMER
from rdmawire.fuzz.work_model import WorkModel
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, MemoryWindow, bind_window
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.srq import XRCReceiver

GUARD: Final = 64
SOURCE: Final = GUARD
"""Start of the bytes to send in local memory."""
SOURCE_SIZE: Final = 1024
SINKS: Final = SOURCE + SOURCE_SIZE + GUARD
"""Start of the slots for READ and atomic responses in local memory."""
SINK_SIZE: Final = 1024
SINK_SLOTS: Final = 4
LOCAL_SIZE: Final = SINKS + SINK_SIZE * SINK_SLOTS + GUARD
FRESH_LOCAL: Final = Random(2).randbytes(LOCAL_SIZE)  # noqa: S311  the same in all runs
CAP: Final = QPCap(16, 16, 1, 1, 256)
COMPLETIONS: Final = 256
_PORT: Final = 0xC000
_QP_ACCESS: Final = AREAS[0].access & ~Access.LOCAL_WRITE
_BASES: Final = {QPType.RC: 0, QPType.UC: 0x20, QPType.UD: 0x60}
_XRC_BASE: Final = 0xA0


@dataclass
class EventCounts:
    """Frames and completions of one host, counted for comparison with its counters."""

    received: int = 0
    received_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    receives: int = 0
    failed_receives: int = 0
    flushed_receives: int = 0
    failed_sends: int = 0
    flushed_sends: int = 0
    rnr_naks: int = 0
    sequence_naks: int = 0


class Station(Host):
    """A host with an arena of memory, and the model of that memory."""

    def __init__(self, number: int, profile: Profile, rules: Rules) -> None:
        super().__init__(number, profile=profile, rules=rules)
        self.profile = profile
        self.base = self.space.allocate(ARENA).base
        self.space.write(self.base, FRESH_ARENA)
        self.memory = bytearray(FRESH_ARENA)
        self.regions = [
            self.nic.memory.reg_mr(self.pd, self.base + area.start, area.length, area.access)
            for area in AREAS
        ]
        self.sink = self.nic.memory.reg_mr(
            self.pd, self.base + RECEIVES, RECEIVE_SLOT * RECEIVE_SLOTS, Access.LOCAL_WRITE
        )
        self.ends: list[QueueEnd] = []
        self.seen = EventCounts()

    def arena_bytes(self) -> bytes:
        """Return the bytes of the arena."""
        return self.space.read(self.base, ARENA)

    def register_again(self, area: int) -> None:
        """Deregister and register a region: it has another key then."""
        table, (start, length, access) = self.nic.memory, AREAS[area]
        table.dereg_mr(self.regions[area])
        self.regions[area] = table.reg_mr(self.pd, self.base + start, length, access)
        for end in self.ends:
            end.take_numbers()


@dataclass(eq=False)
class QueueEnd:
    """A queue pair of a station. ``psns`` are the first PSNs that it sends and expects."""

    station: Station
    qpn: int
    kind: QPType
    psns: tuple[int, int]
    receives: deque[Receive] = field(default_factory=deque)

    def __post_init__(self) -> None:
        nic = self.station.nic
        self.peer: QueueEnd
        self.send_cq = nic.create_cq(COMPLETIONS)
        self.recv_cq = nic.create_cq(COMPLETIONS)
        self.domain, self.srq = 0, None
        if self.kind is QPType.XRC_TGT:
            self.domain = nic.open_xrcd()
            receiver = XRCReceiver(self.domain, self.recv_cq)
            self.srq = nic.create_srq(self.station.pd, CAP.max_recv_wr, 1, receiver)
        self.base = _BASES.get(self.kind, _XRC_BASE)
        self.reliable = self.kind not in (QPType.UC, QPType.UD)
        self.posted_sends = self.posted_receives = 0
        self.responder: ResponderModel | None = None
        self._prepare_local()
        self.create()
        exact = self.kind is QPType.RC and self.station.profile is IBTA
        if exact:
            self.responder = self._model()
        self.station.ends.append(self)

    def _prepare_local(self) -> None:
        """Allocate and register memory to send from and for responses."""
        station = self.station
        table, space = station.nic.memory, station.space
        self.local_base = space.allocate(LOCAL_SIZE).base
        space.write(self.local_base, FRESH_LOCAL)
        self.local = bytearray(FRESH_LOCAL)
        self.source = table.reg_mr(station.pd, self.local_base + SOURCE, SOURCE_SIZE, 0)
        size = SINK_SIZE * SINK_SLOTS
        rights = int(Access.LOCAL_WRITE)
        self.sinks = table.reg_mr(station.pd, self.local_base + SINKS, size, rights)

    def _model(self) -> ResponderModel:
        setup = Setup(
            psn=self.psns[1], mtu=PATH_MTU, rd_atomic=RD_ATOMIC, rnr_timer=RNR_TIMER, access=True
        )
        return ResponderModel(setup, self.numbers, self.station.memory)

    def create(self) -> None:
        """Create the queue pair and its memory window."""
        station = self.station
        init = QPInit(station.pd, self.send_cq, self.recv_cq, CAP, xrc_domain=self.domain)
        self.qp: QueuePair = station.nic.create_qp(self.kind, init, self.qpn)
        self.window: MemoryWindow = station.nic.memory.alloc_mw(station.pd, 2)
        self.window_rkey = self.window.key
        bind_window(station.nic.memory.keys, self.window, station.regions[0], self.next_bind())
        self.forget()

    def destroy(self) -> None:
        """Destroy the window and the queue pair."""
        self.station.nic.memory.dealloc_mw(self.window)
        self.station.nic.destroy_qp(self.qp)

    def forget(self) -> None:
        """Model the state RESET: no work, no receives."""
        self.state = QPState.RESET
        self.work = WorkModel(self.psns[0], self.base, reliable=self.reliable)
        if self.srq is None:
            self.receives.clear()
        self.open_write = (0, 0)
        if self.responder is not None:
            self.responder.restart(self.psns[1])
            self.take_numbers()

    def next_bind(self) -> Bind:
        """Return the bind of the window with the next variant of its key."""
        key = self.window.key
        self.window_rkey = key & ~0xFF | (key + 1) & 0xFF
        address = self.station.base + WINDOW.start
        pd = self.station.pd
        return Bind(address, WINDOW.length, WINDOW.access, self.qpn, pd, self.window_rkey)

    @property
    def numbers(self) -> Numbers:
        """The QPN, addresses and keys that the peer needs."""
        vas = tuple(self.station.base + area.start for area in (*AREAS, WINDOW))
        keys = tuple(region.rkey for region in self.station.regions)
        return Numbers(self.qpn, vas, (*keys, self.window_rkey))

    def take_numbers(self) -> None:
        """Let the model of the responder know the present keys."""
        if self.responder is not None:
            self.responder.take_numbers(self.numbers)

    @property
    def headers(self) -> tuple[Any, ...]:
        """The headers before the BTH of frames from the peer."""
        path = self.peer.station.path_to(self.station)
        return headers_to(path, self.peer.station.mac, _PORT)

    @property
    def attributes(self) -> QPAttributes:
        """The attributes of the queue pair on its way to RTS."""
        return ATTRIBUTES._replace(
            sq_psn=self.psns[0],
            rq_psn=self.psns[1],
            qp_access_flags=_QP_ACCESS,
            ah=self.station.path_to(self.peer.station),
            dest_qp_num=self.peer.qpn,
        )

    def next_slot(self) -> int:
        """Return the start in the arena of the next receive."""
        return RECEIVES + self.posted_receives % RECEIVE_SLOTS * RECEIVE_SLOT

    def local_bytes(self) -> bytes:
        """Return the bytes of the local memory."""
        return self.station.space.read(self.local_base, LOCAL_SIZE)
