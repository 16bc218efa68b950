"""Connections by the connection manager: each is requested, accepted, confirmed and closed.

The queue pair of a closed connection stays in timewait until none of its packets can be in flight
(IBA 12.9.8.3). New connections start meanwhile; if too many wait, virtual time advances.
"""

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Final

from rdmawire.fabric.host import Host, NotifyingPort
from rdmawire.ib.cm import event
from rdmawire.ib.cm.connection import CMSettings, ConnParam, PortSpace, service_id
from rdmawire.ib.cm.event import CMEvent
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.traffic.generate.endpoints import QPNS
from rdmawire.traffic.generate.link import Setup
from rdmawire.traffic.generate.rounds import Enough, FrameOutput, Progress, Taker, chance, rounds
from rdmawire.traffic.generate.spec import TrafficSpec
from rdmawire.traffic.summary import TrafficSummary, summarise
from rdmawire.verbs.async_event import Event
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.wire.management import MTU

SERVICE: Final = service_id(PortSpace.TCP, 7174)
MAX_WAITING: Final = 1 << 13
"""Maximum number of connections in timewait before virtual time advances until none is left."""

_CQE: Final = 16
_CAP: Final = QPCap(1, 1, 1, 1, 0)
_UNDONE: Final = event.Unreachable | event.Rejected | event.ConnectError


class ManagedEnd(Host):
    """One adapter with its connection manager, and an application that handles its events.

    All connections use the same ``offer``.
    """

    def __init__(self, number: int, spec: TrafficSpec, neighbours: Mapping[bytes, bytes]) -> None:
        super().__init__(number, place=spec.place(number))
        self._random = Random(f"{spec.seed}/manager {number}")  # noqa: S311 - repeatable
        settings = CMSettings(max_connections=2 * (MAX_WAITING + spec.lanes))
        managed = ManagedPort(self.nic, neighbours.get, self._random, settings)
        self.manager = managed.manager
        self.port = NotifyingPort(self.nic, managed)
        self.port.on_event = self.handle
        self._cq = self.nic.create_cq(_CQE)
        self._init = QPInit(self.pd, self._cq, self._cq, _CAP)
        self.offer = ConnParam(psn=spec.psn, path_mtu=MTU.of(spec.mtu))
        self._qps: dict[int, QueuePair] = {}

    def queue_pair(self) -> QueuePair:
        """Create a queue pair with an unused number."""
        while (number := self._random.choice(QPNS)) in self.nic.device.qps:
            pass
        return self.nic.create_qp(QPType.RC, self._init, number)

    def keep(self, number: int, qp: QueuePair) -> None:
        """Store the queue pair of the connection with id ``number``."""
        self._qps[number] = qp

    @property
    def now(self) -> int:
        """Time of the event (ns)."""
        return self.nic.device.now

    def handle(self, occurred: Event | CMEvent) -> None:
        """Destroy the queue pair of a connection that left timewait or was not established."""
        if isinstance(occurred, event.TimewaitExit | _UNDONE) and occurred.id in self._qps:
            self.nic.destroy_qp(self._qps.pop(occurred.id))


class Server(ManagedEnd):
    """Accepts connection requests and disconnect requests."""

    def handle(self, occurred: Event | CMEvent) -> None:
        if isinstance(occurred, event.ConnectRequest):
            qp = self.queue_pair()
            self.keep(occurred.id, qp)
            self.manager.accept(occurred.id, qp, self.now, self.offer)
        elif isinstance(occurred, event.Disconnected):
            self.manager.disconnect(occurred.id, self.now)
        super().handle(occurred)


class Client(ManagedEnd):
    """Requests connections and closes the accepted ones. ``over`` counts connections that ended.

    ``refused`` counts connections that were never established.
    """

    over = 0
    refused = 0

    def ask(self, server: ManagedEnd, dscp: int, now: int) -> None:
        """Request one connection."""
        path = self.path_to(server)._replace(traffic_class=dscp << 2)
        qp = self.queue_pair()
        self.keep(self.manager.connect(qp, path, SERVICE, now, self.offer), qp)

    def handle(self, occurred: Event | CMEvent) -> None:
        if isinstance(occurred, event.Established):
            self.manager.disconnect(occurred.id, self.now)
        self.refused += isinstance(occurred, _UNDONE)
        self.over += isinstance(occurred, event.Disconnected | _UNDONE)
        super().handle(occurred)


class Connecting:
    """Clients and servers on one cable or one switch; servers accept all requests."""

    def __init__(self, spec: TrafficSpec) -> None:
        self._spec = spec
        self._setup = Setup(spec)
        self.simulator = self._setup.simulator
        neighbours: dict[bytes, bytes] = {}
        numbers = range(1, spec.hosts + 1)
        self.clients = [Client(number, spec, neighbours) for number in numbers[: spec.clients]]
        self.servers = [Server(number, spec, neighbours) for number in numbers[spec.clients :]]
        for server in self.servers:
            server.manager.listen(SERVICE, backlog=spec.lanes)
        for end in (*self.clients, *self.servers):
            neighbours[end.gid] = end.mac
            self._setup.attach(end.port, end.mac)
        self._asked = 0

    def watch(self, output: FrameOutput) -> None:
        """Show frames to ``output``, and lose some as specified."""
        self._setup.watch(chance(self._spec), output)

    def round(self, count: int) -> None:
        """Open ``count`` connections at a time and close all of them."""
        for lane in range(count):
            client, server = self._spec.pair_of(lane)
            self.clients[client].ask(self.servers[server], self._spec.dscp, self.simulator.now)
        self._asked += count
        self._setup.settle(lambda: sum(client.over for client in self.clients) == self._asked)
        if max(len(client.manager.registry) for client in self.clients) > MAX_WAITING:
            self.simulator.run()


def connect(spec: TrafficSpec, writer: Taker, progress: Progress) -> TrafficSummary:
    """Write connections being opened and closed, as many at a time as there are queue pairs."""
    connecting, output = Connecting(spec), FrameOutput(writer, spec.frames, progress)
    connecting.watch(output)
    with suppress(Enough):
        for count in rounds(spec, spec.lanes):
            connecting.round(count)
    now, refused = connecting.simulator.now, sum(client.refused for client in connecting.clients)
    return summarise(output.counter, (), now, lost=output.losses, refused=refused)
