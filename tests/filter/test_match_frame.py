"""What filters pass, beyond what tshark is asked: bounds, laws of logic, our own additions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import fields
from rdmawire.filter import Filter
from rdmawire.filter.ast import SliceRange
from rdmawire.filter.match_frame import slice_value
from rdmawire.filter.names import find_field, value_words
from tests.captures import CAPTURES
from tests.filter.samples import filters, frames
from tests.waiting import calls


def passing(text: str, name: str = "linux/rxe61_rnr.pcap") -> list[int]:
    """The numbers of a capture's frames that pass."""
    wanted = Filter(text)
    with open_capture(CAPTURES / name) as reader:
        return [frame.number for frame in Dissector().capture(reader) if wanted(frame)]


@settings(deadline=None)
@given(filters(), filters())
def test_de_morgan(one: str, other: str) -> None:
    for left, right in (
        (f"not (({one}) and ({other}))", f"(not ({one})) or (not ({other}))"),
        (f"not (({one}) or ({other}))", f"(not ({one})) and (not ({other}))"),
        (f"({one}) xor ({other})", f"(({one}) or ({other})) and not (({one}) and ({other}))"),
    ):
        one_way, other_way = Filter(left), Filter(right)
        assert all(one_way(frame) == other_way(frame) for frame in frames())


def test_every_field_can_be_asked_for() -> None:
    for name in (info.name for info in fields()):
        assert find_field(name) is not None, name
        there = Filter(name)
        counted = Filter(f"count({name}) > 0")
        assert all(there(frame) == counted(frame) for frame in frames()), name


def test_our_words_for_numbers() -> None:
    assert value_words("infiniband.bth.opcode")["rcacknowledge"] == 17
    for word in ("RC_ACKNOWLEDGE", '"RC Acknowledge"', '"rc-acknowledge"'):
        assert passing(f"infiniband.bth.opcode == {word}") == passing("infiniband.bth.opcode == 17")
    timer = passing('infiniband.aeth.syndrome.timer == "1.28 ms"')
    assert timer == passing("infiniband.aeth.syndrome.timer == 14") != []


def test_fields_of_our_own() -> None:
    assert passing("rdmawire.icrc.status == bad", "faulty/bad_icrc.pcap") == [2]
    assert passing('rdmawire.icrc.status == "good"', "faulty/bad_icrc.pcap") == [1]
    assert passing("rdmawire.icrc.status == BAD", "faulty/bad_icrc.pcap") == [2]
    assert passing("rdmawire.malformed", "faulty/malformed.pcap") == [1, 2, 3]
    assert passing('rdmawire.malformed contains "bytes"', "faulty/malformed.pcap")


def test_exclusive_or() -> None:
    neither = passing("not (udp or frame.len > 100)")
    assert sorted(
        passing("udp xor frame.len > 100") + neither + passing("udp && frame.len > 100")
    ) == (list(range(1, 153)))
    assert passing("udp ^^ frame.len > 100") == passing("udp xor frame.len > 100")


def test_bounds_of_ranges_may_be_fields() -> None:
    assert passing("frame.len in {udp.length .. 100}") == passing("udp and frame.len <= 100")


def test_sums_of_negative_numbers_are_exact() -> None:
    assert passing("frame.len - 100 > -50") == passing("frame.len > 50")
    assert passing("abs(frame.len - 100) < 30") == passing("frame.len > 70 and frame.len < 130")


@given(st.binary(max_size=12), st.integers(-14, 14), st.integers(1, 14) | st.none())
def test_a_slice_is_there_only_as_a_whole(data: bytes, start: int, length: int | None) -> None:
    places = range(len(data))
    first = start if start >= 0 else start + len(data)
    wanted = range(first, len(data) if length is None else first + length)
    whole = len(wanted) > 0 and all(place in places for place in wanted)
    expected = bytes(data[place] for place in wanted) if whole else None
    assert slice_value(data, SliceRange(start, length)) == expected


def test_values_that_multiply_stay_bounded() -> None:
    def work(terms: int) -> int:
        sums = " + ".join(["infiniband.multicastforwardingtable.portmask"] * terms)
        wanted = Filter(f"{sums} == 1")
        return calls(lambda: passed.extend(frame for frame in frames() if wanted(frame)))

    passed: list[Dissection] = []
    assert work(40) < 3 * work(20)
    assert not passed


def test_a_frame_of_any_bytes_can_be_asked_anything() -> None:
    wanted = [
        Filter(text) for text in ("infiniband", "tcp", "frame[0:3] & ff:ff:ff", "len(ip) > 0")
    ]
    for length in range(60):
        frame = Dissector().dissect(bytes(length))
        assert not any(ask(frame) for ask in wanted)


def test_a_dissection_without_nodes() -> None:
    empty = Dissection(1, b"", 0, 0)
    assert Filter("frame.number == 1 and not ip and not eth#1")(empty)


def test_a_file_whose_name_is_no_text() -> None:
    frame = Dissection(1, b"", 0, 0)
    frame.file = "a\udcff.pcap"
    assert Filter('rdmawire.file matches "pcap$" and rdmawire.file contains "a"')(frame)
