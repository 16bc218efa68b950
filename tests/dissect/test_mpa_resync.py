"""MPA streams joined late or with holes, and streams that are no iWARP at all."""

import random
import struct
from collections.abc import Callable

import pytest

from rdmawire.dissect import mpa_resync as mpa_search
from rdmawire.dissect.mpa_event import (
    Event,
    Fpdu,
    Lost,
    NotIwarp,
    PartialFpdu,
    Skipped,
    StartUp,
)
from rdmawire.dissect.mpa_framing import MPAConnection
from rdmawire.dissect.mpa_resync import WINDOW, FpduStart, read_head
from rdmawire.wire.mpa import MPAReply
from rdmawire.wire.rdmap import RDMAPOpcode, segment
from tests.dissect.mpa_samples import (
    ABSENT,
    GOOD,
    STREAMS,
    arrive,
    check_cover,
    fpdus,
    lose,
    messages,
    placed,
    send,
    started,
    statuses,
    whole_ones,
)

# joining late


@pytest.mark.parametrize(("crc", "markers"), STREAMS)
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_joined_anywhere_is_read_from_soon_after(
    seed: int, crc: bool, markers: bool
) -> None:
    sent = fpdus(messages(seed, 40), crc=crc, markers=markers)
    data, chance = b"".join(sent), random.Random(seed)
    cut = chance.randrange(6000)
    connection, events, start = MPAConnection(), list[Event](), cut
    while start < len(data):
        end = start + chance.randrange(1, 1500)
        events += arrive(connection, 0, start - cut, data[start:end], joined=True)
        start = min(end, len(data))
    true = [(position - cut, one) for position, one in placed(sent, 0) if position >= cut]
    found = [(position, one[-4:]) for position, one in whole_ones(events)]
    # Without a CRC a Marker before the first FPDU found cannot be told apart from other bytes.
    assert {end for _, end in found[1:]} <= {one[-4:] for _, one in true}
    assert [f for f in whole_ones(events)[1:] if f in true] == whole_ones(events)[1:]
    assert len(found) >= len(true) - (0 if crc and not markers else 6)
    check_cover(events)


def test_one_fpdu_with_a_good_crc_is_enough_at_every_alignment() -> None:
    first, second = fpdus([send(90), send(70, 2)])
    for cut in range(len(first)):
        events = arrive(MPAConnection(), 0, 0, first[cut:] + second, joined=True)
        expected = [(len(first) - cut, second)]
        if cut == 0:
            expected.insert(0, (0, first))
        assert whole_ones(events) == expected
        assert statuses(events) == [GOOD] * len(expected)
        check_cover(events)


def test_without_crc_two_fpdus_that_fill_their_segments_are_enough() -> None:
    connection, position = MPAConnection(), 0
    found = []
    for data in fpdus([send(90), send(70, 2), send(40, 3)], crc=False):
        events = arrive(connection, 0, position, data, joined=True)
        found.append(len(whole_ones(events)))
        position += len(data)
    assert found == [0, 2, 1]


def test_without_crc_fpdus_anywhere_need_numbers_that_agree() -> None:
    writes = [
        segment(RDMAPOpcode.RDMA_WRITE, bytes(500), stag=0x1234, to=500 * n, l=n % 4 // 3)
        for n in range(12)
    ]
    sent = fpdus(writes, crc=False)
    data = b"".join(sent)[100:]
    connection, events = MPAConnection(), list[Event]()
    for start in range(0, len(data), 333):
        events += arrive(connection, 0, start, data[start : start + 333], joined=True)
    assert whole_ones(events) == placed(sent, -100)[1:]


@pytest.mark.parametrize("step", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("crc", [False, True])
def test_a_search_finds_the_same_however_tcp_cuts_the_stream(crc: bool, step: int) -> None:
    sent = fpdus([send(60, msn) for msn in range(1, 5)], crc=crc)
    data = (b"".join(sent) + b"\xff") * 3
    connection, events = started(c=(int(crc), 0)), list[Event]()
    events += lose(connection, 0, 20, 30, b"\xff")
    for start in range(0, len(data), step):
        events += arrive(connection, 0, 31 + start, data[start : start + step])
    assert [one for _, one in whole_ones(events)] == sent * 3
    check_cover(events, 20)


def test_markers_found_late_are_kept_to() -> None:
    sent = fpdus([send(30, msn) for msn in range(1, 60)], markers=True)
    data = b"".join(sent)
    events = arrive(MPAConnection(), 0, 0, data[100:], joined=True)
    true = placed(sent, -100)
    assert whole_ones(events)[-40:] == true[-40:]
    assert set(whole_ones(events)) <= set(true)
    assert set(statuses(events)) == {GOOD}


def test_a_stream_joined_at_its_start_up_frame_is_recognised_by_it() -> None:
    [event] = arrive(MPAConnection(), 1, 0, MPAReply(c=1).build(), joined=True)
    assert isinstance(event, StartUp)


# holes

BEFORE, AFTER = [send(100, 1), send(200, 2), send(300, 3)], [send(80, 4), send(90, 5)]


@pytest.mark.parametrize(("crc", "markers"), STREAMS)
def test_a_hole_inside_an_fpdu_tears_it_and_no_other(crc: bool, markers: bool) -> None:
    sent = fpdus(BEFORE + AFTER, crc=crc, markers=markers)
    data = b"".join(sent)
    torn, end = placed(sent, 20)[1][0], placed(sent, 20)[2][0]
    for start in (torn + 10, torn + 60):
        for stop in (start + 1, end - 1, end):
            connection = started(m=(0, int(markers)), c=(int(crc), 0))
            events = arrive(connection, 0, 20, data[: start - 20])
            events += lose(connection, 0, start, stop, data[stop - 20 :])
            kinds = [type(event) for event in events]
            assert kinds == [Fpdu, PartialFpdu, Lost, Fpdu, Fpdu, Fpdu]
            there, place = data[torn - 20 : start - 20], torn - 20 if markers else None
            assert events[1] == PartialFpdu(torn, None, there, end - torn, place)
            assert events[2] == Lost(start, stop - start)
            assert whole_ones(events)[1:] == placed(sent, 20)[2:]


@pytest.mark.parametrize("crc", [False, True])
def test_after_a_hole_over_several_fpdus_the_next_one_is_found(crc: bool) -> None:
    sent = fpdus(BEFORE + AFTER, crc=crc)
    data = b"".join(sent)
    start, stop = placed(sent, 20)[1][0] + 30, placed(sent, 20)[3][0]
    connection = started(c=(int(crc), 0))
    events = arrive(connection, 0, 20, data[: start - 20])
    events += lose(connection, 0, start, stop, sent[3])
    events += arrive(connection, 0, stop + len(sent[3]), sent[4])
    assert [type(event) for event in events] == [Fpdu, PartialFpdu, Lost, Fpdu, Fpdu]
    assert whole_ones(events)[1:] == placed(sent, 20)[3:]
    check_cover(events, 20)


def test_a_hole_between_fpdus_leaves_nothing_torn() -> None:
    sent = fpdus(BEFORE + AFTER)
    connection = started(c=(1, 1))
    events = arrive(connection, 0, 20, sent[0])
    stop = placed(sent, 20)[3][0]
    events += lose(connection, 0, 20 + len(sent[0]), stop, sent[3])
    assert [type(event) for event in events] == [Fpdu, Lost, Fpdu]


def test_without_markers_a_zero_crc_before_an_fpdu_is_no_marker() -> None:
    sent = fpdus([send(50, msn) for msn in range(1, 9)], crc=False)
    third = placed(sent, 20)[2][0]
    connection = started()
    events = arrive(connection, 0, 20, sent[0])
    events += lose(connection, 0, 20 + len(sent[0]), third - 4, b"".join(sent)[third - 24 :])
    assert events[2] == Skipped(third - 4, 4)
    assert whole_ones(events)[1:] == placed(sent, 20)[2:]


def test_the_place_of_markers_is_known_across_a_hole() -> None:
    sent = fpdus([send(600, msn) for msn in range(1, 9)], crc=False, markers=True)
    data = b"".join(sent)
    connection = started(m=(0, 1))
    events = arrive(connection, 0, 20, data[:100])
    events += lose(connection, 0, 120, 1500, data[1480:])
    assert whole_ones(events) == [one for one in placed(sent, 20) if one[0] >= 1500]
    assert set(statuses(events)) == {ABSENT}


# anything else


def noise(chance: random.Random, length: int) -> bytes:
    return chance.randbytes(length)


def zeros(_: random.Random, length: int) -> bytes:
    return bytes(length)


WORDS = b"HTTP/1.1 200 OK CACA ACK AC AB @C Content-Length: 1234 \r\n\r\n C@ \xd1\x81@ {}".split()


def http(chance: random.Random, length: int) -> bytes:
    text = b" ".join(chance.choices(WORDS, k=length // 4))
    return text[:length]


def sparse(chance: random.Random, length: int) -> bytes:
    data = bytearray(length)
    for _ in range(length // 12):
        data[chance.randrange(length)] = chance.choice((0x41, 0x43, 0x81, 0xC1, 0x40, 1, 20))
    return bytes(data)


def numbers(kind: str, low: float, high: float) -> Callable[[random.Random, int], bytes]:
    """Floating-point numbers whose bytes look like DDP and RDMAP control fields."""

    def make(chance: random.Random, length: int) -> bytes:
        count = length // struct.calcsize(kind)
        return struct.pack(f"<{count}{kind}", *(chance.uniform(low, high) for _ in range(count)))

    return make


def repeated(pattern: bytes) -> Callable[[random.Random, int], bytes]:
    return lambda _, length: pattern * (length // len(pattern))


OTHERS: list[tuple[Callable[[random.Random, int], bytes], int]] = [
    (noise, 256),
    (zeros, 128),
    (http, 16),
    (sparse, 4),
    (numbers("d", 8704, 9216), 4),
    (numbers("d", 544, 576), 4),
    (numbers("f", 6.03125, 6.0625), 4),
    (numbers("f", 4.03, 4.0624), 4),
    (repeated(struct.pack("<d", 8964.0)), 4),
    (repeated(b"\x00\x82\xc1\x40"), 4),
    (repeated(b"\x81\x40"), 4),
    (repeated(b"\x00\x12\x41\x43" + bytes(8) + b"\0\0\0\1" + bytes(4)), 4),
]
"""What other streams hold, and how many times 256 KiB of it are tried."""


@pytest.mark.parametrize(("make", "times"), OTHERS)
@pytest.mark.parametrize("step", [1448, 65536])
@pytest.mark.parametrize("share", [16, pytest.param(2, marks=pytest.mark.slow)])
def test_no_other_stream_is_taken_for_iwarp(
    make: Callable[[random.Random, int], bytes], times: int, step: int, share: int
) -> None:
    chance = random.Random(step)
    for _ in range(max(times // share, 1)):
        data = make(chance, (256 << 10) + 4096)
        connection, events = MPAConnection(), list[Event]()
        for start in range(0, len(data), step):
            events += arrive(connection, 0, start, data[start : start + step], joined=True)
        assert events == [NotIwarp()]


def test_a_search_keeps_a_window_and_its_work_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0

    def counted(buffer: bytes, index: int, position: int) -> FpduStart | None:
        nonlocal looked
        looked += 1
        return read_head(buffer, index, position)

    monkeypatch.setattr(mpa_search, "read_head", counted)
    search = mpa_search.Search(0, known=True)
    total = 0
    for _ in range(400):
        data = b"\xff\x01\x81\x40" * 400
        assert search.feed(data) is None
        total += len(data)
        assert len(search.buffer) <= WINDOW
    credit = mpa_search.FIRST_CREDIT + mpa_search.CREDIT_PER_BYTE * total
    assert looked <= credit // mpa_search.HEAD_COST
