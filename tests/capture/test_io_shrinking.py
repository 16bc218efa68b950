"""Captures that change while they are read: shortened, grown, replaced.

Whoever reads gets every whole record that was still there, then one clear error.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from rdmawire.capture import Record, create_capture, open_capture
from rdmawire.capture.pcap_blocks import PcapFile, open_pcap
from rdmawire.columns import iter_columns
from rdmawire.errors import CaptureError
from rdmawire.wire.ib import AETH
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tests.cli.command import rdmawire

FRAMES = 400_000
ETHERNET = Ethernet(bytes(6), bytes(6), EtherType.IPV4)
IP = IPv4(protocol=IPProtocol.UDP, src=bytes(4), dst=bytes(4))
ACK = Packet.make(Opcode.RC_ACKNOWLEDGE, AETH())
FRAME = Frame((ETHERNET, IP, UDP(49152, ROCE_PORT)), ACK).seal().build()
RECORD = 16 + len(FRAME)
SIZE = 24 + FRAMES * RECORD
LEFT = 24 + (FRAMES // 4 * 3) * RECORD  # behind the first block

ADVICE = "read it again when nothing writes to it"


def error_of(path: Path, left: int, size: int = SIZE) -> str:
    shrunk = f"became shorter while it was read: {left} of {size} bytes could be read"
    return f"{path}: {shrunk}; {ADVICE}"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture of several blocks."""
    path = tmp_path / "x.pcap"
    with create_capture(path) as writer:
        data = writer.built(Record(FRAME, 7, len(FRAME), 1))
        writer.write_built(data * FRAMES)
    assert path.stat().st_size == SIZE
    return path


def rows_of_columns(path: Path) -> Iterator[int]:
    for block in iter_columns(path, ["frame.number"]):
        yield block.rows


def rows_of_records(path: Path) -> Iterator[int]:
    with open_capture(path) as reader:
        for _ in reader:
            yield 1


READERS = [rows_of_columns, rows_of_records]
Read = Callable[[Path], Iterator[int]]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "left",
    [LEFT, LEFT + 40, *(pytest.param(LEFT + n, marks=pytest.mark.slow) for n in (-1, 1, 16))],
)
def test_a_file_cut_while_it_is_read_is_one_error(capture: Path, read: Read, left: int) -> None:
    rows = read(capture)
    total = next(rows)
    os.truncate(capture, left)
    with pytest.raises(CaptureError) as caught:  # noqa: PT012 - rows come before it
        for found in rows:
            total += found
    assert total == (left - 24) // RECORD
    assert str(caught.value) == error_of(capture, left)


@pytest.mark.parametrize("read", READERS)
def test_a_file_emptied_while_it_is_read_is_one_error(capture: Path, read: Read) -> None:
    rows = read(capture)
    total = next(rows)
    os.truncate(capture, 0)
    with pytest.raises(CaptureError, match="became shorter"):  # noqa: PT012 - rows come before it
        for found in rows:
            total += found
    assert 0 < total < FRAMES


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_grows_is_read_to_its_end(capture: Path, read: Read) -> None:
    rows = read(capture)
    total = next(rows)
    data = capture.read_bytes()
    with capture.open("ab") as file:
        file.write(data[24 : 24 + 7 * RECORD])
    assert total + sum(rows) == FRAMES + 7


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_is_replaced_is_read_as_it_was(capture: Path, read: Read) -> None:
    rows = read(capture)
    total = next(rows)
    other = capture.with_name("other")
    other.write_bytes(b"short")
    other.replace(capture)
    assert total + sum(rows) == FRAMES


def test_a_pcapng_and_a_packed_capture_cut_while_they_are_read(tmp_path: Path) -> None:
    for name in ("x.pcapng", "x.pcap.gz", "x.pcapng.zst"):
        path, random = tmp_path / name, Random(1)
        with create_capture(path) as writer:
            for number in range(40_000):
                writer.write(Record(random.randbytes(60), number, 60, 1))
        size = path.stat().st_size
        rows = rows_of_records(path)
        total = next(rows)
        os.truncate(path, size // 2)
        with pytest.raises(CaptureError) as caught:  # noqa: PT012 - rows come before it
            for found in rows:
                total += found
        assert str(caught.value) == error_of(path, size // 2, size)
        assert 10_000 < total < 30_000


def test_standard_input_that_was_read_in_part_is_not_shorter(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with create_capture(path) as writer:
        writer.write(Record(FRAME, 0, len(FRAME), 1))
    path.write_bytes(b"before" + path.read_bytes())
    script = "from rdmawire.capture import open_capture; print(len(list(open_capture('-'))))"
    with path.open("rb") as file:
        os.lseek(file.fileno(), 6, os.SEEK_SET)
        done = subprocess.run(
            [sys.executable, "-c", script], stdin=file, capture_output=True, check=True
        )
    assert done.stdout == b"1\n"


COMMANDS = [
    ("dissect", "-T", "fields", "-e", "frame.number"),
    ("dissect", "-T", "parquet", "-e", "frame.number", "-o", "x.parquet"),
    ("edit", "--ttl", "3", "-w", "out.pcap"),
]
SLOW_COMMANDS = [
    ("dissect", "-T", "csv", "-e", "frame.number", "-o", "-"),
    ("stats",),
    ("dissect", "-q"),
]

CUTTING = """
import os
from rdmawire.capture.io import InputFile

def cut_behind(name):
    read = getattr(InputFile, name)
    def cutting(source, *arguments):
        found = read(source, *arguments)
        if source.position > 1000 and source.name == {!r}:
            os.truncate(source.name, source.position // 2)
        return found
    setattr(InputFile, name, cutting)

cut_behind("_read")
cut_behind("fill")
"""


@pytest.mark.parametrize(
    "words",
    [*COMMANDS, *(pytest.param(words, marks=pytest.mark.slow) for words in SLOW_COMMANDS)],
    ids=lambda words: " ".join(words[:3]),
)
def test_commands_report_it_in_one_line(
    capture: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(capture.parent)
    done = rdmawire(*words, str(capture), before=CUTTING.format(str(capture)))
    assert done.returncode == 1, done
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("rdmawire: "))
    assert line.startswith(f"rdmawire: {capture}: became shorter while it was read: ")
    assert line.endswith(ADVICE)


def test_a_block_holds_records_that_straddle_reads(tmp_path: Path) -> None:
    """Whatever the block size, all records are found, each whole in its block."""
    path = tmp_path / "x.pcap"
    lengths = [0, 1, 500, 3000, 60, 262_144, 7, 7, 7, 100_000] * 3
    with create_capture(path) as writer:
        for number, length in enumerate(lengths):
            writer.write(Record(bytes([number]) * length, number, length, 1))
    for size in (5000, 77_777, 1 << 20):
        pcap = open_pcap(path)
        assert pcap is not None
        assert list(frames_of(pcap, size)) == [
            bytes([number]) * length for number, length in enumerate(lengths)
        ]


def frames_of(pcap: PcapFile, size: int) -> Iterator[bytes]:
    for block in pcap.blocks(size):
        for place in block.offsets.tolist():
            length = int.from_bytes(block.data[place + 8 : place + 12], "little")
            yield bytes(block.data[place + 16 : place + 16 + length])
