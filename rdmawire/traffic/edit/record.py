"""Changes to records as a whole: when they were captured, and which tags their frames carry."""

from collections.abc import Callable
from decimal import Decimal
from itertools import count
from typing import Final

from rdmawire.capture import LinkType, Record
from rdmawire.capture.record import SECOND
from rdmawire.traffic.edit.refusal import EditError
from rdmawire.wire.erf import ERF
from rdmawire.wire.inet import VLAN, EtherType
from rdmawire.wire.serial import BITS_64

Change = Callable[[Record], Record]

_HASH: Final = 3
"""The option of a packet that holds a hash over it. draft-ietf-opsawg-pcapng, section 4.3."""
_TS: Final = 8
"""Octets of the time that an extensible record begins with."""
_MACS: Final = 12
"""Octets of an Ethernet header before its type."""
_TAGS: Final = frozenset(
    int(tag).to_bytes(2, "big") for tag in (EtherType.VLAN, EtherType.QINQ, EtherType.QINQ_OLD)
)

_UNTAGGABLE: Final = _TAGS | {EtherType.MAC_CONTROL.to_bytes(2, "big")}


def with_octets(record: Record, new: bytes) -> Record:
    """The record with other octets, if they are; then it has no hash over them any more."""
    data, time_ns, length, link_type, interface, options = record
    if options and new is not data:
        options = tuple(option for option in options if option[0] != _HASH)
    return tuple.__new__(Record, (new, time_ns, length, link_type, interface, options))


def later(shift_ns: int) -> Change:
    """Has the records of a capture come so many nanoseconds later; earlier, if that is negative.

    :class:`EditError` for one that would come before 1970, where times begin.
    """
    numbers = count(1)

    def change(record: Record) -> Record:
        number, time_ns = next(numbers), record.time_ns + shift_ns
        if time_ns < 0:
            at, less = _seconds(record.time_ns), _seconds(-shift_ns)
            raise EditError(
                f"frame {number} to write is at {at} s and cannot come {less} s earlier"
            )
        moved = record._replace(time_ns=time_ns)
        is_extensible = record.link_type == LinkType.ERF and len(record.data) >= ERF.SIZE
        return with_octets(moved, _later(record.data, shift_ns)) if is_extensible else moved

    return change


def _seconds(time_ns: int) -> str:
    """Nanoseconds as seconds, with as many decimals as it takes."""
    return f"{Decimal(time_ns).scaleb(-9).normalize():f}"


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
    return with_octets(record._replace(length=length), data[:_MACS] + data[end:])


def tagged(vlan: int, priority: int = 0) -> Change:
    """Has Ethernet frames without a tag carry one of IEEE 802.1Q. Pauses never do; they stay.

    The frames grow by four octets.
    """
    tag = EtherType.VLAN.to_bytes(2, "big") + (priority << 13 | vlan).to_bytes(2, "big")

    def change(record: Record) -> Record:
        data = record.data
        kind = data[_MACS : _MACS + 2]
        if record.link_type != LinkType.ETHERNET or len(kind) < 2 or kind in _UNTAGGABLE:
            return record
        longer = record._replace(length=record.length + VLAN.SIZE)
        return with_octets(longer, data[:_MACS] + tag + data[_MACS:])

    return change
