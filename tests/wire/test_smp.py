"""Subnet management packets: which table stands where."""

import pytest

from rdmawire.wire import mad, smp
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MAD, DirectedMAD
from rdmawire.wire.management import ManagementClass, Method
from rdmawire.wire.notice import Notice
from rdmawire.wire.smp import (
    SMP,
    DirectedPath,
    DirectedSMP,
    GUIDInfo,
    LedInfo,
    LinearForwardingTable,
    LinkSpeedWidthPairsTable,
    MulticastForwardingTable,
    NodeDescription,
    NodeInfo,
    PKeyEntry,
    PortInfo,
    PortPhysicalState,
    PortState,
    RandomForwardingEntry,
    SLtoVLMappingTable,
    SMAttribute,
    SMInfo,
    SwitchInfo,
    VendorDiag,
    VLArbitrationEntry,
)

# IBA 14.2.5: the attribute's tables, and how many bytes they take of its 64.
TABLES: dict[SMAttribute, tuple[type[Header], int, int]] = {
    SMAttribute.NODE_DESCRIPTION: (NodeDescription, 1, 64),
    SMAttribute.NODE_INFO: (NodeInfo, 1, 40),
    SMAttribute.SWITCH_INFO: (SwitchInfo, 1, 20),
    SMAttribute.GUID_INFO: (GUIDInfo, 1, 64),
    SMAttribute.PORT_INFO: (PortInfo, 1, 64),
    SMAttribute.P_KEY_TABLE: (PKeyEntry, 32, 64),
    SMAttribute.SL_TO_VL_MAPPING_TABLE: (SLtoVLMappingTable, 1, 8),
    SMAttribute.VL_ARBITRATION_TABLE: (VLArbitrationEntry, 32, 64),
    SMAttribute.LINEAR_FORWARDING_TABLE: (LinearForwardingTable, 1, 64),
    SMAttribute.RANDOM_FORWARDING_TABLE: (RandomForwardingEntry, 16, 64),
    SMAttribute.MULTICAST_FORWARDING_TABLE: (MulticastForwardingTable, 1, 64),
    SMAttribute.LINK_SPEED_WIDTH_PAIRS_TABLE: (LinkSpeedWidthPairsTable, 1, 36),
    SMAttribute.SM_INFO: (SMInfo, 1, 21),
    SMAttribute.VENDOR_DIAG: (VendorDiag, 1, 64),
    SMAttribute.LED_INFO: (LedInfo, 1, 4),
}


@pytest.mark.parametrize("attribute", TABLES)
def test_an_attribute_stands_at_byte_64(attribute: SMAttribute) -> None:
    table, times, length = TABLES[attribute]
    head = MAD(mgmt_class=ManagementClass.SUBN_LID_ROUTED, attribute_id=attribute)
    pieces = list(mad.layout(mad.build(head, SMP(m_key=1))))
    assert pieces[:2] == [(0, head), (24, SMP(m_key=1))]
    found = [piece for _, piece in pieces if type(piece) is table]
    assert len(found) == times
    assert pieces[2][0] == 64
    assert table.SIZE * times == length
    rest = [(offset, len(piece)) for offset, piece in pieces if isinstance(piece, bytes)]
    assert rest == [*([(64 + length, 64 - length)] if length < 64 else []), (128, 128)]


def test_every_attribute_but_notice_is_listed_here() -> None:
    assert smp.ATTRIBUTES.keys() == TABLES.keys() | {SMAttribute.NOTICE}


def test_a_directed_route_packet_ends_with_its_paths() -> None:
    head = DirectedMAD(d=1, hop_pointer=2, hop_count=2, attribute_id=SMAttribute.NODE_INFO)
    directed = DirectedSMP(m_key=7, drslid=0xFFFF, drdlid=0xFFFF)
    info = NodeInfo(node_type=2, num_ports=36)
    paths = DirectedPath(initial_path=b"\0\1\5".ljust(64, b"\0"))
    data = mad.build(head, directed, info, bytes(24), paths)
    assert list(mad.layout(data)) == [
        *((0, head), (24, directed), (64, info), (104, bytes(24)), (128, paths))
    ]


def test_a_trap_of_subnet_management_is_a_notice() -> None:
    head = MAD(mgmt_class=1, method=Method.TRAP, attribute_id=SMAttribute.NOTICE)
    notice = Notice(is_generic=1, trap_number_device_id=128)
    pieces = dict(mad.layout(mad.build(head, SMP(), notice)))
    assert pieces[64] == notice
    assert pieces[128] == bytes(128)


# IBA 14.2.5.6: where in the 512 bits of PortInfo a field begins, and its width.
PORT_INFO = {
    "gid_prefix": (64, 64),
    "lid": (128, 16),
    "master_sm_lid": (144, 16),
    "capability_mask": (160, 32),
    "diag_code": (192, 16),
    "local_port_num": (224, 8),
    "link_width_active": (248, 8),
    "link_speed_supported": (256, 4),
    "port_state": (260, 4),
    "port_physical_state": (264, 4),
    "m_key_protect_bits": (272, 2),
    "lmc": (277, 3),
    "link_speed_active": (280, 4),
    "neighbor_mtu": (288, 4),
    "master_sm_sl": (292, 4),
    "vl_cap": (296, 4),
    "mtu_cap": (332, 4),
    "hoq_life": (339, 5),
    "operational_vls": (344, 4),
    "filter_raw_outbound": (351, 1),
    "q_key_violations": (384, 16),
    "guid_cap": (400, 8),
    "client_reregister": (408, 1),
    "subnet_time_out": (411, 5),
    "resp_time_value": (419, 5),
    "overrun_errors": (428, 4),
    "max_credit_hint": (432, 16),
    "link_round_trip_latency": (456, 24),
    "capability_mask2": (480, 16),
    "link_speed_ext_active": (496, 4),
    "link_speed_ext_supported": (500, 4),
    "link_speed_ext_enabled": (507, 5),
}


@pytest.mark.parametrize("name", PORT_INFO)
def test_place_of_a_port_info_field(name: str) -> None:
    bit, width = PORT_INFO[name]
    ones = ((1 << width) - 1) << 512 - bit - width
    found = PortInfo.parse(ones.to_bytes(64, "big"))
    assert getattr(found, name) == (1 << width) - 1
    assert sum(value != 0 for value in found) == _rows_in(bit, width)


def _rows_in(bit: int, width: int) -> int:
    return sum(bit <= row.bit < bit + width for row in PortInfo.rows)


def test_words_of_a_port() -> None:
    info = PortInfo(
        port_state=4, port_physical_state=5, is_sm=1, is_client_reregistration_supported=1
    )
    words = {row.name: row.meaning.word(value) for row, value in zip(info.rows, info, strict=True)}
    assert words["port_state"] == PortState.ACTIVE.name
    assert words["port_physical_state"] == PortPhysicalState.LINK_UP.name
    assert info.capability_mask == 0x02000002


def test_entries_of_tables() -> None:
    assert PKeyEntry.parse(b"\xff\xff") == PKeyEntry(1, 0x7FFF)
    assert VLArbitrationEntry.parse(b"\x0f\x40") == VLArbitrationEntry(0, 15, 64)
    assert RandomForwardingEntry.parse(b"\x00\x07\xa0\x03") == RandomForwardingEntry(7, 1, 2, 0, 3)
    lanes = SLtoVLMappingTable.parse(bytes.fromhex("0123456789abcdef"))
    assert tuple(lanes) == tuple(range(16))
    assert SMInfo.parse(bytes(20) + b"\xe3").sm_state == 3
