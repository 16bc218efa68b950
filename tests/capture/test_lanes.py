"""Records found in lanes: the same as one after the other, whatever the file holds."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import Record, create_capture, open_capture
from rdmawire.capture import record_index as module
from rdmawire.capture.record_index import Lanes, RecordForm, Stretch, open_pcap
from rdmawire.errors import CaptureError

FORM = RecordForm("<", 1_000_000_000, 262_144)
SECONDS = 1_700_000_000


def record(data: bytes, seconds: int = SECONDS, order: str = "<") -> bytes:
    return struct.pack(f"{order}IIII", seconds, 5, len(data), len(data)) + data


def places_one_by_one(data: bytes, start: int, end: int, order: str = "<") -> list[int]:
    found = []
    while start < end and start + 16 <= len(data):
        (captured,) = struct.unpack_from(f"{order}8xI", data, start)
        if start + 16 + captured > len(data):
            break
        found.append(start)
        start += 16 + captured
    return found


# What looks like a record in the midst of a payload, and leads astray.
decoys = st.sampled_from([record(bytes(40)), record(b"", SECONDS + 1), bytes(16), b"\xff" * 16])
payloads = st.lists(st.binary(max_size=80) | decoys, max_size=6).map(b"".join)


@given(
    st.lists(st.tuples(payloads, st.integers(-70000, 70000)), max_size=60),
    st.sampled_from("<>"),
    st.binary(max_size=30),
    st.integers(0, 4000),
)
def test_lanes_find_what_one_walk_finds(
    records: list[tuple[bytes, int]], order: str, behind: bytes, end: int
) -> None:
    data = bytes(24) + b"".join(record(o, SECONDS + s, order) for o, s in records) + behind
    end = min(max(end, 24), len(data))
    found = Lanes(data, FORM._replace(order=order)).walk(24, end)
    wanted = places_one_by_one(data, 24, end, order)
    assert found.places.tolist() == wanted
    last = wanted[-1] if wanted else None
    behind_last = (
        24 if last is None else last + 16 + struct.unpack_from(f"{order}8xI", data, last)[0]
    )
    assert found.end == behind_last


def test_lanes_walk_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(24) + (record(bytes(50)) + record(bytes(48))) * 500
    one_by_one = Lanes._one_by_one

    def sample(lanes: Lanes, start: int, end: int, most: int = 0) -> Stretch:
        return one_by_one(lanes, start, end, most) if most else pytest.fail("they did not meet")

    monkeypatch.setattr(Lanes, "_one_by_one", sample)
    found = Lanes(data, FORM).walk(24, len(data))
    pairs = range(24, len(data), 130)
    assert found.places.tolist() == [place for pair in pairs for place in (pair, pair + 66)]


@pytest.mark.parametrize("behind", [b"", record(bytes(49)), b"\xff" * 30, record(bytes(50))[:40]])
@pytest.mark.parametrize("cut", [0, 1, 65, 66, 67])
def test_records_of_one_length_are_found_at_once(
    behind: bytes, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(24) + record(bytes(50)) * 1000 + behind
    end = len(data) - cut
    wanted = places_one_by_one(data, 24, end)
    if not behind:
        monkeypatch.setattr(Lanes, "_in_step", lambda *_: pytest.fail("they were all alike"))
    found = Lanes(data, FORM).walk(24, end)
    assert found.places.tolist() == wanted
    assert found.end == wanted[-1] + 16 + struct.unpack_from("<8xI", data, wanted[-1])[0]


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 40])
def test_a_cut_file_gives_what_is_whole_and_the_readers_error(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.pcap"
    with create_capture(path) as writer:
        for number in range(100):
            writer.write(Record(bytes(50), number, 50, 1))
    path.write_bytes(path.read_bytes()[:-cut])
    places: list[int] = []
    pcap = open_pcap(path)
    assert pcap is not None
    with pytest.raises(CaptureError) as found:  # noqa: PT012 - the blocks come before it
        for block in pcap.blocks(512):
            assert block.first == len(places) + 1
            places += block.places.tolist()
    with open_capture(path) as reader, pytest.raises(CaptureError) as expected:
        list(reader)
    assert len(places) == 99
    assert str(found.value) == str(expected.value)


def test_only_plain_pcap_files_are_read_in_blocks(tmp_path: Path) -> None:
    captures = Path(__file__).parents[2] / "captures" / "linux"
    pcap = open_pcap(captures / "rxe61_rnr.pcap")
    assert pcap is not None
    assert pcap.link_type == 1
    assert sum(len(block.places) for block in pcap.blocks()) == 152
    for other in (tmp_path, tmp_path / "nowhere", "-", "e\0"):
        assert open_pcap(other) is None


def test_a_hostile_file_costs_a_bounded_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks everywhere that are no records: each lane gives up after so many."""
    tried = []
    monkeypatch.setattr(Lanes, "_looks_like_records", lambda _, place, __: tried.append(place))
    mark = struct.pack("<I", SECONDS)[2:]
    data = bytes(24) + record(b"") * 64 + record(mark * 20_000)
    found = Lanes(data, FORM).walk(24, len(data))
    assert len(found.places) == 65
    sample = Stretch(np.arange(24, 24 + 64 * 16, 16), 24 + 64 * 16)
    lanes = len(data) // module._lane(sample, len(data))
    assert 0 < len(tried) <= module._TRIES * lanes
    assert np.diff(tried).min() > 0
