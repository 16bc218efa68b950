"""Fuzzes a reader of MPA: conversations over TCP, cut into segments in many ways, and damaged.

Whatever the segments, a reader must find the start-up frames and FPDUs that were sent
(:mod:`.mpa_conversation`). After damage, what it reports must be in the stream, in order, each byte
once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from rdmawire.dissect import mpa_event
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.fuzz.exception_text import Raised
from rdmawire.fuzz.fuzzer import (
    FRAME_INTERVAL_NS,
    Batch,
    BatchFuzzer,
    Found,
    Frame,
    Spec,
    check_settings,
)
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.mpa_conversation import (
    FPDU,
    MAX_ULPDU,
    MIN_ULPDU,
    NOT_IWARP,
    START_UP,
    Conversation,
    Cut,
    Damage,
    Side,
    StreamItem,
    TCPSegment,
    Unit,
    damaged,
    segments,
    truth,
)
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.planted_bugs import planted, wrong_part
from rdmawire.fuzz.small_mpa_reader import small_reader
from rdmawire.wire.checksum import ipv4_header_checksum, tcp_checksum
from rdmawire.wire.inet import TCP, Ethernet, EtherType, IPv4
from rdmawire.wire.mpa import MARKER_SPACING, MAX_PRIVATE_DATA, MPAEnhanced

MPAReader = Callable[[Sequence[TCPSegment]], tuple[list[StreamItem], list[StreamItem]]]
"""Reads the TCP segments of a connection; returns what it finds in each direction, in order."""

_PORTS: Final = (40000, 4420)
_FIRST: Final = (0xFFFF_FF00, 1000)
"""Sequence numbers of the first bytes; those of the initiator soon wrap."""
_ADDRESSES: Final = (bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
_PRIVATE: Final = (0, 0, 0, 1, 4, 8, 100, MAX_PRIVATE_DATA - 1, MAX_PRIVATE_DATA)
_NEAR: Final = tuple(MARKER_SPACING + change for change in range(-16, 8))
_LENGTHS: Final = (20, 21, 22, 23, 60, 200, *_NEAR, 2 * MARKER_SPACING, 1460, MAX_ULPDU)
_IN_ORDER: Final = (Damage.BODY, Damage.MARKER, Damage.KEY, Damage.END)
"""Damages after which the FPDUs still follow one another."""
_DAMAGED: Final = 0.5
"""Share of the conversations that are damaged."""


class MPADifference(NamedTuple):
    """What a reader must find, and what it found, as item ``number`` of a direction."""

    side: int
    number: int
    expected: str
    happened: str


def read_segments(found: Sequence[TCPSegment]) -> tuple[list[StreamItem], list[StreamItem]]:
    """Read segments with the dissector's reassembly of TCP and its framing of MPA."""
    streams = Streams()
    seen: tuple[list[StreamItem], list[StreamItem]] = ([], [])
    for side, tcp, data in _packets(found):
        result = streams.segment(_ADDRESSES[side], _ADDRESSES[1 - side], tcp, data)
        seen[side].extend(map(_seen, result.events))
    return seen


def _packets(found: Sequence[TCPSegment]) -> Iterator[tuple[int, TCP, bytes]]:
    """Yield the side, TCP header and payload of each packet, those that open TCP first."""
    for side in (0, 1):
        yield side, _header(side, -1, 0, syn=1, ack=side), b""
    for one in found:
        yield one.side, _header(one.side, one.position, one.acknowledged), one.data


def _header(side: int, position: int, acknowledged: int, *, syn: int = 0, ack: int = 1) -> TCP:
    return TCP(
        srcport=_PORTS[side],
        dstport=_PORTS[1 - side],
        seq=(_FIRST[side] + position) % (1 << 32),
        acknowledgment=(_FIRST[1 - side] + acknowledged) % (1 << 32) if ack else 0,
        syn=syn,
        ack=ack,
        window=0xFFFF,
    )


def _seen(event: mpa_event.Event) -> StreamItem:
    if isinstance(event, mpa_event.Fpdu):
        return StreamItem(FPDU, event.position, len(event.data), event.crc.value)
    if isinstance(event, mpa_event.StartUp):
        return StreamItem(START_UP, event.position, len(event.data))
    if isinstance(event, mpa_event.NotIwarp):
        return StreamItem(NOT_IWARP, 0, 0)
    size = event.size if isinstance(event, mpa_event.PartialFpdu) else event.length
    return StreamItem(type(event).__name__, event.position, size)


def compared(
    conversation: Conversation, found: tuple[list[StreamItem], list[StreamItem]]
) -> MPADifference | None:
    """Compare what a reader found with the truth; return the first difference."""
    wanted = truth(conversation)
    for side in (0, 1):
        whole, seen, due = wanted.whole[side], found[side], wanted.seen[side]
        fpdus = None if wanted.fpdus is None else wanted.fpdus[side]
        wrong = _first_difference(due, seen, whole=whole)
        wrong = wrong or (None if whole else _impossible(seen, conversation, side, fpdus))
        if wrong is not None:
            return MPADifference(side, *wrong)
    return None


def _first_difference(
    due: Sequence[StreamItem], seen: Sequence[StreamItem], *, whole: bool
) -> tuple[int, str, str] | None:
    for number, one in enumerate(due):
        other = seen[number] if number < len(seen) else None
        if one != other:
            return number, str(one), str(other or "nothing")
    if whole and len(seen) > len(due):
        return len(due), "nothing", str(seen[len(due)])
    return None


def _impossible(
    seen: Sequence[StreamItem],
    conversation: Conversation,
    side: int,
    fpdus: frozenset[StreamItem] | None,
) -> tuple[int, str, str] | None:
    """Find what is not in the stream, or overlaps what precedes it."""
    end, ends = 0, sum(len(part.data) for part in damaged(conversation) if part.side == side)
    for number, one in enumerate(seen):
        if one.kind in ("Lost", NOT_IWARP):
            continue
        if one.position < end:
            return number, f"nothing before byte {end}", str(one)
        end = one.position + one.size
        if one.kind in (FPDU, "Skipped") and end > ends:
            return number, f"nothing after byte {ends}", str(one)
        if one.kind == FPDU and fpdus is not None and one not in fpdus:
            return number, "an FPDU that was sent", str(one)
    return None


class MPAFuzzer(BatchFuzzer):
    """Fuzzes a reader of MPA: ``reader``, by default the dissector's.

    A specification has ``bug``, the name of a planted bug: then the small reader with that bug is
    fuzzed, which reads no streams with lost bytes. Raises :class:`FuzzError` for unknown names.
    """

    def __init__(self, spec: Spec, reader: MPAReader = read_segments) -> None:
        check_settings(spec, ("bug",))
        bug = spec.get("bug")
        self._reader = reader if bug is None else _planted_reader(str(bug))
        self.damages = (*Damage,)[1:] if bug is None else _IN_ORDER

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Play some runs, each a conversation of its own; executed are the TCP segments."""
        for run in range(first, first + runs):
            case = drawn(Random(f"{seed}/{run}"), self.damages)  # noqa: S311  must be repeatable
            markers = (side.m for side in case.sides)
            reached = (case.cut, case.damage, *markers, case.checks_crc)
            violation = self._violation(case)
            found = [Found(violation, case.as_json(), run)] if violation else []
            yield Batch(run, 1, len(segments(case)), found, frozenset((reached,)))

    def _violation(self, case: Conversation) -> Violation | None:
        try:
            found = self._reader(segments(case))
        except Exception as error:
            raised = Raised.of(error)
            signature = f"exception | {raised.kind}"
            return Violation(0, "exception", "no exception", raised.text, "", signature)
        wrong = compared(case, found)
        if wrong is None:
            return None
        sender = ("initiator", "responder")[wrong.side]
        kinds = " | ".join(_kind(text) for text in (wrong.expected, wrong.happened))
        return Violation(
            wrong.number,
            f"what the {sender} sent",
            wrong.expected,
            wrong.happened,
            "RFC 5044",
            f"{sender} | {kinds}",
        )

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        """Return a finding with a simpler conversation, as ``trials`` allow."""
        trials = Trials() if trials is None else trials
        best, shown = Conversation.from_json(found.case), found.violation
        before = None
        while before != best:
            before = best
            for simpler in _simpler(best):
                is_tried = simpler != best and trials.take()
                again = self._violation(simpler) if is_tried else None
                if again is not None and again.signature == shown.signature:
                    best, shown = simpler, again
                    break
        return Found(shown, best.as_json(), found.run)

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Play a conversation again; return its violation and its packets."""
        conversation = Conversation.from_json(case)
        frames = [
            Frame(number * FRAME_INTERVAL_NS, _frame(side, tcp, data), sent=False)
            for number, (side, tcp, data) in enumerate(_packets(segments(conversation)))
        ]
        return self._violation(conversation), frames

    def describe(self, case: Any) -> list[str]:
        """Return a line for each start-up frame and FPDU, and how they are cut and damaged."""
        conversation = Conversation.from_json(case)
        lines = [
            f"{name}: start-up with M {side.m}, C {side.c}, {side.private} bytes of private data"
            + (", rejects" if side.reject else "")
            for name, side in zip(("initiator", "responder"), conversation.sides, strict=True)
        ]
        for unit in conversation.units:
            kind = "tagged" if unit.tagged else "untagged"
            sender = ("initiator", "responder")[unit.side]
            lines.append(f"{sender}: FPDU, {kind}, ULPDU of {unit.length} bytes")
        lines.append(f"damaged: {conversation.damage.value}")
        return [*lines, f"TCP segments: {conversation.cut.value}"]


def _planted_reader(name: str) -> MPAReader:
    """The small reader with a planted bug."""
    bug = planted(name)
    if bug.mpa is None:
        raise wrong_part(bug, "mpa")
    return small_reader(bug.mpa)


def _kind(text: str) -> str:
    """A difference without its numbers."""
    return " ".join(word for word in text.replace(",", "").split() if not word.isdigit())


def _frame(side: int, tcp: TCP, data: bytes) -> bytes:
    """An Ethernet frame with a TCP packet; its checksums are right."""
    ip = IPv4(
        total_length=IPv4.SIZE + TCP.SIZE + len(data),
        ttl=64,
        protocol=6,
        src=_ADDRESSES[side],
        dst=_ADDRESSES[1 - side],
    )
    ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
    tcp = tcp.replace(checksum=tcp_checksum(ip, tcp.build() + data))
    macs = [bytes((2, 0, 0, 0, 0, number)) for number in (1, 2)]
    ethernet = Ethernet(dst=macs[1 - side], src=macs[side], type=EtherType.IPV4)
    return b"".join((ethernet.build(), ip.build(), tcp.build(), data))


def drawn(random: Random, damages: Sequence[Damage] = (*Damage,)[1:]) -> Conversation:
    """Draw a conversation, with one of some damages or with none."""
    sides = _side(random), _side(random)
    if random.random() < 0.05:
        sides = sides[0], sides[1]._replace(reject=1)
    units = tuple(_unit(random) for _ in range(random.choice((0, 1, 2, 3, 5, 8, 12))))
    damage = random.choice(damages) if random.random() < _DAMAGED else Damage.NONE
    cut = random.choice((*Cut,))
    part, at = random.randrange(64), random.randrange(1 << 16)
    return Conversation(sides, units, damage, part, at, cut, random.randrange(1 << 32))


def _side(random: Random) -> Side:
    enhanced = int(random.random() < 0.3)
    private = max(random.choice(_PRIVATE), MPAEnhanced.SIZE * enhanced)
    return Side(random.randrange(2), random.randrange(2), private, enhanced)


def _unit(random: Random) -> Unit:
    tagged = random.randrange(2)
    near = random.choice(_LENGTHS) if random.random() < 0.8 else random.randrange(14, 2000)
    return Unit(random.randrange(2), max(near, MIN_ULPDU[bool(tagged)]), tagged)


def _simpler(case: Conversation) -> Iterator[Conversation]:
    """Yield simpler conversations: fewer FPDUs, another cut, no damage, plain values."""
    for number in range(len(case.units)):
        yield replace(case, units=case.units[:number] + case.units[number + 1 :])
    if case.cut not in (Cut.UNITS, Cut.RANDOM):
        yield replace(case, cut=Cut.RANDOM)
    yield replace(case, cut=Cut.UNITS)
    yield replace(case, damage=Damage.NONE)
    yield from _with_plain_sides(case)
    for number, unit in enumerate(case.units):
        short = unit._replace(length=MIN_ULPDU[bool(unit.tagged)])
        yield replace(case, units=(*case.units[:number], short, *case.units[number + 1 :]))


def _with_plain_sides(case: Conversation) -> Iterator[Conversation]:
    first, second = case.sides
    for values in ({"private": 0, "enhanced": 0}, {"m": 0}, {"c": 0}, {"reject": 0}):
        yield replace(case, sides=(first._replace(**values), second))
        yield replace(case, sides=(first, second._replace(**values)))
