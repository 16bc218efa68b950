"""A small reader of MPA whose rules are values: to plant bugs in it, as in firmware.

It puts TCP segments in order, and reads start-up frames and FPDUs. It does not search for FPDUs
after bytes that are lost. RFC 5044.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rdmawire.fuzz.mpa_conversation import FPDU, NOT_IWARP, START_UP, StreamItem, TCPSegment
from rdmawire.wire.mpa import (
    FPDUCRC,
    MARKER_SPACING,
    REPLY_KEY,
    REQUEST_KEY,
    FPDULength,
    Marker,
    MPAReply,
    MPARequest,
    StartUpHeader,
    crc_of,
    fpdu_size,
)

_KEYS: Final = (REQUEST_KEY, REPLY_KEY)
_TABLES: Final[tuple[type[StartUpHeader], ...]] = (MPARequest, MPAReply)


class MPARules(NamedTuple):
    """The rules of a reader.

    - ``markers``: given the start-up frames of sender and receiver, whether a stream has Markers.
    - ``checks``: given the flags C of both sides, whether CRCs are in use.
    - ``private``: the bytes of private data of a start-up frame.
    - ``origin``: given the bytes of the start-up frame, the position of the first Marker.
    - ``size``: given the bytes of the ULPDU and its position among Markers, those of the FPDU.
    - ``joins``: whether an FPDU may begin in one segment and end in another.
    - ``fresh``: given the position of a segment and the expected one, the index of its first new
      byte.
    - ``covered``: given the FPDU without CRC and its position among Markers, what the CRC covers.
    - ``waits``: whether a segment that is early is kept until its turn.
    """

    markers: Callable[[StartUpHeader, StartUpHeader], int] = lambda _, receiver: receiver.m
    checks: Callable[[int, int], int] = lambda one, other: one or other
    private: Callable[[StartUpHeader], int] = lambda header: header.pd_length
    origin: Callable[[int], int] = lambda length: length
    size: Callable[[int, int | None], int] = fpdu_size
    joins: bool = True
    fresh: Callable[[int, int], int] = lambda position, expected: expected - position
    covered: Callable[[bytes, int | None], bytes] = lambda data, _: data
    waits: bool = True


MPA_RULES: Final = MPARules()


def without_markers(data: bytes, position: int | None) -> bytes:
    """The bytes of an FPDU without its Markers; ``position`` is its position among them."""
    if position is None:
        return data
    first = -position % MARKER_SPACING
    starts = range(first, len(data), MARKER_SPACING)
    between = (data[at + Marker.SIZE : at + MARKER_SPACING] for at in starts)
    return data[:first] + b"".join(between)


class _Stream:
    """One direction: the bytes that are not read yet, from ``start`` on, and early segments."""

    def __init__(self) -> None:
        self.start = self.expected = 0
        self.buffer = b""
        self.early: list[TCPSegment] = []
        self.header: StartUpHeader | None = None
        self.origin = 0
        self.seen: list[StreamItem] = []


class _SmallReader:
    """Reads one connection."""

    def __init__(self, rules: MPARules) -> None:
        self._rules = rules
        self.streams = _Stream(), _Stream()
        self._over = False

    def take(self, segment: TCPSegment) -> None:
        """Take the next segment of the capture."""
        stream = self.streams[segment.side]
        stream.early.append(segment)
        while not self._over and (one := self._in_turn(stream)) is not None:
            stream.early.remove(one)
            new = one.data[self._rules.fresh(one.position, stream.expected) :]
            if not self._rules.joins:
                stream.start, stream.buffer = stream.expected, b""
            stream.buffer += new
            stream.expected += len(new)
            self._read(segment.side)
            self._read(1 - segment.side)

    def _in_turn(self, stream: _Stream) -> TCPSegment | None:
        """The segment that brings the expected byte; old ones are dropped."""
        if not self._rules.waits:
            return stream.early[0] if stream.early else None
        for one in list(stream.early):
            if one.position + len(one.data) <= stream.expected:
                stream.early.remove(one)
            elif one.position <= stream.expected:
                return one
        return None

    def _read(self, side: int) -> None:
        stream, other = self.streams[side], self.streams[1 - side]
        if stream.header is None:
            self._open(side, stream)
        if stream.header is None or other.header is None:
            return
        markers = self._rules.markers(stream.header, other.header)
        checks = self._rules.checks(stream.header.c, other.header.c)
        while (data := self._next(stream, markers=bool(markers))) is not None:
            position = stream.start - stream.origin if markers else None
            good = self._is_good(data, position)
            status = ("good" if good else "bad") if checks else "absent"
            stream.seen.append(StreamItem(FPDU, stream.start, len(data), status))
            stream.buffer = stream.buffer[len(data) :]
            stream.start += len(data)

    def _open(self, side: int, stream: _Stream) -> None:
        """Read the start-up frame, if it is complete."""
        begun = stream.buffer[: len(_KEYS[side])]
        if not _KEYS[side].startswith(begun):
            stream.seen.append(StreamItem(NOT_IWARP, 0, 0))
            self._over = True
            return
        table = _TABLES[side]
        if len(stream.buffer) < table.SIZE:
            return
        header = table.parse(stream.buffer)
        size = table.SIZE + self._rules.private(header)
        if len(stream.buffer) >= size:
            stream.seen.append(StreamItem(START_UP, stream.start, size))
            stream.header, stream.buffer = header, stream.buffer[size:]
            stream.start += size
            stream.origin = self._rules.origin(size)

    def _next(self, stream: _Stream, *, markers: bool) -> bytes | None:
        """The next FPDU, if it is complete."""
        position = stream.start - stream.origin if markers else None
        at = Marker.SIZE if position is not None and position % MARKER_SPACING == 0 else 0
        head = stream.buffer[at : at + FPDULength.SIZE]
        if len(head) < FPDULength.SIZE:
            return None
        size = self._rules.size(int.from_bytes(head, "big"), position)
        return stream.buffer[:size] if size <= len(stream.buffer) else None

    def _is_good(self, data: bytes, position: int | None) -> bool:
        body, crc = data[: -FPDUCRC.SIZE], data[-FPDUCRC.SIZE :]
        return crc_of(self._rules.covered(body, position)) == int.from_bytes(crc, "big")


def small_reader(
    rules: MPARules = MPA_RULES,
) -> Callable[[Sequence[TCPSegment]], tuple[list[StreamItem], list[StreamItem]]]:
    """Return a reader with these rules, for :class:`rdmawire.fuzz.mpa_fuzzer.MPAFuzzer`."""

    def read(found: Sequence[TCPSegment]) -> tuple[list[StreamItem], list[StreamItem]]:
        reader = _SmallReader(rules)
        for segment in found:
            reader.take(segment)
        first, second = reader.streams
        return first.seen, second.seen

    return read
