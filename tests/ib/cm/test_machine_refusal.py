"""Requests and answers that are refused, each with its reason. IBA 12.6.7.2."""

from errno import EBUSY, EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.cm import messages as compose
from rdmawire.ib.cm.connection import ConnParam
from rdmawire.ib.cm.event import ConnectError, ConnectRequest, Rejected, Unresolved
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.messages import ReceivedMad, of
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.wire.cm import (
    DREP,
    DREQ,
    IPCM4,
    REJ,
    REP,
    REQ,
    SIDRREP,
    CMAttribute,
    Message,
    PrimaryPath,
    RejectReason,
    SIDRStatus,
)
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MAD
from tests.ib.cm.forge import PEER_ID, PEER_QPN, PEER_TID, Forger, changed, deaf
from tests.ib.cm.stage import SERVICE, UP, Two, connected, message_in


def answer(forger: Forger, mad: bytes) -> ReceivedMad:
    """The one message with which a side answers."""
    forger.side.nic.transmit(0)
    forger.deliver(mad)
    (frame,) = forger.side.nic.transmit(0)
    received = message_in(frame)
    assert received is not None
    return received


R = RejectReason


@pytest.mark.parametrize(
    ("table", "fields", "reason"),
    [
        (MAD, {"class_version": 3}, R.INVALID_CLASS_VERSION),
        (REQ, {"service_port": 7175}, R.INVALID_SERVICE_ID),
        (REQ, {"service_protocol": 0x11}, R.INVALID_SERVICE_ID),
        (IPCM4, {"destination_ip": bytes((10, 0, 0, 77))}, R.INVALID_SERVICE_ID),
        (IPCM4, {"major_version": 1}, R.INVALID_SERVICE_ID),
        (IPCM4, {"ip_version": 5}, R.INVALID_SERVICE_ID),
        (REQ, {"transport_service_type": 2}, R.INVALID_TRANSPORT_SERVICE_TYPE),
        (REQ, {"transport_service_type": 3}, R.INVALID_TRANSPORT_SERVICE_TYPE),
        (
            REQ,
            {"transport_service_type": 3, "extended_transport_type": 2},
            R.INVALID_TRANSPORT_SERVICE_TYPE,
        ),
        (PrimaryPath, {"remote_gid": bytes(15) + b"\1"}, R.PRIMARY_REMOTE_GID_REJECTED),
        (PrimaryPath, {"local_gid": bytes(15) + b"\1"}, R.UNSUPPORTED_REQUEST),
        (PrimaryPath, {"hop_limit": 0}, R.INVALID_PRIMARY_HOP_LIMIT),
        (PrimaryPath, {"sl": 8}, R.INVALID_PRIMARY_SL),
        (REQ, {"path_packet_payload_mtu": 0}, R.INVALID_PATH_MTU),
        (REQ, {"path_packet_payload_mtu": 6}, R.INVALID_PATH_MTU),
        (REQ, {"p_key": 0x1234}, R.UNSUPPORTED_REQUEST),
    ],
)
def test_a_request_that_cannot_be_granted(
    table: type[Header], fields: dict[str, int], reason: RejectReason
) -> None:
    forger = Forger((two := deaf()).server, two.client)
    received = answer(forger, changed(forger.req_bytes(), table, **fields))
    rej = received.message
    assert isinstance(rej, REJ)
    assert (rej.reason, rej.message_rejected) == (reason, Message.REQ)
    assert (rej.local_comm_id, rej.remote_comm_id) == (0, forger.asked.id)
    assert received.tid == forger.asked.tid
    assert two.server.is_clean()
    assert two.server.received == []


def test_a_request_to_a_service_without_listener_is_rejected() -> None:
    two = Two(listens=False)
    qp = two.request()
    two.drive()
    assert two.messages() == ["REQ", "REJ"]
    assert two.client.event_of(Rejected).reason == RejectReason.INVALID_SERVICE_ID
    assert two.client.is_clean()
    assert qp.state is QPState.RESET


def test_a_request_to_a_closed_listener_is_rejected() -> None:
    two = Two()
    two.server.manager.stop_listening(SERVICE)
    two.request()
    two.drive()
    assert two.client.event_of(Rejected).reason == RejectReason.INVALID_SERVICE_ID
    with pytest.raises(VerbsError) as refused:
        two.server.manager.stop_listening(SERVICE)
    assert refused.value.errno == EINVAL


def test_a_service_has_one_listener() -> None:
    two = Two()
    with pytest.raises(VerbsError) as refused:
        two.server.manager.listen(SERVICE)
    assert refused.value.errno == EBUSY


def test_an_owner_may_refuse_with_words_and_a_reason_of_its_own() -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    two.server.manager.reject(request.id, two.simulator.now, b"not you")
    two.drive()
    rejected = two.client.event_of(Rejected)
    assert rejected.reason == RejectReason.CONSUMER_REJECT
    assert rejected.private_data == b"not you".ljust(148, b"\0")
    assert two.messages() == ["REQ", "REJ"]
    assert two.server.is_clean()
    assert two.client.is_clean()


def test_what_is_refused_by_hand_ends_the_peers_wait() -> None:
    two = Two()
    two.request(by_hand=True)
    two.drive(us(10))
    peers = two.server.accept()
    two.drive(us(10))
    assert two.client.names() == ["ConnectResponse"]
    client = two.client.manager
    client.reject(two.client.connection().id, two.simulator.now, b"no", RejectReason.NO_RESOURCES)
    two.drive()
    rej = two.sent[-1].received.message
    assert isinstance(rej, REJ)
    assert (rej.reason, rej.message_rejected) == (RejectReason.NO_RESOURCES, Message.REP)
    told = two.server.event_of(Rejected)
    assert (told.reason, told.private_data[:3]) == (RejectReason.NO_RESOURCES, b"no\0")
    assert peers.state is QPState.ERR
    assert two.client.is_clean()
    assert two.server.is_clean()


def test_a_rej_does_not_repeat_the_private_data_of_the_rep() -> None:
    """The words of the REP, longer than those of a REJ may be, are not said again."""
    two = deaf()
    Forger(two.server, two.client).req()
    two.server.accept(ConnParam(b"x" * 196))
    two.server.destroy()
    two.drive(us(1))
    rej = two.sent[-1].received.message
    assert isinstance(rej, REJ)
    assert (rej.reason, rej.private_data) == (RejectReason.CONSUMER_REJECT, bytes(148))


def test_an_answer_to_a_queue_pair_that_went_elsewhere_is_refused() -> None:
    """Its owner connected it by hand meanwhile: it cannot be given to this connection."""
    two = deaf()
    qp = two.request()
    way = ATTRIBUTES._replace(ah=two.client.path_to(two.server), dest_qp_num=5)
    two.client.bring_up(qp, way)
    Forger(two.client, two.server).rep(two.client.connection())
    assert "RTS" in two.client.event_of(ConnectError).reason
    assert two.client.state() is CMState.TIMEWAIT
    frames = [message_in(frame) for frame in two.client.nic.transmit(0)]
    rej = frames[-1].message if frames[-1] else None
    assert isinstance(rej, REJ)
    assert (rej.reason, rej.message_rejected) == (RejectReason.CONSUMER_REJECT, Message.REP)
    two.drive()
    assert two.client.is_clean()


def test_a_rep_without_request_is_rejected() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    rep = REP(local_comm_id=9, remote_comm_id=77)
    received = answer(forger, of(CMAttribute.REP, 5, rep))
    assert isinstance(received.message, REJ)
    assert received.message.reason == RejectReason.INVALID_COMM_ID
    assert received.message.message_rejected == Message.REP
    assert (received.ids, received.tid) == ((9, 77), 5)


# What was there before.


def test_a_peer_that_begins_anew_learns_that_its_old_connection_stands() -> None:
    two, _, peers = connected()
    forger = Forger(two.server, two.client)
    forger.asked.qpn = two.server.connection().terms.remote_qpn
    received = message_in(_first_rej(forger))
    assert received is not None
    assert isinstance(received.message, REJ)
    assert received.message.reason == RejectReason.STALE_CONNECTION
    assert two.server.state() is CMState.DREQ_SENT
    assert peers.state is QPState.ERR


def _first_rej(forger: Forger) -> bytes:
    """Of what the side sends: the old connection's DREQ goes first."""
    forger.req()
    frames = forger.side.nic.transmit(0)
    return next(frame for frame in frames if _is(frame, REJ))


def _is(frame: bytes, table: type[Header]) -> bool:
    received = message_in(frame)
    return received is not None and isinstance(received.message, table)


def test_a_queue_pair_in_timewait_is_not_connected_again() -> None:
    two, _, _ = connected()
    forger = Forger(two.server, two.client)
    forger.asked.qpn = two.server.connection().terms.remote_qpn
    two.client.disconnect()
    two.drive(us(10))
    two.server.disconnect()
    two.drive(us(10))
    assert two.server.state() is CMState.TIMEWAIT
    assert _first_rej(forger)
    two.drive()
    forger.req()
    assert two.server.names().count("ConnectRequest") == 2


def test_a_rep_by_the_queue_pair_of_another_connection_is_stale() -> None:
    two, _, _ = connected()
    two.request()
    two.client.nic.transmit(0)
    old, new = two.client.manager.registry
    forger = Forger(two.client, two.server)
    forger.rep(new, qpn=old.terms.remote_qpn)
    (frame,) = two.client.nic.transmit(0)
    received = message_in(frame)
    assert received is not None
    assert isinstance(received.message, REJ)
    assert received.message.reason == RejectReason.STALE_CONNECTION
    assert (old.state, new.state) == (UP, CMState.REQ_SENT)


def test_a_stale_rejection_keeps_the_queue_pair_for_a_while() -> None:
    two = deaf()
    two.request()
    Forger(two.client, two.server).rej(two.client.connection(), RejectReason.STALE_CONNECTION)
    assert two.client.state() is CMState.TIMEWAIT
    two.drive()
    assert two.client.names() == ["Rejected", "TimewaitExit"]
    assert two.client.is_clean()


def test_a_drep_has_the_ids_of_the_dreq_though_the_peers_id_was_never_stored() -> None:
    two = deaf()
    two.request()
    conn, forger = two.client.connection(), Forger(two.client, two.server)
    forger.rej(conn, RejectReason.STALE_CONNECTION)
    dreq = of(CMAttribute.DREQ, PEER_TID, DREQ(PEER_ID, conn.id, conn.qpn))
    drep = answer(forger, dreq).message
    assert isinstance(drep, DREP)
    assert (drep.local_comm_id, drep.remote_comm_id) == (conn.id, PEER_ID)


# Too many.


def test_no_more_wait_than_the_backlog() -> None:
    two = deaf()
    server = two.server.manager
    server.stop_listening(SERVICE)
    server.listen(SERVICE, backlog=2)
    forger = Forger(two.server, two.client)
    for number in range(4):
        forger.req(id=100 + number, qpn=PEER_QPN + number)
    frames = [message_in(frame) for frame in two.server.nic.transmit(0)]
    reasons = [f.message.reason for f in frames if f and isinstance(f.message, REJ)]
    assert reasons == [RejectReason.NO_RESOURCES] * 2
    first, second = (event.id for event in two.server.take_events() or two.server.received)
    server.reject(first, 0)
    forger.req(id=104, qpn=PEER_QPN + 4)
    assert len(server.registry) == 2
    assert second in {conn.id for conn in server.registry}


def test_no_more_are_kept_than_the_settings_say() -> None:
    two = Two(settings=DEFAULTS._replace(max_connections=3))
    forger = Forger(two.server, two.client)
    for number in range(10):
        forger.req(id=100 + number, qpn=PEER_QPN + number)
    assert len(two.server.manager.registry) == 3
    for _ in range(3):
        two.request()
    with pytest.raises(VerbsError):
        two.request()


# Datagram services.


@pytest.mark.parametrize(
    ("version", "status"),
    [(2, SIDRStatus.UNSUPPORTED_SERVICE_ID), (3, SIDRStatus.UNSUPPORTED_VERSION)],
)
def test_a_datagram_service_that_is_not_there(version: int, status: SIDRStatus) -> None:
    two = Two(listens=False)
    forger = Forger(two.server, two.client)
    mad = changed(
        compose.sidr_req(forger.looked, two.client.nic.device), MAD, class_version=version
    )
    received = answer(forger, mad)
    assert isinstance(received.message, SIDRREP)
    assert (received.message.status, received.tid) == (status, forger.looked.tid)


def test_a_sidr_request_to_an_unknown_service_is_rejected() -> None:
    two = Two(listens=False)
    two.request(kind=QPType.UD)
    two.drive()
    assert two.client.event_of(Unresolved).status == SIDRStatus.UNSUPPORTED_SERVICE_ID
    assert two.client.is_clean()


def test_an_owner_may_refuse_datagrams() -> None:
    two = Two()
    two.request(kind=QPType.UD)
    two.drive(us(10))
    (asked,) = two.server.received
    two.server.manager.reject(asked.id, two.simulator.now, b"closed")
    two.drive()
    found = two.client.event_of(Unresolved)
    assert (found.status, found.private_data[:6]) == (SIDRStatus.REJECTED, b"closed")
    assert two.server.is_clean()


def test_a_connection_is_not_granted_with_a_queue_pair_of_another_type() -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    for kind in (QPType.UD, QPType.UC, QPType.XRC_INI):
        with pytest.raises(VerbsError) as refused:
            two.server.manager.accept(request.id, two.server.qp(kind), two.simulator.now)
        assert refused.value.errno == EINVAL
    assert two.server.state() is CMState.REQ_RCVD
    two.server.accept()
    two.drive(us(10))
    assert two.server.state() is UP


@pytest.mark.parametrize(
    "param",
    [
        ConnParam(bytes(197)),
        ConnParam(initiator_depth=256),
        ConnParam(responder_resources=-1),
        ConnParam(initiator_depth=17),
        ConnParam(responder_resources=17),
        ConnParam(rnr_retry_count=8),
    ],
)
def test_what_cannot_be_granted_changes_nothing(param: ConnParam) -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    qp = two.server.qp()
    with pytest.raises(VerbsError):
        two.server.manager.accept(request.id, qp, two.simulator.now, param)
    assert (two.server.state(), qp.state) == (CMState.REQ_RCVD, QPState.RESET)
    two.server.manager.accept(request.id, qp, two.simulator.now)
    two.drive(us(10))
    assert two.server.state() is UP


@pytest.mark.parametrize("reason", [R.NO_RESOURCES, 999])
def test_a_reason_is_printed_by_its_name_if_it_has_one(reason: R) -> None:
    two = Two()
    two.request()
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    two.server.manager.reject(request.id, two.simulator.now, reason=reason)
    two.drive()
    assert repr(two.client.event_of(Rejected).reason) == repr(reason)
