"""One connection, or one look for a datagram service, as one side sees it."""

from collections.abc import Iterator
from enum import IntEnum
from errno import EINVAL
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.ib.qp import QueuePair
from rdmawire.validate import check_int, check_type
from rdmawire.verbs.ah import FLOW_LABELS, MAPPED_IPV4, AddressHandle, is_ipv4, mapped
from rdmawire.wire.cm_code import RejectReason, SIDRStatus
from rdmawire.wire.ip_cm import IPCM4, IPCM6, SERVICE_PREFIX
from rdmawire.wire.management import MTU
from rdmawire.wire.serial import MODULUS


class PortSpace(IntEnum):
    """Where ports are counted: the numbers of rdma_port_space."""

    IPOIB = 0x0002
    TCP = 0x0106
    UDP = 0x0111
    IB = 0x013F


RDMA_UDP_QKEY = 0x01234567
"""The Q_Key of rdma_cm's datagrams (RDMA_UDP_QKEY)."""

IP_VERSIONS = (4, 6)
_LOWER_BITS = 24


def service_id(space: PortSpace, port: int) -> int:
    """The service id of a port, of 64 bits."""
    return space << 16 | port


def flow_label(source_port: int, service: int) -> int:
    """The flow label of a connection between two ports, as Linux's rdma_cm makes it."""
    return (31 * source_port + service % (1 << 16)) % FLOW_LABELS


def has_ip_header(service: int) -> bool:
    """Whether private data of requests for this service begin with the IP header. IBA A11.2."""
    return service >> _LOWER_BITS == SERVICE_PREFIX


class Endpoints(NamedTuple):
    """What the IP header says: two GIDs of 16 bytes, and the sender's port."""

    source: bytes
    destination: bytes
    source_port: int

    def header(self) -> IPCM4 | IPCM6:
        """As it stands on the wire; of an IPv4 address without ``::ffff:``."""
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
    """What a header says; ``None`` for a version that nobody knows. IBA A11.4."""
    known = not header.major_version and not header.minor_version
    if not known or header.ip_version not in IP_VERSIONS:
        return None
    source, destination = header.source_ip, header.destination_ip
    if isinstance(header, IPCM4):
        source, destination = mapped(source), mapped(destination)
    return Endpoints(source, destination, header.source_port)


TIME_UNIT = 4_096
"""Nanoseconds that the standard's exponents multiply. IBA 12.7.19."""

LONGEST_EXPONENT = 24
"""No wait is longer than 68.7 s, whatever a peer asks for."""


def duration(exponent: int) -> int:
    """Nanoseconds that an exponent stands for: 4.096 us times two to it, within bounds."""
    return TIME_UNIT << min(exponent, LONGEST_EXPONENT)


def ack_timeout(packet_life: int, ack_delay: int) -> int:
    """The exponent of the Local ACK Timeout: there and back, and the peer's delay. IBA 12.7.34.

    As rdma_cm does it, the sum goes to the nearer power of two.
    """
    total = (2 << packet_life) + (1 << ack_delay)
    return min((total * 4 // 3).bit_length() - 1, 31)


class CMSettings(NamedTuple):
    """Timeouts are exponents (:func:`duration`).

    ``max_connections`` counts all that the manager keeps, those in timewait too.
    """

    response_timeout: int = 20
    max_cm_retries: int = 15
    mra_timeout: int = 24
    packet_life: int = 18
    path_mtu: MTU = MTU.MTU_1024
    max_connections: int = 1 << 14

    def check(self) -> None:
        """``VerbsError`` EINVAL for a number that fits no message."""
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
    """What one side offers, as rdma_conn_param has it.

    ``None`` for a depth takes as much as the peer and the adapter allow. ``path_mtu`` is for
    requests, ``None`` for the settings' own. ``qkey`` is that of datagrams. ``psn`` is the first
    that this side will expect of the peer, drawn if it is ``None``. ``timeout`` is the exponent of
    this side's queue pair (RDMA_OPTION_ID_ACK_TIMEOUT of rdma_set_option(3)), ``None`` for the one
    that follows from the path.
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
        """``VerbsError`` EINVAL for what does not fit a message with so many private bytes."""
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


class Terms(NamedTuple):
    """What the queue pair of this side needs to know, agreed upon by both.

    ``rq_psn`` is this side's starting PSN, ``sq_psn`` the peer's: each says what it will expect
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
    """Ids of this side are ``id`` and ``tid``, its transaction; ``path`` leads to the peer.

    ``active`` says that this side asked, ``datagrams`` that it is a look for a service; with
    ``by_hand`` the owner wants to see the peer's answer before the connection stands. ``qpn`` is
    the number of ``qp``, which the owner may have taken back. ``peer_id`` is the peer's id, 0
    while none is known; ``answered`` the transaction of the message that is answered next.
    ``offer`` is what this side offers, ``terms`` what both agreed upon. ``again`` is sent again if
    no answer came by ``answer_due`` (ns), ``tries`` times at most and every ``period`` ns;
    ``deadline`` and ``place`` belong to :class:`~rdmawire.verbs.timers.Timers`. A peer's request
    came at ``since`` (ns) and waits ``owner_timeout`` ns for the owner's answer. ``reason`` and
    ``last_words`` are those of a refusal. A ``silent`` one tells its owner nothing any more.
    """

    __slots__ = (
        "active",
        "again",
        "answer_due",
        "answered",
        "by_hand",
        "datagrams",
        "deadline",
        "endpoints",
        "has_alternate",
        "heard_data",
        "id",
        "last_words",
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
        "qpn",
        "reason",
        "service_id",
        "sidr_status",
        "silent",
        "since",
        "state",
        "terms",
        "tid",
        "timewait",
        "tries",
        "uc",
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
        self.again = b""
        self.psn = 0
        self.uc = False
        self.qp: QueuePair | None = None
        self.qpn = 0
        self.offer = ConnParam()
        self.terms = Terms()
        self.endpoints: Endpoints | None = None
        self.reason: RejectReason = RejectReason.CONSUMER_REJECT
        self.sidr_status = SIDRStatus.REJECTED
        self.heard_data = self.last_words = b""
        self.silent = False

    def take_qp(self, qp: QueuePair) -> None:
        """Speak for this queue pair from now on."""
        self.qp = qp
        self.qpn = qp.number

    def ask(self, message: bytes, now: int) -> bytes:
        """``message`` waits for an answer from now on."""
        self.again = message
        self.tries = self.max_tries
        self.answer_due = now + self.period
        return message

    @property
    def remote(self) -> bytes:
        """The peer's GID."""
        return self.path.dgid


class Registry:
    """At most ``room`` connections."""

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
        """Whether there is room for none more."""
        return len(self._by_id) >= self._room

    def get(self, number: int) -> Connection | None:
        """By this side's communication id."""
        return self._by_id.get(number)

    def requested(self, source: bytes, peer_id: int, *, datagrams: bool) -> Connection | None:
        """That which a peer asked for under its own id."""
        return self._by_request.get((source, peer_id, datagrams))

    def with_peer(self, source: bytes, qpn: int) -> Connection | None:
        """That whose other end is this queue pair."""
        return self._by_peer.get((source, qpn))

    def add(self, conn: Connection) -> None:
        """Keep one; a passive one can be found by what asked for it."""
        self._by_id[conn.id] = conn
        if not conn.active:
            self._by_request[conn.remote, conn.peer_id, conn.datagrams] = conn

    def claim_peer(self, conn: Connection) -> None:
        """The peer's queue pair is known: no other connection may have it. IBA 12.9.8.3."""
        self._by_peer[conn.remote, conn.terms.remote_qpn] = conn

    def remove(self, conn: Connection) -> None:
        """Forget one."""
        del self._by_id[conn.id]
        if not conn.active:
            del self._by_request[conn.remote, conn.peer_id, conn.datagrams]
        if self.with_peer(conn.remote, conn.terms.remote_qpn) is conn:
            del self._by_peer[conn.remote, conn.terms.remote_qpn]
