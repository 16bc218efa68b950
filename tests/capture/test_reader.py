"""Reading captures, whatever their bytes."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.capture.compression import COMPRESSIONS
from rdmawire.errors import CaptureError

from .samples import (
    RECORDS,
    motley,
    opened,
    pcap,
    pcap_header,
    pcapng,
    read,
    read_spans,
    section,
)
from .test_compression import PACK

FILES = [pcap(), pcap(order=">", resolution=1_000_000), pcapng(), motley("<"), motley(">")]
PACKED = [pack(data) for pack in PACK.values() for data in (pcap(), motley("<"))]
starts = st.sampled_from([b"", pcap_header(), pcap_header(">"), section(), section(">")])
magics = st.sampled_from([data[:6] for data in FILES + PACKED])


@given(st.binary(max_size=80) | st.builds(bytes.__add__, starts | magics, st.binary(max_size=200)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_records_or_a_capture_error(data: bytes) -> None:
    records, damage = read(data)
    if damage is not None:
        assert str(damage).startswith("sample: ")
    if opened_plain(data):
        assert sum(len(record.data) for record in records) <= len(data)
        assert damage is None or damage.offset is None or damage.offset <= len(data)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file with some bytes changed, put in or taken out."""
    data = bytearray(draw(st.sampled_from(FILES + PACKED)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.integers(0, 8))
        data[at : at + gone] = draw(st.binary(max_size=8))
    return bytes(data)


@given(mutated(), st.sampled_from([1, 3, 50, 1 << 20]))
@settings(max_examples=400, deadline=None)
def test_a_damaged_file_reads_the_same_in_every_way(raw: bytes, chunk: int) -> None:
    records, damage = read(raw)
    data, same = read_spans(raw)
    assert data == [record.data for record in records]
    assert str(same) == str(damage)
    again, other = read(raw, chunk)
    # Damage of compressed data may cost some of the bytes that come out together.
    assert again[: len(records)] == records[: len(again)]
    if opened_plain(raw):
        assert again == records
        assert str(other) == str(damage)


def opened_plain(data: bytes) -> bool:
    """Whether the file is not compressed."""
    return any(data.startswith(plain[:4]) for plain in FILES)


@pytest.mark.parametrize("data", FILES)
@pytest.mark.parametrize("chunk", [1, 2, 13])
def test_the_size_of_chunks_makes_no_difference(data: bytes, chunk: int) -> None:
    records, damage = read(data)
    assert damage is None
    assert read(data, chunk) == (records, None)
    assert read_spans(data, chunk) == ([record.data for record in records], None)


@pytest.mark.parametrize("data", FILES)
def test_iterating_again_goes_on_where_it_was_left(data: bytes) -> None:
    records, _ = read(data)
    reader = opened(data)
    for record in reader:
        assert record == records[0]
        break
    buffer, start, end = next(reader.spans())
    assert buffer[start:end] == records[1].data
    assert list(reader) == records[2:]
    assert list(reader) == []


def test_a_closed_reader_is_an_error() -> None:
    with opened(pcap()) as reader:
        records = iter(reader)
        next(records)
    for read_on in (reader.spans, reader.__iter__):
        with pytest.raises(CaptureError, match="sample: is closed; open it again"):
            read_on()


def test_position_and_size_count_the_file_as_it_is_stored() -> None:
    packed = PACK["gzip"](pcap(RECORDS * 100))
    reader = opened(packed, 10)
    assert reader.size == len(packed)
    seen = [reader.position for _ in reader]
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] <= reader.position == len(packed)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "sample: is empty; a capture has at least a header"),
        (b"\xd4", "sample: is no capture: its only bytes are d4: known are pcap (d4 c3 b2 a1, "),
        (b"\x7fELF...", "sample: is no capture: its first bytes are 7f 45 4c 46: known are pcap"),
        (b"\x34\xcd\xb2\xa1", "sample: is no capture: its first bytes are 34 cd b2 a1: a pcap as"),
        (b"snoop\0\0\0", "sample: is no capture: its first bytes are 73 6e 6f 6f: a snoop"),
        (b"PK\3\4....", "sample: is no capture: its first bytes are 50 4b 03 04: a zip"),
        (b"BZh91AY&SY", "sample: is no capture: its first bytes are 42 5a 68 39: compressed with"),
    ],
)
def test_what_is_no_capture_is_an_error_with_its_first_bytes(data: bytes, reason: str) -> None:
    with pytest.raises(CaptureError) as caught:
        opened(data)
    assert caught.value.reason.startswith(reason)
    assert caught.value.offset == 0


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_file_that_is_compressed_twice_is_refused(name: str) -> None:
    encoder = COMPRESSIONS[name].codec().encoder()
    packed = encoder.compress(pcap()) + encoder.flush()
    with pytest.raises(CaptureError) as caught:
        opened(gzip.compress(packed))
    reason = f"sample: is compressed twice, inside with {name}; decompress it once"
    assert caught.value.reason == reason


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "capture.txt"
    path.write_bytes(PACK["zstd"](pcapng()))
    with open_capture(path) as reader:
        assert (reader.name, reader.format, reader.compression) == (str(path), "pcapng", "zstd")
        assert list(reader) == RECORDS


MEMORY = """
import resource, sys
from rdmawire.capture import open_capture
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open_capture("-") as reader:
    print(sum(1 for _ in reader.spans()), reader.position)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_memory_does_not_grow_with_the_file() -> None:
    record = pcap([RECORDS[0]._replace(data=bytes(1484))])[24:]
    with subprocess.Popen(
        [sys.executable, "-c", MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reading:
        assert reading.stdin is not None
        reading.stdin.write(pcap_header())
        for _ in range(200):
            reading.stdin.write(record * 700)
        words = reading.communicate()[0].split()
    assert words[:2] == [b"140000", str(24 + 1500 * 140_000).encode()]
    assert int(words[2]) < 20, "MiB more for a file of 200"


def test_a_claim_of_much_takes_no_memory() -> None:
    for start in (pcap_header(), section() + bytes.fromhex("0600 0000")):
        found, damage = read(start + b"\xfc\xff\xff\xff" * 8)
        assert found == []
        assert damage is not None
