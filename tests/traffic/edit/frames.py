"""Frames between two hosts, one to one with what a test is about."""

from rdmawire.traffic.edit import Editor
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.inet import ROCE_PORT, UDP, VLAN, Ethernet, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

A, B = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
A6, B6 = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")
MAC_A, MAC_B = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def packet(opcode: Opcode, *extended: Header, payload: bytes = b"", **bth: int) -> Packet:
    """A packet to queue pair 17."""
    return Packet.make(opcode, *extended, payload=payload, **{"destqp": 17, **bth})


def ip_headers(source: bytes, destination: bytes, checksum: int = 0) -> tuple[Header, ...]:
    """The headers before a BTH over IP; with a checksum of UDP, if it is not zero."""
    udp = UDP(49152, ROCE_PORT, checksum=checksum)
    if len(source) == 4:
        ip: Header = IPv4(protocol=IPProtocol.UDP, src=source, dst=destination)
        return Ethernet(MAC_B, MAC_A, EtherType.IPV4), ip, udp
    ip = IPv6(next_header=IPProtocol.UDP, src=source, dst=destination)
    return Ethernet(MAC_B, MAC_A, EtherType.IPV6), ip, udp


def tagged(*ids: int) -> tuple[Header, ...]:
    """The same over IPv4, with VLAN tags."""
    ethernet, ip, udp = ip_headers(A, B)
    types = [EtherType.VLAN] * (len(ids) - 1) + [EtherType.IPV4]
    tags = [VLAN(id=id_, type=type_) for id_, type_ in zip(ids, types, strict=True)]
    return ethernet.replace(type=EtherType.VLAN), *tags, ip, udp


def frame(what: Packet, source: bytes = A, destination: bytes = B) -> bytes:
    """A sealed frame with this packet."""
    return Frame(ip_headers(source, destination), what).seal().build()


def after(data: bytes, *rules: EditRule) -> Frame:
    """What a frame becomes; it is sealed."""
    new = roce.parse(Editor(rules).edit(data))
    assert new.seal() == new
    return new
