"""ICRCs that follow from what changed, against ICRCs that are reckoned anew."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32

from rdmawire.capture import LinkType, create_capture
from rdmawire.errors import CaptureError
from rdmawire.traffic.generate.frame_table import CrcChanges, changes_of
from rdmawire.traffic.generate.replicate import Recordings
from rdmawire.traffic.generate.spec import TrafficSpec, Verb
from rdmawire.traffic.generate.stamp import RecordedRound, RoundBatch
from rdmawire.wire import roce

ORDER = TrafficSpec(verb=Verb.ATOMIC, qps=2)
PCAP_HEADER = 16


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_byte_changes_a_crc_by_the_table(raw: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(raw) - 1))
    change = data.draw(st.integers(0, 255))
    changed = raw[:place] + bytes((raw[place] ^ change,)) + raw[place + 1 :]
    table = changes_of(len(raw) - 1 - place)
    assert crc32(changed) == crc32(raw) ^ int(table[change])


@given(st.lists(st.tuples(st.integers(8, 60), st.sampled_from([3, 8])), min_size=1, max_size=9))
def test_a_number_has_the_tables_of_its_bytes(asked: list[tuple[int, int]]) -> None:
    changes = CrcChanges()
    starts = [changes.start(*each) for each in asked]
    for start, (behind, width) in zip(starts, asked, strict=True):
        for at in range(width):
            part = changes.all()[start + 256 * at :][:256]
            assert (part == changes_of(behind - at)).all()


def recorded(path: Path, places: tuple[int, ...] = ()) -> RecordedRound:
    """A round of the order in which these frames are lost."""
    with create_capture(path, link_type=LinkType.ETHERNET) as writer:
        return Recordings(ORDER, writer).of(places)


def frames_of(data: memoryview, records: list[bytes]) -> list[bytes]:
    """The frames of the records of a pcap, which have these sizes."""
    frames, start = [], 0
    for record in records:
        frames.append(bytes(data[start + PCAP_HEADER : start + len(record)]))
        start += len(record)
    assert start == len(data)
    return frames


@pytest.mark.parametrize("shift", [0, 1, 12345, (1 << 24) + 3, 10**15])
@pytest.mark.parametrize("places", [(), (3,)])
def test_every_icrc_is_good_however_far_the_round_moved(
    tmp_path: Path, shift: int, places: tuple[int, ...]
) -> None:
    one = recorded(tmp_path / "x.pcap", places)
    frames = frames_of(RoundBatch([one] * 3).stamp(shift, 10**9), list(one.records) * 3)
    for frame in map(roce.parse, frames):
        assert frame.icrc == frame.expected_icrc()
    if shift == 0 and not places:
        assert frames[: len(one.records)] == [record[PCAP_HEADER:] for record in one.records]


def test_a_batch_can_be_stamped_again(tmp_path: Path) -> None:
    one = recorded(tmp_path / "x.pcap")
    batch = RoundBatch([one] * 2)
    first = bytes(batch.stamp(0, 0))
    assert bytes(batch.stamp(2, 2 * one.duration)) != first
    assert bytes(batch.stamp(0, 0)) == first


def test_a_time_that_no_pcap_holds_is_refused(tmp_path: Path) -> None:
    batch = RoundBatch([recorded(tmp_path / "x.pcap")])
    batch.stamp(0, 4_294_967_295 * 10**9)
    with pytest.raises(CaptureError, match="does not fit"):
        batch.stamp(0, 4_294_967_296 * 10**9)
