"""Frames printed many at once: the same text and counts as of frames that are dissected."""

import gzip
import random
import re
import signal
import struct
from collections.abc import Callable, Iterable, Iterator
from errno import EAGAIN
from functools import cache, partial
from itertools import product
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import (
    COMMENT,
    Interface,
    LinkType,
    Record,
    create_capture,
    open_capture,
    pcapng_blocks,
)
from rdmawire.capture.pcap_blocks import PcapFile, RecordBlock
from rdmawire.columns import frame_printer, plain_frames, worker_pool
from rdmawire.columns.chunk import MAX_FRAMES
from rdmawire.columns.field_text import FieldForm, FieldPrinter
from rdmawire.columns.frame_printer import open_printer
from rdmawire.columns.frame_text import _VARYING, segments
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query
from rdmawire.columns.read import as_array
from rdmawire.dissect import walk
from rdmawire.dissect.output import Fields, FrameCounts, Lines, Objects, Output, Separators
from rdmawire.dissect.select import Bound, Selection, Window
from rdmawire.errors import CaptureError
from rdmawire.filter import Filter
from rdmawire.fuzz.minimise_mutants import built
from rdmawire.fuzz.mutator import Mutator
from rdmawire.fuzz.seed_corpus import corpus_of
from rdmawire.wire.icrc import icrc_ipv4
from rdmawire.wire.inet import ROCE_PORT
from tests.captures import CAPTURES, EVERY, captures_at_once
from tests.columns.dissections import dissections, frames_of

OUTPUTS: dict[str, Callable[[], Output | None]] = {
    "lines": Lines,
    "trees": lambda: Lines(trees=True),
    "json": lambda: Objects(None, array=True),
    "ndjson": lambda: Objects(None, array=False),
    "counts": lambda: None,
}

SELECTIONS = {
    "all": (EVERY_FRAME, None),
    "first": (EVERY_FRAME, 7),
    "window": (FrameSelection(Window(Bound.parse("3"), Bound.parse("40"))), None),
    "times": (FrameSelection(Window(Bound.parse("1us"), None)), 20),
    "filter": (FrameSelection(where=Filter("infiniband.bth.opcode < 12 and ip.src")), 9),
}


FAST = [(name, "all") for name in OUTPUTS] + [("json", selection) for selection in SELECTIONS][1:]


def slow(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


outputs_and_selections = pytest.mark.parametrize(
    ("name", "selection"),
    [*FAST, *slow(case for case in product(OUTPUTS, SELECTIONS) if case not in FAST)],
)
"""Each output, and each selection; all pairs of both are slow."""


def dissected(
    path: Path, output: Output | None, selection: FrameSelection, max_frames: int | None
) -> tuple[str, str]:
    """Return the text of frames that are dissected one by one, and their counts."""
    counts, texts = FrameCounts(), [] if output is None else [output.head()]
    for frame in frames_of(path) if path in EVERY else dissections(path):
        if counts.frames == max_frames:
            break
        if selection.takes(frame):
            counts.add(frame)
            texts += [] if output is None else output.frame(frame)
    return "".join(texts), str(counts)


def printed(
    path: Path,
    output: Output | None,
    selection: FrameSelection,
    max_frames: int | None,
    jobs: int = 1,
    chunk_frames: int = MAX_FRAMES,
) -> tuple[str, str] | None:
    """Return the text of frames printed many at once, and their counts."""
    counts = FrameCounts()
    printer = open_printer(
        str(path),
        output,
        counts,
        (ROCE_PORT,),
        selection=selection,
        max_frames=max_frames,
        jobs=jobs,
        chunk_frames=chunk_frames,
    )
    if printer is None:
        return None
    texts = printer.texts()
    following = output.following(texts) if isinstance(output, Objects) else texts
    head = "" if output is None else output.head()
    return head + b"".join(following).decode(), str(counts)


@captures_at_once(lambda path: path.suffix == ".pcap")
@outputs_and_selections
def test_each_capture_is_printed_as_dissected(name: str, selection: str, paths: list[Path]) -> None:
    count = 0
    for path in paths:
        found = printed(path, OUTPUTS[name](), *SELECTIONS[selection])
        if found is not None:
            assert found == dissected(path, OUTPUTS[name](), *SELECTIONS[selection]), path
            count += 1
    assert count > 20


@cache
def mutants(seed: int, count: int) -> list[bytes]:
    """Return frames of the test vectors, a third of them changed."""
    chance = random.Random(seed)
    corpus = corpus_of().only(lambda frame: frame.link_type == LinkType.ETHERNET)
    mutator = Mutator(chance, corpus)
    return [
        built((mutator.mutant(),))[0].data if chance.random() < 0.3 else corpus.draw(chance).data
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize(("seed", "count"), [(1, 300), *slow([(1, 1200), (2, 1200)])])
def test_mutated_frames_are_printed_as_dissected(
    name: str, seed: int, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "mutants.pcap"
    write_mutants(path, seed, count)
    every = EVERY_FRAME, None
    assert printed(path, OUTPUTS[name](), *every, chunk_frames=100) == dissected(
        path, OUTPUTS[name](), *every
    )


def write_mutants(path: Path, seed: int, count: int) -> None:
    """Write a capture of mutants, some of them truncated, at times that go back and forth."""
    chance, time = random.Random(seed), 1_700_000_000_000_000_000
    with create_capture(path) as writer:
        for data in mutants(seed, count):
            time += chance.choice((1000, 1_000_000_000, -500, 0))
            length = len(data) + (chance.random() < 0.03)
            writer.write(Record(data, time, length, LinkType.ETHERNET))


@outputs_and_selections
def test_processes_print_the_same_as_one(name: str, selection: str, tmp_path: Path) -> None:
    path = tmp_path / "mutants.pcap"
    write_mutants(path, 3, 200)
    how = SELECTIONS[selection]
    expected = printed(path, OUTPUTS[name](), *how, chunk_frames=40)
    assert expected is not None
    assert printed(path, OUTPUTS[name](), *how, jobs=3, chunk_frames=40) == expected


JOBS = [("lines", 1), ("trees", 2), ("json", 1), ("ndjson", 2), ("counts", 1)]


@pytest.mark.parametrize(
    ("name", "jobs"), [*JOBS, *slow(case for case in product(OUTPUTS, (1, 2)) if case not in JOBS)]
)
def test_chunks_are_cut_where_the_text_of_dissected_frames_is_long(
    name: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_printer, "_MAX_TEXT", 2000)
    path = tmp_path / "mutants.pcap"
    write_mutants(path, 4, 100)
    for selection in SELECTIONS.values():
        found = printed(path, OUTPUTS[name](), *selection, jobs=jobs, chunk_frames=50)
        assert found == dissected(path, OUTPUTS[name](), *selection)


def test_without_room_for_workers_this_process_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(EAGAIN, "Resource temporarily unavailable")

    path, whole = tmp_path / "mutants.pcap", (EVERY_FRAME, None)
    write_mutants(path, 6, 300)
    monkeypatch.setattr(frame_printer, "WorkerPool", refuse)
    assert printed(path, Lines(), *whole, jobs=2) == dissected(path, Lines(), *whole)


def test_workers_are_forked_while_signals_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[set[int]] = []
    worker = worker_pool._Worker

    def recorded(*arguments: Any) -> Any:
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return worker(*arguments)

    path = tmp_path / "mutants.pcap"
    write_mutants(path, 7, 100)
    monkeypatch.setattr(worker_pool, "_Worker", recorded)
    assert printed(path, Lines(), EVERY_FRAME, None, jobs=2) is not None
    assert len(masks) == 2
    assert all({signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= mask for mask in masks)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_many_fields_have_few_frames_in_a_chunk() -> None:
    names = tuple(f"field{number}" for number in range(1000))
    query = Query(["frame.number"])
    fast_filter = query.fast_filter(LinkType.ETHERNET, as_array((ROCE_PORT,)))
    printer = FieldPrinter(FieldForm(names, ","), query, fast_filter)
    assert printer.max_frames * len(names) <= 1 << 18


def test_chunks_of_a_worker_that_ended_are_printed_here(tmp_path: Path) -> None:
    path, whole = tmp_path / "mutants.pcap", (EVERY_FRAME, None)
    write_mutants(path, 4, 600)
    expected, _ = printed(path, Lines(trees=True), *whole, chunk_frames=40) or ("", "")
    others = set(active_children())
    counts = FrameCounts()
    printer = open_printer(
        str(path), Lines(trees=True), counts, (ROCE_PORT,), jobs=2, chunk_frames=40
    )
    assert printer is not None
    texts = printer.texts()
    found = [next(texts), next(texts)]
    victim = next(iter(set(active_children()) - others))
    victim.kill()
    victim.join()
    assert b"".join([*found, *texts]).decode() == expected
    assert counts.frames == 600
    assert set(active_children()) <= others


def test_an_exception_of_a_worker_is_raised_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mutants.pcap"
    write_mutants(path, 5, 200)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    others = set(active_children())
    monkeypatch.setattr(plain_frames, "expected_icrc", fail)
    with pytest.raises(ZeroDivisionError):
        printed(path, Lines(), EVERY_FRAME, None, jobs=2, chunk_frames=40)
    assert set(active_children()) <= others


def test_frames_are_dissected_though_the_next_block_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "large.pcap", (EVERY_FRAME, None)
    write_mutants(path, 7, 300)
    blocks = PcapFile.blocks

    def small_blocks(file: PcapFile) -> Iterator[RecordBlock]:
        for block in blocks(file):
            for start in range(0, len(block.offsets), 10):
                data = bytearray(block.data)
                offsets = block.offsets[start : start + 10]
                yield RecordBlock(memoryview(data), offsets, block.first + start)
                data[:] = bytes(len(data))

    expected = dissected(path, Lines(), *whole)
    monkeypatch.setattr(PcapFile, "blocks", small_blocks)
    assert printed(path, Lines(), *whole, jobs=3, chunk_frames=10) == expected


def datagrams(seed: int, count: int) -> Iterator[bytes]:
    """Yield frames of several conversations in both directions, some with a bad ICRC."""
    chance = random.Random(seed)
    with open_capture(CAPTURES / "linux" / "rxe61_rnr.pcap") as reader:
        to_roce = ROCE_PORT.to_bytes(2, "big")
        frame = next(record.data for record in reader if record.data[36:38] == to_roce)
    for _ in range(count):
        data = bytearray(frame)
        if chance.random() < 0.5:
            data[26:34] = data[30:34] + data[26:30]
        struct.pack_into(">H", data, 34, chance.choice((1, 2, 3, 4, 5, 6, ROCE_PORT)))
        crc = icrc_ipv4(bytes(data), 14, len(data) - 4)
        struct.pack_into(">I", data, len(data) - 4, crc ^ (chance.random() < 0.2))
        yield bytes(data)


@pytest.mark.parametrize("maximum", [1, 4, 7, 100])
def test_conversations_are_numbered_as_dissected(
    maximum: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, every = tmp_path / "many.pcap", (EVERY_FRAME, None)
    with create_capture(path) as writer:
        for number, data in enumerate(datagrams(9, 300)):
            writer.write(Record(data, number, len(data), LinkType.ETHERNET))
    monkeypatch.setattr(walk, "Conversations", partial(walk.Conversations, maximum))
    form = OUTPUTS["ndjson"]
    expected = dissected(path, form(), *every)
    last = max(map(int, re.findall(r'"udp.stream": (\d+)', expected[0])))
    assert last > 12 if maximum < 12 else last == 12
    assert printed(path, form(), *every, chunk_frames=40) == expected


INTERFACES = (
    Interface(name="eth0"),
    Interface(LinkType.IPV4, name="tun0"),
    Interface(name="ancient", resolution=1, offset_seconds=-(10**11)),
    Interface(name="far", resolution=1, offset_seconds=2**62),
)


def write_mixed(path: Path, seed: int, count: int, first: int = 0) -> None:
    """Write a pcapng of mutants on several interfaces, with comments and flags on some frames."""
    chance, time = random.Random(seed), 1_700_000_000_000_000_000
    with create_capture(path, interfaces=INTERFACES) as writer:
        for number, data in enumerate(mutants(seed, count)):
            interface = chance.choices(range(4), (40, 2, 1, 1))[0] if number else first
            options = chance.choices(((), ((2, bytes(4)),), ((COMMENT, b"seen"),)), (20, 2, 1))[0]
            time += chance.choice((1000, 1_000_000_000, -500, 0))
            there = INTERFACES[interface]
            when = time if interface < 2 else there.time_ns(number)
            length = len(data) + (chance.random() < 0.03)
            writer.write(Record(data, when, length, there.link_type, interface, options))


PCAPNG = [(name, 0, "pcapng") for name in OUTPUTS]
PCAPNG += [("lines", 0, "pcapng.gz"), ("ndjson", 3, "pcapng")]
SLOW_PCAPNG = [*product(OUTPUTS, [0], ["pcapng.gz"]), *product(OUTPUTS, [3], ["pcapng"])]


@pytest.mark.parametrize(
    ("name", "first", "suffix"),
    [*PCAPNG, *slow(case for case in SLOW_PCAPNG if case not in PCAPNG)],
)
def test_pcapng_is_printed_as_dissected(
    name: str, first: int, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / f"mixed.{suffix}", (EVERY_FRAME, None)
    write_mixed(path, 8, 200, first)
    monkeypatch.setattr(pcapng_blocks, "_BLOCK_BYTES", 8_000)
    expected = dissected(path, OUTPUTS[name](), *whole)
    assert printed(path, OUTPUTS[name](), *whole, chunk_frames=40) == expected
    assert printed(path, OUTPUTS[name](), *whole, jobs=2, chunk_frames=40) == expected


TIMES = ("frame.number", "frame.time_epoch", "frame.time_relative", "frame.time_delta")


@pytest.mark.parametrize("first", [0, 2, 3])
@pytest.mark.parametrize("jobs", [1, 2])
def test_fields_of_pcapng_are_printed_as_dissected(
    first: int, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "mixed.pcapng", (EVERY_FRAME, None)
    write_mixed(path, 10 + first, 200, first)
    monkeypatch.setattr(pcapng_blocks, "_BLOCK_BYTES", 8_000)
    fields = Fields(Selection((*TIMES, "frame.len", "ip.src", "infiniband.bth.psn")), Separators())
    found, expected = (
        printed(path, fields, *whole, jobs, chunk_frames=40),
        dissected(path, fields, *whole),
    )
    assert found is not None
    assert found[0] == expected[0]


def test_link_types_that_are_not_known_are_named_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "other.pcapng"
    with create_capture(path) as writer:
        writer.write(Record(bytes(60), 0, 60, LinkType.ETHERNET))
        writer.write(Record(bytes(60), 0, 60, 147))
    printer = open_printer(str(path), Lines(), FrameCounts(), (ROCE_PORT,))
    assert printer is not None
    texts: list[bytes] = []
    with pytest.raises(CaptureError, match=r"other\.pcapng: link type 147 is not known; known are"):
        texts.extend(printer.texts())
    assert b"".join(texts).count(b"\n") == 2


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut.pcap": lambda data: data[:-3],
    "cut.pcapng": lambda data: data[:-3],
    "cut.pcap.gz": lambda data: data[:-3],
    "half.pcap.gz": lambda data: data[: len(data) // 2],
    "half.pcap.xz": lambda data: data[: len(data) // 2],
    "inside.pcap.gz": lambda data: gzip.compress(gzip.decompress(data)[:-3]),
    "inside.pcapng.gz": lambda data: gzip.compress(gzip.decompress(data)[:-3]),
}


ONE_AND_THREE = [*product(DAMAGES, [1]), ("cut.pcap", 3), ("inside.pcapng.gz", 3)]


@pytest.mark.parametrize(
    ("name", "jobs"),
    [*ONE_AND_THREE, *slow(case for case in product(DAMAGES, [3]) if case not in ONE_AND_THREE)],
)
def test_damage_is_reported_after_the_frames_before_it(
    name: str, jobs: int, tmp_path: Path
) -> None:
    path = tmp_path / name
    write_mutants(path, 6, 200)
    path.write_bytes(DAMAGES[name](path.read_bytes()))
    intact: list[Record] = []
    with open_capture(path) as reader, pytest.raises(CaptureError) as expected:
        intact.extend(reader)
    printer = open_printer(
        str(path), Lines(), FrameCounts(), (ROCE_PORT,), jobs=jobs, chunk_frames=40
    )
    assert printer is not None
    texts: list[bytes] = []
    with pytest.raises(CaptureError) as error:
        texts.extend(printer.texts())
    assert str(error.value) == str(expected.value)
    assert b"".join(texts).count(b"\n") == len(intact) > 0


def test_headers_have_all_their_rows_in_segments() -> None:
    for table, varying in _VARYING.items():
        rows = [row for segment in segments(table) for row in segment.rows]
        assert [row.row.name for row in rows if row.column >= 0] == [row.name for row in table.rows]
        alone = {segment.rows[0].row.name for segment in segments(table) if not segment.places}
        assert alone == varying
