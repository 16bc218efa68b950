"""Requests of peers: whether they can be granted at all, and what becomes of them. IBA 12.9.6."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rdmawire.nic.address import LAST_PRIORITY, AddressHandle, is_ipv4, is_multicast
from rdmawire.nic.cm import event
from rdmawire.nic.cm.connection import Connection
from rdmawire.nic.cm.message import CLASS_VERSION, Heard
from rdmawire.nic.cm.service import Endpoints, endpoints_in, has_ip_header
from rdmawire.nic.cm.settings import Terms, duration
from rdmawire.nic.cm.state import CMState
from rdmawire.nic.state import QPType
from rdmawire.wire.cm_code import RejectReason, SIDRStatus, TransportService
from rdmawire.wire.cm_request import REQ, SIDRREQ
from rdmawire.wire.management import MTU

if TYPE_CHECKING:
    from rdmawire.nic.cm.machine import Machine

_TRANSPORTS = {TransportService.RC: QPType.RC, TransportService.UC: QPType.UC}


class Asked(NamedTuple):
    """A request, and what it says of addresses where its service has the IP header."""

    heard: Heard
    endpoints: Endpoints | None

    @property
    def service_id(self) -> int:
        """What it asks for."""
        return service_of(self.heard)


def service_of(heard: Heard) -> int:
    """The service id of a request; 0 for what is none."""
    message = heard.message
    if isinstance(message, SIDRREQ | REQ):
        return message.service_id
    return 0


def asked(heard: Heard) -> Asked:
    """A request with its IP header read."""
    header = heard.ip_header
    return Asked(heard, None if header is None else endpoints_in(header))


# Why a REQ is refused.

Rule = Callable[["Machine", REQ, Asked], bool]


def _other_version(_: "Machine", __: REQ, what: Asked) -> bool:
    return what.heard.mad.class_version != CLASS_VERSION


def _nobody_listens(machine: "Machine", _: REQ, what: Asked) -> bool:
    return machine.listener(what.service_id, datagrams=False) is None


def _other_host(machine: "Machine", _: REQ, what: Asked) -> bool:
    """The IP header names an address that is none of this port, or no address at all."""
    return not _is_for(machine, what)


def _other_transport(_: "Machine", req: REQ, __: Asked) -> bool:
    return req.transport_service_type not in _TRANSPORTS


def _other_gid(machine: "Machine", _: REQ, what: Asked) -> bool:
    return what.heard.path.remote_gid not in machine.nic.gids


def _other_sender(_: "Machine", __: REQ, what: Asked) -> bool:
    """The connection would be with somebody else than who asks for it."""
    local, remote = what.heard.path.local_gid, what.heard.path.remote_gid
    return local != what.heard.source or is_multicast(local) or is_ipv4(local) != is_ipv4(remote)


def _no_hops(_: "Machine", __: REQ, what: Asked) -> bool:
    return what.heard.path.hop_limit == 0


def _other_priority(_: "Machine", __: REQ, what: Asked) -> bool:
    """RoCE has eight service levels, the priorities of a VLAN tag."""
    return what.heard.path.sl > LAST_PRIORITY


def _other_mtu(machine: "Machine", req: REQ, _: Asked) -> bool:
    most = machine.nic.device.profile.max_mtu
    return not MTU.OCTETS_256 <= req.path_packet_payload_mtu <= most


def _other_partition(machine: "Machine", req: REQ, _: Asked) -> bool:
    return machine.nic.device.pkey_index_of(req.p_key) is None


def _no_room(machine: "Machine", _: REQ, what: Asked) -> bool:
    return not machine.has_room_for(what.service_id, what.heard.source, datagrams=False)


_R = RejectReason

REFUSALS: tuple[tuple[RejectReason, Rule], ...] = (
    (_R.INVALID_CLASS_VERSION, _other_version),
    (_R.INVALID_SERVICE_ID, _nobody_listens),
    (_R.INVALID_SERVICE_ID, _other_host),
    (_R.INVALID_TRANSPORT_SERVICE_TYPE, _other_transport),
    (_R.PRIMARY_REMOTE_GID_REJECTED, _other_gid),
    (_R.UNSUPPORTED_REQUEST, _other_sender),
    (_R.INVALID_PRIMARY_HOP_LIMIT, _no_hops),
    (_R.INVALID_PRIMARY_SL, _other_priority),
    (_R.INVALID_PATH_MTU, _other_mtu),
    (_R.UNSUPPORTED_REQUEST, _other_partition),
    (_R.NO_RESOURCES, _no_room),
)
"""What must not hold, in this order. IBA 12.6.7.2."""


def refusal(machine: "Machine", req: REQ, what: Asked) -> RejectReason | None:
    """Why a REQ is refused out of hand, if so."""
    return next((reason for reason, broken in REFUSALS if broken(machine, req, what)), None)


def sidr_refusal(machine: "Machine", what: Asked) -> SIDRStatus | None:
    """Why a SIDR_REQ is refused out of hand, if so."""
    if what.heard.mad.class_version != CLASS_VERSION:
        return SIDRStatus.UNSUPPORTED_VERSION
    listened = machine.listener(what.service_id, datagrams=True) is not None
    if not listened or not _is_for(machine, what):
        return SIDRStatus.UNSUPPORTED_SERVICE_ID
    if not machine.has_room_for(what.service_id, what.heard.source, datagrams=True):
        return SIDRStatus.REJECTED
    return None


def _is_for(machine: "Machine", what: Asked) -> bool:
    if not has_ip_header(what.service_id):
        return True
    return what.endpoints is not None and what.endpoints.destination in machine.nic.gids


# What becomes of a request that is not.


def connection_for(machine: "Machine", req: REQ, what: Asked) -> Connection:
    """What this side knows of a connection that a peer asked for; the depths are exchanged."""
    path, profile = what.heard.path, machine.nic.device.profile
    handle = machine.path_to(what.heard)._replace(
        hop_limit=path.hop_limit,
        traffic_class=path.traffic_class,
        flow_label=path.flow_label,
        sl=path.sl,
    )
    conn = _passive(machine, what, handle)
    conn.peer_id = req.local_comm_id
    conn.pkey_index = machine.nic.device.pkey_index_of(req.p_key) or 0
    conn.uc = req.transport_service_type == TransportService.UC
    conn.has_alternate = what.heard.has_alternate
    conn.psn = machine.random.getrandbits(24)
    conn.terms = Terms(
        remote_qpn=req.local_qpn,
        rq_psn=conn.psn,
        sq_psn=req.starting_psn,
        path_mtu=req.path_packet_payload_mtu,
        responder_resources=min(req.initiator_depth, profile.max_qp_rd_atom),
        initiator_depth=min(req.responder_resources, profile.max_qp_init_rd_atom),
        timeout=path.local_ack_timeout,
        retry_count=req.retry_count,
        rnr_retry_count=req.rnr_retry_count,
    )
    conn.period = duration(req.local_cm_response_timeout)
    conn.max_tries = req.max_cm_retries
    conn.owner_timeout = max(machine.answer_time, conn.period * (conn.max_tries + 1))
    conn.timewait = duration(path.local_ack_timeout)
    conn.state = CMState.REQ_RCVD
    return conn


def look_for(machine: "Machine", req: SIDRREQ, what: Asked) -> Connection:
    """What this side knows of a peer that looks for a datagram service."""
    conn = _passive(machine, what, machine.path_to(what.heard))
    conn.peer_id = req.request_id
    conn.pkey_index = what.heard.pkey_index
    conn.datagrams = True
    conn.timewait = machine.answer_time * (machine.settings.max_cm_retries + 1)
    conn.owner_timeout = conn.timewait
    conn.state = CMState.SIDR_REQ_RCVD
    return conn


def _passive(machine: "Machine", what: Asked, path: AddressHandle) -> Connection:
    conn = machine.new_connection(path, what.service_id)
    conn.active = False
    conn.since = machine.now
    conn.answered = what.heard.tid
    conn.endpoints = what.endpoints
    return conn


def connect_request(conn: Connection, req: REQ, heard: Heard) -> event.ConnectRequest:
    """What the owner is told of it."""
    return event.ConnectRequest(
        id=conn.id,
        service_id=conn.service_id,
        qp_type=_TRANSPORTS[TransportService(req.transport_service_type)],
        responder_resources=conn.terms.responder_resources,
        initiator_depth=conn.terms.initiator_depth,
        retry_count=req.retry_count,
        rnr_retry_count=req.rnr_retry_count,
        flow_control=bool(req.end_to_end_flow_control),
        srq=bool(req.srq),
        remote_qpn=req.local_qpn,
        path=conn.path,
        endpoints=conn.endpoints,
        private_data=heard.private_data,
    )


def datagram_request(conn: Connection, heard: Heard) -> event.DatagramRequest:
    """What the owner is told of it."""
    return event.DatagramRequest(
        id=conn.id,
        service_id=conn.service_id,
        path=conn.path,
        endpoints=conn.endpoints,
        private_data=heard.private_data,
    )
