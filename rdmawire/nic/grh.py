"""The forty octets before a datagram's payload in the receiver's memory. IBA 11.4.1.2.

On native links and RoCE they are the GRH. RoCEv2 has none: over IPv6 its header stands there, over
IPv4 twenty octets of no meaning (here zeros) and then its header (IBA A17.4.4).
"""

from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import IPv4, IPv6
from rdmawire.wire.layout import Piece


def grh_of(headers: tuple[Piece, ...]) -> bytes:
    """Forty octets, from the headers that stood before the BTH."""
    for piece in headers:
        if isinstance(piece, Header) and isinstance(piece, GRH | IPv4 | IPv6):
            return piece.build().rjust(GRH.SIZE, b"\0")
    return bytes(GRH.SIZE)
