"""What two ends agree upon, and what their queue pairs are made of then."""

from errno import EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.connection import ConnParam, OwnersQP, ack_timeout, duration
from rdmawire.ib.cm.event import (
    ConnectRequest,
    Established,
)
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.receive import STANDARD
from rdmawire.memory.key import Access
from rdmawire.units import us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.srq import XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire.cm import REP, REQ, CMAttribute, PrimaryPath
from rdmawire.wire.management import MTU
from tests.ib.cm.forge import PEER_ID, Forger, changed, deaf
from tests.ib.cm.stage import SERVICE, UP, Two, connected

GENERIC = 0x0002_C901_0000_0007
"""A service id without IP header."""


def test_depths_are_exchanged_and_nobody_gets_more_than_asked_for() -> None:
    two = Two()
    mine = two.request(ConnParam(responder_resources=3, initiator_depth=5))
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    assert (request.responder_resources, request.initiator_depth) == (5, 3)
    peers = two.server.accept(ConnParam(responder_resources=4, initiator_depth=2))
    two.drive(us(10))
    assert (peers.max_dest_rd_atomic, peers.max_rd_atomic) == (4, 2)
    assert (mine.max_rd_atomic, mine.max_dest_rd_atomic) == (4, 2)


def test_without_a_word_both_have_all_that_their_adapters_have() -> None:
    _, mine, peers = connected()
    assert {mine.max_rd_atomic, mine.max_dest_rd_atomic} == {16}
    assert {peers.max_rd_atomic, peers.max_dest_rd_atomic} == {16}


def test_a_rep_that_gives_more_than_was_asked_for_is_not_believed() -> None:
    two = deaf()
    qp = two.request(ConnParam(responder_resources=1, initiator_depth=2))
    Forger(two.client, two.server).rep(two.client.connection(), depth=200)
    assert (qp.max_dest_rd_atomic, qp.max_rd_atomic) == (1, 2)


def test_each_expects_the_psn_that_it_announced() -> None:
    two, mine, peers = connected()
    (req,) = (sent.received.message for sent in two.sent if isinstance(sent.received.message, REQ))
    (rep,) = (sent.received.message for sent in two.sent if isinstance(sent.received.message, REP))
    assert mine.attributes.rq_psn == req.starting_psn == peers.attributes.sq_psn
    assert peers.attributes.rq_psn == rep.starting_psn == mine.attributes.sq_psn
    assert req.starting_psn != rep.starting_psn
    assert (mine.dest_qp, peers.dest_qp) == (peers.qp_num, mine.qp_num)


def test_owners_may_set_the_starting_psn() -> None:
    two = Two()
    mine = two.request(ConnParam(psn=0xFFFFFE))
    two.drive(us(10))
    peers = two.server.accept(ConnParam(psn=7))
    two.drive(us(10))
    assert (mine.attributes.rq_psn, mine.attributes.sq_psn) == (0xFFFFFE, 7)
    assert (peers.attributes.rq_psn, peers.attributes.sq_psn) == (7, 0xFFFFFE)


def test_owners_may_set_the_local_ack_timeout() -> None:
    two = Two()
    mine = two.request(ConnParam(timeout=9))
    two.drive(us(10))
    peers = two.server.accept(ConnParam(timeout=0))
    two.drive(us(10))
    assert (mine.attributes.timeout, peers.attributes.timeout) == (9, 0)


def test_retries_and_timeouts_are_of_the_request_and_rnr_retries_of_each_end() -> None:
    two = Two()
    mine = two.request(ConnParam(retry_count=3, rnr_retry_count=5))
    two.drive(us(10))
    peers = two.server.accept(ConnParam(rnr_retry_count=2))
    two.drive(us(10))
    timeout = ack_timeout(DEFAULTS.packet_life, two.client.nic.device.profile.local_ca_ack_delay)
    for qp, rnr in ((mine, 2), (peers, 5)):
        now = qp.attributes
        assert (now.retry_cnt, now.rnr_retry, now.timeout) == (3, rnr, timeout)


@pytest.mark.parametrize("mtu", [MTU.MTU_256, MTU.MTU_4096])
def test_the_path_mtu_is_the_requests(mtu: MTU) -> None:
    two = Two()
    mine = two.request(ConnParam(path_mtu=mtu))
    two.drive(us(10))
    peers = two.server.accept()
    two.drive(us(10))
    assert mine.mtu == peers.mtu == 128 << mtu


def test_remote_reads_are_allowed_where_there_are_resources_for_them() -> None:
    two = Two()
    mine = two.request(ConnParam(responder_resources=0))
    two.drive(us(10))
    peers = two.server.accept()
    two.drive(us(10))
    assert not mine.access & Access.REMOTE_READ
    assert mine.access & Access.REMOTE_WRITE
    assert peers.access & Access.REMOTE_READ


def test_private_data_are_handed_out_with_the_zeros_behind_them() -> None:
    two = Two()
    two.request(ConnParam(b"a" * 56))
    two.drive(us(10))
    assert two.server.event_of(ConnectRequest).private_data == b"a" * 56
    two.server.accept(ConnParam(b"b" * 100))
    two.drive(us(10))
    assert two.client.event_of(Established).private_data == b"b" * 100 + bytes(96)


def test_a_service_without_ports_has_all_the_private_data_of_a_req() -> None:
    two = Two()
    two.server.manager.listen(GENERIC)
    qp, path = two.client.qp(), two.client.path_to(two.server)
    two.client.manager.connect(qp, path, GENERIC, 0, ConnParam(b"c" * 92))
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    assert (request.private_data, request.endpoints) == (b"c" * 92, None)
    two.server.accept()
    two.drive(us(10))
    assert two.client.state() is two.server.state() is UP


@pytest.mark.parametrize(("kind", "room"), [(QPType.RC, 56), (QPType.UC, 56), (QPType.UD, 180)])
def test_too_much_private_data_is_refused(kind: QPType, room: int) -> None:
    two = Two()
    with pytest.raises(VerbsError, match=f"room for {room}") as refused:
        two.request(ConnParam(bytes(room + 1)), kind=kind)
    assert refused.value.errno == EINVAL
    assert two.client.is_clean()


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_data_go_both_ways(kind: QPType, ipv6: bool) -> None:
    two = Two(ipv6=ipv6)
    mine = two.request(kind=kind)
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    assert request.qp_type is kind
    assert request.endpoints is not None
    assert request.endpoints.source == two.client.gid
    assert request.endpoints.destination == two.server.gid
    peers = two.server.accept(kind=kind)
    two.drive(us(10))
    to_server, to_client = two.server.receives(peers, 5), two.client.receives(mine, 5)
    two.client.send(mine, b"there")
    two.server.send(peers, b"again")
    two.drive(us(50))
    assert (to_server.read(), to_client.read()) == (b"there", b"again")


def test_an_xrc_initiator_is_connected_to_a_target() -> None:
    two = Two()
    mine = two.request(ConnParam(initiator_depth=3, retry_count=5), kind=QPType.XRC_INI)
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    assert request.qp_type is QPType.XRC_TGT
    assert (request.responder_resources, request.initiator_depth) == (3, 0)
    with pytest.raises(VerbsError, match="is of type RC, not XRC_TGT"):
        two.server.accept()
    peers = two.server.accept(kind=QPType.XRC_TGT)
    two.drive(us(10))
    assert two.client.state() is two.server.state() is UP
    (req,) = (sent.received.message for sent in two.sent if isinstance(sent.received.message, REQ))
    (rep,) = (sent.received.message for sent in two.sent if isinstance(sent.received.message, REP))
    assert (req.transport_service_type, req.extended_transport_type) == (3, 1)
    assert (req.responder_resources, req.initiator_depth) == (0, 3)
    assert (req.retry_count, req.rnr_retry_count, req.srq) == (0, 0, 0)
    assert (rep.local_qpn, rep.local_ee_context_number, rep.srq) == (0, peers.qp_num, 1)
    assert (mine.dest_qp, peers.dest_qp) == (peers.qp_num, mine.qp_num)
    assert (mine.max_rd_atomic, peers.max_dest_rd_atomic, mine.attributes.retry_cnt) == (3, 3, 5)
    cq = two.server.nic.create_cq(4)
    receiver = XRCReceiver(peers.xrc_domain, cq)
    srq = two.server.nic.create_srq(two.server.pd, 4, 1, xrc=receiver)
    sink = two.server.buffer(5)
    two.server.nic.post_srq_recv(srq, (RecvWR((sink.sge(),)),))
    work = SendWR(SendOpcode.SEND, (two.client.filled(b"there").sge(),), remote_srqn=srq.number)
    two.client.nic.post_send(mine, (work,))
    two.drive(us(50))
    assert sink.read() == b"there"
    two.client.disconnect()
    two.drive(us(50))
    two.server.disconnect()
    assert not two.client.manager.ignored


def test_a_queue_pair_that_its_owner_moves_may_be_elsewhere() -> None:
    two = Two()
    path, elsewhere = two.client.path_to(two.server), OwnersQP(0x1234, QPType.RC)
    with pytest.raises(VerbsError, match="0x1234 is not the adapter's"):
        two.client.manager.connect(elsewhere, path, SERVICE, 0)
    for side in (two.client, two.server):
        side.manager.rules = STANDARD._replace(moves_qps=False)
    with pytest.raises(VerbsError, match="qp_num"):
        two.client.manager.connect(elsewhere._replace(qp_num=1), path, SERVICE, 0)
    number = two.client.manager.connect(elsewhere, path, SERVICE, 0)
    two.drive(us(10))
    request = two.server.event_of(ConnectRequest)
    assert request.remote_qpn == elsewhere.qp_num
    two.server.manager.accept(request.id, OwnersQP(0x5678, QPType.RC), two.simulator.now)
    two.drive(us(10))
    assert two.client.state() is two.server.state() is UP
    assert two.client.manager.qp_attributes(number).dest_qp_num == 0x5678
    two.client.disconnect()
    two.drive()
    assert two.client.is_clean()


def test_a_target_does_not_ask_for_connections() -> None:
    with pytest.raises(VerbsError, match="is of type XRC_TGT, not RC or UC or XRC_INI or UD"):
        Two().request(kind=QPType.XRC_TGT)


def test_a_connection_is_of_one_flow_label_and_that_comes_from_its_ports() -> None:
    two = Two()
    qp, path = two.client.qp(), two.client.path_to(two.server)
    two.client.manager.connect(qp, path, SERVICE, 0, source_port=34635)
    two.drive(us(10))
    peers = two.server.accept()
    two.drive(us(10))
    handles = [qp.attributes.ah, peers.attributes.ah]
    assert [handle.flow_label for handle in handles if handle] == [32283, 32283]


def test_the_passive_sides_path_and_patience_are_the_requests() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    mad = changed(forger.req_bytes(), REQ, max_cm_retries=2, local_cm_response_timeout=10)
    way = {"traffic_class": 0x28, "sl": 3, "hop_limit": 9, "flow_label": 77}
    forger.deliver(changed(mad, PrimaryPath, local_ack_timeout=14, **way))
    peers = two.server.accept()
    handle = peers.attributes.ah
    assert handle is not None
    assert {name: getattr(handle, name) for name in way} == way
    assert (peers.attributes.timeout, peers.attributes.sq_psn) == (14, 1000)
    two.drive()
    times = [sent.time for sent in two.sent if isinstance(sent.received.message, REP)]
    assert times == [0, duration(10), 2 * duration(10)]
    assert two.server.names() == ["ConnectRequest", "Unreachable", "TimewaitExit"]
    assert two.simulator.now == 3 * duration(10) + duration(14)


def test_the_active_sides_timeouts_follow_the_peers_delay() -> None:
    two = deaf()
    qp = two.request()
    conn = two.client.connection()
    message = REP(PEER_ID, conn.id, target_ack_delay=22, rnr_retry_count=4, local_qpn=5)
    Forger(two.client, two.server).say(CMAttribute.REP, message)
    assert (qp.attributes.timeout, qp.attributes.rnr_retry) == (22, 4)
    assert conn.timewait == duration(22)


@pytest.mark.parametrize(("hops", "lid", "local"), [(1, 0, 1), (2, 0xFFFF, 0), (64, 0xFFFF, 0)])
def test_lids_show_whether_a_router_is_between(hops: int, lid: int, local: int) -> None:
    two = Two()
    path = two.client.path_to(two.server)._replace(hop_limit=hops)
    two.client.manager.connect(two.client.qp(), path, SERVICE, 0)
    two.drive(us(10))
    asked = two.sent[0].received.path
    assert (asked.local_lid, asked.remote_lid, asked.subnet_local) == (lid, lid, local)
