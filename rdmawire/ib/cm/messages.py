"""Builders of messages: each function returns the 256 bytes of one. IBA 12.6, 12.11."""

from typing import NamedTuple

from rdmawire.errors import WireError
from rdmawire.ib.cm.connection import CMSettings, Connection, Endpoints, ack_timeout
from rdmawire.ib.cm.gsi import Datagram
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.ib.device import Device
from rdmawire.ib.qp import QueuePair
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPType
from rdmawire.wire import cm, mad
from rdmawire.wire.cm import (
    DREP,
    DREQ,
    IPCM4,
    IPCM6,
    MRA,
    REJ,
    REP,
    REQ,
    RTU,
    SIDRREP,
    SIDRREQ,
    AlternatePath,
    CMAttribute,
    ExtendedTransport,
    FailoverAccepted,
    PrimaryPath,
    PrimaryPathIPv4,
    RejectReason,
    REQConsumerData,
    REQPrivateData,
    SIDRREQConsumerData,
    SIDRREQPrivateData,
    SIDRStatus,
    TransportService,
)
from rdmawire.wire.cm import Message as Which
from rdmawire.wire.header import Header
from rdmawire.wire.layout import Piece
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ManagementClass, Method

CLASS_VERSION = 2
"""Class version of communication management. IBA 12.6.1."""

Message = (
    REQ
    | cm.MRA
    | cm.REJ
    | cm.REP
    | cm.RTU
    | cm.DREQ
    | cm.DREP
    | SIDRREQ
    | cm.SIDRREP
    | cm.LAP
    | cm.APR
)
_WITH_DATA = (REQPrivateData, REQConsumerData, SIDRREQPrivateData, SIDRREQConsumerData)
_NO_PATH = PrimaryPath()
_NO_ALTERNATE = AlternatePath()


class ReceivedMad(NamedTuple):
    """A received message; ``rest`` is what follows the fixed part of a request.

    ``back`` and ``pkey_index`` are those of its datagram.
    """

    source: bytes
    destination: bytes
    mad: MAD
    message: Message
    rest: tuple[Piece, ...] = ()
    back: AddressHandle | None = None
    pkey_index: int = 0

    @property
    def tid(self) -> int:
        """The transaction id of the message."""
        return self.mad.transaction_id

    @property
    def ids(self) -> tuple[int, int]:
        """The communication ids of the receiver and of the sender; 0 if absent."""
        message = self.message
        if isinstance(message, SIDRREQ):
            return 0, message.request_id
        if isinstance(message, cm.SIDRREP):
            return message.request_id, 0
        return getattr(message, "remote_comm_id", 0), message.local_comm_id

    @property
    def private_data(self) -> bytes:
        """The private data, including trailing zeros."""
        for piece in (self.message, *self.rest):
            if isinstance(piece, _WITH_DATA):
                return piece.private_data
        return getattr(self.message, "private_data", b"")

    @property
    def path(self) -> PrimaryPath:
        """The primary path of a REQ; its GIDs have 16 bytes in either form."""
        for piece in self.rest:
            if isinstance(piece, PrimaryPath):
                return piece
            if isinstance(piece, PrimaryPathIPv4):
                return PrimaryPath.parse(piece.build())
        return _NO_PATH

    @property
    def has_alternate(self) -> bool:
        """Whether a REQ proposes an alternate path."""
        return any(isinstance(p, AlternatePath) and p != _NO_ALTERNATE for p in self.rest)

    @property
    def ip_header(self) -> IPCM4 | IPCM6 | None:
        """The IP header at the start of a request's private data."""
        return next((piece for piece in self.rest if isinstance(piece, IPCM4 | IPCM6)), None)


class Asked(NamedTuple):
    """A request, and the addresses of its IP header if its service has one."""

    received: ReceivedMad
    endpoints: Endpoints | None

    @property
    def service_id(self) -> int:
        """The requested service id."""
        return service_of(self.received)


def service_of(received: ReceivedMad) -> int:
    """The service id of a request; 0 for other messages."""
    message = received.message
    if isinstance(message, SIDRREQ | REQ):
        return message.service_id
    return 0


def read(datagram: Datagram) -> ReceivedMad | None:
    """Parse the message in a datagram; ``None`` if it is of another class."""
    try:
        (_, head), *placed = mad.layout(datagram.mad)
    except WireError:
        return None
    if not isinstance(head, MAD) or not _is_cm(head) or not placed:
        return None
    message, *rest = (piece for _, piece in placed)
    if not isinstance(message, Message):
        return None
    source, destination, _, back, pkey_index = datagram
    return ReceivedMad(source, destination, head, message, tuple(rest), back, pkey_index)


def _is_cm(head: MAD) -> bool:
    return head.mgmt_class == ManagementClass.COM_MGT and head.method == Method.SEND


def of(attribute: int, tid: int, *pieces: Header | bytes) -> bytes:
    """Build the 256 bytes of a message."""
    head = MAD(
        mgmt_class=ManagementClass.COM_MGT,
        class_version=CLASS_VERSION,
        method=Method.SEND,
        transaction_id=tid,
        attribute_id=attribute,
    )
    return mad.build(head, *pieces)


_ANY_LID = 0xFFFF
_GUID_BYTES = 8
_SHOULD_ROUTE = 2
"""Hop limit from which a packet leaves its subnet."""

_REQUEST_DATA: dict[bool, type[Header]] = {True: REQConsumerData, False: REQPrivateData}
_SIDR_DATA: dict[bool, type[Header]] = {True: SIDRREQConsumerData, False: SIDRREQPrivateData}
_ANSWERS: tuple[type[Header], ...] = (REP, REJ, SIDRREP)


def _private_bytes(table: type[Header]) -> int:
    return next(row.width // 8 for row in table.rows if row.name == "private_data")


_ROOM = {
    table: _private_bytes(table)
    for table in (*_REQUEST_DATA.values(), *_SIDR_DATA.values(), *_ANSWERS)
}


def room_in(table: type[Header]) -> int:
    """Size of the private data of a message, in bytes."""
    return _ROOM[table]


def room_in_request(*, datagrams: bool, ip_header: bool) -> int:
    """Bytes of private data in a REQ or SIDR_REQ for its owner."""
    return _ROOM[(_SIDR_DATA if datagrams else _REQUEST_DATA)[ip_header]]


def guid_of(device: Device[QueuePair]) -> int:
    """The node GUID of an Ethernet address: its EUI-64. IBA 4.1.1."""
    mac = device.mac
    return int.from_bytes(bytes((mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:])), "big")


def _padded(table: type[Header], data: bytes) -> bytes:
    return data.ljust(_ROOM[table], b"\0")


_TRANSPORTS = {
    QPType.RC: (TransportService.RC, 0),
    QPType.UC: (TransportService.UC, 0),
    QPType.XRC_INI: (TransportService.EXTENDED, ExtendedTransport.XRC),
}
"""Transport service and extended transport of a REQ, by the type of the queue pair."""


def req(conn: Connection, device: Device[QueuePair], settings: CMSettings) -> bytes:
    """Request a connection. IBA 12.6.5.

    An XRC initiator receives nothing: as in Linux, the fields for its peer's requests are 0.
    """
    offer, terms = conn.offer, conn.terms
    transport, extended = _TRANSPORTS[conn.qp_type]
    requester = conn.qp_type is QPType.XRC_INI
    head = REQ(
        local_comm_id=conn.id,
        service_prefix=conn.service_id >> 24,
        service_protocol=conn.service_id >> 16 & 0xFF,
        service_port=conn.service_id & 0xFFFF,
        local_ca_guid=guid_of(device),
        local_qpn=conn.qpn,
        responder_resources=terms.responder_resources,
        initiator_depth=terms.initiator_depth,
        remote_cm_response_timeout=settings.response_timeout,
        transport_service_type=transport,
        end_to_end_flow_control=int(offer.flow_control),
        starting_psn=conn.psn,
        local_cm_response_timeout=settings.response_timeout,
        retry_count=0 if requester else offer.retry_count,
        p_key=device.pkey_at(conn.pkey_index),
        path_packet_payload_mtu=terms.path_mtu,
        rnr_retry_count=0 if requester else offer.rnr_retry_count,
        max_cm_retries=settings.max_cm_retries,
        srq=0 if requester else int(offer.srq),
        extended_transport_type=extended,
    )
    table = _REQUEST_DATA[conn.endpoints is not None]
    path = _path(conn, device, settings)
    ip = () if conn.endpoints is None else (conn.endpoints.header(),)
    data = _padded(table, offer.private_data)
    return of(CMAttribute.REQ, conn.tid, head, path, AlternatePath(), *ip, data)


def _path(conn: Connection, device: Device[QueuePair], settings: CMSettings) -> PrimaryPath:
    """LIDs are unused on Ethernet; as in rdma_cm, they show whether a router may be between."""
    handle = conn.path
    routed = handle.hop_limit >= _SHOULD_ROUTE
    lid = _ANY_LID if routed else 0
    return PrimaryPath(
        local_lid=lid,
        remote_lid=lid,
        local_gid=handle.sgid,
        remote_gid=handle.dgid,
        flow_label=handle.flow_label,
        traffic_class=handle.traffic_class,
        hop_limit=handle.hop_limit,
        sl=handle.sl,
        subnet_local=int(not routed),
        local_ack_timeout=ack_timeout(settings.packet_life, device.profile.local_ca_ack_delay),
    )


def qpn_in(message: REP, conn: Connection) -> int:
    """Return the peer's queue pair: an XRC target is in the place of the EE context."""
    initiator = conn.qp_type is QPType.XRC_INI
    return message.local_ee_context_number if initiator else message.local_qpn


def rep(conn: Connection, device: Device[QueuePair]) -> bytes:
    """Accept a connection. IBA 12.6.8. An XRC target sends no requests, and has SRQs."""
    offer, terms = conn.offer, conn.terms
    failover = FailoverAccepted.NOT_SUPPORTED if conn.has_alternate else FailoverAccepted.ACCEPTED
    target = conn.qp_type is QPType.XRC_TGT
    message = REP(
        local_comm_id=conn.id,
        remote_comm_id=conn.peer_id,
        local_qpn=0 if target else conn.qpn,
        local_ee_context_number=conn.qpn if target else 0,
        starting_psn=conn.psn,
        responder_resources=terms.responder_resources,
        initiator_depth=0 if target else terms.initiator_depth,
        target_ack_delay=device.profile.local_ca_ack_delay,
        failover_accepted=failover,
        end_to_end_flow_control=int(offer.flow_control),
        rnr_retry_count=offer.rnr_retry_count,
        srq=int(target or offer.srq),
        local_ca_guid=guid_of(device),
        private_data=_padded(REP, offer.private_data),
    )
    return of(CMAttribute.REP, conn.answered, message)


def rtu(conn: Connection) -> bytes:
    """Confirm an established connection. IBA 12.6.9."""
    return of(CMAttribute.RTU, conn.answered, RTU(conn.id, conn.peer_id))


_ABOUT = {
    CMState.REQ_RCVD: Which.REQ,
    CMState.MRA_REQ_SENT: Which.REQ,
    CMState.TIMEWAIT: Which.REQ,
    CMState.REP_RCVD: Which.REP,
    CMState.MRA_REP_SENT: Which.REP,
}
"""The message that an MRA or a REJ answers, by the state that it led to."""


def mra(conn: Connection, settings: CMSettings) -> bytes:
    """Acknowledge a message whose answer takes time. IBA 12.6.6."""
    about = _ABOUT.get(conn.state, Which.OTHER)
    message = MRA(conn.id, conn.peer_id, about, service_timeout=settings.mra_timeout)
    return of(CMAttribute.MRA, conn.answered, message)


def rej(
    conn: Connection, reason: RejectReason, device: Device[QueuePair], reject_data: bytes = b""
) -> bytes:
    """Refuse, or time out; after a timeout, include this node's GUID. IBA 12.6.7.2."""
    late = reason is RejectReason.TIMEOUT
    about = _ABOUT.get(conn.state, Which.OTHER)
    guid = guid_of(device).to_bytes(_GUID_BYTES, "big") if late else b""
    message = REJ(
        conn.id,
        conn.peer_id,
        about,
        reject_info_length=len(guid),
        reason=reason,
        ari=guid.ljust(72, b"\0"),
        private_data=_padded(REJ, reject_data),
    )
    return of(CMAttribute.REJ, conn.answered, message)


def rej_of(received: ReceivedMad, reason: RejectReason) -> bytes:
    """Refuse a REQ or REP that belongs to no connection."""
    mine, peers = received.ids
    about = Which.REQ if isinstance(received.message, REQ) else Which.REP
    return of(CMAttribute.REJ, received.tid, REJ(mine, peers, about, reason=reason))


def dreq(conn: Connection) -> bytes:
    """End a connection. IBA 12.6.10."""
    message = DREQ(conn.id, conn.peer_id, conn.terms.remote_qpn)
    return of(CMAttribute.DREQ, conn.tid, message)


def drep(conn: Connection) -> bytes:
    """Confirm the end of a connection. IBA 12.6.11."""
    return of(CMAttribute.DREP, conn.answered, DREP(conn.id, conn.peer_id))


def drep_of(received: ReceivedMad) -> bytes:
    """Confirm the end of a connection that was already removed."""
    return of(CMAttribute.DREP, received.tid, DREP(*received.ids))


def sidr_req(conn: Connection, device: Device[QueuePair]) -> bytes:
    """Request the queue pair of a service. IBA 12.11.1."""
    head = SIDRREQ(conn.id, device.pkey_at(conn.pkey_index), service_id=conn.service_id)
    table = _SIDR_DATA[conn.endpoints is not None]
    ip = () if conn.endpoints is None else (conn.endpoints.header(),)
    data = _padded(table, conn.offer.private_data)
    return of(CMAttribute.SIDR_REQ, conn.tid, head, *ip, data)


def sidr_rep(conn: Connection) -> bytes:
    """Report the queue pair of a service, or that there is none. IBA 12.11.2."""
    serves = conn.sidr_status is SIDRStatus.SUCCESS
    message = SIDRREP(
        conn.peer_id,
        conn.sidr_status,
        qpn=conn.qpn if serves else 0,
        service_id=conn.service_id,
        q_key=conn.offer.qkey if serves else 0,
        private_data=_padded(SIDRREP, conn.offer.private_data if serves else conn.reject_data),
    )
    return of(CMAttribute.SIDR_REP, conn.answered, message)


def sidr_rep_of(received: ReceivedMad, service: int, status: SIDRStatus) -> bytes:
    """Refuse a SIDR_REQ for a service without a listener."""
    message = SIDRREP(received.ids[1], status, service_id=service)
    return of(CMAttribute.SIDR_REP, received.tid, message)
