"""FPDUs of which only the first bytes are there: cut by the capture, or with a hole behind."""

import re
from collections.abc import Iterator

import pytest

from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Node
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import FPDUCRC, FPDULength, Marker
from rdmawire.wire.rdmap import RDMAPOpcode, segment
from tools.make_captures.iwarp_stream import Frames, Stream, text, ulpdu

CARRIERS = 54
"""Bytes of Ethernet, IPv4 and TCP."""


def frames_of(*ulpdus: bytes, markers: bool = False) -> Frames:
    """A connection's frames; the last one carries these FPDUs."""
    stream = Stream(crc=True, markers=(False, markers)).open()
    return stream.say(0, *ulpdus).frames


def dissected(frames: Frames, kept: int | None = None) -> Dissection:
    """The last frame, of which the capture kept so many bytes."""
    dissector = Dissector()
    for frame in frames[:-1]:
        dissector.dissect(frame)
    return dissector.dissect(frames[-1][:kept], length=len(frames[-1]))


def cuts(start: int, end: int) -> Iterator[int]:
    """Lengths to cut a frame at: near the headers and near the end all, between them some."""
    yield from (kept for kept in range(start, end) if kept % 7 == 0 or not 90 < kept < end - 50)


def of_iwarp(frame: Dissection) -> list[Node]:
    return [node for node in frame.nodes if node.offset >= CARRIERS and node.data]


def headers(nodes: list[Node]) -> list[tuple[int, Header]]:
    return [(node.offset, node.header) for node in nodes if node.header is not None]


def notes(frame: Dissection) -> list[str]:
    return [
        str(extra.value)
        for node in frame.nodes
        for extra in node.extras
        if extra.field is generated.MPA_NOTE
    ]


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("opcode", RDMAPOpcode)
def test_headers_that_are_whole_are_there_wherever_the_capture_cuts(
    opcode: RDMAPOpcode, markers: bool
) -> None:
    frames = frames_of(ulpdu(opcode, 600), markers=markers)
    whole = of_iwarp(dissected(frames))
    lead = Marker.SIZE * markers
    for kept in cuts(CARRIERS + lead + FPDULength.SIZE, len(frames[-1])):
        cut = dissected(frames, kept)
        expected = [
            (node.offset, node.header)
            for node in whole
            if node.header is not None and not isinstance(node.header, FPDUCRC)
            if node.offset + len(node.data) <= kept
        ]
        found = headers(of_iwarp(cut))
        # A header that holds a Marker is whole a little later.
        short = len(expected) - len(found) if markers else 0
        assert found == expected[: len(expected) - short]
        assert short <= 1
        assert cut.malformed is None


@pytest.mark.parametrize("opcode", [RDMAPOpcode.SEND, RDMAPOpcode.RDMA_WRITE])
def test_the_note_has_the_captured_bytes_of_fpdu_and_payload(opcode: RDMAPOpcode) -> None:
    frames = frames_of(ulpdu(opcode, 600))
    size = len(frames[-1]) - CARRIERS
    for kept in range(FPDULength.SIZE, size):
        frame = dissected(frames, CARRIERS + kept)
        payload = [node for node in frame.nodes if node.name == "truncated" and node.extras[1:]]
        note = next(note for note in notes(frame) if "FPDU" in note)
        assert note.startswith(f"{kept} of {size} bytes of an FPDU")
        found = re.findall(r"(\d+) of 600 of its payload", note)
        assert found == [str(len(node.data)) for node in payload]


@pytest.mark.parametrize("opcode", [RDMAPOpcode.RDMA_READ_REQUEST, RDMAPOpcode.SEND])
@pytest.mark.parametrize("length", [1, 300])
def test_each_byte_of_a_torn_fpdu_is_in_one_node(opcode: RDMAPOpcode, length: int) -> None:
    frames = frames_of(ulpdu(opcode, length))
    for kept in range(CARRIERS + FPDULength.SIZE, len(frames[-1])):
        nodes = of_iwarp(dissected(frames, kept))
        assert b"".join(node.data for node in nodes) == frames[-1][CARRIERS:kept]


@pytest.mark.parametrize("length", range(485, 500))
def test_with_markers_as_many_bytes_are_in_nodes(length: int) -> None:
    frames = frames_of(ulpdu(RDMAPOpcode.SEND, length), markers=True)
    for kept in cuts(CARRIERS + Marker.SIZE + FPDULength.SIZE, len(frames[-1])):
        nodes = of_iwarp(dissected(frames, kept))
        assert sum(len(node.data) for node in nodes) == kept - CARRIERS


def test_a_torn_fpdu_that_breaks_a_rule_is_malformed() -> None:
    frames = frames_of(segment(RDMAPOpcode.SEND, text(300), dv=2))
    frame = dissected(frames, CARRIERS + 60)
    assert frame.malformed is not None
    assert frame.malformed.reason.startswith("DDP version 2")
    assert frame.malformed.offset == CARRIERS + FPDULength.SIZE


def test_behind_a_torn_fpdu_framing_goes_on() -> None:
    stream = Stream(crc=True).open()
    first = stream.say(0, ulpdu(RDMAPOpcode.SEND, 600)).frames[-1]
    second = stream.say(0, ulpdu(RDMAPOpcode.SEND, 9)).frames[-1]
    dissector = Dissector()
    for frame in stream.frames[:-2]:
        dissector.dissect(frame)
    dissector.dissect(first[:80], length=len(first))
    assert "MPA CRC good" in map(str, dissector.dissect(second).checks)
