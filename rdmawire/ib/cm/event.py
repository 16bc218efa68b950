"""What the connection manager tells: one class for each thing that happens, in rdma_cm's words.

``id`` is the local communication id, by which the owner speaks of a connection. Private data are
those of the message whole, zeros behind what the peer wrote included, as rdma_cm hands them out.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from rdmawire.ib.cm.connection import Endpoints
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPType
from rdmawire.wire.cm_code import RejectReason, SIDRStatus


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
    """A peer wants a connection: ``accept`` or ``reject`` it.

    ``responder_resources`` and ``initiator_depth`` are as this side may accept them: the peer's,
    exchanged. ``endpoints`` is there where the request began with the IP header.
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
    """A peer looks for a datagram service: ``accept`` or ``reject`` it."""

    TYPE: ClassVar = CMEventType.CONNECT_REQUEST
    id: int
    service_id: int
    path: AddressHandle
    endpoints: Endpoints | None
    private_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectResponse:
    """The peer accepted, and the owner wanted to see it: ``establish`` or ``reject``."""

    TYPE: ClassVar = CMEventType.CONNECT_RESPONSE
    id: int
    responder_resources: int
    initiator_depth: int
    remote_qpn: int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class ConnectError:
    """The peer accepted what the queue pair cannot do; it was refused. ``reason`` is a text."""

    TYPE: ClassVar = CMEventType.CONNECT_ERROR
    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer came, however often it was asked (ETIMEDOUT).

    After a ``ConnectRequest``: the owner did not answer it in time, and it is gone.
    """

    TYPE: ClassVar = CMEventType.UNREACHABLE
    id: int


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The peer has no such datagram service, or does not give it."""

    TYPE: ClassVar = CMEventType.UNREACHABLE
    id: int
    status: SIDRStatus | int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """The peer refused, or gave up."""

    TYPE: ClassVar = CMEventType.REJECTED
    id: int
    reason: RejectReason | int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Established:
    """The connection stands. ``private_data`` are the REP's, or the RTU's where one came."""

    TYPE: ClassVar = CMEventType.ESTABLISHED
    id: int
    private_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A datagram service was found: this way, at this queue pair, by this Q_Key."""

    TYPE: ClassVar = CMEventType.ESTABLISHED
    id: int
    path: AddressHandle
    remote_qpn: int
    remote_qkey: int
    private_data: bytes


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The peer ended the connection, or the end that this side asked for is known to it.

    ``timed_out`` says that the peer never answered.
    """

    TYPE: ClassVar = CMEventType.DISCONNECTED
    id: int
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class TimewaitExit:
    """Nothing of the connection is on its way any more: its queue pair may be used again."""

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
