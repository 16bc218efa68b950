"""State, capabilities and settings of a port. IBA 14.2.5.6."""

from enum import IntEnum

from rdmawire.wire.header import Header, bits, group
from rdmawire.wire.management import MTU, time_words
from rdmawire.wire.show import HEX, hex_digits


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


def _capable(name: str) -> int:
    """A row of the capability mask."""
    found: int = bits(1, name and f"infiniband.portinfo.capabilitymask.{name}", hex_digits(8))
    return found


CAPABILITIES = (
    *("is_hierarchy_info_supported", "is_multicast_fdb_top_supported"),
    *("is_multicast_p_key_trap_suppression_supported", "is_vendor_specific_mads_table_supported"),
    *("is_link_speed_width_pairs_table_supported", "is_other_local_changes_notice_supported"),
    *("is_client_reregistration_supported", "is_link_round_trip_latency_supported"),
    *("is_boot_management_supported", "is_capability_mask_notice_supported"),
    *("is_dr_notice_supported", "is_vendor_class_supported", "is_device_management_supported"),
    *("is_reinit_supported", "is_snmp_tunneling_supported"),
    *("is_communication_management_supported", "is_capability_mask2_supported"),
    *("is_extended_speeds_supported", "is_cable_info_supported"),
    *("is_p_key_switch_external_port_trap_supported", "is_system_image_guid_supported"),
    *("is_sm_disabled", "is_led_info_supported", "is_p_key_nvram", "is_m_key_nvram"),
    *("is_sl_mapping_supported", "is_automatic_migration_supported", "is_optional_ipd_supported"),
    *("is_trap_supported", "is_notice_supported", "is_sm", "capability_resv1"),
)
"""The rows of the capability mask, the uppermost bit first."""


class PortInfo(Header, clause="IBA 14.2.5.6"):
    """Addresses, capabilities, link, virtual lanes, checks and counters of a port."""

    m_key: int = bits(64, "infiniband.portinfo.m_key", HEX)
    gid_prefix: int = bits(64, "infiniband.portinfo.guid", HEX)
    lid: int = bits(16, "infiniband.portinfo.lid", HEX)
    master_sm_lid: int = bits(16, "infiniband.portinfo.mastersmlid", HEX)
    capability_mask: int = group("infiniband.portinfo.capabilitymask", *CAPABILITIES, show=HEX)
    is_hierarchy_info_supported: int = _capable("")
    is_multicast_fdb_top_supported: int = _capable("")
    is_multicast_p_key_trap_suppression_supported: int = _capable("")
    is_vendor_specific_mads_table_supported: int = _capable("")
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
    is_capability_mask2_supported: int = _capable("")
    is_extended_speeds_supported: int = _capable("")
    is_cable_info_supported: int = _capable("")
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
    capability_resv1: int = _capable("")
    diag_code: int = bits(16, "infiniband.portinfo.diagcode", HEX)
    m_key_lease_period: int = bits(16, "infiniband.portinfo.m_keyleaseperiod", HEX)
    local_port_num: int = bits(8, "infiniband.portinfo.localportnum", HEX)
    link_width_enabled: int = bits(
        8, "infiniband.portinfo.linkwidthenabled", HEX, words=width_words
    )
    link_width_supported: int = bits(
        8, "infiniband.portinfo.linkwidthsupported", HEX, words=width_words
    )
    link_width_active: int = bits(8, "infiniband.portinfo.linkwidthactive", HEX, words=width_words)
    link_speed_supported: int = bits(
        4, "infiniband.portinfo.linkspeedsupported", HEX, words=speed_words
    )
    port_state: int = bits(4, "infiniband.portinfo.portstate", HEX, enum=PortState)
    port_physical_state: int = bits(
        4, "infiniband.portinfo.portphysicalstate", HEX, enum=PortPhysicalState
    )
    link_down_default_state: int = bits(
        4, "infiniband.portinfo.linkdowndefaultstate", HEX, enum=PortPhysicalState
    )
    m_key_protect_bits: int = bits(2, "infiniband.portinfo.m_keyprotectbits", HEX)
    resv3: int = bits(3)
    lmc: int = bits(3, "infiniband.portinfo.lmc", HEX)
    link_speed_active: int = bits(4, "infiniband.portinfo.linkspeedactive", HEX, words=speed_words)
    link_speed_enabled: int = bits(
        4, "infiniband.portinfo.linkspeedenabled", HEX, words=speed_words
    )
    neighbor_mtu: int = bits(4, "infiniband.portinfo.neighbormtu", HEX, enum=MTU)
    master_sm_sl: int = bits(4, "infiniband.portinfo.mastersmsl", HEX)
    vl_cap: int = bits(4, "infiniband.portinfo.vlcap", HEX, enum=VLCap)
    init_type: int = bits(4, "infiniband.portinfo.inittype", HEX)
    vl_high_limit: int = bits(8, "infiniband.portinfo.vlhighlimit", HEX)
    vl_arbitration_high_cap: int = bits(8, "infiniband.portinfo.vlarbitrationhighcap", HEX)
    vl_arbitration_low_cap: int = bits(8, "infiniband.portinfo.vlarbitrationlowcap", HEX)
    init_type_reply: int = bits(4, "infiniband.portinfo.inittypereply", HEX)
    mtu_cap: int = bits(4, "infiniband.portinfo.mtucap", HEX, enum=MTU)
    vl_stall_count: int = bits(3, "infiniband.portinfo.vlstallcount", HEX)
    hoq_life: int = bits(5, "infiniband.portinfo.hoqlife", HEX, words=time_words)
    operational_vls: int = bits(4, "infiniband.portinfo.operationalvls", HEX, enum=VLCap)
    partition_enforcement_inbound: int = bits(
        1, "infiniband.portinfo.partitionenforcementinbound", HEX
    )
    partition_enforcement_outbound: int = bits(
        1, "infiniband.portinfo.partitionenforcementoutbound", HEX
    )
    filter_raw_inbound: int = bits(1, "infiniband.portinfo.filterrawinbound", HEX)
    filter_raw_outbound: int = bits(1, "infiniband.portinfo.filterrawoutbound", HEX)
    m_key_violations: int = bits(16, "infiniband.portinfo.m_keyviolations", HEX)
    p_key_violations: int = bits(16, "infiniband.portinfo.p_keyviolations", HEX)
    q_key_violations: int = bits(16, "infiniband.portinfo.q_keyviolations", HEX)
    guid_cap: int = bits(8, "infiniband.portinfo.guidcap", HEX)
    client_reregister: int = bits(1, "infiniband.portinfo.clientreregister", HEX)
    multicast_p_key_trap_suppression_enabled: int = bits(2, "", HEX)
    subnet_time_out: int = bits(5, "infiniband.portinfo.subnettimeout", HEX, words=time_words)
    resv3_2: int = bits(3)
    resp_time_value: int = bits(5, "infiniband.portinfo.resptimevalue", HEX, words=time_words)
    local_phy_errors: int = bits(4, "infiniband.portinfo.localphyerrors", HEX)
    overrun_errors: int = bits(4, "infiniband.portinfo.overrunerrors", HEX)
    max_credit_hint: int = bits(16, "infiniband.portinfo.maxcredithint", HEX)
    resv8: int = bits(8)
    link_round_trip_latency: int = bits(24, "infiniband.portinfo.linkroundtriplatency", HEX)
    capability_mask2: int = bits(16, "", HEX)
    link_speed_ext_active: int = bits(4, "", HEX)
    link_speed_ext_supported: int = bits(4, "", HEX)
    resv3_3: int = bits(3)
    link_speed_ext_enabled: int = bits(5, "", HEX)
