"""The CRCs of InfiniBand and RoCE: ICRC over the invariant fields, VCRC over a link.

The ICRC (IBA 7.8.1, with annexes A16 for RoCE and A17 for RoCEv2) is Ethernet's CRC-32 over the
packet from its first routing header to the pad, with every field that switches and routers may
change replaced by ones. Ones replace the LRH too, where there is none or a router may change it.
Numbers are the CRC's bytes read in wire order, so 78 F3 53 F3 on the wire is 0x78F353F3.
"""

from array import array
from functools import lru_cache
from struct import unpack
from sys import byteorder

from isal.isal_zlib import crc32

from rdmawire.errors import WireError
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, LNH, LRH
from rdmawire.wire.inet import UDP, IPv4, IPv6

VARIANT: dict[type[Header], tuple[str, ...]] = {
    LRH: ("vl",),
    GRH: ("tclass", "flowlabel", "hoplmt"),
    IPv4: ("dscp", "ecn", "ttl", "checksum"),
    IPv6: ("dscp", "ecn", "flow", "hop_limit"),
    UDP: ("checksum",),
    BTH: ("fecn", "becn", "resv6"),
}
"""Fields that may change in transit, replaced by ones. IBA 7.8.1, A16.3, A17.5."""

ONES_FOR_LRH = crc32(b"\xff" * LRH.SIZE)
"""The state of the CRC after ones in place of the LRH."""
RESIDUE = crc32(crc32(b"").to_bytes(4, "little"))
"""The CRC of any bytes followed by their CRC."""
_BTH_SIZE = BTH.SIZE
_IPV6_BTH = IPv6.SIZE + UDP.SIZE
_IBA_GLOBAL = int(LNH.IBA_GLOBAL)
_number = int.from_bytes


def _ones(part: type[Header] | int) -> str:
    """The bits of a header, ones in fields that may change; zeros for ``part`` bytes between."""
    if isinstance(part, int):
        return "0" * 8 * part
    return "".join(("1" if row.name in VARIANT[part] else "0") * row.size for row in part.rows)


def mask(*parts: type[Header] | int) -> bytes:
    """The mask of consecutive headers and bytes between them: ones in fields that may change."""
    digits = "".join(map(_ones, parts))
    return int(digits, 2).to_bytes(len(digits) // 8, "big")


def _mask(*parts: type[Header] | int) -> int:
    return _number(mask(*parts), "big")


@lru_cache(maxsize=64)
def _ipv6_mask(between: int) -> int:
    """The mask of IPv6 and UDP with ``between`` bytes of extension headers between them."""
    return _mask(IPv6, between, UDP, BTH)


# By IHL: headers shorter than five words are refused earlier.
_IPV4_MASKS = [_mask(IPv4, max(4 * ihl - IPv4.SIZE, 0), UDP, BTH) for ihl in range(16)]
_GRH_MASK = _mask(GRH, BTH)
_LRH_MASK = _mask(LRH, BTH)


def icrc_ipv4(
    buffer: bytes | bytearray, start: int = 0, end: int | None = None, bth: int | None = None
) -> int:
    """ICRC of the RoCEv2 packet whose IPv4 header is at ``start`` and whose pad ends at ``end``.

    ``bth`` is the offset of the BTH in bytes, by default the end of the IPv4 header.
    """
    bth = _behind_ipv4(buffer, start) if bth is None else bth
    ihl = (bth - start - UDP.SIZE) // 4
    if not 5 <= ihl <= 15:
        raise WireError(f"no IPv4 and UDP fit before a BTH at byte {bth}", start)
    return _icrc(buffer, start, bth, end, _IPV4_MASKS[ihl])


def _behind_ipv4(buffer: bytes | bytearray, start: int) -> int:
    """The offset of the BTH by the length of the IPv4 header."""
    try:
        ihl = buffer[start] & 15
    except IndexError:
        raise _ends_before(buffer, start) from None
    if ihl < 5:
        raise WireError(f"IPv4.ihl {ihl} is less than the 5 words of the least header", start)
    return start + ihl * 4 + UDP.SIZE


def icrc_ipv6(
    buffer: bytes | bytearray, start: int = 0, end: int | None = None, bth: int | None = None
) -> int:
    """ICRC of the RoCEv2 packet whose IPv6 header is at ``start`` and whose pad ends at ``end``.

    ``bth`` is the offset of the BTH in bytes, if extension headers precede the UDP header.
    """
    least = start + _IPV6_BTH
    bth = least if bth is None else bth
    if bth < least:
        raise WireError(f"no room for IPv6 and UDP before a BTH at byte {bth}", start)
    return _icrc(buffer, start, bth, end, _ipv6_mask(bth - least))


def icrc_grh(buffer: bytes | bytearray, start: int = 0, end: int | None = None) -> int:
    """ICRC of the packet whose GRH is at ``start``: RoCE, and native packets that have a GRH."""
    return _icrc(buffer, start, start + GRH.SIZE, end, _GRH_MASK)


def icrc_lrh(buffer: bytes | bytearray, start: int = 0, end: int | None = None) -> int:
    """ICRC of the native packet whose LRH is at ``start``, with or without a GRH.

    Without a GRH the CRC covers the LRH except its virtual lane.
    """
    try:
        lnh = buffer[start + 1] & 3
    except IndexError:
        raise _ends_before(buffer, start + 1) from None
    if lnh == _IBA_GLOBAL:
        return icrc_grh(buffer, start + LRH.SIZE, end)
    return icrc_local(buffer, start, end)


def icrc_local(buffer: bytes | bytearray, start: int = 0, end: int | None = None) -> int:
    """ICRC of the native packet whose LRH is at ``start``, with the BTH right after it."""
    return _icrc(buffer, start, start + LRH.SIZE, end, _LRH_MASK, crc=0)


def _ends_before(buffer: bytes | bytearray, offset: int) -> WireError:
    return WireError(f"the packet ends before byte {offset}", len(buffer))


def _icrc(
    buffer: bytes | bytearray,
    start: int,
    bth: int,
    end: int | None,
    mask: int,
    *,
    crc: int = ONES_FOR_LRH,
) -> int:
    """The CRC of the bytes from ``start`` to ``end``, with ``mask`` over the headers."""
    limit = len(buffer) if end is None else end
    rest = bth + _BTH_SIZE
    if limit < rest:
        raise WireError(f"no BTH before byte {limit}: an ICRC covers at least one", bth)
    head = _number(buffer[start:rest], "big") | mask
    crc = crc32(head.to_bytes(rest - start, "big"), crc)
    return _number(crc32(memoryview(buffer)[rest:end], crc).to_bytes(4, "little"), "big")


def icrc_headers_twice(icrc: int, packet: bytes | bytearray | memoryview) -> int:
    """The ICRC that Linux's soft-RoCE gives a FLUSH whose ICRC by the standard is ``icrc``.

    ``packet`` is from the BTH to the pad. Linux's table of opcodes lacks the payload offset of
    FLUSH, so its 32 bytes of headers also count as payload: they are covered twice, the second time
    unmasked (drivers/infiniband/sw/rxe: rxe_opcode.c, rxe_icrc.c).
    """
    crc = crc32(packet, _number(icrc.to_bytes(4, "big"), "little"))
    return _number(crc.to_bytes(4, "little"), "big")


def _vcrc_table() -> tuple[int, ...]:
    """One step per byte of x^16 + x^12 + x^3 + x + 1, bits reflected."""
    steps = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xD008 if crc & 1 else 0)
        steps.append(crc)
    return tuple(steps)


VCRC_STEP = _vcrc_table()
"""VCRC register change for each byte value shifted out."""


@lru_cache(maxsize=1)
def _vcrc_pairs() -> "array[int]":
    """VCRC register change for each pair of bytes shifted out; the first byte is the lower one."""
    found = array("H")
    for pair in range(1 << 16):
        crc = pair >> 8 ^ VCRC_STEP[pair & 0xFF]
        found.append(crc >> 8 ^ VCRC_STEP[crc & 0xFF])
    return found


_LITTLE = byteorder == "little"


def vcrc(buffer: bytes | bytearray | memoryview, start: int = 0, end: int | None = None) -> int:
    """VCRC of a native packet, from the first byte of its LRH to the last byte before the VCRC.

    IBA 7.8.2: CRC-16 with the polynomial 0x100B, initially ones, inverted at the end.
    """
    crc, step = 0xFFFF, _vcrc_pairs()
    data = memoryview(buffer)[start:end].cast("B")
    even = len(data) & ~1
    words = data[:even].cast("H") if _LITTLE else unpack(f"<{even // 2}H", data[:even])
    for word in words:
        crc = step[crc ^ word]
    if even < len(data):
        crc = crc >> 8 ^ VCRC_STEP[(crc ^ data[even]) & 0xFF]
    crc ^= 0xFFFF
    return crc >> 8 | (crc & 0xFF) << 8
