"""Records found in lanes: the same as one after the other, whatever the file holds."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import Record, create_capture, open_capture
from rdmawire.capture import record_finder as module
from rdmawire.capture.io import InputFile
from rdmawire.capture.pcap_blocks import open_pcap
from rdmawire.capture.record_finder import RecordFinder, RecordFormat, RecordRange
from rdmawire.errors import CaptureError

FORM = RecordFormat("<", 1_000_000_000, 262_144)
SECONDS = 1_700_000_000


def record(data: bytes, seconds: int = SECONDS, order: str = "<") -> bytes:
    return struct.pack(f"{order}IIII", seconds, 5, len(data), len(data)) + data


def offsets_one_by_one(data: bytes, start: int, end: int, order: str = "<") -> list[int]:
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
    found = RecordFinder(data, FORM._replace(order=order)).find(24, end)
    wanted = offsets_one_by_one(data, 24, end, order)
    assert found.offsets.tolist() == wanted
    last = wanted[-1] if wanted else None
    behind_last = (
        24 if last is None else last + 16 + struct.unpack_from(f"{order}8xI", data, last)[0]
    )
    assert found.end == behind_last


def test_lanes_walk_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(24) + (record(bytes(50)) + record(bytes(48))) * 500
    one_by_one = RecordFinder._one_by_one

    def sample(lanes: RecordFinder, start: int, end: int, most: int = 0) -> RecordRange:
        return one_by_one(lanes, start, end, most) if most else pytest.fail("they did not meet")

    monkeypatch.setattr(RecordFinder, "_one_by_one", sample)
    found = RecordFinder(data, FORM).find(24, len(data))
    pairs = range(24, len(data), 130)
    assert found.offsets.tolist() == [place for pair in pairs for place in (pair, pair + 66)]


@pytest.mark.parametrize("behind", [b"", record(bytes(49)), b"\xff" * 30, record(bytes(50))[:40]])
@pytest.mark.parametrize("cut", [0, 1, 65, 66, 67])
def test_records_of_one_length_are_found_at_once(
    behind: bytes, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(24) + record(bytes(50)) * 1000 + behind
    end = len(data) - cut
    wanted = offsets_one_by_one(data, 24, end)
    if not behind:
        monkeypatch.setattr(RecordFinder, "_in_step", lambda *_: pytest.fail("they were all alike"))
    found = RecordFinder(data, FORM).find(24, end)
    assert found.offsets.tolist() == wanted
    assert found.end == wanted[-1] + 16 + struct.unpack_from("<8xI", data, wanted[-1])[0]


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 40])
def test_a_cut_file_gives_what_is_whole_and_the_readers_error(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.pcap"
    with create_capture(path) as writer:
        for number in range(100):
            writer.write(Record(bytes(50), number, 50, 1))
    path.write_bytes(path.read_bytes()[:-cut])
    offsets: list[int] = []
    pcap = open_pcap(path)
    assert pcap is not None
    with pytest.raises(CaptureError) as found:  # noqa: PT012 - the blocks come before it
        for block in pcap.blocks(512):
            assert block.first == len(offsets) + 1
            offsets += block.offsets.tolist()
    with open_capture(path) as reader, pytest.raises(CaptureError) as expected:
        list(reader)
    assert len(offsets) == 99
    assert str(found.value) == str(expected.value)


def test_only_plain_pcap_files_are_read_in_blocks(tmp_path: Path) -> None:
    captures = Path(__file__).parents[2] / "captures" / "linux"
    pcap = open_pcap(captures / "rxe61_rnr.pcap")
    assert pcap is not None
    assert pcap.link_type == 1
    assert sum(len(block.offsets) for block in pcap.blocks()) == 152
    for other in (tmp_path, tmp_path / "nowhere", "-", "e\0"):
        assert open_pcap(other) is None


def test_a_hostile_file_costs_a_bounded_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks everywhere that are no records: each lane gives up after ``_TRIES`` of them."""
    tried: list[int] = []
    monkeypatch.setattr(RecordFinder, "_looks_like_record", lambda _, at, __: tried.append(at))
    mark = struct.pack("<I", SECONDS)[2:]
    data = bytes(24) + record(b"") * 64 + record(mark * 20_000)
    found = RecordFinder(data, FORM).find(24, len(data))
    assert len(found.offsets) == 65
    sample = RecordRange(np.arange(24, 24 + 64 * 16, 16), 24 + 64 * 16)
    lanes = len(data) // module._lane_size(sample, len(data))
    assert 0 < len(tried) <= module._TRIES * lanes
    assert np.diff(tried).min() > 0


def test_a_lane_starts_at_its_first_plausible_record() -> None:
    """Each payload is full of marks, so that the first candidates of most lanes are wrong."""
    mark = struct.pack("<I", SECONDS)[2:]
    data = bytes(24) + b"".join(record(mark * (20 + number % 7)) for number in range(2000))
    starts = RecordFinder(data, FORM)._lane_starts(24, len(data), 4096)
    assert len(starts) in (size := -(-(len(data) - 24) // 4096), size - 1)
    assert set(starts.tolist()) <= set(offsets_one_by_one(data, 24, len(data)))


@pytest.mark.parametrize("whole", [True, False])
def test_an_exception_while_the_next_block_is_read_is_raised(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, size = tmp_path / "long.pcap", 300_000
    with create_capture(path) as writer:
        for number in range(10_000):
            writer.write(Record(bytes(84 if whole else 83), number, 84, 1))
    fill, calls = InputFile.fill, 0

    def fail_later(file: InputFile, buffer: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls > 2:  # after the header of the file and the first block
            raise MemoryError
        return fill(file, buffer)

    monkeypatch.setattr(InputFile, "fill", fail_later)
    pcap = open_pcap(path)
    assert pcap is not None
    blocks = pcap.blocks(size)
    assert len(next(blocks).offsets) > 0
    with pytest.raises(MemoryError):
        next(blocks)
