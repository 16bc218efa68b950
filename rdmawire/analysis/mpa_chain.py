"""How likely it is that octets are FPDUs: heads that could begin one, and chains of them.

A head is the ULPDU length with the DDP and RDMAP headers behind it. One alone proves little, for
any binary data holds some by accident. FPDUs follow one another without a gap, so each head must
stand where the FPDU before it ends, and agree with it. What agreement is worth is counted in
:class:`Evidence`, roughly in bits: the doubt halves with each.
"""

import re
import struct
from enum import IntEnum
from typing import NamedTuple

from rdmawire.wire.mpa import MARKER_SPACING, Marker, fpdu_size
from rdmawire.wire.rdmap import SHAPES, Payload, RDMAPControlInvalidate, Shape
from rdmawire.wire.serial import BITS_32, BITS_64

HEAD = 20
"""Octets of a head that are looked at: no FPDU is shorter."""

HEADS = re.compile(
    rb"[\x01\x41\x81\xc1](?:(?<=[\x81\xc1])(?=[\x40\x42])"
    rb"|(?<=[\x01\x41])(?=[\x41\x43-\x4b].{4}\0\0\0[\0-\3]))",
    re.DOTALL,
)
"""Finds the DDP control field of heads: version 1, no reserved bits, opcode and queue of the same
buffer model. It stands behind the ULPDU length."""

CONTROL = 2
"""Octets of a head before the DDP control field."""


class Evidence(IntEnum):
    """What a head is worth.

    Tagged heads have few fixed bits, and arrays of numbers are full of them (``81 40`` and
    ``C1 40`` end floating-point numbers between 4 and 7): a head equal to the one before it is
    worth nothing, one with an STag not met before little. What senders of anything else do not
    do is to make FPDUs and TCP segments begin and end together.
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


class Head(NamedTuple):
    """The beginning of an FPDU, perhaps: ``numbers`` are STag and TO, or QN, MSN and MO."""

    position: int
    length: int
    octets: bytes
    opcode: int
    last: bool
    shape: Shape
    numbers: tuple[int, ...]

    @property
    def identity(self) -> bytes:
        """The octets in which two heads can be told apart."""
        return self.octets[: _TAGGED.size]

    @property
    def payload(self) -> int:
        """Octets behind the DDP header."""
        return self.length - _DDP_SIZE[self.shape.tagged]


_DDP_SIZE = (18, 14)
_TAGGED = struct.Struct(">HxxIQ")
_UNTAGGED = struct.Struct(">HxxIIII")


def read_head(buffer: bytes | bytearray, index: int, position: int) -> Head | None:
    """The head at ``index``, where 20 octets are, unless it breaks a rule of DDP or RDMAP."""
    octets = bytes(buffer[index : index + HEAD])
    control, opcode = octets[CONTROL], octets[CONTROL + 1] & 15
    shape = SHAPES.get(opcode)
    clean = control & 0x3F == 1 and octets[CONTROL + 1] & 0xF0 == 0x40
    if shape is None or not clean or shape.tagged != bool(control & 0x80):
        return None
    if shape.tagged:
        length, stag, to = _TAGGED.unpack_from(octets)
        numbers: tuple[int, ...] = (stag, to)
    else:
        length, reserved, *numbers_ = _UNTAGGED.unpack(octets)
        numbers = tuple(numbers_)
        if reserved and shape.control is not RDMAPControlInvalidate:
            return None
    head = Head(position, length, octets, opcode, bool(control & 0x40), shape, numbers)
    return head if _is_possible(head) else None


def _is_possible(head: Head) -> bool:
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
    """FPDUs that follow one another, as far as known, and what speaks for them.

    ``first`` is where the first one begins, ``start`` and ``end`` are the last one's bounds.
    ``base`` is where Markers count from, ``None`` without Markers; ``fresh`` says that the last
    head is not that of the FPDU before.
    """

    __slots__ = (
        *("base", "end", "evidence", "first", "fresh", "head", "links", "start"),
        *("_queues", "_stags", "_tagged"),
    )

    def __init__(self, head: Head, start: int, base: int | None, aligned: bool) -> None:
        self.first, self.base = start, base
        self.evidence = self.links = 0
        self.head, self.fresh = head, True
        self._stags: set[int] = set()
        self._tagged: dict[int, tuple[int, int]] = {}
        self._queues: dict[int, tuple[int, int]] = {}
        self._add(head, start, _alone(head) + aligned * Evidence.ALIGNED)

    @property
    def next_head(self) -> int:
        """Where the next head must stand: behind the last FPDU, and a Marker if one is due."""
        due = self.base is not None and (self.end - self.base) % MARKER_SPACING == 0
        return self.end + due * Marker.SIZE

    @property
    def stream_position(self) -> int | None:
        """Where the last FPDU begins, counted from a Marker; ``None`` without Markers."""
        return None if self.base is None else (self.start - self.base) % MARKER_SPACING

    def extend(self, head: Head, aligned: bool) -> bool:
        """Add the next head, unless it contradicts those before."""
        worth = self._worth(head)
        if worth is None:
            return False
        self._add(head, self.end, worth + aligned * Evidence.ALIGNED)
        return True

    def _add(self, head: Head, start: int, worth: int) -> None:
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

    def _worth(self, head: Head) -> int | None:
        """What the head adds to the chain; ``None`` if the two cannot both be right."""
        if not head.shape.tagged:
            expected = self._queues.get(head.numbers[0])
            if expected is not None and expected != head.numbers[1:]:
                return None
            return _alone(head) + (expected is not None) * Evidence.NEXT_NUMBERS
        continued = self._tagged.get(head.opcode)
        if continued is not None:
            return Evidence.CONTINUED if continued == head.numbers else None
        if head.identity == self.head.identity:
            return 0
        return Evidence.KNOWN_STAG if head.numbers[0] in self._stags else Evidence.NEW_STAG


def _alone(head: Head) -> int:
    """What a head is worth that nothing came before."""
    if head.shape.tagged:
        return Evidence.NEW_STAG
    return Evidence.UNTAGGED + Evidence.WHOLE * _has_one_size(head.shape)


def _next_numbers(head: Head) -> tuple[int, int]:
    """MSN and MO of the next segment on the same queue. RFC 5041, 5.2 and 5.3."""
    _, msn, mo = head.numbers
    if head.last:
        return BITS_32.add(msn, 1), 0
    return msn, BITS_32.add(mo, head.payload)
