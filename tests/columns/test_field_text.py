"""Lines of fields written from columns: those that dissections give, character for character."""

from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.columns.frame_printer import open_printer
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query, occurs_once
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import fields
from rdmawire.dissect.output import Fields, FrameCounts, Separators
from rdmawire.dissect.select import Selection
from rdmawire.filter import Filter
from rdmawire.wire.inet import ROCE_PORT
from tests.captures import CAPTURES, captures_at_once

ONCE = [
    info.name
    for info in fields()
    if Query([info.name]).is_fast and occurs_once(info.name) and info.name != "frame.time"
]


def lines_of(
    path: Path, output: Fields, selection: FrameSelection = EVERY_FRAME, jobs: int = 1
) -> list[str] | None:
    """Return the lines of a capture; ``None`` if each frame must be dissected."""
    counts, ports = FrameCounts(), (ROCE_PORT,)
    printer = open_printer(str(path), output, counts, ports, selection=selection, jobs=jobs)
    if printer is None:
        return None
    lines = b"".join(printer.texts()).decode().splitlines(keepends=True)
    assert counts.frames == len(lines)
    return lines


SOME = [
    *("frame.number", "frame.time_relative", "eth.src", "ip.src", "ipv6.src", "ip.dsfield.ecn"),
    *("infiniband.bth.opcode", "infiniband.bth.a", "infiniband.bth.p_key", "infiniband.reth.va"),
    *("infiniband.aeth.syndrome.timer", "rdmawire.icrc.status", "iwarp_rdma.opcode"),
]


@captures_at_once()
@pytest.mark.parametrize(
    ("names", "captures", "quote", "text"),
    [
        (ONCE, "generated/[rt]o*.pcap", "", ""),
        (SOME, "*/*.pcap", '"', ""),
        (SOME, "*/*.pcap", "", "infiniband.bth.psn > 100"),
        (SOME, "*/*.pcap", "", "udp.dstport == 4789 or frame"),
    ],
    ids=["all fields", "quoted", "filtered at once", "filtered one by one"],
)
def test_lines_are_those_of_dissections(
    names: list[str], captures: str, quote: str, text: str, paths: list[Path]
) -> None:
    choice = FrameSelection(where=Filter(text)) if text else EVERY_FRAME
    output = Fields(Selection(names), Separators(separator=";", quote=quote))
    written = 0
    for path in (path for path in paths if path.match(captures)):
        lines = lines_of(path, output, choice)
        if lines is None:
            continue
        with open_capture(path) as reader:
            wanted = [output.line(f) for f in Dissector().capture(reader) if choice.takes(f)]
        assert lines == wanted, path
        written += len(wanted)
    assert written > 0 or "frame" in text


@pytest.mark.parametrize("name", ["ip.addr", "udp.port", "infiniband.immdt", "frame.time", "data"])
def test_fields_that_columns_do_not_hold_are_left_to_dissections(name: str) -> None:
    names = [name] if name != "data" else ["data.data"]
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    assert lines_of(path, Fields(Selection(names), Separators())) is None


def test_a_field_may_be_asked_for_twice() -> None:
    names = ["infiniband.bth.psn", "frame.number", "infiniband.bth.psn"]
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    lines = lines_of(path, Fields(Selection(names), Separators()))
    assert lines is not None
    assert lines[17] == "256\t18\t256\n"
