"""How long heads are, against where the BTH of a parsed frame stands."""

from collections.abc import Sequence

import pytest

from rdmawire.fabric.host import Host
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.tx_template import HEAD_SIZES, head_size, word_offset
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import VLAN, Ethernet, EtherType, IPv4
from rdmawire.wire.layout import Piece
from rdmawire.wire.native import IBA_TRANSPORT
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame


def _headers(*, ipv6: bool = False) -> list[Header]:
    one, other = Host(1, ipv6=ipv6), Host(2, ipv6=ipv6)
    return list(headers_to(one.path_to(other), one.mac, 0xC000))


def _tagged(kind: int) -> list[Piece]:
    ethernet, *others = _headers()
    return [ethernet.replace(type=kind), VLAN(0, 0, 5, EtherType.IPV4), *others]


def _global() -> list[Piece]:
    ethernet = _headers()[0]
    return [ethernet.replace(type=EtherType.ROCE), GRH(nxthdr=IBA_TRANSPORT)]


def _with_options() -> list[Piece]:
    ethernet, ip, udp = _headers()
    assert isinstance(ip, IPv4)
    return [ethernet, ip.replace(ihl=6), b"\1\1\1\0", udp]


def _bytes(headers: list[Piece]) -> bytes:
    packet = Packet.make(Opcode.UC_SEND_ONLY, payload=b"8 octets", psn=100)
    return Frame(tuple(headers), packet).seal().build()


USUAL: dict[str, Sequence[Piece]] = {
    "IPv4": _headers(),
    "IPv6": _headers(ipv6=True),
    "GRH": _global(),
    "one tag": _tagged(EtherType.VLAN),
}


@pytest.mark.parametrize("name", USUAL)
def test_a_head_of_the_usual_build_ends_at_the_word(name: str) -> None:
    frame = _bytes([*USUAL[name]])
    assert head_size(frame) == word_offset(roce.parse(frame).headers)
    assert frame[head_size(frame) + 1 :][:3] == bytes((0, 0, 100))


def test_options_stand_between_and_the_head_ends_elsewhere() -> None:
    frame = _bytes(_with_options())
    assert head_size(frame) == HEAD_SIZES[frame[12:14]]
    assert word_offset(roce.parse(frame).headers) == head_size(frame) + 4


@pytest.mark.parametrize("kind", [EtherType.QINQ, EtherType.ARP])
def test_the_length_of_other_ethertypes_is_unknown(kind: int) -> None:
    ethernet = _headers()[0]
    assert isinstance(ethernet, Ethernet)
    assert head_size(ethernet.replace(type=kind).build() + bytes(60)) == 0
