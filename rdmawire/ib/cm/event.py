"""Events of the connection manager: one class for each, in the terms of rdma_cm.

``id`` is the local communication id, which the owner uses in calls. Private data is that of the
complete message, including zeros after the peer's data, as in rdma_cm.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from rdmawire.ib.cm.connection import Endpoints
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPType
from rdmawire.wire.cm import RejectReason, SIDRStatus


class CMEventType(IntEnum):
    """The numbers of rdma_cm_event_type."""

    ADDR_RESOLVED = 0
    ADDR_ERROR = 1
    ROUTE_RESOLVED = 2
    ROUTE_ERROR = 3
    CONNECT_REQUEST = 4
    CONNECT_RESPONSE = 5
    CONNECT_ERROR = 6
    UNREACHABLE = 7
    REJECTED = 8
    ESTABLISHED = 9
    DISCONNECTED = 10
    DEVICE_REMOVAL = 11
    MULTICAST_JOIN = 12
    MULTICAST_ERROR = 13
    ADDR_CHANGE = 14
    TIMEWAIT_EXIT = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRequest:
    """A peer requests a connection: ``accept`` or ``reject`` it.

    ``responder_resources`` and ``initiator_depth`` are the peer's, exchanged, so that this side may
    accept them. ``endpoints`` is set if the request began with the IP header.
    """

    TYPE: ClassVar = CMEventType.CONNECT_REQUEST
    id: int
    service_id: int
    qp_type: QPType
    responder_resources: int
    initiator_depth: int
    retry_count: int
    rnr_retry_count: int
    flow_control: bool
    srq: bool
    remote_qpn: int
    path: AddressHandle
    endpoints: Endpoints | None
    private_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DatagramRequest:
    """A peer requests a datagram service: ``accept`` or ``reject`` it."""

    TYPE: ClassVar = CMEventType.CONNECT_REQUEST
    id: int
    service_id: int
    path: AddressHandle
    endpoints: Endpoints | None
    private_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectResponse:
    """The peer accepted; the owner must call ``establish`` or ``reject``."""

    TYPE: ClassVar = CMEventType.CONNECT_RESPONSE
    id: int
    responder_resources: int
    initiator_depth: int
    remote_qpn: int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class ConnectError:
    """The queue pair does not support the peer's reply; it was refused. ``reason`` is a text."""

    TYPE: ClassVar = CMEventType.CONNECT_ERROR
    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer was received after all retries (ETIMEDOUT).

    After a ``ConnectRequest``: the owner did not answer in time; the request was removed.
    """

    TYPE: ClassVar = CMEventType.UNREACHABLE
    id: int


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The peer does not have this datagram service, or refused it."""

    TYPE: ClassVar = CMEventType.UNREACHABLE
    id: int
    status: SIDRStatus | int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """The peer refused, or stopped waiting."""

    TYPE: ClassVar = CMEventType.REJECTED
    id: int
    reason: RejectReason | int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Established:
    """The connection is established. ``private_data`` is the REP's, or the RTU's if received."""

    TYPE: ClassVar = CMEventType.ESTABLISHED
    id: int
    private_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A datagram service was found: its path, queue pair and Q_Key."""

    TYPE: ClassVar = CMEventType.ESTABLISHED
    id: int
    path: AddressHandle
    remote_qpn: int
    remote_qkey: int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The peer ended the connection, or confirmed the end that this side requested.

    ``timed_out``: the peer did not answer.
    """

    TYPE: ClassVar = CMEventType.DISCONNECTED
    id: int
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class TimewaitExit:
    """Timewait is over: no packet is in flight, and the queue pair may be used again."""

    TYPE: ClassVar = CMEventType.TIMEWAIT_EXIT
    id: int


CMEvent: TypeAlias = (
    ConnectRequest
    | DatagramRequest
    | ConnectResponse
    | ConnectError
    | Unreachable
    | Unresolved
    | Rejected
    | Established
    | Resolved
    | Disconnected
    | TimewaitExit
)
