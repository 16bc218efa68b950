"""The envelope in which a frame travels through the fabric: engines see its bytes alone.

A frame keeps its number from the port that sends it first to every port that receives it, whatever
switches and faults make of its bytes. So who follows a frame compares numbers, never bytes: a
retransmitted packet looks the same, and a marked one does not.
"""

from typing import Final

from rdmawire.wire.inet import Ethernet

MAX_REDIRECTS: Final = 4
"""How often faults may change a frame's addresses; then it is lost.

An Ethernet frame has no hop limit. Switches pass a frame on towards its address, so it gets there;
faults that give it other addresses on one link after the other could have it circulate for ever.
"""

_ADDRESSES: Final = Ethernet.SIZE - 2
"""Bytes of the two addresses that a frame begins with."""


class Envelope:
    """One frame on its way. Values are never changed: each link and each fault makes a new one.

    - ``data``: the frame's bytes, from the Ethernet header on, without FCS.
    - ``id``: its number among the frames of this simulator, from 1 on; 0 before it is sent.
      Duplicates have the same.
    - ``origin``: MAC address of the port that sent it first, which no fault changes.
    - ``hops``: how many links it was put on, the one it is on included.
    - ``redirects``: how often faults changed its addresses.
    - ``faults``: what faults did to it on all links so far, in words such as ``"delayed"``.
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
        """By number and hop."""
        return hash((self.id, self.hops))

    def __deepcopy__(self, _: object) -> "Envelope":
        """The envelope itself, which never changes."""
        return self

    def altered(self, data: bytes, faults: tuple[str, ...] = ()) -> "Envelope":
        """The same frame with other bytes, after these faults (words for what they did)."""
        return Envelope(
            data,
            self.id,
            self.origin,
            self.hops,
            self.redirects_with(data),
            self.faults + faults,
        )

    def redirects_with(self, data: bytes) -> int:
        """How often its addresses were changed, if its bytes become ``data``."""
        return self.redirects + (data[:_ADDRESSES] != self.data[:_ADDRESSES])
