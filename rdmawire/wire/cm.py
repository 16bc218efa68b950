"""Communication management: messages that set up, change and end connections. IBA 12.6 to 12.11.

Each message is one table of 232 bytes that includes its private data, except REQ and SIDR_REQ:
what follows their fixed part depends on addresses and service, and has tables of its own. With
the IP-addressed CM (IBA A11), their private data begin with the IP addresses and port of both
ends; the consumer's data follow.
"""

from collections.abc import Iterator
from enum import IntEnum

from rdmawire.wire.header import Header, Meaning, bits, choice, group, raw
from rdmawire.wire.layout import Placed, Reader, area, chain, headed, plain, tables
from rdmawire.wire.management import MTU, ClassPortInfo, rate_words, time_words
from rdmawire.wire.show import DEC, DIGITS, HEX, IPV4, IPV6, hex_digits

DATA = 232
"""Bytes of a message. IBA 12.6.1."""


class CMAttribute(IntEnum):
    """Attribute ids of the messages. IBA 12.6.1."""

    CLASS_PORT_INFO = 0x0001
    REQ = 0x0010
    MRA = 0x0011
    REJ = 0x0012
    REP = 0x0013
    RTU = 0x0014
    DREQ = 0x0015
    DREP = 0x0016
    SIDR_REQ = 0x0017
    SIDR_REP = 0x0018
    LAP = 0x0019
    APR = 0x001A
    SAP = 0x001B
    SPR = 0x001C


class TransportService(IntEnum):
    """Transport service of a connection. IBA 12.7.13."""

    RC = 0
    UC = 1
    RD = 2
    EXTENDED = 3


class ExtendedTransport(IntEnum):
    """Extended transport type, used if the transport service is extended. IBA A14."""

    XRC = 1


class Message(IntEnum):
    """The message that an MRA or REJ answers. IBA 12.7.8."""

    REQ = 0
    REP = 1
    OTHER = 2


class FailoverAccepted(IntEnum):
    """Result for the alternate path of a REQ. IBA 12.7.22."""

    ACCEPTED = 0
    NOT_SUPPORTED = 1
    REJECTED = 2


class RejectReason(IntEnum):
    """Reasons to refuse a connection. IBA 12.6.7.2."""

    NO_QP = 1
    NO_EEC = 2
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED_REQUEST = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_SERVICE_TYPE = 9
    STALE_CONNECTION = 10
    RDC_DOES_NOT_EXIST = 11
    PRIMARY_REMOTE_GID_REJECTED = 12
    PRIMARY_REMOTE_LID_REJECTED = 13
    INVALID_PRIMARY_SL = 14
    INVALID_PRIMARY_TRAFFIC_CLASS = 15
    INVALID_PRIMARY_HOP_LIMIT = 16
    INVALID_PRIMARY_PACKET_RATE = 17
    ALTERNATE_REMOTE_GID_REJECTED = 18
    ALTERNATE_REMOTE_LID_REJECTED = 19
    INVALID_ALTERNATE_SL = 20
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21
    INVALID_ALTERNATE_HOP_LIMIT = 22
    INVALID_ALTERNATE_PACKET_RATE = 23
    PORT_AND_CM_REDIRECTION = 24
    PORT_REDIRECTION = 25
    INVALID_PATH_MTU = 26
    INSUFFICIENT_RESPONDER_RESOURCES = 27
    CONSUMER_REJECT = 28
    RNR_RETRY_COUNT_REJECT = 29
    DUPLICATE_LOCAL_COMM_ID = 30
    INVALID_CLASS_VERSION = 31
    INVALID_PRIMARY_FLOW_LABEL = 32
    INVALID_ALTERNATE_FLOW_LABEL = 33


class APStatus(IntEnum):
    """Status of a LAP. IBA 12.8.2."""

    LOADED = 0
    INVALID_COMM_ID = 1
    UNSUPPORTED = 2
    REJECTED = 3
    REDIRECTED = 4
    IS_CURRENT = 5
    INVALID_QPN_EECN = 6
    INVALID_LID = 7
    INVALID_GID = 8
    INVALID_FLOW_LABEL = 9
    INVALID_TRAFFIC_CLASS = 10
    INVALID_HOP_LIMIT = 11
    INVALID_PACKET_RATE = 12
    INVALID_SL = 13


class SIDRStatus(IntEnum):
    """Status of a SIDR_REQ. IBA 12.11.2."""

    SUCCESS = 0
    UNSUPPORTED_SERVICE_ID = 1
    REJECTED = 2
    NO_QP = 3
    REDIRECTED = 4
    UNSUPPORTED_VERSION = 5


SERVICE_PREFIX = 0x0000000001
"""The upper 40 bits of service ids that identify an IP protocol and port. IBA A11.2."""


_Q, _P, _J = "infiniband.cm.req", "infiniband.cm.rep", "infiniband.cm.rej"
_IP = f"{_Q}.ip_cm"
_PREFIX = {SERVICE_PREFIX: Meaning(f"{_Q}.serviceid.prefix", DIGITS)}
_PROTOCOL = {SERVICE_PREFIX: Meaning(f"{_Q}.serviceid.protocol", HEX)}
_PORT = {SERVICE_PREFIX: Meaning(f"{_Q}.serviceid.dport", HEX)}


class REQ(Header, clause="IBA 12.6.5", label="cm_req"):
    """Request for Communication: asks for a connection.

    Both paths and the private data follow. A service id with the prefix of IBA A11.2 stands for
    an IP protocol and port.
    """

    local_comm_id: int = bits(32, _Q, HEX)
    resv8: int = bits(8)
    vendor_id: int = bits(24, "", HEX)
    service_id: int = group(f"{_Q}.serviceid", "service_prefix", ..., "service_port", show=HEX)
    service_prefix: int = choice(40, "service_prefix", _PREFIX, show=HEX)
    service_protocol: int = choice(8, "service_prefix", _PROTOCOL, show=HEX)
    service_port: int = choice(16, "service_prefix", _PORT, show=HEX)
    local_ca_guid: int = bits(64, f"{_Q}.localcaguid", HEX)
    resv32: int = bits(32)
    local_q_key: int = bits(32, f"{_Q}.localqkey", HEX)
    local_qpn: int = bits(24, f"{_Q}.localqpn", HEX)
    responder_resources: int = bits(8, f"{_Q}.responderres", HEX)
    local_eecn: int = bits(24, f"{_Q}.localeecn", HEX)
    initiator_depth: int = bits(8, f"{_Q}.initdepth", HEX)
    remote_eecn: int = bits(24, f"{_Q}.remoteeecn", HEX)
    remote_cm_response_timeout: int = bits(5, f"{_Q}.remoteresptout", HEX, words=time_words)
    transport_service_type: int = bits(2, f"{_Q}.transpsvctype", HEX, enum=TransportService)
    end_to_end_flow_control: int = bits(1, f"{_Q}.e2eflowctrl", HEX)
    starting_psn: int = bits(24, f"{_Q}.startpsn", HEX, tree=DEC)
    local_cm_response_timeout: int = bits(5, f"{_Q}.localresptout", HEX, words=time_words)
    retry_count: int = bits(3, f"{_Q}.retrcount", HEX)
    p_key: int = bits(16, f"{_Q}.pkey", HEX)
    path_packet_payload_mtu: int = bits(4, f"{_Q}.pppmtu", HEX, enum=MTU)
    rdc_exists: int = bits(1, f"{_Q}.rdcexist", HEX)
    rnr_retry_count: int = bits(3, f"{_Q}.rnrretrcount", HEX)
    max_cm_retries: int = bits(4, f"{_Q}.maxcmretr", HEX)
    srq: int = bits(1, f"{_Q}.srq", HEX)
    extended_transport_type: int = bits(3, f"{_Q}.ext_transport", HEX, enum=ExtendedTransport)


class PrimaryPath(Header, clause="IBA 12.6.5", label="cm_primary_path"):
    """Primary path of a REQ: the one that the connection takes first."""

    local_lid: int = bits(16, f"{_Q}.prim_locallid")
    remote_lid: int = bits(16, f"{_Q}.prim_remotelid")
    local_gid: bytes = raw(16, f"{_Q}.prim_localgid", IPV6)
    remote_gid: bytes = raw(16, f"{_Q}.prim_remotegid", IPV6)
    flow_label: int = bits(20, f"{_Q}.prim_flowlabel", hex_digits(8))
    resv6: int = bits(6, f"{_Q}.prim_reserved0", hex_digits(8))
    packet_rate: int = bits(6, f"{_Q}.prim_pktrate", hex_digits(8), words=rate_words)
    traffic_class: int = bits(8, f"{_Q}.prim_tfcclass", HEX)
    hop_limit: int = bits(8, f"{_Q}.prim_hoplim", HEX)
    sl: int = bits(4, f"{_Q}.prim_sl", HEX)
    subnet_local: int = bits(1, f"{_Q}.prim_subnetlocal", HEX)
    resv3: int = bits(3, f"{_Q}.prim_reserved1", HEX)
    local_ack_timeout: int = bits(5, f"{_Q}.prim_localacktout", HEX, words=time_words)
    resv3_2: int = bits(3, f"{_Q}.prim_reserved2", HEX)


class PrimaryPathIPv4(Header, clause="IBA 12.6.5, A17.4", label="cm_primary_path_ipv4"):
    """Primary path of a REQ whose GIDs are IPv4 addresses: ``::ffff:`` and four bytes."""

    local_lid: int = bits(16, f"{_Q}.prim_locallid")
    remote_lid: int = bits(16, f"{_Q}.prim_remotelid")
    local_prefix: bytes = raw(12)
    local_gid: bytes = raw(4, f"{_Q}.prim_localgid_ipv4", IPV4)
    remote_prefix: bytes = raw(12)
    remote_gid: bytes = raw(4, f"{_Q}.prim_remotegid_ipv4", IPV4)
    flow_label: int = bits(20, f"{_Q}.prim_flowlabel", hex_digits(8))
    resv6: int = bits(6, f"{_Q}.prim_reserved0", hex_digits(8))
    packet_rate: int = bits(6, f"{_Q}.prim_pktrate", hex_digits(8), words=rate_words)
    traffic_class: int = bits(8, f"{_Q}.prim_tfcclass", HEX)
    hop_limit: int = bits(8, f"{_Q}.prim_hoplim", HEX)
    sl: int = bits(4, f"{_Q}.prim_sl", HEX)
    subnet_local: int = bits(1, f"{_Q}.prim_subnetlocal", HEX)
    resv3: int = bits(3, f"{_Q}.prim_reserved1", HEX)
    local_ack_timeout: int = bits(5, f"{_Q}.prim_localacktout", HEX, words=time_words)
    resv3_2: int = bits(3, f"{_Q}.prim_reserved2", HEX)


class AlternatePath(Header, clause="IBA 12.6.5", label="cm_alternate_path"):
    """Alternate path of a REQ: the one that the connection migrates to."""

    local_lid: int = bits(16, f"{_Q}.alt_locallid")
    remote_lid: int = bits(16, f"{_Q}.alt_remotelid")
    local_gid: bytes = raw(16, f"{_Q}.alt_localgid")
    remote_gid: bytes = raw(16, f"{_Q}.alt_remotegid")
    flow_label: int = bits(20, f"{_Q}.alt_flowlabel", hex_digits(8))
    resv6: int = bits(6, f"{_Q}.alt_reserved0", hex_digits(8))
    packet_rate: int = bits(6, f"{_Q}.alt_pktrate", hex_digits(8), words=rate_words)
    traffic_class: int = bits(8, f"{_Q}.alt_tfcclass", HEX)
    hop_limit: int = bits(8, f"{_Q}.alt_hoplim", HEX)
    sl: int = bits(4, f"{_Q}.alt_sl", HEX)
    subnet_local: int = bits(1, f"{_Q}.alt_subnetlocal", HEX)
    resv3: int = bits(3, f"{_Q}.alt_reserved1", HEX)
    local_ack_timeout: int = bits(5, f"{_Q}.alt_localacktout", HEX, words=time_words)
    resv3_2: int = bits(3, f"{_Q}.alt_reserved1", HEX)


class REQPrivateData(Header, clause="IBA 12.6.5", label="cm_req_private"):
    """Private data of a REQ, where no IP header begins them."""

    private_data: bytes = raw(92, f"{_Q}.private")


class REQConsumerData(Header, clause="IBA A11.4", label="cm_req_consumer"):
    """Private data of a REQ that the consumer put behind the IP header."""

    private_data: bytes = raw(56, f"{_Q}.ip_cm.private")


class MRA(Header, clause="IBA 12.6.6", label="cm_mra"):
    """Message Receipt Acknowledgment: a message has come, its answer takes time."""

    local_comm_id: int = bits(32, "", HEX)
    remote_comm_id: int = bits(32, "", HEX)
    message_mraed: int = bits(2, enum=Message)
    resv6: int = bits(6)
    service_timeout: int = bits(5, words=time_words)
    resv3: int = bits(3)
    private_data: bytes = raw(222)


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


class SIDRREQ(Header, clause="IBA 12.11.1", label="cm_sidr_req"):
    """Service ID Resolution Request: asks which queue pair serves.

    Private data follow.
    """

    request_id: int = bits(32, "", HEX)
    p_key: int = bits(16, "", HEX)
    resv16: int = bits(16)
    service_id: int = bits(64, "", HEX)


class SIDRREQPrivateData(Header, clause="IBA 12.11.1", label="cm_sidr_req_private"):
    """Private data of a SIDR_REQ, where no IP header begins them."""

    private_data: bytes = raw(216)


class SIDRREQConsumerData(Header, clause="IBA A11.4", label="cm_sidr_req_consumer"):
    """Private data of a SIDR_REQ that the consumer put behind the IP header."""

    private_data: bytes = raw(180)


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


class IPCM4(Header, clause="IBA A11.4"):
    """IP header of a connection manager's private data: port and IPv4 addresses.

    Each address stands in the last four of sixteen bytes.
    """

    major_version: int = bits(4, f"{_IP}.majv", HEX)
    minor_version: int = bits(4, f"{_IP}.minv", HEX)
    ip_version: int = bits(4, f"{_IP}.ipv", HEX, default=4)
    resv4: int = bits(4, f"{_IP}.reserved", HEX)
    source_port: int = bits(16, f"{_IP}.sport", HEX)
    source_resv96: bytes = raw(12)
    source_ip: bytes = raw(4, f"{_IP}.sip4", IPV4)
    destination_resv96: bytes = raw(12)
    destination_ip: bytes = raw(4, f"{_IP}.dip4", IPV4)


class IPCM6(Header, clause="IBA A11.4"):
    """IP header of a connection manager's private data: port and IPv6 addresses."""

    major_version: int = bits(4, f"{_IP}.majv", HEX)
    minor_version: int = bits(4, f"{_IP}.minv", HEX)
    ip_version: int = bits(4, f"{_IP}.ipv", HEX, default=6)
    resv4: int = bits(4, f"{_IP}.reserved", HEX)
    source_port: int = bits(16, f"{_IP}.sport", HEX)
    source_ip: bytes = raw(16, f"{_IP}.sip6", IPV6)
    destination_ip: bytes = raw(16, f"{_IP}.dip6", IPV6)


def _ip_header(buffer: bytes, offset: int) -> Iterator[Placed]:
    """Yield the IP header; its IP version selects the table."""
    found = IPCM4.parse(buffer, offset)
    yield offset, found if found.ip_version == 4 else IPCM6.parse(buffer, offset)


_IPV4_MAPPED = bytes(10) + b"\xff\xff"


def _primary_path(buffer: bytes, offset: int) -> Iterator[Placed]:
    """Yield the primary path; the type of its GIDs selects the table."""
    found = PrimaryPathIPv4.parse(buffer, offset)
    mapped = found.local_prefix == found.remote_prefix == _IPV4_MAPPED
    yield offset, found if mapped else PrimaryPath.parse(buffer, offset)


_REQ = chain(_primary_path, tables(AlternatePath, REQPrivateData))
_IP_REQ = chain(_primary_path, tables(AlternatePath), _ip_header, tables(REQConsumerData))
_SIDR_REQ = tables(SIDRREQPrivateData)
_IP_SIDR_REQ = chain(_ip_header, tables(SIDRREQConsumerData))


def _rest_of_req(head: REQ) -> Reader:
    return _IP_REQ if head.service_prefix == SERVICE_PREFIX else _REQ


def _rest_of_sidr_req(head: SIDRREQ) -> Reader:
    return _IP_SIDR_REQ if head.service_id >> 24 == SERVICE_PREFIX else _SIDR_REQ


MESSAGES: dict[int, Reader] = {
    CMAttribute.CLASS_PORT_INFO: tables(ClassPortInfo),
    CMAttribute.REQ: headed(REQ, _rest_of_req),
    CMAttribute.MRA: tables(MRA),
    CMAttribute.REJ: tables(REJ),
    CMAttribute.REP: tables(REP),
    CMAttribute.RTU: tables(RTU),
    CMAttribute.DREQ: tables(DREQ),
    CMAttribute.DREP: tables(DREP),
    CMAttribute.SIDR_REQ: headed(SIDRREQ, _rest_of_sidr_req),
    CMAttribute.SIDR_REP: tables(SIDRREP),
    CMAttribute.LAP: tables(LAP),
    CMAttribute.APR: tables(APR),
}
"""Attribute id to the reader of the message."""


def body(buffer: bytes, offset: int, _: int, attribute_id: int) -> Iterator[Placed]:
    """Yield the pieces after the common header of a communication management datagram."""
    return area(buffer, offset, DATA, MESSAGES.get(attribute_id, plain))
