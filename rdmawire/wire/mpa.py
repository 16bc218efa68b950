"""MPA: framing of DDP segments in a TCP stream. RFC 5044, with the start-up of RFC 6581.

A connection begins with one start-up frame in each direction; FPDUs follow. An FPDU consists of
the ULPDU length, the ULPDU, a pad to a multiple of four bytes and a CRC32c. If the receiver
requested Markers, every 512th byte of the stream begins a Marker of four bytes, even inside an
FPDU. Positions are bytes of the stream counted from the first Marker, immediately before the
first FPDU (RFC 5044, section 4.3).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from rdmawire.errors import WireError
from rdmawire.wire.header import Header, bits, flag, group, raw
from rdmawire.wire.show import BOOL, HEX, PRESENCE, TEXT

REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
"""Keys at the start of the initiator's and the responder's start-up frames. RFC 5044, 7.1.1."""

MAX_PRIVATE_DATA = 512
"""Maximum bytes of private data in a start-up frame. RFC 5044, 7.1.1."""

MARKER_SPACING = 512
"""Bytes of the stream from one Marker to the next. RFC 5044, 4.3."""

NOT_NEGOTIATED = 0x3FFF
"""IRD or ORD of a sender that does not negotiate. RFC 6581, 9.1."""


class StartUpHeader(Header, abstract=True):
    """Start-up frames: a key, which says whose it is, and rows that both sides have."""

    key: bytes = raw(16)
    m: int = flag("iwarp_mpa.marker_flag")
    c: int = flag("iwarp_mpa.crc_flag")
    r: int = flag("iwarp_mpa.rej_flag")
    reserved: int = group("iwarp_mpa.res", "s", "res", show=HEX)
    s: int = flag(clause="RFC 6581, 6")
    res: int = bits(4, "", HEX)
    rev: int = bits(8, "iwarp_mpa.rev", default=1)
    pd_length: int = bits(16, "iwarp_mpa.pdlength")


class MPARequest(
    StartUpHeader,
    clause="RFC 5044, 7.1.1",
    wireshark="iwarp_mpa.req",
    label="mpa_request",
    show=PRESENCE,
):
    """Start-up frame of the initiator; ``pd_length`` bytes of private data follow."""

    key: bytes = raw(16, "iwarp_mpa.key.req", tree=TEXT, default=REQUEST_KEY)


class MPAReply(
    StartUpHeader,
    clause="RFC 5044, 7.1.1",
    wireshark="iwarp_mpa.rep",
    label="mpa_reply",
    show=PRESENCE,
):
    """Start-up frame of the responder; ``pd_length`` bytes of private data follow."""

    key: bytes = raw(16, "iwarp_mpa.key.rep", tree=TEXT, default=REPLY_KEY)


def depth_words(depth: int) -> str:
    """Describe a special IRD or ORD."""
    return "NOT_NEGOTIATED" if depth == NOT_NEGOTIATED else ""


def _offer(words: str) -> Any:
    """A row: a control flag, with the description of a set one."""
    return bits(1, "", BOOL, words=lambda value: words if value else "", clause="RFC 6581, 9.2")


class MPAEnhanced(Header, clause="RFC 6581, 9", label="mpa_enhanced"):
    """Enhanced data: a peer-to-peer; b Send, c Write, d Read as ready to receive; ird, ord.

    The private data of a frame with ``s`` set begins with it. In the peer-to-peer model the
    initiator's first message is empty and says that it is ready to receive (RTR): ``b``, ``c``
    and ``d`` are the kinds of message offered for it. ``ird`` and ``ord`` are how many RDMA Reads
    the sender takes at once, and how many it makes.
    """

    a: int = _offer("PEER_TO_PEER")
    b: int = _offer("RTR_BY_ZERO_LENGTH_FULPDU")
    ird: int = bits(14, words=depth_words, clause="RFC 6581, 9.1")
    c: int = _offer("RTR_BY_RDMA_WRITE")
    d: int = _offer("RTR_BY_RDMA_READ")
    ord: int = bits(14, words=depth_words, clause="RFC 6581, 9.1")


class Marker(
    Header, clause="RFC 5044, 4.2", wireshark="iwarp_mpa.markers", label="mpa_marker", show=PRESENCE
):
    """Marker: bytes from the ULPDU length to here; zero where it stands between FPDUs."""

    reserved: int = bits(16, "iwarp_mpa.marker_res", HEX)
    fpduptr: int = bits(16, "iwarp_mpa.marker_fpduptr")


class FPDULength(
    Header, clause="RFC 5044, 4.1", wireshark="iwarp_mpa.fpdu", label="mpa_fpdu", show=PRESENCE
):
    """The header of an FPDU: bytes of its ULPDU."""

    ulpdu_length: int = bits(16, "iwarp_mpa.ulpdulength")


class FPDUCRC(Header, clause="RFC 5044, 4.4", label="mpa_crc"):
    """CRC32c in use; the number is its bytes as they stand on the wire."""

    crc: int = bits(32, "iwarp_mpa.crc_check", HEX)


class UnusedCRC(Header, clause="RFC 5044, 4.1", label="mpa_unused_crc"):
    """The same bytes where CRCs are not in use: any value, never checked."""

    crc: int = bits(32, "iwarp_mpa.crc", HEX)


_LENGTH, _CRC = FPDULength.SIZE, FPDUCRC.SIZE
_BETWEEN = MARKER_SPACING - Marker.SIZE


class FPDU(NamedTuple):
    """An FPDU at ``offset`` in its buffer, of ``size`` bytes including Markers.

    ``crc`` is the value of its CRC field and ``expected`` the computed CRC. ``markers`` are those
    inside it, with their offsets in the buffer.
    """

    offset: int
    size: int
    ulpdu: bytes
    pad: bytes
    crc: int
    expected: int
    markers: tuple[tuple[int, Marker], ...] = ()

    @property
    def good(self) -> bool:
        """Whether the CRC is correct; meaningless if CRCs are not in use."""
        return self.crc == self.expected

    @property
    def header(self) -> int:
        """Offset of the ULPDU length, after a leading Marker."""
        return self.offset + (self._first_marker == 0) * Marker.SIZE

    @property
    def _first_marker(self) -> int:
        """Bytes before the first Marker; all bytes if there is none."""
        return self.markers[0][0] - self.offset if self.markers else self.size

    def offset_of(self, byte: int) -> int:
        """Offset in the buffer of a byte counted without Markers from the ULPDU length."""
        return self.offset + with_markers(byte, self._first_marker)

    def ulpdu_before(self, end: int) -> bytes:
        """The part of the ULPDU before ``end`` in the buffer, without Markers."""
        places = range(len(self.ulpdu))
        length = bisect_left(places, end, key=lambda at: self.offset_of(_LENGTH + at))
        return self.ulpdu[:length]

    def wrong_markers(self) -> Iterator[tuple[int, int]]:
        """Yield offsets of Markers with an invalid pointer, and the correct pointers."""
        for offset, marker in self.markers:
            # RFC 5044, section 4.2: the two lowest bits count as zero.
            expected = max(offset - self.header, 0)
            if marker.fpduptr & ~3 != expected:
                yield offset, expected


def with_markers(byte: int, first: int) -> int:
    """Offset of a byte of an FPDU with Markers inserted, the first after ``first`` bytes.

    Both are counted from the FPDU's first byte; ``byte`` excludes Markers.
    """
    if byte < first:
        return byte
    return byte + Marker.SIZE * (1 + (byte - first) // _BETWEEN)


def fpdu_size(ulpdu_length: int, position: int | None = None) -> int:
    """Size of an FPDU in bytes at this stream position, ``None`` for a stream without Markers."""
    # RFC 5044, section 4.1: the pad makes the FPDU a multiple of four bytes.
    size = (_LENGTH + ulpdu_length + 3) // 4 * 4 + _CRC
    if position is None:
        return size
    # A Marker immediately after the CRC belongs to the next FPDU (section 4.3).
    return with_markers(size - 1, -position % MARKER_SPACING) + 1


def mulpdu(emss: int, markers: bool = False) -> int:
    """MULPDU: the longest ULPDU that fits a TCP segment of ``emss`` bytes. RFC 5044, 4.5."""
    overhead = _LENGTH + _CRC + emss % 4
    return emss - overhead - (Marker.SIZE * -(-emss // MARKER_SPACING) if markers else 0)


def size_at(buffer: bytes | bytearray, offset: int, end: int, position: int | None = None) -> int:
    """Size in bytes of the FPDU at ``offset``; 0 if its length field is incomplete at ``end``."""
    header = offset + _leading(position)
    if header + _LENGTH > end:
        return 0
    return fpdu_size(buffer[header] << 8 | buffer[header + 1], position)


def parse_fpdu(
    buffer: bytes | bytearray, offset: int = 0, end: int | None = None, position: int | None = None
) -> FPDU:
    """Parse the FPDU at ``offset``; the available bytes end at ``end``.

    ``position`` is its stream position, or ``None`` if the stream has no Markers. Raises
    :class:`WireError` if the FPDU is incomplete. The CRC is computed but not checked: start-up
    decides whether CRCs are in use.
    """
    limit = len(buffer) if end is None else end
    size = size_at(buffer, offset, limit, _aligned(position))
    if not size or offset + size > limit:
        needs = f"takes {size}" if size else f"header takes {_leading(position) + _LENGTH}"
        raise WireError(f"FPDU {needs} bytes, {max(limit - offset, 0)} are left", offset)
    crc = offset + size - _CRC
    covered = bytes(buffer[offset:crc])
    found = int.from_bytes(buffer[crc : offset + size], "big")
    markers, content = _without_markers(covered, position, offset)
    ulpdu = _LENGTH + (content[0] << 8 | content[1])
    return FPDU(
        offset, size, content[_LENGTH:ulpdu], content[ulpdu:], found, crc_of(covered), markers
    )


def build_fpdu(ulpdu: bytes, *, crc: bool = True, position: int | None = None) -> bytes:
    """Build an FPDU with this ULPDU; ``position`` as for :func:`parse_fpdu`.

    Without ``crc`` the CRC field is zero. :class:`WireError` if the ULPDU is too long.
    """
    content = FPDULength(len(ulpdu)).build() + ulpdu
    content += bytes(-len(content) % 4)
    covered = b"".join(_marked(content, _aligned(position)))
    return covered + FPDUCRC(crc_of(covered) if crc else 0).build()


def crc_of(covered: bytes) -> int:
    """The CRC field's value for an FPDU whose other bytes, Markers included, are ``covered``.

    RFC 5044, section 4.4, with section 4.3: the CRC covers Markers inside the FPDU and a Marker
    immediately before it.
    """
    # The CRC's lowest byte is sent first, as captures of Linux's siw show.
    return int.from_bytes(_crc32c()(covered).to_bytes(4, "little"), "big")


@cache
def _crc32c() -> Callable[[bytes], int]:
    from crc32c import crc32c  # takes 20 ms to import

    return crc32c


def _leading(position: int | None) -> int:
    """Size in bytes of the Marker, if any, before the ULPDU length of the FPDU at this position."""
    return Marker.SIZE if position is not None and position % MARKER_SPACING == 0 else 0


def _aligned(position: int | None) -> int | None:
    # RFC 5044, section 4.3: FPDUs and Markers are multiples of four bytes.
    if position is not None and position % 4:
        raise WireError(f"an FPDU at position {position} of the stream: not a multiple of four")
    return position


_Markers = tuple[tuple[int, Marker], ...]


def _without_markers(covered: bytes, position: int | None, offset: int) -> tuple[_Markers, bytes]:
    """Split an FPDU that begins at ``offset`` into its Markers and its other bytes."""
    first = len(covered) if position is None else -position % MARKER_SPACING
    if first >= len(covered):
        return (), covered
    places = range(first, len(covered), MARKER_SPACING)
    between = (covered[at + Marker.SIZE : at + MARKER_SPACING] for at in places)
    markers = tuple((offset + at, Marker.parse(covered, at)) for at in places)
    return markers, b"".join([covered[:first], *between])


def _marked(content: bytes, position: int | None) -> Iterator[bytes]:
    """Insert Markers into the bytes of an FPDU before its CRC."""
    # The CRC field counts for Marker positions: one may come immediately before it.
    first = len(content) + _CRC if position is None else -position % MARKER_SPACING
    yield content[:first]
    for at in range(first, len(content) + _CRC, _BETWEEN):
        pointer = with_markers(at, first) - Marker.SIZE
        yield Marker(0, pointer - (Marker.SIZE if first == 0 and at else 0)).build()
        yield content[at : at + _BETWEEN]
