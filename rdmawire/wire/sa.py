"""Subnet administration: queries to the subnet manager, and tables of records. IBA 15.2.

A record of a subnet management attribute begins with the location that it was read from:
the tables here are the locations; the attribute's own table follows.
"""

from collections.abc import Iterator
from enum import IntEnum

from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.layout import Placed, Reader, area, chain, headed, plain, tables
from rdmawire.wire.management import MTU, ClassPortInfo, Method, NodeType, rate_words, time_words
from rdmawire.wire.notice import InformInfo, issued_notice
from rdmawire.wire.rmpp import RMPP, control, is_control
from rdmawire.wire.show import HEX, IPV6, TEXT, hex_digits
from rdmawire.wire.smp import ATTRIBUTES, NodeDescription, NodeInfo, SMAttribute

DATA = 200
"""Bytes of data in a datagram of subnet administration. IBA 15.2.1."""

_P, _MP = "infiniband.pathrecord", "infiniband.multipathrecord"
_MC = "infiniband.mcmemberrecord"


class SAAttribute(IntEnum):
    """Attributes of subnet administration. IBA 15.2.5."""

    CLASS_PORT_INFO = 0x0001
    NOTICE = 0x0002
    INFORM_INFO = 0x0003
    NODE_RECORD = 0x0011
    PORT_INFO_RECORD = 0x0012
    SL_TO_VL_MAPPING_TABLE_RECORD = 0x0013
    SWITCH_INFO_RECORD = 0x0014
    LINEAR_FORWARDING_TABLE_RECORD = 0x0015
    RANDOM_FORWARDING_TABLE_RECORD = 0x0016
    MULTICAST_FORWARDING_TABLE_RECORD = 0x0017
    SM_INFO_RECORD = 0x0018
    LINK_SPEED_WIDTH_PAIRS_TABLE_RECORD = 0x0019
    LINK_RECORD = 0x0020
    GUID_INFO_RECORD = 0x0030
    SERVICE_RECORD = 0x0031
    P_KEY_TABLE_RECORD = 0x0033
    PATH_RECORD = 0x0035
    VL_ARBITRATION_TABLE_RECORD = 0x0036
    MC_MEMBER_RECORD = 0x0038
    TRACE_RECORD = 0x0039
    MULTI_PATH_RECORD = 0x003A
    SERVICE_ASSOCIATION_RECORD = 0x003B
    HIERARCHY_INFO_RECORD = 0x003C
    CABLE_INFO_RECORD = 0x003D
    PORT_INFO_EXTENDED_RECORD = 0x003E
    INFORM_INFO_RECORD = 0x00F3


class SAHeader(Header, clause="IBA 15.2.1.1", label="sa"):
    """Header of subnet administration: SM_Key, size of records, component mask.

    ``attribute_offset`` counts units of eight bytes from one record to the next.
    """

    sm_key: int = bits(64, "infiniband.sa.smkey", HEX)
    attribute_offset: int = bits(16, "infiniband.sa.attributeoffset", HEX)
    resv16: int = bits(16)
    component_mask: int = bits(64, "infiniband.sa.componentmask", HEX)


class Selector(IntEnum):
    """Comparison of a requested value. IBA 15.2.5.16."""

    GREATER_THAN = 0
    LESS_THAN = 1
    EXACTLY = 2
    BEST_AVAILABLE = 3


class NodeRecord(Header, clause="IBA 15.2.5.2"):
    """Record identifier: whose NodeInfo and NodeDescription follow."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    resv16: int = bits(16)


class PortInfoRecord(Header, clause="IBA 15.2.5.3"):
    """Record identifier: whose PortInfo follows."""

    endport_lid: int = bits(16, "infiniband.sa.endportlid", HEX)
    port_num: int = bits(8, "infiniband.sa.portnum", HEX)
    options: int = bits(8, "", HEX)


class SLtoVLMappingTableRecord(Header, clause="IBA 15.2.5.4"):
    """Record identifier: whose SLtoVLMappingTable follows."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    input_port_num: int = bits(8, "infiniband.sa.inputportnum", HEX)
    output_port_num: int = bits(8, "infiniband.sa.outputportnum", HEX)
    resv32: int = bits(32)


class SwitchInfoRecord(Header, clause="IBA 15.2.5.5"):
    """Record identifier: whose SwitchInfo follows."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    resv16: int = bits(16)


class LinearForwardingTableRecord(Header, clause="IBA 15.2.5.6"):
    """Record identifier: whose LinearForwardingTable follows, and which block of it."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    block_num: int = bits(16, "infiniband.sa.blocknum_sixteenbit", HEX)
    resv32: int = bits(32)


class RandomForwardingTableRecord(Header, clause="IBA 15.2.5.7"):
    """Record identifier: whose RandomForwardingTable follows, and which block of it."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    block_num: int = bits(16, "infiniband.sa.blocknum_sixteenbit", HEX)
    resv32: int = bits(32)


class MulticastForwardingTableRecord(Header, clause="IBA 15.2.5.8"):
    """Record identifier: whose MulticastForwardingTable follows, which ports and block."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    position: int = bits(4, "infiniband.sa.position", HEX)
    resv3: int = bits(3)
    block_num: int = bits(9, "infiniband.sa.blocknum_ninebit", HEX)
    resv32: int = bits(32)


class VLArbitrationTableRecord(Header, clause="IBA 15.2.5.9"):
    """Record identifier: whose VLArbitrationTable follows, and which block of it."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    output_port_num: int = bits(8, "infiniband.sa.outputportnum", HEX)
    block_num: int = bits(8, "infiniband.sa.blocknum_eightbit", HEX)
    resv32: int = bits(32)


class SMInfoRecord(Header, clause="IBA 15.2.5.10"):
    """Record identifier: whose SMInfo follows."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    resv16: int = bits(16)


class PKeyTableRecord(Header, clause="IBA 15.2.5.11"):
    """Record identifier: whose P_KeyTable follows, and which block of it."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    block_num: int = bits(16, "infiniband.sa.blocknum_sixteenbit", HEX)
    port_num: int = bits(8, "infiniband.sa.portnum", HEX)
    resv24: int = bits(24)


class InformInfoRecord(Header, clause="IBA 15.2.5.12"):
    """Record identifier: whose InformInfo follows."""

    subscriber_gid: bytes = raw(16, "infiniband.informinforecord.subscribergid", IPV6)
    enum: int = bits(16, "infiniband.informinforecord.enum", HEX)
    resv48: int = bits(48)


class LinkRecord(Header, clause="IBA 15.2.5.13"):
    """Two ports with a link between them."""

    from_lid: int = bits(16, "infiniband.linkrecord.fromlid", HEX)
    from_port: int = bits(8, "infiniband.linkrecord.fromport", HEX)
    to_port: int = bits(8, "infiniband.linkrecord.toport", HEX)
    to_lid: int = bits(16, "infiniband.linkrecord.tolid", HEX)


class ServiceRecord(Header, clause="IBA 15.2.5.14"):
    """Service that a port offers.

    The data are numbers of 8, 16, 32 and 64 bits.
    """

    service_id: int = bits(64, "infiniband.linkrecord.serviceid", HEX)
    service_gid: bytes = raw(16, "infiniband.linkrecord.servicegid", IPV6)
    service_p_key: int = bits(16, "infiniband.linkrecord.servicep_key", HEX)
    resv16: int = bits(16)
    service_lease: int = bits(32, "infiniband.linkrecord.servicelease", HEX)
    service_key: bytes = raw(16, "infiniband.linkrecord.servicekey")
    service_name: bytes = raw(64, "infiniband.linkrecord.servicename")
    service_data8: bytes = raw(16, "infiniband.linkrecord.servicedata")
    service_data16: bytes = raw(16, "infiniband.linkrecord.servicedata")
    service_data32: bytes = raw(16, "infiniband.linkrecord.servicedata")
    service_data64: bytes = raw(16, "infiniband.linkrecord.servicedata")


class ServiceAssociationRecord(Header, clause="IBA 15.2.5.15"):
    """The key that goes with a service's name."""

    service_key: bytes = raw(16, "infiniband.serviceassociationrecord.servicekey")
    service_name: bytes = raw(64, "infiniband.serviceassociationrecord.servicename", TEXT)


class PathRecord(Header, clause="IBA 15.2.5.16"):
    """A path between two ports: addresses, partition, MTU, rate, how long a packet may live."""

    service_id: int = bits(64, "", HEX)
    dgid: bytes = raw(16, f"{_P}.dgid", IPV6)
    sgid: bytes = raw(16, f"{_P}.sgid", IPV6)
    dlid: int = bits(16, f"{_P}.dlid", HEX)
    slid: int = bits(16, f"{_P}.slid", HEX)
    raw_traffic: int = bits(1, f"{_P}.rawtraffic", HEX)
    resv3: int = bits(3)
    flow_label: int = bits(20, f"{_P}.flowlabel", HEX)
    hop_limit: int = bits(8, f"{_P}.hoplimit", HEX)
    t_class: int = bits(8, f"{_P}.tclass", HEX)
    reversible: int = bits(1, f"{_P}.reversible", HEX)
    numb_path: int = bits(7, f"{_P}.numbpath", HEX)
    p_key: int = bits(16, f"{_P}.p_key", HEX)
    qos_class: int = bits(12, "", HEX)
    sl: int = bits(4, f"{_P}.sl", hex_digits(4))
    mtu_selector: int = bits(2, f"{_P}.mtuselector", HEX, enum=Selector)
    mtu: int = bits(6, f"{_P}.mtu", HEX, enum=MTU)
    rate_selector: int = bits(2, f"{_P}.rateselector", HEX, enum=Selector)
    rate: int = bits(6, f"{_P}.rate", HEX, words=rate_words)
    packet_life_time_selector: int = bits(2, f"{_P}.packetlifetimeselector", HEX, enum=Selector)
    packet_life_time: int = bits(6, f"{_P}.packetlifetime", HEX, words=time_words)
    preference: int = bits(8, f"{_P}.preference", HEX)
    resv48: int = bits(48)


class MCMemberRecord(Header, clause="IBA 15.2.5.17"):
    """A multicast group, and a port that is in it."""

    mgid: bytes = raw(16, f"{_MC}.mgid", IPV6)
    port_gid: bytes = raw(16, f"{_MC}.portgid", IPV6)
    q_key: int = bits(32, f"{_MC}.q_key", HEX)
    mlid: int = bits(16, f"{_MC}.mlid", HEX)
    mtu_selector: int = bits(2, f"{_MC}.mtuselector", HEX, enum=Selector)
    mtu: int = bits(6, f"{_MC}.mtu", HEX, enum=MTU)
    t_class: int = bits(8, f"{_MC}.tclass", HEX)
    p_key: int = bits(16, f"{_MC}.p_key", HEX)
    rate_selector: int = bits(2, f"{_MC}.rateselector", HEX, enum=Selector)
    rate: int = bits(6, f"{_MC}.rate", HEX, words=rate_words)
    packet_life_time_selector: int = bits(2, f"{_MC}.packetlifetimeselector", HEX, enum=Selector)
    packet_life_time: int = bits(6, f"{_MC}.packetlifetime", HEX, words=time_words)
    sl: int = bits(4, f"{_MC}.sl", HEX)
    flow_label: int = bits(20, f"{_MC}.flowlabel", HEX)
    hop_limit: int = bits(8, f"{_MC}.hoplimit", HEX)
    scope: int = bits(4, f"{_MC}.scope", HEX)
    join_state: int = bits(4, f"{_MC}.joinstate", HEX)
    proxy_join: int = bits(1, f"{_MC}.proxyjoin", HEX)
    resv23: int = bits(23)


class GuidInfoRecord(Header, clause="IBA 15.2.5.18"):
    """Record identifier: whose GUIDInfo follows, and which block of it."""

    lid: int = bits(16, "infiniband.sa.lid", HEX)
    block_num: int = bits(8, "infiniband.sa.blocknum_eightbit", HEX)
    resv40: int = bits(40)


class TraceRecord(Header, clause="IBA 15.2.5.19"):
    """A node on a path, and the ports by which the path enters and leaves it."""

    gid_prefix: int = bits(64, "infiniband.tracerecord.gidprefix", HEX)
    id_generation: int = bits(16, "infiniband.tracerecord.idgeneration", HEX)
    resv8: int = bits(8)
    node_type: int = bits(8, "infiniband.tracerecord.nodetype", HEX, enum=NodeType)
    node_id: int = bits(64, "infiniband.tracerecord.nodeid", HEX)
    chassis_id: int = bits(64, "infiniband.tracerecord.chassisid", HEX)
    entry_port_id: int = bits(64, "infiniband.tracerecord.entryportid", HEX)
    exit_port_id: int = bits(64, "infiniband.tracerecord.exitportid", HEX)
    entry_port: int = bits(8, "infiniband.tracerecord.entryport", HEX)
    exit_port: int = bits(8, "infiniband.tracerecord.exitport", HEX)


class MultiPathRecord(Header, clause="IBA 15.2.5.20"):
    """Paths asked for between many ports; the GIDs of sources, then destinations, follow."""

    raw_traffic: int = bits(1, f"{_MP}.rawtraffic", HEX)
    resv3: int = bits(3)
    flow_label: int = bits(20, f"{_MP}.flowlabel", HEX)
    hop_limit: int = bits(8, f"{_MP}.hoplimit", HEX)
    t_class: int = bits(8, f"{_MP}.tclass", HEX)
    reversible: int = bits(1, f"{_MP}.reversible", HEX)
    numb_path: int = bits(7, f"{_MP}.numbpath", HEX)
    p_key: int = bits(16, f"{_MP}.p_key", HEX)
    qos_class: int = bits(12, "", HEX)
    sl: int = bits(4, f"{_MP}.sl", HEX)
    mtu_selector: int = bits(2, f"{_MP}.mtuselector", HEX, enum=Selector)
    mtu: int = bits(6, f"{_MP}.mtu", HEX, enum=MTU)
    rate_selector: int = bits(2, f"{_MP}.rateselector", HEX, enum=Selector)
    rate: int = bits(6, f"{_MP}.rate", HEX, words=rate_words)
    packet_life_time_selector: int = bits(2, f"{_MP}.packetlifetimeselector", HEX, enum=Selector)
    packet_life_time: int = bits(6, f"{_MP}.packetlifetime", HEX, words=time_words)
    service_id_8msb: int = bits(8, "", HEX)
    independence_selector: int = bits(2, f"{_MP}.independenceselector", HEX)
    gid_scope: int = bits(6, f"{_MP}.gidscope", HEX)
    sgid_count: int = bits(8, f"{_MP}.sgidcount", HEX)
    dgid_count: int = bits(8, f"{_MP}.dgidcount", HEX)
    service_id_56lsb: int = bits(56, "", HEX)


class SDGID(Header, clause="IBA 15.2.5.20"):
    """A source or destination GID of a MultiPathRecord."""

    sdgid: bytes = raw(16, f"{_MP}.sdgid", IPV6)


def _located(place: type[Header], attribute: SMAttribute) -> Reader:
    """Make a reader of a record: its location, then the attribute of subnet management."""
    return chain(tables(place), ATTRIBUTES[attribute])


def _gids(head: MultiPathRecord) -> Reader:
    return tables(*[SDGID] * (head.sgid_count + head.dgid_count))


RECORDS: dict[int, Reader] = {
    SAAttribute.CLASS_PORT_INFO: tables(ClassPortInfo),
    SAAttribute.NOTICE: issued_notice,
    SAAttribute.INFORM_INFO: tables(InformInfo),
    SAAttribute.NODE_RECORD: tables(NodeRecord, NodeInfo, NodeDescription),
    SAAttribute.PORT_INFO_RECORD: _located(PortInfoRecord, SMAttribute.PORT_INFO),
    SAAttribute.SL_TO_VL_MAPPING_TABLE_RECORD: _located(
        SLtoVLMappingTableRecord, SMAttribute.SL_TO_VL_MAPPING_TABLE
    ),
    SAAttribute.SWITCH_INFO_RECORD: _located(SwitchInfoRecord, SMAttribute.SWITCH_INFO),
    SAAttribute.LINEAR_FORWARDING_TABLE_RECORD: _located(
        LinearForwardingTableRecord, SMAttribute.LINEAR_FORWARDING_TABLE
    ),
    SAAttribute.RANDOM_FORWARDING_TABLE_RECORD: _located(
        RandomForwardingTableRecord, SMAttribute.RANDOM_FORWARDING_TABLE
    ),
    SAAttribute.MULTICAST_FORWARDING_TABLE_RECORD: _located(
        MulticastForwardingTableRecord, SMAttribute.MULTICAST_FORWARDING_TABLE
    ),
    SAAttribute.SM_INFO_RECORD: _located(SMInfoRecord, SMAttribute.SM_INFO),
    SAAttribute.LINK_RECORD: tables(LinkRecord),
    SAAttribute.GUID_INFO_RECORD: _located(GuidInfoRecord, SMAttribute.GUID_INFO),
    SAAttribute.SERVICE_RECORD: tables(ServiceRecord),
    SAAttribute.P_KEY_TABLE_RECORD: _located(PKeyTableRecord, SMAttribute.P_KEY_TABLE),
    SAAttribute.PATH_RECORD: tables(PathRecord),
    SAAttribute.VL_ARBITRATION_TABLE_RECORD: _located(
        VLArbitrationTableRecord, SMAttribute.VL_ARBITRATION_TABLE
    ),
    SAAttribute.MC_MEMBER_RECORD: tables(MCMemberRecord),
    SAAttribute.TRACE_RECORD: tables(TraceRecord),
    SAAttribute.MULTI_PATH_RECORD: headed(MultiPathRecord, _gids),
    SAAttribute.SERVICE_ASSOCIATION_RECORD: tables(ServiceAssociationRecord),
    SAAttribute.INFORM_INFO_RECORD: tables(InformInfoRecord, InformInfo),
}
"""Attribute id to the reader of one record."""


_ANSWERS: dict[tuple[int, int], Reader] = {
    # IBA 15.4.4: paths between many ports are answered with plain path records.
    (Method.GET_MULTI_RESP, SAAttribute.MULTI_PATH_RECORD): tables(PathRecord),
}


def record(method: int, attribute_id: int) -> Reader:
    """The reader of one record in datagrams of this method."""
    return _ANSWERS.get((method, attribute_id)) or RECORDS.get(attribute_id, plain)


def records(
    attribute_id: int, attribute_offset: int, data: bytes, method: int = Method.GET_TABLE_RESP
) -> Iterator[Placed]:
    """Yield the pieces of a table of records, such as the data of a transfer of many datagrams.

    ``attribute_offset`` is the header's, in units of eight bytes; with 0 there is one record.
    Raises :class:`WireError`, after the complete pieces, if the data end inside a record.
    """
    return _records(data, 0, attribute_offset, record(method, attribute_id))


def _records(buffer: bytes, offset: int, attribute_offset: int, reader: Reader) -> Iterator[Placed]:
    """Yield records up to the buffer's end."""
    while offset < len(buffer):
        left = len(buffer) - offset
        length = min(8 * attribute_offset, left) if attribute_offset else left
        yield from area(buffer, offset, length, reader)
        offset += length


def body(buffer: bytes, offset: int, method: int, attribute_id: int) -> Iterator[Placed]:
    """Yield the pieces after the common header of a datagram of subnet administration."""
    rmpp = RMPP.parse(buffer, offset)
    yield offset, rmpp
    offset += RMPP.SIZE
    if is_control(rmpp):
        yield from control(rmpp, buffer, offset)
        return
    header = SAHeader.parse(buffer, offset)
    yield offset, header
    reader = _segment(rmpp, header.attribute_offset, record(method, attribute_id))
    yield from area(buffer, offset + SAHeader.SIZE, DATA, reader)


def _segment(rmpp: RMPP, attribute_offset: int, reader: Reader) -> Reader:
    """Make a reader of the data in one datagram.

    A transfer of one segment has complete records. The segments of a longer transfer are plain
    bytes: records extend across them and are parsed after reassembly.
    """
    if not rmpp.active:
        return reader
    if not (rmpp.first and rmpp.last):
        return plain
    valid = max(rmpp.transferred - SAHeader.SIZE, 0)
    return lambda buffer, offset: _records(
        buffer[: offset + valid], offset, attribute_offset, reader
    )
