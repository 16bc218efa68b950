"""What a tap counts, against what two adapters were told to do."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.link import Chances, Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.traffic import summary as counting
from rdmawire.traffic.summary import NO_TRAFFIC, FrameCount, FrameCounter, Moved, summarise
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.wire import roce

MTU = 1024


def counted(pair: Pair) -> FrameCounter:
    counter = FrameCounter()
    pair.simulator.on_sent.append(counter)
    return counter


def test_messages_of_every_kind_count_once() -> None:
    pair = Pair()
    counter = counted(pair)
    client, server = pair.client, pair.server
    server.receive(100)
    client.send(bytes(100))
    client.write(bytes(3 * MTU + 1), to=server.region)
    client.read(2 * MTU + 1, of=server.region)
    client.fetch_add(1, of=server.region)
    client.compare_swap(1, 2, of=server.region)
    pair.drive()
    assert [done.status for done in client.poll()] == [WCStatus.SUCCESS] * 5
    assert counter.messages == 5
    assert counter.bytes == 100 + 3 * MTU + 1 + 2 * MTU + 1 + 8 + 8
    assert counter.frames == pair.link.frames
    assert (counter.retransmits, counter.naks, counter.rnr_naks, counter.cnps) == (0, 0, 0, 0)


def test_a_lost_packet_is_one_nak_and_what_goes_again() -> None:
    pair = Pair(Link(drop={2}))
    counter = counted(pair)
    pair.client.write(bytes(5 * MTU), to=pair.server.region)
    pair.drive()
    assert (counter.messages, counter.bytes) == (1, 5 * MTU)
    assert (counter.retransmits, counter.naks) == (4, 1)


def test_a_read_that_goes_on_in_the_middle_is_no_new_one() -> None:
    pair = Pair(Link(drop={4}))
    counter = counted(pair)
    pair.client.read(5 * MTU, of=pair.server.region)
    pair.drive()
    assert (counter.messages, counter.bytes, counter.retransmits) == (1, 5 * MTU, 1)


def test_a_receiver_that_is_not_ready() -> None:
    pair = Pair()
    counter = counted(pair)
    pair.client.send(b"early")
    pair.drive(until=1000)
    pair.server.receive(5)
    pair.drive()
    assert (counter.rnr_naks, counter.retransmits, counter.messages) == (1, 1, 1)


def test_datagrams_are_never_sent_again() -> None:
    pair = Pair(kind=QPType.UD)
    counter = counted(pair)
    for _ in range(3):
        pair.client.send(b"datagram")
    pair.drive()
    assert (counter.messages, counter.bytes, counter.retransmits) == (3, 24, 0)


@given(st.integers(0, 1 << 32), st.lists(st.sampled_from("swra"), min_size=1, max_size=12))
def test_under_loss_messages_and_bytes_stay_what_was_posted(seed: int, kinds: list[str]) -> None:
    chances = Chances(Random(seed), drop=0.1)
    first = 0xFFFFFE
    pair = Pair(Link(chances=chances), attributes=ATTRIBUTES._replace(rq_psn=first, sq_psn=first))
    counter = counted(pair)
    data = 0
    for length, kind in enumerate(kinds, 2 * MTU):
        if kind == "s":
            pair.server.receive(length)
            pair.client.send(bytes(length))
        elif kind == "w":
            pair.client.write(bytes(length), to=pair.server.region)
        elif kind == "r":
            pair.client.read(length, of=pair.server.region)
        else:
            pair.client.fetch_add(1, of=pair.server.region)
        data += 8 if kind == "a" else length
    pair.drive()
    if all(done.status is WCStatus.SUCCESS for done in pair.client.poll()):
        assert (counter.messages, counter.bytes) == (len(kinds), data)
    assert counter.frames == pair.link.frames


def test_a_call_says_what_the_frame_was_counted_as() -> None:
    pair = Pair(Link(drop={2}))
    counter, said = FrameCounter(), list[FrameCount]()
    pair.simulator.on_sent.append(lambda frame, now: said.append(counter(frame, now)))
    pair.client.write(bytes(4 * MTU), to=pair.server.region)
    pair.drive()
    assert sum(one.messages for one in said) == counter.messages == 1
    assert sum(one.bytes for one in said) == counter.bytes == 4 * MTU
    signs = [one.sign for one in said]
    assert signs.count("retransmits") == counter.retransmits == 3
    assert signs.count("naks") == counter.naks == 1
    assert said[-1] == NO_TRAFFIC


def test_conversations_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins anew: what is sent again later counts once more, what is sent once is right."""
    monkeypatch.setattr(counting, "MAX_CONVERSATIONS", 3)
    counter, frames = FrameCounter(), list[bytes]()
    pair = Pair()
    pair.simulator.on_sent.append(lambda frame, _: frames.append(frame.data))
    pair.client.write(b"8 octets", to=pair.server.region)
    pair.drive()
    request = roce.parse(frames[0])
    for destqp in range(100, 110):
        bth = request.packet.bth.replace(destqp=destqp)
        frame = request.replace(packet=request.packet.replace(bth=bth)).seal().build()
        assert [counter.count(frame, 0).sign for _ in range(2)] == ["", "retransmits"]
        assert len(counter._conversations) <= 3
    assert (counter.messages, counter.bytes, counter.retransmits) == (10, 80, 10)


@given(st.binary(max_size=120))
def test_any_bytes_are_counted_as_a_frame(data: bytes) -> None:
    counter = FrameCounter()
    counter.count(data, 5)
    assert (counter.frames, counter.frame_bytes, counter.last) == (1, len(data), 5)


def test_a_summary_has_the_memory_that_adapters_moved() -> None:
    pair = Pair()
    counter = counted(pair)
    pair.client.write(bytes(100), to=pair.server.region)
    pair.drive()
    nics = pair.client.nic, pair.server.nic
    summary = summarise(counter, nics, pair.simulator.now, lost=1)
    assert summary.paths == {"host": Moved(200, 2, 0)}
    assert (summary.messages, summary.bytes, summary.lost) == (1, 100, 1)
