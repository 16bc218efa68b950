"""Communication management: messages that set up, change and end connections. IBA 12.6 to 12.11.

Each message is one table of 232 bytes that includes its private data, except the requests, which
:mod:`rdmawire.wire.cm_request` parses.
"""

from collections.abc import Iterator

from rdmawire.wire.cm_code import (
    APStatus,
    CMAttribute,
    FailoverAccepted,
    Message,
    RejectReason,
    SIDRStatus,
)
from rdmawire.wire.cm_request import request, sidr_request
from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.layout import Placed, Reader, area, plain, tables
from rdmawire.wire.management import ClassPortInfo, rate_words, time_words
from rdmawire.wire.show import DEC, HEX, IPV6

DATA = 232
"""Bytes of a message. IBA 12.6.1."""


class MRA(Header, clause="IBA 12.6.6", label="cm_mra"):
    """Message Receipt Acknowledgment: a message has come, its answer takes time."""

    local_comm_id: int = bits(32, "", HEX)
    remote_comm_id: int = bits(32, "", HEX)
    message_mraed: int = bits(2, enum=Message)
    resv6: int = bits(6)
    service_timeout: int = bits(5, words=time_words)
    resv3: int = bits(3)
    private_data: bytes = raw(222)


_J = "infiniband.cm.rej"


class REJ(Header, clause="IBA 12.6.7", label="cm_rej"):
    """Reject: refuses or gives up a connection, and says why."""

    local_comm_id: int = bits(32, f"{_J}.localcommid", HEX)
    remote_comm_id: int = bits(32, f"{_J}.remotecommid", HEX)
    message_rejected: int = bits(2, f"{_J}.msgrej", HEX, enum=Message)
    resv6: int = bits(6, f"{_J}.reserved0", HEX)
    reject_info_length: int = bits(7, f"{_J}.rejinfolen", HEX)
    resv1: int = bits(1, f"{_J}.reserved1", HEX)
    reason: int = bits(16, f"{_J}.reason", HEX, enum=RejectReason)
    ari: bytes = raw(72, f"{_J}.ari")
    private_data: bytes = raw(148, f"{_J}.private")


_P = "infiniband.cm.rep"


class REP(Header, clause="IBA 12.6.8", label="cm_rep"):
    """Reply to Request for Communication: accepts a connection."""

    local_comm_id: int = bits(32, _P, HEX)
    remote_comm_id: int = bits(32, f"{_P}.remotecommid", HEX)
    local_q_key: int = bits(32, f"{_P}.localqkey", HEX)
    local_qpn: int = bits(24, f"{_P}.localqpn", HEX)
    vendor_id_high: int = bits(8, "", HEX)
    local_ee_context_number: int = bits(24, f"{_P}.localeecn", HEX)
    vendor_id_middle: int = bits(8, "", HEX)
    starting_psn: int = bits(24, f"{_P}.startpsn", HEX, tree=DEC)
    vendor_id_low: int = bits(8, "", HEX)
    responder_resources: int = bits(8, f"{_P}.respres", HEX)
    initiator_depth: int = bits(8, f"{_P}.initdepth", HEX)
    target_ack_delay: int = bits(5, f"{_P}.tgtackdelay", HEX, words=time_words)
    failover_accepted: int = bits(2, f"{_P}.failoveracc", HEX, enum=FailoverAccepted)
    end_to_end_flow_control: int = bits(1, f"{_P}.e2eflowctrl", HEX)
    rnr_retry_count: int = bits(3, f"{_P}.rnrretrcount", HEX)
    srq: int = bits(1, f"{_P}.srq", HEX)
    resv4: int = bits(4, f"{_P}.reserved", HEX)
    local_ca_guid: int = bits(64, f"{_P}.localcaguid", HEX)
    private_data: bytes = raw(196, f"{_P}.private")


class RTU(Header, clause="IBA 12.6.9", label="cm_rtu"):
    """Ready To Use: the connection stands."""

    local_comm_id: int = bits(32, "infiniband.cm.rtu.localcommid", HEX)
    remote_comm_id: int = bits(32, "infiniband.cm.rtu.remotecommid", HEX)
    private_data: bytes = raw(224, "infiniband.cm.rtu.private")


class DREQ(Header, clause="IBA 12.6.10", label="cm_dreq"):
    """Request for Communication Release: ends a connection."""

    local_comm_id: int = bits(32, "infiniband.cm.dreq.localcommid", HEX)
    remote_comm_id: int = bits(32, "infiniband.cm.dreq.remotecommid", HEX)
    remote_qpn_eecn: int = bits(24, "infiniband.cm.req.remoteqpneecn", HEX)
    resv8: int = bits(8)
    private_data: bytes = raw(220, "infiniband.cm.dreq.private")


class DREP(Header, clause="IBA 12.6.11", label="cm_drep"):
    """Reply to Request for Communication Release: the connection has ended."""

    local_comm_id: int = bits(32, "infiniband.cm.drsp.localcommid", HEX)
    remote_comm_id: int = bits(32, "infiniband.cm.drsp.remotecommid", HEX)
    private_data: bytes = raw(224, "infiniband.cm.drsp.private")


class LAP(Header, clause="IBA 12.8.1", label="cm_lap"):
    """Load Alternate Path: proposes another alternate path."""

    local_comm_id: int = bits(32, "", HEX)
    remote_comm_id: int = bits(32, "", HEX)
    resv32: int = bits(32)
    remote_qpn_eecn: int = bits(24, "", HEX)
    remote_cm_response_timeout: int = bits(5, words=time_words)
    resv3: int = bits(3)
    resv32_2: int = bits(32)
    alternate_local_lid: int = bits(16)
    alternate_remote_lid: int = bits(16)
    alternate_local_gid: bytes = raw(16, "", IPV6)
    alternate_remote_gid: bytes = raw(16, "", IPV6)
    alternate_flow_label: int = bits(20, "", HEX)
    resv4: int = bits(4)
    alternate_traffic_class: int = bits(8, "", HEX)
    alternate_hop_limit: int = bits(8)
    resv2: int = bits(2)
    alternate_packet_rate: int = bits(6, words=rate_words)
    alternate_sl: int = bits(4)
    alternate_subnet_local: int = bits(1)
    resv3_2: int = bits(3)
    alternate_local_ack_timeout: int = bits(5, words=time_words)
    resv3_3: int = bits(3)
    private_data: bytes = raw(168)


class APR(Header, clause="IBA 12.8.2", label="cm_apr"):
    """Alternate Path Response: takes or refuses the path of a LAP."""

    local_comm_id: int = bits(32, "", HEX)
    remote_comm_id: int = bits(32, "", HEX)
    additional_information_length: int = bits(8)
    ap_status: int = bits(8, enum=APStatus)
    resv16: int = bits(16)
    additional_information: bytes = raw(72)
    private_data: bytes = raw(148)


class SIDRREP(Header, clause="IBA 12.11.2", label="cm_sidr_rep"):
    """Service ID Resolution Response: the queue pair that serves, or why there is none."""

    request_id: int = bits(32, "", HEX)
    status: int = bits(8, enum=SIDRStatus)
    additional_information_length: int = bits(8)
    resv16: int = bits(16)
    qpn: int = bits(24, "", HEX)
    resv8: int = bits(8)
    service_id: int = bits(64, "", HEX)
    q_key: int = bits(32, "", HEX)
    additional_information: bytes = raw(72)
    private_data: bytes = raw(136)


MESSAGES: dict[int, Reader] = {
    CMAttribute.CLASS_PORT_INFO: tables(ClassPortInfo),
    CMAttribute.REQ: request,
    CMAttribute.MRA: tables(MRA),
    CMAttribute.REJ: tables(REJ),
    CMAttribute.REP: tables(REP),
    CMAttribute.RTU: tables(RTU),
    CMAttribute.DREQ: tables(DREQ),
    CMAttribute.DREP: tables(DREP),
    CMAttribute.SIDR_REQ: sidr_request,
    CMAttribute.SIDR_REP: tables(SIDRREP),
    CMAttribute.LAP: tables(LAP),
    CMAttribute.APR: tables(APR),
}
"""Attribute id to the reader of the message."""


def body(buffer: bytes, offset: int, _: int, attribute_id: int) -> Iterator[Placed]:
    """Yield the pieces after the common header of a communication management datagram."""
    return area(buffer, offset, DATA, MESSAGES.get(attribute_id, plain))
