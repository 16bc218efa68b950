"""What is sent on a real wire, and when, by a clock that the tests turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.live import SendWindow, TokenBucket, TransmitQueue
from rdmawire.units import ms, seconds


class Wire:
    """A socket that takes ``room`` more messages."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.sent: list[tuple[bytes, int]] = []

    def send(self, message: bytes, offset: int) -> bool:
        if self.room == 0:
            return False
        self.room -= 1
        self.sent.append((message, offset))
        return True

    @property
    def messages(self) -> list[bytes]:
        return [message for message, _ in self.sent]


def numbered(count: int, size: int = 1) -> list[bytes]:
    return [bytes((number,)) * size for number in range(count)]


def test_bucket_gives_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=1000, burst=3000)
    for _ in range(3):
        assert bucket.free_at(0) == 0
        bucket.take(1000, 0)
    assert bucket.free_at(0) == 1
    bucket.take(1000, 1)
    assert bucket.free_at(1) == seconds(1) + 1
    assert bucket.free_at(seconds(1) + 1) == seconds(1) + 1


def test_idle_bucket_saves_no_more_than_a_burst() -> None:
    bucket = TokenBucket(rate=1000, burst=2000)
    bucket.take(2000, 0)
    assert bucket.free_at(seconds(100)) == seconds(100)
    bucket.take(2000, seconds(100))
    assert bucket.free_at(seconds(100)) > seconds(100)


@given(st.lists(st.tuples(st.integers(0, ms(5)), st.integers(1, 5000)), max_size=60))
def test_bucket_never_exceeds_its_rate(steps: list[tuple[int, int]]) -> None:
    rate, burst, now, sent, largest = 1_000_000, 8000, 0, 0, 0
    bucket = TokenBucket(rate, burst)
    for wait, size in steps:
        now = max(now + wait, bucket.free_at(now + wait))
        bucket.take(size, now)
        sent, largest = sent + size, max(largest, size)
        assert sent <= burst + rate * now / seconds(1) + largest + 1


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (1, 0), (-1, 1)])
def test_bucket_without_rate_or_burst_is_refused(rate: int, burst: int) -> None:
    with pytest.raises(VerbsError):
        TokenBucket(rate, burst)


def test_window_is_freed_by_reports_of_the_peer() -> None:
    window = SendWindow(10, ms(20))
    window.sent(6, 0)
    assert window.has_room
    window.sent(6, 1)
    assert not window.has_room
    window.reported(6, 2)
    assert window.has_room
    window.reported(99, 3)  # more than was sent: no report of ours
    window.reported(3, 3)  # an old one
    window.sent(6, 4)
    assert not window.has_room
    assert window.next_timer() == 2 + ms(20)
    window.reported(18, 5)
    assert window.next_timer() is None


def test_window_without_reports_opens_after_a_while() -> None:
    window = SendWindow(1, ms(20))
    window.sent(5, 7)
    window.handle_timer(ms(20))
    assert not window.has_room
    window.handle_timer(ms(20) + 7)
    assert window.has_room
    window.sent(5, ms(30))
    window.reported(5, ms(31))  # late: of what counted as lost
    assert not window.has_room


def test_queue_sends_in_order_while_the_socket_takes_it() -> None:
    wire = Wire(room=2)
    queue = TransmitQueue(wire.send, max_waiting=5)
    for message in numbered(7):
        queue.put(message)
    assert (len(queue), queue.dropped) == (5, 2)
    assert queue.flush(0) == 2
    assert queue.next_timer(10) is not None
    wire.room = 9
    assert queue.flush(1) == 3
    assert wire.messages == numbered(5)
    assert queue.next_timer(10) is None


def test_queue_obeys_bucket_and_window() -> None:
    wire, window = Wire(), SendWindow(250, ms(20))
    queue = TransmitQueue(wire.send, 100, TokenBucket(100_000, 100), window)
    for message in numbered(6, size=100):
        queue.put(message)
    assert queue.flush(0) == 1
    later = queue.next_timer(0)
    assert later == 1
    assert queue.flush(1) == 1
    assert queue.next_timer(1) == ms(1) + 1
    assert queue.flush(ms(1) + 1) == 1
    assert queue.flush(ms(5)) == 0  # the window is full
    assert queue.next_timer(ms(5)) == ms(20)
    window.reported(300, ms(6))
    assert queue.flush(ms(6)) == 1
    assert queue.flush(ms(8)) == 1
    assert queue.flush(ms(60)) == 1
    assert queue.next_timer(ms(90)) is None  # nothing waits, though some is under way
    assert wire.messages == numbered(6, size=100)
    assert [offset for _, offset in wire.sent] == [0, 100, 200, 300, 400, 500]
