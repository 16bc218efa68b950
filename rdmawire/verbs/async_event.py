"""Events that an engine reports: one class for each type of event. IBA 11.6.3.

Each names its object by number. Those of ibv_get_async_event(3) have their ibv_event_type;
:data:`ABSENT` says why the others never happen here. :class:`CompletionEvent` is an event of a
completion channel (ibv_get_cq_event(3)).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import ClassVar, NamedTuple, TypeAlias

from rdmawire.memory.key import Access, KeyFault
from rdmawire.terminal import plural


class EventType(IntEnum):
    """The numbers of ibv_event_type."""

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    PATH_MIG = 6
    PATH_MIG_ERR = 7
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    LID_CHANGE = 11
    PKEY_CHANGE = 12
    SM_CHANGE = 13
    SRQ_ERR = 14
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16
    CLIENT_REREGISTER = 17
    GID_CHANGE = 18
    WQ_FATAL = 19
    DEVICE_SPEED_CHANGE = 20


_NO_SUBNET_MANAGER = "RoCE has no LIDs and no subnet manager"

ABSENT = {
    EventType.LID_CHANGE: _NO_SUBNET_MANAGER,
    EventType.SM_CHANGE: _NO_SUBNET_MANAGER,
    EventType.CLIENT_REREGISTER: _NO_SUBNET_MANAGER,
    EventType.SRQ_ERR: "a shared receive queue checks what is posted and has nothing else to break",
    EventType.WQ_FATAL: "there are no work queues apart from queue pairs",
    EventType.DEVICE_FATAL: "a device in software does not die alone",
    EventType.DEVICE_SPEED_CHANGE: "a port has no speed: links are the fabric's",
}
"""Asynchronous events that never happen here, and why."""


@dataclass(frozen=True, slots=True)
class CompletionEvent:
    """A completion for which a notification was requested was added to a CQ. IBA 11.4.2.2."""

    cq: int


@dataclass(frozen=True, slots=True)
class CQError:
    """A CQ was full when a completion was added; the completion is lost. IBA 11.6.3.1."""

    TYPE: ClassVar = EventType.CQ_ERR
    cq: int


@dataclass(frozen=True, slots=True)
class QPFatal:
    """A queue pair failed and lost a completion. IBA 11.6.3.1."""

    TYPE: ClassVar = EventType.QP_FATAL
    qp: int


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """The responder of a queue pair received an invalid request.

    ``psn`` is the request's, ``fault`` its fault: a member of the engine's enumeration
    (:class:`rdmawire.ib.service.Fault`).
    """

    TYPE: ClassVar = EventType.QP_REQ_ERR
    qp: int
    psn: int | None = field(default=None, compare=False)
    fault: Enum | None = field(default=None, compare=False)


class Denied(NamedTuple):
    """An access that a key refused: ``access`` to ``length`` bytes at ``va``, with ``reason``."""

    key: int
    va: int
    length: int
    access: Access
    reason: KeyFault

    def __str__(self) -> str:
        asked = f"{self.access.name} of {self.length} bytes at {self.va:#x}"
        return f"{self.reason.name}: key {self.key:#010x}, {asked}"


@dataclass(frozen=True, slots=True)
class AccessViolation:
    """The responder of a queue pair received a request for memory that the key does not allow.

    ``psn`` is the request's, ``denied`` the access that was refused.
    """

    TYPE: ClassVar = EventType.QP_ACCESS_ERR
    qp: int
    psn: int | None = field(default=None, compare=False)
    denied: Denied | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CommunicationEstablished:
    """A packet arrived at a queue pair that is ready to receive but not to send."""

    TYPE: ClassVar = EventType.COMM_EST
    qp: int


@dataclass(frozen=True, slots=True)
class SendQueueDrained:
    """A queue pair in SQD has no packets in flight."""

    TYPE: ClassVar = EventType.SQ_DRAINED
    qp: int


@dataclass(frozen=True, slots=True)
class PathMigrated:
    """A connection migrated to its alternate path."""

    TYPE: ClassVar = EventType.PATH_MIG
    qp: int


@dataclass(frozen=True, slots=True)
class PathMigrationFailed:
    """A peer requested migration to an alternate path that does not match."""

    TYPE: ClassVar = EventType.PATH_MIG_ERR
    qp: int


@dataclass(frozen=True, slots=True)
class LastWQEReached:
    """A queue pair in ERR takes no more receives from its shared receive queue."""

    TYPE: ClassVar = EventType.QP_LAST_WQE_REACHED
    qp: int


@dataclass(frozen=True, slots=True)
class SRQLimitReached:
    """A shared receive queue holds fewer receives than its limit. IBA 10.2.9."""

    TYPE: ClassVar = EventType.SRQ_LIMIT_REACHED
    srq: int


@dataclass(frozen=True, slots=True)
class PortActive:
    """The link of a port came up."""

    TYPE: ClassVar = EventType.PORT_ACTIVE
    port: int


@dataclass(frozen=True, slots=True)
class PortError:
    """The link of a port went down."""

    TYPE: ClassVar = EventType.PORT_ERR
    port: int


@dataclass(frozen=True, slots=True)
class PKeyChanged:
    """The P_Key table of a port changed."""

    TYPE: ClassVar = EventType.PKEY_CHANGE
    port: int


@dataclass(frozen=True, slots=True)
class GIDChanged:
    """The GID table of a port changed."""

    TYPE: ClassVar = EventType.GID_CHANGE
    port: int


QPEvent: TypeAlias = (
    QPFatal
    | InvalidRequest
    | AccessViolation
    | CommunicationEstablished
    | SendQueueDrained
    | PathMigrated
    | PathMigrationFailed
    | LastWQEReached
)
PortEvent: TypeAlias = PortActive | PortError | PKeyChanged | GIDChanged
AsyncEvent: TypeAlias = CQError | QPEvent | SRQLimitReached | PortEvent
Event: TypeAlias = AsyncEvent | CompletionEvent

QueueEvent: TypeAlias = CompletionEvent | CQError | QPFatal | SRQLimitReached
"""Events that completion queues and shared receive queues report."""

Sink: TypeAlias = Callable[[QueueEvent], None]
"""Receives the events of a queue."""


class AsyncChannel:
    """Asynchronous events of the objects that were created with it, and of the port, oldest first.

    They are the events that ibv_get_async_event(3) returns for a context. Events of other objects
    stay with the engine (``next_event``), so that each reader gets only events of its own objects.
    """

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: deque[Event] = deque()

    def __repr__(self) -> str:
        return f"<AsyncChannel: {plural(len(self.events), 'event')}>"

    def get_async_event(self) -> Event | None:
        """Remove and return the oldest event, or return ``None``. ibv_get_async_event(3)."""
        return self.events.popleft() if self.events else None
