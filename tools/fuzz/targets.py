"""What is fuzzed: everything that reads octets, and what must hold of it.

A target takes any octets. It may meet ``WireError``, ``CaptureError``, ``FilterError`` or
``ScenarioError``; whatever else comes out of it is a finding, and so is an assertion that does
not hold.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from rdmawire.capture.compression import recognised
from rdmawire.capture.reader import _parser
from rdmawire.capture.source import Octets
from rdmawire.cli.edit import fpdu_finder
from rdmawire.dissect.dissector import LINK_STEPS, Dissector
from rdmawire.dissect.fields import fields
from rdmawire.dissect.output import Lines, Objects
from rdmawire.dissect.select import Selection
from rdmawire.errors import CaptureError, WireError
from rdmawire.filter import Filter, FilterError
from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit.iwarp import StreamEditor
from rdmawire.traffic.scenario.document import MAX_MISTAKES, Mistake, ScenarioError
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.wire import mad, mpa, native, rdmap, roce
from rdmawire.wire.layout import Piece, joined
from rdmawire.wire.packet import Packet
from rdmawire.wire.tables import tables

_TABLES = tables()
_LINK_TYPES = sorted(LINK_STEPS)
_EVERYTHING = Selection(info.name for info in fields())
_OUTPUTS = (Lines(trees=True), Lines(), Objects(None, array=False))


def headers(octets: bytes) -> None:
    """Each table: what parses must build the same octets."""
    for table in _TABLES:
        with suppress(WireError):
            header = table.parse(octets)
            assert header.build() == octets[: table.SIZE], table


def packets(octets: bytes) -> None:
    """Packets and frames: what parses must build the same octets."""
    for parse in (Packet.parse, roce.parse, native.parse):
        with suppress(WireError):
            assert parse(octets).build() == octets, parse


def layouts(octets: bytes) -> None:
    """Management datagrams and DDP segments: their pieces are their octets."""
    for layout in (mad.layout, rdmap.layout):
        pieces: list[Piece] = []
        try:
            for offset, piece in layout(octets):
                assert offset == len(joined(*pieces))
                pieces.append(piece)
        except WireError:
            continue
        assert joined(*pieces) == octets, layout


def fpdus(octets: bytes) -> None:
    """FPDUs with and without Markers."""
    for position in (None, 0, 4, 508):
        with suppress(WireError):
            fpdu = mpa.parse_fpdu(octets, position=position)
            assert fpdu.size <= len(octets)


def frames(octets: bytes) -> None:
    """A frame of any link type: dissected, printed and selected from, without an error."""
    if not octets:
        return
    link_type = _LINK_TYPES[octets[0] % len(_LINK_TYPES)]
    _show(Dissector(), octets[1:], link_type)


def streams(octets: bytes) -> None:
    """Several frames of a capture, each behind its length: what is remembered between them."""
    dissector = Dissector()
    for frame in _cut(octets):
        _show(dissector, frame, 1)


def _cut(octets: bytes) -> Iterator[bytes]:
    """What stands behind each length."""
    at = 0
    while at + 2 <= len(octets):
        (length,) = struct.unpack_from(">H", octets, at)
        yield octets[at + 2 : at + 2 + length]
        at += 2 + length


def _show(dissector: Dissector, octets: bytes, link_type: int) -> None:
    frame = dissector.dissect(octets, link_type=link_type)
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


def edits(octets: bytes) -> None:
    """Several frames of a capture: each becomes what it becomes by itself, and stays as long."""
    editor, streams = Editor(_RULES), StreamEditor[int](Editor(_RULES), fpdu_finder())
    frames = list(_cut(octets))
    done: list[tuple[int, bytes]] = []
    for number, frame in enumerate(frames):
        assert editor.edit(frame) == Editor(_RULES).edit(frame)
        done += streams.take(number, frame, 1)
    done += streams.rest()
    assert [number for number, _ in done] == [*range(len(frames))]
    assert [len(frame) for _, frame in done] == [len(frame) for frame in frames]


def captures(octets: bytes) -> None:
    """A capture file, packed or not: records, then perhaps the reason why there are no more."""
    with suppress(CaptureError):
        _, chunks = recognised(iter((octets,)), "fuzz")
        for record in _parser(Octets(chunks, "fuzz")).records:
            assert len(record.data) <= len(octets) << 12


def filters(octets: bytes) -> None:
    """A display filter and, behind a NUL, a frame: a tree that prints as itself, and an answer."""
    text, _, frame = octets.partition(b"\0")
    with suppress(FilterError):
        wanted = Filter(text.decode("utf-8", "replace"))
        assert Filter(str(wanted.tree)).tree == wanted.tree
        wanted(Dissector().dissect(frame))


def scenarios(octets: bytes) -> None:
    """A scenario's file: a scenario, or mistakes that a screen can show."""
    mistakes = _mistakes(octets)
    assert len(mistakes) <= MAX_MISTAKES
    assert all(str(mistake).isprintable() for mistake in mistakes)


def _mistakes(octets: bytes) -> tuple[Mistake, ...]:
    try:
        read_scenario_text(octets)
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
