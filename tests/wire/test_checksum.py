"""Whose addresses checksums cover: packets with a route, and hosts away from home."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.dissect import generated
from rdmawire.dissect.dissector import Dissector
from rdmawire.errors import WireError
from rdmawire.fabric.field import Fields
from rdmawire.traffic.edit import ChecksumMode, Editor, text
from rdmawire.wire.checksum import (
    final_in_routing,
    final_in_source_route,
    home_in_options,
    internet_checksum,
    udp_checksum,
)
from rdmawire.wire.inet import ROCE_PORT, TCP, UDP, Ethernet, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.layout import joined
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

HOME, SOURCE, STOP, FIRST, LAST = (bytes(15) + bytes([n]) for n in (0x11, 0x22, 0x33, 0x44, 0x55))
ROUTING, OPTIONS, HOP = (
    IPProtocol.ROUTING,
    IPProtocol.DESTINATION_OPTIONS,
    IPProtocol.HOP_BY_HOP,
)


def routing(kind: int, left: int, *addresses: bytes, behind: int = IPProtocol.UDP) -> bytes:
    """A routing header; the last entry of a segment list (type 4) is that of all addresses."""
    last = len(addresses) - 1 if kind == 4 else 0
    head = bytes([behind, 2 * len(addresses), kind, left, last & 0xFF, 0, 0, 0])
    return head + b"".join(addresses)


def home(behind: int = IPProtocol.UDP) -> bytes:
    """Destination options with a PadN of 2 bytes and the home address. RFC 6275, 6.3."""
    return bytes([behind, 2, 1, 2, 0, 0, 0xC9, 16]) + HOME


CASES: dict[str, tuple[int, bytes, bytes, bytes]] = {
    "type 0": (ROUTING, routing(0, 2, FIRST, LAST), SOURCE, LAST),
    "type 0, arrived": (ROUTING, routing(0, 0, FIRST, LAST), SOURCE, STOP),
    "type 2": (ROUTING, routing(2, 1, LAST), SOURCE, LAST),
    "type 2, arrived": (ROUTING, routing(2, 0, LAST), SOURCE, STOP),
    "segments": (ROUTING, routing(4, 1, LAST, FIRST), SOURCE, LAST),
    "segments, reduced": (ROUTING, routing(4, 2, LAST, FIRST), SOURCE, LAST),
    "segments, arrived": (ROUTING, routing(4, 0, LAST, FIRST), SOURCE, STOP),
    "home": (OPTIONS, home(), HOME, STOP),
    "both": (OPTIONS, home(ROUTING) + routing(4, 1, LAST, FIRST), HOME, LAST),
    "hop by hop": (HOP, bytes([OPTIONS, 0, 1, 4]) + bytes(4) + home(), HOME, STOP),
    "no home among hop by hop": (HOP, home(), SOURCE, STOP),
}
"""The first extension header, all of them, and source and destination that count."""

UNKNOWN = {
    "type 3": routing(3, 1, LAST),
    "type 77": routing(77, 1, LAST),
    "too many left": routing(0, 3, FIRST, LAST),
    "no address": routing(4, 1),
}

PACKET = Packet.make(Opcode.RC_SEND_ONLY, payload=b"by way of others", destqp=17, psn=5)
ETHERNET = Ethernet(bytes(6), bytes(6), EtherType.IPV6)
SRC = "::22=::6666"
DST = "::33=::6666"


def sealed(kind: int, extensions: bytes) -> bytes:
    """A RoCEv2 frame with these extension headers and a UDP checksum, sealed."""
    ip = IPv6(next_header=kind, src=SOURCE, dst=STOP)
    udp = UDP(49152, ROCE_PORT, 0, 1)
    return Frame((ETHERNET, ip, extensions, udp), PACKET).seal().build()


def checksum_of(data: bytes, extensions: bytes) -> int:
    at = Ethernet.SIZE + IPv6.SIZE + len(extensions) + 6
    return int.from_bytes(data[at : at + 2], "big")


def status(data: bytes) -> int:
    found = Dissector().dissect(data)
    (udp,) = (node for node in found.nodes if node.name == "udp")
    found_status = udp.extra(generated.UDP_CHECKSUM_STATUS)
    assert isinstance(found_status, int)
    return found_status


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_checksum_covers_the_ends(case: tuple[int, bytes, bytes, bytes]) -> None:
    kind, extensions, source, destination = case
    data = sealed(kind, extensions)
    at = Ethernet.SIZE + IPv6.SIZE + len(extensions)
    right = udp_checksum(IPv6(src=source, dst=destination), data[at:])
    assert checksum_of(data, extensions) == right
    assert status(data) == generated.GOOD
    wrong = data[: at + 6] + (right ^ 1).to_bytes(2, "big") + data[at + 8 :]
    assert status(wrong) == generated.BAD
    assert Editor([], checksum_mode=ChecksumMode.ALL).edit(wrong) == data


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
@pytest.mark.parametrize("sealing", [ChecksumMode.CHANGED, ChecksumMode.ALL])
def test_an_edit_leaves_the_checksum_good(
    case: tuple[int, bytes, bytes, bytes], sealing: ChecksumMode
) -> None:
    kind, extensions, *_ = case
    data = sealed(kind, extensions)
    for word in (SRC, DST):
        new = Editor([text.ips([word])], checksum_mode=sealing).edit(data)
        assert new != data
        assert status(new) == generated.GOOD
        assert not Dissector().dissect(new).bad_checks


@pytest.mark.parametrize("extension", UNKNOWN.values(), ids=list(UNKNOWN))
def test_without_the_final_address_there_is_no_verdict(extension: bytes) -> None:
    with pytest.raises(WireError, match="leaves the final destination unknown"):
        sealed(ROUTING, extension)
    ip = IPv6(payload_length=len(extension) + 8, next_header=ROUTING, src=SOURCE, dst=STOP)
    data = joined(ETHERNET, ip, extension, UDP(1, 2, 8, 0x1234))
    assert status(data) == generated.UNVERIFIED
    assert Editor([], checksum_mode=ChecksumMode.ALL).edit(data) == data


@pytest.mark.parametrize(
    ("route", "final"),
    [
        (bytes([131, 11, 4]) + bytes([10, 0, 0, 7, 10, 0, 0, 9]) + b"\0", bytes([10, 0, 0, 9])),
        (bytes([1, 137, 7, 4]) + bytes([10, 0, 0, 8]), bytes([10, 0, 0, 8])),
        (bytes([131, 11, 12]) + bytes([10, 0, 0, 7, 10, 0, 0, 9]) + b"\0", bytes([10, 0, 0, 2])),
        (bytes([0, 131, 7, 4]) + bytes([10, 0, 0, 8]), bytes([10, 0, 0, 2])),
        (bytes([7, 7, 4]) + bytes([10, 0, 0, 8]) + b"\0", bytes([10, 0, 0, 2])),
    ],
)
def test_a_source_route_of_ipv4_has_the_destination(route: bytes, final: bytes) -> None:
    """RFC 1122, 4.2.3.8. The pointer says how far the packet has come."""
    source, stop = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    ip = IPv4(ihl=5 + len(route) // 4, protocol=IPProtocol.UDP, src=source, dst=stop)
    headers = (ETHERNET.replace(type=EtherType.IPV4), ip, route, UDP(49152, ROCE_PORT, 0, 1))
    data = Frame(headers, PACKET).seal().build()
    datagram = data[Ethernet.SIZE + ip.ihl * 4 :]
    right = udp_checksum(IPv4(src=source, dst=final), datagram)
    assert int.from_bytes(datagram[6:8], "big") == right
    assert status(data) == generated.GOOD
    assert Fields(data).icrc_renewed(data) == data
    at = Ethernet.SIZE + ip.ihl * 4 + 6
    wrong = data[:at] + b"\x12\x34" + data[at + 2 :]
    assert Editor([], checksum_mode=ChecksumMode.ALL).edit(wrong) == data


def test_tcp_and_icmpv6_cover_the_ends_too() -> None:
    extension = routing(4, 1, LAST, FIRST, behind=IPProtocol.TCP)
    for protocol, body, at in (
        (IPProtocol.TCP, TCP(1, 2, data_offset=5).build() + b"text", 16),
        (IPProtocol.ICMPV6, bytes([136, 0, 0, 0]) + b"text", 2),
    ):
        start = int.from_bytes(SOURCE + LAST, "big") + protocol + len(body)
        right = internet_checksum(body, start).to_bytes(2, "big")
        whole = body[:at] + right + body[at + 2 :]
        header = bytes([protocol]) + extension[1:]
        length = len(header) + len(body)
        ip = IPv6(payload_length=length, next_header=ROUTING, src=SOURCE, dst=STOP)
        data = joined(ETHERNET, ip, header, whole)
        assert not Dissector().dissect(data).bad_checks
        for given_ in (data, joined(ETHERNET, ip, header, body)):
            assert Editor([], checksum_mode=ChecksumMode.ALL).edit(given_) == data


@given(st.binary(min_size=4, max_size=48))
def test_any_bytes_give_a_place_within_them(data: bytes) -> None:
    for found in (
        final_in_routing(data),
        home_in_options(data),
        final_in_source_route(data),
    ):
        assert found is None or (0 <= found.start <= found.stop <= len(data))
