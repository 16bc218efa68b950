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
from rdmawire.traffic.scenario.runner.host_runtime import HostRuntime, QueuePairRuntime
from rdmawire.traffic.scenario.tables import reason_of
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.qp_attr import QPAttrMask
from rdmawire.wire.cm_code import RejectReason
from rdmawire.wire.management import MTU

FIRST_PORT: Final = 7174
"""The port at which the first connection of a scenario is listened for, as rping's."""

_OWN: Final = {
    QPType.RC: ("min_rnr_timer", "qp_access_flags"),
    QPType.UC: ("qp_access_flags",),
    QPType.UD: (),
}
"""Attributes of which managers say nothing to one another."""


def manager_of(machine: HostRuntime) -> ConnectionManager:
    """The manager of a host that has one."""
    managed = machine.port.managed
    if managed is None:
        raise VerbsError(f"{machine.name} has no connection manager", ENODEV)
    return managed.manager


def _service(lane: QueuePairRuntime, order: int) -> int:
    space = PortSpace.UDP if lane.type is QPType.UD else PortSpace.TCP
    return service_id(space, FIRST_PORT + order)


class Introductions:
    """Connections that managers make. ``on_settled`` is told of each queue pair that is connected.

    And of each that never will be. The first end asks, the second one listens, and refuses where
    the plan says so; who is asked for the end agrees to it.
    """

    def __init__(self, on_settled: Callable[[QueuePairRuntime], None]) -> None:
        self._on_settled = on_settled
        self._askers: dict[tuple[bytes, int], QueuePairRuntime] = {}
        self._datagrams: dict[tuple[bytes, int], deque[QueuePairRuntime]] = {}
        self._lanes: dict[tuple[str, int], QueuePairRuntime] = {}

    def prepare(self, lanes: list[QueuePairRuntime], order: int) -> None:
        """Have the second ends of a connection's lanes wait, and all take receives."""
        first = lanes[0]
        service = _service(first, order)
        manager_of(first.peer.machine).listen(service, datagrams=first.type is QPType.UD)
        for lane in lanes:
            for end in (lane, lane.peer):
                needed = QPAttrMask.STATE | QPAttrMask.PKEY_INDEX | QPAttrMask.PORT
                needed |= QPAttrMask.QKEY if end.type is QPType.UD else QPAttrMask.ACCESS_FLAGS
                wanted = end.attributes._replace(qp_state=QPState.INIT)
                end.machine.host.nic.modify_qp(end.qp, wanted, needed)

    def ask(self, lane: QueuePairRuntime, order: int) -> None:
        """Have the first end of a pair ask for the connection."""
        manager = manager_of(lane.machine)
        service = _service(lane, order)
        self._askers[lane.gid, lane.qp.number] = lane
        self._datagrams.setdefault((lane.gid, service), deque()).append(lane)
        lane.managed = manager.connect(lane.qp, lane.path, service, 0, _offer(lane))
        self._lanes[lane.machine.name, lane.managed] = lane

    def disconnect(self, lane: QueuePairRuntime, now: int) -> None:
        """Have an end ask for the end of its connection."""
        if not lane.managed:
            raise VerbsError(f"{lane.name} was not connected by a manager", EINVAL)
        manager_of(lane.machine).disconnect(lane.managed, now)
        lane.leaves("disconnected")

    def hear(self, machine: HostRuntime, event: CMEvent, now: int) -> None:
        """Do what an application does about an event of its manager."""
        if isinstance(event, ConnectRequest | DatagramRequest):
            lane = self._wanted(event)
            if lane is None:
                manager_of(machine).reject(event.id, now)
        else:
            lane = self._lanes.get((machine.name, event.id))
        if lane is None:
            return
        try:
            self._react(lane, event, now)
        except VerbsError as error:  # its owner did something else with the queue pair meanwhile
            self._give_up(lane, error.reason)

    def _react(self, lane: QueuePairRuntime, event: CMEvent, now: int) -> None:
        if isinstance(event, ConnectRequest | DatagramRequest):
            self._accept(lane, event, now)
        elif isinstance(event, Established | Resolved):
            self._established(lane)
        elif isinstance(event, Disconnected):
            self._agree(lane, event, now)
        elif isinstance(event, _TROUBLE):
            self._give_up(lane, _said(event))

    def _give_up(self, lane: QueuePairRuntime, why: str) -> None:
        lane.leaves(f"no connection: {why}")
        self._on_settled(lane)

    def _accept(
        self, lane: QueuePairRuntime, event: ConnectRequest | DatagramRequest, now: int
    ) -> None:
        lane.managed = event.id
        self._lanes[lane.machine.name, event.id] = lane
        manager = manager_of(lane.machine)
        if lane.plan.reject is not None:
            manager.reject(event.id, now, reason=RejectReason[lane.plan.reject])
            self._give_up(lane, f"refused ({lane.plan.reject})")
            return
        try:
            manager.accept(event.id, lane.qp, now, _offer(lane))
        except VerbsError:
            manager.reject(event.id, now)
            raise
        _adapt(lane)
        if isinstance(event, DatagramRequest):
            self._begin(lane)

    def _wanted(self, event: ConnectRequest | DatagramRequest) -> QueuePairRuntime | None:
        """The end that a request is for: that of the queue pair which asked, if one did."""
        if isinstance(event, DatagramRequest):
            return self._next_of(event)
        asker = self._askers.get((event.path.dgid, event.remote_qpn))
        return None if asker is None or asker.peer.managed else asker.peer

    def _next_of(self, event: DatagramRequest) -> QueuePairRuntime | None:
        """A datagram request does not say which queue pair asks: the next one at that address."""
        asking = self._datagrams.get((event.path.dgid, event.service_id))
        return asking.popleft().peer if asking else None

    def _established(self, lane: QueuePairRuntime) -> None:
        if not lane.side:
            _adapt(lane)
        self._begin(lane)

    def _begin(self, lane: QueuePairRuntime) -> None:
        lane.ready = True
        self._on_settled(lane)

    @staticmethod
    def _agree(lane: QueuePairRuntime, event: Disconnected, now: int) -> None:
        if not lane.left:
            manager_of(lane.machine).disconnect(event.id, now)
            lane.leaves("disconnected by the peer")


def _adapt(lane: QueuePairRuntime) -> None:
    """Have the plan's attributes where the manager had its own, before any work comes."""
    given = {"min_rnr_timer": lane.attributes.min_rnr_timer, **lane.given}
    own = {name: given[name] for name in _OWN[lane.type] if name in given}
    if own:
        lane.modify(own)


_TROUBLE: Final = (ConnectError, Rejected, Unreachable, Unresolved)


def _said(event: CMEvent) -> str:
    """What an event of trouble says, but for its id."""
    name = type(event).__name__
    if isinstance(event, Rejected | Unresolved):
        return f"{name} ({reason_of(event)})"
    return f"{name} ({event.reason})" if isinstance(event, ConnectError) else name


def _offer(lane: QueuePairRuntime) -> ConnParam:
    """What an end says of itself: it expects what the other's requests begin with."""
    own = lane.attributes
    return ConnParam(
        responder_resources=own.max_dest_rd_atomic,
        initiator_depth=own.max_rd_atomic,
        retry_count=own.retry_cnt,
        rnr_retry_count=own.rnr_retry,
        path_mtu=MTU(own.path_mtu),
        qkey=own.qkey,
        psn=own.rq_psn,
        timeout=lane.given.get("timeout"),
    )


Act: TypeAlias = Callable[[Introductions, list[QueuePairRuntime], int], None]
"""Does something for a connection's lanes; connections are numbered in their order."""


class Way(NamedTuple):
    """``prepare`` comes before receives are posted, ``ask`` after that.

    ``managed`` says that both hosts have connection managers.
    """

    managed: bool
    prepare: Act
    ask: Act


def _bring_up(_: Introductions, lanes: list[QueuePairRuntime], __: int) -> None:
    for lane in lanes:
        lane.bring_up()
        lane.peer.bring_up()


def _rest(_: Introductions, __: list[QueuePairRuntime], ___: int) -> None:
    """All is done."""


def _ask(introductions: Introductions, lanes: list[QueuePairRuntime], order: int) -> None:
    for lane in lanes:
        introductions.ask(lane, order)


WAYS: Final = {
    "at once": Way(managed=False, prepare=_bring_up, ask=_rest),
    "cm": Way(managed=True, prepare=Introductions.prepare, ask=_ask),
}
"""By what a plan says for ``connect``."""
