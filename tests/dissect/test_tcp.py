"""TCP streams: order, repetition, holes, wrapping numbers, and many connections."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.dissect.tcp import (
    HELD_BYTES,
    HELD_SEGMENTS,
    SEGMENT_COST,
    SEQUENCE,
    Data,
    Direction,
    Hole,
    Piece,
    Segment,
    Tracker,
)
from rdmawire.wire.inet import TCP

MODULUS = SEQUENCE.modulus
ISNS = (0, 1000, MODULUS - 1, MODULUS - 5, MODULUS // 2)
CLIENT, SERVER = b"\x0a\x4d\x00\x02", b"\x0a\x4d\x00\x01"


def text(length: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(length))


def opened(isn: int = 1000) -> Direction:
    direction = Direction()
    direction.segment(isn, b"", syn=True)
    return direction


def bytes_of(pieces: Iterator[Piece] | tuple[Piece, ...]) -> bytes:
    return b"".join(piece.data for piece in pieces if isinstance(piece, Data))


def put(direction: Direction, isn: int, position: int, data: bytes) -> Segment:
    return direction.segment((isn + 1 + position) % MODULUS, data)


@pytest.mark.parametrize("isn", ISNS)
def test_bytes_in_order_are_handed_on_as_they_come(isn: int) -> None:
    direction = opened(isn)
    for position, data in enumerate(text(20)):
        segment = put(direction, isn, position, bytes([data]))
        assert segment == Segment(position, 1, 1, (Data(position, bytes([data])),))
    assert not direction.joined


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """A stream, and ranges of it that cover it in some order."""
    stream = text(draw(st.integers(1, 60)))
    cuts = sorted(draw(st.sets(st.integers(0, len(stream)), max_size=10)) | {0, len(stream)})
    ranges = list(pairwise(cuts))
    extra = st.tuples(st.integers(0, len(stream)), st.integers(0, len(stream)))
    ranges += [(min(pair), max(pair)) for pair in draw(st.lists(extra, max_size=10))]
    return stream, draw(st.permutations(ranges))


@given(shuffled(), st.sampled_from(ISNS))
def test_segments_in_any_order_make_the_stream(
    case: tuple[bytes, list[tuple[int, int]]], isn: int
) -> None:
    stream, ranges = case
    direction = opened(isn)
    found, come = b"", set[int]()
    for start, end in ranges:
        segment = put(direction, isn, start, stream[start:end])
        assert all(isinstance(piece, Data) for piece in segment.pieces)
        assert [piece.position for piece in segment.pieces][:1] in ([], [len(found)])
        found += bytes_of(segment.pieces)
        new = set(range(start, end)) - come
        assert segment.repeated == end - start - len(new)
        come |= new
        assert not segment.conflict
    assert found == stream
    assert direction.held == 0


def test_bytes_that_came_first_stay_and_a_difference_is_noted() -> None:
    direction = opened(0)
    assert not put(direction, 0, 4, b"4567").conflict
    segment = put(direction, 0, 0, b"0123xx6")
    assert (segment.conflict, segment.repeated) == (True, 3)
    assert bytes_of(segment.pieces) == b"01234567"


def test_bytes_handed_on_are_not_compared() -> None:
    direction = opened(0)
    put(direction, 0, 0, b"0123")
    assert put(direction, 0, 0, b"xxxx") == Segment(0, 4, 4, (), 4)


def test_a_stream_without_its_syn_begins_with_the_first_byte_captured() -> None:
    direction = Direction()
    assert direction.segment(500, b"abc").pieces == (Data(0, b"abc"),)
    assert direction.joined
    assert direction.segment(498, b"yzabcd").pieces == (Data(3, b"d"),)


def test_data_may_come_with_the_syn() -> None:
    direction = Direction()
    assert direction.segment(7, b"abc", syn=True).pieces == (Data(0, b"abc"),)


def test_a_hole_is_given_up_when_the_other_side_has_what_is_behind_it() -> None:
    direction = opened(0)
    put(direction, 0, 0, b"0123")
    assert put(direction, 0, 8, b"89").pieces == ()
    direction.acknowledged(1 + 4)
    assert put(direction, 0, 10, b"ab").pieces == ()
    direction.acknowledged(1 + 12)
    segment = put(direction, 0, 12, b"cd")
    assert segment.pieces == (Hole(4, 4), Data(8, b"89"), Data(10, b"ab"), Data(12, b"cd"))
    assert put(direction, 0, 4, b"4567") == Segment(4, 4, 4, (), 4)


def test_a_hole_is_given_up_when_too_many_segments_wait() -> None:
    direction = opened(0)
    for number in range(HELD_SEGMENTS):
        assert put(direction, 0, 10 + 2 * number, b"x").pieces == ()
    segment = put(direction, 0, 10 + 2 * HELD_SEGMENTS, b"x")
    assert segment.pieces == (Hole(0, 10), Data(10, b"x"))
    assert direction.held == HELD_SEGMENTS


def test_a_hole_is_given_up_when_too_many_bytes_wait() -> None:
    direction = opened(0)
    half = bytes(HELD_BYTES // 2)
    assert put(direction, 0, 1, half).pieces == ()
    assert put(direction, 0, 1 + len(half), half).pieces == ()
    segment = put(direction, 0, 1 + HELD_BYTES, b"x")
    assert segment.pieces[0] == Hole(0, 1)
    assert len(bytes_of(segment.pieces)) == HELD_BYTES + 1
    assert direction.held == 0


def test_what_the_capture_cut_is_a_hole_at_once() -> None:
    direction = opened(0)
    segment = direction.segment(1, b"0123", length=10)
    assert segment == Segment(0, 10, 4, (Data(0, b"0123"), Hole(4, 6)))
    assert put(direction, 0, 10, b"ab").pieces == (Data(10, b"ab"),)


@given(st.lists(st.tuples(st.integers(0, MODULUS - 1), st.binary(max_size=9), st.booleans())))
def test_any_segments_are_taken_and_bytes_come_in_order(
    segments: list[tuple[int, bytes, bool]],
) -> None:
    direction, end = Direction(), 0
    for seq, data, syn in segments:
        for piece in direction.segment(seq, data, syn=syn).pieces:
            assert piece.position == end
            end += piece.length if isinstance(piece, Hole) else len(piece.data)
    for piece in direction.give_up():
        assert piece.position == end
        end += piece.length if isinstance(piece, Hole) else len(piece.data)


def test_what_is_held_is_bounded_whatever_comes() -> None:
    chance = random.Random(1)
    direction = opened(0)
    for _ in range(4000):
        position = chance.randrange(1, 1 << 22)
        put(direction, 0, position, bytes(chance.randrange(2000)))
        assert direction.held <= HELD_BYTES


def tracker(most: int = 100, held: int = 1 << 20) -> Tracker[list[str]]:
    return Tracker(list, most, held)


def numbers(
    track: Tracker[list[str]], side: int, tcp: TCP, payload: bytes, port: int = 50001
) -> tuple[int, int, int, int]:
    """Stream, relative sequence number, acknowledgment and next sequence number."""
    ends = (CLIENT, port), (SERVER, 7174)
    (src, srcport), (dst, dstport) = ends[side], ends[1 - side]
    arrival = track.segment(src, dst, tcp.replace(srcport=srcport, dstport=dstport), payload)
    return arrival.connection.stream, arrival.seq, arrival.ack, arrival.nxtseq


ODD_NUMBERS = [
    (0, TCP(seq=9000, syn=1), b"", (0, 0, 0, 1)),
    (1, TCP(seq=8000, acknowledgment=9001, syn=1, ack=1), b"", (0, 0, 1, 1)),
    (0, TCP(seq=9001, acknowledgment=8001, ack=1, fin=1), b"hello", (0, 1, 1, 7)),
    (0, TCP(seq=9000, syn=1), b"", (0, 0, 0, 1)),
    (0, TCP(seq=20000, acknowledgment=77, syn=1), b"tfo", (1, 0, 77, 4)),
    (1, TCP(seq=30000, acknowledgment=20001, syn=1, ack=1), b"", (1, 0, 1, 1)),
    (1, TCP(seq=40000, acknowledgment=20001, syn=1, ack=1), b"", (1, 0, 1, 1)),
    (1, TCP(seq=40001, acknowledgment=20001, ack=1), b"q", (1, 1, 1, 2)),
    (0, TCP(seq=20004, rst=1), b"", (1, 4, 0, 4)),
]
"""As tshark 4.0.17 prints tcp.stream, tcp.seq, tcp.ack and tcp.nxtseq."""


def test_numbers_are_relative_as_wireshark_prints_them() -> None:
    track = tracker()
    for side, tcp, payload, expected in ODD_NUMBERS:
        assert numbers(track, side, tcp, payload) == expected


def test_numbers_of_a_stream_joined_late_count_from_the_first_segment() -> None:
    track = tracker()
    assert numbers(track, 1, TCP(seq=5000, acknowledgment=700, ack=1), b"abc") == (0, 1, 1, 4)
    assert numbers(track, 0, TCP(seq=700, acknowledgment=5003, ack=1), b"xx") == (0, 1, 4, 3)
    before = numbers(track, 0, TCP(seq=690, acknowledgment=5003, ack=1), b"yy")
    assert before == (0, 4294967287, 4, 4294967289)


def test_a_late_syn_belongs_to_the_connection_that_it_began() -> None:
    track = tracker()
    assert numbers(track, 0, TCP(seq=1001, ack=1), b"data") == (0, 1, 1, 5)
    assert numbers(track, 0, TCP(seq=1000, syn=1), b"") == (0, 0, 0, 1)
    assert numbers(track, 0, TCP(seq=1005, ack=1), b"data") == (0, 5, 1, 9)


def test_numbers_pass_zero() -> None:
    track = tracker()
    numbers(track, 0, TCP(seq=MODULUS - 3, syn=1), b"")
    assert numbers(track, 0, TCP(seq=MODULUS - 2, ack=1), b"12345") == (0, 1, 1, 6)
    assert numbers(track, 0, TCP(seq=3, ack=1), b"678") == (0, 6, 1, 9)


def test_a_new_syn_between_the_same_ports_is_a_new_connection() -> None:
    track = tracker()
    first = track.segment(CLIENT, SERVER, TCP(1, 2, 100, syn=1), b"")
    second = track.segment(CLIENT, SERVER, TCP(1, 2, 900, syn=1), b"")
    assert (first.connection.stream, second.connection.stream) == (0, 1)
    assert second.connection.upper is not first.connection.upper
    assert track.segment(CLIENT, SERVER, TCP(1, 2, 901), b"x").segment.position == 0


def test_both_ways_share_a_connection_and_the_state_above() -> None:
    track = tracker()
    there = track.segment(CLIENT, SERVER, TCP(1, 2, 5, ack=1), b"a")
    back = track.segment(SERVER, CLIENT, TCP(2, 1, 9, ack=1), b"b")
    assert there.connection is back.connection
    assert (there.side, back.side) == (0, 1)


def test_the_least_recent_connection_is_dropped() -> None:
    track = tracker(most=2)
    for port in (1, 2, 1, 3):
        numbers(track, 0, TCP(seq=5), b"", port)
    assert [numbers(track, 0, TCP(seq=5), b"", port)[0] for port in (1, 3, 2)] == [0, 2, 3]


def test_all_directions_together_hold_no_more_than_allowed() -> None:
    track = tracker(held=10 * (99 + SEGMENT_COST))
    found: list[Piece] = []
    for port in range(50):
        numbers(track, 0, TCP(seq=0, syn=1), b"", port)
        ends = TCP(port, 7174, 100)
        found += track.segment(CLIENT, SERVER, ends, bytes(99)).segment.pieces
    assert found[:2] == [Hole(0, 99), Data(99, bytes(99))]
    assert len(bytes_of(tuple(found))) == 40 * 99


def test_an_ignored_connection_keeps_its_numbers_and_holds_nothing() -> None:
    track = tracker()
    numbers(track, 0, TCP(seq=0, syn=1), b"")
    arrival = track.segment(CLIENT, SERVER, TCP(50001, 7174, 50), b"held")
    track.stop(arrival.connection)
    again = track.segment(CLIENT, SERVER, TCP(50001, 7174, 1), b"data")
    assert (again.seq, again.nxtseq, again.segment.pieces) == (1, 5, ())
