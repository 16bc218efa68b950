"""The ICRC of frames whose head is known, by two CRCs: over the head with ones, and the rest."""

from collections.abc import Iterator, Sequence

from isal.isal_zlib import crc32

from rdmawire.traffic.edit.place import Layout, Place
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, LRH
from rdmawire.wire.icrc import ONES_FOR_LRH, mask
from rdmawire.wire.inet import IPv4, IPv6


class HeadICRC:
    """Computes the ICRC of frames from the number that their first octets are.

    Of the ``size`` octets of the head, the last ``covered`` count. ``low`` are their bits, ``ones``
    those that may change on the way (IBA 7.8.1), and ``start`` is what the CRC begins with.
    """

    __slots__ = ("_covered", "_low", "_ones", "_size", "_start")

    def __init__(self, layout: Layout) -> None:
        covered = _covered(layout.places)
        first = covered[0]
        self._size = layout.head
        self._covered = layout.head - first.offset
        self._low = (1 << 8 * self._covered) - 1
        self._ones = int.from_bytes(mask(*_parts(covered))[: self._covered], "big")
        self._start = 0 if isinstance(first.header, LRH) else ONES_FOR_LRH

    def of(self, head: int, octets: bytes | bytearray, end: int) -> int:
        """The ICRC of a frame with this head, whose pad ends at ``end``.

        A number whose lowest octet is the first one on the wire.
        """
        covered = (head & self._low | self._ones).to_bytes(self._covered, "big")
        crc: int = crc32(octets[self._size : end], crc32(covered, self._start))
        return crc


def _covered(places: Sequence[Place]) -> list[Place]:
    """The headers that the ICRC covers up to the BTH. IBA 7.8.1, A16.3, A17.5."""
    last = next(at for at, place in enumerate(places) if isinstance(place.header, BTH))
    networks = [at for at in range(last) if isinstance(places[at].header, IPv4 | IPv6 | GRH)]
    return list(places[networks[-1] if networks else last - 1 : last + 1])


def _parts(covered: Sequence[Place]) -> Iterator[type[Header] | int]:
    """Their tables, and how many octets of options stand between them."""
    end = covered[0].offset
    for offset, header in covered:
        if offset > end:
            yield offset - end
        yield type(header)
        end = offset + header.SIZE
