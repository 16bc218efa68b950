"""The headers of a whole frame, iWARP in TCP included, with its length fields and checksums.

It is the walk of :mod:`rdmawire.decode`, continued through the start-up frames and FPDUs of a TCP
payload, as far as a frame alone shows them: without Markers, and from the start of an FPDU.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from rdmawire.capture.record import LinkType
from rdmawire.decode import Checksum, LengthField, Located, walk_frame
from rdmawire.decode.checksum import NOWHERE
from rdmawire.errors import WireError
from rdmawire.wire import mpa, rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.inet import TCP
from rdmawire.wire.layout import Piece

NO_FRAME: Final = -1
"""The link type of bytes that are not a frame, such as the text of a filter."""
_START_UPS: Final = {mpa.REQUEST_KEY: mpa.MPARequest, mpa.REPLY_KEY: mpa.MPAReply}
_MAX_FPDUS: Final = 64
_PD_LENGTH: Final = 18
"""Offset of ``pd_length`` in a start-up frame."""


class FrameMap(NamedTuple):
    """Headers, length fields and checksums of a frame.

    ``fpdus`` are the ranges of complete FPDUs whose CRC is in use (RFC 5044, 4.1: not zero).
    """

    headers: Sequence[Located] = ()
    lengths: Sequence[LengthField] = ()
    checksums: Sequence[Checksum] = ()
    fpdus: Sequence[range] = ()

    def find(self, label: str, number: int = 0) -> Located | None:
        """Return the header ``number`` (from 0, outermost first) with this label, or ``None``."""
        found = [one for one in self.headers if type(one.header).label == label]
        return found[number] if number < len(found) else None


def map_frame(
    data: bytes, link_type: int = LinkType.ETHERNET, *, damaged: bool = False
) -> FrameMap:
    """Return the map of a frame. This raises nothing, whatever the bytes.

    With ``damaged``, FPDUs with a wrong CRC are accepted.
    """
    if link_type == NO_FRAME:
        return FrameMap()
    layout = walk_frame(data, link_type)
    found = FrameMap(layout.headers, layout.lengths, layout.checksums)
    offset, last = layout.headers[-1] if layout.headers else Located(0, Header())
    if isinstance(last, TCP):
        return _with_payload(found, data, offset + 4 * last.data_offset, damaged)
    return found


def _with_payload(found: FrameMap, data: bytes, start: int, damaged: bool) -> FrameMap:
    """Add the headers of MPA, DDP and RDMAP in a TCP payload from ``start`` on."""
    ends = [one.end for one in found.checksums if one.table is TCP and one.end != NOWHERE]
    end = max(min([*ends, len(data)]), start)
    headers, lengths, fpdus = list(found.headers), list(found.lengths), []
    if data[start:end][:16] in _START_UPS:
        with suppress(WireError):
            headers += _start_up(data[:end], start)
            lengths.append(LengthField(start + _PD_LENGTH, start + _PD_LENGTH + 2))
        return FrameMap(headers, lengths, found.checksums)
    for fpdu in _fpdus(data, start, end, damaged):
        headers += _fpdu_headers(fpdu)
        lengths.append(LengthField(fpdu.header, fpdu.header + 2))
        if fpdu.crc:
            fpdus.append(range(fpdu.offset, fpdu.offset + fpdu.size))
    return FrameMap(headers, lengths, found.checksums, fpdus)


def _start_up(data: bytes, start: int) -> Iterator[Located]:
    """Yield the headers of a start-up frame. Raises :class:`WireError` if it is incomplete."""
    table = _START_UPS[data[start : start + 16]]
    head = table.parse(data, start)
    yield Located(start, head)
    if head.s:
        yield Located(start + table.SIZE, mpa.MPAEnhanced.parse(data, start + table.SIZE))


def _fpdus(data: bytes, start: int, end: int, damaged: bool) -> Iterator[mpa.FPDU]:
    """Yield FPDUs up to the first one that is incomplete or cannot be one."""
    for _ in range(_MAX_FPDUS):
        try:
            fpdu = mpa.parse_fpdu(data, start, end)
        except WireError:
            return
        unused = not fpdu.crc and _is_segment(fpdu.ulpdu)
        if not (fpdu.good or damaged or unused):
            return
        yield fpdu
        start += fpdu.size


def _is_segment(ulpdu: bytes) -> bool:
    """Whether an ULPDU is a DDP segment with known versions."""
    return len(ulpdu) > 2 and ulpdu[0] & 3 == rdmap.DDP_VERSION and ulpdu[1] >> 6 == rdmap.VERSION


def _fpdu_headers(fpdu: mpa.FPDU) -> Iterator[Located]:
    yield Located(fpdu.header, mpa.FPDULength(len(fpdu.ulpdu)))
    pieces: list[tuple[int, Piece]] = []
    with suppress(WireError):
        pieces.extend(rdmap.layout(fpdu.ulpdu))
    for offset, piece in pieces:
        if isinstance(piece, Header):
            yield Located(fpdu.header + mpa.FPDULength.SIZE + offset, piece)
    yield Located(fpdu.offset + fpdu.size - mpa.FPDUCRC.SIZE, mpa.FPDUCRC(fpdu.crc))


def sealed(data: bytes, link_type: int, before: FrameMap | None = None) -> bytes:
    """Return the frame with correct checksums, as far as its bytes say what they cover.

    ``before`` is the map of a frame of the same length before a change: checksums that only it
    shows are computed by it.
    """
    damaged = before is not None and bool(before.fpdus)
    found = map_frame(data, link_type, damaged=damaged)
    new = bytearray(data)
    for fpdu in found.fpdus:
        crc = fpdu.stop - mpa.FPDUCRC.SIZE
        new[crc : fpdu.stop] = mpa.FPDUCRC(mpa.crc_of(bytes(new[fpdu.start : crc]))).build()
    known = {one.table for one in found.checksums if one.end != NOWHERE}
    old = [one for one in before.checksums if one.table not in known] if before else []
    for checksum in (*old, *found.checksums):
        with suppress(WireError, IndexError):
            checksum.recompute(new, checksum.end)
    return bytes(new)


def with_broken_checksum(data: bytes, link_type: int) -> bytes:
    """Return the frame with one bit of its innermost checksum inverted."""
    found = map_frame(data, link_type)
    offsets = [fpdu.stop - 1 for fpdu in found.fpdus]
    offsets += [_last_byte(one) for one in found.checksums if one.end != NOWHERE]
    offset = next((one for one in offsets if one < len(data)), None)
    if offset is None:
        return data
    return data[:offset] + bytes((data[offset] ^ 1,)) + data[offset + 1 :]


def _last_byte(checksum: Checksum) -> int:
    """Offset of the last byte of a checksum."""
    return checksum.at + checksum.size - 1
