"""Transport packets in frames: RoCEv2 over UDP, RoCE over EtherType 0x8915, native InfiniBand.

A :class:`Frame` keeps every byte, so building what was parsed gives the same frame. ``seal``
computes lengths, checksums and the ICRC.
"""

from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import Any, NamedTuple, TypedDict, Unpack

from rdmawire.errors import WireError
from rdmawire.wire import native
from rdmawire.wire.checksum import ipv4_header_checksum, udp_checksum, with_ends
from rdmawire.wire.codec import fused
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, ICRC, LRH, VCRC
from rdmawire.wire.icrc import icrc_grh, icrc_ipv4, icrc_ipv6, icrc_lrh, vcrc
from rdmawire.wire.inet import (
    ROCE_PORT,
    UDP,
    VLAN,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    ServiceVLAN,
)
from rdmawire.wire.layout import Piece, joined, parts_as_declared, replaced, size
from rdmawire.wire.native import IBA_TRANSPORT
from rdmawire.wire.opcode import Payload
from rdmawire.wire.packet import LAYOUTS, OpcodeTable, Packet, Reader, check_payload


class NotRoce(WireError):
    """A frame that is not RoCE: ARP, TCP, another UDP port and the like."""


class Medium(Enum):
    """The first header of a link's frames. Frames end with the ICRC, or a trailer after it.

    The trailer of native InfiniBand is the VCRC.
    :class:`rdmawire.ib.udp.Datagram` converts IP packets to the payload of UDP sockets.
    """

    ETHERNET = "Ethernet frames"
    IP = "IP packets"
    INFINIBAND = "native InfiniBand packets"


class FrameParts(TypedDict, total=False):
    """Arguments of :meth:`Frame.replace`."""

    headers: tuple[Piece, ...]
    packet: Packet
    icrc: int
    trailer: bytes


class Frame(NamedTuple):
    """A frame that carries one transport packet.

    ``headers`` precede the BTH, outermost first; options of an IPv4 header follow it as
    plain bytes. ``icrc`` is the CRC's bytes in wire order. ``trailer`` are bytes that the link
    added after the packet, such as the padding of a short Ethernet frame.
    """

    headers: tuple[Piece, ...]
    packet: Packet
    icrc: int = 0
    trailer: bytes = b""

    @parts_as_declared
    def build(self) -> bytes:
        """Build the frame with its present lengths and checksums."""
        transport = self.packet.build() + ICRC(self.icrc).build()
        return joined(*self.headers) + transport + self.trailer

    def replace(self, opcodes: OpcodeTable = LAYOUTS, **parts: Unpack[FrameParts]) -> "Frame":
        """Return a copy with other parts; lengths, checksums and ICRC are not updated.

        Raises :class:`WireError` for parts of an invalid type.
        """
        frame = replaced(self, parts)
        frame.build()
        frame.packet.check(opcodes)
        return frame

    @parts_as_declared
    def seal(self) -> "Frame":
        """Return a copy with correct lengths, checksums and ICRC.

        A UDP checksum of zero, which means no checksum (RFC 768), stays.
        """
        transport = self.packet.build()
        headers = _with_lengths(self.headers, len(transport) + ICRC.SIZE)
        icrc = self._replace(headers=headers).expected_icrc()
        sealed = self._replace(
            headers=_with_checksums(headers, transport + ICRC(icrc).build()), icrc=icrc
        )
        if not (headers and isinstance(headers[0], LRH)):
            return sealed
        before = sealed._replace(trailer=b"").build()
        return sealed._replace(trailer=vcrc(before).to_bytes(VCRC.SIZE, "big"))

    @parts_as_declared
    def sealed_headers(self) -> tuple[Piece, ...]:
        """Return the headers of :meth:`seal`.

        No ICRC is computed, unless a UDP checksum covers it.
        """
        transport = self.packet.build()
        headers = _with_lengths(self.headers, len(transport) + ICRC.SIZE)
        covered = any(isinstance(piece, UDP) and piece.checksum for piece in headers)
        icrc = self._replace(headers=headers).expected_icrc() if covered else self.icrc
        return _with_checksums(headers, transport + ICRC(icrc).build())

    @parts_as_declared
    def expected_icrc(self) -> int:
        """The correct ICRC."""
        before = joined(*self.headers)
        data = before + self.packet.build()
        if self.headers and isinstance(self.headers[0], LRH):
            return icrc_lrh(data)
        networks = [i for i, h in enumerate(self.headers) if isinstance(h, IPv4 | IPv6 | GRH)]
        if not networks:
            raise WireError("the frame has no IPv4, IPv6 or GRH header for an ICRC to begin with")
        start = len(joined(*self.headers[: networks[-1]]))
        return icrc_of(data, start, len(before), len(data))


def icrc_of(buffer: bytes, network: int, bth: int, end: int) -> int:
    """ICRC of the packet whose IPv4 header, IPv6 header or GRH is at ``network``.

    ``bth`` is the offset of the BTH (immediately after a GRH), ``end`` that of the end of the pad.
    """
    if buffer[network] >> 4 == 4:
        return icrc_ipv4(buffer, network, end)
    if bth == network + GRH.SIZE:
        return icrc_grh(buffer, network, end)
    return icrc_ipv6(buffer, network, end, bth)


def parse(
    buffer: bytes,
    port: int = ROCE_PORT,
    start: int = 0,
    end: int | None = None,
    *,
    medium: Medium = Medium.ETHERNET,
    opcodes: OpcodeTable = LAYOUTS,
) -> Frame:
    """Parse the RoCEv2 (to UDP ``port``) or RoCE frame at bytes ``start`` to ``end`` of a buffer.

    ``medium`` gives the first header; the packet has a layout of ``opcodes``. The error,
    :class:`WireError`, names the other protocol or the violation. Checksums are not checked:
    compare ``frame.icrc`` with ``frame.expected_icrc()``.
    """
    limit = len(buffer) if end is None else end
    if medium is _ETHERNET:
        found = _parse_plain(buffer, port, start, limit, opcodes)
        if found is not None:
            return found
    elif medium is _INFINIBAND:
        return _parse_native(buffer[start:limit], opcodes)
    return _parse_any(buffer[start:limit], port, medium, opcodes)


def bth_offset(
    buffer: bytes,
    start: int,
    end: int,
    port: int = ROCE_PORT,
    medium: Medium = Medium.ETHERNET,
) -> int:
    """The offset of the BTH in the frame from ``start`` to ``end``; -1 if it has none.

    Fast, for many frames: only the headers before the BTH are read; nothing else is checked.
    """
    if not 0 <= start <= end <= len(buffer):
        return -1
    if medium is _ETHERNET and end - start >= _PLAIN_SIZE:
        ethertype, version_ihl, fragment, protocol, dstport = _read_path(buffer, start)
        if ethertype == 0x0800 and version_ihl == 0x45 and protocol == 17:
            return start + _PLAIN_BTH if dstport == port and not fragment & 0x3FFF else -1
    elif medium is _INFINIBAND:
        offset = native.bth_offset(buffer[start:end])
        return offset if offset < 0 else start + offset
    try:
        frame = buffer[start:end]
        _, ethertype, offset = _LINKS[medium](frame)
        network, offset, _ = _network(frame, ethertype, offset)
        if not isinstance(network[0], GRH):
            _udp(frame, offset, port)
            offset += UDP.SIZE
    except WireError:
        return -1
    return start + offset if offset + BTH.SIZE <= len(frame) else -1


_IPV4_PLAIN = b"\x08\x00\x45"  # EtherType of IPv4, then version 4 and a header without options
_read_path = Struct(">12xHB5xHxB12xH").unpack_from  # headers between plain IPv4 and a BTH
_PLAIN_BTH = Ethernet.SIZE + IPv4.SIZE + UDP.SIZE
_PLAIN_SIZE = _PLAIN_BTH + BTH.SIZE
_ETHERNET = Medium.ETHERNET  # a global is found faster than a member of an Enum
_INFINIBAND = Medium.INFINIBAND


_EXACTLY = {Payload.NONE: 0, Payload.EIGHT: 8}


def _plain(opcode: int, opcodes: OpcodeTable) -> tuple[Reader, int, int] | None:
    """Return the reader of a plain frame's headers, their size, and that of the payload.

    The payload's size is -1 if the opcode allows several.
    """
    readers = opcodes.frame_readers
    if opcode in readers or (found := opcodes.get(opcode)) is None:
        return readers.get(opcode)
    exactly = _EXACTLY.get(found.shape.payload, -1) if found.shape is not None else -1
    size = _PLAIN_BTH + BTH.SIZE + found.size
    readers[opcode] = fused((Ethernet, IPv4, UDP), BTH, found.headers), size, exactly
    return readers[opcode]


def _parse_plain(
    buffer: bytes, port: int, start: int, limit: int, opcodes: OpcodeTable = LAYOUTS
) -> Frame | None:
    """Parse the common case, all headers at once; return ``None`` for everything else.

    Nearly every frame takes this path, so it is one function: a call costs as much as a header.
    """
    if limit - start < _PLAIN_SIZE or buffer[start + 12 : start + 15] != _IPV4_PLAIN:
        return None
    opcode = buffer[start + _PLAIN_BTH]
    plain = opcodes.frame_readers.get(opcode) or _plain(opcode, opcodes)
    if plain is None or start + plain[1] > limit - ICRC.SIZE:
        return None
    read, size, exactly = plain
    headers, bth, extended = read(buffer, start)
    _, ip, udp = headers
    if udp.dstport != port or ip.protocol != _UDP or ip.fragment_offset or ip.mf:
        return None
    payload = start + size
    ip_end = start + Ethernet.SIZE + ip.total_length
    end = min(ip_end, start + _PLAIN_BTH + udp.length - UDP.SIZE)
    pad_end = end - ICRC.SIZE
    if ip_end > limit or pad_end < payload:
        return None
    padcnt, length = bth.padcnt, pad_end - payload
    # check_payload accepts all other packets.
    if (length != exactly or padcnt) and (exactly >= 0 or length % 4 or padcnt > length):
        check_payload(bth, length, size, opcodes)
    pad = pad_end - padcnt
    packet = _new(Packet, (bth, extended, buffer[payload:pad], buffer[pad:pad_end]))
    (icrc,) = _read_icrc(buffer, pad_end)
    return _new(Frame, (headers, packet, icrc, buffer[end:limit]))


_new = tuple.__new__
_read_icrc = Struct(">I").unpack_from
_UDP = int(IPProtocol.UDP)


def _parse_any(
    frame: bytes, port: int, medium: Medium = Medium.ETHERNET, opcodes: OpcodeTable = LAYOUTS
) -> Frame:
    link, ethertype, offset = _LINKS[medium](frame)
    network, offset, end = _network(frame, ethertype, offset)
    if isinstance(network[0], GRH):
        udp: tuple[Header, ...] = ()
    else:
        udp = (_udp(frame, offset, port),)
        end = min(end, offset + udp[0].length)
        offset += UDP.SIZE
    pad_end = end - ICRC.SIZE
    packet = Packet.parse(frame, offset, pad_end, opcodes)
    icrc = int.from_bytes(frame[pad_end:end], "big")
    return Frame((*link, *network, *udp), packet, icrc, frame[end:])


def _parse_native(frame: bytes, opcodes: OpcodeTable = LAYOUTS) -> Frame:
    """Parse a packet from the LRH to the VCRC, which is the trailer."""
    found = native.parse(frame, opcodes)
    if found.grh is None:
        headers: tuple[Header, ...] = (found.lrh,)
    else:
        _check_grh(found.grh, LRH.SIZE)
        headers = (found.lrh, found.grh)
    return Frame(headers, found.packet, found.icrc, found.vcrc.to_bytes(VCRC.SIZE, "big"))


def _check_grh(grh: GRH, offset: int) -> None:
    if grh.nxthdr != IBA_TRANSPORT:
        raise WireError(f"GRH.nxthdr {grh.nxthdr} is not the IBA transport's 0x1b", offset)


_TAGS: dict[int, type[VLAN] | type[ServiceVLAN]] = {
    EtherType.VLAN: VLAN,
    EtherType.QINQ: ServiceVLAN,
    EtherType.QINQ_OLD: VLAN,
}


def _link(frame: bytes) -> tuple[list[Header], int, int]:
    """Parse the Ethernet header and tags; return them, the last EtherType and their end offset."""
    header = Ethernet.parse(frame)
    link: list[Header] = [header]
    ethertype, offset = header.type, Ethernet.SIZE
    while ethertype in _TAGS:
        tag = _TAGS[ethertype].parse(frame, offset)
        link.append(tag)
        ethertype, offset = tag.type, offset + tag.SIZE
    return link, ethertype, offset


def _no_link(packet: bytes) -> tuple[list[Header], int, int]:
    """Return no link header, and the EtherType of the IP version."""
    version = packet[0] >> 4 if packet else 0
    if version not in (4, 6):
        raise NotRoce(f"IP version {version} is neither 4 nor 6", 0)
    return [], EtherType.IPV4 if version == 4 else EtherType.IPV6, 0


_LINKS: dict[Medium, Callable[[bytes], tuple[list[Header], int, int]]] = {
    Medium.ETHERNET: _link,
    Medium.IP: _no_link,
}


def _network(frame: bytes, ethertype: int, offset: int) -> tuple[list[Piece], int, int]:
    """Parse the IP header or GRH; return it, its end offset and the end of its packet."""
    if ethertype == EtherType.IPV4:
        return _ipv4(frame, offset)
    if ethertype == EtherType.IPV6:
        ipv6 = IPv6.parse(frame, offset)
        return [ipv6], *_packet_end(frame, ipv6.next_header, offset + 40, ipv6.payload_length)
    if ethertype == EtherType.ROCE:
        grh = GRH.parse(frame, offset)
        _check_grh(grh, offset)
        return [grh], offset + 40, _within(frame, offset + 40, grh.paylen)
    raise NotRoce(f"EtherType 0x{ethertype:04x} carries no RoCE", offset - 2)


def _ipv4(frame: bytes, offset: int) -> tuple[list[Piece], int, int]:
    ip = IPv4.parse(frame, offset)
    size = ip.ihl * 4
    if ip.version != 4 or size < IPv4.SIZE:
        raise WireError(f"IPv4 version {ip.version} with a header of {size} bytes", offset)
    if ip.mf or ip.fragment_offset:
        raise NotRoce("a fragment of an IPv4 packet: RoCEv2 is never fragmented", offset)
    options: list[Piece] = [frame[offset + IPv4.SIZE : offset + size]] if size > IPv4.SIZE else []
    start, end = _packet_end(frame, ip.protocol, offset + size, ip.total_length - size)
    return [ip, *options], start, end


def _packet_end(frame: bytes, protocol: int, start: int, length: int) -> tuple[int, int]:
    """Return the start and the end offset of the UDP datagram of an IP packet."""
    if protocol != IPProtocol.UDP:
        raise NotRoce(f"IP protocol {protocol} carries no RoCEv2", start)
    return start, _within(frame, start, length)


def _within(frame: bytes, start: int, length: int) -> int:
    """Return the end of ``length`` bytes from ``start``; raise if the packet is truncated."""
    if length < ICRC.SIZE or start + length > len(frame):
        raise WireError(f"{length} bytes announced, {len(frame) - start} are there", start)
    return start + length


def _udp(frame: bytes, offset: int, port: int) -> UDP:
    udp = UDP.parse(frame, offset)
    if udp.dstport != port:
        raise NotRoce(f"UDP port {udp.dstport} is not RoCEv2's {port!r}", offset)
    if udp.length < UDP.SIZE + ICRC.SIZE:
        raise WireError(f"UDP length {udp.length} holds no packet", offset)
    return udp


_ANNOUNCE: dict[type, Callable[[Any, int], Header]] = {
    UDP: lambda udp, length: udp.replace(length=UDP.SIZE + length),
    IPv4: lambda ip, length: ip.replace(total_length=IPv4.SIZE + length),
    IPv6: lambda ip, length: ip.replace(payload_length=length),
    GRH: lambda grh, length: grh.replace(paylen=length),
    LRH: lambda lrh, length: lrh.replace(pktlen=(LRH.SIZE + length) // 4),
}


def _with_lengths(headers: tuple[Piece, ...], length: int) -> tuple[Piece, ...]:
    """Return the headers with correct lengths; ``length`` bytes follow the last one."""
    fitted: list[Piece] = []
    for piece in reversed(headers):
        announce = _ANNOUNCE.get(type(piece))
        fitted.append(announce(piece, length) if announce else piece)
        length += size(piece)
    return tuple(reversed(fitted))


def _with_checksums(headers: tuple[Piece, ...], data: bytes) -> tuple[Piece, ...]:
    """Return the headers with checksums; ``data`` follows the last one."""
    fitted: list[Piece] = []
    for end in range(len(headers), 0, -1):
        fitted.append(_with_checksum(headers[:end], data))
        data = joined(fitted[-1]) + data
    return tuple(reversed(fitted))


def _with_checksum(headers: tuple[Piece, ...], data: bytes) -> Piece:
    """Return the last header with its checksum, if it has one; ``data`` follows it."""
    piece = headers[-1]
    if isinstance(piece, UDP) and piece.checksum:
        return piece.replace(checksum=udp_checksum(ends_of(headers), piece.build() + data))
    if isinstance(piece, IPv4):
        with_options = (piece.build() + data)[: piece.ihl * 4]
        return piece.replace(checksum=ipv4_header_checksum(with_options))
    return piece


def ends_of(headers: tuple[Piece, ...]) -> IPv4 | IPv6:
    """The innermost IP header before the last header, with the addresses covered by checksums."""
    for number, piece in reversed([*enumerate(headers)]):
        if isinstance(piece, IPv4 | IPv6):
            return with_ends(piece, joined(*headers[number + 1 : -1]))
    raise WireError("a UDP header without an IP header before it")
