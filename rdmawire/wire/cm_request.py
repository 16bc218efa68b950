"""Requests of communication management, REQ and SIDR_REQ: services, paths and private data.

Separate tables describe what follows the fixed part, which depends on addresses and service.
"""

from collections.abc import Iterator

from rdmawire.wire import ip_cm
from rdmawire.wire.cm_code import ExtendedTransport, TransportService
from rdmawire.wire.header import Header, Meaning, bits, choice, group, raw
from rdmawire.wire.layout import Placed, chain, tables
from rdmawire.wire.management import MTU, rate_words, time_words
from rdmawire.wire.show import DEC, DIGITS, HEX, IPV4, IPV6, hex_digits

_Q = "infiniband.cm.req"

_PREFIX = {ip_cm.SERVICE_PREFIX: Meaning(f"{_Q}.serviceid.prefix", DIGITS)}
_PROTOCOL = {ip_cm.SERVICE_PREFIX: Meaning(f"{_Q}.serviceid.protocol", HEX)}
_PORT = {ip_cm.SERVICE_PREFIX: Meaning(f"{_Q}.serviceid.dport", HEX)}


class REQ(Header, clause="IBA 12.6.5", label="cm_req"):
    """Request for Communication: asks for a connection.

    Both paths and the private data follow. A service id with the prefix of IBA A11.2 stands for
    an IP protocol and port.
    """

    local_comm_id: int = bits(32, _Q, HEX)
    resv8: int = bits(8)
    vendor_id: int = bits(24, "", HEX)
    service_id: int = group(
        f"{_Q}.serviceid", "service_prefix", "service_protocol", "service_port", show=HEX
    )
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


_IPV4_MAPPED = bytes(10) + b"\xff\xff"


def primary_path(buffer: bytes, offset: int) -> Iterator[Placed]:
    """The primary path at ``offset`` bytes; the type of its GIDs selects the table."""
    found = PrimaryPathIPv4.parse(buffer, offset)
    mapped = found.local_prefix == found.remote_prefix == _IPV4_MAPPED
    yield offset, found if mapped else PrimaryPath.parse(buffer, offset)


_REQ = chain(primary_path, tables(AlternatePath, REQPrivateData))
_IP_REQ = chain(primary_path, tables(AlternatePath), ip_cm.header, tables(REQConsumerData))
_SIDR_REQ = tables(SIDRREQPrivateData)
_IP_SIDR_REQ = chain(ip_cm.header, tables(SIDRREQConsumerData))


def request(buffer: bytes, offset: int) -> Iterator[Placed]:
    """Yield the pieces of a REQ."""
    head = REQ.parse(buffer, offset)
    yield offset, head
    rest = _IP_REQ if head.service_prefix == ip_cm.SERVICE_PREFIX else _REQ
    yield from rest(buffer, offset + head.SIZE)


def sidr_request(buffer: bytes, offset: int) -> Iterator[Placed]:
    """Yield the pieces of a SIDR_REQ."""
    head = SIDRREQ.parse(buffer, offset)
    yield offset, head
    rest = _IP_SIDR_REQ if head.service_id >> 24 == ip_cm.SERVICE_PREFIX else _SIDR_REQ
    yield from rest(buffer, offset + head.SIZE)
