"""The parsers of rdmawire as targets: everything that reads bytes, and what must hold of it.

Each takes any bytes. It may raise the errors of :mod:`rdmawire.errors`; any other exception and an
assertion that does not hold is a finding.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

from rdmawire.capture.compression import recognise
from rdmawire.capture.io import ChunkBuffer
from rdmawire.capture.reader import parser_of
from rdmawire.decode import LINK_TYPES
from rdmawire.dissect import Dissector, Selection, fields
from rdmawire.dissect.output import Lines, Objects
from rdmawire.errors import CaptureError, WireError
from rdmawire.filter import Filter, FilterError
from rdmawire.fuzz.frame_map import NO_FRAME
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.other_values import check_values
from rdmawire.fuzz.seed_corpus import SeedCorpus, corpus_of
from rdmawire.fuzz.small_parsers import SMALL_PARSERS
from rdmawire.traffic.scenario.document import MAX_MISTAKES, Mistake, ScenarioError
from rdmawire.traffic.scenario.reader import read_scenario_text, shipped, text_of
from rdmawire.vectors import default_folders, find_pack
from rdmawire.wire import mad, mpa, native, rdmap, roce
from rdmawire.wire.layout import Piece, joined
from rdmawire.wire.packet import Packet
from rdmawire.wire.tables import tables

_OUTPUTS: Final = (Lines(trees=True), Lines(), Objects(None, array=False))
_MAX_FILE: Final = 4096
"""Bytes of a capture file in the corpus of :func:`captures`."""
_POSITIONS: Final = (None, 0, 4, 508)
"""Positions of an FPDU in its stream, for Markers; ``None`` without Markers."""


def headers(data: bytes) -> None:
    """Parse each header table; what parses must build the same bytes."""
    for table in tables():
        with suppress(WireError):
            header = table.parse(data)
            _check_same(header.build(), data[: table.SIZE], table)


def packets(data: bytes) -> None:
    """Parse packets and frames; what parses must build the same bytes."""
    for parse in (Packet.parse, roce.parse, native.parse):
        with suppress(WireError):
            _check_same(parse(data).build(), data, parse)


def layouts(data: bytes) -> None:
    """Parse management datagrams and DDP segments; their pieces must be their bytes."""
    for layout in (mad.layout, rdmap.layout):
        pieces: list[Piece] = []
        try:
            for offset, piece in layout(data):
                assert offset == len(joined(*pieces))
                pieces.append(piece)
        except WireError:
            continue
        _check_same(joined(*pieces), data, layout)


def _check_same(built: bytes, wanted: bytes, what: object) -> None:
    """Raise :class:`OtherValuesError` if bytes were not built as they were parsed."""
    name = getattr(what, "__qualname__", what)
    check_values(f"bytes rebuilt of {name}", built, wanted, source="the bytes that were parsed")


def fpdus(data: bytes) -> None:
    """Parse FPDUs with and without Markers."""
    for position in _POSITIONS:
        with suppress(WireError):
            fpdu = mpa.parse_fpdu(data, position=position)
            assert fpdu.size <= len(data)


def frames(data: bytes) -> None:
    """Dissect and print a frame; its first byte selects the link type."""
    if data:
        link_types = sorted(LINK_TYPES)
        _show(Dissector(), data[1:], link_types[data[0] % len(link_types)])


def streams(data: bytes) -> None:
    """Dissect several frames of a capture, each after its length."""
    dissector = Dissector()
    for frame in frames_of_stream(data):
        _show(dissector, frame, 1)


def frames_of_stream(data: bytes) -> Iterator[bytes]:
    """Yield what follows each length of two bytes."""
    at = 0
    while at + 2 <= len(data):
        (length,) = struct.unpack_from(">H", data, at)
        yield data[at + 2 : at + 2 + length]
        at += 2 + length


@cache
def _every_field() -> Selection:
    return Selection(info.name for info in fields())


def _show(dissector: Dissector, data: bytes, link_type: int) -> None:
    """Dissect a frame, print it in every way, and select every field."""
    frame = dissector.dissect(data, link_type=link_type)
    for output in _OUTPUTS:
        for _ in output.frame(frame):
            pass
    _every_field().values(frame)


def captures(data: bytes) -> None:
    """Read a capture file, compressed or not."""
    with suppress(CaptureError):
        _, chunks = recognise(iter((data,)), "fuzz")
        for record in parser_of(ChunkBuffer(chunks, "fuzz")).records:
            assert len(record.data) <= len(data) << 12


def filters(data: bytes) -> None:
    """Parse a display filter, and apply it to the frame after a NUL."""
    text, _, frame = data.partition(b"\0")
    with suppress(FilterError):
        wanted = Filter(text.decode("utf-8", "replace"))
        assert Filter(str(wanted.tree)).tree == wanted.tree
        wanted(Dissector().dissect(frame))


def scenarios(data: bytes) -> None:
    """Read a scenario file; its mistakes must be printable."""
    mistakes = _mistakes(data)
    assert len(mistakes) <= MAX_MISTAKES
    assert all(str(mistake).isprintable() for mistake in mistakes)


def _mistakes(data: bytes) -> tuple[Mistake, ...]:
    try:
        read_scenario_text(data)
    except ScenarioError as error:
        return error.mistakes
    return ()


# Seed corpora of bytes that are not frames.

_FILTERS: Final = (
    "infiniband.bth.opcode == 4 and not infiniband.aeth",
    "infiniband.bth.psn in {0 .. 100, 0xffffff}",
    "infiniband.reth.va >= 0x1000 || infiniband.deth.q_key == 0x11",
    "ip.src == 10.0.0.0/8 && udp.port == 4791",
    "ipv6.addr == fd00::1 xor eth.src[0:3] == 02:00:00",
    'frame.number > 1 and rdmawire.icrc.status == "good"',
    "iwarp_ddp.stag & 0xff00 != 0",
    'rdmawire.payload contains "abc" or data.data matches "(?i)x+$"',
    "len(rdmawire.payload) > 3 and infiniband.bth.p_key <= 0xffff",
    "any tcp.port == 1 or all udp.port != 2",
)


@cache
def file_corpus() -> SeedCorpus:
    """Return the first bytes of the shipped captures, as no frames."""
    paths = sorted(find_pack(default_folders()).glob("*/*.pcap*"))
    seeds = (SeedFrame(path.read_bytes()[:_MAX_FILE], NO_FRAME, path.name) for path in paths)
    return SeedCorpus([tuple(seeds)])


@cache
def filter_corpus() -> SeedCorpus:
    """Return display filters, each before the bytes of a frame."""
    frames = islice(corpus_of().frames(), len(_FILTERS))
    return SeedCorpus(
        [[_text(text, frame.data) for text, frame in zip(_FILTERS, frames, strict=True)]]
    )


def _text(text: str, frame: bytes) -> SeedFrame:
    return SeedFrame(text.encode() + b"\0" + frame, NO_FRAME, text)


@cache
def scenario_corpus() -> SeedCorpus:
    """Return the texts of the shipped scenarios."""
    return SeedCorpus([[SeedFrame(text_of(name).encode(), NO_FRAME, name) for name in shipped()]])


class OwnParser(NamedTuple):
    """A parser of rdmawire: its function, the form of its input, and its seed corpus."""

    function: Callable[[bytes], None]
    form: str
    corpus: Callable[[], SeedCorpus] = corpus_of


PARSERS: Final[dict[str, OwnParser]] = {
    "headers": OwnParser(headers, "message"),
    "packets": OwnParser(packets, "packet"),
    "layouts": OwnParser(layouts, "segment"),
    "fpdus": OwnParser(fpdus, "message"),
    "frames": OwnParser(frames, "linked"),
    "streams": OwnParser(streams, "stream"),
    "captures": OwnParser(captures, "frame", file_corpus),
    "filters": OwnParser(filters, "frame", filter_corpus),
    "scenarios": OwnParser(scenarios, "frame", scenario_corpus),
    **{name: OwnParser(one.check(one.rules), one.form) for name, one in SMALL_PARSERS.items()},
}
"""The parsers by name."""
