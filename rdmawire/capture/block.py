"""The blocks of pcapng: their numbers, least lengths and layouts.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/. A block is its type, its total length,
a body, and its total length again; the byte order is that of its section.
"""

from enum import IntEnum
from struct import Struct

BYTE_ORDER = 0x1A2B3C4D
"""The number by which a section header tells its byte order."""

MAGIC = b"\n\r\r\n"
"""First four octets of a file: the type of a section header, the same in both orders."""

LEAST = 12
"""Octets of an empty block: type, total length, total length."""


class Block(IntEnum):
    """The types of block that matter here; all others are passed over."""

    SECTION = 0x0A0D0D0A
    INTERFACE = 1
    PACKET = 2  # obsolete, in files of old tools
    SIMPLE = 3
    ENHANCED = 6


LEAST_OF: dict[int, int] = {
    Block.SECTION: 28,
    Block.INTERFACE: 20,
    Block.PACKET: 32,
    Block.SIMPLE: 16,
    Block.ENHANCED: 32,
}
"""Octets of a block of this type without data and options."""

MAX_INTERFACES = 16 << 20
"""The most octets that the interface descriptions of a file may take: they are all kept."""

# Of packet and enhanced blocks, octets from the start to the data; of simple ones the same.
DATA = 28
SIMPLE_DATA = 12


class Layout:
    """The layouts in one byte order, ``<`` or ``>``; whole ones begin with type and length."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.word = Struct(f"{order}I")
        self.head = Struct(f"{order}II")
        self.section = Struct(f"{order}IIIHHq")  # byte order, major, minor, section length
        self.interface = Struct(f"{order}IIHHI")  # link type, reserved, snap length
        # interface, time (upper and lower half), captured length, length
        self.enhanced = Struct(f"{order}IIIIIII")
        self.packet = Struct(f"{order}IIHHIIII")  # after the interface: packets dropped
        self.simple = Struct(f"{order}III")  # length
        # Parts of an enhanced block: what is needed to pass it, and what to know it. The
        # second begins at the interface.
        self.span = Struct(f"{order}III8xI")
        self.known = Struct(f"{order}III4xI")


LAYOUTS = {order: Layout(order) for order in "<>"}
ORDERS = {LAYOUTS[order].word.pack(BYTE_ORDER): order for order in "<>"}
"""The byte order by the four octets that tell it."""
