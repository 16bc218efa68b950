"""The ways to a BTH that are read many frames at once: headers whose places never change.

A path says which headers stand before the BTH, and which of their fields must have which values
for a frame to be on it. Frames on no path, which are few, are dissected one by one.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.record import LinkType
from rdmawire.columns.bits import LEAD, Bits, Matrix, bits
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPProtocol, IPv4, IPv6

_FIXED: dict[type[Header], dict[str, int]] = {
    IPv4: {"version": 4, "ihl": 5, "mf": 0, "fragment_offset": 0, "protocol": IPProtocol.UDP},
    IPv6: {"version": 6, "next_header": IPProtocol.UDP},
}
"""What the fields of a header must be for a UDP header to stand right behind it."""

_ETHERTYPES: dict[type[Header], int] = {
    VLAN: EtherType.VLAN,
    IPv4: EtherType.IPV4,
    IPv6: EtherType.IPV6,
}
_LENGTHS: dict[type[Header], tuple[str, int]] = {
    IPv4: ("total_length", IPv4.SIZE),
    IPv6: ("payload_length", 0),
}
"""The row that says how long a packet is, and how many octets of its header are counted."""


class _Word(NamedTuple):
    """Eight octets of a frame, and what some of their bits must be."""

    start: int
    mask: int
    value: int


def row_bits(table: type[Header], name: str) -> Bits:
    """Where a row of at most 64 bits stands in its header."""
    row = next(row for row in table.rows if row.name == name)
    return bits(row.bit, row.width)


UDP_LENGTH = row_bits(UDP, "length")
_UDP_PORT = row_bits(UDP, "dstport")


class Path:
    """Headers before a BTH, outermost first, in frames of one link type."""

    def __init__(self, link_type: int, *tables: type[Header]) -> None:
        self.link_type = link_type
        self.bases = dict(zip(tables, _bases(tables), strict=True))
        self.bth = self.bases[UDP] + UDP.SIZE
        self._words = list(_words(list(_demands(self.bases))))
        self.network = tables[-2]
        self.network_base = self.bases[self.network]
        name, self._own = _LENGTHS[self.network]
        self._announced = row_bits(self.network, name)

    @property
    def width(self) -> int:
        """Octets of a frame up to the end of the BTH."""
        return self.bth + BTH.SIZE

    def holds(self, frames: Matrix, ports: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """The frames whose fields are what this path asks for."""
        udp = self.bases[UDP]
        port, length = _UDP_PORT.read(frames, udp), UDP_LENGTH.read(frames, udp)
        found: NDArray[np.bool_] = port == ports[0] if len(ports) == 1 else np.isin(port, ports)
        for start, mask, value in self._words:
            found &= _words_at(frames, start) & np.uint64(mask) == np.uint64(value)
        announced = self._announced.read(frames, self.network_base)
        found &= announced == length.astype(np.int32) + self._own
        return found


def _bases(tables: tuple[type[Header], ...]) -> Iterator[int]:
    base = 0
    for table in tables:
        yield base
        base += table.SIZE


def _demands(bases: dict[type[Header], int]) -> Iterator[tuple[int, int, int]]:
    """What must stand where: first bit, width, value."""
    tables = list(bases)
    for table, following in pairwise(tables):
        wanted = _FIXED.get(table, {"type": _ETHERTYPES.get(following, 0)})
        for row in table.rows:
            if row.name in wanted:
                yield bases[table] * 8 + row.bit, row.width, wanted[row.name]


def _words(demands: list[tuple[int, int, int]]) -> Iterator[_Word]:
    """The demands, as few words as hold them."""
    while demands:
        start = demands[0][0] // 8
        inside = [d for d in demands if d[0] + d[1] <= (start + 8) * 8]
        demands = demands[len(inside) :]
        mask = value = 0
        for first, width, wanted in inside:
            shift = (start + 8) * 8 - first - width
            mask |= ((1 << width) - 1) << shift
            value |= wanted << shift
        yield _Word(start, mask, value)


def _words_at(frames: Matrix, start: int) -> NDArray[np.uint64]:
    return np.ndarray(
        (len(frames),), ">u8", frames, offset=LEAD + start, strides=(frames.shape[1],)
    )


PATHS = (
    Path(LinkType.ETHERNET, Ethernet, IPv4, UDP),
    Path(LinkType.ETHERNET, Ethernet, IPv6, UDP),
    Path(LinkType.ETHERNET, Ethernet, VLAN, IPv4, UDP),
    Path(LinkType.ETHERNET, Ethernet, VLAN, IPv6, UDP),
)
"""The likeliest first: most captures have frames on one path only."""

LINK_TYPES = {path.link_type for path in PATHS}
