"""Communication management: messages of Linux's rdma_cm, and tables by the standard's offsets."""

from ipaddress import IPv4Address

import pytest

from rdmawire.wire import cm, mad
from rdmawire.wire.cm import (
    APR,
    DREP,
    DREQ,
    IPCM4,
    IPCM6,
    LAP,
    MRA,
    REJ,
    REP,
    REQ,
    RTU,
    SIDRREP,
    SIDRREQ,
    AlternatePath,
    CMAttribute,
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
from rdmawire.wire.header import Header
from rdmawire.wire.layout import Piece
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import MTU, ManagementClass, Method

CLIENT, SERVER = (IPv4Address(f"10.77.0.{host}").packed for host in (2, 1))


def datagram(digits: str) -> bytes:
    """A datagram written without the zeros that fill it up."""
    return bytes.fromhex(digits).ljust(mad.SIZE, b"\0")


def pieces(digits: str) -> list[Piece]:
    """The pieces of a datagram."""
    return [piece for _, piece in mad.layout(datagram(digits))]


# rxe61_rping.pcap, frame 3
RPING_REQ = """
    010702030000000000000002224b0bbb0010000000000000 bb0b4b22000000000000000001061c06505400fffe00
    000200000000000000000000110100000001000000a0cde65ba7ffff37f0 ffffffff 00000000000000000000ffff
    0a4d000200000000000000000000ffff0a4d0001 07e1b00000400098 000000000000000000000000000000000000
    0000000000000000000000000000000000000000000000000000 0040874b0000000000000000000000000a4d0002
    0000000000000000000000000a4d0001
"""
# rxe61_rping.pcap, frames 4, 5, 42 and 43
RPING_REP = """
    010702030000000000000002224b0bbb0013000000000000 854cd660bb0b4b220000000000001100000000002776
    f500010178e0505400fffe000001
"""
RPING_RTU = "010702030000000000000002224b0bbb0014000000000000 bb0b4b22854cd660"
RPING_DREQ = "010702030000000000000002224b0bbb0015000000000000 bb0b4b22854cd66000001100"
RPING_DREP = "010702030000000000000002224b0bbb0016000000000000 854cd660bb0b4b22"
# rxe61_udaddy.pcap, frames 2 and 3
UDADDY_SIDR_REQ = """
    010702030000000000000002429bb2770017000000000000 77b29b42ffff00000000000001111c06 00409a6a
    0000000000000000000000000a4d00020000000000000000000000000a4d0001
"""
UDADDY_SIDR_REP = """
    010702030000000000000002429bb2770018000000000000 77b29b420000000000001b000000000001111c06
    01234567
"""


def test_common_header_of_an_rping_request() -> None:
    head = mad.header(datagram(RPING_REQ))
    assert head == MAD(
        mgmt_class=ManagementClass.COM_MGT,
        class_version=2,
        method=Method.SEND,
        transaction_id=0x00000002_224B0BBB,
        attribute_id=CMAttribute.REQ,
    )


def test_request_of_rping() -> None:
    _, req, *_ = pieces(RPING_REQ)
    assert isinstance(req, REQ)
    assert (req.local_comm_id, req.local_ca_guid) == (0xBB0B4B22, 0x505400FFFE000002)
    # rping listens on port 7174 of RDMA's TCP port space (IBA A11.2).
    assert req.service_id == 0x0000000001060000 + 7174
    assert (req.service_prefix, req.service_protocol, req.service_port) == (1, 6, 7174)
    assert (req.local_qpn, req.starting_psn, req.p_key) == (0x11, 0xCDE65B, 0xFFFF)
    assert (req.responder_resources, req.initiator_depth) == (1, 1)
    assert (req.remote_cm_response_timeout, req.local_cm_response_timeout) == (20, 20)
    assert (req.retry_count, req.rnr_retry_count, req.max_cm_retries) == (7, 7, 15)
    assert req.transport_service_type == TransportService.RC
    assert req.path_packet_payload_mtu == MTU.MTU_1024


def test_paths_of_an_rping_request() -> None:
    _, _, primary, alternate, *_ = pieces(RPING_REQ)
    assert isinstance(primary, PrimaryPathIPv4)
    assert (primary.local_gid, primary.remote_gid) == (CLIENT, SERVER)
    assert (primary.local_lid, primary.remote_lid, primary.subnet_local) == (0xFFFF, 0xFFFF, 0)
    assert (primary.flow_label, primary.packet_rate) == (0x07E1B, 0)
    assert (primary.hop_limit, primary.local_ack_timeout) == (64, 19)
    assert alternate == AlternatePath()


def test_private_data_of_an_rping_request() -> None:
    *_, header, consumer = pieces(RPING_REQ)
    assert header == IPCM4(
        ip_version=4, source_port=0x874B, source_ip=CLIENT, destination_ip=SERVER
    )
    assert consumer == REQConsumerData()


def test_reply_of_rping() -> None:
    _, rep = pieces(RPING_REP)
    assert rep == REP(
        local_comm_id=0x854CD660,
        remote_comm_id=0xBB0B4B22,
        local_qpn=0x11,
        starting_psn=0x2776F5,
        responder_resources=1,
        initiator_depth=1,
        target_ack_delay=15,
        rnr_retry_count=7,
        local_ca_guid=0x505400FFFE000001,
    )


def test_rest_of_an_rping_connection() -> None:
    client, server = 0xBB0B4B22, 0x854CD660
    assert pieces(RPING_RTU)[1:] == [RTU(client, server)]
    assert pieces(RPING_DREQ)[1:] == [DREQ(client, server, remote_qpn_eecn=0x11)]
    assert pieces(RPING_DREP)[1:] == [DREP(server, client)]


def test_resolution_of_udaddy() -> None:
    _, request, header, consumer = pieces(UDADDY_SIDR_REQ)
    assert request == SIDRREQ(request_id=0x77B29B42, p_key=0xFFFF, service_id=0x01111C06)
    assert header == IPCM4(
        ip_version=4, source_port=0x9A6A, source_ip=CLIENT, destination_ip=SERVER
    )
    assert consumer == SIDRREQConsumerData()
    _, reply = pieces(UDADDY_SIDR_REP)
    assert isinstance(reply, SIDRREP)
    assert (reply.request_id, reply.status) == (0x77B29B42, SIDRStatus.SUCCESS)
    assert (reply.qpn, reply.service_id, reply.q_key) == (0x1B, 0x01111C06, 0x01234567)


@pytest.mark.parametrize(
    "digits",
    [
        *(RPING_REQ, RPING_REP, RPING_RTU, RPING_DREQ, RPING_DREP),
        *(UDADDY_SIDR_REQ, UDADDY_SIDR_REP),
    ],
)
def test_captured_messages_are_built_again(digits: str) -> None:
    assert mad.build(*pieces(digits)) == datagram(digits)


def head(attribute: CMAttribute) -> MAD:
    """The common header of a message."""
    return MAD(mgmt_class=ManagementClass.COM_MGT, method=Method.SEND, attribute_id=attribute)


def types(attribute: CMAttribute, *found: Piece) -> list[type]:
    """The types of the pieces in a message that begins with these."""
    return [type(piece) for _, piece in mad.layout(mad.build(head(attribute), *found))][1:]


def test_forms_of_a_request() -> None:
    ip = REQ(service_prefix=1, service_protocol=6)
    path, other = PrimaryPath(local_gid=bytes(15) + b"\1"), AlternatePath()
    assert types(CMAttribute.REQ) == [REQ, PrimaryPath, AlternatePath, REQPrivateData]
    for version, table in ((4, IPCM4), (6, IPCM6), (0, IPCM6)):
        found = types(CMAttribute.REQ, ip, path, other, bytes([0, version << 4]))
        assert found == [REQ, PrimaryPath, AlternatePath, table, REQConsumerData]


def test_forms_of_a_sidr_request() -> None:
    assert types(CMAttribute.SIDR_REQ) == [SIDRREQ, SIDRREQPrivateData]
    ip = SIDRREQ(service_id=0x01111C06)
    assert types(CMAttribute.SIDR_REQ, ip) == [SIDRREQ, IPCM6, SIDRREQConsumerData]


def test_names_of_a_service_id_depend_on_its_prefix() -> None:
    rows = [row for row in REQ.rows if row.name.startswith("service_")]
    plain, ip = REQ(service_prefix=0), REQ(service_prefix=1)
    assert [row.meaning_in(plain).wireshark for row in rows] == ["", "", ""]
    assert [row.meaning_in(ip).wireshark.rpartition(".")[2] for row in rows] == [
        *("prefix", "protocol", "dport")
    ]


# Where in the 232 bytes of a message fields stand: IBA 12.6 to 12.11.
@pytest.mark.parametrize(
    ("table", "byte", "data", "fields"),
    [
        (MRA, 8, b"\x40\xa0", {"message_mraed": 1, "service_timeout": 20}),
        (REJ, 8, b"\x80\x90\x00\x1c", {"message_rejected": 2, "reject_info_length": 72}),
        (REJ, 10, b"\x00\x1c", {"reason": RejectReason.CONSUMER_REJECT}),
        (REJ, 84, b"\x01", {"private_data": b"\x01" + bytes(147)}),
        (REP, 23, b"\x12\x03\x04\x7b\xf0", {"responder_resources": 3, "initiator_depth": 4}),
        (REP, 26, b"\x7b\xf0", {"target_ack_delay": 15, "failover_accepted": 1, "srq": 1}),
        (LAP, 12, b"\x00\x00\x11\xa0", {"remote_qpn_eecn": 17, "remote_cm_response_timeout": 20}),
        (LAP, 56, b"\x12\x34\x50\x07\x08", {"alternate_flow_label": 0x12345}),
        (LAP, 59, b"\x07\x08\x03\x58", {"alternate_traffic_class": 7, "alternate_hop_limit": 8}),
        (LAP, 61, b"\x03\x58\x98", {"alternate_packet_rate": 3, "alternate_sl": 5}),
        (LAP, 62, b"\x58\x98", {"alternate_subnet_local": 1, "alternate_local_ack_timeout": 19}),
        (APR, 8, b"\x48\x02", {"additional_information_length": 72, "ap_status": 2}),
        (APR, 84, b"\x01", {"private_data": b"\x01" + bytes(147)}),
        (SIDRREP, 96, b"\x01", {"private_data": b"\x01" + bytes(135)}),
    ],
)
def test_place_of_a_field(
    table: type[Header], byte: int, data: bytes, fields: dict[str, object]
) -> None:
    found = table.parse(bytes(byte) + data + bytes(cm.DATA - byte - len(data)))
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.parametrize("table", [MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR, SIDRREP])
def test_a_message_fills_the_datagram(table: type[Header]) -> None:
    assert table.SIZE == cm.DATA


def test_every_message_has_a_reader() -> None:
    without = {CMAttribute.SAP, CMAttribute.SPR}
    assert cm.MESSAGES.keys() == set(CMAttribute) - without
