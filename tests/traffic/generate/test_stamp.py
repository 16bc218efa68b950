"""ICRCs that follow from what changed, against ICRCs that are reckoned anew."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32

from rdmawire.capture import LinkType, create_capture
from rdmawire.errors import CaptureError
from rdmawire.traffic.generate.link import Pattern, bth_place
from rdmawire.traffic.generate.replicate import CHUNK, Stamp, _changes, movers, record
from rdmawire.traffic.generate.rounds import TestNetwork
from rdmawire.traffic.generate.spec import Sizes, TrafficSpec, Verb
from rdmawire.wire import roce

ORDER = TrafficSpec(verb=Verb.ATOMIC, qps=2)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_byte_changes_a_crc_by_the_table(raw: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(raw) - 1))
    change = data.draw(st.integers(0, 255))
    changed = raw[:place] + bytes((raw[place] ^ change,)) + raw[place + 1 :]
    table = _changes(len(raw) - 1 - place)
    assert crc32(changed) == crc32(raw) ^ int(table[change])


def stamp(spec: TrafficSpec, path: Path, rows: int) -> tuple[Stamp, list[bytes]]:
    """A stamp of one round, and its frames as they were played."""
    conversation = TestNetwork(spec)
    before = conversation.ends.positions()
    recording = record(conversation, len(conversation.messages), Pattern(()))
    moving = list(movers(recording.frames, bth_place(spec), conversation.ends.step(before)))
    with create_capture(path, link_type=LinkType.ETHERNET) as writer:
        return Stamp(recording, moving, writer, rows), recording.frames


def frames_of(one: Stamp, data: memoryview, frames: list[bytes]) -> list[bytes]:
    starts = [one.size * row + end for row in range(one.rows) for end in one.ends[:-1]]
    lengths = [len(frame) for frame in frames] * one.rows
    return [
        bytes(data[start + 16 : start + 16 + length])
        for start, length in zip(starts, lengths, strict=True)
        if start < len(data)
    ]


@pytest.mark.parametrize("shift", [0, 1, 12345, (1 << 24) + 3, 10**15])
def test_every_icrc_is_good_however_far_the_round_moved(tmp_path: Path, shift: int) -> None:
    one, played = stamp(ORDER, tmp_path / "x.pcap", 3)
    assert one.rows == 3
    frames = frames_of(one, one.rounds(shift, 10**9, 3, 1000), played)
    assert len(frames) == 3 * len(played)
    for frame in map(roce.parse, frames):
        assert frame.icrc == frame.expected_icrc()
    if shift == 0:
        assert frames[: len(played)] == played


def test_rows_of_one_array_are_bounded(tmp_path: Path) -> None:
    spec = TrafficSpec(verb=Verb.WRITE, sizes=Sizes.parse("64k"), mtu=4096)
    one, _ = stamp(spec, tmp_path / "x.pcap", CHUNK)
    assert one.rows * one.size <= max(CHUNK, one.size)


def test_a_time_that_no_pcap_holds_is_refused(tmp_path: Path) -> None:
    one, _ = stamp(ORDER, tmp_path / "x.pcap", 1)
    one.rounds(0, 4_294_967_295 * 10**9, 1, 0)
    with pytest.raises(CaptureError, match="does not fit"):
        one.rounds(0, 4_294_967_296 * 10**9, 1, 0)
