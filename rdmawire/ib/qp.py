"""Queue pairs: the state of one end of a connection, completions, and the error state.

Three machines work on a queue pair and never call one another. The requester turns ``sq`` into
packets; the completer advances ``sq`` by responses; the responder executes the peer's requests,
with its state in ``inbound``. Shared parts are here: the path, completions in order, the timer, and
the transition into the error state, which ends all work with an error (IBA 10.3.1, 10.8.3.3).
ibv_modify_qp(3) is in :mod:`rdmawire.ib.modify_qp`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from rdmawire.ib.device import (
    GSI_QPN,
    Device,
    LocalPeer,
    Notifier,
    RateControl,
    pkeys_match,
)
from rdmawire.ib.encapsulation import PLAIN, Encapsulation, encapsulation_for, ends_on, headers_to
from rdmawire.ib.hw_counters import BY_SEND_STATUS, QPCounters
from rdmawire.ib.responder_state import NO_RECEIVE, ResponderContext
from rdmawire.ib.retransmit_timer import PageWait, RetryState
from rdmawire.ib.send_queue import SendQueue, Wqe
from rdmawire.ib.service import Fault
from rdmawire.ib.tx_template import ACKREQ, MAX_HEADS, TxTemplate
from rdmawire.memory.key import ProtectionDomain
from rdmawire.verbs.ah import AddressHandle, sender_port, udp_source_port
from rdmawire.verbs.async_event import (
    AccessViolation,
    AsyncChannel,
    InvalidRequest,
    LastWQEReached,
    QPFatal,
    SendQueueDrained,
)
from rdmawire.verbs.cq import CompletionQueue, Slots
from rdmawire.verbs.enums import (
    STATE_RULES,
    Answers,
    MigrationState,
    QPState,
    QPType,
    WCFlags,
    WCOpcode,
    WCStatus,
    WorkCompletion,
)
from rdmawire.verbs.profile import Bug
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.srq import SharedReceiveQueue
from rdmawire.verbs.wr import SIGNALED, RecvWR, SendWR
from rdmawire.wire import serial
from rdmawire.wire.ib import BTH
from rdmawire.wire.management import MTU
from rdmawire.wire.roce import Medium

_new = tuple.__new__

NOT_RECEIVED = tuple(WorkCompletion(0)[8:])
"""The fields of a completion behind ``qp_num``, where nothing was received."""
_MTU_BYTES = {int(mtu): mtu.bytes for mtu in MTU}

PATH_ATTRIBUTES = (
    QPAttrMask.AV
    | QPAttrMask.DEST_QPN
    | QPAttrMask.PKEY_INDEX
    | QPAttrMask.ALT_PATH
    | QPAttrMask.PATH_MIG_STATE
).value
"""Attributes that frames and their templates depend on."""

IN_XRC_DOMAINS = frozenset({QPType.XRC_TGT})
"""Types of queue pairs that are in an XRC domain. IBA A14; ibv_create_qp_ex(3)."""


class QPInit(NamedTuple):
    """The objects and limits of a new queue pair, as in ibv_qp_init_attr.

    ``signal_all`` completes all send work (``sq_sig_all``). ``xrc_domain`` is that of an XRC
    target, and ignored for other types. Asynchronous events go to ``async_channel``; without one,
    to ``next_event`` of the adapter.
    """

    pd: ProtectionDomain
    send_cq: CompletionQueue
    recv_cq: CompletionQueue
    cap: QPCap = QPCap()
    srq: SharedReceiveQueue | None = None
    signal_all: bool = False
    xrc_domain: int = 0
    async_channel: AsyncChannel | None = None


class QPVerbs(Protocol):
    """The verbs of an adapter that a queue pair offers as methods."""

    def post_send(self, qp: "QueuePair", work: SendWR | Iterable[SendWR]) -> None: ...

    def post_recv(self, qp: "QueuePair", work: RecvWR | Iterable[RecvWR]) -> None: ...

    def modify_qp(self, qp: "QueuePair", attributes: QPAttributes, mask: QPAttrMask) -> None: ...

    def query_qp(self, qp: "QueuePair") -> QPAttributes: ...


class _Sender(NamedTuple):
    """What the headers of a path have from its sender: MAC address, UDP port, link and LID."""

    mac: bytes
    port: int
    medium: Medium
    lid: int


@lru_cache(maxsize=64)
def _template(
    path: AddressHandle, sender: _Sender, encapsulation: Encapsulation | None, bth: BTH, twice: bool
) -> TxTemplate:
    """The template of a path, which queue pairs that are made again for it share."""
    mac, port, medium, lid = sender
    headers = headers_to(path, mac, port, encapsulation, medium=medium, lid=lid)
    return TxTemplate(headers, bth, flush_twice=twice)


Completed = Callable[[WCOpcode, int, WCStatus], None]


class QueuePair:
    """One queue pair. Times are in ns, lengths in bytes; ``mtu`` is the path's.

    ``pd`` is the domain of memory for sends and remote access, ``recv_pd`` that of receives: a
    shared receive queue has its own (IBA 10.2.9). ``halted`` prevents new work from starting, after
    an error whose work completes in order. ``counters`` are those of drivers:
    :mod:`rdmawire.ib.hw_counters`. ``responses_in_a_row``: bytes of responses minus bytes of
    requests, sent while both are pending. ``local`` is the peer to which messages may need no
    packets, if it is known. ``grants_credits`` says whether ACKs have credits. ``completed``, if
    it is set, is called with the operation, the length in bytes and the status of each work request
    that completes, signaled or not.
    """

    __slots__ = (
        "access",
        "ackreq",
        "ask_after",
        "attributes",
        "begins",
        "cap",
        "completed",
        "counters",
        "credit_limit",
        "dest_qp",
        "device",
        "drained",
        "established",
        "events",
        "governor",
        "grants_credits",
        "halted",
        "inbound",
        "local",
        "made_of",
        "max_dest_rd_atomic",
        "max_rd_atomic",
        "migrating",
        "min_rnr_timer",
        "mtu",
        "notifier",
        "packets_in_flight",
        "page_wait",
        "pd",
        "pkey",
        "post_checks",
        "qkey",
        "qp_num",
        "receive_flags",
        "recv_cq",
        "recv_pd",
        "recv_slots",
        "request_encapsulation",
        "request_template",
        "response_template",
        "responses_in_a_row",
        "retry_state",
        "rq",
        "send_cq",
        "send_slots",
        "sends",
        "service",
        "signal_all",
        "sq",
        "srq",
        "state",
        "state_rules",
        "takes_packets",
        "templates",
        "type",
        "unasked",
        "verb_table",
        "verbs",
        "watches",
        "ways_to_peer",
        "xrc_domain",
    )

    def __init__(
        self, verbs: QPVerbs, device: "Device[QueuePair]", qp_num: int, kind: QPType, init: QPInit
    ) -> None:
        self.verbs = verbs
        self.device = device
        self.qp_num = qp_num
        self.type = kind
        self.service = device.rules.services[kind]
        self.post_checks = device.rules.post_checks[kind]
        self.verb_table = device.rules.verbs
        self.made_of = init
        self.pd, self.send_cq, self.recv_cq, self.cap, self.srq, *_ = init
        self.signal_all, self.xrc_domain = init.signal_all, init.xrc_domain
        self.events = (init.async_channel or device).events
        own = device.profile.ignores_srq_pd
        self.recv_pd = self.pd if self.srq is None or own else self.srq.pd
        grh = kind is QPType.UD or device.profile.receives_have_grh
        self.receive_flags = WCFlags.GRH.value if grh else 0
        # Receives of shared receive queues, such as those of XRC targets, grant none: IBA 9.7.7.2.
        own_queue = self.service.receives and self.srq is None
        self.grants_credits = own_queue and device.profile.end_to_end_credits
        self.inbound = ResponderContext()
        self.request_encapsulation, self.migrating = PLAIN, False
        self.enter(QPState.RESET)
        self.attributes = QPAttributes(cap=init.cap)
        self.sq = SendQueue()
        self.rq: deque[RecvWR] = deque()
        self.send_slots = Slots(device.profile)
        self.recv_slots = Slots(device.profile)
        self.request_template = self.response_template = TxTemplate((), BTH())
        self.retry_state = RetryState(device, self, self.sq)
        self.page_wait = PageWait(device, self)
        self.governor: RateControl | None = None
        self.notifier: Notifier | None = None
        self.local: LocalPeer | None = None
        self.completed: Completed | None = None
        self.credit_limit: int | None = None
        self.ackreq = ACKREQ if self.service.reliable else 0
        self.halted = self.established = self.drained = False
        self.responses_in_a_row = 0
        self.counters = QPCounters()
        self.unasked = device.profile.packets_per_ack - 1
        self.limit_in_flight(
            device.profile.packets_in_flight if self.service.reliable else serial.MODULUS
        )
        self.take_attributes()

    def __repr__(self) -> str:
        waits = f"{len(self.sq)} sends, {len(self.rq)} receives"
        return f"<{self.type.name} QP {self.qp_num:#x} in {self.state.name}: {waits}>"

    @property
    def cnps(self) -> int:
        """Number of CNPs received."""
        return self.counters.rp_cnp_handled + self.counters.rp_cnp_ignored

    def acquire(self) -> None:
        """Register as a user of its protection domain, XRC domain and queues."""
        self.made_of.pd.acquire()
        if self.type in IN_XRC_DOMAINS:
            self.device.xrcds.enter(self.xrc_domain)
        for queue in self._queues():
            queue.qps.add(self.qp_num)

    def release(self) -> None:
        """Undo :meth:`acquire`, and stop all timers."""
        self.retry_state.stop()
        self.give_up_receive()
        self.page_wait.stop()
        self.govern(None)
        self.made_of.pd.release()
        if self.type in IN_XRC_DOMAINS:
            self.device.xrcds.leave(self.xrc_domain)
        for queue in self._queues():
            queue.qps.discard(self.qp_num)

    def govern(self, governor: RateControl | None) -> None:
        """Replace the rate control; with ``None`` the queue pair sends at the rate of the link."""
        if self.governor is not None:
            self.governor.stop()
        self.governor = governor

    def _queues(self) -> Iterator[CompletionQueue | SharedReceiveQueue]:
        """The queues it was created with; requests to an XRC target name other SRQs."""
        _, send_cq, recv_cq, _, srq, *_ = self.made_of
        return (queue for queue in (send_cq, recv_cq, srq) if queue is not None)

    # State, and attributes in the form that packets need.

    def enter(self, state: QPState) -> None:
        """Enter a state, and apply its row of :data:`STATE_RULES`."""
        self.state = state
        self.state_rules = conduct = STATE_RULES[state]
        self.takes_packets, self.sends, self.begins = conduct.packets, conduct.send, conduct.begin
        self._choose_watch()
        if conduct.answers is not Answers.ALL:
            self.inbound.fall_silent(final=conduct.answers is Answers.FINAL)

    def _choose_watch(self) -> None:
        """Set ``watches``: whether the engine must examine the path or arrival of each packet."""
        plain = self.request_encapsulation is PLAIN
        self.watches = self.migrating or self.state is QPState.RTR or not plain

    def take_attributes(self, changed: int = PATH_ATTRIBUTES) -> None:
        """Unpack the attributes that every packet needs; ``changed`` is a mask of the new ones."""
        now = self.attributes
        self.cap = now.cap
        path_mtu = now.path_mtu if self.service.connected else self.device.profile.max_mtu
        self.mtu = self.service.frame or _MTU_BYTES[path_mtu]
        self.access = int(now.qp_access_flags)
        self.qkey = now.qkey
        self.retry_state.set_limits(now)
        self.min_rnr_timer = now.min_rnr_timer
        self.max_rd_atomic = now.max_rd_atomic
        self.max_dest_rd_atomic = now.max_dest_rd_atomic
        if changed & PATH_ATTRIBUTES or self.state is QPState.RESET:
            self._take_path()

    def _take_path(self) -> None:
        """Unpack the attributes :data:`PATH_ATTRIBUTES`, and make the templates of frames."""
        now = self.attributes
        self.dest_qp = now.dest_qp_num
        self.pkey = self.device.pkey_at(now.pkey_index)
        self.templates: dict[tuple[AddressHandle, int, int | None], TxTemplate] = {}
        if now.ah is not None:
            self.request_template = self._template_of(now.ah, now.dest_qp_num)
        self._take_encapsulation()
        migrates = self.device.profile.migrates
        self.migrating = migrates and now.path_mig_state != MigrationState.MIGRATED
        self._choose_watch()
        handles = (now.ah, now.alt_ah if self.migrating else None)
        medium, lid = self.device.medium, self.device.lid
        self.ways_to_peer = {ends_on(path, medium, lid) for path in handles if path is not None}

    def answer_in(self, request: Encapsulation) -> None:
        """Send responses in the newest request's encapsulation, where the path sets none."""
        if request == self.request_encapsulation:
            return
        self.request_encapsulation = request
        self._take_encapsulation()
        self._choose_watch()

    def _take_encapsulation(self) -> None:
        """Make the template of responses for the newest request's encapsulation."""
        now, request = self.attributes, self.request_encapsulation
        self.response_template = self.request_template
        if now.ah is not None and request is not PLAIN:
            encapsulation = encapsulation_for(now.ah, request)
            self.response_template = self._template_of(now.ah, now.dest_qp_num, encapsulation)

    def _template_of(
        self,
        handle: AddressHandle,
        dest_qp: int,
        encapsulation: Encapsulation | None = None,
        *,
        pkey: int | None = None,
    ) -> TxTemplate:
        device = self.device
        migrated = self.attributes.path_mig_state == MigrationState.MIGRATED
        migreq = migrated and device.profile.migrates
        port = self.source_port(handle, dest_qp)
        sender = _Sender(device.mac, port, device.medium, device.lid)
        bth = BTH(destqp=dest_qp, pkey=self.pkey if pkey is None else pkey, migreq=int(migreq))
        twice = device.profile.flush_icrc_covers_headers_twice
        return _template(handle, sender, encapsulation, bth, twice)

    def source_port(self, handle: AddressHandle, dest_qp: int) -> int:
        """The UDP source port of the packets to a queue pair on a path. IBA A17."""
        if self.device.source_port is not None:
            return self.device.source_port
        if self.device.profile.ports_by_qpn and not self.service.connected:
            return sender_port(self.qp_num)
        return udp_source_port(handle.flow_label, self.qp_num, dest_qp)

    def set_migration(self, state: MigrationState) -> None:
        """Set the path migration state. IBA 17.2.8."""
        self.attributes = self.attributes._replace(path_mig_state=state)
        self.take_attributes()
        self.device.forget_routes()

    def template_for(self, wr: SendWR) -> TxTemplate:
        """The template of the connection, or of the path in a datagram's work request."""
        if self.service.connected or wr.ah is None:
            return self.request_template
        key = (wr.ah, wr.remote_qpn, wr.pkey_index)
        if key not in self.templates:
            if len(self.templates) >= MAX_HEADS:
                self.templates.clear()
            index = wr.pkey_index
            pkey = self.pkey if index is None else self.device.pkey_at(index)
            self.templates[key] = self._template_of(wr.ah, wr.remote_qpn, pkey=pkey)
        return self.templates[key]

    def pkey_index_of(self, pkey: int) -> int | None:
        """Index, in the port's table, of the P_Key that ``pkey`` of a packet matches, or ``None``.

        Queue pair 1 compares the complete table, others their own P_Key. IBA 10.9.4.
        """
        if self.qp_num == GSI_QPN:
            return self.device.pkey_index_of(pkey)
        return self.attributes.pkey_index if pkeys_match(self.pkey, pkey) else None

    # Work.

    def post_send(self, work: SendWR | Iterable[SendWR]) -> None:
        """Queue one work request or several. ibv_post_send(3)."""
        self.verbs.post_send(self, work)

    def post_recv(self, work: RecvWR | Iterable[RecvWR]) -> None:
        """Queue one receive or several. ibv_post_recv(3)."""
        self.verbs.post_recv(self, work)

    def modify(self, attributes: QPAttributes, mask: QPAttrMask) -> None:
        """Change the attributes in ``mask``, and so the state. ibv_modify_qp(3)."""
        self.verbs.modify_qp(self, attributes, mask)

    def query(self) -> QPAttributes:
        """Return the present attributes. ibv_query_qp(3)."""
        return self.verbs.query_qp(self)

    def enqueue_send(self, wr: SendWR) -> None:
        """Queue a checked send; in an error state it completes at once."""
        wqe = Wqe(wr, self.verb_table)
        self.send_slots.held += 1
        if self.state_rules.flush_send:
            self.complete_send(wqe, WCStatus.WR_FLUSH_ERR)
        else:
            self.sq.posted.append(wqe)
            self.device.ready[self] = None

    def enqueue_recv(self, wr: RecvWR) -> None:
        """Queue a checked receive; in the error state it completes at once."""
        self.recv_slots.held += 1
        if self.state_rules.flush_recv and not self._keeps_receives:
            self.complete_receive(wr, WCStatus.WR_FLUSH_ERR)
        else:
            self.rq.append(wr)
            if self.inbound.starved:
                self._tell_of_receives()

    def enqueue_receives(self, work: Sequence[RecvWR]) -> None:
        """Queue checked receives, as :meth:`enqueue_recv` does each of them."""
        if self.state_rules.flush_recv or self.inbound.starved:
            for wr in work:
                self.enqueue_recv(wr)
        else:
            self.recv_slots.held += len(work)
            self.rq.extend(work)

    def _tell_of_receives(self) -> None:
        """Grant credits with an unsolicited ACK, after an ACK that granted none. IBA 9.7.7.2.4."""
        self.inbound.starved = False
        self.inbound.acknowledge_unasked()
        self.wake()

    @property
    def _keeps_receives(self) -> bool:
        """Whether receives posted in ERR are not flushed at once, by a :class:`Bug`."""
        mistakes = Bug.ERR_KEEPS_RECEIVES, Bug.ERR_FLUSHES_LATE
        return not self.device.profile.bugs.isdisjoint(mistakes)

    def flush_late(self) -> None:
        """Flush receives posted in ERR when a request arrives: ``Bug.ERR_FLUSHES_LATE``."""
        late = Bug.ERR_FLUSHES_LATE in self.device.profile.bugs
        if late and self.state is QPState.ERR:
            self._flush_queue()

    # Limits of the requester.

    def window_at(self, wqe: Wqe) -> int:
        """How many packets of this work may be sent before the peer acknowledges more."""
        if not self.service.reliable:
            return wqe.packets
        psn = serial.add(wqe.psn, wqe.sent)
        return self.window_left(serial.span(self.sq.unacked_psn, psn))

    def window_left(self, in_flight: int) -> int:
        """How many more packets may be sent while ``in_flight`` PSNs are unacknowledged.

        Responses that are awaited need no packets, but their PSNs are in flight, too: at most half
        of all PSNs are (IBA 9.7.1).
        """
        limit = self.packets_in_flight
        if not self.device.profile.responses_fill_window:
            limit += self.sq.awaited_responses
        return min(limit, serial.HALF) - in_flight

    def limit_in_flight(self, packets: int) -> None:
        """Leave at most ``packets`` packets unacknowledged.

        If that is below the profile's ``packets_in_flight``, AckReq is set at least every
        ``packets // 2`` packets, so that an ACK can arrive before the window is full.
        """
        device = self.device.profile
        self.packets_in_flight = packets
        often = device.packets_per_ack
        if packets < device.packets_in_flight:
            often = max(min(often, packets // 2), 1)
        self.ask_after = often - 1
        self.unasked = min(self.unasked, self.ask_after)

    def ask(self, *, ends: bool) -> int:
        """AckReq for the next packet: at the end of a message, and after ``ask_after`` without."""
        if ends or self.unasked <= 0:
            self.unasked = self.ask_after
            return self.ackreq
        self.unasked -= 1
        return 0

    # Completions, in the order of the queues.

    def retire(self) -> None:
        """Complete finished work at the front of the queue, in order."""
        sent = self.sq.sent
        while sent and (status := sent[0].status) is not None:
            self.complete_send(sent.popleft(), status)
            if status is not WCStatus.SUCCESS:
                self.fail(self.service.send_error)
                return
        if self.state is QPState.SQD:
            self.notice_drained()

    def complete_send(self, wqe: Wqe, status: WCStatus) -> None:
        """Complete send work; only signaled or failed work gets a CQE. IBA 10.7.3.1."""
        verb = wqe.verb
        if status:
            self._count_failed(wqe, status)
        elif verb.is_send:
            self.counters.rdma_sends += 1
        if self.completed is not None:
            self.completed(verb.completion, wqe.length, status)
        slots = self.send_slots
        if not (status or self.signal_all or wqe.flags & SIGNALED):
            slots.unreported += 1
            return
        fields = (wqe.wr.wr_id, status, verb.completion, 0, wqe.length, 0, 0, self.qp_num)
        cq = self.send_cq
        position = cq.push(_new(WorkCompletion, fields + NOT_RECEIVED), self.device.now)
        if not position:
            self.lose()
            return
        if slots.unreported:
            slots.report_silent(cq, position)
        slots.reports[cq].append(position)

    def _count_failed(self, wqe: Wqe, status: WCStatus) -> None:
        """Count work that ended in an error."""
        self.counters.req_cqe_error += 1
        if status in BY_SEND_STATUS:
            self.counters.increment(BY_SEND_STATUS[status])
        if status is not WCStatus.WR_FLUSH_ERR:
            self.counters.rdma_sends += wqe.verb.is_send

    def complete_receive(self, recv: RecvWR, status: WCStatus) -> None:
        """Complete a failed receive; the completion has no other fields."""
        self.counters.resp_cqe_error += 1
        self.counters.resp_cqe_flush_error += status is WCStatus.WR_FLUSH_ERR
        self.report_receive(WorkCompletion(recv.wr_id, status, WCOpcode.RECV, qp_num=self.qp_num))

    def report_receive(self, completion: WorkCompletion, solicited: bool = False) -> bool:
        """Complete a receive. Return ``False`` if its CQ is overrun: the queue pair has failed.

        ``solicited`` is the Solicited Event bit of the message.
        """
        if self.completed is not None:
            self.completed(completion.opcode, completion.byte_len, completion.status)
        cq = self.recv_cq
        position = cq.push(completion, self.device.now, solicited)
        if not position:
            self.lose()
            return False
        slots = self.recv_slots if self.srq is None else self.srq.slots
        slots.reports[cq].append(position)
        return True

    @property
    def free_sends(self) -> int:
        """How many sends may be posted now."""
        return self.cap.max_send_wr - self.send_slots.reclaim()

    @property
    def free_receives(self) -> int:
        """How many receives may be posted now to its own receive queue."""
        return self.cap.max_recv_wr - self.recv_slots.reclaim()

    def lose(self) -> None:
        """Fail, and report ``QPFatal``: a completion is lost. IBA 11.6.3.1.

        A CQ overrun fails all queue pairs of the CQ; an XRC target's CQ is that of its SRQ.
        """
        if self.state is not QPState.ERR:
            self.events.append(QPFatal(self.qp_num))
            self.fail()

    def report_request(
        self, event: type[InvalidRequest | AccessViolation], psn: int, fault: Fault
    ) -> None:
        """Report that the request with this PSN has a fault, as an asynchronous event."""
        if event is AccessViolation:
            self.events.append(AccessViolation(self.qp_num, psn, self.inbound.denied))
        else:
            self.events.append(InvalidRequest(self.qp_num, psn, fault))

    def notice_drained(self) -> None:
        """In SQD, report once that no packets are in flight. IBA 10.3.1.5."""
        wanted = self.state is QPState.SQD and self.attributes.en_sqd_async_notify
        if wanted and not self.sq.under_way and not self.drained:
            self.drained = True
            self.events.append(SendQueueDrained(self.qp_num))

    # Transition into an error state.

    def fail(self, state: QPState = QPState.ERR) -> None:
        """Enter ERR or SQE, and flush pending work."""
        if self.state is state:
            return
        self.enter(state)
        self.retry_state.stop()
        self.page_wait.stop()
        self.flush_sends()
        if self.state_rules.flush_recv:
            self._flush_receives()

    def flush_sends(self) -> None:
        """Complete all send work as flushed: IBA 10.8.3.3."""
        queue = self.sq
        for wqe in (*queue.sent, *queue.posted):
            self.complete_send(wqe, WCStatus.WR_FLUSH_ERR)
        queue.sent.clear()
        queue.posted.clear()

    def _flush_receives(self) -> None:
        inbound = self.inbound
        if inbound.recv is not NO_RECEIVE:
            self.complete_receive(inbound.recv, WCStatus.WR_FLUSH_ERR)
        inbound.skip_to(inbound.epsn)
        inbound.recv = NO_RECEIVE
        self._flush_queue()
        if self.made_of.srq is not None:
            self.events.append(LastWQEReached(self.qp_num))

    def give_up_receive(self) -> None:
        """Free the SRQ slot of the receive in use, which will never complete."""
        if self.srq is not None and self.inbound.recv is not NO_RECEIVE:
            self.srq.give_up()

    def _flush_queue(self) -> None:
        while self.rq:
            self.complete_receive(self.rq.popleft(), WCStatus.WR_FLUSH_ERR)

    # Receives for the responder, and the queue of senders.

    def take_receive(self) -> RecvWR | None:
        """Take the next receive, of its own queue or the shared one."""
        recv = self._next_receive()
        return self._next_receive() if recv is None and self.device.fetch_receives() else recv

    def _next_receive(self) -> RecvWR | None:
        if self.rq:
            return self.rq.popleft()
        return None if self.srq is None else self.srq.take()

    def wake(self) -> None:
        """Add the queue pair to ``ready``: it may have frames to send."""
        self.device.ready[self] = None
