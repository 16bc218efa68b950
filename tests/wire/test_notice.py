"""Notices: the trap's number chooses the table of its details."""

import pytest

from rdmawire.wire import mad
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ManagementClass, Method, NodeType
from rdmawire.wire.notice import (
    DETAILS,
    TRAPS,
    DataDetails,
    GIDTrap,
    InformInfo,
    IssuerGID,
    KeyTrap,
    LocalChangeTrap,
    MKeyTrap,
    Notice,
    SwitchPKeyTrap,
    Trap,
    issued_notice,
    notice,
)

GID = bytes.fromhex("fe80000000000000 0002c90300001234")


@pytest.mark.parametrize("trap", Trap)
def test_each_trap_has_a_table_of_54_bytes(trap: Trap) -> None:
    table = TRAPS[trap]
    assert table.SIZE == DETAILS
    head = Notice(is_generic=1, trap_number_device_id=trap)
    found = list(notice(head.build() + bytes(range(DETAILS)), 0))
    assert found == [(0, head), (10, table.parse(bytes(range(DETAILS))))]


@pytest.mark.parametrize(
    "head",
    [Notice(is_generic=0, trap_number_device_id=64), Notice(is_generic=1, trap_number_device_id=1)],
)
def test_a_vendors_or_unknown_trap_has_plain_details(head: Notice) -> None:
    details = bytes(range(DETAILS))
    assert list(notice(head.build() + details, 0)) == [(0, head), (10, DataDetails(details))]


# IBA 14.3: bytes of the details in which fields stand.
@pytest.mark.parametrize(
    ("table", "byte", "data", "fields"),
    [
        (GIDTrap, 6, GID, {"gidaddr": GID}),
        (LocalChangeTrap, 2, b"\0\7\0\1", {"lidaddr": 7, "other_local_changes": 1}),
        (
            LocalChangeTrap,
            11,
            b"\5",
            {"link_speed_enabled_change": 1, "node_description_change": 1},
        ),
        (MKeyTrap, 6, b"\x02\x00\x00\x15", {"method": Method.SET, "attribute_id": 0x15}),
        (MKeyTrap, 23, b"\xc3\x09", {"dr_notice": 1, "dr_path_truncated": 1, "dr_hop_count": 3}),
        (KeyTrap, 6, b"\x11\x22\x33\x44\x50", {"key": 0x11223344, "sl": 5}),
        (KeyTrap, 34, GID, {"gidaddr2": GID}),
        (SwitchPKeyTrap, 6, b"\xff\xfe", {"p_key": 0xFFFE}),
        (SwitchPKeyTrap, 48, b"\0\5\x0c", {"swlidaddr": 5, "portno": 12}),
    ],
)
def test_place_of_a_field_in_the_details(
    table: type[Header], byte: int, data: bytes, fields: dict[str, object]
) -> None:
    found = table.parse(bytes(byte) + data + bytes(DETAILS - byte - len(data)))
    assert {name: getattr(found, name) for name in fields} == fields


def test_words_of_a_notice_depend_on_who_made_it() -> None:
    rows = {row.name: row for row in Notice.rows}
    generic = Notice(is_generic=1, producer_type_vendor_id=2, trap_number_device_id=128)
    producer, trap = rows["producer_type_vendor_id"], rows["trap_number_device_id"]
    assert producer.meaning_in(generic).word(2) == NodeType.SWITCH.name
    assert trap.meaning_in(generic).word(128) == Trap.LINK_STATE_CHANGE.name
    vendor = generic.replace(is_generic=0)
    assert producer.meaning_in(vendor).word(2) == trap.meaning_in(vendor).word(128) == ""


def test_administration_reports_a_notice_with_its_issuer() -> None:
    head = Notice(is_generic=1, trap_number_device_id=64)
    trap, issuer = GIDTrap(gidaddr=GID), IssuerGID(issuer_gid=GID)
    data = head.build() + trap.build() + issuer.build()
    assert list(issued_notice(data, 0)) == [(0, head), (10, trap), (64, issuer)]
    common = MAD(mgmt_class=ManagementClass.SUBN_ADM, method=Method.REPORT, attribute_id=2)
    pieces = dict(mad.layout(mad.build(common, bytes(32), data)))
    assert (pieces[56], pieces[66], pieces[120]) == (head, trap, issuer)


def test_inform_info() -> None:
    # IBA 13.4.8.3: GID, LID range, two bytes reserved, generic, subscribe, type, trap, QPN.
    data = bytes.fromhex("00" * 16 + "ffff0000 0000 01 01 ffff 0040 000001 12 00 000004")
    info = InformInfo.parse(data)
    assert (info.is_generic, info.subscribe, info.type) == (1, 1, 0xFFFF)
    assert (info.trap_number_device_id, info.qpn, info.resp_time_value) == (64, 1, 18)
    assert (info.lid_range_begin, info.producer_type_vendor_id) == (0xFFFF, NodeType.CLASS_MANAGER)
