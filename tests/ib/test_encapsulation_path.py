"""Address handles become the headers of RoCEv2, and those a datagram's GRH. IBA A17.3, A17.4."""

import pytest

from rdmawire.ib.encapsulation import gids_of, grh_of, headers_to
from rdmawire.verbs.ah import AddressHandle, mapped
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import UDP, Ethernet, EtherType, IPv4, IPv6

MAC, PORT = b"\2\0\0\0\0\1", 0xC0DE
V4 = AddressHandle(b"\2abcde", mapped(b"\x0a\0\0\2"), mapped(b"\x0a\0\0\1"), 9, 0xB9, 5)
V6 = V4._replace(dgid=bytes(15) + b"\2", sgid=bytes(15) + b"\1")


def test_over_ipv4() -> None:
    ethernet, ip, udp = headers_to(V4, MAC, PORT)
    assert ethernet == Ethernet(V4.dmac, MAC, EtherType.IPV4)
    assert isinstance(ip, IPv4)
    assert (ip.src, ip.dst, ip.ttl) == (b"\x0a\0\0\1", b"\x0a\0\0\2", 9)
    assert (ip.dscp, ip.ecn, ip.df, ip.identification) == (0xB9 >> 2, 1, 1, 0)
    assert udp == UDP(srcport=PORT, dstport=4791)


def test_over_ipv6() -> None:
    ethernet, ip, udp = headers_to(V6, MAC, PORT)
    assert ethernet == Ethernet(V6.dmac, MAC, EtherType.IPV6)
    assert isinstance(ip, IPv6)
    assert (ip.src, ip.dst, ip.hop_limit, ip.flow) == (V6.sgid, V6.dgid, 9, 5)
    assert (ip.dscp, ip.ecn) == (0xB9 >> 2, 1)
    assert udp == UDP(srcport=PORT, dstport=4791)


@pytest.mark.parametrize("handle", [V4, V6], ids=["ipv4", "ipv6"])
def test_the_way_back_is_known(handle: AddressHandle) -> None:
    assert gids_of(headers_to(handle, MAC, PORT)) == (handle.sgid, handle.dgid)


def test_roce_has_its_gids_in_the_grh() -> None:
    grh = GRH(sgid=V6.sgid, dgid=V6.dgid)
    headers = (Ethernet(V6.dmac, MAC, EtherType.ROCE), grh)
    assert gids_of(headers) == (V6.sgid, V6.dgid)
    assert grh_of(headers) == grh.build()


def test_forty_bytes_for_every_network() -> None:
    v4, v6 = headers_to(V4, MAC, PORT), headers_to(V6, MAC, PORT)
    assert grh_of(v4) == bytes(20) + v4[1].build()
    assert grh_of(v6) == v6[1].build()
    assert grh_of(()) == bytes(40)
    assert gids_of(()) == (b"", b"")
