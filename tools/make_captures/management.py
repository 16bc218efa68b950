"""Management datagrams of every class, attribute, message and trap that the tables know."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from random import Random
from typing import Any, NamedTuple

from rdmawire.wire import cm, mad, perf, sa, smp
from rdmawire.wire.cm import (
    IPCM4,
    IPCM6,
    REQ,
    SERVICE_PREFIX,
    SIDRREQ,
    APStatus,
    CMAttribute,
    FailoverAccepted,
    Message,
    PrimaryPath,
    PrimaryPathIPv4,
    RejectReason,
    SIDRStatus,
)
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MAD, DirectedMAD
from rdmawire.wire.management import GSI_QKEY, ManagementClass, Method
from rdmawire.wire.notice import TRAPS, InformInfo, Notice
from rdmawire.wire.rmpp import RMPP, RMPPStatus, RMPPType
from rdmawire.wire.sa import MultiPathRecord, SAAttribute, SAHeader
from rdmawire.wire.smp import SMAttribute
from tools.make_captures.filling import filled


class Datagram(NamedTuple):
    """The payload of a UD SEND_ONLY packet, the queue pair at both ends, and its Q_Key."""

    comment: str
    data: bytes
    qp: int
    qkey: int


_Values = Mapping[type[Header], Mapping[str, Any]]


_SUBNET_CLASSES = (ManagementClass.SUBN_LID_ROUTED, ManagementClass.SUBN_DIRECTED_ROUTE)


def packets() -> Iterator[Datagram]:
    """One datagram for everything; the same at every run."""
    yield from _subnet_management()
    yield from _traps()
    yield from _subnet_administration()
    yield from _rmpp()
    yield from _performance()
    yield from _communication()
    yield from _other_classes()


def datagram(comment: str, head: Mapping[str, Any], values: _Values | None = None) -> Datagram:
    """A datagram with these fields in its common header; ``values`` are for other tables."""
    of_subnet = head["mgmt_class"] in _SUBNET_CLASSES
    directed = {"base_version": mad.BASE_VERSION, **head}
    common = {name: value for name, value in directed.items() if name != "d"}
    fixed: _Values = {MAD: common, DirectedMAD: directed}
    data = filled(mad.layout, mad.SIZE, {**fixed, **(values or {})}, Random(comment))
    return Datagram(comment, data, 0 if of_subnet else 1, 0 if of_subnet else GSI_QKEY)


def head_of(mgmt_class: int, method: int, attribute_id: int) -> dict[str, int]:
    """The fields of a common header that say what it is of."""
    return {"mgmt_class": mgmt_class, "method": method, "attribute_id": attribute_id}


def _subnet_management() -> Iterator[Datagram]:
    lid, directed = ManagementClass.SUBN_LID_ROUTED, ManagementClass.SUBN_DIRECTED_ROUTE
    for attribute in sorted(smp.ATTRIBUTES.keys() - {SMAttribute.NOTICE}):
        name = SMAttribute(attribute).name
        yield datagram(f"SMP GET_RESP {name}", head_of(lid, Method.GET_RESP, attribute))
        back = head_of(directed, Method.GET_RESP, attribute) | {"d": 1}
        yield datagram(f"directed SMP GET_RESP {name}", back)
    for method in (Method.GET, Method.SET):
        out = head_of(directed, method, SMAttribute.PORT_INFO) | {"d": 0}
        yield datagram(f"directed SMP {method.name} PORT_INFO", out)
    yield datagram("SMP with an unknown attribute", head_of(lid, Method.GET, 0xFF00))


def _traps() -> Iterator[Datagram]:
    for trap in TRAPS:
        number = {"is_generic": 1, "trap_number_device_id": trap}
        values: _Values = {RMPP: _UNUSED, Notice: number}
        for mgmt_class, method in (
            (ManagementClass.SUBN_LID_ROUTED, Method.TRAP),
            (ManagementClass.SUBN_ADM, Method.REPORT),
        ):
            comment = f"{mgmt_class.name} {method.name} of trap {int(trap)}"
            head = head_of(mgmt_class, method, SMAttribute.NOTICE)
            yield datagram(comment, head, values)
    repress = head_of(ManagementClass.SUBN_LID_ROUTED, Method.TRAP_REPRESS, SMAttribute.NOTICE)
    vendor: _Values = {Notice: {"is_generic": 0, "trap_number_device_id": 0x1234}}
    yield datagram("SMP TRAP_REPRESS of a vendor's trap", repress, vendor)


_COUNTS = {"sgid_count": 2, "dgid_count": 3}
_UNUSED = {"type": RMPPType.NOT_USED, "active": 0, "first": 0, "last": 0}


def _subnet_administration() -> Iterator[Datagram]:
    sa_class = ManagementClass.SUBN_ADM
    one: _Values = {RMPP: _UNUSED, MultiPathRecord: _COUNTS, InformInfo: {"is_generic": 1}}
    for attribute in sorted(sa.RECORDS.keys() - {SAAttribute.NOTICE}):
        name = SAAttribute(attribute).name
        yield datagram(f"SA GET_RESP {name}", head_of(sa_class, Method.GET_RESP, attribute), one)
    for method in [method for method in Method if method is not Method.GET_RESP]:
        head = head_of(sa_class, method, SAAttribute.MC_MEMBER_RECORD)
        yield datagram(f"SA {method.name} MC_MEMBER_RECORD", head, one)
    vendor: _Values = {RMPP: _UNUSED, InformInfo: {"is_generic": 0}}
    head = head_of(sa_class, Method.SET, SAAttribute.INFORM_INFO)
    yield datagram("SA SET INFORM_INFO for a vendor's traps", head, vendor)


def _rmpp() -> Iterator[Datagram]:
    yield from _transfer("of path records", SAAttribute.PATH_RECORD, 64, 7)
    yield from _transfer("of node records", SAAttribute.NODE_RECORD, 112, 5)
    yield from _transfer("of one link record", SAAttribute.LINK_RECORD, 8, 1)
    head = head_of(ManagementClass.SUBN_ADM, Method.GET_TABLE, SAAttribute.PATH_RECORD)
    for kind in (RMPPType.ACK, RMPPType.STOP, RMPPType.ABORT):
        status = RMPPStatus.NORMAL if kind is RMPPType.ACK else RMPPStatus.UNSPECIFIED
        control = {"type": kind, "active": 1, "first": 0, "last": 0, "status": status}
        yield datagram(f"RMPP {kind.name}", head, {RMPP: control})


def _transfer(what: str, attribute: SAAttribute, record: int, count: int) -> Iterator[Datagram]:
    """A table of records in as many segments as it takes."""
    reader = sa.record(Method.GET_TABLE_RESP, attribute)
    random = Random(what)
    table = b"".join(filled(reader, record, {}, random) for _ in range(count))
    segments = [table[at : at + sa.DATA] for at in range(0, len(table), sa.DATA)]
    head = MAD(
        **head_of(ManagementClass.SUBN_ADM, Method.GET_TABLE_RESP, attribute),
        class_version=2,
        transaction_id=random.getrandbits(64),
    )
    header = SAHeader(sm_key=random.getrandbits(64), attribute_offset=record // 8)
    for number, data in enumerate(segments, start=1):
        rmpp = RMPP(**_segment(number, len(segments), len(data), len(table)))
        comment = f"RMPP segment {number} of {len(segments)} {what}"
        yield Datagram(comment, mad.build(head, rmpp, header, data), 1, GSI_QKEY)


def _segment(number: int, last: int, size: int, total: int) -> dict[str, int]:
    """The fields of a segment's RMPP header. IBA 13.6.2.2."""
    whole = total + last * SAHeader.SIZE
    length = size + SAHeader.SIZE if number == last else whole if number == 1 else 0
    flags = {"active": 1, "first": int(number == 1), "last": int(number == last)}
    return {"type": RMPPType.DATA, **flags, "data1": number, "data2": length}


def _performance() -> Iterator[Datagram]:
    for attribute in perf.ATTRIBUTES:
        name = perf.PerfAttribute(attribute).name
        head = head_of(ManagementClass.PERF_MGT, Method.GET_RESP, attribute)
        yield datagram(f"PERF_MGT GET_RESP {name}", head)


_MAPPED = bytes(10) + b"\xff\xff"
_IPV4_GIDS: _Values = {
    PrimaryPath: {"local_gid": _MAPPED + bytes(4), "remote_gid": _MAPPED + bytes(4)},
    PrimaryPathIPv4: {"local_prefix": _MAPPED, "remote_prefix": _MAPPED},
}
_IP_SERVICE: _Values = {
    REQ: {"service_prefix": SERVICE_PREFIX, "service_protocol": 6},
    SIDRREQ: {"service_id": SERVICE_PREFIX << 24 | 0x111C06},
}
_IPV4_HEADER: _Values = {IPCM6: {"ip_version": 4}, IPCM4: {"ip_version": 4}}
_IPV6_HEADER: _Values = {IPCM6: {"ip_version": 6}}

_REQUESTS: dict[str, _Values] = {
    "": {},
    " between IPv4 addresses": _IPV4_GIDS,
    " with IPv6 addresses": {**_IP_SERVICE, **_IPV6_HEADER},
    " with IPv4 addresses, between IPv4 addresses": {
        **_IP_SERVICE,
        **_IPV4_HEADER,
        **_IPV4_GIDS,
    },
}


def _communication() -> Iterator[Datagram]:
    for attribute in cm.MESSAGES:
        name = CMAttribute(attribute).name
        head = head_of(ManagementClass.COM_MGT, Method.SEND, attribute)
        variants = _REQUESTS if name in ("REQ", "SIDR_REQ") else {"": {}}
        for how, values in variants.items():
            yield datagram(f"CM {name}{how}", head, values)


_SUCCEEDED = {"status": 0}


def codes() -> Iterator[Datagram]:
    """Every status and reason of connection management, and the messages without tables."""
    rows: tuple[tuple[CMAttribute, type[Header], str, Iterable[IntEnum]], ...] = (
        (CMAttribute.MRA, cm.MRA, "message_mraed", Message),
        (CMAttribute.REJ, cm.REJ, "message_rejected", Message),
        (CMAttribute.REJ, cm.REJ, "reason", RejectReason),
        (CMAttribute.REP, cm.REP, "failover_accepted", FailoverAccepted),
        (CMAttribute.APR, cm.APR, "ap_status", APStatus),
        (CMAttribute.SIDR_REP, cm.SIDRREP, "status", SIDRStatus),
    )
    for attribute, table, field, values in rows:
        for value in values:
            head = head_of(ManagementClass.COM_MGT, Method.SEND, attribute) | _SUCCEEDED
            comment = f"CM {attribute.name} {field} {value.name}"
            yield datagram(comment, head, {table: {field: value}})
    for attribute in CMAttribute:
        if attribute not in cm.MESSAGES:
            head = head_of(ManagementClass.COM_MGT, Method.SEND, attribute) | _SUCCEEDED
            plain = datagram(f"CM {attribute.name}", head)
            own = Random(plain.comment).randbytes(cm.DATA)
            yield plain._replace(data=plain.data[: mad.SIZE - cm.DATA] + own)


_OTHERS = (0x05, 0x06, 0x08, 0x09, 0x0F, 0x10, 0x21, 0x2F, 0x30, 0x4F, 0x50)


def _other_classes() -> Iterator[Datagram]:
    for mgmt_class in _OTHERS:
        comment = f"management class 0x{mgmt_class:02x}"
        plain = datagram(comment, head_of(mgmt_class, Method.SEND, 0x0010))
        own = Random(comment).randbytes(mad.SIZE - 40)
        yield plain._replace(data=plain.data[:40] + own)
