"""Endace's extensible record format, which carries native InfiniBand (link type ERF)."""

from enum import IntEnum

from rdmawire.wire.header import Header, bits, flag, group, raw
from rdmawire.wire.show import HEX


class ERFType(IntEnum):
    """Supported record types."""

    ETHERNET = 2
    INFINIBAND = 21
    INFINIBAND_LINK = 25


class ERF(Header, clause="LINKTYPE_ERF"):
    """Extensible record of Endace: its header.

    The timestamp is little-endian: seconds, then their fraction.
    """

    ts: bytes = raw(8)
    types: int = group("erf.types", "ext_header", "type", show=HEX)
    ext_header: int = bits(1, "erf.types.ext_header")
    type: int = bits(7, "erf.types.type", enum=ERFType)
    flags: int = group("erf.flags", "res", ..., "cap", show=HEX)
    res: int = bits(2, "erf.flags.res", HEX)
    dse: int = bits(1, "erf.flags.dse")
    rxe: int = bits(1, "erf.flags.rxe")
    trunc: int = bits(1, "erf.flags.trunc")
    vlen: int = bits(1, "erf.flags.vlen")
    cap: int = bits(2, "erf.flags.cap")
    rlen: int = bits(16, "erf.rlen")
    lctr: int = bits(16, "erf.lctr")
    wlen: int = bits(16, "erf.wlen")

    @property
    def time_ns(self) -> int:
        """The timestamp in nanoseconds since the epoch, rounded down."""
        return int.from_bytes(self.ts, "little") * 1_000_000_000 >> 32


class ERFExtension(Header, clause="LINKTYPE_ERF"):
    """Extension header of an extensible record."""

    more: int = flag()
    type: int = bits(7)
    body: bytes = raw(7)


class ERFEthernetPad(Header, clause="LINKTYPE_ERF"):
    """Pad before the frame in an extensible record of Ethernet."""

    offset: int = bits(8)
    pad: int = bits(8)
