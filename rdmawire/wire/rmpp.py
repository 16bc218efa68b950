"""The Reliable Multi-Packet Transaction Protocol: one transfer in many datagrams. IBA 13.6."""

from collections.abc import Iterator
from enum import IntEnum

from rdmawire.wire.header import Header, Meaning, bits, choice, group, raw
from rdmawire.wire.layout import Placed, area, plain, tables
from rdmawire.wire.management import time_words
from rdmawire.wire.show import HEX, hex_digits

PAYLOAD = 220
"""Bytes after the RMPP header of a datagram. IBA 13.6.2."""


class RMPPType(IntEnum):
    """Types of datagrams in a transfer. IBA 13.6.2.1."""

    NOT_USED = 0
    DATA = 1
    ACK = 2
    STOP = 3
    ABORT = 4


class RMPPStatus(IntEnum):
    """Reasons why a transfer was stopped or aborted. IBA 13.6.2.1."""

    NORMAL = 0
    RESOURCES_EXHAUSTED = 1
    TOTAL_TIME_TOO_LONG = 118
    INCONSISTENT_LAST_AND_PAYLOAD_LENGTH = 119
    INCONSISTENT_FIRST_AND_SEGMENT_NUMBER = 120
    BAD_RMPP_TYPE = 121
    NEW_WINDOW_LAST_TOO_SMALL = 122
    SEGMENT_NUMBER_TOO_BIG = 123
    ILLEGAL_STATUS = 124
    UNSUPPORTED_VERSION = 125
    TOO_MANY_RETRIES = 126
    UNSPECIFIED = 127


def resp_time_words(exponent: int) -> str:
    """Describe RRespTime; 31 means unspecified. IBA 13.6.3.1."""
    return "no time provided" if exponent == 31 else time_words(exponent)


_SEGMENT = "infiniband.rmpp.segmentnumber"

_DATA1: dict[int, Meaning] = {
    RMPPType.NOT_USED: Meaning("infiniband.rmpp.data1", HEX),
    RMPPType.DATA: Meaning(_SEGMENT, HEX),
    RMPPType.ACK: Meaning(_SEGMENT, HEX),
}
_DATA2: dict[int, Meaning] = {
    RMPPType.NOT_USED: Meaning("infiniband.rmpp.data2", HEX),
    RMPPType.DATA: Meaning("infiniband.rmpp.payloadlength", HEX),
    RMPPType.ACK: Meaning("infiniband.rmpp.newwindowlast", HEX),
}


class RMPP(Header, clause="IBA 13.6.2.1", wireshark="infiniband.rmpp"):
    """Reliable Multi-Packet Transaction Protocol: what a datagram is in its transfer.

    ``data1`` and ``data2`` are what the type says: segment number and payload length of DATA,
    segment number and new window last of ACK.
    """

    version: int = bits(8, "infiniband.rmpp.rmppversion", HEX, default=1)
    type: int = bits(8, "infiniband.rmpp.rmpptype", HEX, enum=RMPPType)
    resp_time: int = bits(5, "infiniband.rmpp.rresptime", HEX, words=resp_time_words)
    flags: int = group("infiniband.rmpp.rmppflags", "last", "first", "active", show=HEX)
    last: int = bits(1, "", HEX)
    first: int = bits(1, "", HEX)
    active: int = bits(1, "", HEX)
    status: int = bits(8, "infiniband.rmpp.rmppstatus", HEX, enum=RMPPStatus)
    data1: int = choice(32, "type", _DATA1, show=HEX)
    data2: int = choice(32, "type", _DATA2, show=HEX)

    @property
    def kind(self) -> int:
        """The type; not used unless the header is active."""
        return self.type if self.active else RMPPType.NOT_USED

    @property
    def transferred(self) -> int:
        """Number of bytes after this header that belong to the transfer. IBA 13.6.2.2."""
        return min(self.data2, PAYLOAD) if self.last else PAYLOAD


class ExtendedErrorData(Header, clause="IBA 13.6.2.4"):
    """Extended error data of an RMPP STOP or ABORT."""

    data: bytes = raw(PAYLOAD, "infiniband.rmpp.extendederrordata")


class OUI(Header, clause="IBA 16.5"):
    """Organisation that a vendor's management datagram belongs to."""

    resv8: int = bits(8)
    oui: int = bits(24, "", hex_digits(6))


_CONTROL = {
    RMPPType.ACK: plain,
    RMPPType.STOP: tables(ExtendedErrorData),
    RMPPType.ABORT: tables(ExtendedErrorData),
}
"""Fields after the header of datagrams that carry no data."""


def is_control(header: RMPP) -> bool:
    """Whether the datagram controls a transfer and carries no data."""
    return header.kind in _CONTROL


def control(header: RMPP, buffer: bytes, offset: int) -> Iterator[Placed]:
    """Yield the pieces after the header of a control datagram."""
    return area(buffer, offset, PAYLOAD, _CONTROL[RMPPType(header.kind)])
