"""The verbs of one adapter: create, change, query and post. IBA 11.2 to 11.4.

Names and errors are those of libibverbs' functions. An error is a ``VerbsError`` with their errno;
nothing was changed then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from errno import EBUSY, EINVAL, ENOMEM, EOPNOTSUPP
from functools import partial

from rdmawire.errors import VerbsError
from rdmawire.ib.congestion.base import SCHEME, CongestionController
from rdmawire.ib.congestion.dcqcn import CNP_INTERVAL, NotificationPoint
from rdmawire.ib.device import GSI_QPN, Device, qpns
from rdmawire.ib.doorbell import Doorbells, MemoryCompletionQueue, completion_memory, work_rings
from rdmawire.ib.encapsulation import check_medium, init_ah_from_wc
from rdmawire.ib.flow_steering import FlowRule
from rdmawire.ib.hw_counters import AdapterCounters
from rdmawire.ib.modify_qp import modify
from rdmawire.ib.path_migration import migrate, selects_alternate
from rdmawire.ib.port import Port, check_lid, checked_gids
from rdmawire.ib.post_checks import (
    check_cq,
    check_init,
    check_qp,
    check_receiver,
    check_recv,
    check_send,
    check_srq,
)
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.rx_parser import Drop, NativeRxParser, RxParser
from rdmawire.ib.scheduler import govern
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.identifier import Count, Randomness
from rdmawire.memory.address_space import AddressSpace, DoorbellPage
from rdmawire.memory.key import ProtectionDomain
from rdmawire.memory.mr_table import AllocatedPD, MemoryRegionTable, PeerMemory
from rdmawire.memory.page import PAGE_4K
from rdmawire.terminal import describe, plural
from rdmawire.validate import (
    as_bytes,
    check_bytes,
    check_int,
    check_methods,
    check_type,
    iterate,
)
from rdmawire.verbs.ah import MAC_BYTES, AddressHandle
from rdmawire.verbs.async_event import (
    AsyncChannel,
    CQError,
    QPFatal,
    QueueEvent,
    SRQLimitReached,
)
from rdmawire.verbs.cq import CompChannel, CompletionQueue
from rdmawire.verbs.engine import Clock, one_thread_at_a_time
from rdmawire.verbs.enums import QPState, QPType, WorkCompletion
from rdmawire.verbs.multicast import MULTICAST_QPN, MulticastGroups
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, check_modify
from rdmawire.verbs.srq import SharedReceiveQueue, XRCReceiver
from rdmawire.verbs.wqe import Doorbell
from rdmawire.verbs.wr import RecvWR, SendWR, Sge
from rdmawire.wire.roce import Medium
from rdmawire.wire.serial import MAX_IN_FLIGHT

_MAX_PORT = 0xFFFF


@one_thread_at_a_time()
class Verbs(Port):
    """An adapter with one port, as applications use it.

    ``mac`` has six bytes, ``gids`` sixteen each; ``space`` is the memory that it accesses.
    ``profile`` has its limits and quirks, ``rules`` the handling of requests, responses and posted
    work. ``medium`` is what its link carries. On an InfiniBand link ``lid`` is the port's base LID,
    of 2 ** ``lmc`` LIDs, and ``mac`` is not used. ``source_port`` is the UDP source port of all
    packets, such as that of a socket: without it each flow has its own. Numbers of queue pairs and
    keys are counted up, or drawn from ``random`` if given. ``clock`` returns the time (ns) for
    verbs; ``None`` is the time of the last frame or timer. A simulator sets the clock of the ports
    attached to it.
    """

    def __init__(
        self,
        mac: bytes,
        gids: Sequence[bytes],
        space: AddressSpace,
        *,
        profile: Profile = IBTA,
        rules: Rules = STANDARD,
        medium: Medium = Medium.ETHERNET,
        lid: int = 0,
        lmc: int = 0,
        source_port: int | None = None,
        clients: Sequence[PeerMemory] = (),
        random: Randomness | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_bytes("mac", mac, MAC_BYTES)
        check_type("space", space, AddressSpace)
        check_type("profile", profile, Profile)
        check_type("rules", rules, Rules)
        check_type("medium", medium, Medium)
        check_lid(medium, lid, lmc)
        if source_port is not None:
            check_int("source_port", source_port, 0, _MAX_PORT)
        if random is not None:
            check_methods("random", random, "getrandbits")
        _check_clock(clock)
        self._gids = checked_gids(gids, profile)
        self.device = Device(
            mac,
            space,
            profile,
            rules,
            medium=medium,
            lid=lid,
            lmc=lmc,
            source_port=source_port,
            clients=clients,
            random=random,
            clock=clock,
        )
        self.groups = MulticastGroups(profile)
        make_parser = NativeRxParser if medium is Medium.INFINIBAND else RxParser
        self._rx_parser = make_parser(
            self._is_mine,
            self.device.drops,
            self._take_raw,
            medium=medium,
            opcodes=rules.opcodes,
            checks=rules.frame_checks,
            flush_twice=profile.flush_icrc_covers_headers_twice,
        )
        self.device.forget_routes = self._rx_parser.forget_routes
        self._flow_rules: list[FlowRule] = []
        self._sniffers: list[FlowRule] = []
        self._doorbells = Doorbells(self.device)
        self._numbers = qpns(random)
        self._handles = Count(1)
        self._up = True

    def __repr__(self) -> str:
        device, state = self.device, "up" if self._up else "down"
        counts = (
            plural(len(device.qps), "QP"),
            plural(len(device.cqs), "CQ"),
            plural(self.memory.region_count, "MR"),
        )
        name, mac = type(self).__name__, device.mac.hex(":")
        return f"<{name} {mac}: port {state}, {', '.join(counts)}, profile {device.profile.name}>"

    def __getstate__(self) -> dict[str, object]:
        """The state for a copy, without the thread inside."""
        return self.__dict__ | {"_thread": None}

    @property
    def clock(self) -> Clock | None:
        """Returns the time (ns) for verbs; ``None`` for the time of the last frame or timer."""
        return self.device.clock

    @clock.setter
    def clock(self, clock: Clock | None) -> None:
        _check_clock(clock)
        self.device.clock = clock

    @property
    def medium(self) -> Medium:
        """What frames begin with: an Ethernet header, an IP header, or an LRH."""
        return self.device.medium

    @property
    def memory(self) -> MemoryRegionTable:
        """Regions and windows: reg_mr, dereg_mr, alloc_mw and the rest."""
        return self.device.memory

    @property
    def drops(self) -> Counter[Drop]:
        """How many frames were dropped, by reason."""
        return self.device.drops

    @property
    def counters(self) -> AdapterCounters:
        """A copy of the present counters, with those of destroyed queue pairs."""
        return self.device.counters()

    # Device.

    def query_device(self) -> Profile:
        """Return the limits of the device, named as in ibv_device_attr. ibv_query_device(3)."""
        return self.device.profile

    # Protection domains, completion queues and shared receive queues.

    def alloc_pd(self) -> AllocatedPD:
        """Return a new protection domain. ibv_alloc_pd(3)."""
        return AllocatedPD(next(self._handles), self.memory)

    def dealloc_pd(self, pd: ProtectionDomain) -> None:
        """ibv_dealloc_pd(3). EBUSY while regions, windows or queues are in it."""
        self.memory.check_domain(pd)
        if pd.users:
            raise VerbsError(f"PD {pd.handle} is used by {pd.users} regions or queues", EBUSY)
        pd.adapter = _NO_ADAPTER

    def create_comp_channel(self) -> CompChannel:
        """Return a channel for the completion events of CQs. ibv_create_comp_channel(3)."""
        return CompChannel()

    def create_async_channel(self) -> AsyncChannel:
        """Return a channel for the asynchronous events of objects that are created with it.

        It gets the events of the port as well. In Linux, each context has one.
        """
        channel = AsyncChannel()
        self.device.async_channels.append(channel)
        return channel

    def destroy_async_channel(self, channel: AsyncChannel) -> None:
        """Destroy a channel. EBUSY while objects were created with it."""
        self._check_channel(channel)
        device = self.device
        channels = (
            *(qp.made_of.async_channel for qp in device.qps.values()),
            *(cq.async_channel for cq in device.cqs.values()),
            *(srq.async_channel for srq in device.srqs.values()),
        )
        if used := channels.count(channel):
            raise VerbsError(f"the channel is used by {plural(used, 'object')}", EBUSY)
        device.async_channels.remove(channel)

    def _check_channel(self, channel: AsyncChannel | None) -> None:
        if channel is not None and channel not in self.device.async_channels:
            raise VerbsError(f"{describe(channel)} is no channel of this adapter", EINVAL)

    def create_cq(
        self,
        cqe: int,
        channel: CompChannel | None = None,
        async_channel: AsyncChannel | None = None,
        *,
        cq_buffer: Sge | None = None,
        doorbell_record: Sge | None = None,
        make: Callable[..., CompletionQueue] = CompletionQueue,
    ) -> CompletionQueue:
        """Return a queue for ``cqe`` completions. ibv_create_cq(3).

        Completion events go to ``channel``, asynchronous events to ``async_channel``; without one,
        they go to :meth:`next_event`.

        With ``cq_buffer`` its elements are written to that memory (:mod:`rdmawire.verbs.wqe`), and
        its consumer writes its index to ``doorbell_record``. ``VerbsError`` EINVAL for one without
        the other, and for invalid memory.

        ``make`` makes another queue than a :class:`CompletionQueue`, with the same arguments.
        """
        device = self.device
        _check_room("completion queues", len(device.cqs), device.profile.max_cq)
        if channel is not None:
            check_type("channel", channel, CompChannel)
        self._check_channel(async_channel)
        if cq_buffer is not None or doorbell_record is not None:
            memory = completion_memory(device, cqe, cq_buffer, doorbell_record)
            make = partial(MemoryCompletionQueue, *memory)
        cq = make(
            next(self._handles),
            cqe,
            self._happened,
            profile=device.profile,
            channel=channel,
            async_channel=async_channel,
        )
        device.cqs[cq.number] = cq
        return cq

    def modify_cq(self, cq: CompletionQueue, cq_count: int, cq_period: int) -> None:
        """Report an event per ``cq_count`` completions, or ``cq_period`` ns. ibv_modify_cq(3)."""
        check_cq(self.device, cq)
        self.device.read_clock()
        cq.moderate(cq_count, cq_period, self.device.now)
        self.device.moderated[cq.number] = cq

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """ibv_destroy_cq(3). EBUSY while queue pairs use it."""
        check_cq(self.device, cq)
        cq.check_unused()
        cq.discard_events()
        del self.device.cqs[cq.number]
        self.device.moderated.pop(cq.number, None)

    def create_srq(
        self,
        pd: ProtectionDomain,
        max_wr: int,
        max_sge: int = 1,
        xrc: XRCReceiver | None = None,
        async_channel: AsyncChannel | None = None,
    ) -> SharedReceiveQueue:
        """Return a queue for ``max_wr`` receives of ``max_sge`` SGEs. ibv_create_srq(3).

        With ``xrc``, it is of type XRC (ibv_create_srq_ex(3)). Events go to ``async_channel``;
        without one, to :meth:`next_event`.
        """
        device = self.device
        _check_room("shared receive queues", len(device.srqs), device.profile.max_srq)
        self.memory.check_domain(pd)
        check_receiver(device, xrc)
        self._check_channel(async_channel)
        number = next(self._handles)
        srq = SharedReceiveQueue(
            number,
            pd,
            max_wr,
            max_sge,
            self._happened,
            profile=device.profile,
            xrc=xrc,
            async_channel=async_channel,
        )
        device.srqs[number] = srq
        srq.acquire()
        if xrc is not None:
            device.xrcds.enter(xrc.domain)
        return srq

    def destroy_srq(self, srq: SharedReceiveQueue) -> None:
        """ibv_destroy_srq(3). EBUSY while queue pairs receive from it."""
        check_srq(self.device, srq)
        srq.check_unused()
        del self.device.srqs[srq.number]
        srq.release()
        if srq.xrc is not None:
            self.device.xrcds.leave(srq.xrc.domain)

    def open_xrcd(self) -> int:
        """Return the number of a new XRC domain. ibv_open_xrcd(3), without a file to share it."""
        return self.device.xrcds.open(next(self._handles))

    def close_xrcd(self, domain: int) -> None:
        """ibv_close_xrcd(3). EBUSY while shared receive queues or targets are in it."""
        self.device.xrcds.close(domain)

    def init_ah_from_wc(self, wc: WorkCompletion, grh: bytes) -> AddressHandle:
        """Return the path back to the sender of a datagram. ibv_init_ah_from_wc(3).

        ``wc`` is the completion of its receive, ``grh`` the first 40 bytes of the receive's memory.
        Details and errors are those of :func:`rdmawire.ib.encapsulation.init_ah_from_wc`.
        """
        return init_ah_from_wc(wc, grh, self.gids)

    # Queue pairs.

    def create_qp(
        self,
        kind: QPType,
        wants: QPInit,
        qp_num: int | None = None,
        *,
        sq_buffer: Sge | None = None,
        rq_buffer: Sge | None = None,
        doorbell_record: Sge | None = None,
    ) -> QueuePair:
        """Return a queue pair in RESET. ibv_create_qp(3).

        ``qp_num`` sets the QPN, which no adapter allows: for frames with a given QPN. EBUSY if
        used.

        With ``sq_buffer`` or ``rq_buffer`` the queue is also filled from that memory, whose layout
        is in :mod:`rdmawire.verbs.wqe`: see :meth:`ring`. Its producer writes its index to
        ``doorbell_record``. EINVAL for invalid memory.
        """
        check_int("qp_type", kind, 0, max(QPType))
        services = self.device.rules.services
        if kind not in services:
            known = ", ".join(f"{known.name} ({known.value})" for known in services)
            raise VerbsError(f"qp_type {kind} is none of {known}", EOPNOTSUPP)
        if kind == QPType.RAW_PACKET and self.device.medium is not Medium.ETHERNET:
            medium = self.device.medium.value
            raise VerbsError(f"the link carries {medium}, no raw Ethernet packets", EOPNOTSUPP)
        if qp_num is not None:
            check_int("QPN", qp_num, GSI_QPN + 1, MULTICAST_QPN - 1)
            if qp_num in self.device.qps:
                raise VerbsError(f"QP {qp_num:#x} is in use", EBUSY)
        check_init(self.device, QPType(kind), wants)
        rings = work_rings(self.device, wants, sq_buffer, rq_buffer, doorbell_record)
        qp = self._new_qp(lambda: qp_num or self._unused_qpn(), QPType(kind), wants)
        self._doorbells.add(qp.qp_num, *rings)
        return qp

    def create_gsi_qp(self, wants: QPInit) -> QueuePair:
        """Return queue pair 1, in RESET; its Q_Key must be set to 0x80010000. IBA 10.2.4.3.

        ``VerbsError`` EBUSY if the port already has one.
        """
        if GSI_QPN in self.device.qps:
            raise VerbsError("QP 1 of the port is in use", EBUSY)
        check_init(self.device, QPType.UD, wants)
        return self._new_qp(lambda: GSI_QPN, QPType.UD, wants)

    def _new_qp(self, number: Callable[[], int], kind: QPType, wants: QPInit) -> QueuePair:
        device = self.device
        _check_room("queue pairs", len(device.qps), device.profile.max_qp)
        self._check_channel(wants.async_channel)
        qp = QueuePair(self, device, number(), kind, wants)
        device.qps[qp.qp_num] = qp
        qp.acquire()
        return qp

    def modify_qp(self, qp: QueuePair, attributes: QPAttributes, mask: QPAttrMask) -> None:
        """Change attributes, and with them the state. ibv_modify_qp(3), IBA 11.2.5.2."""
        check_qp(self.device, qp)
        draining = qp.state is QPState.SQD and qp.sq.under_way
        state = check_modify(
            qp.type, qp.state, attributes, mask, self.device.profile, draining=draining
        )
        bits = int(mask)
        if bits & _AV:
            check_medium(attributes.ah, self.device.medium)
        if bits & _ALT_PATH:
            check_medium(attributes.alt_ah, self.device.medium)
        over = bits & _PATH_MIG_STATE and selects_alternate(qp, attributes.path_mig_state)
        self.device.read_clock()
        modify(qp, attributes, mask, state)
        if over:
            migrate(qp)
        if state is QPState.RESET:
            self._doorbells.reset(qp.qp_num)
        self._rx_parser.forget_routes()

    def query_qp(self, qp: QueuePair) -> QPAttributes:
        """Return the present attributes. ibv_query_qp(3)."""
        check_qp(self.device, qp)
        draining = qp.state is QPState.SQD and qp.sq.under_way
        return qp.attributes._replace(
            qp_state=qp.state, cur_qp_state=qp.state, sq_draining=draining
        )

    def destroy_qp(self, qp: QueuePair) -> None:
        """ibv_destroy_qp(3): pending work never completes.

        EBUSY in a multicast group, while flows go to it, and while windows of type 2A are bound on
        it.
        """
        check_qp(self.device, qp)
        if self.has_flows(qp):
            raise VerbsError(f"QP {qp.qp_num:#x} has flows: destroy them first", EBUSY)
        if self.groups.holds(qp.qp_num):
            raise VerbsError(f"QP {qp.qp_num:#x} is attached to a multicast group", EBUSY)
        self.memory.check_unbound_from(qp.qp_num)
        self.memory.forget_qp(qp.qp_num)
        self._doorbells.remove(qp.qp_num)
        del self.device.qps[qp.qp_num]
        self.device.retired.add(qp.counters)
        qp.release()
        self.device.ready.pop(qp, None)
        self._rx_parser.forget_routes()

    def control_congestion(self, qp: QueuePair, scheme: CongestionController | None) -> None:
        """Control a queue pair's rate by ``scheme``; ``None`` sends at the rate of the link."""
        check_qp(self.device, qp)
        if scheme is not None:
            check_methods("scheme", scheme, *SCHEME)
        self.device.read_clock()
        govern(qp, scheme)

    def limit_in_flight(self, qp: QueuePair, packets: int | None) -> None:
        """Set the maximum number of unacknowledged request packets of a queue pair.

        ``packets`` is 1 to 2**23 - 1 (IBA 9.7.1); ``None`` restores the limit of the profile.
        ``VerbsError`` EINVAL for other numbers, and for services without acknowledgements.
        """
        check_qp(self.device, qp)
        if packets is None:
            packets = self.device.profile.packets_in_flight
        check_int("packets", packets, 1, MAX_IN_FLIGHT)
        if not qp.service.reliable:
            raise VerbsError(f"QP {qp.qp_num:#x} waits for no ACKs", EINVAL)
        qp.limit_in_flight(packets)
        qp.wake()

    def notify_congestion(
        self,
        qp: QueuePair,
        interval: int | None = CNP_INTERVAL,
        traffic_class: int | None = None,
    ) -> None:
        """Send at most one CNP per ``interval`` ns for marked packets; ``None`` sends none.

        CNPs have this traffic class (DSCP, and ECN in the two lowest bits), or the path's.
        """
        check_qp(self.device, qp)
        if interval is not None:
            check_int("interval", interval)
        if traffic_class is not None:
            check_int("traffic_class", traffic_class, 0, 0xFF)
        if interval is not None and not qp.service.connected:
            raise VerbsError(f"QP {qp.qp_num:#x} has no peer to notify of marks", EINVAL)
        qp.notifier = None if interval is None else NotificationPoint(qp, interval, traffic_class)

    # Work.

    def post_send(self, qp: QueuePair, work: SendWR | Iterable[SendWR]) -> None:
        """Queue one work request or several in order. ibv_post_send(3).

        ``VerbsError`` for the first that is refused; those before it are posted. In ERR or SQE work
        completes at once with an error.
        """
        check_qp(self.device, qp)
        self.device.read_clock()
        for wr in (work,) if isinstance(work, SendWR) else iterate("work", work):
            qp.enqueue_send(check_send(qp, wr))

    def post_recv(self, qp: QueuePair, work: RecvWR | Iterable[RecvWR]) -> None:
        """Queue one receive or several. ibv_post_recv(3); errors as for :meth:`post_send`."""
        check_qp(self.device, qp)
        self.device.read_clock()
        for wr in (work,) if isinstance(work, RecvWR) else iterate("work", work):
            qp.enqueue_recv(check_recv(qp, wr))

    def post_srq_recv(self, srq: SharedReceiveQueue, work: RecvWR | Iterable[RecvWR]) -> None:
        """Queue one receive or several for the queue pairs of ``srq``. ibv_post_srq_recv(3)."""
        check_srq(self.device, srq)
        srq.post_recv(work)

    def ring(self, doorbell: bytes) -> None:
        """Execute a doorbell: take work from a queue in memory, or arm a CQ.

        ``doorbell`` is a :class:`~rdmawire.verbs.wqe.Doorbell` as bytes. Invalid bytes there or in
        the queue's memory raise no error: they end work or a queue pair with an error, or are
        counted in ``doorbells_discarded``.
        """
        self.device.read_clock()
        self._doorbells.ring(as_bytes("doorbell", doorbell))

    def map_doorbells(self, base: int | None = None) -> DoorbellPage:
        """Map the adapter's doorbell page: 4 KiB at ``base``, or at a free address."""
        space = self.device.space
        base = space.free_address(PAGE_4K) if base is None else base
        page = DoorbellPage(base, self._store_doorbell)
        space.map(page)
        return page

    @property
    def doorbells_discarded(self) -> int:
        """Number of doorbells that named no queue which accepts work."""
        return self._doorbells.discarded

    # Internal callbacks.

    def _store_doorbell(self, offset: int, data: bytes) -> None:
        """Ring, at any address of the page that is a multiple of 8."""
        self.ring(b"" if offset % Doorbell.SIZE else data)

    def _happened(self, event: QueueEvent) -> None:
        """Deliver an event of a CQ or SRQ; a queue pair that lost a completion goes to ERR."""
        device = self.device
        if isinstance(event, QPFatal):
            qp = device.qps[event.qp]
            qp.events.append(event)
            qp.fail()
            return
        channel: AsyncChannel | None = None
        if isinstance(event, CQError):
            channel = device.cqs[event.cq].async_channel
        elif isinstance(event, SRQLimitReached):
            channel = device.srqs[event.srq].async_channel
        (channel or device).events.append(event)

    def _unused_qpn(self) -> int:
        return self._numbers.unused(self.device.qps.__contains__)


def _check_clock(clock: Clock | None) -> None:
    if clock is not None:
        check_methods("clock", clock, "__call__")


# As numbers: an operation of a flag takes much longer.
_AV = QPAttrMask.AV.value
_ALT_PATH = QPAttrMask.ALT_PATH.value
_PATH_MIG_STATE = QPAttrMask.PATH_MIG_STATE.value

_NO_ADAPTER = object()
"""Owner of a deallocated protection domain."""


def _check_room(what: str, found: int, most: int) -> None:
    if found >= most:
        raise VerbsError(f"{found} {what} are all that there may be", ENOMEM)
