"""Connecting the two ends of a scenario connection: directly, or through the connection manager."""

from collections import deque
from collections.abc import Callable
from errno import EINVAL, ENODEV
from typing import Final, NamedTuple, TypeAlias

from rdmawire.errors import VerbsError
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
from rdmawire.traffic.scenario.model.expectation import reason_of
from rdmawire.traffic.scenario.runner.host_runtime import HostRuntime, QueuePairRuntime
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.qp_attr import QPAttrMask
from rdmawire.wire.cm import RejectReason
from rdmawire.wire.management import MTU

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
        self._askers[endpoint.gid, endpoint.qp.number] = endpoint
        self._datagrams.setdefault((endpoint.gid, service), deque()).append(endpoint)
        endpoint.managed = manager.connect(endpoint.qp, endpoint.path, service, 0, _offer(endpoint))
        self._endpoints[endpoint.machine.name, endpoint.managed] = endpoint

    def disconnect(self, endpoint: QueuePairRuntime, now: int) -> None:
        """Disconnect an endpoint."""
        if not endpoint.managed:
            raise VerbsError(f"{endpoint.name} was not connected by a manager", EINVAL)
        manager_of(endpoint.machine).disconnect(endpoint.managed, now)
        endpoint.mark_gone("disconnected")

    def on_event(self, machine: HostRuntime, event: CMEvent, now: int) -> None:
        """Handle an event of a connection manager."""
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
            self._established(endpoint)
        elif isinstance(event, Disconnected):
            self._agree(endpoint, event, now)
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
        if isinstance(event, DatagramRequest):
            return self._next_of(event)
        asker = self._askers.get((event.path.dgid, event.remote_qpn))
        return None if asker is None or asker.peer.managed else asker.peer

    def _next_of(self, event: DatagramRequest) -> QueuePairRuntime | None:
        """Return the next endpoint at that address: a SIDR REQ does not name a queue pair."""
        asking = self._datagrams.get((event.path.dgid, event.service_id))
        return asking.popleft().peer if asking else None

    def _established(self, endpoint: QueuePairRuntime) -> None:
        if not endpoint.side:
            _adapt(endpoint)
        self._begin(endpoint)

    def _begin(self, endpoint: QueuePairRuntime) -> None:
        endpoint.ready = True
        self._on_settled(endpoint)

    @staticmethod
    def _agree(endpoint: QueuePairRuntime, event: Disconnected, now: int) -> None:
        if not endpoint.left:
            manager_of(endpoint.machine).disconnect(event.id, now)
            endpoint.mark_gone("disconnected by the peer")


def _adapt(endpoint: QueuePairRuntime) -> None:
    """Set the plan's attributes that the manager does not exchange."""
    given = {"min_rnr_timer": endpoint.attributes.min_rnr_timer, **endpoint.given}
    own = {name: given[name] for name in _OWN[endpoint.type] if name in given}
    if own:
        endpoint.modify(own)


_TROUBLE: Final = (ConnectError, Rejected, Unreachable, Unresolved)


def _said(event: CMEvent) -> str:
    """Describe an event that ends a connection."""
    name = type(event).__name__
    if isinstance(event, Rejected | Unresolved):
        return f"{name} ({reason_of(event)})"
    return f"{name} ({event.reason})" if isinstance(event, ConnectError) else name


def _offer(endpoint: QueuePairRuntime) -> ConnParam:
    """Return an end's connection parameters."""
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


def _rest(_: ConnectionSetup, __: list[QueuePairRuntime], ___: int) -> None:
    """Do nothing, as :func:`_bring_up` already connected the ends."""


def _ask(setup: ConnectionSetup, endpoints: list[QueuePairRuntime], order: int) -> None:
    for endpoint in endpoints:
        setup.ask(endpoint, order)


WAYS: Final = {
    "at once": ConnectMethod(managed=False, prepare=_bring_up, ask=_rest),
    "cm": ConnectMethod(managed=True, prepare=ConnectionSetup.prepare, ask=_ask),
}
"""Methods by the value of ``connect``."""
