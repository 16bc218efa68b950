"""Subnet administration: queries to the subnet manager, and tables of records. IBA 15.2."""

from collections.abc import Iterator
from enum import IntEnum

from rdmawire.wire import sa_record
from rdmawire.wire.header import Header, bits
from rdmawire.wire.layout import Placed, Reader, area, chain, plain, tables
from rdmawire.wire.management import ClassPortInfo, Method
from rdmawire.wire.node_info import NodeDescription
from rdmawire.wire.notice import InformInfo, issued_notice
from rdmawire.wire.rmpp import RMPP, control, is_control
from rdmawire.wire.sa_record import SDGID, MultiPathRecord, PathRecord
from rdmawire.wire.show import HEX
from rdmawire.wire.smp import ATTRIBUTES, SMAttribute

DATA = 200
"""Bytes of data in a datagram of subnet administration. IBA 15.2.1."""


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


def _located(place: type[Header], *attributes: Reader) -> Reader:
    """Make a reader of a record: its location, then the attributes of subnet management."""
    return chain(tables(place), *attributes)


def multi_path(buffer: bytes, offset: int) -> Iterator[Placed]:
    """Yield the pieces of a MultiPathRecord: its header, then as many GIDs as it counts."""
    head = MultiPathRecord.parse(buffer, offset)
    yield offset, head
    gids = [SDGID] * (head.sgid_count + head.dgid_count)
    yield from tables(*gids)(buffer, offset + head.SIZE)


RECORDS: dict[int, Reader] = {
    SAAttribute.CLASS_PORT_INFO: tables(ClassPortInfo),
    SAAttribute.NOTICE: issued_notice,
    SAAttribute.INFORM_INFO: tables(InformInfo),
    SAAttribute.NODE_RECORD: _located(
        sa_record.NodeRecord, ATTRIBUTES[SMAttribute.NODE_INFO], tables(NodeDescription)
    ),
    SAAttribute.PORT_INFO_RECORD: _located(
        sa_record.PortInfoRecord, ATTRIBUTES[SMAttribute.PORT_INFO]
    ),
    SAAttribute.SL_TO_VL_MAPPING_TABLE_RECORD: _located(
        sa_record.SLtoVLMappingTableRecord, ATTRIBUTES[SMAttribute.SL_TO_VL_MAPPING_TABLE]
    ),
    SAAttribute.SWITCH_INFO_RECORD: _located(
        sa_record.SwitchInfoRecord, ATTRIBUTES[SMAttribute.SWITCH_INFO]
    ),
    SAAttribute.LINEAR_FORWARDING_TABLE_RECORD: _located(
        sa_record.LinearForwardingTableRecord, ATTRIBUTES[SMAttribute.LINEAR_FORWARDING_TABLE]
    ),
    SAAttribute.RANDOM_FORWARDING_TABLE_RECORD: _located(
        sa_record.RandomForwardingTableRecord, ATTRIBUTES[SMAttribute.RANDOM_FORWARDING_TABLE]
    ),
    SAAttribute.MULTICAST_FORWARDING_TABLE_RECORD: _located(
        sa_record.MulticastForwardingTableRecord,
        ATTRIBUTES[SMAttribute.MULTICAST_FORWARDING_TABLE],
    ),
    SAAttribute.SM_INFO_RECORD: _located(sa_record.SMInfoRecord, ATTRIBUTES[SMAttribute.SM_INFO]),
    SAAttribute.LINK_RECORD: tables(sa_record.LinkRecord),
    SAAttribute.GUID_INFO_RECORD: _located(
        sa_record.GuidInfoRecord, ATTRIBUTES[SMAttribute.GUID_INFO]
    ),
    SAAttribute.SERVICE_RECORD: tables(sa_record.ServiceRecord),
    SAAttribute.P_KEY_TABLE_RECORD: _located(
        sa_record.PKeyTableRecord, ATTRIBUTES[SMAttribute.P_KEY_TABLE]
    ),
    SAAttribute.PATH_RECORD: tables(PathRecord),
    SAAttribute.VL_ARBITRATION_TABLE_RECORD: _located(
        sa_record.VLArbitrationTableRecord, ATTRIBUTES[SMAttribute.VL_ARBITRATION_TABLE]
    ),
    SAAttribute.MC_MEMBER_RECORD: tables(sa_record.MCMemberRecord),
    SAAttribute.TRACE_RECORD: tables(sa_record.TraceRecord),
    SAAttribute.MULTI_PATH_RECORD: multi_path,
    SAAttribute.SERVICE_ASSOCIATION_RECORD: tables(sa_record.ServiceAssociationRecord),
    SAAttribute.INFORM_INFO_RECORD: _located(sa_record.InformInfoRecord, tables(InformInfo)),
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
