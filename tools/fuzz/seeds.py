"""Bytes to begin with: frames and files of the shipped captures, as each target takes them."""

import struct
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

from rdmawire.capture import Record, open_capture
from rdmawire.decode import LINK_TYPES
from rdmawire.traffic.scenario.reader import shipped, text_of
from rdmawire.wire import roce
from tools.make_captures import management

CAPTURES = Path(__file__).parents[2] / "captures"
_FILTERS = Path(__file__).parents[2] / "tests" / "interop" / "filters.txt"
_LINK_TYPES = sorted(LINK_TYPES)
_FRAMES_OF_EACH = 40


def _files() -> list[Path]:
    return sorted(CAPTURES.glob("*/*.pcap"))


def _records() -> Iterator[Record]:
    for path in _files():
        with open_capture(path) as reader:
            yield from islice(reader, _FRAMES_OF_EACH)


def _frames() -> Iterator[bytes]:
    for record in _records():
        yield bytes([_LINK_TYPES.index(record.link_type)]) + record.data


def _packets() -> Iterator[bytes]:
    for record in _records():
        if record.link_type != 1:
            continue
        yield record.data
        bth = roce.bth_offset(record.data, 0, len(record.data))
        if bth >= 0:
            yield record.data[bth:-4]


def _streams() -> Iterator[bytes]:
    for path in _files():
        with open_capture(path) as reader:
            if reader.interfaces[0].link_type == 1:
                records = list(islice(reader, 12))
                yield b"".join(struct.pack(">H", len(r.data)) + r.data for r in records)


def _datagrams() -> Iterator[bytes]:
    return (datagram.data for datagram in management.packets())


def _captures() -> Iterator[bytes]:
    return (path.read_bytes()[:4096] for path in _files())


def _filters() -> Iterator[bytes]:
    """Filters of the comparison with tshark, each before a frame."""
    lines = [line for line in _FILTERS.read_bytes().splitlines() if not line.startswith(b"# ")]
    for text, record in zip(lines, cycle(islice(_records(), _FRAMES_OF_EACH)), strict=False):
        yield text + b"\0" + record.data


def _scenarios() -> Iterator[bytes]:
    return (text_of(name).encode() for name in shipped())


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "headers": _datagrams,
    "packets": _packets,
    "layouts": _datagrams,
    "fpdus": _packets,
    "frames": _frames,
    "streams": _streams,
    "edits": _streams,
    "captures": _captures,
    "filters": _filters,
    "scenarios": _scenarios,
}
