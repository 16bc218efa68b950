"""MPA streams: start-up, and FPDUs however TCP cuts, loses and disorders them."""

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.dissect.mpa_event import (
    Event,
    Fpdu,
    Lost,
    NotIwarp,
    PartialFpdu,
    Skipped,
    StartUp,
)
from rdmawire.dissect.mpa_framing import MAX_INVALID_FPDUS, MPAConnection, Streams
from rdmawire.dissect.tcp import Data, Hole, Segment
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import MPAEnhanced, MPAReply, MPARequest, build_fpdu
from rdmawire.wire.rdmap import RDMAPOpcode, segment
from tests.dissect.mpa_samples import (
    ABSENT,
    BAD,
    GOOD,
    STREAMS,
    Feed,
    arrive,
    check_cover,
    fpdus,
    messages,
    placed,
    send,
    started,
    statuses,
    whole_ones,
)

# start-up

SIW: Feed = [
    (0, bytes.fromhex("4d504120494420526571204672616d655002000400010001")),
    (1, bytes.fromhex("4d504120494420526570204672616d655002000400010001")),
    (
        0,
        bytes.fromhex(
            "00224143000000000000000000000001000000000000560206bf884085e10d00000000c8fabf006e"
        ),
    ),
    (
        1,
        bytes.fromhex(
            "002e414100000000000000010000000100000000ed8c560000005635bcd9fca0000000c885e10d00"
            "0000560206bf88409f6b65a5"
        ),
    ),
]
"""siw612crc_rping.pcap, frames 6, 8, 10 and 12: way and payload."""


def test_a_connection_of_siw_is_read() -> None:
    connection, events, end = MPAConnection(), list[Event](), [0, 0]
    for way, data in SIW:
        events += arrive(connection, way, end[way], data)
        end[way] += len(data)
    request, reply, message, read = events
    assert isinstance(request, StartUp)
    assert (request.position, request.begin, request.data) == (0, 0, SIW[0][1])
    assert request.enhanced == MPAEnhanced(ird=1, ord=1)
    assert isinstance(reply, StartUp)
    assert (reply.header.rev, reply.private_data) == (2, b"\0\1\0\1")
    assert isinstance(message, Fpdu)
    assert (message.position, message.begin, message.crc) == (24, 0, GOOD)
    assert message.fpdu.ulpdu == SIW[2][1][2:36]
    assert isinstance(read, Fpdu)
    assert (read.data, read.crc) == (SIW[3][1], GOOD)
    assert connection.agreement.request == request.header
    assert connection.agreement.reply == reply.header


@pytest.mark.parametrize("step", [1, 3, 17, 1000])
def test_a_start_up_frame_is_reported_when_it_is_whole(step: int) -> None:
    frame = MPARequest(pd_length=40).build() + bytes(range(40))
    data = frame + build_fpdu(send(5), crc=False)
    connection = MPAConnection()
    for start in range(0, len(data), step):
        end = min(start + step, len(data))
        events = arrive(connection, 0, start, data[start:end])
        found = [event for event in events if isinstance(event, StartUp)]
        assert bool(found) is (start < len(frame) <= end)
        if found:
            assert found[0].private_data == bytes(range(40))
            assert found[0].begin == (0 if step > len(frame) else None)


@pytest.mark.parametrize(("m", "c"), list(product(product((0, 1), repeat=2), repeat=2)))
def test_what_was_negotiated_holds_for_the_fpdus_of_each_way(
    m: tuple[int, int], c: tuple[int, int]
) -> None:
    connection = started(m=m, c=c)
    in_use = any(c)
    for way in (0, 1):
        sent = fpdus([send(600), send(20, 2), send(500, 3)], crc=in_use, markers=bool(m[1 - way]))
        events = arrive(connection, way, 20, b"".join(sent))
        assert whole_ones(events) == placed(sent, 20)
        assert statuses(events) == [GOOD if in_use else ABSENT] * 3


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("step", [1, 1000])
def test_markers_are_recognised_by_the_first_bytes_if_the_reply_was_not_seen(
    step: int, crc: bool, markers: bool
) -> None:
    connection = MPAConnection()
    arrive(connection, 0, 0, MPARequest(c=int(crc)).build())
    sent = fpdus([send(600), send(20, 2)], crc=crc, markers=markers)
    data, events = b"".join(sent), list[Event]()
    for start in range(0, len(data), step):
        events += arrive(connection, 0, 20 + start, data[start : start + step])
    assert whole_ones(events) == placed(sent, 20)
    assert statuses(events) == [GOOD if crc else ABSENT] * 2


def test_a_good_crc_shows_that_crcs_are_in_use_if_the_start_up_was_not_seen() -> None:
    connection = MPAConnection()
    arrive(connection, 0, 0, MPARequest().build())
    zero, good = fpdus([send(5)], crc=False), fpdus([send(6, 2)])
    events = arrive(connection, 0, 20, b"".join([*zero, *good, *zero]))
    assert statuses(events) == [ABSENT, GOOD, BAD]


def test_an_unused_crc_is_not_judged_even_if_it_fits() -> None:
    [event] = arrive(started(), 0, 20, fpdus([send(5)])[0])
    assert isinstance(event, Fpdu)
    assert (event.crc, event.fpdu.good) == (ABSENT, True)


def test_a_bad_crc_is_reported_and_the_stream_goes_on() -> None:
    sent = fpdus([send(50), send(60, 2)])
    broken = sent[0][:30] + b"\xff" + sent[0][31:]
    events = arrive(started(c=(1, 0)), 0, 20, broken + sent[1])
    assert whole_ones(events) == placed([broken, sent[1]], 20)
    assert statuses(events) == [BAD, GOOD]


def test_after_a_rejection_bytes_are_passed_over() -> None:
    connection = MPAConnection()
    arrive(connection, 0, 0, MPARequest().build())
    refused = MPAReply(r=1, pd_length=2).build() + b"no"
    events = arrive(connection, 1, 0, refused + b"rest")
    assert [type(event) for event in events] == [StartUp, Skipped]
    assert arrive(connection, 0, 20, b"more") == [Skipped(20, 4)]
    assert arrive(connection, 1, 26, b"more") == [Skipped(26, 4)]


def test_a_request_that_is_captured_after_its_rejection_is_read() -> None:
    connection, request = MPAConnection(), MPARequest().build()
    arrive(connection, 1, 0, MPAReply(r=1).build())
    assert arrive(connection, 0, 0, request[:3]) == []
    (event,) = arrive(connection, 0, 3, request[3:])
    assert isinstance(event, StartUp)
    assert event.data == request
    assert arrive(connection, 0, 20, b"more") == [Skipped(20, 4)]


def test_other_bytes_than_a_request_are_passed_over_after_a_rejection() -> None:
    connection = MPAConnection()
    arrive(connection, 1, 0, MPAReply(r=1).build())
    assert arrive(connection, 0, 0, b"MP") == []
    assert arrive(connection, 0, 2, b"more") == [Skipped(0, 6)]


def test_more_private_data_than_allowed_is_reported_and_fpdus_are_searched_for() -> None:
    connection, sent = MPAConnection(), fpdus([send(50), send(60, 2)])
    frame = MPARequest(pd_length=513).build()
    events = arrive(connection, 0, 0, frame + b"junk!" + b"".join(sent))
    assert isinstance(events[0], StartUp)
    assert (events[0].header.pd_length, events[0].private_data) == (513, b"")
    assert events[1] == Skipped(20, 5)
    assert whole_ones(events) == placed(sent, 25)


# FPDUs


@pytest.mark.parametrize(("crc", "markers"), STREAMS)
@pytest.mark.parametrize("step", [1, 7, 512, 1448, 1 << 20])
def test_fpdus_are_the_same_however_tcp_cuts_them(step: int, crc: bool, markers: bool) -> None:
    sent = fpdus([send(n, 1 + n) for n in (0, 1, 2, 3, 700, 40)], crc=crc, markers=markers)
    connection = started(m=(0, int(markers)), c=(int(crc), 0))
    data, events, done = b"".join(sent), list[Event](), 0
    ends = [position + len(one) for position, one in placed(sent, 0)]
    for start in range(0, len(data), step):
        end = min(start + step, len(data))
        found = arrive(connection, 0, 20 + start, data[start:end])
        assert len(found) == sum(start < fpdu_end <= end for fpdu_end in ends)
        for event in found:
            assert isinstance(event, Fpdu)
            begin = event.position - 20 - start
            assert event.begin == (begin if begin >= 0 else None)
            done += 1
        events += found
    assert whole_ones(events) == placed(sent, 20)
    assert done == len(sent)


@pytest.mark.parametrize("markers", [False, True])
def test_a_stream_that_ends_anywhere_gives_the_fpdus_that_are_whole(markers: bool) -> None:
    sent = fpdus([send(30), send(500, 2), send(9, 3)], markers=markers)
    data = b"".join(sent)
    for end in range(len(data) + 1):
        events = arrive(started(m=(0, int(markers)), c=(1, 1)), 0, 20, data[:end])
        whole = [one for one in placed(sent, 20) if one[0] + len(one[1]) <= 20 + end]
        assert whole_ones(events) == whole
        assert len(events) == len(whole)


def test_reserved_bits_and_opcodes_do_not_end_certain_framing() -> None:
    odd = [segment(RDMAPOpcode.SEND, b"x", rsvd=5, rsv=3, msn=n) for n in range(40)]
    sent = fpdus(odd, crc=False)
    assert len(whole_ones(arrive(started(), 0, 20, b"".join(sent)))) == 40


def test_many_fpdus_without_sense_end_certain_framing() -> None:
    bad = fpdus([b"nonsense"] * (MAX_INVALID_FPDUS + 5), crc=False)
    good = fpdus([send(100, msn) for msn in range(1, 4)], crc=False)
    events = arrive(started(), 0, 20, b"".join(bad + good))
    assert whole_ones(events)[:MAX_INVALID_FPDUS] == placed(bad, 20)[:MAX_INVALID_FPDUS]
    assert whole_ones(events)[MAX_INVALID_FPDUS:] == placed(bad + good, 20)[len(bad) :]
    check_cover(events, 20)


# TCP and MPA together

CLIENT, SERVER = b"\x0a\x4d\x00\x02", b"\x0a\x4d\x00\x01"


def opened(isn: int = 1000) -> Streams:
    streams = Streams()
    streams.segment(CLIENT, SERVER, TCP(1, 2, isn, syn=1), b"")
    streams.segment(SERVER, CLIENT, TCP(2, 1, 77, isn + 1, syn=1, ack=1), b"")
    return streams


def test_a_segment_that_fills_a_hole_brings_the_fpdus_behind_it() -> None:
    streams, request = opened(), MPARequest(c=1).build()
    streams.segment(CLIENT, SERVER, TCP(1, 2, 1001, 78, ack=1), request)
    first, second = fpdus([send(50), send(60, 2)])
    late = TCP(1, 2, 1021 + len(first), 78, ack=1)
    assert streams.segment(CLIENT, SERVER, late, second).events == []
    events = streams.segment(CLIENT, SERVER, TCP(1, 2, 1021, 78, ack=1), first).events
    assert whole_ones(events) == placed([first, second], 20)
    assert [event.begin for event in events if isinstance(event, Fpdu)] == [0, None]


def test_a_frame_cut_by_the_capture_tears_its_fpdu_at_once() -> None:
    streams, request = opened(), MPARequest(c=1).build()
    streams.segment(CLIENT, SERVER, TCP(1, 2, 1001, 78, ack=1), request)
    position = 20
    for msn in range(1, 4):
        data = fpdus([send(900, msn)])[0]
        tcp = TCP(1, 2, 1001 + position, 78, ack=1)
        events = streams.segment(CLIENT, SERVER, tcp, data[:60], len(data)).events
        assert events == [
            PartialFpdu(position, 0, data[:60], len(data)),
            Lost(position + 60, len(data) - 60),
        ]
        position += len(data)


def test_a_connection_that_is_not_iwarp_is_reported_once_and_then_ignored() -> None:
    streams = opened()
    result = streams.segment(CLIENT, SERVER, TCP(1, 2, 1001, 78, ack=1), b"GET / HTTP/1.1\r\n")
    assert result.events == [NotIwarp()]
    assert result.arrival.connection.deaf
    later = TCP(1, 2, 1017, 78, ack=1)
    assert streams.segment(CLIENT, SERVER, later, MPARequest().build()).events == []


def lossy(seed: int) -> tuple[list[bytes], Iterator[tuple[int, bytes, int | None]]]:
    """FPDUs, and segments of their stream: lost, cut, repeated and out of order."""
    chance = random.Random(seed)
    crc, markers = chance.random() < 0.5, chance.random() < 0.5
    sent = fpdus(messages(seed, 30, chance.choice((60, 1400))), crc=crc, markers=markers)
    reply = MPARequest(c=int(crc)).build()
    data = reply + b"".join(sent)

    def segments() -> Iterator[tuple[int, bytes, int | None]]:
        late: list[tuple[int, bytes, int | None]] = []
        start = 0
        while start < len(data):
            end = start + chance.choice((chance.randrange(1, 1500), 1448, 20))
            payload = data[start:end]
            cut = payload[: chance.randrange(len(payload))] if start else payload
            what = chance.random()
            if start == 0 or what < 0.8:
                yield start, payload, None
            elif what < 0.9:
                late.append((start, payload, None))
            elif what < 0.95:
                yield start, cut, len(payload)
            if what < 0.1:
                yield start, payload, None
            if late and chance.random() < 0.3:
                yield late.pop()
            start = end

    return sent, segments()


@pytest.mark.parametrize("seed", range(60))
def test_no_fpdu_is_made_up_whatever_happens_to_segments(seed: int) -> None:
    sent, segments = lossy(seed)
    isn = random.Random(seed).getrandbits(32)
    streams, events = opened(isn), list[Event]()
    for position, payload, length in segments:
        tcp = TCP(1, 2, (isn + 1 + position) % (1 << 32), 78, ack=1)
        events += streams.segment(CLIENT, SERVER, tcp, payload, length).events
    assert set(whole_ones(events)) <= set(placed(sent, 20))
    check_cover(events)


# anything else


@given(
    st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=40), st.integers(0, 3))),
    st.booleans(),
    st.booleans(),
)
def test_any_bytes_give_events(
    feed: list[tuple[int, bytes, int]], known: bool, joined: bool
) -> None:
    connection = started(joined=joined) if known else MPAConnection()
    end = [20, 20] if known else [0, 0]
    for way, data, missing in feed:
        pieces = (Hole(end[way], missing),) if missing else ()
        place = end[way] + missing
        whole = Segment(place, len(data), len(data), (*pieces, Data(place, data)))
        for event in connection.receive(way, whole, joined=joined):
            assert isinstance(event, Event)
        end[way] = place + len(data)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"G", 0),
        (b"MPB", 2),
        (b"MPA ID Req Frame"[:15] + b"!", 15),
        (b"\x16\x03", 0),
        (bytes(4), 0),
    ],
)
def test_a_stream_that_does_not_begin_with_a_key_is_rejected_at_its_first_wrong_byte(
    data: bytes, wrong: int
) -> None:
    connection = MPAConnection()
    for position in range(wrong):
        assert arrive(connection, 0, position, data[position : position + 1]) == []
    assert arrive(connection, 0, wrong, data[wrong:]) == [NotIwarp()]
    assert connection.over
    assert arrive(connection, 1, 0, MPAReply().build()) == []
