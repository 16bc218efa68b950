"""What a value in a filter is: what it can be compared with, and what may be done to it."""

from enum import Enum
from typing import Any, NamedTuple

from rdmawire.wire.show import Kind as Notation


class Kind(Enum):
    """The kinds of values; each says in words what it is."""

    NUMBER = "a number"
    FLAG = "a flag"
    MAC = "an Ethernet address"
    IPV4 = "an IPv4 address"
    IPV6 = "an IPv6 address"
    OCTETS = "octets"
    PROTOCOL = "a protocol"
    TEXT = "text"
    TIME = "a date"
    DURATION = "a time in seconds"
    PRESENCE = "either there or not"


SIZES = {Kind.MAC: 6, Kind.IPV4: 4, Kind.IPV6: 16}
"""Octets of the kinds that always have as many."""
OCTETS = frozenset({Kind.OCTETS, Kind.PROTOCOL, *SIZES})
"""Kinds whose values are octets: they can be sliced."""
SEARCHED = frozenset({Kind.OCTETS, Kind.PROTOCOL, Kind.MAC, Kind.TEXT})
"""Kinds that `contains` looks into."""
MATCHED = frozenset({Kind.OCTETS, Kind.PROTOCOL, Kind.TEXT})
"""Kinds that `matches` looks into."""
ADDED = frozenset({Kind.NUMBER, Kind.DURATION})
"""Kinds that can be added."""
MASKED = frozenset({Kind.NUMBER, *OCTETS})
"""Kinds that `&` goes with."""

BY_NOTATION = {
    Notation.DEC: Kind.NUMBER,
    Notation.HEX: Kind.NUMBER,
    Notation.BOOL: Kind.FLAG,
    Notation.MAC: Kind.MAC,
    Notation.IPV4: Kind.IPV4,
    Notation.IPV6: Kind.IPV6,
    Notation.OCTETS: Kind.OCTETS,
    Notation.DIGITS: Kind.OCTETS,
    Notation.PRESENCE: Kind.PRESENCE,
    Notation.TEXT: Kind.TEXT,
}


class Prefix(NamedTuple):
    """An address of which only the first ``bits`` count; the others are zero."""

    octets: bytes
    bits: int

    def cut(self, address: Any) -> bytes:
        """Another address with the bits behind the prefix set to zero."""
        behind = len(address) * 8 - self.bits
        number = int.from_bytes(address, "big") >> behind << behind
        return number.to_bytes(len(address), "big")
