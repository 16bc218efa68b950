"""Transport packets on native InfiniBand links: LRH, optional GRH, packet, ICRC, VCRC."""

from functools import lru_cache
from typing import NamedTuple, TypedDict, Unpack

from rdmawire.errors import WireError
from rdmawire.wire.ib import BTH, GRH, ICRC, LNH, LRH, VCRC
from rdmawire.wire.icrc import icrc_lrh, vcrc
from rdmawire.wire.layout import parts_as_declared, replaced
from rdmawire.wire.packet import LAYOUTS, OpcodeTable, Packet

IBA_TRANSPORT = 0x1B
"""Next header value of a GRH that precedes a BTH. IBA 8.3.5."""


class NativeParts(TypedDict, total=False):
    """Arguments of :meth:`NativePacket.replace`."""

    lrh: LRH
    grh: GRH | None
    packet: Packet
    icrc: int
    vcrc: int


class NativePacket(NamedTuple):
    """A link packet of IBA transport. The CRCs are bytes in wire order."""

    lrh: LRH
    grh: GRH | None
    packet: Packet
    icrc: int = 0
    vcrc: int = 0

    @parts_as_declared
    def build(self) -> bytes:
        """Build the packet with its present lengths and CRCs."""
        return self._up_to_icrc() + ICRC(self.icrc).build() + VCRC(self.vcrc).build()

    def _up_to_icrc(self) -> bytes:
        grh = self.grh.build() if self.grh else b""
        return self.lrh.build() + grh + self.packet.build()

    def replace(self, **parts: Unpack[NativeParts]) -> "NativePacket":
        """Return a copy with other parts; lengths and CRCs are not updated.

        Raises :class:`WireError` for parts of an invalid type.
        """
        packet = replaced(self, parts)
        packet.build()
        packet.packet.check()
        return packet

    @parts_as_declared
    def seal(self) -> "NativePacket":
        """Return a copy with correct lengths, next headers and CRCs."""
        length = len(self.packet.build()) + ICRC.SIZE
        grh = self.grh.replace(paylen=length, nxthdr=IBA_TRANSPORT) if self.grh else None
        if length % 4:
            raise WireError(f"{length} bytes up to the ICRC: LRH.pktlen counts words of four")
        words = (LRH.SIZE + (GRH.SIZE if grh else 0) + length) // 4
        lrh = self.lrh.replace(pktlen=words, lnh=LNH.IBA_GLOBAL if grh else LNH.IBA_LOCAL)
        sealed = self._replace(lrh=lrh, grh=grh)
        sealed = sealed._replace(icrc=sealed.expected_icrc())
        return sealed._replace(vcrc=sealed.expected_vcrc())

    @parts_as_declared
    def expected_icrc(self) -> int:
        """The correct ICRC."""
        return icrc_lrh(self._up_to_icrc())

    @parts_as_declared
    def expected_vcrc(self) -> int:
        """The correct VCRC on this link."""
        return vcrc(self._up_to_icrc() + ICRC(self.icrc).build())


def parse(buffer: bytes, opcodes: OpcodeTable = LAYOUTS) -> NativePacket:
    """Parse a packet from LRH to VCRC, with a layout of ``opcodes``.

    Raises :class:`WireError` for anything else.
    """
    lrh = LRH.parse(buffer)
    grh = GRH.parse(buffer, LRH.SIZE) if lrh.lnh == LNH.IBA_GLOBAL else None
    if lrh.lnh not in (LNH.IBA_LOCAL, LNH.IBA_GLOBAL):
        raise WireError(f"LRH.lnh {lrh.lnh}: no IBA transport follows (IBA 7.7.5)", 0)
    end = lrh.pktlen * 4
    bth = LRH.SIZE + (GRH.SIZE if grh else 0)
    if end < bth + ICRC.SIZE or end + VCRC.SIZE != len(buffer):
        raise WireError(
            f"LRH.pktlen says {end} bytes before the VCRC, {len(buffer) - VCRC.SIZE} are there",
            0,
        )
    packet = Packet.parse(buffer, bth, end - ICRC.SIZE, opcodes)
    icrc = ICRC.parse(buffer, end - ICRC.SIZE).crc
    return NativePacket(lrh, grh, packet, icrc, VCRC.parse(buffer, end).crc)


def bth_offset(buffer: bytes) -> int:
    """The offset of the BTH in a packet; -1 if it has none."""
    lnh = buffer[1] & 3 if len(buffer) > 1 else 0
    if lnh not in (LNH.IBA_LOCAL, LNH.IBA_GLOBAL):
        return -1
    offset = LRH.SIZE + (GRH.SIZE if lnh == LNH.IBA_GLOBAL else 0)
    return offset if offset + BTH.SIZE <= len(buffer) else -1


def with_vcrc(packet: bytes) -> bytes:
    """Return a packet that ends with its ICRC, with the VCRC after it."""
    return packet + _vcrc_of(packet)


def has_good_vcrc(packet: bytes) -> bool:
    """Whether the last two bytes of a packet are the VCRC of the bytes before."""
    end = len(packet) - VCRC.SIZE
    return end > 0 and packet[end:] == _vcrc_of(packet[:end])


@lru_cache(maxsize=128)
def _vcrc_of(packet: bytes) -> bytes:
    """The VCRC of a packet: computed once for the sender and the receiver on one machine."""
    return vcrc(packet).to_bytes(VCRC.SIZE, "big")
