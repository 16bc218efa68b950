"""Frames with every opcode and syndrome of the IBA transport, in every carriage.

Fields are distinct and non-zero where the standard lets them be, so that a field read from the
wrong place shows. Everything follows from counting: the same frames come out every time.
"""

from collections.abc import Iterable, Iterator

from rdmawire.wire import ib
from rdmawire.wire.erf import ERF, ERFType
from rdmawire.wire.header import Header
from rdmawire.wire.icrc import vcrc
from rdmawire.wire.inet import (
    ARP,
    PFC,
    ROCE_PORT,
    SLL,
    SLL2,
    UDP,
    VLAN,
    VXLAN,
    VXLAN_PORT,
    Ethernet,
    Ethernet8023,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    IPv6Extension,
    MACControl,
    MACControlOpcode,
    Pause,
    ServiceVLAN,
)
from rdmawire.wire.layout import Piece
from rdmawire.wire.native import NativePacket
from rdmawire.wire.opcode import SHAPES, Opcode, Payload
from rdmawire.wire.packet import LAYOUTS, Packet
from rdmawire.wire.roce import Frame
from tools.make_captures import management

ALICE, BOB = bytes.fromhex("020000000a01"), bytes.fromhex("020000000b02")
ALICE4, BOB4 = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
ALICE6 = bytes.fromhex("20010db8000000000000000000000001")
BOB6 = bytes.fromhex("20010db8000000000000000000000002")

SAMPLES: dict[type[Header], Header] = {
    ib.RDETH: ib.RDETH(0, 0x0E0E0C),
    ib.DETH: ib.DETH(0x80010000, 0, 0x000D17),
    ib.XRCETH: ib.XRCETH(0, 0x0005A9),
    ib.RETH: ib.RETH(0x00007F8812345678, 0x00AB1201, 26),
    ib.AtomicETH: ib.AtomicETH(0x00007F8812345680, 0x00AB1202, 0x1122334455667788, 0x99AABBCC),
    ib.AETH: ib.AETH(0, ib.Ack.ACK, 13, 0x00ABC1),
    ib.AtomicAckETH: ib.AtomicAckETH(0x0123456789ABCDEF),
    ib.ImmDt: ib.ImmDt(0xDEADBEEF),
    ib.IETH: ib.IETH(0x00AB1203),
    ib.FETH: ib.FETH(0, ib.Selectivity.MEMORY_REGION, ib.Placement.BOTH),
    ib.CNP: ib.CNP(),
}
"""A header of each kind that can stand behind a BTH."""

_TEXT = b"the quick brown fox jumps over the lazy dog"


def packet(opcode: int, psn: int) -> Packet:
    """A packet of this opcode; the payload's length, and so the pad, varies with the PSN."""
    headers = [SAMPLES[table] for table in LAYOUTS[opcode].headers]
    lengths = {Payload.NONE: 0, Payload.EIGHT: 8, Payload.ANY: 13 + psn % 13}
    length = lengths[SHAPES[opcode].payload] if opcode in SHAPES else 24
    bth = {"se": psn % 2, "migreq": 1, "ackreq": psn // 2 % 2, "destqp": 0x00D100 + psn % 256}
    if opcode == Opcode.CNP:
        bth = {"becn": 1, "migreq": 1, "destqp": 0x00D100}
        psn = 0
    return Packet.make(opcode, *headers, payload=_TEXT[:length], pkey=0x8001, psn=psn, **bth)


def every_opcode() -> Iterator[Packet]:
    """One packet of every opcode of the standard, and two of vendors' opcodes."""
    for i, opcode in enumerate([*sorted(SHAPES), 0xC5, 0xFE]):
        yield packet(opcode, 0xFFFFD0 + i if i < 48 else i - 48)


def every_syndrome() -> Iterator[Packet]:
    """An acknowledge with every credit count, RNR timer and NAK code."""
    codes = {ib.Ack.ACK: range(32), ib.Ack.RNR_NAK: range(32), ib.Ack.NAK: range(len(ib.Nak))}
    for ack, values in codes.items():
        for value in values:
            yield Packet.make(
                Opcode.RC_ACKNOWLEDGE, ib.AETH(0, ack, value, 0x010203), destqp=0x51, psn=value
            )


def udp_port(sent: Packet) -> int:
    """A source port that follows from the queue pair, as RoCEv2 wants for its entropy."""
    return 0xC000 | (sent.bth.destqp * 31 & 0x3FFF)


def ethernet(ethertype: int) -> Ethernet:
    """The Ethernet header of all frames here."""
    return Ethernet(BOB, ALICE, ethertype)


def ipv4(sent: Packet, *, dscp: int = 26, ecn: int = 2, checksum: int = 0) -> tuple[Piece, ...]:
    """IPv4 and UDP for a packet."""
    ip = IPv4(
        dscp=dscp, ecn=ecn, df=1, identification=sent.bth.psn & 0xFFFF, ttl=63,
        protocol=IPProtocol.UDP, src=ALICE4, dst=BOB4,
    )  # fmt: skip
    return ip, UDP(udp_port(sent), ROCE_PORT, 0, checksum)


def ipv6(sent: Packet) -> tuple[Piece, ...]:
    """IPv6 and UDP for a packet, with a UDP checksum."""
    ip = IPv6(
        dscp=26, ecn=1, flow=0x1FACE, next_header=IPProtocol.UDP, hop_limit=62,
        src=ALICE6, dst=BOB6,
    )  # fmt: skip
    return ip, UDP(udp_port(sent), ROCE_PORT, 0, 1)


def grh() -> ib.GRH:
    """The GRH of RoCE, and of native packets that have one."""
    return ib.GRH(tclass=0x6A, flowlabel=0x54321, hoplmt=61, sgid=ALICE6, dgid=BOB6)


def roce_v2_ipv4() -> Iterator[bytes]:
    """Every opcode over IPv4, every other one with a UDP checksum."""
    for i, sent in enumerate(every_opcode()):
        headers = (ethernet(EtherType.IPV4), *ipv4(sent, checksum=i % 2))
        yield Frame(headers, sent).seal().build()


def roce_v2_ipv6() -> Iterator[bytes]:
    """Every opcode over IPv6."""
    for sent in every_opcode():
        yield Frame((ethernet(EtherType.IPV6), *ipv6(sent)), sent).seal().build()


def roce_v1() -> Iterator[bytes]:
    """Every opcode over EtherType 0x8915."""
    for sent in every_opcode():
        yield Frame((ethernet(EtherType.ROCE), grh()), sent).seal().build()


def native() -> Iterator[bytes]:
    """Every opcode on InfiniBand's own links, with and without a GRH."""
    for i, sent in enumerate(every_opcode()):
        lrh = ib.LRH(vl=3, sl=5, dlid=0x0B02, slid=0x0A01)
        yield NativePacket(lrh, grh() if i % 2 else None, sent).seal().build()


def syndromes() -> Iterator[bytes]:
    """Every syndrome, over IPv4."""
    for sent in every_syndrome():
        yield Frame((ethernet(EtherType.IPV4), *ipv4(sent)), sent).seal().build()


def congestion() -> Iterator[bytes]:
    """ECN codepoints on requests, FECN and BECN in the BTH, and a CNP."""
    for ecn in range(4):
        sent = packet(Opcode.RC_RDMA_WRITE_ONLY, 100 + ecn)
        marked = sent.replace(bth=sent.bth.replace(fecn=ecn == 3, becn=ecn == 2))
        yield Frame((ethernet(EtherType.IPV4), *ipv4(marked, ecn=ecn)), marked).seal().build()
    cnp = packet(Opcode.CNP, 0)
    yield Frame((ethernet(EtherType.IPV4), *ipv4(cnp, dscp=48, ecn=1)), cnp).seal().build()


def tagged() -> Iterator[bytes]:
    """VLAN, QinQ with both EtherTypes, and a priority tag."""
    sent = packet(Opcode.RC_SEND_ONLY, 7)
    inner = VLAN(3, 0, 100, EtherType.IPV4)
    for tags in (
        (Ethernet(BOB, ALICE, EtherType.VLAN), inner),
        (Ethernet(BOB, ALICE, EtherType.VLAN), VLAN(5, 1, 0, EtherType.IPV4)),
        (
            Ethernet(BOB, ALICE, EtherType.QINQ),
            ServiceVLAN(6, 1, 0xABC, EtherType.VLAN),
            VLAN(2, 1, 0x123, EtherType.IPV4),
        ),
        (Ethernet(BOB, ALICE, EtherType.VLAN), VLAN(1, 0, 200, EtherType.VLAN), inner),
    ):
        yield Frame((*tags, *ipv4(sent)), sent).seal().build()
    yield (
        Frame((Ethernet(BOB, ALICE, EtherType.VLAN), VLAN(4, 0, 9, EtherType.ROCE), grh()), sent)
        .seal()
        .build()
    )


def tunnelled() -> Iterator[bytes]:
    """RoCEv2 inside VXLAN, over IPv4 and over IPv6."""
    for outer in (ipv4, ipv6):
        for inner, ethertype in ((ipv4, EtherType.IPV4), (ipv6, EtherType.IPV6)):
            sent = packet(Opcode.RC_RDMA_READ_REQUEST, 9)
            ip, udp = outer(sent)
            assert isinstance(udp, UDP)
            outside = ethernet(EtherType.IPV4 if outer is ipv4 else EtherType.IPV6)
            tunnel = (outside, ip, udp.replace(dstport=VXLAN_PORT), VXLAN(vni_valid=1, vni=0x7654))
            yield (
                Frame((*tunnel, Ethernet(ALICE, BOB, ethertype), *inner(sent)), sent).seal().build()
            )


def erf(kind: ERFType, data: bytes, seconds: int) -> bytes:
    """A record of Endace's format around a packet."""
    before = bytes(2) if kind is ERFType.ETHERNET else b""
    header = ERF(
        ts=(seconds << 32).to_bytes(8, "little"),
        type=kind, vlen=1, rlen=ERF.SIZE + len(before + data), wlen=len(data),
    )  # fmt: skip
    return header.build() + before + data


def flow_control() -> Iterator[bytes]:
    """PAUSE and priority flow control, padded to the shortest frame."""
    to_all = Ethernet(bytes.fromhex("0180c2000001"), ALICE, EtherType.MAC_CONTROL).build()
    pause = MACControlOpcode(MACControl.PAUSE).build() + Pause(0x1234).build()
    pfc = MACControlOpcode(MACControl.PFC).build()
    times = {f"time{i}": 0x1000 * i + 1 for i in range(8)}
    for body in (pause, pfc + PFC(c3=1, c5=1, **times).build(), pfc + PFC(c3=1).build()):
        yield (to_all + body).ljust(60, b"\0")


def loopback() -> Iterator[bytes]:
    """BSD loopback, with the families of IPv4 and of three systems' IPv6."""
    ip4, ip6 = list(raw_ip())[:2]
    yield (2).to_bytes(4, "little") + ip4
    yield (2).to_bytes(4, "big") + ip4
    for family in (24, 28, 30):
        yield family.to_bytes(4, "little") + ip6


def link_packets() -> Iterator[bytes]:
    """InfiniBand's link packets with credits: normal, and of link initialisation."""
    for op in (0, 2):
        credit = ib.FlowControl(op, 0x123, 2, 0x456)
        yield credit.replace(lpcrc=vcrc(credit.build(), 0, 4)).build()


def raw_ip() -> Iterator[bytes]:
    """IPv4 and IPv6 without a link header; with IPv4 options, and with extension headers."""
    sent = packet(Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, 11)
    for network in (ipv4(sent), ipv6(sent)):
        yield Frame(network, sent).seal().build()
    ip, udp = ipv4(sent)
    assert isinstance(ip, IPv4)
    router_alert = bytes.fromhex("94040000")
    yield Frame((ip.replace(ihl=6), router_alert, udp), sent).seal().build()
    ip6, udp = ipv6(sent)
    assert isinstance(ip6, IPv6)
    hop_by_hop = IPv6Extension(IPProtocol.UDP, 0).build() + bytes.fromhex("050200000100")
    headers = (ip6.replace(next_header=IPProtocol.HOP_BY_HOP), hop_by_hop, udp)
    yield Frame(headers, sent).seal().build()


def cooked() -> Iterator[bytes]:
    """Linux cooked capture, version 1."""
    for datagram, ethertype in zip(raw_ip(), (EtherType.IPV4, EtherType.IPV6), strict=False):
        yield SLL(4, 1, 6, ALICE, b"\0\0", ethertype).build() + datagram


def cooked2() -> Iterator[bytes]:
    """Linux cooked capture, version 2."""
    for datagram, ethertype in zip(raw_ip(), (EtherType.IPV4, EtherType.IPV6), strict=False):
        yield SLL2(ethertype, 0, 3, 1, 4, 6, ALICE, b"\0\0").build() + datagram


def raw_packets() -> Iterator[bytes]:
    """Raw packets of InfiniBand links: an EtherType behind a raw header, and IPv6."""
    datagrams = list(raw_ip())
    for lnh, before, datagram in (
        (ib.LNH.RAW, ib.RWH(0, EtherType.IPV4).build(), datagrams[0]),
        (ib.LNH.IP_NON_IBA, b"", datagrams[1]),
    ):
        words = (ib.LRH.SIZE + len(before + datagram)) // 4
        lrh = ib.LRH(vl=1, lnh=lnh, dlid=0x0B02, pktlen=words, slid=0x0A01).build()
        data = lrh + before + datagram
        yield data + ib.VCRC(vcrc(data)).build()


def neighbours() -> Iterator[bytes]:
    """What stands beside RDMA on a wire: ARP, IEEE 802.3, UDP to another port from port 4791."""
    yield (
        ethernet(EtherType.ARP).build() + ARP(1, 0x0800, 6, 4, 2, ALICE, ALICE4, BOB, BOB4).build()
    ).ljust(60, b"\0")
    yield Ethernet8023(BOB, ALICE, 5).build() + bytes.fromhex("4242030000").ljust(46, b"\0")
    sent = packet(Opcode.RC_SEND_ONLY, 5)
    for port in (69, 53, 319, 4789):
        ip, udp = ipv4(sent)
        assert isinstance(udp, UDP)
        yield Frame((ethernet(EtherType.IPV4), ip, udp.replace(srcport=port)), sent).seal().build()


def datagrams(found: Iterable[management.Datagram]) -> Iterator[Packet]:
    """Management datagrams as packets of unreliable datagram service."""
    for psn, datagram in enumerate(found):
        deth = ib.DETH(datagram.qkey, 0, datagram.qp)
        yield Packet.make(
            Opcode.UD_SEND_ONLY, deth, payload=datagram.data, destqp=datagram.qp, psn=psn
        )


def management_roce() -> Iterator[bytes]:
    """Every management datagram in RoCEv2 over IPv4."""
    for sent in datagrams(management.packets()):
        yield Frame((ethernet(EtherType.IPV4), *ipv4(sent)), sent).seal().build()


def connection_codes() -> Iterator[bytes]:
    """Every status and reason of connection management."""
    for sent in datagrams(management.codes()):
        yield Frame((ethernet(EtherType.IPV4), *ipv4(sent)), sent).seal().build()


def management_native() -> Iterator[bytes]:
    """Every management datagram on InfiniBand's own links."""
    for sent in datagrams(management.packets()):
        lrh = ib.LRH(vl=15 if sent.bth.destqp == 0 else 0, dlid=0x0B02, slid=0x0A01)
        yield NativePacket(lrh, None, sent).seal().build()
