"""Two hosts whose adapters are managed, on one link: what the manager's tests stand on."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import NamedTuple, TypeVar

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import Buffer, Host
from rdmawire.fabric.link import Arrival, Chances, Link
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.cm.connection import CMSettings, Connection, ConnParam, PortSpace, service_id
from rdmawire.ib.cm.event import CMEvent, ConnectRequest, DatagramRequest
from rdmawire.ib.cm.gsi import Datagram
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.cm.messages import ReceivedMad, read
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.ib.encapsulation import gids_of
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.units import us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.cm import CMAttribute

SERVICE = service_id(PortSpace.TCP, 7174)
DATAGRAMS = service_id(PortSpace.UDP, 7174)
GSI = 1
UP = CMState.ESTABLISHED

E = TypeVar("E", bound=CMEvent)


class Sent(NamedTuple):
    """A message that was put on the link, lost or not."""

    time: int
    number: int
    attribute: CMAttribute
    received: ReceivedMad


class Side(Host):
    """One host. ``received`` are the events of its manager, ``when`` its reaction to each kind."""

    def __init__(
        self,
        number: int,
        simulator: Simulator,
        neighbours: Mapping[bytes, bytes],
        settings: CMSettings,
        profile: Profile,
        *,
        ipv6: bool,
    ) -> None:
        super().__init__(number, profile=profile, ipv6=ipv6)
        self.simulator = simulator
        self.port = ManagedPort(self.nic, neighbours.get, Random(number), settings)
        self.manager = self.port.manager
        self.received: list[CMEvent] = []
        self.when: dict[type[CMEvent], Callable[[CMEvent], object]] = {}
        self.cq = self.nic.create_cq(64)

    def qp(self, kind: QPType = QPType.RC) -> QueuePair:
        cap = QPCap(16, 16, 1, 1, 64)
        domain = self.nic.open_xrcd() if kind is QPType.XRC_TGT else 0
        return self.nic.create_qp(kind, QPInit(self.pd, self.cq, self.cq, cap, xrc_domain=domain))

    # As a port of the world.

    def receive(self, frame: bytes, now: int) -> None:
        self.port.receive(frame, now)
        self.take_events()

    def transmit(self, now: int) -> list[bytes]:
        return self.port.transmit(now)

    def next_timer(self) -> int | None:
        return self.port.next_timer()

    def handle_timer(self, now: int) -> None:
        self.port.handle_timer(now)
        self.take_events()

    def take_events(self) -> list[CMEvent]:
        """Return the new events; they are kept in ``received``, too."""
        new: list[CMEvent] = []
        while (event := self.port.next_event()) is not None:
            new.append(event)
            self.received.append(event)
            self.when.get(type(event), _nothing)(event)
        return new

    def receives(self, qp: QueuePair, length: int) -> Buffer:
        sink = self.buffer(length)
        self.nic.post_recv(qp, (RecvWR((sink.sge(),)),))
        return sink

    def event_of(self, kind: type[E]) -> E:
        """The one event of its kind."""
        self.take_events()
        (found,) = (event for event in self.received if isinstance(event, kind))
        return found

    def names(self) -> list[str]:
        """Return the names of all events so far."""
        self.take_events()
        return [type(event).__name__ for event in self.received]

    def connection(self) -> Connection:
        """The one that there is."""
        (found,) = self.manager.registry
        return found

    def state(self) -> CMState:
        return self.connection().state

    def accept(self, param: ConnParam | None = None, kind: QPType = QPType.RC) -> QueuePair:
        """Accept the one request that came, with a new queue pair."""
        qp = self.qp(kind)
        request = self.event_of(DatagramRequest if kind is QPType.UD else ConnectRequest)
        self.manager.accept(request.id, qp, self.simulator.now, param or ConnParam())
        return qp

    def disconnect(self) -> None:
        """End the one connection that there is, or agree to its end."""
        self.manager.disconnect(self.connection().id, self.simulator.now)

    def destroy(self) -> None:
        self.manager.destroy(self.connection().id, self.simulator.now)

    def send(self, qp: QueuePair, data: bytes) -> None:
        source = self.filled(data)
        self.nic.post_send(qp, (SendWR(SendOpcode.SEND, (source.sge(),)),))

    def is_clean(self) -> bool:
        """Whether nothing of any connection is left but queue pair 1."""
        manager = self.manager
        return not (
            len(manager.registry)
            or manager.next_timer() is not None
            or manager.unconfirmed
            or any(manager.pending.values())
        )


class Two:
    """A client and a server that listens. Messages are numbered as the link numbers frames."""

    def __init__(
        self,
        link: Link | None = None,
        *,
        settings: CMSettings = DEFAULTS,
        profile: Profile = IBTA,
        ipv6: bool = False,
        listens: bool = True,
        backlog: int = 16,
    ) -> None:
        self.link = Link(us(1)) if link is None else link
        self.simulator = Simulator()
        self.neighbours: dict[bytes, bytes] = {}
        self.client, self.server = (
            Side(number, self.simulator, self.neighbours, settings, profile, ipv6=ipv6)
            for number in (1, 2)
        )
        self.sent: list[Sent] = []
        self._frames = 0
        self.simulator.on_sent.append(self._note)
        for side in (self.client, self.server):
            self.neighbours[side.gid] = side.mac
            self.simulator.attach(side, side.mac, self.link)
        if listens:
            self.server.manager.listen(SERVICE, backlog=backlog)
            self.server.manager.listen(DATAGRAMS, datagrams=True, backlog=backlog)

    def bystander(self) -> Side:
        """A third host on the link."""
        side = Side(3, self.simulator, self.neighbours, DEFAULTS, IBTA, ipv6=False)
        self.neighbours[side.gid] = side.mac
        return side

    def _note(self, frame: Envelope, now: int) -> None:
        self._frames += 1
        received = message_in(frame.data)
        if received is not None:
            attribute = CMAttribute(received.mad.attribute_id)
            self.sent.append(Sent(now, self._frames, attribute, received))

    def messages(self) -> list[str]:
        """The names of all messages so far."""
        return [sent.attribute.name for sent in self.sent]

    def drive(self, until: int | None = None) -> None:
        """Let all happen that is to happen; a time is counted from now."""
        self.simulator.run(None if until is None else self.simulator.now + until)

    def request(
        self, param: ConnParam | None = None, *, kind: QPType = QPType.RC, by_hand: bool = False
    ) -> QueuePair:
        """Have the client request a connection."""
        qp = self.client.qp(kind)
        service = DATAGRAMS if kind is QPType.UD else SERVICE
        path = self.client.path_to(self.server)
        offer = param or ConnParam()
        manager = self.client.manager
        manager.connect(qp, path, service, self.simulator.now, offer, by_hand=by_hand)
        return qp


def connected(two: Two | None = None) -> tuple[Two, QueuePair, QueuePair]:
    """Two with a connection, and the queue pairs of both."""
    two = Two() if two is None else two
    mine = two.request()
    two.drive(us(10))
    peers = two.server.accept()
    two.drive(us(10))
    assert (two.client.state(), two.server.state()) == (UP, UP)
    return two, mine, peers


def _nothing(_: CMEvent) -> None:
    """What most events have a side do."""


Place = tuple[str, int]
"""A message by its name, and which of those with this name: the first is 1."""


class MessageLink(Link):
    """A link with faults of messages by name. ``lost`` are those that never arrive."""

    def __init__(
        self,
        *,
        drop: Collection[Place] = (),
        duplicate: Collection[Place] = (),
        delay: Mapping[Place, int] | None = None,
        lost: Collection[str] = (),
        chances: Chances | None = None,
    ) -> None:
        super().__init__(us(1), chances=chances)
        self.dropped, self.doubled, self.delayed = drop, duplicate, dict(delay or {})
        self.lost = lost
        self.counts: Counter[str] = Counter()

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        received = message_in(frame.data)
        if received is None:
            return super().carry(frame, now)
        name = CMAttribute(received.mad.attribute_id).name
        self.counts[name] += 1
        place = (name, self.counts[name])
        if name in self.lost or place in self.dropped:
            return []
        late = self.delayed.get(place, 0)
        times = 2 if place in self.doubled else 1
        return [
            arrival._replace(time=arrival.time + late)
            for _ in range(times)
            for arrival in super(MessageLink, self).carry(frame, now)
        ]


def message_in(frame: bytes) -> ReceivedMad | None:
    """The connection management message in a frame, if that is what it is."""
    parsed = roce.parse(frame)
    if parsed.packet.bth.destqp != GSI:
        return None
    source, destination = gids_of(parsed.headers)
    return read(Datagram(source, destination, parsed.packet.payload))
