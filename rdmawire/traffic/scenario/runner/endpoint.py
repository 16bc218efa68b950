"""The queue pairs of a running scenario, and how their two ends are connected.

They are connected directly, or through connection managers.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from errno import EINVAL, ENODEV
from typing import Any, Final, NamedTuple, TypeAlias

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.cm.connection import ConnParam, PortSpace, service_id
from rdmawire.ib.cm.event import (
    CMEvent,
    ConnectError,
    ConnectRequest,
    DatagramRequest,
    Disconnected,
    Established,
    Rejected,
    Resolved,
    Unreachable,
    Unresolved,
)
from rdmawire.ib.cm.manager import ConnectionManager
from rdmawire.ib.congestion.base import CongestionController
from rdmawire.ib.congestion.dcqcn import CNP_INTERVAL, Dcqcn
from rdmawire.ib.congestion.timely import Timely
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.traffic.scenario.model.connection import QUEUE, SCHEMES, TYPES, ConnectionPlan
from rdmawire.traffic.scenario.model.expectation import reason_of
from rdmawire.traffic.scenario.runner.host_runtime import SRQ_SGES, HostRuntime
from rdmawire.verbs.ah import AddressHandle, GIDType
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import MigrationState, QPState, QPType
from rdmawire.verbs.qp_attr import FIELDS, QP_TRANSITIONS, Needs, QPAttrMask, QPCap
from rdmawire.wire.cm import RejectReason
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU

_GID_TYPES: Final = {"ROCE_V1": GIDType.ROCE_V1, "ROCE_V2": None}
"""Types of GIDs of paths: responses are in the encapsulation of their request without one."""
_ECN_BITS: Final = 2
"""Bits of a traffic class below the DSCP."""

_MASKS: Final = {name: mask for mask, names in FIELDS.items() for name in names}


class QueuePairRuntime:
    """A queue pair with its completion queue; ``peer`` is the one at the other end.

    ``side`` is 0 for the connection's first end and 1 for its second, ``number`` counts its queue
    pairs from 1 on. ``ready``: work may be posted; ``trouble``: why that is not possible.
    ``managed`` is the id of its connection, if a manager made one; ``left``: it has ended.
    """

    peer: "QueuePairRuntime"

    def __init__(
        self, machine: HostRuntime, plan: ConnectionPlan, side: int, number: int, depth: int
    ) -> None:
        self.machine = machine
        self.plan = plan
        self.side = side
        self.number = number
        self.ready = False
        self.left = False
        self.trouble = ""
        self.managed = 0
        self.type = TYPES[plan.type][side]
        self.attributes = ATTRIBUTES._replace(
            path_mtu=MTU.of(plan.mtu), sq_psn=plan.psn[side], rq_psn=plan.psn[1 - side]
        )._replace(**self.given)
        shared = plan.srq.get(machine.name)
        self.srq = None if shared is None else machine.srqs[shared]
        profile = machine.host.nic.device.profile
        work = min(max(QUEUE, depth), profile.max_qp_wr)
        self.cap = QPCap(work, work, SRQ_SGES, SRQ_SGES, profile.max_inline_data)
        self.cq = self._cq()
        self.qp = self._qp()

    @property
    def name(self) -> str:
        own = f"{self.machine.name}/{self.plan.name}"
        return own if self.plan.count == 1 else f"{own}#{self.number}"

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that the plan gives for this end."""
        return {**self.plan.attributes, **self.plan.of_end.get(self.machine.name, {})}

    def _cq(self) -> CompletionQueue:
        """Return a CQ with room for all work; for receives of an XRC queue, that queue's CQ."""
        if self.srq is not None and self.srq.xrc is not None:
            return self.srq.xrc.cq
        shared = 0 if self.srq is None else self.srq.max_wr
        room = self.cap.max_send_wr + self.cap.max_recv_wr + shared
        nic = self.machine.host.nic
        return nic.create_cq(min(room, nic.device.profile.max_cqe))

    def _qp(self) -> QueuePair:
        host, xrc = self.machine.host, self.type in (QPType.XRC_INI, QPType.XRC_TGT)
        init = QPInit(
            host.pd,
            self.cq,
            self.cq,
            self.cap,
            srq=None if xrc else self.srq,
            xrc_domain=self.machine.domain if self.type is QPType.XRC_TGT else 0,
        )
        qp = host.nic.create_qp(self.type, init)
        if self.plan.packets_in_flight is not None:
            host.nic.limit_in_flight(qp, self.plan.packets_in_flight)
        return qp

    @property
    def path(self) -> AddressHandle:
        """The path to the peer. Queue pairs use the addresses of a host in turn."""
        traffic_class = self.plan.dscp << _ECN_BITS | (ECN.ECT_0 if self.plan.ecn else 0)
        way = self.machine.host.path_to(self.peer.machine.host)
        return way._replace(
            sgid=self.gid,
            dgid=self.peer.gid,
            traffic_class=traffic_class,
            gid_type=_GID_TYPES[self.plan.gid_type],
        )

    @property
    def gid(self) -> bytes:
        gids = self.machine.gids
        return gids[(self.number - 1) % len(gids)]

    def agree(self) -> None:
        """Complete the attributes with those of the peer."""
        self.attributes = self.attributes._replace(ah=self.path, dest_qp_num=self.peer.qp.qp_num)

    def bring_up(self) -> None:
        """Change the state from RESET to RTS, without a connection manager."""
        self.machine.host.bring_up(self.qp, self.attributes)
        if self.plan.alternate:
            # The same path is the alternate path. IBA 17.2.8.
            own = self.attributes
            alternate = {
                "alt_ah": own.ah,
                "alt_pkey_index": own.pkey_index,
                "alt_port_num": own.port_num,
                "alt_timeout": own.timeout,
            }
            self.modify({**alternate, "path_mig_state": MigrationState.REARM})
        self.ready = True

    def mark_gone(self, why: str) -> None:
        """Record that there is no connection, and why."""
        self.left = True
        self.trouble = why

    def modify(self, given: dict[str, Any], state: QPState | None = None) -> None:
        """Change attributes, the state, or both; add those that the transition requires."""
        mask = QPAttrMask(0)
        for name in given:
            mask |= _MASKS[name]
        if state is not None:
            needs = QP_TRANSITIONS.get((self.type, self.qp.state, state), Needs())
            mask |= QPAttrMask.STATE | needs.required
            given = {**given, "qp_state": state}
        wanted = self.attributes._replace(**given)
        self.machine.host.nic.modify_qp(self.qp, wanted, mask)

    def control(self, line_rate: int | None) -> None:
        nic, plan = self.machine.host.nic, self.plan
        interval = plan.cnp_interval
        if plan.congestion is not None:
            control = CONTROLS[plan.congestion]
            made = control.made(plan.congestion, plan.parameters, line_rate)
            nic.control_congestion(self.qp, made)
            interval = control.cnp_interval if interval is None else interval
        if interval is not None:
            # CNPs are not ECN-capable.
            traffic_class = None if plan.cnp_dscp is None else plan.cnp_dscp << _ECN_BITS
            nic.notify_congestion(self.qp, interval, traffic_class)


class Control(NamedTuple):
    """A congestion control scheme, and the interval of its CNPs (ns) if it needs them."""

    make: Callable[[Any], CongestionController]
    cnp_interval: int | None = None

    def made(
        self, scheme: str, parameters: Mapping[str, float], line_rate: int | None
    ) -> CongestionController:
        """Return the control of a queue pair on a link with this rate (bits per second)."""
        return self.make(_parameters(scheme, parameters, line_rate))


CONTROLS: Final = {"dcqcn": Control(Dcqcn, CNP_INTERVAL), "timely": Control(Timely)}
"""Congestion control by name."""


def _parameters(scheme: str, parameters: Mapping[str, float], line_rate: int | None) -> Any:
    """Return the parameters; ``line_rate`` is the link's unless given, and bounds ``min_rate``."""
    usual = SCHEMES[scheme]
    given = dict(parameters)
    if line_rate is not None:
        given.setdefault("line_rate", line_rate)
    rates = (given.get(name, getattr(usual, name)) for name in ("line_rate", "min_rate"))
    given["min_rate"] = min(rates)
    values = {name: type(getattr(usual, name))(value) for name, value in given.items()}
    return replace(usual, **values)


# Connecting.

FIRST_PORT: Final = 7174
"""The port of the first connection of a scenario, as rping's."""

_OWN: Final = {
    QPType.RC: ("min_rnr_timer", "qp_access_flags"),
    QPType.UC: ("qp_access_flags",),
    QPType.UD: (),
}
"""Attributes that connection managers do not exchange."""


def manager_of(machine: HostRuntime) -> ConnectionManager:
    """Return the connection manager of a host that has one."""
    managed = machine.port.managed
    if managed is None:
        raise VerbsError(f"{machine.name} has no connection manager", ENODEV)
    return managed.manager


def _service(endpoint: QueuePairRuntime, order: int) -> int:
    space = PortSpace.UDP if endpoint.type is QPType.UD else PortSpace.TCP
    return service_id(space, FIRST_PORT + order)


class ConnectionSetup:
    """Connections by connection managers. The first end requests, the second one listens.

    ``on_settled`` is called for each queue pair whose connection is established or has failed. The
    second end rejects if the plan says so; an end that receives a DREQ replies.
    """

    def __init__(self, on_settled: Callable[[QueuePairRuntime], None]) -> None:
        self._on_settled = on_settled
        self._askers: dict[tuple[bytes, int], QueuePairRuntime] = {}
        self._datagrams: dict[tuple[bytes, int], deque[QueuePairRuntime]] = {}
        self._endpoints: dict[tuple[str, int], QueuePairRuntime] = {}

    def prepare(self, endpoints: list[QueuePairRuntime], order: int) -> None:
        """Let the second ends listen, and move all queue pairs to INIT for receives."""
        first = endpoints[0]
        service = _service(first, order)
        manager_of(first.peer.machine).listen(service, datagrams=first.type is QPType.UD)
        for endpoint in endpoints:
            for end in (endpoint, endpoint.peer):
                needed = QPAttrMask.STATE | QPAttrMask.PKEY_INDEX | QPAttrMask.PORT
                needed |= QPAttrMask.QKEY if end.type is QPType.UD else QPAttrMask.ACCESS_FLAGS
                wanted = end.attributes._replace(qp_state=QPState.INIT)
                end.machine.host.nic.modify_qp(end.qp, wanted, needed)

    def ask(self, endpoint: QueuePairRuntime, order: int) -> None:
        """Send the request of a queue pair at the first end."""
        manager = manager_of(endpoint.machine)
        service = _service(endpoint, order)
        self._askers[endpoint.gid, endpoint.qp.qp_num] = endpoint
        self._datagrams.setdefault((endpoint.gid, service), deque()).append(endpoint)
        endpoint.managed = manager.connect(endpoint.qp, endpoint.path, service, 0, _offer(endpoint))
        self._endpoints[endpoint.machine.name, endpoint.managed] = endpoint

    def disconnect(self, endpoint: QueuePairRuntime, now: int) -> None:
        if not endpoint.managed:
            raise VerbsError(f"{endpoint.name} was not connected by a manager", EINVAL)
        manager_of(endpoint.machine).disconnect(endpoint.managed, now)
        endpoint.mark_gone("disconnected")

    def on_event(self, machine: HostRuntime, event: CMEvent, now: int) -> None:
        if isinstance(event, ConnectRequest | DatagramRequest):
            endpoint = self._wanted(event)
            if endpoint is None:
                manager_of(machine).reject(event.id, now)
        else:
            endpoint = self._endpoints.get((machine.name, event.id))
        if endpoint is None:
            return
        try:
            self._react(endpoint, event, now)
        except VerbsError as error:  # its owner changed the queue pair meanwhile
            self._give_up(endpoint, error.reason)

    def _react(self, endpoint: QueuePairRuntime, event: CMEvent, now: int) -> None:
        if isinstance(event, ConnectRequest | DatagramRequest):
            self._accept(endpoint, event, now)
        elif isinstance(event, Established | Resolved):
            if not endpoint.side:
                _adapt(endpoint)
            self._begin(endpoint)
        elif isinstance(event, Disconnected) and not endpoint.left:
            manager_of(endpoint.machine).disconnect(event.id, now)
            endpoint.mark_gone("disconnected by the peer")
        elif isinstance(event, _TROUBLE):
            self._give_up(endpoint, _said(event))

    def _give_up(self, endpoint: QueuePairRuntime, why: str) -> None:
        endpoint.mark_gone(f"no connection: {why}")
        self._on_settled(endpoint)

    def _accept(
        self, endpoint: QueuePairRuntime, event: ConnectRequest | DatagramRequest, now: int
    ) -> None:
        endpoint.managed = event.id
        self._endpoints[endpoint.machine.name, event.id] = endpoint
        manager = manager_of(endpoint.machine)
        if endpoint.plan.reject is not None:
            manager.reject(event.id, now, reason=RejectReason[endpoint.plan.reject])
            self._give_up(endpoint, f"refused ({endpoint.plan.reject})")
            return
        try:
            manager.accept(event.id, endpoint.qp, now, _offer(endpoint))
        except VerbsError:
            manager.reject(event.id, now)
            raise
        _adapt(endpoint)
        if isinstance(event, DatagramRequest):
            self._begin(endpoint)

    def _wanted(self, event: ConnectRequest | DatagramRequest) -> QueuePairRuntime | None:
        """Return the endpoint that a request is for, if there is one."""
        if isinstance(event, DatagramRequest):  # a SIDR REQ does not name a queue pair
            asking = self._datagrams.get((event.path.dgid, event.service_id))
            return asking.popleft().peer if asking else None
        asker = self._askers.get((event.path.dgid, event.remote_qpn))
        return None if asker is None or asker.peer.managed else asker.peer

    def _begin(self, endpoint: QueuePairRuntime) -> None:
        endpoint.ready = True
        self._on_settled(endpoint)


def _adapt(endpoint: QueuePairRuntime) -> None:
    """Set the plan's attributes that the manager does not exchange."""
    given = {"min_rnr_timer": endpoint.attributes.min_rnr_timer, **endpoint.given}
    own = {name: given[name] for name in _OWN[endpoint.type] if name in given}
    if own:
        endpoint.modify(own)


_TROUBLE: Final = (ConnectError, Rejected, Unreachable, Unresolved)


def _said(event: CMEvent) -> str:
    name = type(event).__name__
    if isinstance(event, Rejected | Unresolved):
        return f"{name} ({reason_of(event)})"
    return f"{name} ({event.reason})" if isinstance(event, ConnectError) else name


def _offer(endpoint: QueuePairRuntime) -> ConnParam:
    own = endpoint.attributes
    return ConnParam(
        responder_resources=own.max_dest_rd_atomic,
        initiator_depth=own.max_rd_atomic,
        retry_count=own.retry_cnt,
        rnr_retry_count=own.rnr_retry,
        path_mtu=MTU(own.path_mtu),
        qkey=own.qkey,
        psn=own.rq_psn,
        timeout=endpoint.given.get("timeout"),
    )


Act: TypeAlias = Callable[[ConnectionSetup, list[QueuePairRuntime], int], None]
"""Prepares or requests the connection of some endpoints, with the connection's number."""


class ConnectMethod(NamedTuple):
    """How ends are connected: ``prepare`` runs before receives are posted, ``ask`` after that.

    ``managed``: whether both hosts need connection managers.
    """

    managed: bool
    prepare: Act
    ask: Act


def _bring_up(_: ConnectionSetup, endpoints: list[QueuePairRuntime], __: int) -> None:
    for endpoint in endpoints:
        endpoint.bring_up()
        endpoint.peer.bring_up()


def _ask(setup: ConnectionSetup, endpoints: list[QueuePairRuntime], order: int) -> None:
    for endpoint in endpoints:
        setup.ask(endpoint, order)


WAYS: Final = {
    "at once": ConnectMethod(managed=False, prepare=_bring_up, ask=lambda *_: None),
    "cm": ConnectMethod(managed=True, prepare=ConnectionSetup.prepare, ask=_ask),
}
"""Methods by the value of ``connect``."""
