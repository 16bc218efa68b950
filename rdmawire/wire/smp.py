"""Subnet management packets, routed by LID or by a path of ports. IBA 14.2."""

from collections.abc import Iterator
from enum import IntEnum

from rdmawire.wire.forwarding import (
    LinearForwardingTable,
    MulticastForwardingTable,
    PKeyEntry,
    RandomForwardingEntry,
    SLtoVLMappingTable,
    VLArbitrationEntry,
)
from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.layout import Placed, Reader, area, plain, tables
from rdmawire.wire.node_info import GUIDInfo, NodeDescription, NodeInfo, SwitchInfo
from rdmawire.wire.notice import notice
from rdmawire.wire.port_info import PortInfo, width_words
from rdmawire.wire.show import HEX

DATA = 64
"""Bytes of an attribute in a subnet management packet. IBA 14.2.1."""


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


_SPEED = "infiniband.linkspeedwidthpairstable.speed"


class LinkSpeedWidthPairsTable(Header, clause="IBA 14.2.5.16"):
    """Link widths that ports have at each link speed."""

    num_tables: int = bits(8, "infiniband.linkspeedwidthpairstable.numtables", HEX)
    port_mask: bytes = raw(32, "infiniband.linkspeedwidthpairstable.portmask")
    speed_2_5: int = bits(8, f"{_SPEED}twofive", HEX, words=width_words)
    speed_5: int = bits(8, f"{_SPEED}five", HEX, words=width_words)
    speed_10: int = bits(8, f"{_SPEED}ten", HEX, words=width_words)


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
