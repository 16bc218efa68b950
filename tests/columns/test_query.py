"""Frames chosen by window and filter: the same rows from columns as from dissections."""

from pathlib import Path

import pytest

from rdmawire.columns import RowUnit, read_columns
from rdmawire.columns.query import FrameSelection, Query
from rdmawire.columns.read import MixedReader, Request
from rdmawire.dissect.select import Bound, Window
from rdmawire.filter import Filter
from tests.captures import CAPTURES, captures_at_once
from tests.columns.dissections import dissections, frames_of

RNR = CAPTURES / "linux" / "rxe61_rnr.pcap"


def numbers(path: Path, choice: FrameSelection) -> list[int]:
    blocks = Request(Query(["frame.number"]), RowUnit.FRAME, (4791,), choice).blocks(path)
    return [number for block in blocks for number in block["frame.number"].values.tolist()]


@captures_at_once(lambda path: path.suffix == ".pcap")
@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("infiniband.aeth.syndrome.timer == 14", True),
        ("infiniband.bth.psn in {1..300} and infiniband.bth.opcode & 0x10", True),
        ("ip.dst == 10.77.0.0/31 or not infiniband.bth", False),
        ("frame.time_relative > 0.05 and frame.len > 100", True),
        ("ip.addr == 10.77.0.1", False),
        ("eth.src[0:2] == 52:54", False),
        ("udp", False),
    ],
)
def test_columns_and_dissections_choose_the_same(
    text: str, simple: bool, paths: list[Path]
) -> None:
    where = Filter(text)
    assert where.simple is simple
    for path in paths:
        wanted = [frame.number for frame in frames_of(path) if where(frame)]
        assert numbers(path, FrameSelection(where=where)) == wanted, path


@pytest.mark.parametrize(
    ("start", "end"),
    [("3", "7"), ("20ms", "50ms"), ("2026-11-21T02:16:38.03Z", None), (None, "9"), ("30", "0.1s")],
)
def test_columns_and_dissections_have_the_same_window(start: str | None, end: str | None) -> None:
    window = Window(*(Bound.parse(text) if text else None for text in (start, end)))
    wanted = [frame.number for frame in dissections(RNR) if frame in window]
    assert 0 < len(wanted) < 152
    assert numbers(RNR, FrameSelection(window)) == wanted


def test_what_chooses_is_not_shown() -> None:
    found = read_columns(RNR, ["infiniband.bth.psn"], where="frame.len == 62")
    assert list(found) == ["infiniband.bth.psn"]
    assert found.rows == sum(frame.length == 62 for frame in dissections(RNR))


def test_simple_choices_dissect_no_plain_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    dissected = []
    monkeypatch.setattr(MixedReader, "_dissect", lambda *words: dissected.append(words[2]))
    read_columns(RNR, ["frame.number"], where="infiniband.aeth.syndrome.timer == 14")
    assert len(dissected) == 152 - 137


def test_a_filter_of_frames_chooses_fpdus_too() -> None:
    path = CAPTURES / "linux" / "siw612crc_rping.pcap"
    every = read_columns(path, ["ip.src"], row=RowUnit.FPDU).rows
    one_way = read_columns(path, ["ip.src"], row=RowUnit.FPDU, where="ip.src == 10.77.0.1").rows
    other = read_columns(path, ["ip.src"], row=RowUnit.FPDU, where="ip.src == 10.77.0.2").rows
    assert one_way > 0
    assert one_way + other == every
