"""Lines of fields written from columns: those that dissections give, character for character."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query, occurs_once
from rdmawire.columns.text import FieldLines
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import fields
from rdmawire.dissect.output import Fields, Separators
from rdmawire.dissect.select import Selection
from rdmawire.filter import Filter

CAPTURES = Path(__file__).parents[2] / "captures"
ONCE = [
    info.name
    for info in fields()
    if Query([info.name]).is_fast and occurs_once(info.name) and info.name != "frame.time"
]


def line_of(names: list[str], separators: Separators) -> Callable[[Dissection], str]:
    output = Fields(Selection(names), separators)
    return lambda frame: "".join(output.frame(frame))


SOME = [
    *("frame.number", "frame.time_relative", "eth.src", "ip.src", "ipv6.src", "ip.dsfield.ecn"),
    *("infiniband.bth.opcode", "infiniband.bth.a", "infiniband.bth.p_key", "infiniband.reth.va"),
    *("infiniband.aeth.syndrome.timer", "rdmawire.icrc.status", "iwarp_rdma.opcode"),
]


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
    names: list[str], captures: str, quote: str, text: str
) -> None:
    choice = FrameSelection(where=Filter(text)) if text else EVERY_FRAME
    line = line_of(names, Separators(separator=";", quote=quote))
    written = 0
    for path in sorted(CAPTURES.glob(captures)):
        lines = FieldLines(names, choice, line, ";", quote).lines(path, (4791,))
        if lines is None:
            continue
        with open_capture(path) as reader:
            wanted = [line(f) for f in Dissector().capture(reader) if choice.takes(f)]
        assert list(lines) == wanted, path
        written += len(wanted)
    assert written > 0 or "frame" in text


@pytest.mark.parametrize("name", ["ip.addr", "udp.port", "infiniband.immdt", "frame.time", "data"])
def test_fields_that_columns_do_not_hold_are_left_to_dissections(name: str) -> None:
    names = [name] if name != "data" else ["data.data"]
    line = line_of(names, Separators())
    lines = FieldLines(names, EVERY_FRAME, line, "\t")
    assert lines.lines(CAPTURES / "linux" / "rxe61_rnr.pcap", (4791,)) is None


def test_a_field_may_be_asked_for_twice() -> None:
    names = ["infiniband.bth.psn", "frame.number", "infiniband.bth.psn"]
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    lines = FieldLines(names, EVERY_FRAME, line_of(names, Separators()), "\t").lines(path, (4791,))
    assert lines is not None
    assert list(lines)[17] == "256\t18\t256\n"
