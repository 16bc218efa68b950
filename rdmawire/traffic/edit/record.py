"""Changes to records as a whole: when they were captured, and which tags their frames carry."""

from collections.abc import Callable
from typing import Final

from rdmawire.capture import LinkType, Record
from rdmawire.capture.interface import SECOND
from rdmawire.wire.erf import ERF
from rdmawire.wire.inet import VLAN, EtherType
from rdmawire.wire.serial import BITS_64

Change = Callable[[Record], Record]

_TS: Final = 8
"""Octets of the time that an extensible record begins with."""
_MACS: Final = 12
"""Octets of an Ethernet header before its type."""
_TAGS: Final = frozenset(
    int(tag).to_bytes(2, "big") for tag in (EtherType.VLAN, EtherType.QINQ, EtherType.QINQ_OLD)
)


def later(shift_ns: int) -> Change:
    """Has records come so many nanoseconds later; earlier, if that is negative."""

    def change(record: Record) -> Record:
        moved = record._replace(time_ns=record.time_ns + shift_ns)
        is_extensible = record.link_type == LinkType.ERF and len(record.data) >= ERF.SIZE
        return moved._replace(data=_later(record.data, shift_ns)) if is_extensible else moved

    return change


def _later(data: bytes, shift_ns: int) -> bytes:
    """An extensible record, whose first octets say its time as well; zeros say none."""
    time = int.from_bytes(data[:_TS], "little")
    if not time:
        return data
    # Seconds in the upper half, their fraction in the lower one.
    units = (abs(shift_ns) * (1 << 32) + SECOND // 2) // SECOND
    moved = BITS_64.add(time, units if shift_ns > 0 else -units)
    return moved.to_bytes(_TS, "little") + data[_TS:]


def untagged(record: Record) -> Record:
    """The frame without VLAN tags. Of its checksums none covers them."""
    if record.link_type != LinkType.ETHERNET:
        return record
    data, end = record.data, _MACS
    while data[end : end + 2] in _TAGS:
        end += VLAN.SIZE
    if end == _MACS:
        return record
    length = max(record.length - (end - _MACS), 0)
    return record._replace(data=data[:_MACS] + data[end:], length=length)
