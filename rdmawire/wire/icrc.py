"""The CRCs of InfiniBand and RoCE: ICRC over what stays the same on the way, VCRC over a link.

The ICRC (IBA 7.8.1, with annexes A16 for RoCE and A17 for RoCEv2) is Ethernet's CRC-32 over the
packet from its first routing header to the pad, with every field that switches and routers may
change replaced by ones. Where there is no LRH, or a router may change it, ones stand for it.
Numbers are the CRC's octets read in wire order, so 78 F3 53 F3 on the wire is 0x78F353F3.
"""

from isal.isal_zlib import crc32

from rdmawire.errors import WireError

_ONES_FOR_LRH = crc32(b"\xff" * 8)
_RESV8A = 4  # the octet of the BTH with FECN, BECN and the reserved bits beside them
_BTH = 12


def icrc_ipv4(buffer: bytes | bytearray, start: int = 0, end: int | None = None) -> int:
    """ICRC of the RoCEv2 packet whose IPv4 header is at ``start`` and whose pad ends at ``end``.

    Masked (A17.5): type of service, time to live, header checksum, UDP checksum, BTH resv8a.
    """
    bth = start + (_octet(buffer, start) & 15) * 4 + 8
    head = _head(buffer, start, bth, end)
    head[1] = head[8] = head[10] = head[11] = head[-7] = head[-6] = 0xFF
    return _finish(head, buffer, bth, end)


def icrc_ipv6(
    buffer: bytes | bytearray, start: int = 0, end: int | None = None, bth: int | None = None
) -> int:
    """ICRC of the RoCEv2 packet whose IPv6 header is at ``start`` and whose pad ends at ``end``.

    ``bth`` is where the BTH stands, if extension headers come before the UDP header. Masked
    (A17.5): traffic class, flow label, hop limit, UDP checksum, BTH resv8a.
    """
    bth = start + 48 if bth is None else bth
    head = _head(buffer, start, bth, end)
    head[0] |= 0x0F
    head[1] = head[2] = head[3] = head[7] = head[-7] = head[-6] = 0xFF
    return _finish(head, buffer, bth, end)


def icrc_grh(buffer: bytes | bytearray, start: int = 0, end: int | None = None) -> int:
    """ICRC of the packet whose GRH is at ``start``: RoCE, and native packets that have a GRH.

    Masked: traffic class, flow label, hop limit, BTH resv8a; ones stand for the LRH.
    """
    bth = start + 40
    head = _head(buffer, start, bth, end)
    head[0] |= 0x0F
    head[1] = head[2] = head[3] = head[7] = 0xFF
    return _finish(head, buffer, bth, end)


def icrc_lrh(buffer: bytes | bytearray, start: int = 0, end: int | None = None) -> int:
    """ICRC of the native packet whose LRH is at ``start``, with or without a GRH.

    Without a GRH the LRH counts, but for its virtual lane.
    """
    if _octet(buffer, start + 1) & 3 == 3:
        return icrc_grh(buffer, start + 8, end)
    bth = start + 8
    head = _head(buffer, start, bth, end)
    head[0] |= 0xF0
    return _finish(head, buffer, bth, end, 0)


def _octet(buffer: bytes | bytearray, offset: int) -> int:
    try:
        return buffer[offset]
    except IndexError:
        raise WireError(f"the packet ends before octet {offset}", len(buffer)) from None


def _head(buffer: bytes | bytearray, start: int, bth: int, end: int | None) -> bytearray:
    """A copy to mask, from ``start`` to just before the BTH's resv8a."""
    limit = len(buffer) if end is None else end
    if limit < bth + _BTH:
        raise WireError(f"no BTH before octet {limit}: an ICRC covers at least one", bth)
    return bytearray(buffer[start : bth + _RESV8A + 1])


def _finish(
    head: bytearray,
    buffer: bytes | bytearray,
    bth: int,
    end: int | None,
    crc: int = _ONES_FOR_LRH,
) -> int:
    head[-1] = 0xFF
    rest = memoryview(buffer)[bth + _RESV8A + 1 : end]
    return int.from_bytes(crc32(rest, crc32(head, crc)).to_bytes(4, "little"), "big")


def _vcrc_table() -> tuple[int, ...]:
    """One step per octet of x^16 + x^12 + x^3 + x + 1, bits reflected."""
    steps = []
    for octet in range(256):
        crc = octet
        for _ in range(8):
            crc = crc >> 1 ^ (0xD008 if crc & 1 else 0)
        steps.append(crc)
    return tuple(steps)


_VCRC_STEP = _vcrc_table()


def vcrc(buffer: bytes | bytearray | memoryview, start: int = 0, end: int | None = None) -> int:
    """VCRC of a native packet, from the first octet of its LRH to the last before the VCRC.

    IBA 7.8.2: CRC-16 with the polynomial 0x100B, begun with ones and inverted at the end.
    """
    crc = 0xFFFF
    step = _VCRC_STEP
    for octet in memoryview(buffer)[start:end]:
        crc = crc >> 8 ^ step[(crc ^ octet) & 0xFF]
    crc ^= 0xFFFF
    return crc >> 8 | (crc & 0xFF) << 8
