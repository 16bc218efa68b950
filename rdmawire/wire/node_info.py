"""Description, NodeInfo, SwitchInfo and GUIDInfo of a node. IBA 14.2.5."""

from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.management import NodeType, time_words
from rdmawire.wire.show import HEX, TEXT


class NodeDescription(Header, clause="IBA 14.2.5.2"):
    """Name of a node for people, in UTF-8."""

    node_string: bytes = raw(64, "infiniband.nodedescription.nodestring", TEXT)


class NodeInfo(Header, clause="IBA 14.2.5.3"):
    """Kind of a node, its GUIDs, and who made it."""

    base_version: int = bits(8, "infiniband.nodeinfo.baseversion", HEX)
    class_version: int = bits(8, "infiniband.nodeinfo.classversion", HEX)
    node_type: int = bits(8, "infiniband.nodeinfo.nodetype", HEX, enum=NodeType)
    num_ports: int = bits(8, "infiniband.nodeinfo.numports", HEX)
    system_image_guid: int = bits(64, "infiniband.nodeinfo.systemimageguid", HEX)
    node_guid: int = bits(64, "infiniband.nodeinfo.nodeguid", HEX)
    port_guid: int = bits(64, "infiniband.nodeinfo.portguid", HEX)
    partition_cap: int = bits(16, "infiniband.nodeinfo.partitioncap", HEX)
    device_id: int = bits(16, "infiniband.nodeinfo.deviceid", HEX)
    revision: int = bits(32, "infiniband.nodeinfo.revision", HEX)
    local_port_num: int = bits(8, "infiniband.nodeinfo.localportnum", HEX)
    vendor_id: int = bits(24, "infiniband.nodeinfo.vendorid", HEX)


class SwitchInfo(Header, clause="IBA 14.2.5.4"):
    """Tables and abilities of a switch, and where it forwards what they do not list."""

    linear_fdb_cap: int = bits(16, "infiniband.switchinfo.linearfdbcap", HEX)
    random_fdb_cap: int = bits(16, "infiniband.switchinfo.randomfdbcap", HEX)
    multicast_fdb_cap: int = bits(16, "infiniband.switchinfo.multicastfdbcap", HEX)
    linear_fdb_top: int = bits(16, "infiniband.switchinfo.linearfdbtop", HEX)
    default_port: int = bits(8, "infiniband.switchinfo.defaultport", HEX)
    default_multicast_primary_port: int = bits(
        8, "infiniband.switchinfo.defaultmulticastprimaryport", HEX
    )
    default_multicast_not_primary_port: int = bits(
        8, "infiniband.switchinfo.defaultmulticastnotprimaryport", HEX
    )
    life_time_value: int = bits(5, "infiniband.switchinfo.lifetimevalue", HEX, words=time_words)
    port_state_change: int = bits(1, "infiniband.switchinfo.portstatechange", HEX)
    optimized_sl_to_vl_mapping_programming: int = bits(
        2, "infiniband.switchinfo.optimizedsltovlmappingprogramming", HEX
    )
    lids_per_port: int = bits(16, "infiniband.switchinfo.lidsperport", HEX)
    partition_enforcement_cap: int = bits(16, "infiniband.switchinfo.partitionenforcementcap", HEX)
    inbound_enforcement_cap: int = bits(1, "infiniband.switchinfo.inboundenforcementcap", HEX)
    outbound_enforcement_cap: int = bits(1, "infiniband.switchinfo.outboundenforcementcap", HEX)
    filter_raw_inbound_cap: int = bits(1, "infiniband.switchinfo.filterrawinboundcap", HEX)
    filter_raw_outbound_cap: int = bits(1, "infiniband.switchinfo.filterrawoutboundcap", HEX)
    enhanced_port0: int = bits(1, "infiniband.switchinfo.enhancedportzero", HEX)
    resv3: int = bits(3)
    resv8: int = bits(8)
    multicast_fdb_top: int = bits(16, "", HEX)


class GUIDInfo(Header, clause="IBA 14.2.5.5"):
    """Block of eight GUIDs of a port."""

    guid: tuple[int, ...] = bits(64, "infiniband.switchinfo.guid", HEX, times=8)
