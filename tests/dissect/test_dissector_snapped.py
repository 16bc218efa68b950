"""Captures that keep only the beginning of each frame: short frames, but never malformed ones."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.capture import Record, open_capture
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.output import Lines, Objects
from tests.captures import EVERY, each_capture

SOUND = [path for path in EVERY if path.parent.name in ("linux", "generated")]

EVERY_CUT = "RDMAWIRE_TEST_EVERY_CUT"
"""Set in the environment, every frame is cut at every length; otherwise a sample of them."""
SEED = int(os.environ.get("RDMAWIRE_TEST_SEED", "5040"))
FRAMES = 4
"""Frames of each capture in the sample."""
LONGEST = 140
"""Bytes up to which a frame of the sample is cut at every length; past that, here and there."""

OUTPUTS = (Lines(), Lines(trees=True), Objects(None, array=False))


def records(path: Path) -> list[Record]:
    with open_capture(path) as reader:
        return list(reader)


def sample(path: Path, chance: random.Random) -> Iterator[tuple[int, list[int]]]:
    """Indices of frames, each with the lengths to cut it at."""
    found = records(path)
    chosen: list[int] | range = range(len(found))
    if EVERY_CUT not in os.environ:
        chosen = sorted(chance.sample(chosen, min(FRAMES, len(found))))
    for index in chosen:
        length = len(found[index].data)
        yield index, [*range(min(length, LONGEST)), *_farther(length, chance)]


def _farther(length: int, chance: random.Random) -> list[int]:
    farther = range(LONGEST, length)
    if EVERY_CUT in os.environ:
        return [*farther]
    near_the_end = farther[-10:]
    return sorted({*near_the_end, *chance.sample(farther, min(10, len(farther)))})


def cut(record: Record, kept: int) -> Dissection:
    """The frame alone, of which the capture kept so many bytes."""
    data, length = record.data[:kept], max(record.length, len(record.data))
    return Dissector().dissect(data, link_type=record.link_type, length=length)


@each_capture(SOUND)
def test_a_frame_cut_at_any_length_is_whole_as_far_as_it_goes(path: Path) -> None:
    found = records(path)
    for index, lengths in sample(path, random.Random(f"{SEED} {path.name}")):
        for kept in lengths:
            frame = cut(found[index], kept)
            where = f"frame {index + 1} cut at {kept}; {EVERY_CUT}=1 cuts all, seed {SEED}"
            assert frame.malformed is None, f"{where}: {frame.malformed}"
            assert not frame.bad_checks, f"{where}: {frame.bad_checks[0]}"
            check_nodes(frame, where)


def check_nodes(frame: Dissection, where: str) -> None:
    """Every captured byte is in a node, the cut has a note, and every output takes it."""
    in_place = sorted((n.offset, n.data) for n in frame.nodes if not n.reassembled)
    assert b"".join(data for _, data in in_place) == frame.data, where
    note = f"the capture kept {len(frame.data)} of {frame.length} bytes"
    assert frame.nodes[-1].extra(generated.CUT) == note, where
    for output in OUTPUTS:
        assert "".join(output.frame(frame)), where


@pytest.mark.parametrize("kept", [34, 60, 64, 96, 128, 256])
def test_a_capture_snapped_as_a_whole_is_not_malformed(kept: int) -> None:
    """The frames before shape what is made of a frame: streams with parts that were not kept."""
    for path in SOUND:
        dissector = Dissector()
        for record in records(path)[:400]:
            frame = dissector.dissect(
                record.data[:kept],
                link_type=record.link_type,
                length=max(record.length, len(record.data)),
            )
            assert frame.malformed is None, f"{path.name} frame {frame.number}: {frame.malformed}"
            assert not frame.bad_checks, f"{path.name} frame {frame.number}: {frame.bad_checks}"
