"""Notices and traps, and subscriptions to them. IBA 13.4.8.2, 13.4.8.3, 14.2.5.1, 14.3."""

from enum import IntEnum

from rdmawire.wire.header import Header, Meaning, bits, choice, flag, raw
from rdmawire.wire.layout import Reader, chain, headed, tables
from rdmawire.wire.management import Method, NodeType, time_words
from rdmawire.wire.show import HEX, IPV6

DETAILS = 54
"""Bytes of a notice's details. IBA 13.4.8.2."""


class NoticeType(IntEnum):
    """Severity of a notice. IBA 13.4.8.2."""

    FATAL = 0x00
    URGENT = 0x01
    SECURITY = 0x02
    SUBNET_MANAGEMENT = 0x03
    INFORMATIONAL = 0x04
    EMPTY = 0x7F


class Trap(IntEnum):
    """Generic traps of subnet management. IBA 14.3.4 to 14.3.13."""

    GID_IN_SERVICE = 64
    GID_OUT_OF_SERVICE = 65
    MULTICAST_GROUP_CREATED = 66
    MULTICAST_GROUP_DELETED = 67
    UNPATH = 68
    REPATH = 69
    LINK_STATE_CHANGE = 128
    LOCAL_LINK_INTEGRITY = 129
    EXCESSIVE_BUFFER_OVERRUN = 130
    FLOW_CONTROL_UPDATE_WATCHDOG = 131
    LOCAL_CHANGE = 144
    SYSTEM_IMAGE_GUID_CHANGE = 145
    BAD_M_KEY = 256
    BAD_P_KEY = 257
    BAD_Q_KEY = 258
    BAD_P_KEY_AT_SWITCH = 259


_DETAILS = "infiniband.notice.datadetails"
_PRODUCER = "infiniband.notice.producertypevendorid"
_TRAP = "infiniband.notice.trapnumberdeviceid"
_INFORM_PRODUCER = "infiniband.informinfo.producertypevendorid"
_INFORM_TRAP = "infiniband.informinfo.trapnumberdeviceid"


class Notice(Header, clause="IBA 13.4.8.2", label="notice"):
    """Notice of an event: what kind it is, who produced it, and about which LID.

    A vendor's notice has vendor and device where a generic one has the producer's type and the
    trap's number.
    """

    is_generic: int = bits(1, "infiniband.notice.isgeneric", HEX)
    type: int = bits(7, "infiniband.notice.type", HEX, enum=NoticeType)
    producer_type_vendor_id: int = choice(
        24, "is_generic", {0: Meaning(_PRODUCER, HEX), 1: Meaning(_PRODUCER, HEX, NodeType)}
    )
    trap_number_device_id: int = choice(
        16, "is_generic", {0: Meaning(_TRAP, HEX), 1: Meaning(_TRAP, HEX, Trap)}
    )
    issuer_lid: int = bits(16, "infiniband.notice.issuerlid", HEX)
    notice_toggle: int = bits(1, "infiniband.notice.noticetoggle", HEX)
    notice_count: int = bits(15, "infiniband.notice.noticecount", HEX)


class DataDetails(Header, clause="IBA 13.4.8.2"):
    """Details of a notice that no table here knows."""

    data_details: bytes = raw(DETAILS, _DETAILS)


class IssuerGID(Header, clause="IBA 13.4.8.2"):
    """GID of a notice's issuer; only in classes other than subnet management."""

    issuer_gid: bytes = raw(16, "", IPV6)


class GIDTrap(Header, clause="IBA 14.3.4, 14.3.5", wireshark=_DETAILS):
    """Traps 64 to 67: the port or multicast group that came or went."""

    resv48: int = bits(48)
    gidaddr: bytes = raw(16, "infiniband.trap.gidaddr", IPV6)
    resv256: bytes = raw(32)


class PathTrap(Header, clause="IBA 14.3.6", wireshark=_DETAILS):
    """Traps 68 and 69: which paths are no longer, or again, to be used."""

    comp_mask: int = bits(64, "infiniband.trap.comp_mask", HEX)
    wait_for_repath: int = bits(1, "infiniband.trap.wait_for_repath", HEX)
    resv7: int = bits(7)
    resv360: bytes = raw(45)


class LinkStateTrap(Header, clause="IBA 14.3.7", wireshark=_DETAILS):
    """Trap 128: the switch at one of whose ports the link state changed."""

    lidaddr: int = bits(16, "infiniband.trap.lidaddr", HEX)
    resv416: bytes = raw(52)


class PortTrap(Header, clause="IBA 14.3.8", wireshark=_DETAILS):
    """Traps 129 to 131: the port that reached a threshold."""

    resv16: int = bits(16)
    lidaddr: int = bits(16, "infiniband.trap.lidaddr", HEX)
    portno: int = bits(8, "infiniband.trap.portno", HEX)
    resv392: bytes = raw(49)


class LocalChangeTrap(Header, clause="IBA 14.3.11", wireshark=_DETAILS):
    """Trap 144: a capability mask or something else at the port changed."""

    resv16: int = bits(16)
    lidaddr: int = bits(16, "infiniband.trap.lidaddr", HEX)
    resv15: int = bits(15)
    other_local_changes: int = bits(1, "infiniband.trap.otherlocalchanges", HEX)
    capability_mask: int = bits(32, "infiniband.trap.capabilitymask", HEX)
    resv10: int = bits(10)
    capability_mask2_change: int = flag()
    hierarchy_info_change: int = flag()
    sm_priority_change: int = flag()
    link_speed_enabled_change: int = bits(1, "infiniband.trap.linkspeecenabledchange", HEX)
    link_width_enabled_change: int = bits(1, "infiniband.trap.linkwidthenabledchange", HEX)
    node_description_change: int = bits(1, "infiniband.trap.nodedescriptionchange", HEX)
    capability_mask2: int = bits(16, "", HEX)
    resv320: bytes = raw(40)


class SystemImageTrap(Header, clause="IBA 14.3.12", wireshark=_DETAILS):
    """Trap 145: the port's new system image GUID."""

    resv16: int = bits(16)
    lidaddr: int = bits(16, "infiniband.trap.lidaddr", HEX)
    resv16_2: int = bits(16)
    system_image_guid: int = bits(64, "infiniband.trap.systemimageguid", HEX)
    resv320: bytes = raw(40)


class MKeyTrap(Header, clause="IBA 14.3.9", wireshark=_DETAILS):
    """Trap 256: a packet with a wrong M_Key, and by which way it came."""

    resv16: int = bits(16)
    lidaddr: int = bits(16, "infiniband.trap.lidaddr", HEX)
    drslid: int = bits(16, "infiniband.trap.drslid", HEX)
    method: int = bits(8, "infiniband.trap.method", HEX, enum=Method)
    resv8: int = bits(8)
    attribute_id: int = bits(16, "infiniband.trap.attributeid", HEX)
    attribute_modifier: int = bits(32, "infiniband.trap.attributemodifier", HEX)
    m_key: int = bits(64, "infiniband.trap.mkey", HEX)
    resv8_2: int = bits(8)
    dr_notice: int = bits(1, "infiniband.trap.drnotice", HEX)
    dr_path_truncated: int = bits(1, "infiniband.trap.drpathtruncated", HEX)
    dr_hop_count: int = bits(6, "infiniband.trap.drhopcount", HEX)
    dr_notice_return_path: bytes = raw(30, "infiniband.trap.drnoticereturnpath")


class KeyTrap(Header, clause="IBA 14.3.10", wireshark=_DETAILS):
    """Traps 257 and 258: a packet with a wrong P_Key or Q_Key."""

    resv16: int = bits(16)
    lidaddr1: int = bits(16, "infiniband.trap.lidaddr1", HEX)
    lidaddr2: int = bits(16, "infiniband.trap.lidaddr2", HEX)
    key: int = bits(32, "infiniband.trap.key", HEX)
    sl: int = bits(4, "infiniband.trap.sl", HEX)
    resv4: int = bits(4)
    qp1: int = bits(24, "infiniband.trap.qp1", HEX)
    resv8: int = bits(8)
    qp2: int = bits(24, "infiniband.trap.qp2", HEX)
    gidaddr1: bytes = raw(16, "infiniband.trap.gidaddr1", IPV6)
    gidaddr2: bytes = raw(16, "infiniband.trap.gidaddr2", IPV6)
    resv32: bytes = raw(4)


class SwitchPKeyTrap(Header, clause="IBA 14.3.10", wireshark=_DETAILS):
    """Trap 259: a packet with a wrong P_Key at a switch's external port."""

    data_valid: int = bits(16, "infiniband.trap.datavalid", HEX)
    lidaddr1: int = bits(16, "infiniband.trap.lidaddr1", HEX)
    lidaddr2: int = bits(16, "infiniband.trap.lidaddr2", HEX)
    p_key: int = bits(16, "infiniband.trap.pkey", HEX)
    sl: int = bits(4, "infiniband.trap.sl", HEX)
    resv4: int = bits(4)
    qp1: int = bits(24, "infiniband.trap.qp1", HEX)
    resv8: int = bits(8)
    qp2: int = bits(24, "infiniband.trap.qp2", HEX)
    gidaddr1: bytes = raw(16, "infiniband.trap.gidaddr1", IPV6)
    gidaddr2: bytes = raw(16, "infiniband.trap.gidaddr2", IPV6)
    swlidaddr: int = bits(16, "infiniband.trap.swlidaddr", HEX)
    portno: int = bits(8, "infiniband.trap.portno", HEX)
    resv24: bytes = raw(3)


TRAPS: dict[int, type[Header]] = {
    Trap.GID_IN_SERVICE: GIDTrap,
    Trap.GID_OUT_OF_SERVICE: GIDTrap,
    Trap.MULTICAST_GROUP_CREATED: GIDTrap,
    Trap.MULTICAST_GROUP_DELETED: GIDTrap,
    Trap.UNPATH: PathTrap,
    Trap.REPATH: PathTrap,
    Trap.LINK_STATE_CHANGE: LinkStateTrap,
    Trap.LOCAL_LINK_INTEGRITY: PortTrap,
    Trap.EXCESSIVE_BUFFER_OVERRUN: PortTrap,
    Trap.FLOW_CONTROL_UPDATE_WATCHDOG: PortTrap,
    Trap.LOCAL_CHANGE: LocalChangeTrap,
    Trap.SYSTEM_IMAGE_GUID_CHANGE: SystemImageTrap,
    Trap.BAD_M_KEY: MKeyTrap,
    Trap.BAD_P_KEY: KeyTrap,
    Trap.BAD_Q_KEY: KeyTrap,
    Trap.BAD_P_KEY_AT_SWITCH: SwitchPKeyTrap,
}
"""Trap number to the table of its details."""


def _details(head: Notice) -> Reader:
    known = TRAPS.get(head.trap_number_device_id) if head.is_generic else None
    return tables(known or DataDetails)


notice = headed(Notice, _details)
"""Reader of a notice: its header and its details."""
issued_notice = chain(notice, tables(IssuerGID))
"""Reader of a notice with its issuer's GID."""


class InformInfo(Header, clause="IBA 13.4.8.3"):
    """Subscription to notices, begun or ended."""

    gid: bytes = raw(16, "infiniband.informinfo.gid", IPV6)
    lid_range_begin: int = bits(16, "infiniband.informinfo.lidrangebegin", HEX)
    lid_range_end: int = bits(16, "infiniband.informinfo.lidrangeend", HEX)
    resv16: int = bits(16)
    is_generic: int = bits(8, "infiniband.informinfo.isgeneric", HEX)
    subscribe: int = bits(8, "infiniband.informinfo.subscribe", HEX)
    type: int = bits(16, "infiniband.informinfo.type", HEX, enum=NoticeType)
    trap_number_device_id: int = choice(
        16, "is_generic", {0: Meaning(_INFORM_TRAP, HEX), 1: Meaning(_INFORM_TRAP, HEX, Trap)}
    )
    qpn: int = bits(24, "infiniband.informinfo.qpn", HEX)
    resv3: int = bits(3)
    resp_time_value: int = bits(5, "infiniband.informinfo.resptimevalue", HEX, words=time_words)
    resv8: int = bits(8)
    producer_type_vendor_id: int = choice(
        24,
        "is_generic",
        {0: Meaning(_INFORM_PRODUCER, HEX), 1: Meaning(_INFORM_PRODUCER, HEX, NodeType)},
    )
