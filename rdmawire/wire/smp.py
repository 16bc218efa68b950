"""Subnet management packets, routed by LID or by a path of ports. IBA 14.2.

The tables of attributes are in the order of IBA 14.2.5: nodes, ports, partitions, forwarding.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from rdmawire.wire.header import Header, bits, group, raw
from rdmawire.wire.layout import Placed, Reader, area, plain, tables
from rdmawire.wire.management import MTU, NodeType, time_words
from rdmawire.wire.notice import notice
from rdmawire.wire.show import HEX, TEXT, hex_digits

DATA = 64
"""Bytes of an attribute in a subnet management packet. IBA 14.2.1."""

_S, _P = "infiniband.switchinfo", "infiniband.portinfo"
_LS = "infiniband.linkspeedwidthpairstable"


class SMAttribute(IntEnum):
    """Attributes of subnet management. IBA 14.2.5."""

    NOTICE = 0x0002
    NODE_DESCRIPTION = 0x0010
    NODE_INFO = 0x0011
    SWITCH_INFO = 0x0012
    GUID_INFO = 0x0014
    PORT_INFO = 0x0015
    P_KEY_TABLE = 0x0016
    SL_TO_VL_MAPPING_TABLE = 0x0017
    VL_ARBITRATION_TABLE = 0x0018
    LINEAR_FORWARDING_TABLE = 0x0019
    RANDOM_FORWARDING_TABLE = 0x001A
    MULTICAST_FORWARDING_TABLE = 0x001B
    LINK_SPEED_WIDTH_PAIRS_TABLE = 0x001C
    VENDOR_SPECIFIC_MADS_TABLE = 0x001D
    HIERARCHY_INFO = 0x001E
    SM_INFO = 0x0020
    VENDOR_DIAG = 0x0030
    LED_INFO = 0x0031
    CABLE_INFO = 0x0032
    PORT_INFO_EXTENDED = 0x0033


class SMP(Header, clause="IBA 14.2.1.1"):
    """M_Key of a LID routed subnet management packet."""

    m_key: int = bits(64, "infiniband.smplid.mkey", HEX)
    resv256: bytes = raw(32)


class DirectedSMP(Header, clause="IBA 14.2.1.2"):
    """M_Key and LIDs of a directed route subnet management packet."""

    m_key: int = bits(64, "infiniband.smplid.mkey", HEX)
    drslid: int = bits(16, "infiniband.smpdirected.drslid", HEX)
    drdlid: int = bits(16, "infiniband.smpdirected.drdlid", HEX)
    resv224: bytes = raw(28)


class DirectedPath(Header, clause="IBA 14.2.1.2"):
    """Ports by which a directed route packet goes, and by which its answer comes."""

    initial_path: bytes = raw(64, "infiniband.smpdirected.initialpath")
    return_path: bytes = raw(64, "infiniband.smpdirected.returnpath")


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

    linear_fdb_cap: int = bits(16, f"{_S}.linearfdbcap", HEX)
    random_fdb_cap: int = bits(16, f"{_S}.randomfdbcap", HEX)
    multicast_fdb_cap: int = bits(16, f"{_S}.multicastfdbcap", HEX)
    linear_fdb_top: int = bits(16, f"{_S}.linearfdbtop", HEX)
    default_port: int = bits(8, f"{_S}.defaultport", HEX)
    default_multicast_primary_port: int = bits(8, f"{_S}.defaultmulticastprimaryport", HEX)
    default_multicast_not_primary_port: int = bits(8, f"{_S}.defaultmulticastnotprimaryport", HEX)
    life_time_value: int = bits(5, f"{_S}.lifetimevalue", HEX, words=time_words)
    port_state_change: int = bits(1, f"{_S}.portstatechange", HEX)
    optimized_sl_to_vl_mapping_programming: int = bits(
        2, f"{_S}.optimizedsltovlmappingprogramming", HEX
    )
    lids_per_port: int = bits(16, f"{_S}.lidsperport", HEX)
    partition_enforcement_cap: int = bits(16, f"{_S}.partitionenforcementcap", HEX)
    inbound_enforcement_cap: int = bits(1, f"{_S}.inboundenforcementcap", HEX)
    outbound_enforcement_cap: int = bits(1, f"{_S}.outboundenforcementcap", HEX)
    filter_raw_inbound_cap: int = bits(1, f"{_S}.filterrawinboundcap", HEX)
    filter_raw_outbound_cap: int = bits(1, f"{_S}.filterrawoutboundcap", HEX)
    enhanced_port0: int = bits(1, f"{_S}.enhancedportzero", HEX)
    resv3: int = bits(3)
    resv8: int = bits(8)
    multicast_fdb_top: int = bits(16, "", HEX)


class GUIDInfo(Header, clause="IBA 14.2.5.5"):
    """Block of eight GUIDs of a port."""

    guid: tuple[int, ...] = bits(64, f"{_S}.guid", HEX, times=8)


class PortState(IntEnum):
    """States of a port's link. IBA 7.2."""

    NO_STATE_CHANGE = 0
    DOWN = 1
    INITIALIZE = 2
    ARMED = 3
    ACTIVE = 4


class PortPhysicalState(IntEnum):
    """States of a port's physical link. IBA 14.2.5.6."""

    NO_STATE_CHANGE = 0
    SLEEP = 1
    POLLING = 2
    DISABLED = 3
    PORT_CONFIGURATION_TRAINING = 4
    LINK_UP = 5
    LINK_ERROR_RECOVERY = 6
    PHY_TEST = 7


class VLCap(IntEnum):
    """Number of data virtual lanes. IBA 14.2.5.6."""

    VL0 = 1
    VL0_1 = 2
    VL0_3 = 3
    VL0_7 = 4
    VL0_14 = 5


_WIDTHS = ("1x", "4x", "8x", "12x", "2x")
_SPEEDS = ("2.5 Gb/s", "5 Gb/s", "10 Gb/s")


def width_words(mask: int) -> str:
    """Describe the link widths of a mask."""
    return " or ".join(name for bit, name in enumerate(_WIDTHS) if mask >> bit & 1)


def speed_words(mask: int) -> str:
    """Describe the lane speeds of a mask."""
    return " or ".join(name for bit, name in enumerate(_SPEEDS) if mask >> bit & 1)


def _capable(name: str = "") -> Any:
    """A row of the capability mask."""
    return bits(1, name and f"{_P}.capabilitymask.{name}", hex_digits(8))


class PortInfo(Header, clause="IBA 14.2.5.6"):
    """Addresses, capabilities, link, virtual lanes, checks and counters of a port."""

    m_key: int = bits(64, f"{_P}.m_key", HEX)
    gid_prefix: int = bits(64, f"{_P}.guid", HEX)
    lid: int = bits(16, f"{_P}.lid", HEX)
    master_sm_lid: int = bits(16, f"{_P}.mastersmlid", HEX)
    capability_mask: int = group(
        f"{_P}.capabilitymask", "is_hierarchy_info_supported", ..., "capability_resv1", show=HEX
    )
    is_hierarchy_info_supported: int = _capable()
    is_multicast_fdb_top_supported: int = _capable()
    is_multicast_p_key_trap_suppression_supported: int = _capable()
    is_vendor_specific_mads_table_supported: int = _capable()
    is_link_speed_width_pairs_table_supported: int = _capable("linkspeedwidthpairstablesupported")
    is_other_local_changes_notice_supported: int = _capable("otherlocalchangesnoticesupported")
    is_client_reregistration_supported: int = _capable("clientregistrationsupported")
    is_link_round_trip_latency_supported: int = _capable("linkroundtriplatencysupported")
    is_boot_management_supported: int = _capable("bootmanagementsupported")
    is_capability_mask_notice_supported: int = _capable("capabilitymasknoticesupported")
    is_dr_notice_supported: int = _capable("drnoticesupported")
    is_vendor_class_supported: int = _capable("vendorclasssupported")
    is_device_management_supported: int = _capable("devicemanagementsupported")
    is_reinit_supported: int = _capable("reinitsupported")
    is_snmp_tunneling_supported: int = _capable("snmptunnelingsupported")
    is_communication_management_supported: int = _capable("communicationmanagementsupported")
    is_capability_mask2_supported: int = _capable()
    is_extended_speeds_supported: int = _capable()
    is_cable_info_supported: int = _capable()
    is_p_key_switch_external_port_trap_supported: int = _capable(
        "pkeyswitchexternalporttrapsupported"
    )
    is_system_image_guid_supported: int = _capable("systemimageguidsupported")
    is_sm_disabled: int = _capable("smdisabled")
    is_led_info_supported: int = _capable("ledinfosupported")
    is_p_key_nvram: int = _capable("pkeynvram")
    is_m_key_nvram: int = _capable("mkeynvram")
    is_sl_mapping_supported: int = _capable("slmappingsupported")
    is_automatic_migration_supported: int = _capable("automaticmigrationsupported")
    is_optional_ipd_supported: int = _capable("optionalipdsupported")
    is_trap_supported: int = _capable("trapsupported")
    is_notice_supported: int = _capable("noticesupported")
    is_sm: int = _capable("issm")
    capability_resv1: int = _capable()
    diag_code: int = bits(16, f"{_P}.diagcode", HEX)
    m_key_lease_period: int = bits(16, f"{_P}.m_keyleaseperiod", HEX)
    local_port_num: int = bits(8, f"{_P}.localportnum", HEX)
    link_width_enabled: int = bits(8, f"{_P}.linkwidthenabled", HEX, words=width_words)
    link_width_supported: int = bits(8, f"{_P}.linkwidthsupported", HEX, words=width_words)
    link_width_active: int = bits(8, f"{_P}.linkwidthactive", HEX, words=width_words)
    link_speed_supported: int = bits(4, f"{_P}.linkspeedsupported", HEX, words=speed_words)
    port_state: int = bits(4, f"{_P}.portstate", HEX, enum=PortState)
    port_physical_state: int = bits(4, f"{_P}.portphysicalstate", HEX, enum=PortPhysicalState)
    link_down_default_state: int = bits(
        4, f"{_P}.linkdowndefaultstate", HEX, enum=PortPhysicalState
    )
    m_key_protect_bits: int = bits(2, f"{_P}.m_keyprotectbits", HEX)
    resv3: int = bits(3)
    lmc: int = bits(3, f"{_P}.lmc", HEX)
    link_speed_active: int = bits(4, f"{_P}.linkspeedactive", HEX, words=speed_words)
    link_speed_enabled: int = bits(4, f"{_P}.linkspeedenabled", HEX, words=speed_words)
    neighbor_mtu: int = bits(4, f"{_P}.neighbormtu", HEX, enum=MTU)
    master_sm_sl: int = bits(4, f"{_P}.mastersmsl", HEX)
    vl_cap: int = bits(4, f"{_P}.vlcap", HEX, enum=VLCap)
    init_type: int = bits(4, f"{_P}.inittype", HEX)
    vl_high_limit: int = bits(8, f"{_P}.vlhighlimit", HEX)
    vl_arbitration_high_cap: int = bits(8, f"{_P}.vlarbitrationhighcap", HEX)
    vl_arbitration_low_cap: int = bits(8, f"{_P}.vlarbitrationlowcap", HEX)
    init_type_reply: int = bits(4, f"{_P}.inittypereply", HEX)
    mtu_cap: int = bits(4, f"{_P}.mtucap", HEX, enum=MTU)
    vl_stall_count: int = bits(3, f"{_P}.vlstallcount", HEX)
    hoq_life: int = bits(5, f"{_P}.hoqlife", HEX, words=time_words)
    operational_vls: int = bits(4, f"{_P}.operationalvls", HEX, enum=VLCap)
    partition_enforcement_inbound: int = bits(1, f"{_P}.partitionenforcementinbound", HEX)
    partition_enforcement_outbound: int = bits(1, f"{_P}.partitionenforcementoutbound", HEX)
    filter_raw_inbound: int = bits(1, f"{_P}.filterrawinbound", HEX)
    filter_raw_outbound: int = bits(1, f"{_P}.filterrawoutbound", HEX)
    m_key_violations: int = bits(16, f"{_P}.m_keyviolations", HEX)
    p_key_violations: int = bits(16, f"{_P}.p_keyviolations", HEX)
    q_key_violations: int = bits(16, f"{_P}.q_keyviolations", HEX)
    guid_cap: int = bits(8, f"{_P}.guidcap", HEX)
    client_reregister: int = bits(1, f"{_P}.clientreregister", HEX)
    multicast_p_key_trap_suppression_enabled: int = bits(2, "", HEX)
    subnet_time_out: int = bits(5, f"{_P}.subnettimeout", HEX, words=time_words)
    resv3_2: int = bits(3)
    resp_time_value: int = bits(5, f"{_P}.resptimevalue", HEX, words=time_words)
    local_phy_errors: int = bits(4, f"{_P}.localphyerrors", HEX)
    overrun_errors: int = bits(4, f"{_P}.overrunerrors", HEX)
    max_credit_hint: int = bits(16, f"{_P}.maxcredithint", HEX)
    resv8: int = bits(8)
    link_round_trip_latency: int = bits(24, f"{_P}.linkroundtriplatency", HEX)
    capability_mask2: int = bits(16, "", HEX)
    link_speed_ext_active: int = bits(4, "", HEX)
    link_speed_ext_supported: int = bits(4, "", HEX)
    resv3_3: int = bits(3)
    link_speed_ext_enabled: int = bits(5, "", HEX)


class PKeyEntry(Header, clause="IBA 14.2.5.7"):
    """A partition key; a P_KeyTable has 32 of them."""

    membership_type: int = bits(1, "infiniband.p_keytable.membershiptype", HEX)
    p_key_base: int = bits(15, "infiniband.p_keytable.p_keybase", HEX)


_SL_PAIR = (
    bits(4, "infiniband.sltovlmappingtable.sltovlhighbits", HEX),
    bits(4, "infiniband.sltovlmappingtable.sltovllowbits", HEX),
)


class SLtoVLMappingTable(Header, clause="IBA 14.2.5.8"):
    """Virtual lane of each service level."""

    sl0_to_vl, sl1_to_vl, sl2_to_vl, sl3_to_vl = _SL_PAIR * 2
    sl4_to_vl, sl5_to_vl, sl6_to_vl, sl7_to_vl = _SL_PAIR * 2
    sl8_to_vl, sl9_to_vl, sl10_to_vl, sl11_to_vl = _SL_PAIR * 2
    sl12_to_vl, sl13_to_vl, sl14_to_vl, sl15_to_vl = _SL_PAIR * 2


class VLArbitrationEntry(Header, clause="IBA 14.2.5.9"):
    """A virtual lane and its weight; a VLArbitrationTable has 32 of them."""

    resv4: int = bits(4)
    vl: int = bits(4, "infiniband.vlarbitrationtable.vl", HEX)
    weight: int = bits(8, "infiniband.vlarbitrationtable.weight", HEX)


class LinearForwardingTable(Header, clause="IBA 14.2.5.10"):
    """Ports that a block of 64 LIDs is forwarded to."""

    port: tuple[int, ...] = bits(8, "infiniband.linearforwardingtable.port", HEX, times=64)


class RandomForwardingEntry(Header, clause="IBA 14.2.5.11"):
    """Port that some LIDs are forwarded to; a RandomForwardingTable has 16 of them."""

    lid: int = bits(16, "infiniband.randomforwardingtable.lid", HEX)
    valid: int = bits(1, "infiniband.randomforwardingtable.valid", HEX)
    lmc: int = bits(3, "infiniband.randomforwardingtable.lmc", HEX)
    resv4: int = bits(4)
    port: int = bits(8, "infiniband.randomforwardingtable.port", HEX)


class MulticastForwardingTable(Header, clause="IBA 14.2.5.12"):
    """Ports, 16 as bits, that a block of 32 multicast LIDs is forwarded to."""

    port_mask: tuple[int, ...] = bits(
        16, "infiniband.multicastforwardingtable.portmask", HEX, times=32
    )


class SMState(IntEnum):
    """States of a subnet manager. IBA 14.4.1."""

    NOT_ACTIVE = 0
    DISCOVERING = 1
    STANDBY = 2
    MASTER = 3


class SMInfo(Header, clause="IBA 14.2.5.13"):
    """State of a subnet manager, and how it stands with the others."""

    guid: int = bits(64, "infiniband.sminfo.guid", HEX)
    sm_key: int = bits(64, "infiniband.sminfo.sm_key", HEX)
    act_count: int = bits(32, "infiniband.sminfo.actcount", HEX)
    priority: int = bits(4, "infiniband.sminfo.priority", HEX)
    sm_state: int = bits(4, "infiniband.sminfo.smstate", HEX, enum=SMState)


class VendorDiag(Header, clause="IBA 14.2.5.14"):
    """Diagnosis in a vendor's own terms, and where it goes on."""

    next_index: int = bits(16, "infiniband.vendordiag.nextindex", HEX)
    diag_data: bytes = raw(62, "infiniband.vendordiag.diagdata")


class LedInfo(Header, clause="IBA 14.2.5.15"):
    """State of a port's LED."""

    led_mask: int = bits(1, "infiniband.ledinfo.ledmask", HEX)
    resv31: int = bits(31)


class LinkSpeedWidthPairsTable(Header, clause="IBA 14.2.5.16"):
    """Link widths that ports have at each link speed."""

    num_tables: int = bits(8, f"{_LS}.numtables", HEX)
    port_mask: bytes = raw(32, f"{_LS}.portmask")
    speed_2_5: int = bits(8, f"{_LS}.speedtwofive", HEX, words=width_words)
    speed_5: int = bits(8, f"{_LS}.speedfive", HEX, words=width_words)
    speed_10: int = bits(8, f"{_LS}.speedten", HEX, words=width_words)


ATTRIBUTES: dict[int, Reader] = {
    SMAttribute.NOTICE: notice,
    SMAttribute.NODE_DESCRIPTION: tables(NodeDescription),
    SMAttribute.NODE_INFO: tables(NodeInfo),
    SMAttribute.SWITCH_INFO: tables(SwitchInfo),
    SMAttribute.GUID_INFO: tables(GUIDInfo),
    SMAttribute.PORT_INFO: tables(PortInfo),
    SMAttribute.P_KEY_TABLE: tables(*[PKeyEntry] * 32),
    SMAttribute.SL_TO_VL_MAPPING_TABLE: tables(SLtoVLMappingTable),
    SMAttribute.VL_ARBITRATION_TABLE: tables(*[VLArbitrationEntry] * 32),
    SMAttribute.LINEAR_FORWARDING_TABLE: tables(LinearForwardingTable),
    SMAttribute.RANDOM_FORWARDING_TABLE: tables(*[RandomForwardingEntry] * 16),
    SMAttribute.MULTICAST_FORWARDING_TABLE: tables(MulticastForwardingTable),
    SMAttribute.LINK_SPEED_WIDTH_PAIRS_TABLE: tables(LinkSpeedWidthPairsTable),
    SMAttribute.SM_INFO: tables(SMInfo),
    SMAttribute.VENDOR_DIAG: tables(VendorDiag),
    SMAttribute.LED_INFO: tables(LedInfo),
}
"""Attribute id to the reader of its 64 bytes."""


def lid_routed(buffer: bytes, offset: int, _: int, attribute_id: int) -> Iterator[Placed]:
    """Yield the pieces after the common header of a LID routed packet."""
    yield offset, SMP.parse(buffer, offset)
    yield from area(buffer, offset + SMP.SIZE, DATA, ATTRIBUTES.get(attribute_id, plain))
    yield from area(buffer, offset + SMP.SIZE + DATA, DirectedPath.SIZE, plain)


def directed(buffer: bytes, offset: int, _: int, attribute_id: int) -> Iterator[Placed]:
    """Yield the pieces after the common header of a directed route packet."""
    yield offset, DirectedSMP.parse(buffer, offset)
    yield from area(buffer, offset + DirectedSMP.SIZE, DATA, ATTRIBUTES.get(attribute_id, plain))
    offset += DirectedSMP.SIZE + DATA
    yield offset, DirectedPath.parse(buffer, offset)
