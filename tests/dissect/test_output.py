"""Dissections as text: lines, trees, tables of fields, JSON."""

import json

import pytest

from rdmawire.dissect.dissection import Dissection, Severity
from rdmawire.dissect.generated import PAYLOAD
from rdmawire.dissect.node import Extra, Node
from rdmawire.dissect.output import Fields, Lines, Objects, Output, Separators
from rdmawire.dissect.select import Selection
from rdmawire.dissect.tree import hex_dump
from rdmawire.wire import ib, inet


def frame(number: int = 1) -> Dissection:
    """Two IP headers, one inside the other; a BTH; a payload; times that are easy to read."""
    found = Dissection(number, bytes(range(20)), 20, 1_500_000_000)
    found.first_ns = found.previous_ns = 1_000_000_000
    for place, source in enumerate((b"\x0a\0\0\x01", b"\x0a\0\0\x02")):
        ip = inet.IPv4(src=source, dst=b"\x0a\0\0\x09")
        found.nodes.append(Node("ip", place, ip.build(), ip))
    bth = ib.BTH(opcode=4, destqp=0x12, psn=7)
    found.nodes.append(Node("bth", 2, bth.build(), bth))
    data = bytes(range(70))
    found.nodes.append(Node("payload", 14, data, extras=(Extra(PAYLOAD, data),)))
    return found


NAMES = ["frame.number", "ip.src", "infiniband.deth.srcqp", "infiniband.bth.psn"]


def whole(output: Output, *frames: Dissection) -> str:
    pieces = [piece for each in frames for piece in output.frame(each)]
    return output.head() + "".join(pieces) + output.tail()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (Separators(), "1\t10.0.0.1,10.0.0.2\t\t7\n"),
        (Separators(header=True), "\t".join(NAMES) + "\n1\t10.0.0.1,10.0.0.2\t\t7\n"),
        (Separators(header=True, separator=";"), ";".join(NAMES) + "\n1;10.0.0.1,10.0.0.2;;7\n"),
        (Separators(aggregator=" "), "1\t10.0.0.1 10.0.0.2\t\t7\n"),
        (Separators(occurrence="f"), "1\t10.0.0.1\t\t7\n"),
        (Separators(occurrence="l"), "1\t10.0.0.2\t\t7\n"),
        (Separators(quote='"'), '"1"\t"10.0.0.1,10.0.0.2"\t\t"7"\n'),
        (Separators(True, ",", "+", "l", "'"), ",".join(NAMES) + "\n'1','10.0.0.2',,'7'\n"),
    ],
)
def test_fields_are_separated_as_wanted(how: Separators, text: str) -> None:
    assert whole(Fields(Selection(NAMES), how), frame()) == text


def test_a_line_for_each_frame() -> None:
    lines = whole(Lines(), frame(1), frame(2)).splitlines()
    assert [line.split()[:5] for line in lines] == [
        [number, "0.500000000", "10.0.0.2", "→", "10.0.0.9"] for number in "12"
    ]
    assert lines[0].endswith(" RC_SEND_ONLY qp 0x000012 psn 7, 70 bytes")


def test_a_tree_has_a_line_for_each_header_and_field() -> None:
    lines = whole(Lines(trees=True), frame()).splitlines()
    assert lines[0].startswith("Frame 1: 20 bytes, ")
    assert lines[0].endswith(" (+0.500000000)")
    assert "     2  BTH, 12 bytes: Base Transport Header" in lines
    assert f"{'     2    opcode: 4  RC_SEND_ONLY':<50}[infiniband.bth.opcode]" in lines
    assert f"{'    11    psn: 7':<50}[infiniband.bth.psn]" in lines
    data = f"{bytes(range(64)).hex()}.. (70 bytes)"
    assert f"          rdmawire.payload: {data}" in lines
    assert lines[-1] == ""


def test_the_bytes_are_below_each_frame() -> None:
    assert whole(Lines(with_bytes=True), frame()).splitlines()[1:] == [
        "0000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  ................",
        "0010  10 11 12 13" + " " * 12 + "  " + " " * 23 + "  ....",
        "",
    ]


def test_hexadecimal_shows_what_is_printable() -> None:
    (line, _) = hex_dump(b" ~\x1f\x7fAz\xc3\xa4")
    assert line == f"0000  20 7e 1f 7f 41 7a c3 a4  {'':<23}   ~..Az.."


def test_lines_are_painted_by_their_severity() -> None:
    broken = frame()
    broken.nodes.append(Node("malformed", 20, b"", reason="too short"))

    def paint(severity: Severity, text: str) -> str:
        return f"<{severity.value}>{text}"

    assert whole(Lines(paint=paint), frame()).startswith("<chat>")
    assert whole(Lines(paint=paint), broken).startswith("<error>")
    tree = whole(Lines(trees=True, paint=paint), broken).splitlines()
    assert "<error>    20  malformed, 0 bytes" in tree
    assert sum(line.startswith("<error>") for line in tree) == 1


def test_files_have_headings_with_a_line_between_them() -> None:
    lines = Lines()
    assert [lines.heading("a.pcap"), lines.heading("b.pcap")] == [
        *("==> a.pcap <==\n", "\n==> b.pcap <==\n")
    ]
    assert Fields(Selection(NAMES), Separators()).heading("a.pcap") == ""
    assert Objects(None, array=True).heading("a.pcap") == ""


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("selection", [None, Selection(NAMES)])
def test_json_is_an_array_or_a_line_for_each(count: int, selection: Selection | None) -> None:
    frames = [frame(number) for number in range(count)]
    array = json.loads(whole(Objects(selection, array=True), *frames))
    lines = whole(Objects(selection, array=False), *frames).splitlines()
    assert array == [json.loads(line) for line in lines]
    assert len(array) == count


def test_json_of_chosen_fields_leaves_out_what_is_not_there() -> None:
    assert json.loads(whole(Objects(Selection(NAMES), array=False), frame())) == {
        "frame.number": ["1"],
        "ip.src": ["10.0.0.1", "10.0.0.2"],
        "infiniband.bth.psn": ["7"],
    }


@pytest.mark.parametrize("selection", [None, Selection(NAMES)])
def test_json_has_the_bytes_if_wanted(selection: Selection | None) -> None:
    found = json.loads(whole(Objects(selection, array=False, with_bytes=True), frame()))
    assert found["bytes"] == bytes(range(20)).hex()
    assert "bytes" not in json.loads(whole(Objects(selection, array=False), frame()))


def test_json_is_of_numbers_flags_and_texts() -> None:
    grh = ib.GRH(flowlabel=5, sgid=bytes(15) + b"\x01")
    reth = ib.RETH(va=(1 << 60) + 1, rkey=2, dmalen=3)
    found = Dissection(1, b"", 0, 0)
    found.comments = ("noted",)
    bth = ib.BTH(opcode=0x0A, se=1)
    for header in (grh, bth, reth):
        found.nodes.append(Node(type(header).label, 0, header.build(), header))
    found.nodes[-1].reassembled = True
    shown = json.loads(whole(Objects(None, array=False), found))
    layers = {layer["name"]: layer for layer in shown["layers"]}
    assert layers["grh"]["fields"]["infiniband.grh.sgid"] == "::1"
    assert layers["grh"]["fields"]["infiniband.grh.flowlabel"] == 5
    assert layers["bth"]["fields"]["infiniband.bth.se"] is True
    assert layers["bth"]["fields"]["infiniband.bth.m"] is False
    assert layers["bth"]["words"]["infiniband.bth.opcode"] == "RC_RDMA_WRITE_ONLY"
    assert layers["reth"]["fields"]["infiniband.reth.va"] == "0x1000000000000001"
    assert [name for name in layers if "reassembled" in layers[name]] == ["reth"]
    assert shown["comments"] == ["noted"]
    assert shown["malformed"] is None
