"""What the frames of a flow begin with: the same octets, but for lengths and what counts frames."""

from typing import Final

from rdmawire.traffic.edit.cut import Cut, field
from rdmawire.traffic.edit.place import Layout
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH, LRH
from rdmawire.wire.inet import UDP, IPv4, IPv6

VARIES: Final[dict[type[Header], tuple[str, ...]]] = {
    LRH: ("pktlen",),
    GRH: ("paylen",),
    IPv4: ("total_length", "identification", "checksum"),
    IPv6: ("payload_length",),
    UDP: ("length", "checksum"),
}
"""Rows in a head that differ from frame to frame of a flow, and say nothing of the layout."""


class Head:
    """The first ``size`` octets of the frames of one layout; ``mask`` has the bits they share."""

    __slots__ = ("mask", "size")

    def __init__(self, layout: Layout) -> None:
        self.size = layout.head
        self.mask = (1 << 8 * self.size) - 1
        for offset, header in layout.places:
            cuts = (field(type(header), row).at(offset) for row in VARIES.get(type(header), ()))
            for cut in cuts:
                if cut.end <= self.size:
                    self.mask &= ~self.bits(cut)

    def bits(self, cut: Cut) -> int:
        """The bits of a field that stands in the head, in it as one number."""
        return cut.mask << cut.shift << 8 * (self.size - cut.end)

    def shares(self, cut: Cut) -> bool:
        """Whether all these bits are the same in all the frames."""
        return cut.end <= self.size and not self.bits(cut) & ~self.mask
