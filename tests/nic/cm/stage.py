"""Two hosts whose adapters are managed, on one link: what the manager's tests stand on."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple, TypeVar

from rdmawire.fabric.clock import us
from rdmawire.fabric.host import Buffer, Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.world import World
from rdmawire.nic.attribute import QPCap
from rdmawire.nic.cm.connection import Connection
from rdmawire.nic.cm.event import CMEvent, ConnectRequest, Established
from rdmawire.nic.cm.gsi import Datagram
from rdmawire.nic.cm.machine import DEFAULTS
from rdmawire.nic.cm.message import Heard, read
from rdmawire.nic.cm.port import ManagedPort
from rdmawire.nic.cm.service import PortSpace, service_id
from rdmawire.nic.cm.settings import CMSettings, ConnParam
from rdmawire.nic.cm.state import CMState
from rdmawire.nic.path import gids_of
from rdmawire.nic.profile import IBTA, Profile
from rdmawire.nic.qp import QPInit, QueuePair
from rdmawire.nic.state import QPType
from rdmawire.nic.work import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.cm_code import CMAttribute

SERVICE = service_id(PortSpace.TCP, 7174)
DATAGRAMS = service_id(PortSpace.UDP, 7174)
GSI = 1

E = TypeVar("E", bound=CMEvent)


class Sent(NamedTuple):
    """A message that was put on the link, lost or not."""

    time: int
    number: int
    attribute: CMAttribute
    heard: Heard


class Side(Host):
    """One host. ``heard`` keeps all that its manager told."""

    def __init__(
        self,
        number: int,
        world: World,
        neighbours: Mapping[bytes, bytes],
        settings: CMSettings,
        profile: Profile,
        *,
        ipv6: bool,
    ) -> None:
        super().__init__(number, profile=profile, ipv6=ipv6)
        self.world = world
        self.port = ManagedPort(self.nic, neighbours.get, Random(number), settings)
        self.manager = self.port.manager
        self.heard: list[CMEvent] = []
        self.cq = self.nic.create_cq(64)

    def qp(self, kind: QPType = QPType.RC) -> QueuePair:
        cap = QPCap(16, 16, 1, 1, 64)
        return self.nic.create_qp(kind, QPInit(self.pd, self.cq, self.cq, cap))

    def hear(self) -> list[CMEvent]:
        """What was told since; it is kept in ``heard`` too."""
        new: list[CMEvent] = []
        while (event := self.port.next_event()) is not None:
            new.append(event)
        self.heard += new
        return new

    def told(self, kind: type[E]) -> E:
        """The one event of its kind."""
        self.hear()
        (found,) = (event for event in self.heard if isinstance(event, kind))
        return found

    def names(self) -> list[str]:
        """What was told so far, by name."""
        self.hear()
        return [type(event).__name__ for event in self.heard]

    def connection(self) -> Connection:
        """The one that there is."""
        (found,) = self.manager.registry
        return found

    def state(self) -> CMState:
        return self.connection().state

    def accept(self, param: ConnParam | None = None, kind: QPType = QPType.RC) -> QueuePair:
        """Accept the one request that came, with a new queue pair."""
        qp = self.qp(kind)
        request = self.told(ConnectRequest)
        self.manager.accept(request.id, qp, self.world.now, param or ConnParam())
        return qp

    def send(self, qp: QueuePair, data: bytes) -> None:
        source = self.filled(data)
        self.nic.post_send(qp, (SendWR(SendOpcode.SEND, (source.sge(),)),), self.world.now)

    def receive(self, qp: QueuePair, length: int) -> Buffer:
        sink = self.buffer(length)
        self.nic.post_recv(qp, (RecvWR((sink.sge(),)),), self.world.now)
        return sink

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
        self.world = World()
        self.neighbours: dict[bytes, bytes] = {}
        self.client, self.server = (
            Side(number, self.world, self.neighbours, settings, profile, ipv6=ipv6)
            for number in (1, 2)
        )
        self.sent: list[Sent] = []
        self._frames = 0
        self.world.on_sent.append(self._note)
        for side in (self.client, self.server):
            self.neighbours[side.gid] = side.mac
            self.world.attach(side.port, side.mac, self.link)
        if listens:
            self.server.manager.listen(SERVICE, backlog=backlog)
            self.server.manager.listen(DATAGRAMS, datagrams=True, backlog=backlog)

    def _note(self, frame: bytes, now: int) -> None:
        self._frames += 1
        heard = message_in(frame)
        if heard is not None:
            attribute = CMAttribute(heard.mad.attribute_id)
            self.sent.append(Sent(now, self._frames, attribute, heard))

    def messages(self) -> list[str]:
        """The names of all messages so far."""
        return [sent.attribute.name for sent in self.sent]

    def drive(self, until: int | None = None) -> None:
        """Let all happen that is to happen; a time is counted from now."""
        self.world.run(None if until is None else self.world.now + until)

    def ask(
        self, param: ConnParam | None = None, *, kind: QPType = QPType.RC, by_hand: bool = False
    ) -> QueuePair:
        """Have the client ask for a connection."""
        qp = self.client.qp(kind)
        service = DATAGRAMS if kind is QPType.UD else SERVICE
        path = self.client.path_to(self.server)
        offer = param or ConnParam()
        manager = self.client.manager
        manager.connect(qp, path, service, self.world.now, offer, by_hand=by_hand)
        return qp


def connected(link: Link | None = None, **options: bool) -> tuple[Two, QueuePair, QueuePair]:
    """Two with a connection."""
    two = Two(link, **options)  # type: ignore[arg-type]
    mine = two.ask()
    two.drive(us(10))
    peers = two.server.accept()
    two.drive(us(10))
    assert isinstance(two.client.hear()[-1], Established)
    return two, mine, peers


def message_in(frame: bytes) -> Heard | None:
    """The connection management message in a frame, if that is what it is."""
    parsed = roce.parse(frame)
    if parsed.packet.bth.destqp != GSI:
        return None
    source, destination = gids_of(parsed.headers)
    return read(Datagram(source, destination, parsed.packet.payload))
