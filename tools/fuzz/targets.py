"""What is fuzzed: everything that reads bytes, and what must hold of it.

A target takes any bytes. It may meet ``WireError``, ``CaptureError``, ``FilterError`` or
``ScenarioError``; whatever else comes out of it is a finding, and so is an assertion that does
not hold.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from rdmawire import ScenarioError, read_scenario_text
from rdmawire.capture.compression import recognise
from rdmawire.capture.io import ChunkBuffer
from rdmawire.capture.reader import _parser
from rdmawire.cli.edit import fpdu_finder
from rdmawire.decode import LINK_TYPES
from rdmawire.dissect import Dissector, Selection, fields
from rdmawire.dissect.output import Lines, Objects
from rdmawire.errors import CaptureError, WireError
from rdmawire.filter import Filter, FilterError
from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit.iwarp import StreamEditor
from rdmawire.traffic.scenario.document import MAX_MISTAKES, Mistake
from rdmawire.wire import mad, mpa, native, rdmap, roce
from rdmawire.wire.layout import Piece, joined
from rdmawire.wire.packet import Packet
from rdmawire.wire.tables import tables

_TABLES = tables()
_LINK_TYPES = sorted(LINK_TYPES)
_EVERYTHING = Selection(info.name for info in fields())
_OUTPUTS = (Lines(trees=True), Lines(), Objects(None, array=False))


def headers(data: bytes) -> None:
    """Each table: what parses must build the same bytes."""
    for table in _TABLES:
        with suppress(WireError):
            header = table.parse(data)
            assert header.build() == data[: table.SIZE], table


def packets(data: bytes) -> None:
    """Packets and frames: what parses must build the same bytes."""
    for parse in (Packet.parse, roce.parse, native.parse):
        with suppress(WireError):
            assert parse(data).build() == data, parse


def layouts(data: bytes) -> None:
    """Management datagrams and DDP segments: their pieces are their bytes."""
    for layout in (mad.layout, rdmap.layout):
        pieces: list[Piece] = []
        try:
            for offset, piece in layout(data):
                assert offset == len(joined(*pieces))
                pieces.append(piece)
        except WireError:
            continue
        assert joined(*pieces) == data, layout


def fpdus(data: bytes) -> None:
    """FPDUs with and without Markers."""
    for position in (None, 0, 4, 508):
        with suppress(WireError):
            fpdu = mpa.parse_fpdu(data, position=position)
            assert fpdu.size <= len(data)


def frames(data: bytes) -> None:
    """A frame of any link type: dissected, printed and selected from, without an error."""
    if not data:
        return
    link_type = _LINK_TYPES[data[0] % len(_LINK_TYPES)]
    _show(Dissector(), data[1:], link_type)


def streams(data: bytes) -> None:
    """Several frames of a capture, each behind its length: what is remembered between them."""
    dissector = Dissector()
    for frame in _cut(data):
        _show(dissector, frame, 1)


def _cut(data: bytes) -> Iterator[bytes]:
    """What stands behind each length."""
    at = 0
    while at + 2 <= len(data):
        (length,) = struct.unpack_from(">H", data, at)
        yield data[at + 2 : at + 2 + length]
        at += 2 + length


def _show(dissector: Dissector, data: bytes, link_type: int) -> None:
    frame = dissector.dissect(data, link_type=link_type)
    for output in _OUTPUTS:
        for _ in output.frame(frame):
            pass
    _EVERYTHING.values(frame)


_RULES = (
    text.macs(["52:54:00:00:00:01=02:00:00:00:00:07"]),
    text.ips(["::/1=8000::/1", "8000::/1=::/1", "0.0.0.0/1=128.0.0.0/1"]),
    text.qpns(["17=0x1234"]),
    text.rkeys(["0x1201=7", "0=5"]),
    text.psn_offsets(["0x7fffff"]),
    text.va_offsets(["-1"]),
)


def edits(data: bytes) -> None:
    """Several frames of a capture: each becomes what it becomes by itself, and stays as long."""
    editor, streams = Editor(_RULES), StreamEditor[int](Editor(_RULES), fpdu_finder())
    frames = list(_cut(data))
    done: list[tuple[int, bytes]] = []
    for number, frame in enumerate(frames):
        assert editor.edit(frame) == Editor(_RULES).edit(frame)
        done += streams.take(number, frame, 1)
    done += streams.rest()
    assert [number for number, _ in done] == [*range(len(frames))]
    assert [len(frame) for _, frame in done] == [len(frame) for frame in frames]


def captures(data: bytes) -> None:
    """A capture file, packed or not: records, then perhaps the reason why there are no more."""
    with suppress(CaptureError):
        _, chunks = recognise(iter((data,)), "fuzz")
        for record in _parser(ChunkBuffer(chunks, "fuzz")).records:
            assert len(record.data) <= len(data) << 12


def filters(data: bytes) -> None:
    """A display filter and, behind a NUL, a frame: a tree that prints as itself, and an answer."""
    text, _, frame = data.partition(b"\0")
    with suppress(FilterError):
        wanted = Filter(text.decode("utf-8", "replace"))
        assert Filter(str(wanted.tree)).tree == wanted.tree
        wanted(Dissector().dissect(frame))


def scenarios(data: bytes) -> None:
    """A scenario's file: a scenario, or mistakes that a screen can show."""
    mistakes = _mistakes(data)
    assert len(mistakes) <= MAX_MISTAKES
    assert all(str(mistake).isprintable() for mistake in mistakes)


def _mistakes(data: bytes) -> tuple[Mistake, ...]:
    try:
        read_scenario_text(data)
    except ScenarioError as error:
        return error.mistakes
    return ()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "headers": headers,
    "packets": packets,
    "layouts": layouts,
    "fpdus": fpdus,
    "frames": frames,
    "streams": streams,
    "edits": edits,
    "captures": captures,
    "filters": filters,
    "scenarios": scenarios,
}
