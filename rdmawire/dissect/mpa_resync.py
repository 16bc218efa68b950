"""Search for FPDUs in a stream whose start was not captured, or that has lost bytes.

Every byte may be the first of an FPDU, and Markers may be anywhere or absent. One pass of a
regular expression finds heads; each one begins a chain or continues one. The search
ends at an FPDU with a good CRC32c, or at a chain with enough evidence.

Bounds: at most ``WINDOW`` bytes and ``CHAINS`` chains are buffered, and may be discarded at any
time (:mod:`rdmawire.dissect.mpa_event`). A credit that grows with the bytes received bounds the
work: reading a head costs ``HEAD_COST``, checking a CRC the bytes it covers. What exceeds the
credit is not examined, so the time per byte is constant for any input.
"""

import re
import struct
from bisect import bisect_left
from collections import deque
from enum import IntEnum
from functools import cache
from heapq import heappop, heappush
from itertools import count
from struct import Struct
from typing import NamedTuple

from rdmawire.wire.mpa import MARKER_SPACING, Marker, fpdu_size, parse_fpdu
from rdmawire.wire.rdmap import SHAPES, Payload, RDMAPControlInvalidate, Shape
from rdmawire.wire.serial import BITS_32, BITS_64

HEAD = 20
"""Bytes of a head that are examined: no FPDU is shorter."""

CONTROL = 2
"""Bytes of a head before the DDP control field."""


@cache
def _heads() -> re.Pattern[bytes]:
    """Return the pattern that finds the DDP control field of heads.

    They have version 1, no reserved bits, and opcode and queue of the same buffer model. The field
    follows the ULPDU length.
    """
    return re.compile(
        rb"[\x01\x41\x81\xc1](?:(?<=[\x81\xc1])(?=[\x40\x42])"
        rb"|(?<=[\x01\x41])(?=[\x41\x43-\x4b].{4}\0\0\0[\0-\3]))",
        re.DOTALL,
    )


class HeaderEvidence(IntEnum):
    """Weight of a head as evidence.

    Tagged heads have few fixed bits, and arrays of numbers often match them (``81 40`` and
    ``C1 40`` end floating-point numbers between 4 and 7): a head equal to the previous one has
    no weight, one with a new STag little. FPDUs that begin and end together with TCP segments
    are evidence, because other protocols do not do that.
    """

    UNTAGGED = 16
    WHOLE = 16
    NEXT_NUMBERS = 24
    NEW_STAG = 6
    KNOWN_STAG = 14
    CONTINUED = 48
    ALIGNED = 8
    FILLS_SEGMENT = 32
    MARKER = 24


class FpduStart(NamedTuple):
    """A possible start of an FPDU: ``numbers`` are STag and TO, or QN, MSN and MO."""

    position: int
    length: int
    data: bytes
    opcode: int
    last: bool
    shape: Shape
    numbers: tuple[int, ...]

    @property
    def identity(self) -> bytes:
        """The bytes that distinguish two heads."""
        return self.data[: _TAGGED.size]

    @property
    def payload(self) -> int:
        """Bytes after the DDP header."""
        return self.length - _DDP_SIZE[self.shape.tagged]


_DDP_SIZE = (18, 14)
_TAGGED = struct.Struct(">HxxIQ")
_UNTAGGED = struct.Struct(">HxxIIII")


def read_head(buffer: bytes | bytearray, index: int, position: int) -> FpduStart | None:
    """The head at ``index``, where 20 bytes are, unless it violates a rule of DDP or RDMAP."""
    data = bytes(buffer[index : index + HEAD])
    control, opcode = data[CONTROL], data[CONTROL + 1] & 15
    shape = SHAPES.get(opcode)
    clean = control & 0x3F == 1 and data[CONTROL + 1] & 0xF0 == 0x40
    if shape is None or not clean or shape.tagged != bool(control & 0x80):
        return None
    if shape.tagged:
        length, stag, to = _TAGGED.unpack_from(data)
        numbers: tuple[int, ...] = (stag, to)
    else:
        length, reserved, *numbers_ = _UNTAGGED.unpack(data)
        numbers = tuple(numbers_)
        if reserved and shape.control is not RDMAPControlInvalidate:
            return None
    head = FpduStart(position, length, data, opcode, bool(control & 0x40), shape, numbers)
    return head if _is_possible(head) else None


def _is_possible(head: FpduStart) -> bool:
    shape = head.shape
    if head.length < shape.size:
        return False
    if shape.tagged:
        return True
    qn, msn, mo = head.numbers
    if qn != shape.queue or not msn:
        return False
    if not shape.whole:
        return True
    return head.last and not mo and (head.length == shape.size or not _has_one_size(shape))


def _has_one_size(shape: Shape) -> bool:
    return shape.payload is Payload.NONE


class Chain:
    """Consecutive FPDUs, as far as known, and the evidence for them.

    ``first`` is the position of the first one, ``start`` and ``end`` are the last one's bounds.
    ``base`` is the position of a Marker, ``None`` without Markers; ``fresh`` says that the last
    head differs from the one of the preceding FPDU.
    """

    __slots__ = (
        *("base", "end", "evidence", "first", "fresh", "head", "links", "start"),
        *("_queues", "_stags", "_tagged"),
    )

    def __init__(self, head: FpduStart, start: int, base: int | None, aligned: bool) -> None:
        self.first, self.base = start, base
        self.evidence = self.links = 0
        self.head, self.fresh = head, True
        self._stags: set[int] = set()
        self._tagged: dict[int, tuple[int, int]] = {}
        self._queues: dict[int, tuple[int, int]] = {}
        self._add(head, start, _alone(head) + aligned * HeaderEvidence.ALIGNED)

    @property
    def next_head(self) -> int:
        """Position of the next head: after the last FPDU, and a Marker if one is due."""
        due = self.base is not None and (self.end - self.base) % MARKER_SPACING == 0
        return self.end + due * Marker.SIZE

    @property
    def stream_position(self) -> int | None:
        """Offset of the last FPDU from a Marker; ``None`` without Markers."""
        return None if self.base is None else (self.start - self.base) % MARKER_SPACING

    def extend(self, head: FpduStart, aligned: bool) -> bool:
        """Add the next head, unless it contradicts the preceding ones."""
        worth = self._worth(head)
        if worth is None:
            return False
        self._add(head, self.end, worth + aligned * HeaderEvidence.ALIGNED)
        return True

    def _add(self, head: FpduStart, start: int, worth: int) -> None:
        self.fresh = not self.links or head.identity != self.head.identity
        self.head, self.start = head, start
        self.end = start + fpdu_size(head.length, self.stream_position)
        self.evidence += worth
        self.links += 1
        if head.shape.tagged:
            stag, to = head.numbers
            self._stags.add(stag)
            self._tagged.pop(head.opcode, None)
            if not head.last:
                self._tagged[head.opcode] = (stag, BITS_64.add(to, head.payload))
        else:
            self._queues[head.numbers[0]] = _next_numbers(head)

    def _worth(self, head: FpduStart) -> int | None:
        """Weight of the head as evidence; ``None`` if it contradicts the chain."""
        if not head.shape.tagged:
            expected = self._queues.get(head.numbers[0])
            if expected is not None and expected != head.numbers[1:]:
                return None
            return _alone(head) + (expected is not None) * HeaderEvidence.NEXT_NUMBERS
        continued = self._tagged.get(head.opcode)
        if continued is not None:
            return HeaderEvidence.CONTINUED if continued == head.numbers else None
        if head.identity == self.head.identity:
            return 0
        return (
            HeaderEvidence.KNOWN_STAG if head.numbers[0] in self._stags else HeaderEvidence.NEW_STAG
        )


def _alone(head: FpduStart) -> int:
    """Weight of a head without a predecessor."""
    if head.shape.tagged:
        return HeaderEvidence.NEW_STAG
    return HeaderEvidence.UNTAGGED + HeaderEvidence.WHOLE * _has_one_size(head.shape)


def _next_numbers(head: FpduStart) -> tuple[int, int]:
    """MSN and MO of the next segment on the same queue. RFC 5041, 5.2 and 5.3."""
    _, msn, mo = head.numbers
    if head.last:
        return BITS_32.add(msn, 1), 0
    return msn, BITS_32.add(mo, head.payload)


ENOUGH = 56
"""Evidence that a chain needs in an unknown stream. It has at least two heads."""

ENOUGH_IF_IWARP = 40
"""Evidence that a chain, or a single head, needs in a stream known to be iWARP."""

WINDOW = 128 << 10
CHAINS = 64
PATIENCE = 256 << 10
"""Bytes without a sign of iWARP after which a stream is classified as not iWARP."""

HEAD_COST = 64
CREDIT_PER_BYTE = 4
FIRST_CREDIT = 256 << 10

_BOUNDARIES = 4096
_BOUNDARY_COST = 40
_CHAIN_COST = 1200
"""Bytes of memory that one boundary, and one chain, take in CPython."""

_WORDS = {n: Struct(f">{n}I") for n in range(MARKER_SPACING // 4 + 1)}


class SyncPoint(NamedTuple):
    """Start of FPDUs. ``base`` is the position of a Marker, ``None`` without Markers.

    ``sure`` says that a CRC has confirmed it. If no Markers were found, there is none in FPDUs
    that begin before ``clear``, nor anywhere from ``MARKER_SPACING`` and four bytes on.
    """

    position: int
    base: int | None
    sure: bool
    clear: int


class Search:
    """The search in one direction, from stream position ``start`` on.

    ``known`` says that the stream is iWARP; ``base`` is the position of a Marker, if known, and
    ``settled`` says that without a ``base`` the stream has no Markers. ``crc`` is whether CRCs are
    in use, ``None`` if unknown. ``patience`` is the number of bytes that an unknown stream may
    still take; ``aligned`` says that a TCP segment begins at ``start``.
    """

    def __init__(
        self,
        start: int,
        *,
        known: bool,
        crc: bool | None = None,
        base: int | None = None,
        settled: bool = False,
        patience: int = PATIENCE,
        aligned: bool = True,
    ) -> None:
        self.origin = self.start = start
        self.known, self.crc, self.base = known, crc, base
        self.patience, self._aligned = patience, aligned
        self._guesses = base is None and not settled
        self._credit = FIRST_CREDIT
        self._order = count()
        self._begin()

    def _begin(self) -> None:
        """Begin at ``start``, with an empty buffer."""
        self.buffer = bytearray()
        self._scanned = self.start
        self._boundaries: list[int] = []
        self._likely = deque([self.start])
        self._chains: dict[int, list[Chain]] = {}
        self._waiting: list[int] = []
        self._due: list[tuple[int, int, Chain]] = []

    @property
    def end(self) -> int:
        """Position of the end of the buffer."""
        return self.start + len(self.buffer)

    @property
    def hopeless(self) -> bool:
        """Whether to classify the stream as not iWARP."""
        return not self.known and self.patience <= 0

    @property
    def kept(self) -> int:
        """Bytes of memory that ``let_go`` would free."""
        chains, boundaries = len(self._waiting), len(self._boundaries)
        return len(self.buffer) + chains * _CHAIN_COST + boundaries * _BOUNDARY_COST

    def let_go(self) -> None:
        """Discard the buffer and continue with the next bytes."""
        self.start = self.end
        self._begin()

    def feed(self, data: bytes) -> SyncPoint | None:
        """Search the bytes of the next segment."""
        if self._aligned:
            self._boundaries.append(self.end)
            self._likely.append(self.end)
        self._aligned = True
        self.patience -= len(data)
        self.buffer += data
        self._credit += CREDIT_PER_BYTE * len(data)
        found = self._scan()
        if found is None:
            self._trim()
        return found

    def _scan(self) -> SyncPoint | None:
        while self._likely and self._likely[0] + HEAD + Marker.SIZE <= self.end:
            self._look_behind_marker(self._likely.popleft())
        limit = len(self.buffer) - HEAD + CONTROL + 1
        for match in _heads().finditer(self.buffer, self._scanned - self.start + CONTROL):
            index = match.start()
            if index >= limit:
                break
            position = self._scanned = self.start + index - CONTROL
            found = self._settle(position) or self._look_at(position)
            if found is not None:
                return found
        self._scanned = max(self._scanned, self.start + limit - CONTROL)
        return self._settle(self.end)

    def _look_at(self, position: int) -> SyncPoint | None:
        """Examine a possible head at ``position``: it continues chains, or begins them."""
        if not self._pay(HEAD_COST):
            return None
        head = read_head(self.buffer, position - self.start, position)
        if head is None:
            return None
        chains = [
            chain
            for chain in self._chains.pop(position, [])
            if chain.first >= self.start and chain.extend(head, self._is_aligned(chain.end, head))
        ]
        chains += self._begun(head, {chain.base for chain in chains})
        for chain in chains:
            found = self._found(chain)
            if found is not None:
                return found
            self._expect(chain)
        return None

    def _look_behind_marker(self, position: int) -> None:
        """Look for a head with a Marker inside, which no pattern matches, at ``position``."""
        index = position - self.start
        data = bytes(self.buffer[index : index + HEAD + Marker.SIZE])
        for place in range(Marker.SIZE, HEAD, Marker.SIZE):
            behind = place + Marker.SIZE
            base = position + place
            if self._may_count_from(base) and data[place:behind] == place.to_bytes(
                Marker.SIZE, "big"
            ):
                head = read_head(data[:place] + data[behind:], 0, position)
                if head is not None:
                    self._expect(self._chain(head, position, base))

    def _may_count_from(self, base: int) -> bool:
        """Whether a Marker may be at ``base``."""
        return self._guesses if self.base is None else (base - self.base) % MARKER_SPACING == 0

    def _begun(self, head: FpduStart, bases: set[int | None]) -> list[Chain]:
        """Chains that ``head`` may begin, for Marker positions other than ``bases``."""
        if self.base is not None:
            return [] if bases else self._begun_at_base(head, self.base)
        before = head.position - Marker.SIZE
        chains = [] if None in bases else [self._chain(head, head.position, None)]
        if self._guesses and self._is_zero_marker(before):
            chains.append(self._chain(head, before, before))
        return chains

    def _begun_at_base(self, head: FpduStart, base: int) -> list[Chain]:
        """Chains that ``head`` may begin if a Marker is known to be at ``base``."""
        place = (head.position - base) % MARKER_SPACING
        # FPDUs and Markers are multiples of four bytes, and this head is no Marker.
        if place % Marker.SIZE or place == 0:
            return []
        start = head.position - (Marker.SIZE if place == Marker.SIZE else 0)
        return [self._chain(head, start, base)] if start >= self.start else []

    def _chain(self, head: FpduStart, start: int, base: int | None) -> Chain:
        return Chain(head, start, base, self._is_aligned(start, head))

    def _expect(self, chain: Chain) -> None:
        """Wait for the end of the chain's last FPDU, and for the next head."""
        if len(self._waiting) < CHAINS:
            heappush(self._due, (chain.end, next(self._order), chain))
            heappush(self._waiting, chain.next_head)
            self._chains.setdefault(chain.next_head, []).append(chain)

    def _settle(self, position: int) -> SyncPoint | None:
        """Check the FPDUs that end before ``position``; discard chains that did not continue."""
        found = None
        while found is None and self._due and self._due[0][0] <= position:
            chain = heappop(self._due)[2]
            if chain.first >= self.start and chain.end <= self.end:
                found = self._judge(chain)
        while self._waiting and self._waiting[0] < min(position, self._scanned):
            self._chains.pop(heappop(self._waiting), None)
        return found

    def _judge(self, chain: Chain) -> SyncPoint | None:
        """Check a complete FPDU: its CRC, its pad, its Markers."""
        data = bytes(self.buffer[chain.start - self.start : chain.end - self.start])
        if not self._pay(len(data)):
            return None
        fpdu = parse_fpdu(data, position=chain.stream_position)
        fits = not any(fpdu.pad) and all(marker.reserved == 0 for _, marker in fpdu.markers)
        fits = fits and not any(fpdu.wrong_markers())
        if fits:
            chain.evidence += HeaderEvidence.MARKER * sum(m.fpduptr > 0 for _, m in fpdu.markers)
            chain.evidence += HeaderEvidence.FILLS_SEGMENT * self._fills_segment(chain)
            if fpdu.good and self.crc is not False:
                return SyncPoint(chain.start, chain.base, True, chain.start)
        if chain.base is None and self._guesses:
            self._try_markers(chain, data)
        if not fits:
            self._drop(chain)
        return self._found(chain) if fits else None

    def _found(self, chain: Chain) -> SyncPoint | None:
        """Return the chain's start if it has enough evidence."""
        enough = ENOUGH_IF_IWARP if self.known else ENOUGH
        if chain.evidence < enough or (chain.links < 2 and not self.known):
            return None
        return SyncPoint(chain.first, chain.base, False, chain.start)

    def _try_markers(self, chain: Chain, data: bytes) -> None:
        """Begin chains for Markers found inside an FPDU that was read without Markers."""
        if not self._pay(HEAD_COST):
            return
        words = min(len(data), MARKER_SPACING) // 4
        head, start = chain.head, chain.start
        for index, word in enumerate(_WORDS[words].unpack_from(data)):
            # A Marker further ahead would be in the head, which was read without one.
            if word == 4 * index and 4 * index >= HEAD:
                self._expect(self._chain(head, start, start + 4 * index))

    def _drop(self, chain: Chain) -> None:
        waiting = self._chains.get(chain.next_head, [])
        if chain in waiting:
            waiting.remove(chain)

    def _is_aligned(self, start: int, head: FpduStart) -> bool:
        """Whether a TCP segment begins at ``start`` and holds all or much of the FPDU."""
        end = self._segment_end(start)
        return end is not None and end - start >= min(head.length, MARKER_SPACING)

    def _fills_segment(self, chain: Chain) -> bool:
        """Whether the last FPDU fills exactly one TCP segment, and its head is ``fresh``."""
        return chain.fresh and self._segment_end(chain.start) == chain.end

    def _segment_end(self, start: int) -> int | None:
        """End of the TCP segment that begins at ``start``; ``None`` if none does."""
        index = bisect_left(self._boundaries, start)
        if index == len(self._boundaries) or self._boundaries[index] != start:
            return None
        after = self._boundaries[index + 1 : index + 2]
        return after[0] if after else self.end

    def _is_zero_marker(self, position: int) -> bool:
        index = position - self.start
        return index >= 0 and not any(self.buffer[index : index + Marker.SIZE])

    def _pay(self, cost: int) -> bool:
        if cost > self._credit:
            return False
        self._credit -= cost
        return True

    def _trim(self) -> None:
        """Discard bytes that no chain needs."""
        firsts = [chain.first for chains in self._chains.values() for chain in chains]
        needed = min([self._scanned - Marker.SIZE, *firsts])
        start = max(self.start, needed, self.end - WINDOW)
        del self.buffer[: start - self.start]
        self.start = start
        self._scanned = max(self._scanned, start)
        del self._boundaries[: bisect_left(self._boundaries, start)]
        del self._boundaries[:-_BOUNDARIES]
