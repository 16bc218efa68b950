"""Records that are built before they are written, and changed between."""

import struct
from itertools import product
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, Record, create_capture, open_capture
from rdmawire.capture.compression import CHUNK

RECORD = Record(b"a frame of 21 octets.", 7_000_000_123, 21, LinkType.ETHERNET)
FORMS = ("pcap", "pcapng")
ORDERS = {"little": "<", "big": ">"}


@pytest.mark.parametrize(("form", "order"), list(product(FORMS, ORDERS)))
def test_a_built_record_is_what_is_written(tmp_path: Path, form: str, order: str) -> None:
    paths = tmp_path / "written", tmp_path / "built"
    for path in paths:
        with create_capture(
            path, format=form, byte_order=order, link_type=LinkType.ETHERNET
        ) as writer:
            writer.write(RECORD)
            data = writer.built(RECORD)
            if path is paths[0]:
                writer.write(RECORD)
            else:
                writer.write_built(memoryview(data))
            writer.write(RECORD)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(("form", "order"), list(product(FORMS, ORDERS)))
def test_time_and_frame_are_at_the_offsets_of_the_layout(
    tmp_path: Path, form: str, order: str
) -> None:
    path = tmp_path / "x"
    with create_capture(path, format=form, byte_order=order, link_type=1) as writer:
        layout = writer.record_layout
        data = bytearray(writer.built(RECORD))
        words = struct.Struct(f"{ORDERS[order]}II")
        units, ticks = words.unpack_from(data, layout.time)
        assert units * layout.unit + ticks == RECORD.time_ns
        assert layout.word == f"{ORDERS[order]}u4"
        assert data[layout.data :].startswith(RECORD.data)
        later = (2 << 32) + 5
        words.pack_into(data, layout.time, *divmod(later, layout.unit))
        data[layout.data] = ord("A")
        writer.write_built(bytes(data))
    with open_capture(path) as reader:
        assert list(reader) == [RECORD._replace(data=b"A" + RECORD.data[1:], time_ns=later)]


def test_built_records_may_change_once_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap.gz"
    times = CHUNK // 8
    with create_capture(path, link_type=LinkType.ETHERNET) as writer:
        data = bytearray(writer.built(RECORD))
        for number in range(3):
            data[writer.record_layout.data] = ord("0") + number
            writer.write_built(memoryview(bytes(data) * (times if number == 1 else 1)))
    with open_capture(path) as reader:
        firsts = [record.data[:1] for record in reader]
    assert firsts == [b"0", *[b"1"] * times, b"2"]
