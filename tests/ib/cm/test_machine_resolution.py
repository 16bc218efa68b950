"""Datagram services, and how they are found. IBA 12.11."""

from rdmawire.ib.cm.connection import (
    RDMA_UDP_QKEY,
    ConnParam,
)
from rdmawire.ib.cm.event import (
    DatagramRequest,
    Resolved,
)
from rdmawire.units import us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendFlags, SendOpcode, SendWR
from rdmawire.wire.cm import SIDRREP
from tests.ib.cm.stage import DATAGRAMS, SERVICE, Two


def test_datagrams_go_where_the_service_was_found() -> None:
    two = Two()
    mine = two.request(ConnParam(b"who"), kind=QPType.UD)
    two.drive(us(10))
    assert two.server.event_of(DatagramRequest).private_data == b"who".ljust(180, b"\0")
    peers = two.server.accept(ConnParam(b"me"), kind=QPType.UD)
    two.drive(us(10))
    found = two.client.event_of(Resolved)
    assert (found.remote_qpn, found.remote_qkey) == (peers.qp_num, RDMA_UDP_QKEY)
    assert found.private_data == b"me".ljust(136, b"\0")
    sink = two.server.receives(peers, 45)
    wr = SendWR(
        SendOpcode.SEND,
        flags=SendFlags.INLINE,
        inline=b"hello",
        ah=found.path,
        remote_qpn=found.remote_qpn,
        remote_qkey=found.remote_qkey,
    )
    two.client.nic.post_send(mine, (wr,))
    two.drive(us(10))
    assert sink.read()[40:] == b"hello"
    two.drive()
    assert two.client.is_clean()
    assert two.server.is_clean()


def test_a_datagram_service_may_have_a_q_key_of_its_own() -> None:
    two = Two()
    two.request(kind=QPType.UD)
    two.drive(us(10))
    peers = two.server.accept(ConnParam(qkey=0x42), kind=QPType.UD)
    two.drive(us(10))
    assert two.client.event_of(Resolved).remote_qkey == peers.qkey == 0x42


def test_datagram_and_connected_services_of_one_number_are_two() -> None:
    two = Two()
    two.server.manager.stop_listening(DATAGRAMS, datagrams=True)
    two.server.manager.listen(SERVICE, datagrams=True)
    assert two.server.manager.listener(SERVICE, datagrams=False)
    assert two.server.manager.listener(SERVICE, datagrams=True)


def test_a_refusal_names_neither_queue_pair_nor_q_key() -> None:
    two = Two()
    two.request(kind=QPType.UD)
    two.drive(us(10))
    two.server.manager.reject(two.server.event_of(DatagramRequest).id, two.simulator.now)
    two.drive(us(10))
    answer = two.sent[-1].received.message
    assert isinstance(answer, SIDRREP)
    assert (answer.qpn, answer.q_key, answer.service_id) == (0, 0, DATAGRAMS)
