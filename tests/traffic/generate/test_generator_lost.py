"""Frames that never arrive are named where they are sent."""

import pytest

from rdmawire.capture import Record
from rdmawire.traffic.generate.generator import generate
from rdmawire.traffic.generate.spec import CapturePoint, Sizes, TrafficSpec, Verb
from tests.traffic.generate.made import made

ORDER = TrafficSpec(verb=Verb.WRITE, sizes=Sizes.parse("1k"), count=1500, loss=0.006)
AT_ARRIVAL = TrafficSpec(
    verb=Verb.WRITE, sizes=Sizes.parse("1k"), count=1500, loss=0.006, tap=CapturePoint.ARRIVED
)


class Kept(list[Record]):
    """Records, kept."""

    def write(self, record: Record) -> None:
        self.append(record)


def arrived(spec: TrafficSpec = AT_ARRIVAL) -> list[bytes]:
    return [record.data for record in made(spec, at_once=False).records]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_pcapng_says_which_frames_are_lost(at_once: bool) -> None:
    one = made(ORDER, name="x.pcapng", at_once=at_once)
    lost = [record for record in one.records if record.comments]
    assert {record.comments for record in lost} == {("lost on the link",)}
    assert len(lost) == one.summary.lost > 0
    assert sorted(r.data for r in one.records if not r.comments) == sorted(arrived())


def test_both_ways_say_the_same() -> None:
    one, other = (made(ORDER, name="x.pcapng", at_once=at_once) for at_once in (False, True))
    assert one.sha256 == other.sha256


def test_a_pcap_has_the_same_frames_and_no_room_to_say_so() -> None:
    one, other = made(ORDER), made(ORDER, name="x.pcapng")
    assert [record.data for record in one.records] == [record.data for record in other.records]
    assert not any(record.options for record in one.records)


def test_where_frames_arrive_none_is_lost() -> None:
    one = made(AT_ARRIVAL, name="x.pcapng")
    assert one.summary.lost > 0
    assert not any(record.comments for record in one.records)


def test_whatever_has_a_method_write_is_given_the_records() -> None:
    kept = Kept()
    summary = generate(ORDER, kept)
    assert [record.data for record in kept] == [record.data for record in made(ORDER).records]
    assert sum(bool(record.comments) for record in kept) == summary.lost > 0
