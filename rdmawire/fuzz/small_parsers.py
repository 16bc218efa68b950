"""Small parsers whose rules are values: of packets, FPDUs, ICRCs, and of the way to a BTH.

Each is a copy of what the codec does, written as simply as in firmware. Its rules can be replaced,
to plant a bug (:mod:`rdmawire.fuzz.planted_bugs.parser_bugs`). A check parses the same bytes with
the codec, too: both must find the same values, or refuse the bytes.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from rdmawire.errors import WireError
from rdmawire.fuzz.other_values import check_values
from rdmawire.wire import mpa, roce
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, IPv4
from rdmawire.wire.opcode import SHAPES, Payload
from rdmawire.wire.packet import LAYOUTS, Packet

Check = Callable[[bytes], None]
"""Raises :class:`OtherValuesError` if a parser and the codec do not agree about some bytes."""


class SmallParser(NamedTuple):
    """A parser: ``check`` makes its check from its rules.

    ``form`` says what it parses, a name in :data:`rdmawire.fuzz.parser_target.FORMS`; ``header`` is
    the label of a header that its seed frames have, ``""`` for any frames.
    """

    check: Callable[[Any], Check]
    rules: Any
    form: str
    header: str = ""


# Packets, from the BTH to the pad. IBA 9.2.


class PacketRules(NamedTuple):
    """The rules of a packet parser.

    - ``headers``: the labels of the headers after the BTH, by opcode; ``sizes``: their bytes.
    - ``lengths``: whether an opcode's kind of payload allows a number of bytes, pad included.
    - ``pad``: the bytes of pad, of the second byte of the BTH.
    - ``fits``: given the bytes of payload and pad, and the pad count, whether they agree.
    - ``psn``: the PSN, of the last word of the BTH.
    """

    headers: Mapping[int, tuple[str, ...]]
    sizes: Mapping[str, int]
    lengths: Mapping[Payload, Callable[[int], bool]]
    pad: Callable[[int], int] = lambda flags: flags >> 4 & 3
    fits: Callable[[int, int], bool] = lambda left, pad: pad <= left
    psn: Callable[[int], int] = lambda word: word & 0xFF_FFFF


class PacketValues(NamedTuple):
    """What a parser finds in a packet; ``headers`` are the bytes of each after the BTH."""

    opcode: int
    psn: int
    headers: tuple[bytes, ...]
    payload: bytes


def read_packet(data: bytes, rules: PacketRules) -> PacketValues | None:
    """Return the values of a packet, or ``None`` if it is malformed or has a reserved opcode."""
    if len(data) < BTH.SIZE or data[0] not in rules.headers:
        return None
    opcode, pad, at = data[0], rules.pad(data[1]), BTH.SIZE
    headers = []
    for label in rules.headers[opcode]:
        headers.append(data[at : at + rules.sizes[label]])
        at += rules.sizes[label]
    left = len(data) - at
    kind = SHAPES[opcode].payload
    if left < 0 or not rules.fits(left, pad) or not rules.lengths[kind](left):
        return None
    if kind is not Payload.ANY and pad:
        return None
    psn = rules.psn(int.from_bytes(data[8:12], "big"))
    return PacketValues(opcode, psn, tuple(headers), data[at : len(data) - pad])


def _codec_packet(data: bytes) -> PacketValues | None:
    """The values that the codec finds."""
    try:
        bth, headers, payload, _ = Packet.parse(data)
    except WireError:
        return None
    built = tuple(header.build() for header in headers)
    return PacketValues(bth.opcode, bth.psn, built, payload)


_LABELS: Final = {opcode: tuple(shape.headers) for opcode, shape in SHAPES.items()}
PACKET_RULES: Final = PacketRules(
    _LABELS,
    {table.label: table.SIZE for opcode in SHAPES for table in LAYOUTS[opcode].headers},
    {
        Payload.ANY: lambda length: length % 4 == 0,
        Payload.EIGHT: lambda length: length == 8,
        Payload.NONE: lambda length: not length,
    },
)


def packet_check(rules: PacketRules) -> Check:
    """Return the check of a packet parser with these rules."""

    def check(data: bytes) -> None:
        if data[:1] and data[0] in SHAPES:  # opcodes of vendors are the codec's alone
            check_values("packet", read_packet(data, rules), _codec_packet(data))

    return check


# FPDUs of MPA, and the headers of DDP in them. RFC 5044, RFC 5041.


class FPDURules(NamedTuple):
    """The rules of an FPDU parser. ``position`` is where in its stream the FPDU begins.

    - ``pad``: given the bytes of the ULPDU, the bytes of its pad.
    - ``marker``: bytes of the FPDU before its first Marker, at a position.
    - ``crc``: whether the CRC in the FPDU is accepted, and the computed one.
    - ``payload``: given the bytes of the DDP header and of the ULPDU, the bytes after the header;
      ``None`` if the ULPDU is too short.
    """

    pad: Callable[[int], int] = lambda length: -(length + 2) % 4
    marker: Callable[[int], int] = lambda position: -position % mpa.MARKER_SPACING
    crc: Callable[[int, int], bool] = lambda found, expected: found == expected
    payload: Callable[[int, int], int | None] = lambda size, length: (
        length - size if length >= size else None
    )


FPDU_RULES: Final = FPDURules()
TAGGED, UNTAGGED = 14, 18
"""Bytes of the DDP headers. RFC 5041, 4."""
_MARKER: Final = 4
_POSITIONS: Final = (None, 0, 508)


class FPDUValues(NamedTuple):
    """What a parser finds in an FPDU. ``payload`` is what follows the DDP header."""

    ulpdu: bytes
    good: bool
    payload: bytes


def _without_markers(data: bytes, first: int) -> bytes:
    """Remove the Markers, the first after ``first`` bytes."""
    parts, at = [], 0
    while at < len(data):
        following = first if at <= first else at + mpa.MARKER_SPACING - _MARKER
        parts.append(data[at:following])
        at = following + _MARKER
    return b"".join(parts)


def read_fpdu(data: bytes, position: int | None, rules: FPDURules) -> FPDUValues | None:
    """Return the values of the FPDU that ``data`` begins with; ``None`` if it is not complete."""
    first = len(data) if position is None else rules.marker(position)
    content = _without_markers(data, first)
    if len(content) < 2:
        return None
    length = int.from_bytes(content[:2], "big")
    end = 2 + length + rules.pad(length)
    if len(content) < end + 4:
        return None
    ulpdu, crc = content[2 : 2 + length], int.from_bytes(content[end : end + 4], "big")
    size = mpa.fpdu_size(length, position)
    good = rules.crc(crc, mpa.crc_of(data[: size - 4]))
    return FPDUValues(ulpdu, good, _payload(ulpdu, rules))


def _payload(ulpdu: bytes, rules: FPDURules) -> bytes:
    """What follows the DDP header; nothing if it is not complete. Raises ``IndexError``."""
    if not ulpdu:
        return b""
    size = TAGGED if ulpdu[0] & 0x80 else UNTAGGED
    left = rules.payload(size, len(ulpdu))
    if left is None:
        return b""
    if size + left > len(ulpdu):
        raise IndexError(f"{left} bytes after a header of {size}, in {len(ulpdu)}")
    return ulpdu[size : size + left]


def _codec_fpdu(data: bytes, position: int | None) -> FPDUValues | None:
    try:
        fpdu = mpa.parse_fpdu(data, position=position)
    except WireError:
        return None
    ulpdu = fpdu.ulpdu
    size = TAGGED if ulpdu[:1] and ulpdu[0] & 0x80 else UNTAGGED
    return FPDUValues(ulpdu, fpdu.good, ulpdu[size:])


def fpdu_check(rules: FPDURules) -> Check:
    """Return the check of an FPDU parser with these rules."""

    def check(data: bytes) -> None:
        for position in _POSITIONS:
            found, expected = read_fpdu(data, position, rules), _codec_fpdu(data, position)
            where = "without Markers" if position is None else f"at {position} of a stream"
            check_values("FPDU", found, expected, where=where)

    return check


# The way from an Ethernet header to a BTH. IBA A17, RFC 791.


class PathRules(NamedTuple):
    """The rules of a parser that looks for a BTH after Ethernet, IPv4 and UDP.

    - ``size``: bytes of the IPv4 header, of its first byte.
    - ``whole``: whether a packet with these flags and fragment offset is no fragment.
    - ``port``: whether a UDP destination port is that of RoCEv2.
    """

    size: Callable[[int], int] = lambda first: (first & 15) * 4
    whole: Callable[[int], bool] = lambda flags: not flags & 0x3FFF
    port: Callable[[int], bool] = lambda port: port == ROCE_PORT


PATH_RULES: Final = PathRules()
_PROTOCOL_UDP: Final = 17


def find_bth(data: bytes, rules: PathRules) -> int:
    """Return the offset of the BTH in an IPv4 packet after an Ethernet header; -1 without one."""
    at = Ethernet.SIZE
    if len(data) < at + IPv4.SIZE or data[at] >> 4 != 4:
        return -1
    size = rules.size(data[at])
    udp = at + size
    whole = rules.whole(int.from_bytes(data[at + 6 : at + 8], "big"))
    if size < IPv4.SIZE or data[at + 9] != _PROTOCOL_UDP or not whole:
        return -1
    bth = udp + UDP.SIZE
    if bth + BTH.SIZE > len(data) or not rules.port(int.from_bytes(data[udp + 2 : udp + 4], "big")):
        return -1
    return bth


def path_check(rules: PathRules) -> Check:
    """Return the check of a parser with these rules."""

    def check(data: bytes) -> None:
        if data[12:14] == b"\x08\x00" and data[14:15] and data[14] >> 4 == 4:
            found, expected = find_bth(data, rules), roce.bth_offset(data, 0, len(data))
            check_values("offset of the BTH", _offset(found), _offset(expected))

    return check


def _offset(found: int) -> int | str:
    return "no BTH" if found < 0 else found


# ICRCs of RoCEv2 over IPv4 without options. IBA 7.8.1, A17.9.

MASKED: Final = frozenset((1, 8, 10, 11, 26, 27, 32))
"""Bytes from the IPv4 header on that count as ones: DSCP and ECN, TTL, the checksums of IPv4 and
UDP, and the byte with FECN and BECN in the BTH."""


class ICRCRules(NamedTuple):
    """The rules of a check of ICRCs.

    - ``masked``: the bytes from the IPv4 header on that count as ones.
    - ``before``: the bytes before the IPv4 header, in place of an LRH.
    - ``order``: the byte order of the ICRC in the packet.
    """

    masked: Collection[int] = MASKED
    before: bytes = b"\xff" * 8
    order: Any = "little"


ICRC_RULES: Final = ICRCRules()


def icrc_is_good(packet: bytes, rules: ICRCRules) -> bool:
    """Return whether the last four bytes of an IPv4 packet are its ICRC."""
    covered = bytearray(packet[: -ICRC.SIZE])
    for at in rules.masked:
        covered[at] = 0xFF
    crc = crc32(rules.before + covered)
    return packet[-ICRC.SIZE :] == crc.to_bytes(ICRC.SIZE, rules.order)


def icrc_check(rules: ICRCRules) -> Check:
    """Return the check of an ICRC check with these rules."""

    def check(data: bytes) -> None:
        if data[12:15] != b"\x08\x00\x45":
            return
        try:
            frame = roce.parse(data)
        except WireError:
            return
        ends = (14 + int.from_bytes(data[16:18], "big"), 34 + int.from_bytes(data[38:40], "big"))
        if ends == (len(data), len(data)):  # nothing follows the packet
            found, expected = icrc_is_good(data[Ethernet.SIZE :], rules), _codec_icrc(frame)
            check_values("ICRC", _status(found), _status(expected))

    return check


def _status(is_good: bool) -> str:
    return "good" if is_good else "bad"


def _codec_icrc(frame: roce.Frame) -> bool:
    return frame.icrc == frame.expected_icrc()


SMALL_PARSERS: Final = {
    "packet-values": SmallParser(packet_check, PACKET_RULES, "packet"),
    "fpdu-values": SmallParser(fpdu_check, FPDU_RULES, "message", "mpa_fpdu"),
    "bth-offset": SmallParser(path_check, PATH_RULES, "frame"),
    "icrc-status": SmallParser(icrc_check, ICRC_RULES, "frame"),
}
"""The parsers by name."""
