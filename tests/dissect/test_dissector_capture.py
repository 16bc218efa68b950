"""Whole captures dissected: their interfaces and comments, and unknown link types."""

from pathlib import Path

import pytest

from rdmawire.capture import COMMENT, LinkType, Record, create_capture, open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.errors import CaptureError

UNKNOWN = 147
FIRST = Record(b"", 5_000, 0, LinkType.ETHERNET)
NOTED = Record(b"ab", 7_000, 9, LinkType.RAW, options=((COMMENT, b"one"), (COMMENT, b"two")))


def written(path: Path, *records: Record) -> Path:
    with create_capture(path, link_type=records[0].link_type) as writer:
        for record in records:
            writer.write(record)
    return path


def dissected(path: Path) -> tuple[list[Dissection], str]:
    """The frames, and why there are no more."""
    found: list[Dissection] = []
    with open_capture(path) as reader:
        try:
            for frame in Dissector().capture(reader):
                found.append(frame)  # noqa: PERF402 - what came before the error is kept
        except CaptureError as error:
            return found, error.reason
    return found, ""


def test_pcapng_tells_interfaces_and_comments(tmp_path: Path) -> None:
    frames, damage = dissected(written(tmp_path / "x.pcapng", FIRST, NOTED))
    assert damage == ""
    assert [(f.number, f.interface, f.comments) for f in frames] == [
        *((1, 0, ()), (2, 1, ("one", "two")))
    ]
    assert [(f.first_ns, f.previous_ns, f.time_ns) for f in frames] == [
        *((5_000, 5_000, 5_000), (5_000, 5_000, 7_000))
    ]
    assert {f.file for f in frames} == {str(tmp_path / "x.pcapng")}
    assert (frames[1].length, frames[1].data) == (9, b"ab")


def test_pcap_has_neither(tmp_path: Path) -> None:
    (frame,), _ = dissected(written(tmp_path / "x.pcap", FIRST))
    assert (frame.interface, frame.comments) == (None, ())


@pytest.mark.parametrize(
    ("name", "links", "frames", "message"),
    [
        ("x.pcap", [UNKNOWN], 0, "link type 147 is not known; known are NULL (0), ETHERNET (1)"),
        ("x.pcapng", [1, UNKNOWN, 148, 1], 4, "link type 147 and 148 is not known; known are"),
        ("x.pcapng", [1, 101], 2, ""),
    ],
)
def test_unknown_link_types_are_reported(
    tmp_path: Path, name: str, links: list[int], frames: int, message: str
) -> None:
    path = written(tmp_path / name, *(Record(b"abc", 0, 3, link) for link in links))
    found, reason = dissected(path)
    assert len(found) == frames
    assert reason.startswith(f"{path}: {message}" if message else "")
    assert bool(reason) == bool(message)


def test_damage_is_reported_after_the_records_before_it(tmp_path: Path) -> None:
    path = written(tmp_path / "x.pcap", FIRST, FIRST)
    path.write_bytes(path.read_bytes()[:-1])
    found, reason = dissected(path)
    assert len(found) == 1
    assert reason.startswith(f"{path}: ")
