"""The way through a frame, from the link inwards, to find where its headers stand.

A step takes its header and says which step follows: see :mod:`rdmawire.traffic.edit.steps`. Where
octets do not parse, or the capture ends, the walk ends, and keeps what it has found.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Optional, TypeVar

from rdmawire.errors import WireError
from rdmawire.traffic.edit.place import Layout, Place, Said, hosts_of
from rdmawire.traffic.edit.seal import NOWHERE, ComputeICRC, Seal
from rdmawire.wire.header import Header

_H = TypeVar("_H", bound=Header)

Step = Callable[["Walk"], Optional["Step"]]
Steps = Mapping[int, Step]


class Walk:
    """Where a walk stands: the next octet, and where the layer at hand ends.

    ``short`` says that something is missing of that layer. ``head`` and ``said`` are as in
    :class:`~rdmawire.traffic.edit.place.Layout`; without ``alike``, there is no such head.
    ``source`` and ``destination`` are the offsets of the pseudo header's addresses, the latter
    ``None`` if it is not known; ``icrc`` is what an ICRC would be.
    """

    icrc: ComputeICRC

    def __init__(self, octets: bytes, ports: Collection[int]) -> None:
        self.octets = octets
        self.ports = ports
        self.offset = 0
        self.end = len(octets)
        self.short = False
        self.alike = True
        self.head = 0
        self.tunnels = 0
        self.fragment = False
        self.source = range(0)
        self.destination: range | None = range(0)
        self.places: list[Place] = []
        self.seals: list[Seal] = []
        self.said: list[Said] = []

    def take(self, table: type[_H]) -> _H:
        """The next header."""
        end = self.offset + table.SIZE
        if end > self.end:
            raise WireError(f"{table.__name__} ends behind octet {self.end}", self.offset)
        header = table.parse(self.octets, self.offset)
        self.places.append(Place(self.offset, header))
        self.offset = end
        return header

    def narrow(self, length: int) -> None:
        """The layer at hand has so many octets more."""
        end = self.offset + length
        self.short = self.short or end > self.end or length < 0
        if length >= 0:
            self.end = min(self.end, end)

    @property
    def whole_end(self) -> int:
        """Where the layer at hand ends, if all of it is there."""
        return NOWHERE if self.short else self.end

    def run(self, step: Step | None) -> Layout:
        """Walk to the end of the frame. Whatever the octets, this raises nothing."""
        try:
            while step is not None:
                step = step(self)
        except WireError:
            self.alike = False
        head = self.head if self.alike else 0
        return Layout(self.places, hosts_of(self.places), self.seals[::-1], head, self.said)
