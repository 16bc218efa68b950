"""The records of subnet administration. IBA 15.2.5.

A record of a subnet management attribute begins with the location that it was read from:
the tables here are the locations; the attribute's own table follows.
"""

from enum import IntEnum

from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.management import MTU, NodeType, rate_words, time_words
from rdmawire.wire.show import HEX, IPV6, TEXT, hex_digits


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
    dgid: bytes = raw(16, "infiniband.pathrecord.dgid", IPV6)
    sgid: bytes = raw(16, "infiniband.pathrecord.sgid", IPV6)
    dlid: int = bits(16, "infiniband.pathrecord.dlid", HEX)
    slid: int = bits(16, "infiniband.pathrecord.slid", HEX)
    raw_traffic: int = bits(1, "infiniband.pathrecord.rawtraffic", HEX)
    resv3: int = bits(3)
    flow_label: int = bits(20, "infiniband.pathrecord.flowlabel", HEX)
    hop_limit: int = bits(8, "infiniband.pathrecord.hoplimit", HEX)
    t_class: int = bits(8, "infiniband.pathrecord.tclass", HEX)
    reversible: int = bits(1, "infiniband.pathrecord.reversible", HEX)
    numb_path: int = bits(7, "infiniband.pathrecord.numbpath", HEX)
    p_key: int = bits(16, "infiniband.pathrecord.p_key", HEX)
    qos_class: int = bits(12, "", HEX)
    sl: int = bits(4, "infiniband.pathrecord.sl", hex_digits(4))
    mtu_selector: int = bits(2, "infiniband.pathrecord.mtuselector", HEX, enum=Selector)
    mtu: int = bits(6, "infiniband.pathrecord.mtu", HEX, enum=MTU)
    rate_selector: int = bits(2, "infiniband.pathrecord.rateselector", HEX, enum=Selector)
    rate: int = bits(6, "infiniband.pathrecord.rate", HEX, words=rate_words)
    packet_life_time_selector: int = bits(
        2, "infiniband.pathrecord.packetlifetimeselector", HEX, enum=Selector
    )
    packet_life_time: int = bits(6, "infiniband.pathrecord.packetlifetime", HEX, words=time_words)
    preference: int = bits(8, "infiniband.pathrecord.preference", HEX)
    resv48: int = bits(48)


class MCMemberRecord(Header, clause="IBA 15.2.5.17"):
    """A multicast group, and a port that is in it."""

    mgid: bytes = raw(16, "infiniband.mcmemberrecord.mgid", IPV6)
    port_gid: bytes = raw(16, "infiniband.mcmemberrecord.portgid", IPV6)
    q_key: int = bits(32, "infiniband.mcmemberrecord.q_key", HEX)
    mlid: int = bits(16, "infiniband.mcmemberrecord.mlid", HEX)
    mtu_selector: int = bits(2, "infiniband.mcmemberrecord.mtuselector", HEX, enum=Selector)
    mtu: int = bits(6, "infiniband.mcmemberrecord.mtu", HEX, enum=MTU)
    t_class: int = bits(8, "infiniband.mcmemberrecord.tclass", HEX)
    p_key: int = bits(16, "infiniband.mcmemberrecord.p_key", HEX)
    rate_selector: int = bits(2, "infiniband.mcmemberrecord.rateselector", HEX, enum=Selector)
    rate: int = bits(6, "infiniband.mcmemberrecord.rate", HEX, words=rate_words)
    packet_life_time_selector: int = bits(
        2, "infiniband.mcmemberrecord.packetlifetimeselector", HEX, enum=Selector
    )
    packet_life_time: int = bits(
        6, "infiniband.mcmemberrecord.packetlifetime", HEX, words=time_words
    )
    sl: int = bits(4, "infiniband.mcmemberrecord.sl", HEX)
    flow_label: int = bits(20, "infiniband.mcmemberrecord.flowlabel", HEX)
    hop_limit: int = bits(8, "infiniband.mcmemberrecord.hoplimit", HEX)
    scope: int = bits(4, "infiniband.mcmemberrecord.scope", HEX)
    join_state: int = bits(4, "infiniband.mcmemberrecord.joinstate", HEX)
    proxy_join: int = bits(1, "infiniband.mcmemberrecord.proxyjoin", HEX)
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

    raw_traffic: int = bits(1, "infiniband.multipathrecord.rawtraffic", HEX)
    resv3: int = bits(3)
    flow_label: int = bits(20, "infiniband.multipathrecord.flowlabel", HEX)
    hop_limit: int = bits(8, "infiniband.multipathrecord.hoplimit", HEX)
    t_class: int = bits(8, "infiniband.multipathrecord.tclass", HEX)
    reversible: int = bits(1, "infiniband.multipathrecord.reversible", HEX)
    numb_path: int = bits(7, "infiniband.multipathrecord.numbpath", HEX)
    p_key: int = bits(16, "infiniband.multipathrecord.p_key", HEX)
    qos_class: int = bits(12, "", HEX)
    sl: int = bits(4, "infiniband.multipathrecord.sl", HEX)
    mtu_selector: int = bits(2, "infiniband.multipathrecord.mtuselector", HEX, enum=Selector)
    mtu: int = bits(6, "infiniband.multipathrecord.mtu", HEX, enum=MTU)
    rate_selector: int = bits(2, "infiniband.multipathrecord.rateselector", HEX, enum=Selector)
    rate: int = bits(6, "infiniband.multipathrecord.rate", HEX, words=rate_words)
    packet_life_time_selector: int = bits(
        2, "infiniband.multipathrecord.packetlifetimeselector", HEX, enum=Selector
    )
    packet_life_time: int = bits(
        6, "infiniband.multipathrecord.packetlifetime", HEX, words=time_words
    )
    service_id_8msb: int = bits(8, "", HEX)
    independence_selector: int = bits(2, "infiniband.multipathrecord.independenceselector", HEX)
    gid_scope: int = bits(6, "infiniband.multipathrecord.gidscope", HEX)
    sgid_count: int = bits(8, "infiniband.multipathrecord.sgidcount", HEX)
    dgid_count: int = bits(8, "infiniband.multipathrecord.dgidcount", HEX)
    service_id_56lsb: int = bits(56, "", HEX)


class SDGID(Header, clause="IBA 15.2.5.20"):
    """A source or destination GID of a MultiPathRecord."""

    sdgid: bytes = raw(16, "infiniband.multipathrecord.sdgid", IPV6)
