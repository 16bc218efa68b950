"""The buffer that moves along a file."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture.io import ChunkBuffer

FILE = bytes(range(200))
steps = st.lists(st.tuples(st.sampled_from(("need", "skip", "take")), st.integers(0, 90)))


def chunks_of(sizes: list[int]) -> list[bytes]:
    cuts = [0]
    for size in sizes:
        cuts.append(min(cuts[-1] + size, len(FILE)))
    cuts.append(len(FILE))
    chunks = [FILE[a:b] for a, b in pairwise(cuts)]
    return [chunk for chunk in chunks if chunk]


@given(st.lists(st.integers(1, 70)), steps)
def test_its_position_is_that_of_a_plain_file(
    sizes: list[int], moves: list[tuple[str, int]]
) -> None:
    data = ChunkBuffer(iter(chunks_of(sizes)), "sample")
    place = 0
    for move, count in moves:
        left = min(count, len(FILE) - place)
        if move == "skip":
            assert data.skip(count) == left
            place += left
        else:
            assert min(data.need(count), count) == left
            assert data.buffer[data.at : data.at + left] == FILE[place : place + left]
            place += left if move == "take" else 0
            data.at += left if move == "take" else 0
        assert data.offset == place


def test_buffers_are_not_changed_under_their_holder() -> None:
    data = ChunkBuffer(iter([b"abcd", b"efgh"]), "sample")
    data.need(4)
    held = data.buffer
    data.at = 3
    data.need(4)
    assert held == b"abcd"
    assert data.buffer == b"defg"


def test_what_was_passed_is_not_kept() -> None:
    data = ChunkBuffer(iter([bytes(1000)] * 100), "sample")
    assert data.skip(99_500) == 99_500
    assert len(data.buffer) == 1000


def test_damage_is_reported_with_its_offset_in_the_file() -> None:
    data = ChunkBuffer(iter([bytes(10), bytes(10)]), "sample")
    data.skip(12)
    assert data.damage("wrong").offset == 12
    assert str(data.damage("wrong", data.at + 1)) == "sample: wrong (at byte 13)"
