"""The same iWARP stream in other TCP segments: the same FPDUs, with the same CRC status."""

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from rdmawire.wire.mpa import MPAReply, MPARequest, size_at
from tests.captures import CAPTURES, each_capture
from tests.dissect.stream_samples import (
    Contents,
    Pieces,
    Turn,
    connections,
    contents,
    dissected,
    replayed,
    turns,
)
from tools.make_captures.tcp import Conversation

SHAPES = ("start_up*", "markers*", "opcodes*", "segments*", "wrap", "disorder*", "terminate")
GENERATED = [path for shape in SHAPES for path in CAPTURES.glob(f"generated/iwarp_{shape}.pcap")]
STREAMS = sorted([*CAPTURES.glob("linux/siw*.pcap"), *GENERATED])
"""Captures of connections whose starts are in them, and of which nothing is missing."""

SEED = 5044
LONGEST = 30_000
"""Bytes of payload that a segment takes at most here."""

BothWays = tuple[Counter[Contents], Counter[Contents]]
Connection = tuple[list[Turn], BothWays]


@cache
def sample(path: Path) -> list[Connection]:
    """Each connection: the bytes sent, and what a dissection of the capture has of them."""
    return [(turns(frames), contents(frames)) for frames in connections(dissected(path))]


def split(data: bytes, cuts: list[int]) -> Pieces:
    """The bytes cut at these places."""
    places = sorted({0, len(data), *cuts})
    return [(start, data[start:end]) for start, end in pairwise(places)]


def at_random(data: bytes, chance: random.Random) -> Pieces:
    """Between one cut and a dozen, more of them where the turn is long."""
    most = min(len(data), 12 + len(data) // 400)
    return split(data, [chance.randrange(len(data)) for _ in range(chance.randint(1, most))])


def joined(data: bytes, _: random.Random) -> Pieces:
    return split(data, [*range(0, len(data), LONGEST)])


def byte_by_byte(data: bytes, _: random.Random) -> Pieces:
    """Bytes one by one up to some hundred of them, the rest in threes."""
    return split(data, [*range(300), *range(300, len(data), 3)][: len(data)])


def out_of_order(data: bytes, chance: random.Random) -> Pieces:
    """Segments that overtake others, up to eight of them."""
    pieces = at_random(data, chance)
    late = [i + chance.random() * 8 for i in range(len(pieces))]
    return [pieces[i] for i in sorted(range(len(pieces)), key=late.__getitem__)]


def sent_again(data: bytes, chance: random.Random) -> Pieces:
    """Some segments twice, some together with bytes around them that come before or later."""
    pieces: Pieces = []
    for start, piece in at_random(data, chance):
        begin, end = start - chance.randint(0, 60), start + len(piece) + chance.randint(0, 60)
        begin = max(begin, 0)
        choices = [(start, piece), (begin, data[begin:end]), (begin, data[begin:start])]
        pieces += [(start, piece), *chance.sample(choices, chance.randint(0, 2))]
    return [(start, piece) for start, piece in pieces if piece]


def again_and_out_of_order(data: bytes, chance: random.Random) -> Pieces:
    pieces = sent_again(data, chance)
    late = [i + chance.random() * 4 for i in range(len(pieces))]
    return [pieces[i] for i in sorted(range(len(pieces)), key=late.__getitem__)]


Cut = Callable[[bytes, random.Random], Pieces]

WAYS: dict[str, Cut] = {
    "joined": joined,
    "byte by byte": byte_by_byte,
    "at random": at_random,
    "sent again": sent_again,
}
"""Ways to cut one turn into segments."""

OVERTAKING: dict[str, Cut] = {
    "out of order": out_of_order,
    "sent again, out of order": again_and_out_of_order,
}

NEAR_THE_WRAP = ((1 << 32) - 300, (1 << 32) - 70)
"""Initial sequence numbers, unlike those of any capture."""


def check(conversation: Conversation, sent: list[tuple[int, Pieces]], expected: BothWays) -> None:
    found = contents(replayed(conversation, sent))
    for way in (0, 1):
        assert not expected[way] - found[way], f"of way {way}, these are missing"
        assert not found[way] - expected[way], f"of way {way}, these were not sent"


def check_cut(path: Path, cut: Cut) -> None:
    chance = random.Random(f"{SEED} {path.name}")
    for sent, expected in sample(path):
        pieces = [(way, cut(data, chance)) for way, data in sent]
        check(Conversation(isn=NEAR_THE_WRAP), pieces, expected)


@pytest.mark.parametrize("cut", WAYS.values(), ids=WAYS)
@each_capture(STREAMS)
def test_the_cutting_of_segments_changes_no_fpdu(path: Path, cut: Cut) -> None:
    check_cut(path, cut)


@pytest.mark.parametrize("cut", OVERTAKING.values(), ids=OVERTAKING)
def test_the_order_of_segments_changes_no_fpdu(cut: Cut) -> None:
    for path in STREAMS:
        check_cut(path, cut)


@each_capture(STREAMS)
def test_an_fpdu_for_each_segment(path: Path) -> None:
    for sent, expected in sample(path):
        pieces = [
            (way, split(data, cuts))
            for (way, data), cuts in zip(sent, boundaries(sent), strict=True)
        ]
        check(Conversation(), pieces, expected)
        segments = [len(data) for way in pieces for _, data in way[1]]
        assert len(segments) == sum(way.total() for way in expected)


def boundaries(sent: list[Turn]) -> list[list[int]]:
    """Where in each turn a start-up frame or an FPDU ends, from the lengths in them alone."""
    streams = [b"".join(data for way, data in sent if way == each) for each in (0, 1)]
    asked = [MPARequest.parse(streams[0]).m, MPAReply.parse(streams[1]).m]
    ends = [set(_ends(streams[way], markers=bool(asked[1 - way]))) for way in (0, 1)]
    found, at = [], [0, 0]
    for way, data in sent:
        found.append([end - at[way] for end in ends[way] if 0 < end - at[way] <= len(data)])
        at[way] += len(data)
    return found


def _ends(stream: bytes, *, markers: bool) -> list[int]:
    first = MPARequest.SIZE + MPARequest.parse(stream).pd_length
    sizes, at = [first], first
    while at < len(stream):
        sizes.append(size_at(stream, at, len(stream), at - first if markers else None))
        at += sizes[-1]
    return list(accumulate(sizes))


def test_the_sample_has_connections_with_and_without_crcs() -> None:
    everything = [connection for path in STREAMS for connection in sample(path)]
    assert len(everything) > 50
    fpdus = [one for _, ways in everything for way in ways for one in way.elements() if one.crc]
    assert {one.crc for one in fpdus} == {("good",), ("absent",)}
    assert len(fpdus) > 500
    for sent, _ in everything:
        assert {way for way, _ in sent} == {0, 1}
