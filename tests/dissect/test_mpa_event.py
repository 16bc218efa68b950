"""The budget of bytes that all streams share: it is bounded, and streams over it read on."""

import tracemalloc
from collections.abc import Callable

import pytest

from rdmawire.dissect.mpa_event import Budget, Event, Forgotten, Fpdu, Skipped
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import MPARequest
from tests.dissect.mpa_samples import check_cover, fpdus, send, whole_ones

SERVER = b"\x0a\x4d\x00\x01"
REQUEST = MPARequest(c=1).build()

LIKELY = bytes.fromhex("fff04143000000000000000000000001") + bytes(16)
"""The head of an FPDU that would be 65528 bytes long: a search waits for its end."""


class Keeper:
    def __init__(self, kept: int) -> None:
        self.kept = kept

    def let_go(self) -> None:
        self.kept = 0


def test_the_least_recent_keeper_releases_its_bytes() -> None:
    budget, keepers = Budget(100), [Keeper(40), Keeper(40), Keeper(30)]
    for keeper in (keepers[0], keepers[1], keepers[0], keepers[2]):
        budget.settle(keeper)
    assert [keeper.kept for keeper in keepers] == [40, 0, 30]
    assert budget.kept == 70


def test_what_is_released_is_not_counted() -> None:
    budget, one, other = Budget(100), Keeper(60), Keeper(40)
    for keeper in (one, other):
        budget.settle(keeper)
    one.kept = 0
    budget.settle(one)
    assert budget.kept == 40
    budget.forget(other)
    assert budget.kept == 0


def test_one_keeper_over_the_budget_releases_its_bytes() -> None:
    budget, keeper = Budget(100), Keeper(101)
    budget.settle(keeper)
    assert (keeper.kept, budget.kept) == (0, 0)


def client(number: int) -> bytes:
    return number.to_bytes(4, "big")


def put(streams: Streams, number: int, position: int, data: bytes) -> list[Event]:
    """A segment of a client's stream; at position -1 its SYN."""
    tcp = TCP(1, 2, 1000 + position, syn=int(position < 0))
    return streams.segment(client(number), SERVER, tcp, data).events


def search(streams: Streams, number: int) -> None:
    """Twenty segments of a stream joined midway, full of what may be heads."""
    for index in range(20):
        put(streams, number, index * 31 * len(LIKELY), LIKELY * 31)


def frame(streams: Streams, number: int) -> None:
    """A stream that ends inside a long FPDU."""
    put(streams, number, -1, b"")
    put(streams, number, 0, REQUEST)
    put(streams, number, 20, b"\xff\xf0\x41\x43" + bytes(20000))


@pytest.mark.parametrize("fill", [search, frame])
def test_many_streams_keep_no_more_than_their_budget(fill: Callable[[Streams, int], None]) -> None:
    most, count = 200 << 10, 20
    streams = Streams(kept=most)
    tracemalloc.start()
    try:
        for number in range(count):
            fill(streams, number)
            assert streams.budget.kept <= most
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Beside its bytes a connection is a few objects of fixed size.
    assert taken < 1.5 * most + count * 8192
    assert streams.budget.kept > most // 2


def test_connections_that_ended_or_were_dropped_keep_nothing() -> None:
    streams = Streams(connections=2)
    for number in range(5):
        frame(streams, number)
    two = streams.budget.kept
    assert 40000 < two < 41000
    put(streams, 9, 0, b"GET")
    put(streams, 9, -1, b"")
    assert streams.budget.kept < two


def test_a_released_fpdu_is_reported_and_framing_continues_after_it() -> None:
    streams = Streams(kept=1000)
    first, second = fpdus([send(900), send(9, 2)])
    put(streams, 1, -1, b"")
    events = put(streams, 1, 0, REQUEST + first[:600])
    put(streams, 2, -1, b"")
    put(streams, 2, 0, REQUEST + first[:600])
    events += put(streams, 1, 620, first[600:] + second)
    assert [type(event) for event in events[1:]] == [Forgotten, Fpdu]
    assert events[1] == Forgotten(20, len(first))
    assert whole_ones(events) == [(20 + len(first), second)]
    check_cover(events)


def test_a_search_that_released_its_bytes_finds_the_next_fpdu() -> None:
    streams = Streams(kept=4000)
    sent = fpdus([send(90), send(70, 2)])
    put(streams, 1, 0, LIKELY[:31] * 60)
    put(streams, 2, 0, LIKELY[:31] * 60)
    events = put(streams, 1, 31 * 60, b"".join(sent))
    assert events[0] == Skipped(0, 31 * 60)
    assert [data for _, data in whole_ones(events)] == sent
    check_cover(events)
