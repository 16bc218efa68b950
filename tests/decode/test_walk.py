"""One walk: what a dissection shows of any frame is what an edit and a fault would touch."""

import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import LinkType, open_capture
from rdmawire.decode import LINK_TYPES, FrameLayout, outline, walk_frame
from rdmawire.dissect import Dissection, Dissector
from rdmawire.testing.strategies import frames
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC
from rdmawire.wire.roce import Frame
from rdmawire.wire.tables import IWARP, tables_of
from tests.captures import each_capture

SEED = 20261123
MAX_FRAMES = 120
"""Frames of one capture that are walked; their like come again and again."""

CRCS = (ICRC, VCRC)
STREAMS = tables_of(*IWARP)
"""Headers in streams, which lie across frames: an edit has streams of its own for them."""

Found = list[tuple[int, type[Header]]]


def shown(found: Dissection) -> Found:
    """The headers that a dissection shows in the frame itself, and their offsets."""
    return [
        (node.offset, type(node.header))
        for node in found.nodes
        if node.header is not None and not node.reassembled
        if not isinstance(node.header, STREAMS)
    ]


def touched(layout: FrameLayout, size: int) -> Found:
    """The headers that an edit changes, and the CRCs. Of fragments a dissection shows none."""
    end = size if layout.fragment_at is None else layout.fragment_at
    headers = [(at, type(header)) for at, header in layout.headers if at < end]
    crcs = ((each.at, each.table) for each in layout.checksums)
    return [*headers, *((at, table) for at, table in crcs if table in CRCS and at < size)]


def check(data: bytes, link_type: int) -> None:
    """All that read a frame must find the same in it."""
    found, layout = Dissector().dissect(data, link_type=link_type), walk_frame(data, link_type)
    case = data.hex(), link_type
    assert shown(found) == touched(layout, len(data)), case
    if layout.malformed_at is not None and layout.fragment_at is None:
        assert layout.malformed_at in [node.offset for node in found.nodes if node.reason], case
    if link_type == LinkType.ETHERNET:
        headers = tuple((at, type(header)) for at, header in layout.headers)
        assert outline(data) == (headers, layout.packet), case


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The frame with a few bytes changed, most of them near its beginning, or cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        if changed:
            near = min(len(changed), chance.choice([24, 64, 200]))
            values = (0, 1, 0x45, 255, 6, 17, 43, 44, 60, chance.randrange(256))
            changed[chance.randrange(near)] = chance.choice(values)
    kept = chance.choice([len(changed), len(changed), chance.randrange(len(changed) + 1)])
    return bytes(changed[:kept])


@each_capture()
def test_what_a_dissection_shows_is_what_an_edit_touches(path: Path) -> None:
    chance = random.Random(f"{SEED} {path.name}")
    with open_capture(path) as reader:
        records = [(record.data, record.link_type) for record in reader]
    for data, link_type in records[:MAX_FRAMES]:
        check(data, link_type)
    for _ in range(MAX_FRAMES):
        data, link_type = chance.choice(records)
        check(mutated(data, chance), link_type)


Changes = list[tuple[int, int]]


@settings(derandomize=True, deadline=None)
@given(
    frames(),
    st.lists(st.tuples(st.integers(0, 127), st.integers(0, 255)), max_size=4),
    st.integers(0, 64) | st.just(0),
)
def test_it_is_in_any_frame_with_any_bytes_changed(
    frame: Frame, changes: Changes, cut: int
) -> None:
    data = bytearray(frame.build())
    for at, value in changes:
        data[at % len(data)] = value
    check(bytes(data[: len(data) - cut]), LinkType.ETHERNET)


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=120), st.sampled_from(sorted(LINK_TYPES)))
def test_it_is_in_any_bytes(data: bytes, link_type: int) -> None:
    check(data, link_type)
