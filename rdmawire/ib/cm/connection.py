"""One connection, or one resolution of a datagram service, as one side sees it."""

from collections.abc import Iterator
from enum import IntEnum
from errno import EINVAL
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.ib.qp import QueuePair
from rdmawire.validate import check_int, check_type
from rdmawire.verbs.ah import FLOW_LABELS, MAPPED_IPV4, AddressHandle, is_ipv4, mapped
from rdmawire.verbs.enums import QPType
from rdmawire.wire.cm import IPCM4, IPCM6, SERVICE_PREFIX, RejectReason, SIDRStatus
from rdmawire.wire.management import MTU
from rdmawire.wire.serial import MODULUS


class PortSpace(IntEnum):
    """Port spaces: the numbers of rdma_port_space."""

    IPOIB = 0x0002
    TCP = 0x0106
    UDP = 0x0111
    IB = 0x013F


RDMA_UDP_QKEY = 0x01234567
"""The Q_Key of rdma_cm's datagrams (RDMA_UDP_QKEY)."""

IP_VERSIONS = (4, 6)
_LOWER_BITS = 24


def service_id(space: PortSpace, port: int) -> int:
    """The 64-bit service id of a port."""
    return space << 16 | port


def flow_label(source_port: int, service: int) -> int:
    """The flow label of a connection between two ports, as Linux's rdma_cm makes it."""
    return (31 * source_port + service % (1 << 16)) % FLOW_LABELS


def has_ip_header(service: int) -> bool:
    """Whether private data of requests for this service begin with the IP header. IBA A11.2."""
    return service >> _LOWER_BITS == SERVICE_PREFIX


class Endpoints(NamedTuple):
    """Contents of the IP header: two GIDs of 16 bytes, and the sender's port."""

    source: bytes
    destination: bytes
    source_port: int

    def header(self) -> IPCM4 | IPCM6:
        """The header on the wire; IPv4 addresses lose their prefix ``::ffff:``."""
        if not is_ipv4(self.source):
            return IPCM6(
                source_port=self.source_port,
                source_ip=self.source,
                destination_ip=self.destination,
            )
        prefix = len(MAPPED_IPV4)
        return IPCM4(
            source_port=self.source_port,
            source_ip=self.source[prefix:],
            destination_ip=self.destination[prefix:],
        )


def endpoints_in(header: IPCM4 | IPCM6) -> Endpoints | None:
    """The contents of a header; ``None`` for an unknown IP version. IBA A11.4."""
    known = not header.major_version and not header.minor_version
    if not known or header.ip_version not in IP_VERSIONS:
        return None
    source, destination = header.source_ip, header.destination_ip
    if isinstance(header, IPCM4):
        source, destination = mapped(source), mapped(destination)
    return Endpoints(source, destination, header.source_port)


TIME_UNIT = 4_096
"""Unit of the standard's exponents, in nanoseconds. IBA 12.7.19."""

LONGEST_EXPONENT = 24
"""Maximum exponent, 68.7 s; a peer's longer times are reduced to it."""


def duration(exponent: int) -> int:
    """Convert an exponent to nanoseconds: 4.096 us times two to its power, within bounds."""
    return TIME_UNIT << min(exponent, LONGEST_EXPONENT)


def ack_timeout(packet_life: int, ack_delay: int) -> int:
    """The exponent of the Local ACK Timeout: round trip plus the peer's delay. IBA 12.7.34.

    As in rdma_cm, the sum is rounded to the nearest power of two.
    """
    total = (2 << packet_life) + (1 << ack_delay)
    return min((total * 4 // 3).bit_length() - 1, 31)


class CMSettings(NamedTuple):
    """Timeouts are exponents (:func:`duration`).

    ``max_connections`` includes connections in timewait.
    """

    response_timeout: int = 20
    max_cm_retries: int = 15
    mra_timeout: int = 24
    packet_life: int = 18
    path_mtu: MTU = MTU.MTU_1024
    max_connections: int = 1 << 14

    def check(self) -> None:
        """Raise ``VerbsError`` EINVAL for a number that does not fit its message field."""
        for name, most in _MAX_OF_SETTINGS.items():
            check_int(name, getattr(self, name), 0, most)
        check_int("path_mtu", self.path_mtu, MTU.MTU_256, MTU.MTU_4096)


_MAX_OF_SETTINGS = {
    "response_timeout": 31,
    "max_cm_retries": 15,
    "mra_timeout": 31,
    "packet_life": 31,
    "max_connections": 1 << 32,
}


class ConnParam(NamedTuple):
    """Parameters that one side offers, as in rdma_conn_param.

    A depth of ``None`` is as large as peer and adapter allow. ``path_mtu`` is for requests,
    ``None`` for that of the settings. ``qkey`` is for datagrams. ``psn`` is the first PSN that
    this side expects of the peer, random if ``None``. ``timeout`` is the exponent of this side's
    queue pair (RDMA_OPTION_ID_ACK_TIMEOUT of rdma_set_option(3)), ``None`` to compute it from the
    path.
    """

    private_data: bytes = b""
    responder_resources: int | None = None
    initiator_depth: int | None = None
    flow_control: bool = False
    retry_count: int = 7
    rnr_retry_count: int = 7
    srq: bool = False
    path_mtu: MTU | None = None
    qkey: int = RDMA_UDP_QKEY
    psn: int | None = None
    timeout: int | None = None

    def check(self, room: int) -> None:
        """Raise ``VerbsError`` EINVAL for an invalid value, or more than ``room`` private bytes."""
        check_type("private_data", self.private_data, bytes)
        if len(self.private_data) > room:
            found = len(self.private_data)
            raise VerbsError(f"private_data has {found} bytes, here is room for {room}", EINVAL)
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_LEFT_OUT:
                check_int(name, value, 0, most)


_MOST = {
    "responder_resources": 0xFF,
    "initiator_depth": 0xFF,
    "retry_count": 7,
    "rnr_retry_count": 7,
    "path_mtu": MTU.MTU_4096,
    "qkey": 0xFFFF_FFFF,
    "flow_control": 1,
    "srq": 1,
    "psn": MODULUS - 1,
    "timeout": 31,
}

_MAY_BE_LEFT_OUT = ("responder_resources", "initiator_depth", "path_mtu", "psn", "timeout")


class OwnersQP(NamedTuple):
    """A queue pair that its owner moves: what a manager has to know of it.

    For managers whose rules do not move queue pairs. Linux's rdma_cm sends any number, too.
    """

    qp_num: int
    type: QPType
    pkey_index: int = 0

    def check(self) -> None:
        """Raise ``VerbsError`` EINVAL for the number of a special queue pair, or of none."""
        check_int("qp_num", self.qp_num, _FIRST_QPN, MODULUS - 1)


_FIRST_QPN = 2
"""Queue pairs 0 and 1 are those of management."""


class Terms(NamedTuple):
    """Negotiated parameters of this side's queue pair.

    ``rq_psn`` is the first PSN that this side expects, ``sq_psn`` the first that the peer expects
    (IBA 12.7.31). ``timeout`` is an exponent.
    """

    remote_qpn: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    path_mtu: int = MTU.MTU_1024
    responder_resources: int = 0
    initiator_depth: int = 0
    timeout: int = 0
    retry_count: int = 0
    rnr_retry_count: int = 0


class Connection:
    """A connection of this side: communication id ``id``, transaction ``tid``, ``path`` to peer.

    ``active``: this side sent the request. ``datagrams``: a service resolution. ``by_hand``: the
    owner confirms the peer's answer. ``qp_type`` is that of this side's queue pair ``qp``, and
    ``qpn`` its number: the owner may have taken it back. ``peer_id`` is the peer's id, 0 if
    unknown; ``answered`` the transaction of the next reply. ``offer`` is what this side offers,
    ``terms`` are negotiated. ``last_message`` is resent if unanswered by ``answer_due`` (ns),
    every ``period`` ns, at most ``tries`` times; ``deadline`` and ``place`` belong to
    :class:`~rdmawire.verbs.timers.Timers`. A request received at ``since`` (ns) waits
    ``owner_timeout`` ns for the owner. A REJ has ``reason`` and ``reject_data``. A ``silent``
    connection reports no events.
    """

    __slots__ = (
        "active",
        "answer_due",
        "answered",
        "by_hand",
        "datagrams",
        "deadline",
        "endpoints",
        "has_alternate",
        "id",
        "last_message",
        "max_tries",
        "offer",
        "owner_timeout",
        "path",
        "peer_id",
        "period",
        "pkey_index",
        "place",
        "psn",
        "qp",
        "qp_type",
        "qpn",
        "reason",
        "received_data",
        "reject_data",
        "service_id",
        "sidr_status",
        "silent",
        "since",
        "state",
        "terms",
        "tid",
        "timewait",
        "tries",
    )

    def __init__(self, number: int, tid: int, path: AddressHandle, service: int) -> None:
        self.id = number
        self.tid = self.answered = tid
        self.path = path
        self.service_id = service
        self.active = True
        self.datagrams = self.by_hand = self.has_alternate = False
        self.peer_id = 0
        self.pkey_index = 0
        self.state = CMState.IDLE
        self.deadline: int | None = None
        self.place: int | None = None
        self.answer_due = 0
        self.period = self.timewait = 0
        self.since = self.owner_timeout = 0
        self.tries = self.max_tries = 0
        self.last_message = b""
        self.psn = 0
        self.qp_type = QPType.RC
        self.qp: QueuePair | None = None
        self.qpn = 0
        self.offer = ConnParam()
        self.terms = Terms()
        self.endpoints: Endpoints | None = None
        self.reason: RejectReason = RejectReason.CONSUMER_REJECT
        self.sidr_status = SIDRStatus.REJECTED
        self.received_data = self.reject_data = b""
        self.silent = False

    def take_qp(self, qp: QueuePair | OwnersQP) -> None:
        """Assign this queue pair to the connection."""
        self.qp = qp if isinstance(qp, QueuePair) else None
        self.qpn = qp.qp_num

    def expect_answer(self, message: bytes, now: int) -> bytes:
        """Keep ``message`` for retransmission until it is answered."""
        self.last_message = message
        self.tries = self.max_tries
        self.answer_due = now + self.period
        return message

    @property
    def remote(self) -> bytes:
        """The peer's GID."""
        return self.path.dgid


class Registry:
    """A table of at most ``room`` connections."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._by_id: dict[int, Connection] = {}
        self._by_request: dict[tuple[bytes, int, bool], Connection] = {}
        self._by_peer: dict[tuple[bytes, int], Connection] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._by_id.values())

    def __contains__(self, number: int) -> bool:
        return number in self._by_id

    @property
    def full(self) -> bool:
        """Whether the table is full."""
        return len(self._by_id) >= self._room

    def get(self, number: int) -> Connection | None:
        """Find a connection by this side's communication id."""
        return self._by_id.get(number)

    def requested(self, source: bytes, peer_id: int, *, datagrams: bool) -> Connection | None:
        """Find the connection that a peer requested with its id ``peer_id``."""
        return self._by_request.get((source, peer_id, datagrams))

    def with_peer(self, source: bytes, qpn: int) -> Connection | None:
        """Find the connection to this queue pair of the peer."""
        return self._by_peer.get((source, qpn))

    def add(self, conn: Connection) -> None:
        """Add a connection; a passive one can also be found by its request."""
        self._by_id[conn.id] = conn
        if not conn.active:
            self._by_request[conn.remote, conn.peer_id, conn.datagrams] = conn

    def claim_peer(self, conn: Connection) -> None:
        """Register the peer's queue pair, which no other connection may use. IBA 12.9.8.3."""
        self._by_peer[conn.remote, conn.terms.remote_qpn] = conn

    def remove(self, conn: Connection) -> None:
        """Remove a connection."""
        del self._by_id[conn.id]
        if not conn.active:
            del self._by_request[conn.remote, conn.peer_id, conn.datagrams]
        if self.with_peer(conn.remote, conn.terms.remote_qpn) is conn:
            del self._by_peer[conn.remote, conn.terms.remote_qpn]
