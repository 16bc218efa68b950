"""The connection manager of one NIC: calls of its owner, received messages and timers.

This module joins three layers. Datagrams use queue pair 1 (:mod:`~rdmawire.ib.cm.gsi`);
:mod:`~rdmawire.ib.cm.receive` finds the connection and the input of each; and a step of the table
(:mod:`~rdmawire.ib.cm.state_machine`) changes one connection, with the actions of
:mod:`~rdmawire.ib.cm.machine`. The owner's calls and the clock are inputs of the same table.

A repeated request is identified by its sender's GID and communication id, other messages by
both ids; a message from another address than the peer's is ignored.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from errno import EBUSY, EINVAL, ENOMEM
from typing import Final

from rdmawire.errors import VerbsError, raise_error
from rdmawire.ib.cm.connection import (
    CMSettings,
    Connection,
    ConnParam,
    Endpoints,
    OwnersQP,
    Terms,
    ack_timeout,
    duration,
    flow_label,
    has_ip_header,
)
from rdmawire.ib.cm.event import CMEvent
from rdmawire.ib.cm.machine import (
    CONNECTING,
    DEFAULTS,
    CMRules,
    Listener,
    Neighbours,
    StateMachine,
    agreed_attributes,
    check_fit,
    move_ud_to_rts,
    peer_has_sent,
)
from rdmawire.ib.cm.messages import ReceivedMad, read, room_in, room_in_request
from rdmawire.ib.cm.receive import STANDARD, Ignored, handle_mad, is_understood
from rdmawire.ib.cm.state_machine import CMState, Input
from rdmawire.ib.engine import Nic
from rdmawire.ib.post_checks import check_qp
from rdmawire.ib.qp import QueuePair
from rdmawire.identifier import Randomness
from rdmawire.validate import as_bytes, check_int, check_time, check_type
from rdmawire.verbs.ah import AddressHandle, check_address
from rdmawire.verbs.engine import BURST
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.qp_attr import QPAttributes
from rdmawire.wire.cm import REJ, REP, SIDRREP, RejectReason, SIDRStatus
from rdmawire.wire.ib import BTH
from rdmawire.wire.roce import bth_offset

EPHEMERAL_PORTS = 0xC000
"""First ephemeral port. RFC 6335, section 6."""

NOTHING_SPECIAL: Final = ConnParam()


class ConnectionManager(StateMachine):
    """The connection manager. ``ignored`` counts messages without effect. Times (``now``) are ns.

    ``rules`` are those of the standard, or a copy with one row replaced. Invalid calls raise
    ``VerbsError`` EINVAL, and change nothing. ``failed`` is called with the exception of one
    received message: those behind it are handled. The default raises it.
    """

    def __init__(
        self,
        nic: Nic,
        neighbours: Neighbours,
        random: Randomness,
        settings: CMSettings = DEFAULTS,
        *,
        rules: CMRules = STANDARD,
    ) -> None:
        super().__init__(nic, neighbours, random, settings, rules)
        self.ignored: Counter[Ignored] = Counter()
        self.failed: Callable[[Exception], None] = raise_error

    # The owner's calls.

    def listen(self, service: int, *, datagrams: bool = False, backlog: int = 1024) -> None:
        """Report requests for a service; ``VerbsError`` EBUSY if it has a listener."""
        check_int("service_id", service)
        check_type("datagrams", datagrams, bool)
        check_int("backlog", backlog, 1)
        if (service, datagrams) in self.listeners:
            raise VerbsError(f"service {service:#x} has a listener already", EBUSY)
        self.listeners[service, datagrams] = Listener(service, datagrams, backlog)

    def stop_listening(self, service: int, *, datagrams: bool = False) -> None:
        """Report no more requests; those already reported may still be answered."""
        check_int("service_id", service)
        check_type("datagrams", datagrams, bool)
        if self.listeners.pop((service, datagrams), None) is None:
            raise VerbsError(f"service {service:#x} has no listener", EINVAL)

    def connect(
        self,
        qp: QueuePair | OwnersQP,
        path: AddressHandle,
        service: int,
        now: int,
        param: ConnParam = NOTHING_SPECIAL,
        *,
        source_port: int = 0,
        by_hand: bool = False,
    ) -> int:
        """Request a connection of an RC, UC or XRC_INI queue pair, or a datagram service with UD.

        Returns the connection's id. ``source_port`` 0 draws one, for services that have ports. With
        ``by_hand``, the owner confirms ``ConnectResponse`` by ``establish``. rdma_connect(3).
        """
        self._begin(now)
        self._check_qp(qp)
        check_type("param", param, ConnParam)
        datagrams = qp.type is QPType.UD
        check_fit(qp, *CONNECTING, QPType.UD, at_rest=self.rules.moves_qps)
        check_address(path, self.nic.device.profile)
        check_int("service_id", service)
        check_int("source_port", source_port, 0, 0xFFFF)
        param.check(room_in_request(datagrams=datagrams, ip_header=has_ip_header(service)))
        self._check_room()
        conn = self._asking(path, service, source_port)
        conn.datagrams, conn.qp_type, conn.by_hand = datagrams, qp.type, by_hand
        conn.offer = param
        conn.take_qp(qp)
        conn.pkey_index = _pkey_index(qp)
        if datagrams:
            self._move_ud(qp, param)
        else:
            conn.psn = self.random.getrandbits(24) if param.psn is None else param.psn
            conn.terms = self._offered(conn)
        self.keep(conn)
        self.step(conn, Input.RESOLVE if datagrams else Input.CONNECT)
        return conn.id

    def _check_qp(self, qp: QueuePair | OwnersQP) -> None:
        if not isinstance(qp, OwnersQP):
            check_qp(self.nic.device, qp)
        elif self.rules.moves_qps:
            raise VerbsError(
                f"QP {qp.qp_num:#x} is not the adapter's, which has to move it", EINVAL
            )
        else:
            qp.check()

    def _move_ud(self, qp: QueuePair | OwnersQP, param: ConnParam) -> None:
        if isinstance(qp, QueuePair) and self.rules.moves_qps:
            move_ud_to_rts(self.nic, qp, param.qkey)

    def _asking(self, path: AddressHandle, service: int, source_port: int) -> Connection:
        endpoints = None
        if has_ip_header(service):
            port = source_port or EPHEMERAL_PORTS | self.random.getrandbits(14)
            endpoints = Endpoints(path.sgid, path.dgid, port)
            label = path.flow_label or flow_label(port, service)
            path = path._replace(flow_label=label)
        conn = self.new_connection(path, service)
        conn.endpoints = endpoints
        conn.max_tries = self.settings.max_cm_retries
        conn.period = self.answer_time
        delay = self.nic.device.profile.local_ca_ack_delay
        conn.timewait = duration(ack_timeout(self.settings.packet_life, delay))
        return conn

    def _offered(self, conn: Connection) -> Terms:
        """Parameters of a REQ; the default depths are the adapter's maxima, 0 without responder."""
        offer, profile = conn.offer, self.nic.device.profile
        depths = offer.responder_resources, offer.initiator_depth
        most = min(profile.max_qp_rd_atom, 0xFF), min(profile.max_qp_init_rd_atom, 0xFF)
        responder, initiator = (m if d is None else d for d, m in zip(depths, most, strict=True))
        if conn.qp_type is QPType.XRC_INI:
            responder = 0
        return Terms(
            rq_psn=conn.psn,
            path_mtu=offer.path_mtu or self.settings.path_mtu,
            responder_resources=responder,
            initiator_depth=initiator,
            retry_count=offer.retry_count,
        )

    def accept(
        self,
        number: int,
        qp: QueuePair | OwnersQP,
        now: int,
        param: ConnParam = NOTHING_SPECIAL,
    ) -> None:
        """Accept a peer's request. rdma_accept(3)."""
        conn = self._owned(number, Input.ACCEPT, now)
        self._check_qp(qp)
        check_type("param", param, ConnParam)
        check_fit(qp, conn.qp_type, at_rest=self.rules.moves_qps)
        param.check(room_in(SIDRREP if conn.datagrams else REP))
        before, psn = conn.terms, conn.psn
        conn.offer = param
        conn.terms = _accepted(before, param)
        conn.psn = conn.terms.rq_psn
        conn.take_qp(qp)
        try:
            if conn.datagrams:
                self._move_ud(qp, param)
                conn.sidr_status = SIDRStatus.SUCCESS
            self.step(conn, Input.ACCEPT)
        except VerbsError:
            conn.terms, conn.psn, conn.qp, conn.offer = before, psn, None, NOTHING_SPECIAL
            raise

    def reject(
        self,
        number: int,
        now: int,
        private_data: bytes = b"",
        reason: RejectReason = RejectReason.CONSUMER_REJECT,
    ) -> None:
        """Refuse a peer's request or reply. rdma_reject(3)."""
        conn = self._owned(number, Input.REJECT, now)
        ConnParam(private_data).check(room_in(SIDRREP if conn.datagrams else REJ))
        check_int("reason", reason, 0, 0xFFFF)
        conn.reject_data, conn.reason = private_data, reason
        self.step(conn, Input.REJECT)

    def establish(self, number: int, now: int) -> None:
        """Establish a connection after its ``ConnectResponse``. rdma_establish(3)."""
        self.step(self._owned(number, Input.ESTABLISH, now), Input.ESTABLISH)

    def disconnect(self, number: int, now: int) -> None:
        """End a connection, or confirm its end by the peer. rdma_disconnect(3)."""
        self.step(self._owned(number, Input.DISCONNECT, now), Input.DISCONNECT)

    def destroy(self, number: int, now: int) -> None:
        """Release a connection and its queue pair. rdma_destroy_id(3).

        The peer is notified as its state requires. Events of the connection that were not taken
        are dropped; a connection that has ended may be destroyed as long as it has some.
        """
        check_int("id", number)
        if number not in self.registry and self.drop_events(number):
            return
        self.step(self._owned(number, Input.DESTROY, now), Input.DESTROY)

    def notify(self, number: int, now: int) -> None:
        """Confirm a connection whose queue pair received data before the RTU. rdma_notify(3)."""
        self.step(self._owned(number, Input.DATA, now), Input.DATA)

    def is_established(self, number: int) -> bool:
        """Whether a connection is established."""
        conn = self.registry.get(number)
        return conn is not None and conn.state is CMState.ESTABLISHED

    def qp_attributes(self, number: int) -> QPAttributes:
        """The attributes with which an owner moves a connection's queue pair up to RTS itself.

        Those of the peer are known once it has requested or accepted. rdma_init_qp_attr(3).
        """
        check_int("id", number)
        conn = self.registry.get(number)
        if conn is None or conn.silent or not conn.terms.remote_qpn:
            raise VerbsError(f"connection {number:#x} has no parameters of a peer", EINVAL)
        return agreed_attributes(conn)

    def _begin(self, now: int) -> None:
        """Start a call of the owner at this time."""
        check_time(now)
        self.now = now

    def _owned(self, number: int, what: Input, now: int) -> Connection:
        """Return the connection with this id; raise if the call is invalid in its state."""
        self._begin(now)
        check_int("id", number)
        conn = self.registry.get(number)
        if conn is None or conn.silent:
            raise VerbsError(f"there is no connection {number:#x}", EINVAL)
        if not self.knows(conn, what):
            state, call = conn.state.name, what.name.lower()
            raise VerbsError(f"connection {number:#x} is in {state}: no {call} there", EINVAL)
        return conn

    def close(self) -> None:
        """Release queue pair 1, and remove all connections without notice to the peers."""
        self.gsi.close()
        for conn in tuple(self.registry):
            self.enter(conn, CMState.CLOSED)

    # Received messages and timers.

    def poll(self, now: int, frame: bytes = b"") -> None:
        """Process messages on queue pair 1; received data confirms a connection like an RTU.

        ``frame`` is the last frame that the NIC received. Called after each frame, and nearly
        always without work.
        """
        if now.__class__ is not int:
            check_time(now)
        self.now = now
        if self.gsi.waiting:
            self._take_in()
        if self.unconfirmed:
            self._confirm(frame)

    def _take_in(self) -> None:
        for datagram in self.gsi.take():
            try:
                received = read(datagram)
                ignored = Ignored.MALFORMED if received is None else self._handle(received)
            except Exception as error:
                self.failed(error)
                continue
            if ignored is not None:
                self.ignored[ignored] += 1

    def _confirm(self, frame: bytes) -> None:
        """Confirm the connection whose queue pair is the frame's destination, if data arrived."""
        frame = as_bytes("frame", frame)
        at = bth_offset(frame, 0, len(frame))
        conn = self.unconfirmed.get(BTH.parse(frame, at).destqp) if at >= 0 else None
        if conn is not None and peer_has_sent(conn):
            self.step(conn, Input.DATA)

    def _handle(self, received: ReceivedMad) -> Ignored | None:
        if self.neighbours(received.source) is None:
            return Ignored.NO_NEIGHBOUR
        return handle_mad(self, received) if is_understood(received) else Ignored.VERSION

    def _check_room(self) -> None:
        if self.registry.full:
            raise VerbsError(f"{len(self.registry)} connections are all that there may be", ENOMEM)


def _pkey_index(qp: QueuePair | OwnersQP) -> int:
    return qp.pkey_index if isinstance(qp, OwnersQP) else qp.attributes.pkey_index


def _accepted(terms: Terms, param: ConnParam) -> Terms:
    """The terms of the request, limited by the owner's parameters."""
    responder, initiator = param.responder_resources, param.initiator_depth
    return terms._replace(
        rq_psn=terms.rq_psn if param.psn is None else param.psn,
        responder_resources=terms.responder_resources if responder is None else responder,
        initiator_depth=terms.initiator_depth if initiator is None else initiator,
    )


LONGEST_DATAGRAM = 512
"""Maximum bytes of a frame with a connection management datagram, whatever its headers."""


class ManagedPort:
    """A port with a connection manager, to attach to a link.

    ``neighbours`` maps a GID to an Ethernet address (``dict.get`` is suitable); ``random`` supplies
    ids, starting PSNs and ports: ``random.Random(1)`` gives the same ones in each run. ``manager``
    takes the owner's calls, ``nic`` is the adapter. All public
    attributes of the adapter (verbs, addresses, counters) are here as well. Only ``next_event``
    differs: it returns events of connections; those of the adapter stay with ``nic``::

        port = ManagedPort(host.nic, {peer.gid: peer.mac}.get, Random(1))
        simulator.attach(port, host.mac, link)
        port.manager.listen(service_id(PortSpace.TCP, 7174))

    A call of the manager may queue frames: ``Simulator.run`` checks for them.
    """

    def __init__(
        self,
        nic: Nic,
        neighbours: Neighbours,
        random: Randomness,
        settings: CMSettings = DEFAULTS,
        *,
        rules: CMRules = STANDARD,
    ) -> None:
        self.nic = nic
        self._manager = ConnectionManager(nic, neighbours, random, settings, rules=rules)

    def receive(self, frame: bytes, now: int) -> None:
        """Receive one Ethernet frame, without its FCS."""
        self.nic.receive(frame, now)
        self._manager.poll(now, frame)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Receive frames in order, with the same result as :meth:`receive` for each.

        Consecutive frames too long for the manager go to the adapter together, which is faster.
        Raises ``VerbsError`` for the first that is not bytes, after those before it were received.
        """
        check_type("frames", frames, Sequence)
        run: list[bytes] = []
        for frame in frames:
            if _is_data(frame) and not self._manager.unconfirmed:
                run.append(frame)
                continue
            self._receive_run(run, now)
            run = []
            self.receive(frame, now)
        self._receive_run(run, now)

    def _receive_run(self, run: list[bytes], now: int) -> None:
        self.nic.receive_all(run, now)
        self._manager.poll(now)

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        """Return the next frames to send, at most ``most``; none when nothing is ready."""
        return self.nic.transmit(now, most)

    @property
    def sends_more(self) -> bool:
        """Whether ``transmit`` may return more frames without further input."""
        return self.nic.sends_more

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns), if anything waits. Asking changes nothing."""
        timers = (self.nic.next_timer(), self._manager.next_timer())
        return min((time for time in timers if time is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Handle all timers that are due at ``now`` (ns)."""
        self.nic.handle_timer(now)
        self._manager.handle_timer(now)

    def next_event(self) -> CMEvent | None:
        """Take the manager's oldest event."""
        return self._manager.next_event()

    def events(self) -> list[CMEvent]:
        """Take all events of the manager, the oldest first."""
        return list(iter(self.next_event, None))

    @property
    def manager(self) -> ConnectionManager:
        """The connection manager, for the owner's calls."""
        return self._manager


def _is_data(frame: bytes) -> bool:
    """Whether a frame is too long for a connection management datagram."""
    return frame.__class__ is bytes and len(frame) > LONGEST_DATAGRAM


def _of_adapter(name: str) -> property:
    """Make a property that reads an attribute of the adapter, and sets it if it is settable."""

    def get(port: ManagedPort) -> object:
        return getattr(port.nic, name)

    def put(port: ManagedPort, value: object) -> None:
        setattr(port.nic, name, value)

    found = getattr(Nic, name, None)
    settable = isinstance(found, property) and found.fset is not None
    return property(get, put if settable else None, doc=found.__doc__)


_OF_EACH_ADAPTER = ("device", "groups")
"""Attributes that only the constructor of ``Nic`` sets."""

for _name in (*dir(Nic), *_OF_EACH_ADAPTER):
    if not _name.startswith("_") and not hasattr(ManagedPort, _name):
        setattr(ManagedPort, _name, _of_adapter(_name))
