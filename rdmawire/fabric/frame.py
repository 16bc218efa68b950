"""The envelope of a frame in the fabric; engines see only its bytes.

A frame keeps its number from the port that sends it first to every port that receives it, even if
switches and faults change its bytes. To follow a frame, compare numbers, not bytes: a
retransmitted packet has the same bytes, and a marked one does not.
"""

from typing import Final

from rdmawire.wire.inet import Ethernet

MAX_REDIRECTS: Final = 4
"""How often faults may change a frame's addresses before it is dropped.

An Ethernet frame has no hop limit. Switches always forward a frame towards its address, but
faults that readdress it on several links could make it circulate for ever.
"""

_ADDRESSES: Final = Ethernet.SIZE - 2
"""Bytes of the destination and source address at the start of a frame."""


class Envelope:
    """One frame in transit. Immutable: each link and each fault makes a new envelope.

    - ``data``: the frame's bytes, from the Ethernet header on, without FCS.
    - ``id``: its number among the frames of this simulator, from 1 on; 0 before it is sent.
      Duplicates have the same number.
    - ``origin``: MAC address of the port that sent it first, which no fault changes.
    - ``hops``: number of links so far, including the current one.
    - ``redirects``: how often faults changed its addresses.
    - ``faults``: effects of faults on all links so far, such as ``"delayed"``.
    """

    __slots__ = ("data", "faults", "hops", "id", "origin", "redirects")

    def __init__(  # noqa: PLR0917 - one is made for each frame on each link
        self,
        data: bytes,
        id: int = 0,  # noqa: A002 - the field's word
        origin: bytes = b"",
        hops: int = 0,
        redirects: int = 0,
        faults: tuple[str, ...] = (),
    ) -> None:
        self.data = data
        self.id = id
        self.origin = origin
        self.hops = hops
        self.redirects = redirects
        self.faults = faults

    def __repr__(self) -> str:
        faults = "".join(f", {word}" for word in self.faults)
        origin = self.origin.hex(":") or "nowhere"
        size = f"{len(self.data)} bytes"
        return f"<Envelope {self.id}: {size} from {origin}, {self.hops} hops{faults}>"

    def __eq__(self, other: object) -> bool:
        """Whether the other is an envelope with the same values."""
        if not isinstance(other, Envelope):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        """Hash of number and hop."""
        return hash((self.id, self.hops))

    def __deepcopy__(self, _: object) -> "Envelope":
        """Return the envelope itself, which is immutable."""
        return self

    def forwarded(self) -> "Envelope":
        """Return the same frame on its next link."""
        return Envelope(self.data, self.id, self.origin, self.hops + 1, self.redirects, self.faults)

    def altered(self, data: bytes, faults: tuple[str, ...] = ()) -> "Envelope":
        """Return the same frame with other bytes; ``faults`` are the effects of faults."""
        return Envelope(
            data,
            self.id,
            self.origin,
            self.hops,
            self.redirects_with(data),
            self.faults + faults,
        )

    def redirects_with(self, data: bytes) -> int:
        """Number of address changes if the frame's bytes become ``data``."""
        return self.redirects + (data[:_ADDRESSES] != self.data[:_ADDRESSES])
