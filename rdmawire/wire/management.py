"""Common to all management classes: classes, methods, statuses, ClassPortInfo. IBA 13.4."""

from enum import IntEnum
from typing import Self

from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.show import HEX, IPV6

GSI_QKEY = 0x80010000
"""The Q_Key of every datagram to QP 1. IBA 10.2.5."""


class ManagementClass(IntEnum):
    """Management classes, IBA 13.4.4; vendors' and applications' ranges have no name."""

    SUBN_LID_ROUTED = 0x01
    SUBN_ADM = 0x03
    PERF_MGT = 0x04
    BM = 0x05
    DEV_MGT = 0x06
    COM_MGT = 0x07
    SNMP = 0x08
    DEV_ADM = 0x10
    BOOT_MGT = 0x11
    BIS = 0x12
    CONG_MGT = 0x21
    SUBN_DIRECTED_ROUTE = 0x81


VENDOR_CLASSES = range(0x09, 0x10)
"""Vendors' classes without RMPP and OUI. IBA 16.5."""

VENDOR_OUI_CLASSES = range(0x30, 0x50)
"""Vendors' classes with an RMPP header and an OUI. IBA 16.5."""

_RANGES = {
    "VENDOR": (VENDOR_CLASSES, VENDOR_OUI_CLASSES),
    "APPLICATION": (range(0x10, 0x30),),
}


def class_word(number: int) -> str:
    """The name of a management class, or of the range it is in."""
    try:
        return ManagementClass(number).name
    except ValueError:
        found = (name for name, spans in _RANGES.items() if any(number in span for span in spans))
        return next(found, "")


class Method(IntEnum):
    """Methods of all classes, IBA 13.4.5 and 15.2.2; the uppermost bit marks a response."""

    GET = 0x01
    SET = 0x02
    SEND = 0x03
    TRAP = 0x05
    REPORT = 0x06
    TRAP_REPRESS = 0x07
    GET_TABLE = 0x12
    GET_TRACE_TABLE = 0x13
    GET_MULTI = 0x14
    DELETE = 0x15
    GET_RESP = 0x81
    REPORT_RESP = 0x86
    GET_TABLE_RESP = 0x92
    GET_MULTI_RESP = 0x94
    DELETE_RESP = 0x95


class CommonAttribute(IntEnum):
    """Attributes that classes share. IBA 13.4.8."""

    CLASS_PORT_INFO = 0x0001
    NOTICE = 0x0002
    INFORM_INFO = 0x0003


_INVALID_FIELD = {
    1: "bad base or class version",
    2: "method not supported",
    3: "method and attribute not supported together",
    7: "attribute or modifier has an invalid value",
}


def status_words(status: int) -> str:
    """Describe a status; its upper byte is specific to the class. IBA 13.4.7."""
    said = ["busy"] if status & 1 else []
    said += ["redirection required"] if status & 2 else []
    invalid = status >> 2 & 7
    said += [_INVALID_FIELD.get(invalid, f"invalid field code {invalid}")] if invalid else []
    said += [f"class specific status {status >> 8}"] if status >> 8 else []
    return ", ".join(said)


_SA_STATUS = {
    1: "no resources",
    2: "request invalid",
    3: "no records",
    4: "too many records",
    5: "invalid GID",
    6: "insufficient components",
    7: "request denied",
    8: "priority suggested",
}


def sa_status_words(status: int) -> str:
    """Describe a status of subnet administration. IBA 15.2.3."""
    own = _SA_STATUS.get(status >> 8, "")
    common = status_words(status if not own else status & 0xFF)
    return ", ".join(filter(None, (own, common)))


def time_words(exponent: int) -> str:
    """Describe the time of an exponent: 4.096 us times a power of two. IBA 13.4.6.2."""
    microseconds = 4.096 * 2**exponent
    for unit, of_microseconds in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= of_microseconds:
            return f"{microseconds / of_microseconds:.4g} {unit}"
    return f"{microseconds:.4g} us"


class MTU(IntEnum):
    """Codes of path MTUs, in bytes. IBA 14.2.5.6."""

    MTU_256 = 1
    MTU_512 = 2
    MTU_1024 = 3
    MTU_2048 = 4
    MTU_4096 = 5

    @property
    def bytes(self) -> int:
        """Payload of a full packet, in bytes."""
        return 128 << self.value

    @classmethod
    def of(cls, size: int) -> Self:
        """Return the code of a path MTU of ``size`` bytes; ``ValueError`` if there is none."""
        return cls(size.bit_length() - 8 if size.bit_count() == 1 else 0)


PATH_MTUS = tuple(mtu.bytes for mtu in MTU)
"""Every path MTU in bytes, ascending."""

_RATES_FROM_2 = (
    *("2.5", "10", "30", "5", "20", "40", "60", "80", "120", "14", "56", "112", "168"),
    *("25", "100", "200", "300", "28", "50", "400", "600", "800", "1200"),
)
_RATES = dict(enumerate(_RATES_FROM_2, start=2))


def rate_words(code: int) -> str:
    """Describe the rate of a code. IBA 15.2.5.16."""
    return f"{_RATES[code]} Gb/s" if code in _RATES else ""


class NodeType(IntEnum):
    """Types of nodes, and producers of notices. IBA 13.4.8.2, 14.2.5.3."""

    CHANNEL_ADAPTER = 1
    SWITCH = 2
    ROUTER = 3
    CLASS_MANAGER = 4


class ClassPortInfo(Header, clause="IBA 13.4.8.1"):
    """Management class at a port: its abilities, how to reach it, where its traps go."""

    base_version: int = bits(8, "infiniband.classportinfo.baseversion", HEX)
    class_version: int = bits(8, "infiniband.classportinfo.classversion", HEX)
    capability_mask: int = bits(16, "infiniband.classportinfo.capabilitymask", HEX)
    capability_mask2: int = bits(27, "infiniband.classportinfo.capabilitymask2", HEX)
    resp_time_value: int = bits(5, "infiniband.classportinfo.resptimevalue", HEX, words=time_words)
    redirect_gid: bytes = raw(16, "infiniband.classportinfo.redirectgid", IPV6)
    redirect_tc: int = bits(8, "infiniband.classportinfo.redirecttc", HEX)
    redirect_sl: int = bits(4, "infiniband.classportinfo.redirectsl", HEX)
    redirect_fl: int = bits(20, "infiniband.classportinfo.redirectfl", HEX)
    redirect_lid: int = bits(16, "infiniband.classportinfo.redirectlid", HEX)
    redirect_p_key: int = bits(16, "infiniband.classportinfo.redirectpkey", HEX)
    resv8: int = bits(8, "infiniband.classportinfo.reserved", HEX)
    redirect_qp: int = bits(24, "infiniband.classportinfo.redirectqp", HEX)
    redirect_q_key: int = bits(32, "infiniband.classportinfo.redirectqkey", HEX)
    trap_gid: bytes = raw(16, "infiniband.classportinfo.trapgid", IPV6)
    trap_tc: int = bits(8, "infiniband.classportinfo.traptc", HEX)
    trap_sl: int = bits(4, "infiniband.classportinfo.trapsl", HEX)
    trap_fl: int = bits(20, "infiniband.classportinfo.trapfl", HEX)
    trap_lid: int = bits(16, "infiniband.classportinfo.traplid", HEX)
    trap_p_key: int = bits(16, "infiniband.classportinfo.trappkey", HEX)
    trap_hl: int = bits(8, "infiniband.classportinfo.reserved", HEX)
    trap_qp: int = bits(24, "infiniband.classportinfo.trapqp", HEX)
    trap_q_key: int = bits(32, "infiniband.classportinfo.trapqkey", HEX)
