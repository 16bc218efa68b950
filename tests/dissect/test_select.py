"""Fields by name: what is listed can be selected, and what frames carry is listed."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import FieldInfo, fields
from rdmawire.dissect.select import FieldError, Selection
from rdmawire.dissect.tree import items
from tests.captures import CAPTURES, each_capture

NAMES = [info.name for info in fields()]
EVERYTHING = Selection(NAMES)
FRAMES = 60
"""Frames looked at of each capture."""


def dissections(path: Path) -> Iterator[Dissection]:
    with open_capture(path) as reader:
        yield from islice(Dissector().capture(reader), FRAMES)


def carried(frame: Dissection) -> set[str]:
    """The names that the frame's nodes show, and those of fields that trees leave out."""
    shown = {item.name for node in frame.nodes for item in items(node)}
    return shown | {extra.field.name for node in frame.nodes for extra in node.extras}


def test_names_are_listed_once_in_order() -> None:
    assert sorted(set(NAMES)) == NAMES


@each_capture()
def test_what_a_frame_carries_is_listed_and_selected(path: Path) -> None:
    for frame in dissections(path):
        values = dict(zip(NAMES, EVERYTHING.values(frame), strict=True))
        wanting = {name for name in carried(frame) if not values.get(name)}
        assert wanting == set(), f"frame {frame.number}"


def test_each_name_alone_selects_what_it_does_among_all() -> None:
    path = CAPTURES / "linux" / "rxe61_udaddy.pcap"
    frames = list(dissections(path))
    for index, name in enumerate(NAMES):
        alone = Selection([name])
        for frame in frames[:2] + frames[-1:]:
            assert alone.values(frame) == [EVERYTHING.values(frame)[index]], name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("infiniband.bth.pns", "no field is named 'infiniband.bth.pns'; the nearest is infini"),
        ("zzzz", "no field is named 'zzzz'; `rdmawire fields` lists them all"),
        ("", "no field is named ''; `rdmawire fields` lists them all"),
    ],
)
def test_a_name_that_nobody_knows_is_an_error_with_its_neighbours(name: str, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        Selection(["frame.number", name])
    assert str(caught.value).startswith(message)


def test_columns_keep_their_order_and_may_repeat() -> None:
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    frame = list(dissections(path))[16]
    names = ["ip.dst", "frame.number", "ip.addr", "infiniband.deth.q_key", "ip.dst"]
    there, both = ["10.77.0.1"], ["10.77.0.2", "10.77.0.1"]
    assert Selection(names).values(frame) == [there, ["17"], both, [], there]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("infiniband.bth.psn", ("FT_UINT24", 24, "bth", "psn")),
        ("infiniband.bth", ("FT_BYTES", 96, "bth", "")),
        ("infiniband.bth.se", ("FT_BOOLEAN", 1, "bth", "se")),
        ("eth.src", ("FT_ETHER", 48, "eth", "src")),
        ("ip.src", ("FT_IPv4", 32, "ip", "src")),
        ("infiniband.grh.sgid", ("FT_IPv6", 128, "grh", "sgid")),
        ("frame.number", ("FT_UINT32", 32, "", "")),
        ("rdmawire.icrc.status", ("FT_STRING", 0, "", "")),
    ],
)
def test_the_list_describes_each_field(name: str, known: tuple[str, int, str, str]) -> None:
    (info,) = (info for info in fields() if info.name == name)
    assert (info.type, info.width, info.header, info.row) == known
    assert isinstance(info, FieldInfo)
    assert info.doc
