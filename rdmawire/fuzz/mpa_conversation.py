"""MPA conversations: the bytes of both directions, what is in them, and TCP segments that carry it.

A :class:`Conversation` says which start-up frames and FPDUs both sides send, what is damaged, and
how the bytes are cut into TCP segments. From it come the segments (:func:`segments`), and the truth
(:func:`truth`): what a reader must find in each direction, however the bytes are cut. RFC 5044.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple, Self

from rdmawire.errors import FuzzError
from rdmawire.wire.mpa import (
    MAX_PRIVATE_DATA,
    FPDULength,
    Marker,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    StartUpHeader,
    build_fpdu,
    parse_fpdu,
)
from rdmawire.wire.rdmap import UntaggedHeader

MAX_UNITS: Final = 64
"""FPDUs of a conversation, at most."""
MAX_ULPDU: Final = 4096
"""Bytes of a ULPDU, at most: more than several Markers are apart."""
_UNUSED_CRC: Final = 0.5
"""Share of the FPDUs whose CRC is good though CRCs are not in use; the CRC of others is 0."""
_TAGGED: Final = b"\xc1\x40"
"""DDP and RDMAP control of a WRITE: tagged, the last segment of its message. RFC 5040, 5041."""
_UNTAGGED: Final = b"\x41\x43" + bytes(4)
"""DDP and RDMAP control of a SEND, with the reserved bytes."""
MIN_ULPDU: Final = {False: len(_UNTAGGED) + UntaggedHeader.SIZE, True: 14}
"""Bytes of the headers of DDP and RDMAP, by whether they are tagged."""


class Side(NamedTuple):
    """The start-up frame of a side: its flags, and bytes of private data.

    ``enhanced`` is the flag S of RFC 6581: the private data begins with IRD and ORD.
    """

    m: int = 0
    c: int = 0
    private: int = 0
    enhanced: int = 0
    reject: int = 0


class Unit(NamedTuple):
    """An FPDU: the side that sends it, and the bytes of its ULPDU."""

    side: int
    length: int
    tagged: int = 0


class Damage(Enum):
    """What is damaged."""

    NONE = "nothing"
    BODY = "a byte of a ULPDU, or of a CRC"
    MARKER = "a Marker in an FPDU"
    LENGTH = "the length of a ULPDU"
    LOST = "an FPDU that is not captured"
    KEY = "a byte of the key of a start-up frame"
    PRIVATE = "the length of private data, more than allowed"
    END = "the end of the capture"


class Cut(Enum):
    """How the bytes of a direction become TCP segments."""

    UNITS = "a segment for each start-up frame and FPDU"
    JOINED = "what a side sends without an answer, in one segment"
    BYTES = "a few bytes in each segment"
    RANDOM = "anywhere"
    REPEATED = "anywhere, with retransmissions that overlap"
    SWAPPED = "anywhere, with FPDUs in another order"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation. ``damaged_part`` is the damaged FPDU, or its side; ``at`` a byte of it.

    ``seed`` selects the bytes of payload and where they are cut.
    """

    sides: tuple[Side, Side] = (Side(), Side())
    units: tuple[Unit, ...] = ()
    damage: Damage = Damage.NONE
    damaged_part: int = 0
    at: int = 0
    cut: Cut = Cut.UNITS
    seed: int = 0

    @property
    def checks_crc(self) -> bool:
        """Whether CRCs are in use: either side asks for them. RFC 5044, 7.1.1."""
        return any(side.c for side in self.sides)

    def as_json(self) -> dict[str, Any]:
        """Return the conversation as JSON values."""
        return {
            "sides": [list(side) for side in self.sides],
            "units": [list(unit) for unit in self.units],
            "damage": self.damage.name,
            "place": self.damaged_part,
            "at": self.at,
            "cut": self.cut.name,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a conversation of JSON values. Raises :class:`FuzzError` for others."""
        try:
            sides = [Side(*map(_number, each)) for each in values["sides"]]
            units = tuple(Unit(*map(_number, each)) for each in values["units"])
            names = Damage[values["damage"]], Cut[values["cut"]]
            numbers = [_number(values[name]) for name in ("place", "at", "seed")]
        except (KeyError, TypeError, ValueError):
            raise FuzzError(
                "case: expected sides, units, damage, place, at, cut and seed"
            ) from None
        if len(sides) != len(("initiator", "responder")) or len(units) > MAX_UNITS:
            raise FuzzError(f"case: two sides, and at most {MAX_UNITS} units")
        if sides[0].reject or not all(map(_is_side, sides)) or not all(map(_is_unit, units)):
            raise FuzzError("case: a side or a unit has a value that is out of range")
        part, at, seed = numbers
        return cls((sides[0], sides[1]), units, names[0], part, at, names[1], seed)


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise TypeError(value)
    return value


def _is_side(side: Side) -> bool:
    flags = (side.m, side.c, side.enhanced, side.reject)
    least = MPAEnhanced.SIZE if side.enhanced else 0
    return all(one in (0, 1) for one in flags) and least <= side.private <= MAX_PRIVATE_DATA


def _is_unit(unit: Unit) -> bool:
    known = unit.side in (0, 1) and unit.tagged in (0, 1)
    return known and MIN_ULPDU[bool(unit.tagged)] <= unit.length <= MAX_ULPDU


# Bytes.


class StreamPart(NamedTuple):
    """A start-up frame or an FPDU: the side that sends it, its position in the stream, its bytes.

    ``unit`` is the index of the FPDU, -1 of a start-up frame. ``markers`` says whether the stream
    has Markers.
    """

    side: int
    position: int
    data: bytes
    unit: int
    markers: bool = False


class StreamItem(NamedTuple):
    """What a reader finds in a direction: a kind, the position in the stream, and bytes.

    ``status`` is the CRC's of an FPDU: good, bad or absent.
    """

    kind: str
    position: int
    size: int
    status: str = ""

    def __str__(self) -> str:
        """Describe it in a few words."""
        end = f", CRC {self.status}" if self.status else ""
        return f"{self.kind} at {self.position}, {self.size} bytes{end}"


START_UP, FPDU, NOT_IWARP = "start-up frame", "FPDU", "not iWARP"


def parts(conversation: Conversation) -> list[StreamPart]:
    """Return what both sides send, in order, before anything is damaged."""
    random = Random(f"{conversation.seed}/bytes")  # noqa: S311  must be repeatable
    made = [_start_up(number, side, random) for number, side in enumerate(conversation.sides)]
    if any(side.reject for side in conversation.sides):
        return made
    ends, starts = [len(part.data) for part in made], [len(part.data) for part in made]
    for number, unit in enumerate(conversation.units):
        markers = bool(conversation.sides[1 - unit.side].m)
        position = ends[unit.side] - starts[unit.side] if markers else None
        crc = conversation.checks_crc or random.random() < _UNUSED_CRC
        data = build_fpdu(_ulpdu(unit, number, random), crc=crc, position=position)
        made.append(StreamPart(unit.side, ends[unit.side], data, number, markers))
        ends[unit.side] += len(data)
    return made


def _start_up(number: int, side: Side, random: Random) -> StreamPart:
    table: type[StartUpHeader] = MPAReply if number else MPARequest
    values = {"r": side.reject} if number else {}
    header = table(m=side.m, c=side.c, s=side.enhanced, pd_length=side.private, **values)
    return StreamPart(number, 0, header.build() + random.randbytes(side.private), -1)


def _ulpdu(unit: Unit, number: int, random: Random) -> bytes:
    head = _TAGGED if unit.tagged else _UNTAGGED + UntaggedHeader(msn=number + 1).build()
    return head + random.randbytes(unit.length - len(head))


def damaged(conversation: Conversation) -> list[StreamPart]:
    """Return what both sides send, with the damage. A part that is lost keeps its position."""
    made = parts(conversation)
    index = _damaged_part(conversation, made)
    if index is not None:
        made[index] = made[index]._replace(data=_changed(conversation, made[index]))
    return made


def _damaged_part(conversation: Conversation, made: Sequence[StreamPart]) -> int | None:
    """The index of the part that is damaged, if there is one."""
    damage, number = conversation.damage, conversation.damaged_part
    if damage in (Damage.KEY, Damage.PRIVATE):
        return number % len(conversation.sides)
    if damage in _OF_UNITS and len(made) > len(conversation.sides):
        return len(conversation.sides) + number % (len(made) - len(conversation.sides))
    return None


_OF_UNITS: Final = (Damage.BODY, Damage.MARKER, Damage.LENGTH)


def _changed(conversation: Conversation, part: StreamPart) -> bytes:
    """The bytes of a part with its damage."""
    data = bytearray(part.data)
    if conversation.damage is Damage.PRIVATE:
        at = MPARequest.SIZE - 2
        data[at : at + 2] = (MAX_PRIVATE_DATA + 1 + conversation.at % 1000).to_bytes(2, "big")
        return bytes(data)
    offsets = _offsets(conversation.damage, part, _in_markers(conversation, part))
    if offsets:
        data[offsets[conversation.at % len(offsets)]] ^= 1 << conversation.at % 8
    return bytes(data)


def _in_markers(conversation: Conversation, part: StreamPart) -> int | None:
    """The position of an FPDU among the Markers of its stream."""
    if not part.markers:
        return None
    return part.position - MPARequest.SIZE - conversation.sides[part.side].private


def _offsets(damage: Damage, part: StreamPart, position: int | None) -> Sequence[int]:
    """The bytes of a part that a damage changes one of."""
    if damage is Damage.KEY:
        return range(16)
    fpdu = parse_fpdu(part.data, position=position)
    markers = {at + byte for at, _ in fpdu.markers for byte in range(Marker.SIZE)}
    if damage is Damage.MARKER:
        return sorted(markers)
    length = range(fpdu.header, fpdu.header + FPDULength.SIZE)
    if damage is Damage.LENGTH:
        return length
    return [at for at in range(len(part.data)) if at not in markers and at not in length]


# The truth.


class Truth(NamedTuple):
    """What a reader must find in each direction.

    If not ``whole``, these are the first events, and others may follow; ``fpdus`` are then the
    FPDUs that may be among them, ``None`` if any may.
    """

    seen: tuple[list[StreamItem], list[StreamItem]]
    whole: tuple[bool, bool] = (True, True)
    fpdus: tuple[frozenset[StreamItem], frozenset[StreamItem]] | None = None


def truth(conversation: Conversation) -> Truth:
    """Return what a reader must find in a conversation, however it is cut into segments."""
    made = parts(conversation)
    index = _damaged_part(conversation, made)
    seen = [_seen(conversation, part) for part in made]
    if conversation.damage is Damage.END:
        return Truth(_by_side(made, seen, _ended(conversation, made)))
    if conversation.damage is Damage.LOST and len(made) > len(conversation.sides):
        return _lost_truth(conversation, made, seen)
    if index is None:
        return Truth(_by_side(made, seen, len(made)))
    if conversation.damage is Damage.KEY:
        not_iwarp = _by_side(made, seen, index)
        not_iwarp[index].append(StreamItem(NOT_IWARP, 0, 0))
        return Truth(not_iwarp)
    if conversation.damage in (Damage.BODY, Damage.MARKER):
        if damaged(conversation)[index].data != made[index].data and conversation.checks_crc:
            seen[index] = seen[index]._replace(status="bad")
        return Truth(_by_side(made, seen, len(made)))
    return _open_truth(made, seen, index)


def _seen(conversation: Conversation, part: StreamPart) -> StreamItem:
    if part.unit < 0:
        return StreamItem(START_UP, part.position, len(part.data))
    status = "good" if conversation.checks_crc else "absent"
    return StreamItem(FPDU, part.position, len(part.data), status)


def _by_side(
    made: Sequence[StreamPart], seen: Sequence[StreamItem], end: int
) -> tuple[list[StreamItem], list[StreamItem]]:
    pairs = list(zip(made, seen, strict=True))[:end]
    first, second = ([one for part, one in pairs if part.side == side] for side in (0, 1))
    return first, second


def _ended(conversation: Conversation, made: Sequence[StreamPart]) -> int:
    """How many parts are complete when the capture ends."""
    left = captured_bytes(conversation, made)
    for number, part in enumerate(made):
        left -= len(part.data)
        if left < 0:
            return number
    return len(made)


def captured_bytes(conversation: Conversation, made: Sequence[StreamPart]) -> int:
    """Return the bytes of both directions that are captured."""
    whole = sum(len(part.data) for part in made)
    return conversation.at % (whole + 1) if conversation.damage is Damage.END else whole


def lost_part(conversation: Conversation, made: Sequence[StreamPart]) -> int | None:
    """Return the index of the FPDU that is not captured, or ``None``."""
    units = len(made) - len(conversation.sides)
    if conversation.damage is not Damage.LOST or not units:
        return None
    return len(conversation.sides) + conversation.damaged_part % units


def _lost_truth(
    conversation: Conversation, made: Sequence[StreamPart], seen: Sequence[StreamItem]
) -> Truth:
    lost = lost_part(conversation, made)
    assert lost is not None
    found = _open_truth(made, seen, lost)
    if not conversation.checks_crc:
        return found
    first, second = _by_side(made, seen, len(made))
    return found._replace(fpdus=(frozenset(first), frozenset(second)))


def _open_truth(made: Sequence[StreamPart], seen: Sequence[StreamItem], index: int) -> Truth:
    """The truth if a direction is only known up to a part."""
    side = made[index].side
    before = [one for part, one in list(zip(made, seen, strict=True))[:index] if part.side == side]
    whole = _by_side(made, seen, len(made))
    if side:
        return Truth((whole[0], before), (index >= 0, False))
    return Truth((before, whole[1]), (False, True))


# TCP segments.


class TCPSegment(NamedTuple):
    """A TCP segment: its sender, where its payload is in the stream, and what is acknowledged.

    ``acknowledged`` counts the bytes of the other stream.
    """

    side: int
    position: int
    data: bytes
    acknowledged: int


_PIECE: Final = 7
"""Bytes of a segment, at most, if all are short."""


def segments(conversation: Conversation) -> list[TCPSegment]:
    """Return the TCP segments of a conversation, with the damage, in the order of the capture.

    What is cut together is acknowledged by a segment without data: also what is lost.
    """
    made = damaged(conversation)
    random = Random(f"{conversation.seed}/cut")  # noqa: S311  must be repeatable
    lost = lost_part(conversation, made)
    left, sent = captured_bytes(conversation, made), [0, 0]
    found: list[TCPSegment] = []
    for run in _runs(conversation, made):
        side, number = made[run[0]].side, made[run[0]].unit
        position, known = made[run[0]].position, sent[1 - side]
        data = b"".join(made[index].data for index in run)[:left]
        left -= len(data)
        sent[side] = position + len(data)
        if run[0] != lost:
            pieces = _cut(conversation.cut, position, data, random)
            if conversation.cut is Cut.SWAPPED and number >= 0:
                random.shuffle(pieces)
            found += [TCPSegment(side, at, piece, known) for at, piece in pieces]
        found.append(TCPSegment(1 - side, known, b"", sent[side]))
    return found


def _runs(conversation: Conversation, made: Sequence[StreamPart]) -> Iterator[list[int]]:
    """Yield the parts that are cut together, by their indices."""
    joins = conversation.cut not in (Cut.UNITS, Cut.SWAPPED)
    lost = lost_part(conversation, made)
    run: list[int] = []
    for number, part in enumerate(made):
        goes_on = run and joins and part.side == made[run[-1]].side
        if run and not (goes_on and lost not in (number, run[-1]) and part.unit >= 0):
            yield run
            run = []
        run.append(number)
    yield run


def _cut(cut: Cut, position: int, data: bytes, random: Random) -> list[tuple[int, bytes]]:
    """Cut bytes into pieces, each with its position in the stream."""
    ends = sorted(_ends(cut, len(data), random))
    pieces = [
        (position + start, data[start:end])
        for start, end in zip([0, *ends], [*ends, len(data)], strict=True)
        if start < end
    ]
    if cut is not Cut.REPEATED:
        return pieces
    return [one for pair in pieces for one in (pair, _again(position, data, pair, random))]


def _again(
    position: int, data: bytes, piece: tuple[int, bytes], random: Random
) -> tuple[int, bytes]:
    """A retransmission after a piece: it begins before its end, and may bring new bytes, too."""
    known = piece[0] - position + len(piece[1])
    start = random.randrange(known)
    end = random.randrange(start, min(known + len(piece[1]), len(data))) + 1
    return position + start, data[start:end]


def _ends(cut: Cut, length: int, random: Random) -> Iterator[int]:
    if cut is Cut.BYTES:
        end = random.randrange(1, _PIECE + 1)
        while end < length:
            yield end
            end += random.randrange(1, _PIECE + 1)
    elif cut in (Cut.RANDOM, Cut.REPEATED, Cut.SWAPPED) and length > 1:
        yield from {random.randrange(1, length) for _ in range(random.randrange(6))}
