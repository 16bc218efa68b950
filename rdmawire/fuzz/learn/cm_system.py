"""The connection manager as a system to learn: a fresh manager for each word. IBA 12.9.

Inputs are calls of the owner, messages of the peer (:mod:`.cm_peer`) and the expiry of a timer.
Outputs are the messages sent, the events reported and the state of the queue pair if it changed,
in this order: ``RTU,Established,QP=RTS``. ``-`` is nothing, ``EINVAL`` the error of a call.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from errno import errorcode
from itertools import zip_longest
from random import Random
from typing import Final

from rdmawire.errors import FuzzError, VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fuzz.learn.cm_peer import MESSAGES, RETRIES, SERVICE, TIMEOUT, CMPeer
from rdmawire.ib.cm.connection import CMSettings, ConnParam
from rdmawire.ib.cm.event import CMEvent, ConnectRequest, DatagramRequest
from rdmawire.ib.cm.machine import CMRules
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.cm.receive import STANDARD as STANDARD_CM
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPCap

EXPIRE: Final = "EXPIRE"
"""The input that lets time pass until the manager's next timer expires."""

MAX_TIMERS: Final = 1000
"""Timers that may expire until all connections are over."""

_MESSAGES: Final = ("MRA_REQ", "MRA_REP", "REJ", "REJ_STALE", "DREQ", "DREP", "LAP", "APR")
_ENDS: Final = ("DISCONNECT", "DESTROY", EXPIRE)

ALPHABETS: Final[dict[str, tuple[str, ...]]] = {
    "active": ("CONNECT", "REP", "RTU", *_MESSAGES, *_ENDS),
    "active-by-hand": (
        "CONNECT_BY_HAND", "REP", "ESTABLISH", "REJECT", "MRA_REQ", "REJ", "REJ_STALE", "DREQ",
        *_ENDS,
    ),
    "passive": (
        "REQ", "REQ_OTHER_ID", "ACCEPT", "REJECT", "RTU", "DATA", "DREQ_OTHER_QPN", *_MESSAGES,
        *_ENDS,
    ),
    "sidr-active": ("RESOLVE", "SIDR_REP", "SIDR_REP_REFUSED", "REJ", "DESTROY", EXPIRE),
    "sidr-passive": ("SIDR_REQ", "ACCEPT", "REJECT", "DESTROY", EXPIRE),
}  # fmt: skip
"""Alphabets of the roles."""

_SETTINGS: Final = CMSettings(
    response_timeout=TIMEOUT,
    max_cm_retries=RETRIES,
    mra_timeout=TIMEOUT + 2,
    packet_life=TIMEOUT,
)
_BEGINS: Final = ("CONNECT", "RESOLVE")
"""Calls that begin a connection.

With them a manager has one connection at a time: with two, the machine would have the square of the
number of states. Requests of the peer name one queue pair, so that the manager accepts no second
one.
"""


class CMSystem:
    """The connection manager of one adapter. ``psn`` is the first PSN that the peer expects.

    ``inputs`` is the alphabet, ``cm_rules`` are the rules of the manager; ``frames`` are those
    since :meth:`reset`, each with whether the manager sent it. Raises :class:`FuzzError` for an
    unknown input.
    """

    def __init__(
        self,
        inputs: Sequence[str] = ALPHABETS["active"],
        *,
        rules: Rules = STANDARD,
        profile: Profile = IBTA,
        psn: int = 1000,
        name: str = "connection manager",
        cm_rules: CMRules = STANDARD_CM,
    ) -> None:
        for one in inputs:
            if one not in _CALLS and one not in MESSAGES and one not in (EXPIRE, "DATA"):
                raise FuzzError(f"a connection manager has no input {one!r} (--list has them)")
        self.name, self.inputs = name, tuple(inputs)
        self._cm_rules = cm_rules
        self.frames: list[tuple[bool, bytes]] = []
        self._psn, self._datagrams = psn, any("SIDR" in one for one in inputs)
        most = 1 if any(name.startswith(_BEGINS) for name in inputs) else 2
        self._settings = _SETTINGS._replace(max_connections=most)
        self._host, self._other = Host(2, profile=profile, rules=rules), Host(1)
        self._cq = self._host.nic.create_cq(16)
        self._qps: list[QueuePair] = []
        self._port: ManagedPort | None = None

    def reset(self) -> None:
        """Make a fresh manager, which listens to one service."""
        host, nic = self._host, self._host.nic
        if self._port is not None:
            self._port.manager.close()
            for qp in self._qps:
                nic.destroy_qp(qp)
            host.events()
        self._qps.clear()
        neighbours = {self._other.gid: self._other.mac}
        self._port = ManagedPort(
            nic,
            neighbours.get,
            Random(1),  # noqa: S311
            self._settings,
            rules=self._cm_rules,
        )
        self._manager = self._port.manager
        self._manager.listen(SERVICE, datagrams=self._datagrams)
        self._peer = CMPeer(self._other, host, self._psn)
        self._now = self._id = 0
        self.frames.clear()

    def step(self, name: str) -> str:
        """Play one input; return the messages, events and states."""
        return self.play(name, self.frame(name))

    def frame(self, name: str) -> bytes:
        """Return the frame of a message of the peer, or of data; empty for other inputs."""
        return self._peer.message(name) if name in MESSAGES or name == "DATA" else b""

    def play(self, name: str, frame: bytes) -> str:
        """Play one input, whose frame may be another than :meth:`frame` returns for it."""
        assert self._port is not None
        before = [qp.state for qp in self._qps]
        was_idle = not len(self._manager.registry)
        refusal = self._take(name, frame)
        shown = [refusal, *map(self._peer.take, self._sent())]
        if not len(self._manager.registry):
            self._peer.forget()
        elif was_idle and name in MESSAGES:
            self._peer.begin()
        shown += map(self._event, self._port.events())
        shown += self._changed_states(before)
        return ",".join(filter(None, shown)) or "-"

    def _take(self, name: str, frame: bytes) -> str:
        """Call the manager, let its next timer expire or deliver the frame; return the error."""
        if name in _CALLS:
            return self._call(name)
        if name == EXPIRE:
            self._expire()
        elif frame:
            assert self._port is not None
            self.frames.append((False, frame))
            self._port.receive(frame, self._now)
        return ""

    def _expire(self) -> bool:
        """Let time pass until the next timer, and handle it; return ``False`` if there is none."""
        assert self._port is not None
        if (due := self._port.next_timer()) is None:
            return False
        self._now = max(due, self._now)
        self._port.handle_timer(self._now)
        return True

    def _changed_states(self, before: Sequence[QPState]) -> Iterator[str]:
        """Yield the states of queue pairs that are not as ``before``; a new one was in RESET."""
        states = [qp.state for qp in self._qps]
        for was, state in zip_longest(before, states, fillvalue=QPState.RESET):
            if was != state:
                yield f"QP={state.name}"

    def _sent(self) -> list[bytes]:
        assert self._port is not None
        sent = self._port.transmit(self._now)
        self.frames += [(True, frame) for frame in sent]
        return sent

    def settle(self) -> int:
        """End all connections as their owner, and let the timers expire.

        Return the number of connections that are left.
        """
        manager = self._manager
        for conn in [*manager.registry]:
            if not conn.silent:  # destroyed already
                manager.destroy(conn.id, self._now)
        for _ in range(MAX_TIMERS):
            self._sent()
            if not self._expire():
                break
        return len(manager.registry)

    def _call(self, name: str) -> str:
        """Call the manager as its owner; return the name of the error if it refuses."""
        try:
            _CALLS[name](self)
        except VerbsError as error:
            return errorcode[error.errno]
        return ""

    def new_qp(self) -> QueuePair:
        """Make a queue pair for a connection or a datagram service."""
        kind = QPType.UD if self._datagrams else QPType.RC
        init = QPInit(self._host.pd, self._cq, self._cq, QPCap(4, 4))
        qp = self._host.nic.create_qp(kind, init)
        self._qps.append(qp)
        return qp

    def connect(self, *, by_hand: bool = False) -> None:
        """Request a connection, or a datagram service."""
        path = self._host.path_to(self._other)
        param = ConnParam(psn=self._psn)
        self._id = self._manager.connect(
            self.new_qp(), path, SERVICE, self._now, param, by_hand=by_hand
        )

    def accept(self) -> None:
        """Accept the last request."""
        self._manager.accept(self._id, self.new_qp(), self._now, ConnParam(psn=self._psn))

    def end(self, call: Callable[[int, int], None]) -> None:
        """Call a function of the manager for the last connection."""
        call(self._id, self._now)

    def _event(self, event: CMEvent) -> str:
        """Describe an event, and note the id of a request."""
        if isinstance(event, ConnectRequest | DatagramRequest):
            self._id = event.id
        text = type(event).__name__
        names = [one.name for one in fields(event)]
        if "timed_out" in names and getattr(event, "timed_out", False):
            text += ".timed_out"
        for name in ("reason", "status"):
            if name in names:
                text += f".{getattr(getattr(event, name), 'name', 'other')}"
        return text if event.id == self._id else f"{text}.of_another"


_CALLS: Final[dict[str, Callable[[CMSystem], None]]] = {
    "CONNECT": CMSystem.connect,
    "CONNECT_BY_HAND": lambda system: system.connect(by_hand=True),
    "RESOLVE": CMSystem.connect,
    "ACCEPT": CMSystem.accept,
    "REJECT": lambda system: system.end(system._manager.reject),
    "ESTABLISH": lambda system: system.end(system._manager.establish),
    "DISCONNECT": lambda system: system.end(system._manager.disconnect),
    "DESTROY": lambda system: system.end(system._manager.destroy),
}
"""Calls of the owner, by the name of the input."""
