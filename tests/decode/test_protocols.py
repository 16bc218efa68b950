"""Protocols that no standard table has: a header, a step and a row of the table for each.

A tunnel of IP, a payload of one queue pair, a protocol over UDP, and a link type of captures.
"""

from pathlib import Path

import pytest

from rdmawire.capture import Record, create_capture, open_capture
from rdmawire.columns import read_columns
from rdmawire.decode import PROTOCOLS, By, Following, Walk, outline, walk_frame
from rdmawire.decode.inet import enter_tunnel
from rdmawire.dissect import Dissection, Dissector, Selection
from rdmawire.errors import CaptureError
from rdmawire.fabric.pair import Pair
from rdmawire.filter import Filter, FilterError
from rdmawire.traffic.edit import Editor, edit_capture, text
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.header import Header, bits
from rdmawire.wire.ib import BTH
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, IPProtocol, IPv4
from rdmawire.wire.layout import joined
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from rdmawire.wire.tables import known_headers


class GRE(Header, clause="RFC 2784, 2", label="gre"):
    """Generic routing encapsulation: a packet in a packet."""

    flags: int = bits(13)
    version: int = bits(3)
    protocol: int = bits(16)


class Capsule(Header, label="capsule"):
    """What the packets to one queue pair begin with."""

    command: int = bits(8)
    number: int = bits(24)


class Hello(Header, wireshark="hello"):
    """What the datagrams to one UDP port begin with."""

    version: int = bits(8)
    kind: int = bits(8)
    length: int = bits(16)


class TapHeader(Header, label="tap"):
    """What the records of one link type begin with, before the Ethernet header."""

    port: int = bits(32)


def gre(walk: Walk) -> Following:
    enter_tunnel(walk, "GRE")
    return By.ETHERTYPE, walk.take(GRE).protocol


def capsule(walk: Walk) -> Following:
    walk.take(Capsule)
    walk.take_payload(walk.bth.padcnt)
    return None


def hello(walk: Walk) -> Following:
    walk.take(Hello)
    walk.take_rest()
    return None


def tap(walk: Walk) -> Following:
    walk.take(TapHeader)
    return By.LINK, 1


GRE_PROTOCOL, QP, HELLO_PORT, USER0 = 47, 0x77, 9999, 147
PROTOCOLS_WITH_NEW = PROTOCOLS | {
    (By.IP, GRE_PROTOCOL): gre,
    (By.QP, QP): capsule,
    (By.UDP, HELLO_PORT): hello,
    (By.LINK, USER0): tap,
}


def ip(protocol: int, length: int) -> IPv4:
    """An IPv4 header before ``length`` bytes."""
    header = IPv4(protocol=protocol, src=b"\xc0\0\2\1", dst=b"\xc0\0\2\2", total_length=20 + length)
    return header.replace(checksum=ipv4_header_checksum(header.build()))


def tunnelled() -> bytes:
    """A frame with a capsule in a tunnel."""
    payload = joined(Capsule(command=1, number=7), b"twelve bytes")
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=payload, destqp=QP, psn=5)
    inner_ip = IPv4(protocol=IPProtocol.UDP, src=b"\x0a\0\0\1", dst=b"\x0a\0\0\2")
    udp = UDP(srcport=0xC000, dstport=ROCE_PORT, checksum=1)
    inner = Frame((Ethernet(type=0x0800), inner_ip, udp), packet).seal().build()[Ethernet.SIZE :]
    outer = ip(GRE_PROTOCOL, GRE.SIZE + len(inner))
    return joined(Ethernet(type=0x0800), outer, GRE(protocol=0x0800), inner)


def names_of(dissection: Dissection) -> list[str]:
    return [node.name for node in dissection.nodes]


NAMES = ["eth", "ip", "gre", "ip", "udp", "bth", "capsule", "payload", "icrc"]


def test_a_dissection_and_a_walk_know_a_tunnel_and_a_payload() -> None:
    frame = tunnelled()
    found = Dissector(protocols=PROTOCOLS_WITH_NEW).dissect(frame)
    assert names_of(found) == NAMES
    assert [check.good for check in found.checks] == [True] * 4
    assert names_of(Dissector().dissect(frame)) == ["eth", "ip", "payload"]
    headers = walk_frame(frame, protocols=PROTOCOLS_WITH_NEW).headers
    assert [type(each.header).label for each in headers] == NAMES[:-2]
    assert outline(frame).packet is None


def test_edits_and_filters_know_a_tunnel_and_a_payload() -> None:
    frame, dissector = tunnelled(), Dissector(protocols=PROTOCOLS_WITH_NEW)
    with known_headers(GRE, Capsule):
        rules = [text.assignment("capsule.number=9"), text.ips(["10.0.0.2=10.0.0.9"])]
        rules += [text.psn_offsets(["100"]), text.assignment("gre.flags=3")]
        wanted = Filter("rdmawire.capsule.number == 9 and rdmawire.gre.flags == 3 and udp")
    editor = Editor(rules, protocols=PROTOCOLS_WITH_NEW)
    before, after = dissector.dissect(frame), dissector.dissect(editor.edit(frame))
    assert [check.good for check in after.checks] == [True] * 4
    bth, changed = after.header(BTH), after.header(Capsule)
    assert (bth and bth.psn) == 105
    assert changed == Capsule(command=1, number=9)
    assert editor.edit(frame) == after.data
    assert not [unused for rule in rules for unused in rule.unused()]
    assert (wanted(before), wanted(after)) == (False, True)


def test_a_protocol_over_udp_is_known_by_its_port() -> None:
    udp = UDP(1, HELLO_PORT, UDP.SIZE + Hello.SIZE + 4)
    hello = Hello(1, 2, 4)
    frame = joined(
        Ethernet(type=0x0800), ip(IPProtocol.UDP, udp.length), udp, hello.build() + b"abcd"
    )
    dissector = Dissector(protocols=PROTOCOLS_WITH_NEW)
    with known_headers(Hello):
        wanted, protocol = Filter("hello.kind == 2"), Filter("hello")
        kinds = Selection(["rdmawire.hello.kind"])
        editor = Editor([text.assignment("hello.kind=7")], protocols=PROTOCOLS_WITH_NEW)
    found = dissector.dissect(frame)
    assert names_of(found) == ["eth", "ip", "udp", "hello", "payload"]
    assert (wanted(found), protocol(found), kinds.values(found)) == (True, True, [["2"]])
    assert dissector.dissect(editor.edit(frame)).header(Hello) == Hello(1, 7, 4)
    assert not protocol(Dissector().dissect(frame))
    with pytest.raises(FilterError, match="no field is named 'hello'"):
        Filter("hello")


@pytest.mark.parametrize("name", ["own.pcap", "own.pcapng"])
def test_captures_of_a_new_link_type_are_read_and_edited(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / name, tmp_path / "edited.pcapng"
    pair = Pair()
    with create_capture(source, link_type=USER0) as writer:
        pair.simulator.on_sent.append(
            lambda frame, now: writer.write(
                Record(data := TapHeader(3).build() + frame.data, now, len(data), USER0)
            )
        )
        pair.client.write(b"hello", to=pair.server.region)
        pair.drive()
    with known_headers(TapHeader):
        editor = Editor([text.assignment("tap.port=9")], protocols=PROTOCOLS_WITH_NEW)
        edit_capture(source, target, editor)
        columns = read_columns(
            target, ["tap.port", "infiniband.bth.psn"], protocols=PROTOCOLS_WITH_NEW
        )
    with open_capture(target) as reader:
        frames = list(Dissector(protocols=PROTOCOLS_WITH_NEW).capture(reader))
    assert [names_of(frame)[:3] for frame in frames] == [["tap", "eth", "ip"]] * 2
    assert [frame.header(TapHeader) for frame in frames] == [TapHeader(9)] * 2
    assert columns["tap.port"].values.tolist() == [9, 9]
    assert columns["infiniband.bth.psn"].values.tolist() == [100, 100]
    with (
        open_capture(source) as reader,
        pytest.raises(CaptureError, match="link type 147 is not known; known are NULL"),
    ):
        list(Dissector().capture(reader))


def test_link_types_without_a_name_are_listed_by_number(tmp_path: Path) -> None:
    with create_capture(tmp_path / "a.pcap", link_type=148) as writer:
        writer.write(Record(b"abcd", 0, 4, 148))
    with (
        open_capture(tmp_path / "a.pcap") as reader,
        pytest.raises(CaptureError, match=r"link type 148 is not known; .*IPV4 \(228\)") as caught,
    ):
        list(Dissector(protocols=PROTOCOLS_WITH_NEW).capture(reader))
    assert ", 147, " in str(caught.value)
