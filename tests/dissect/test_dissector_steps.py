"""Steps of links and of the Internet protocols: what follows what, and what is refused."""

import pytest

from rdmawire.capture.record import LinkType
from rdmawire.decode import LINK_TYPES, PROTOCOLS, TABLES, By
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Check
from rdmawire.wire import ib, inet
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.erf import ERF, ERFEthernetPad, ERFExtension
from rdmawire.wire.header import Header
from rdmawire.wire.icrc import vcrc


def dissect(*pieces: Header | bytes, link_type: int = 1, length: int | None = None) -> Dissection:
    data = b"".join(p if isinstance(p, bytes) else p.build() for p in pieces)
    return Dissector().dissect(data, link_type=link_type, length=length)


def names(found: Dissection) -> list[str]:
    return [node.name for node in found.nodes]


def ip4(protocol: int, length: int = 0, **rows: int) -> inet.IPv4:
    ip = inet.IPv4(protocol=protocol, total_length=20 + length).replace(**rows)
    return ip.replace(checksum=ipv4_header_checksum(ip.replace(checksum=0).build()))


def ip6(next_header: int, length: int = 0) -> inet.IPv6:
    return inet.IPv6(next_header=next_header, payload_length=length)


ETHER4, ETHER6 = inet.Ethernet(type=0x0800), inet.Ethernet(type=0x86DD)
OTHER = ip4(200)
"""An IPv4 header of a protocol without a step."""
AUTHENTICATION = 51
EXTENSIONS = (0, 43, 60)
UDP = inet.UDP(srcport=7, dstport=9, length=8)


def test_every_selector_but_data_has_a_table() -> None:
    selectors = {value for name, value in vars(By).items() if name.isupper()}
    assert TABLES.keys() == selectors - {By.DATA}
    assert len(PROTOCOLS) == sum(map(len, TABLES.values()))


def test_link_types_are_those_with_a_name() -> None:
    assert set(LinkType) >= LINK_TYPES


@pytest.mark.parametrize(
    ("link_type", "pieces", "expected"),
    [
        (LinkType.ETHERNET, [inet.Ethernet(type=0x1234), b"x"], ["eth", "payload"]),
        (LinkType.ETHERNET, [inet.Ethernet(type=0x1234)], ["eth"]),
        (LinkType.ETHERNET, [ETHER4, OTHER], ["eth", "ip"]),
        (LinkType.ETHERNET, [ETHER6, ip6(59)], ["eth", "ipv6"]),
        *(
            (
                LinkType.ETHERNET,
                [inet.Ethernet(type=tag), inet.VLAN(type=0x8100), inet.VLAN(type=0x0800), OTHER],
                ["eth", name, "vlan", "ip"],
            )
            for tag, name in ((0x8100, "vlan"), (0x9100, "vlan"), (0x88A8, "svlan"))
        ),
        (LinkType.LINUX_SLL, [inet.SLL(type=0x0800), OTHER], ["sll", "ip"]),
        (LinkType.LINUX_SLL2, [inet.SLL2(type=0x86DD), ip6(59)], ["sll2", "ipv6"]),
        *(
            (kind, [first], [name])
            for kind in (LinkType.RAW, LinkType.RAW_BSD, LinkType.RAW_OPENBSD)
            for first, name in ((OTHER, "ip"), (ip6(59), "ipv6"))
        ),
        (LinkType.IPV4, [OTHER], ["ip"]),
        (LinkType.IPV6, [ip6(59)], ["ipv6"]),
        *(
            (LinkType.NULL, [inet.Loopback(number.to_bytes(4, order)), first], ["loopback", name])
            for order in ("little", "big")
            for first, name, numbers in ((OTHER, "ip", [2]), (ip6(59), "ipv6", [10, 24, 28, 30]))
            for number in numbers
        ),
    ],
)  # fmt: skip
def test_a_link_leads_to_what_it_carries(
    link_type: int, pieces: list[Header | bytes], expected: list[str]
) -> None:
    found = dissect(*pieces, link_type=link_type)
    assert found.malformed is None
    assert names(found) == expected


ARP = inet.ARP(hw_type=1, proto_type=0x0800, hw_size=6, proto_size=4)
PAUSE = inet.Ethernet(type=0x8808)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([inet.Ethernet(type=0x0806), ARP, bytes(18)], ["eth", "arp", "trailer"]),
        ([inet.Ethernet(type=0x0806), ARP], ["eth", "arp"]),
        ([inet.Ethernet(type=0x0806), ARP.replace(hw_type=6)], ["eth", "payload"]),
        ([PAUSE, inet.MACControlOpcode(1), inet.Pause(), bytes(42)], ["pause", "trailer"]),
        ([PAUSE, inet.MACControlOpcode(0x101), inet.PFC(), bytes(26)], ["pfc", "trailer"]),
        ([PAUSE, inet.MACControlOpcode(7), bytes(44)], ["payload"]),
        ([inet.Ethernet8023(length=3), b"abcde"], ["payload", "trailer"]),
    ],
)
def test_frames_of_a_fixed_length_have_trailers(
    pieces: list[Header | bytes], expected: list[str]
) -> None:
    found = dissect(*pieces)
    assert found.malformed is None
    assert names(found)[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("link_type", "pieces", "reason", "offset"),
    [
        (1, [b"short"], "Ethernet takes 14 bytes, 5 are left", 0),
        (1, [ETHER4, b"short"], "IPv4 takes 20 bytes, 5 are left", 14),
        (1, [ETHER4, ip4(17, version=6)], "IPv4.version 6 and ihl 5: 4 and at least 5", 14),
        (1, [ETHER4, ip4(17, ihl=4)], "IPv4.version 4 and ihl 4: 4 and at least 5", 14),
        (1, [ETHER4, ip4(17, 5)], "IPv4.total_length says that 5 bytes follow, 0 are there", 34),
        (1, [ETHER4, ip4(17, -1)], "IPv4.total_length says that -1 bytes follow, 0 are", 34),
        (1, [ETHER6, ip6(17, 9)], "IPv6.payload_length says that 9 bytes follow, 0 are", 54),
        (1, [ETHER6, ip6(17).replace(version=4)], "IPv6.version 4: 6", 14),
        (
            1,
            [ETHER4, ip4(17, ihl=15, total_length=0), b"ab"],
            "IPv4 options takes 40 bytes, 2 are left",
            34,
        ),
        (
            1,
            [ETHER6, ip6(0), inet.IPv6Extension(next_header=59, length=1), bytes(6)],
            "IPv6 extension takes 14 bytes, 6 are left",
            56,
        ),
        (1, [ETHER4, ip4(6, 20), inet.TCP(data_offset=4)], "TCP.data_offset 4: at least 5", 34),
        (1, [ETHER4, ip4(6, 20), inet.TCP(data_offset=6)], "TCP options takes 4 bytes, 0 are", 54),
        (
            1,
            [ETHER4, ip4(17, 22), UDP.replace(dstport=4791, length=22), ib.BTH(4), b"\0\0"],
            "no room for the ICRC: 2 bytes follow the BTH",
            54,
        ),
        (1, [inet.Ethernet8023(length=9), b"ab"], "IEEE 802.3 length says that 9 bytes", 14),
        (101, [b""], "the version of IP takes 1 byte, 0 are left", 0),
        (101, [b"\x50"], "IP version 5: neither 4 nor 6", 0),
        (0, [b"\0\0\0\x07"], "Loopback.family 7: 2 for IPv4, or 10, 24, 28, 30 for IPv6", 4),
        (147, [b"any"], "link type 147 is not known", 0),
    ],
)
def test_what_does_not_parse_has_a_reason_and_an_offset(
    link_type: int, pieces: list[Header | bytes], reason: str, offset: int
) -> None:
    malformed = dissect(*pieces, link_type=link_type).malformed
    assert malformed is not None
    assert malformed.reason.startswith(reason)
    assert malformed.offset == offset


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([ETHER4, ip4(17, 8), UDP], ["eth", "ip", "udp"]),
        ([ETHER4, ip4(17, 8), UDP, b"padding"], ["eth", "ip", "udp", "trailer"]),
        ([ETHER4, ip4(17, 8, mf=1), UDP], ["eth", "ip", "payload"]),
        ([ETHER4, ip4(17, 8, fragment_offset=1), UDP], ["eth", "ip", "payload"]),
        ([ETHER4, ip4(17, 12, ihl=6), bytes(4), UDP], ["eth", "ip", "ip options", "udp"]),
        ([ETHER4, ip4(17, 8, total_length=0), UDP], ["eth", "ip", "udp"]),
        ([ETHER6, ip6(17, 8), UDP], ["eth", "ipv6", "udp"]),
        ([ETHER6, ip6(17), UDP.replace(length=0), b"x"], ["eth", "ipv6", "udp", "payload"]),
        (
            [ETHER6, ip6(44, 16), inet.IPv6Fragment(next_header=17), UDP],
            ["eth", "ipv6", "ipv6frag", "udp"],
        ),
        *(
            (
                [ETHER6, ip6(44, 16), inet.IPv6Fragment(next_header=17).replace(**rows), UDP],
                ["eth", "ipv6", "ipv6frag", "payload"],
            )
            for rows in ({"more": 1}, {"offset": 1})
        ),
        *(
            (
                [ETHER6, ip6(kind, 16), inet.IPv6Extension(next_header=17), bytes(6), UDP],
                ["eth", "ipv6", "ipv6ext", "ipv6 options", "udp"],
            )
            for kind in EXTENSIONS
        ),
        ([ETHER6, ip6(AUTHENTICATION, 8), bytes(8)], ["eth", "ipv6", "payload"]),
        (
            [
                *(ETHER4, ip4(17, 50), UDP.replace(dstport=4789, length=50), inet.VXLAN()),
                *(ETHER4, OTHER),
            ],
            ["eth", "ip", "udp", "vxlan", "eth", "ip"],
        ),
    ],
)
def test_the_internet_protocols_lead_on(pieces: list[Header | bytes], expected: list[str]) -> None:
    found = dissect(*pieces)
    assert found.malformed is None
    assert names(found) == expected


def udp_check(checksum: int) -> Check:
    found = dissect(ETHER4, ip4(17, 8), UDP.replace(checksum=checksum))
    (check,) = (check for check in found.checks if check.name == "UDP checksum")
    return check


def test_a_udp_checksum_is_judged() -> None:
    bad = udp_check(1)
    assert not bad.good
    assert udp_check(bad.expected).good


@pytest.mark.parametrize(
    ("pieces", "status"),
    [([ETHER4, ip4(17, 8)], generated.NOT_PRESENT), ([ETHER6, ip6(17, 8)], generated.ILLEGAL)],
)
def test_a_udp_checksum_may_be_left_out(pieces: list[Header | bytes], status: int) -> None:
    found = dissect(*pieces, UDP)
    assert found.nodes[-1].extra(generated.UDP_CHECKSUM_STATUS) == status
    assert [check.name for check in found.checks if "UDP" in check.name] == []


CREDITS = ib.FlowControl(vl=1)
ERF_LINK, ERF_ETHERNET = 25, 2


def record(kind: int, length: int, more: int = 0, extensions: int = 0) -> ERF:
    """An ERF record of a frame of so many bytes, 1.5 seconds after the epoch."""
    time = (3 << 31).to_bytes(8, "little")
    return ERF(time, more, kind, cap=2, rlen=16 + 8 * extensions + length, wlen=length)


@pytest.mark.parametrize(
    ("pieces", "expected", "lead"),
    [
        ([record(ERF_LINK, 6), CREDITS], ["erf", "flowcontrol"], 16),
        ([record(ERF_LINK, 6), CREDITS, b"fill"], ["erf", "flowcontrol", "trailer"], 16),
        (
            [record(ERF_LINK, 6, 1, 2), ERFExtension(more=1), ERFExtension(), CREDITS],
            ["erf", "erfextension", "erfextension", "flowcontrol"],
            32,
        ),
        (
            [record(ERF_ETHERNET, 34), ERFEthernetPad(), ETHER4, OTHER],
            ["erf", "erfethernetpad", "eth", "ip"],
            18,
        ),
        ([record(99, 3), b"abc"], ["erf", "payload"], 16),
    ],
)
def test_erf_has_a_lead_and_its_own_time(
    pieces: list[Header | bytes], expected: list[str], lead: int
) -> None:
    found = dissect(*pieces, link_type=LinkType.ERF)
    assert found.malformed is None
    assert names(found) == expected
    assert (found.lead, found.interface, found.time_ns) == (lead, 2, 1_500_000_000)


def test_a_link_packet_has_a_crc_of_its_own() -> None:
    right = vcrc(CREDITS.build(), 0, CREDITS.SIZE - 2)
    for lpcrc, good in ((right, True), (right ^ 1, False)):
        found = dissect(record(ERF_LINK, 6), CREDITS.replace(lpcrc=lpcrc), link_type=LinkType.ERF)
        assert [check.good for check in found.checks] == [good]


LRH = ib.LRH(lnh=ib.LNH.RAW, pktlen=3)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([LRH, ib.RWH(etype=0x1234), b"\0\0"], ["lrh", "rwh", "vcrc"]),
        ([LRH, ib.RWH(etype=0x1234)], ["lrh", "rwh"]),
        ([LRH, ib.RWH(etype=0x1234), b"\0\0more"], ["lrh", "rwh", "vcrc", "trailer"]),
        (
            [LRH.replace(lnh=ib.LNH.IP_NON_IBA, pktlen=12), ip6(59), b"\0\0"],
            ["lrh", "ipv6", "vcrc"],
        ),
        (
            [LRH.replace(lnh=ib.LNH.IBA_GLOBAL, pktlen=12), ib.GRH(nxthdr=59), b"\0\0"],
            ["lrh", "grh", "vcrc"],
        ),
    ],
)
def test_a_local_route_leads_on_and_a_vcrc_may_follow(
    pieces: list[Header | bytes], expected: list[str]
) -> None:
    found = dissect(*pieces, link_type=LinkType.INFINIBAND)
    assert found.malformed is None
    assert names(found) == expected
    assert (len(found.checks), found.unverified) == (
        (1, []) if "vcrc" in expected else (0, ["VCRC"])
    )
