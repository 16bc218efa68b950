"""Connections made, refused, lost and ended by the connection manager. IBA 12.6, 12.9, 12.11."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from rdmawire.fabric import Envelope, Host, Link, NotifyingPort, Place, Simulator
from rdmawire.ib import QPInit, QueuePair
from rdmawire.ib.cm import (
    CMEvent,
    CMSettings,
    ConnectRequest,
    ConnectResponse,
    ConnParam,
    DatagramRequest,
    Disconnected,
    ManagedPort,
    PortSpace,
    service_id,
)
from rdmawire.units import us
from rdmawire.verbs import Event, QPCap, QPType, RecvWR, SendOpcode, SendWR
from rdmawire.wire.cm import RejectReason
from tools.make_captures.golden.case import CLIENT, LATENCY, PLACES, SERVER, text
from tools.make_captures.golden.played import Played
from tools.make_captures.golden.stage import Sent

_PORT = 18515
_SERVICE = service_id(PortSpace.TCP, _PORT)
_DATAGRAMS = service_id(PortSpace.UDP, _PORT)
_SETTINGS = CMSettings(response_timeout=10, max_cm_retries=3, packet_life=8, mra_timeout=10)
_GREETING = 64
_THOUGHT = us(20)
"""Nanoseconds after which an owner has made up its mind."""

Heard = Callable[[CMEvent], None]


class Managed(Host):
    """A host whose connections are managed. ``when`` is what its owner does about each event."""

    def __init__(
        self, name: str, who: str, place: Place, neighbours: Mapping[bytes, bytes]
    ) -> None:
        super().__init__(place=place)
        drawn = Random(f"{name}/{who}")
        self.number = drawn.getrandbits(22) | 1 << 22
        managed = ManagedPort(self.nic, neighbours.get, drawn, _SETTINGS)
        self.manager = managed.manager
        self.port = NotifyingPort(self.nic, managed)
        self.port.on_event = self._hear
        self.when: dict[type[CMEvent], Heard] = {}

    def qp(self, kind: QPType) -> QueuePair:
        """The queue pair of the connection, with a receive for a greeting."""
        cq = self.nic.create_cq(16)
        init = QPInit(self.pd, cq, cq, QPCap(4, 4, 1, 1, 0))
        return self.nic.create_qp(kind, init, self.number)

    def _hear(self, event: Event | CMEvent) -> None:
        if isinstance(event, CMEvent) and type(event) in self.when:
            self.when[type(event)](event)


class Meeting:
    """A client and a server that listens; ``kind`` is what the client asks with."""

    def __init__(self, story: "Story") -> None:
        self.simulator = Simulator()
        self.kind = story.kind
        places = PLACES[story.ipv6]
        macs = {place.gid: place.mac for place in places.values()}
        self.client, self.server = (
            Managed(story.name, who, places[who], macs) for who in (CLIENT, SERVER)
        )
        link = Link(LATENCY, drop=story.lost)
        self.stations = {
            side: self.simulator.attach(side.port, side.mac, link)
            for side in (self.client, self.server)
        }
        self.sent: list[Sent] = []
        self.simulator.on_sent.append(self._note)

    def _note(self, frame: Envelope, now: int) -> None:
        who = CLIENT if frame.data[6:12] == self.client.mac else SERVER
        self.sent.append(Sent(now, who, frame.data))

    def listen(self) -> None:
        """Have the server be told of requests for both services."""
        self.server.manager.listen(_SERVICE)
        self.server.manager.listen(_DATAGRAMS, datagrams=True)

    def later(self, side: Managed, action: Callable[[], object], wait: int = _THOUGHT) -> None:
        """Have an owner do something after a while."""

        def act() -> None:
            action()
            self.simulator.wake(self.stations[side])

        self.simulator.call_at(self.simulator.now + wait, act)

    def ask(self, *, by_hand: bool = False) -> None:
        """Have the client ask for a connection, or for a datagram service."""
        service = _DATAGRAMS if self.kind is QPType.UD else _SERVICE
        path = self.client.path_to(self.server)
        param = ConnParam(b"private data of the client", 4, 4)
        qp = self.client.qp(self.kind)
        manager = self.client.manager
        manager.connect(qp, path, service, self.simulator.now, param, by_hand=by_hand)

    def accept(self, event: Any) -> None:
        """Have the server grant what was asked for."""
        qp = self.server.qp(self.kind)
        param = ConnParam(b"private data of the server", 4, 4)
        self.server.manager.accept(event.id, qp, self.simulator.now, param)

    def reject(self, event: Any, reason: RejectReason = RejectReason.CONSUMER_REJECT) -> None:
        """Have the server refuse."""
        self.server.manager.reject(event.id, self.simulator.now, b"why it was refused", reason)

    def disconnect(self, side: Managed) -> None:
        """Have one side end the connection, or agree to its end."""
        (connection,) = side.manager.registry
        side.manager.disconnect(connection.id, self.simulator.now)

    def agree(self, side: Managed) -> None:
        """Have this side agree when the other ended the connection."""
        side.when[Disconnected] = lambda _: self.later(side, partial(self._answer_end, side))

    def _answer_end(self, side: Managed) -> None:
        for connection in side.manager.registry:
            if connection.state.name == "DREQ_RCVD":
                side.manager.disconnect(connection.id, self.simulator.now)

    def accepts(self, wait: int = _THOUGHT) -> None:
        """Have the server grant all that is asked for, after a while."""
        for kind in (ConnectRequest, DatagramRequest):
            self.server.when[kind] = lambda event: self.later(
                self.server, partial(self.accept, event), wait
            )

    def refuses(self, reason: RejectReason) -> None:
        """Have the server refuse all that is asked for."""
        for kind in (ConnectRequest, DatagramRequest):
            self.server.when[kind] = lambda event: self.later(
                self.server, partial(self.reject, event, reason)
            )

    def greet(self) -> None:
        """Have the client say something over the connection."""
        source, sink = self.client.filled(text(_GREETING)), self.server.buffer(_GREETING)
        one, other = (side.nic.device.qps[side.number] for side in (self.client, self.server))
        self.server.nic.post_recv(other, (RecvWR((sink.sge(),)),))
        self.client.nic.post_send(one, (SendWR(SendOpcode.SEND, (source.sge(),)),))


class Story(NamedTuple):
    """What befalls a connection."""

    name: str
    shows: str
    tell: Callable[[Meeting], None]
    kind: QPType = QPType.RC
    ipv6: bool = False
    lost: tuple[int, ...] = ()

    def play(self) -> Played:
        """Let it happen."""
        meeting = Meeting(self)
        meeting.listen()
        self.tell(meeting)
        meeting.simulator.run()
        details: dict[str, Any] = {"service": self.kind.name}
        if self.lost:
            details["lost"] = list(self.lost)
        return Played(self.name, self.shows, meeting.sent, details)


def _whole(meeting: Meeting) -> None:
    """Connect, greet, and end it from the client's side."""
    meeting.accepts()
    meeting.agree(meeting.server)
    meeting.later(meeting.client, meeting.ask, 0)
    meeting.later(meeting.client, meeting.greet, us(200_000))
    meeting.later(meeting.client, partial(meeting.disconnect, meeting.client), us(201_000))


def _refused(meeting: Meeting, reason: RejectReason = RejectReason.CONSUMER_REJECT) -> None:
    meeting.refuses(reason)
    meeting.later(meeting.client, meeting.ask, 0)


def _resolved(meeting: Meeting) -> None:
    meeting.accepts()
    meeting.later(meeting.client, meeting.ask, 0)


def _nobody_listens(meeting: Meeting) -> None:
    meeting.server.manager.stop_listening(_SERVICE)
    meeting.server.manager.stop_listening(_DATAGRAMS, datagrams=True)
    meeting.later(meeting.client, meeting.ask, 0)


def _slow_server(meeting: Meeting) -> None:
    """The owner thinks for longer than the client waits, so the REQ comes twice."""
    meeting.accepts(us(8_000))
    meeting.later(meeting.client, meeting.ask, 0)


def _by_hand(meeting: Meeting, decide: Callable[[Any], None], wait: int) -> None:
    meeting.client.when[ConnectResponse] = lambda event: meeting.later(
        meeting.client, partial(decide, event), wait
    )
    meeting.accepts()
    meeting.later(meeting.client, partial(meeting.ask, by_hand=True), 0)


def _slow_client(meeting: Meeting) -> None:
    """The same on the other side: the REP comes twice."""
    manager = meeting.client.manager
    _by_hand(meeting, lambda event: manager.establish(event.id, meeting.simulator.now), us(8_000))


def _client_refuses(meeting: Meeting) -> None:
    manager = meeting.client.manager
    _by_hand(
        meeting, lambda event: manager.reject(event.id, meeting.simulator.now, b"no"), _THOUGHT
    )


def _both_end(meeting: Meeting) -> None:
    meeting.accepts()
    meeting.later(meeting.client, meeting.ask, 0)
    for side in (meeting.client, meeting.server):
        meeting.later(side, partial(meeting.disconnect, side), us(200_000))


_FRAMES = {"req": 1, "rep": 2, "rtu": 3, "dreq": 6, "drep": 7}
"""Which frame of a whole connection each message is."""

_STORIES = (
    *(
        Story(f"cm-whole-{kind.name.lower()}-ipv{6 if ipv6 else 4}",
              f"{kind.name} over IPv{6 if ipv6 else 4}: connected, used, ended by the client",
              _whole, kind, ipv6)
        for kind in (QPType.RC, QPType.UC) for ipv6 in (False, True)
    ),
    *(
        Story(f"cm-{name}-lost", f"the {name.upper()} is lost once", _whole, lost=(number,))
        for name, number in _FRAMES.items()
    ),
    Story("cm-nobody-listens", "refused by the manager: no such service", _nobody_listens),
    Story("cm-slow-server", "the owner takes its time: MRA of the REQ", _slow_server),
    Story("cm-slow-client", "the other owner takes its time: MRA of the REP", _slow_client),
    Story("cm-client-refuses", "the client refuses the REP", _client_refuses),
    Story("cm-both-end", "both sides end the connection at once", _both_end),
    Story("cm-unreachable", "every REQ is lost: three retries, then a REJ for the timeout",
          _resolved, lost=tuple(range(1, 6))),
    *(
        Story(f"sidr-found-ipv{6 if ipv6 else 4}",
              f"a datagram service is found over IPv{6 if ipv6 else 4}",
              _resolved, QPType.UD, ipv6)
        for ipv6 in (False, True)
    ),
    Story("sidr-refused", "a datagram service is refused", _refused, QPType.UD),
    Story("sidr-nobody-listens", "there is no such datagram service", _nobody_listens, QPType.UD),
    Story("sidr-rep-lost", "the SIDR_REP is lost once", _resolved, QPType.UD, lost=(2,)),
    *(
        Story(f"cm-rejected-{reason.value}", f"refused: {reason.name}",
              partial(_refused, reason=reason))
        for reason in RejectReason
    ),
)  # fmt: skip


def connections() -> Iterator[Played]:
    """Every story, told."""
    return (story.play() for story in _STORIES)
