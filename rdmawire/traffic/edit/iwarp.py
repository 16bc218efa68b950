"""Editing of iWARP: FPDUs span TCP segments, and segments may be retransmitted.

A frame waits until all FPDUs with bytes in it are known, and then is emitted in order. A
:data:`Finder` reassembles streams and reports the FPDUs.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar, cast

from rdmawire.decode import Checksum, FrameLayout, Hosts, Located
from rdmawire.decode.checksum import TransportSum
from rdmawire.errors import WireError
from rdmawire.traffic.edit.editor import ChecksumMode, ChecksumUpdater, Draft, Editor
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire import rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import FPDU, FPDUCRC, FPDULength, crc_of
from rdmawire.wire.tables import tables_of

INSIDE: Final[tuple[type[Header], ...]] = (
    *tables_of("rdmap", "terminate"),
    FPDUCRC,
)
"""Headers inside FPDUs."""


class FpduPosition(NamedTuple):
    """An FPDU that begins at byte ``position`` of a stream.

    ``bytes`` are its captured bytes, from its first one on, as are the offsets of ``fpdu``;
    ``judged``: it is complete, and CRCs are in use.
    """

    position: int
    data: bytes
    fpdu: FPDU
    judged: bool


class Patch(NamedTuple):
    """Bits of a stream to flip, from byte ``position`` on."""

    position: int
    change: bytes

    @property
    def end(self) -> int:
        """The end offset."""
        return self.position + len(self.change)


class _FPDUChecksum(Checksum):
    """The CRC at the end of an FPDU, which covers Markers. RFC 5044, 4.4."""

    table = FPDUCRC
    size = FPDUCRC.SIZE

    def __init__(self, end: int) -> None:
        self.at = end - self.size
        self.end = end

    def adjust(self, old: bytes, new: bytearray, reach: int, end: int) -> None:  # noqa: ARG002
        change = crc_of(old[: self.at]) ^ crc_of(bytes(new[: self.at]))
        self.put(new, int.from_bytes(old[self.at :], "big") ^ change, end)

    def recompute(self, new: bytearray, end: int) -> None:
        self.put(new, crc_of(bytes(new[: self.at])), end)


def has_business_inside(rules: Sequence[EditRule], checksum_updater: ChecksumUpdater) -> bool:
    """Whether anything inside FPDUs may change."""
    return checksum_updater.checksum_mode is ChecksumMode.ALL or any(
        rule.concerns(t) for rule in rules for t in INSIDE
    )


class FPDUEditor:
    """Applies rules to FPDUs."""

    def __init__(self, rules: Sequence[EditRule], checksum_updater: ChecksumUpdater) -> None:
        self._rules = rules
        self._checksum_updater = checksum_updater

    def patches(self, found: FpduPosition, hosts: Hosts) -> Iterator[Patch]:
        """Yield the changes of an FPDU sent from one host to another."""
        new = bytearray(found.data)
        checksums = [_FPDUChecksum(len(new))] if found.judged else []
        self._change(found, hosts, checksums, new)
        ends = ((each, each.end) for each in checksums)
        self._checksum_updater.seal(ends, found.data, new, len(new))
        crc = len(new) - FPDUCRC.SIZE
        for start, end in ((0, crc), (crc, len(new))):
            yield from _patch(found.data[start:end], new[start:end], found.position + start)

    def _change(
        self, found: FpduPosition, hosts: Hosts, checksums: Sequence[Checksum], new: bytearray
    ) -> None:
        """Change the fields of an FPDU, as far as it was captured."""
        fpdu = found.fpdu
        old = fpdu.ulpdu_before(len(found.data))
        headers: list[Located] = []
        with suppress(WireError):  # the preceding headers are still known
            headers.extend(
                Located(at, piece) for at, piece in rdmap.layout(old) if isinstance(piece, Header)
            )
        ulpdu = bytearray(old)
        for rule in self._rules:
            for op in rule.ops(FrameLayout(headers, hosts, checksums)):
                op.run(old, ulpdu)
        for at, byte in enumerate(ulpdu):
            if byte != old[at]:
                new[fpdu.offset_of(FPDULength.SIZE + at)] = byte


def _patch(old: bytes, new: bytearray, position: int) -> Iterator[Patch]:
    """Yield the differing bits, if there are any."""
    change = (int.from_bytes(old, "big") ^ int.from_bytes(new, "big")).to_bytes(len(old), "big")
    if any(change):
        bare = change.lstrip(b"\0")
        yield Patch(position + len(change) - len(bare), bare.rstrip(b"\0"))


MAX_WAITING: Final = 4096
MAX_BYTES: Final = 16 << 20
"""Maximum number and bytes of waiting frames; beyond either, the first one is emitted."""
MAX_STREAMS: Final = 4096
MAX_PATCHES: Final = 1024
"""Maximum connections remembered, and patches of each for retransmitted segments."""

T = TypeVar("T")


class Arrived(NamedTuple):
    """The contribution of a TCP segment to its connection, which may be iWARP.

    Its payload begins at byte ``position`` of the stream in this ``direction`` (0 or 1). All FPDUs
    up to byte ``known`` of it have been reported; ``found`` are the new ones.
    """

    connection: Hashable
    direction: int
    position: int
    known: int
    found: Sequence[FpduPosition]


NOT_IWARP: Final = 1 << 62
"""Value of ``known`` for a stream that is not iWARP."""

Finder = Callable[[Hosts, TCP, bytes, int], Arrived | None]
"""Takes a segment: its addresses, its header, its payload, and the payload's length (bytes).

It returns what the segment completes, or ``None`` if the connection cannot be iWARP.
"""


class _Stream:
    """One direction of a connection: its patches in stream order, and its waiting frames."""

    def __init__(self) -> None:
        self.known = 0
        self.patches: list[Patch] = []
        self.waiting: list[_BufferedSegment] = []

    def enter(self, segment: "_BufferedSegment") -> None:
        """Add a waiting segment, and apply the patches to it if it is a retransmission."""
        if segment.position < self.known:
            segment.apply(self.patches)
        self.waiting.append(segment)

    def add(self, patches: list[Patch]) -> None:
        """Apply patches to the waiting segments, and keep them for retransmissions."""
        for segment in self.waiting:
            segment.apply(patches)
        self.patches += patches
        del self.patches[:-MAX_PATCHES]


class _BufferedSegment:
    """A segment that may change, with bytes ``position`` to ``end`` of its stream.

    ``draft`` is ``None`` if the frame stays unchanged.
    """

    def __init__(self, draft: Draft | None, payload: range, stream: _Stream, position: int) -> None:
        self.draft = draft
        self.stream = stream
        self.position = position
        self.end = position + len(payload)
        self._payload = payload

    def apply(self, patches: Sequence[Patch]) -> None:
        """Flip the bits of patches that are in the segment."""
        if self.draft is None:
            return
        first = bisect_right(patches, self.position, key=lambda patch: patch.end)
        for at in range(first, len(patches)):
            if patches[at].position >= self.end:
                break
            self._turn(self.draft.new, patches[at])

    def _turn(self, new: bytearray, patch: Patch) -> None:
        for position, byte in enumerate(patch.change, patch.position):
            if self.position <= position < self.end:
                new[self._payload.start + position - self.position] ^= byte


class _Waiting(NamedTuple, Generic[T]):
    """A frame in the queue: its edited bytes, if known, and its segment, if that may change."""

    item: T
    data: bytes
    segment: _BufferedSegment | None


class StreamEditor(Generic[T]):
    """Edits frames, and the FPDUs in them. Each frame comes with an ``item``."""

    def __init__(self, editor: Editor, find: Finder) -> None:
        self._editor = editor
        self._find = find
        self._fpdus = FPDUEditor(editor.rules, editor.checksum_updater)
        self._streams: OrderedDict[Hashable, tuple[_Stream, _Stream]] = OrderedDict()
        self._queue: deque[_Waiting[T]] = deque()
        self._bytes = 0

    def take(
        self, item: T, data: bytes, link_type: int, *, edit: bool = True
    ) -> Iterator[tuple[T, bytes]]:
        """Take a frame, and yield the frames that need not wait any longer.

        A frame with ``edit`` false is used only to parse the stream.
        """
        waiting = self._waiting(item, data, link_type, edit=edit)
        if waiting.segment is None and not self._queue:
            yield item, waiting.data
            return
        self._queue.append(waiting)
        self._bytes += len(data)
        while self._queue and self._is_done(self._queue[0]):
            yield self._next()

    def rest(self) -> Iterator[tuple[T, bytes]]:
        """Yield the frames that still wait, at the end of the capture."""
        while self._queue:
            yield self._next()

    def _is_done(self, first: _Waiting[T]) -> bool:
        segment = first.segment
        if len(self._queue) > MAX_WAITING or self._bytes > MAX_BYTES:
            return True
        return segment is None or segment.end <= segment.stream.known

    def _next(self) -> tuple[T, bytes]:
        item, data, segment = self._queue.popleft()
        self._bytes -= len(data)
        if segment is None:
            return item, data
        segment.stream.waiting.remove(segment)
        return item, data if segment.draft is None else self._editor.finish(segment.draft)

    def _waiting(self, item: T, data: bytes, link_type: int, *, edit: bool) -> _Waiting[T]:
        """Return the queue entry of a frame; it has a segment if its stream may be iWARP."""
        known = self._editor.edit_known(data, link_type) if edit else None
        if known is not None:
            return _Waiting(item, known, None)
        layout = self._editor.layout(data, link_type)
        tcp = _tcp(layout)
        draft = None
        if edit:
            draft = self._editor.draft(data, link_type, layout, learn=tcp is None)
        segment = self._segment(data, layout, tcp, draft) if tcp is not None else None
        if segment is None and draft is not None:
            return _Waiting(item, self._editor.finish(draft), None)
        return _Waiting(item, data, segment)

    def _segment(
        self, data: bytes, layout: FrameLayout, tcp: Located, draft: Draft | None
    ) -> _BufferedSegment | None:
        """Return the segment of a frame, if it has to wait."""
        header = cast(TCP, tcp.header)
        if header.data_offset * 4 < TCP.SIZE:
            return None
        payload, length = _payload(data, layout, tcp.offset + header.data_offset * 4)
        arrived = self._find(layout.hosts, header, data[payload.start : payload.stop], length)
        if arrived is None:
            return None
        directions = self._directions(arrived.connection)
        stream = directions[arrived.direction]
        segment = _BufferedSegment(draft, payload, stream, arrived.position)
        if payload:
            stream.enter(segment)
        patches = (self._fpdus.patches(found, layout.hosts) for found in arrived.found)
        stream.add(list(chain.from_iterable(patches)))
        for each in directions if arrived.known == NOT_IWARP else (stream,):
            each.known = max(each.known, arrived.known)
        return segment if payload else None

    def _directions(self, connection: Hashable) -> tuple[_Stream, _Stream]:
        """Return both directions of a connection."""
        if connection not in self._streams and len(self._streams) >= MAX_STREAMS:
            self._streams.popitem(last=False)
        directions = self._streams.setdefault(connection, (_Stream(), _Stream()))
        self._streams.move_to_end(connection)
        return directions


def _tcp(layout: FrameLayout) -> Located | None:
    """Return the TCP header of a frame that carries a complete segment."""
    checksum = next((each for each in layout.checksums if isinstance(each, TransportSum)), None)
    if checksum is None or checksum.table is not TCP or not checksum.whole:
        return None
    return next(each for each in reversed(layout.headers) if isinstance(each.header, TCP))


def _payload(data: bytes, layout: FrameLayout, start: int) -> tuple[range, int]:
    """Return the offsets of the payload of a TCP segment, and its length on the wire (bytes)."""
    end = next(each.end for each in layout.checksums if each.table is TCP)
    if end > len(data):
        end = layout.lengths[-1].end(data)
    start = min(start, len(data))
    return range(start, max(start, min(end, len(data)))), max(end - start, 0)
