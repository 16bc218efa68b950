"""What moves connections: steps of the table, the clock, and what both need.

:mod:`~rdmawire.ib.cm.receive` finds out what a message is about, and
:mod:`~rdmawire.ib.cm.actions` does what a row says; both work on this.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from rdmawire.ib.cm.actions import REACTIONS
from rdmawire.ib.cm.connection import CMSettings, Connection, Registry, duration
from rdmawire.ib.cm.event import CMEvent, CMEventType
from rdmawire.ib.cm.gsi import GeneralServices
from rdmawire.ib.cm.messages import Heard
from rdmawire.ib.cm.state_machine import CM_TRANSITIONS, WAITS, CMState, Input, Wait
from rdmawire.ib.engine import Nic
from rdmawire.identifier import Drawn, Randomness, Source
from rdmawire.validate import check_methods, check_time, check_type
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.timers import Timers

DEFAULTS = CMSettings()

_PENDING = frozenset({CMState.REQ_RCVD, CMState.MRA_REQ_SENT, CMState.SIDR_REQ_RCVD})
_UNCONFIRMED = frozenset({CMState.REP_SENT, CMState.MRA_REP_RCVD})

Neighbours = Callable[[bytes], bytes | None]
"""The Ethernet address (six bytes) of the next hop to a GID, if there is one."""


class Listener(NamedTuple):
    """Who waits for requests of a service, at most ``backlog`` unanswered ones."""

    service_id: int
    datagrams: bool
    backlog: int


class Machine:
    """All connections of one NIC, and the datagrams that are about them. Times are ns.

    ``unconfirmed`` are those that wait for an RTU, by the numbers of their queue pairs.
    ``pending`` are requests that wait for the owner, the oldest first: by service id and whether
    they are for datagrams (SIDR), then by communication id.
    """

    def __init__(
        self,
        nic: Nic,
        neighbours: Neighbours,
        random: Randomness,
        settings: CMSettings = DEFAULTS,
    ) -> None:
        check_type("nic", nic, Nic)
        check_methods("neighbours", neighbours, "__call__")
        check_methods("random", random, "getrandbits")
        check_type("settings", settings, CMSettings)
        settings.check()
        self.nic = nic
        self.neighbours = neighbours
        self.random: Randomness = Source(random)
        self.settings = settings
        self.registry = Registry(settings.max_connections)
        self.listeners: dict[tuple[int, bool], Listener] = {}
        self.unconfirmed: dict[int, Connection] = {}
        self.gsi = GeneralServices(nic)
        self.now = 0
        self.pending: dict[tuple[int, bool], dict[int, Connection]] = {}
        self.timers: Timers[Connection] = Timers()
        self._events: deque[CMEvent] = deque()

    @property
    def answer_time(self) -> int:
        """How long an answer may take (ns): the peer's time, there and back."""
        settings = self.settings
        return duration(settings.response_timeout) + 2 * duration(settings.packet_life)

    def knows(self, conn: Connection, what: Input) -> bool:
        """Whether the table has a row for this."""
        return (conn.state, what) in CM_TRANSITIONS

    def step(self, conn: Connection, what: Input, heard: Heard | None = None) -> None:
        """Do what the table's row says."""
        row = CM_TRANSITIONS[conn.state, what]
        for do in row.does:
            REACTIONS[do](self, conn, heard)
        if row.to is not conn.state:
            self.enter(conn, row.to)

    def enter(self, conn: Connection, state: CMState) -> None:
        """Be in a state, and wait for what it waits for."""
        conn.state = state
        self._note_pending(conn)
        self._wait(conn, WAITS.get(state, Wait.NOTHING))
        self._note_unconfirmed(conn)
        if state is CMState.CLOSED:
            self.registry.remove(conn)

    def _wait(self, conn: Connection, wait: Wait) -> None:
        if wait is Wait.NOTHING:
            self.timers.disarm(conn)
        elif wait is Wait.END:
            self.timers.arm(conn, self.now + conn.timewait)
        elif wait is Wait.OWNER:
            self.timers.arm(conn, self.now + conn.owner_timeout + self._extension(conn))
        else:
            self.timers.arm(conn, conn.answer_due)

    def _extension(self, conn: Connection) -> int:
        """The additional time that an MRA of this side gave the owner (ns). IBA 12.6.6."""
        extended = conn.state is CMState.MRA_REQ_SENT
        return duration(self.settings.mra_timeout) if extended else 0

    def _note_unconfirmed(self, conn: Connection) -> None:
        if conn.state in _UNCONFIRMED:
            self.unconfirmed[conn.qpn] = conn
        elif self.unconfirmed.get(conn.qpn) is conn:
            del self.unconfirmed[conn.qpn]

    def _note_pending(self, conn: Connection) -> None:
        waiting = self.pending.setdefault((conn.service_id, conn.datagrams), {})
        if conn.state in _PENDING:
            waiting[conn.id] = conn
        else:
            waiting.pop(conn.id, None)

    def send(self, conn: Connection, message: bytes) -> None:
        """Send a datagram to the peer's manager, in the connection's partition."""
        self.gsi.send(conn.path, message, conn.pkey_index)

    def reply(self, heard: Heard, message: bytes) -> None:
        """Answer a datagram that is of no connection, in its partition."""
        self.gsi.send(self.path_to(heard), message, heard.pkey_index)

    def tell(self, conn: Connection, what: CMEvent) -> None:
        """Tell the owner, if that wants to hear of this connection."""
        if not conn.silent:
            self._events.append(what)

    def keep(self, conn: Connection) -> None:
        """Count a new connection among the others."""
        self.registry.add(conn)
        if conn.state in _PENDING:
            self.enter(conn, conn.state)

    def new_connection(self, path: AddressHandle, service: int) -> Connection:
        """One with an id that no other has."""
        number = Drawn(self.random, 32, 1, 1 << 32).unused(self.registry.__contains__)
        return Connection(number, self.random.getrandbits(64), path, service)

    def path_to(self, heard: Heard) -> AddressHandle:
        """The way back to a sender; ``poll`` saw to it that there is one.

        VLAN, priority, traffic class and RoCE's version are those of the datagram, as with Linux's
        ib_init_ah_attr_from_wc.
        """
        mac = self.neighbours(heard.source) or b""
        path = AddressHandle(mac, heard.source, heard.destination)
        back = heard.back or path
        return path._replace(
            traffic_class=back.traffic_class, sl=back.sl, vlan=back.vlan, gid_type=back.gid_type
        )

    def listener(self, service: int, *, datagrams: bool) -> Listener | None:
        """Who waits for requests of a service."""
        return self.listeners.get((service, datagrams))

    def has_room_for(self, service: int, source: bytes, *, datagrams: bool) -> bool:
        """Whether one more request may wait for its answer; ``source`` is the peer's GID."""
        key = (service, datagrams)
        return not self._is_full(key) or self._displaced_by(key, source) is not None

    def make_room_for(self, service: int, source: bytes, *, datagrams: bool) -> None:
        """If the backlog is full, refuse the request that yields to one of ``source`` (a GID)."""
        key = (service, datagrams)
        displaced = self._displaced_by(key, source) if self._is_full(key) else None
        if displaced is not None:
            self.step(displaced, Input.DISPLACED)

    def _is_full(self, key: tuple[int, bool]) -> bool:
        waiting = self.pending.get(key, ())
        return self.registry.full or len(waiting) >= self.listeners[key].backlog

    def _displaced_by(self, key: tuple[int, bool], source: bytes) -> Connection | None:
        """The unanswered request that yields its place to one of ``source``, if any does.

        It is the oldest of the peer with the most requests. It yields if that peer has more than
        ``source`` would have then, or if it is older than the answer time: so one peer cannot
        shut out the others, and many peers cannot for long.
        """
        waiting = self.pending.get(key, {})
        counts = Counter(conn.remote for conn in waiting.values())
        most = max(counts.values(), default=0)
        oldest = next((conn for conn in waiting.values() if counts[conn.remote] == most), None)
        if oldest is None:
            return None
        expired = self.now - oldest.since >= self.answer_time
        return oldest if expired or counts[source] + 1 < most else None

    def withdraw_request(self, conn: Connection) -> bool:
        """Remove the event of a peer's request. ``False`` if the owner has taken it already."""
        for event in self._events:
            if event.id == conn.id and event.TYPE is CMEventType.CONNECT_REQUEST:
                self._events.remove(event)
                return True
        return False

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns), if anything waits. Asking changes nothing."""
        return self.timers.next()

    def handle_timer(self, now: int) -> None:
        """Ask again what was not answered, give up, and forget what is over."""
        check_time(now)
        self.now = now
        for conn in self.timers.due(now):
            if WAITS[conn.state] is not Wait.ANSWER:
                self.step(conn, Input.EXPIRED)
            elif conn.tries:
                conn.tries -= 1
                self.timers.arm(conn, now + conn.period)
                self.send(conn, conn.again)
            else:
                self.step(conn, Input.GIVEN_UP)

    def next_event(self) -> CMEvent | None:
        """The oldest event that nobody took yet."""
        return self._events.popleft() if self._events else None
