"""Text forms of field values, in the notation of Wireshark.

A header table names one :class:`Show` per row; ``rdmawire dissect -T fields`` and the tree print
values with it, so that scripts get the same text as from ``tshark -T fields``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from rdmawire.terminal import escape

Value = int | bytes | tuple[int, ...] | str


class Kind(Enum):
    """The notations."""

    DEC = "decimal"
    HEX = "hexadecimal"
    BOOL = "true or false"
    MAC = "Ethernet address"
    IPV4 = "IPv4 address"
    IPV6 = "IPv6 address or GID"
    BYTES = "bytes"
    DIGITS = "number, written like bytes"
    PRESENCE = "1 where it is"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Show:
    """A notation.

    ``digits`` is the number of hexadecimal digits if the field's width does not give it; ``scale``
    is the unit, for fields that count in fours or eights and are shown in ones.
    """

    kind: Kind
    digits: int = 0
    scale: int = 1


DEC, HEX, BOOL, MAC, IPV4, IPV6, BYTES, DIGITS, PRESENCE, TEXT = map(Show, Kind)


def hex_digits(digits: int) -> Show:
    """Hexadecimal with ``digits`` digits, for fields that Wireshark keeps in a wider type."""
    return Show(Kind.HEX, digits)


def scaled(scale: int) -> Show:
    """Decimal, for a field that counts in units of ``scale``."""
    return Show(Kind.DEC, scale=scale)


def mac(value: bytes) -> str:
    """Six bytes as ``52:54:00:00:00:01``."""
    return value.hex(":")


def ipv4(value: bytes) -> str:
    """Four bytes as ``10.77.0.1``."""
    return str(IPv4Address(value))


def ipv6(value: bytes) -> str:
    """Sixteen bytes in the compressed form of RFC 5952, ``::ffff:10.77.0.1`` where mapped."""
    address = IPv6Address(value)
    mapped = address.ipv4_mapped
    return f"::ffff:{mapped}" if mapped is not None else str(address)


def byte_count(number: int) -> str:
    """``number`` bytes, in words."""
    return "1 byte" if number == 1 else f"{number} bytes"


def printable(value: bytes) -> str:
    """Bytes as text up to the first NUL; bytes that are not printable UTF-8 are escaped."""
    return escape(value.split(b"\0", 1)[0].decode("utf-8", "backslashreplace"))


_WRITERS: dict[Kind, Callable[[Any], str]] = {
    Kind.DEC: str,
    Kind.BOOL: lambda value: "1" if value else "0",
    Kind.MAC: mac,
    Kind.IPV4: ipv4,
    Kind.IPV6: ipv6,
    Kind.BYTES: lambda value: value.hex(),
    Kind.TEXT: printable,
    Kind.PRESENCE: lambda _: "1",  # as tshark prints items without a value
}


@cache
def writer(show: Show, width: int) -> Callable[[Any], str]:
    """Return the function that writes a value of a field of ``width`` bits in this notation."""
    digits = 2 * -(-width // 8)  # of complete bytes, as Wireshark counts
    if show.kind is Kind.HEX:
        return f"0x%0{show.digits or digits}x".__mod__
    if show.kind is Kind.DIGITS:
        return f"%0{digits}x".__mod__
    if show.scale != 1:
        return lambda value: str(value * show.scale)
    return _WRITERS[show.kind]
