"""The summary of each header, and the line of a frame."""

import pytest

from rdmawire.dissect import generated
from rdmawire.dissect.dissection import (
    INFO,
    SUPPRESSED_BY,
    Dissection,
    Severity,
    Summary,
    summary,
)
from rdmawire.dissect.node import Check, Derived, Node
from rdmawire.wire import cm, ib, inet, mad, mpa, rdmap, rmpp, terminate
from rdmawire.wire.header import Header

SUMMARIES: list[tuple[Header, str]] = [
    (inet.VLAN(id=7), "vlan 7"),
    (inet.ServiceVLAN(id=9), "service vlan 9"),
    (inet.VXLAN(vni=77), "vni 77"),
    (
        inet.ARP(opcode=1, src_proto=b"\x0a\0\0\1", dst_proto=b"\x0a\0\0\2"),
        "who has 10.0.0.2? tell 10.0.0.1",
    ),
    (
        inet.ARP(opcode=2, src_proto=b"\x0a\0\0\1", src_hw=b"\x52\x54\0\0\0\1"),
        "10.0.0.1 is at 52:54:00:00:00:01",
    ),
    (inet.IPv4(ecn=3), "congestion experienced"),
    (inet.IPv4(ecn=2), ""),
    (inet.IPv6(ecn=3), "congestion experienced"),
    (inet.IPv6(ecn=1), ""),
    (inet.UDP(srcport=7, dstport=4791), "7 → 4791"),
    (inet.TCP(srcport=7, dstport=8), "7 → 8"),
    (inet.TCP(7, 8, syn=1, fin=1, rst=1, psh=1, ack=1, urg=1), "7 → 8 SYN FIN RST PSH ACK URG"),
    (inet.Pause(pause_time=5), "5 quanta"),
    (inet.PFC(), "priorities none"),
    (inet.PFC(c3=1, time3=9, c0=1, time1=8), "priorities 0: 0, 3: 9"),
    (ib.BTH(opcode=4, destqp=0x12, psn=7), "RC_SEND_ONLY qp 0x000012 psn 7"),
    (
        ib.BTH(opcode=0x64, se=1, ackreq=1, fecn=1, becn=1),
        "UD_SEND_ONLY qp 0x000000 psn 0 se ackreq fecn becn",
    ),
    (ib.BTH(opcode=0x1F), "RESERVED opcode 0x1f qp 0x000000 psn 0"),
    (ib.BTH(opcode=0xC7), "VENDOR opcode 0xc7 qp 0x000000 psn 0"),
    (ib.AETH(ack=0, value=31, msn=5), "ACK msn 5"),
    (ib.AETH(ack=1, value=14, msn=5), "RNR_NAK 1.28 ms msn 5"),
    (ib.AETH(ack=2, value=3, msn=5), "RESERVED value 0x03 msn 5"),
    (ib.AETH(ack=3, value=2, msn=5), "NAK REMOTE_ACCESS_ERROR msn 5"),
    (ib.AETH(ack=3, value=31, msn=5), "NAK value 0x1f msn 5"),
    (ib.RETH(va=0x10, rkey=0x20, dmalen=3), "va 0x10 rkey 0x00000020 dmalen 3"),
    (ib.AtomicETH(va=1, rkey=2, swapdt=3, cmpdt=4), "va 0x1 rkey 0x00000002 swap 0x3 if 0x4"),
    (ib.AtomicAckETH(origremdt=255), "was 0xff"),
    (ib.DETH(srcqp=1), "from qp 0x000001"),
    (ib.ImmDt(immdt=1), "immediate 0x00000001"),
    (ib.IETH(rkey=1), "invalidate 0x00000001"),
    (ib.XRCETH(xrcsrq=1), "srq 0x000001"),
    (ib.FETH(plt=1, sel=1), "GLOBAL_VISIBILITY of MEMORY_REGION"),
    (ib.FETH(plt=0, sel=3), "plt 0x00 of sel 0x03"),
    (ib.FlowControl(vl=1, fctbs=2, fccl=3), "vl 1 fctbs 2 fccl 3"),
    (mad.MAD(mgmt_class=3, method=1, attribute_id=0x35), "SUBN_ADM GET PATH_RECORD"),
    (
        mad.MAD(mgmt_class=3, method=0x81, attribute_id=0x35, status=0x100),
        "SUBN_ADM GET_RESP PATH_RECORD no resources",
    ),
    (mad.MAD(mgmt_class=7, method=3, attribute_id=0x10), "CM REQ"),
    (
        mad.MAD(mgmt_class=0x55, method=0x55, attribute_id=0x5555),
        "mgmt_class 0x55 method 0x55 attribute_id 0x5555",
    ),
    (
        mad.DirectedMAD(mgmt_class=0x81, method=1, attribute_id=0x11),
        "SUBN_DIRECTED_ROUTE GET NODE_INFO",
    ),
    (rmpp.RMPP(active=0, type=1, data1=3), ""),
    (rmpp.RMPP(active=1, type=1, data1=3, first=1, last=1), "RMPP DATA segment 3 first last"),
    (rmpp.RMPP(active=1, type=2, data1=3), "RMPP ACK segment 3"),
    (
        cm.REQ(service_prefix=1, service_protocol=6, service_port=7174, local_qpn=2),
        "service 0x0000000001061c06 local qp 0x000002 starting psn 0",
    ),
    (cm.REP(local_qpn=2, starting_psn=3), "local qp 0x000002 starting psn 3"),
    (cm.REJ(reason=28), "CONSUMER_REJECT"),
    (cm.REJ(reason=0x7777), "reason 0x7777"),
    (cm.DREQ(remote_qpn_eecn=5), "remote qp 0x000005"),
    (cm.SIDRREQ(service_id=1), "service 0x0000000000000001"),
    (cm.SIDRREP(status=0, qpn=5), "SUCCESS qp 0x000005"),
    (mpa.MPARequest(rev=1), "MPA request revision 1"),
    (
        mpa.MPARequest(m=1, c=1, r=1, s=1, rev=2),
        "MPA request revision 2 markers crc rejected enhanced",
    ),
    (mpa.MPAReply(rev=2, s=1), "MPA reply revision 2 enhanced"),
    (rdmap.RDMAPControl(opcode=0), "RDMA_WRITE"),
    (rdmap.RDMAPControl(opcode=15), "RESERVED opcode 0xf"),
    (rdmap.RDMAPControlReserved(opcode=3), "SEND"),
    (
        rdmap.RDMAPControlInvalidate(opcode=4, invalidate_stag=1),
        "SEND_WITH_INVALIDATE stag 0x00000001",
    ),
    (rdmap.TaggedHeader(stag=1, to=2), "stag 0x00000001 offset 0x2"),
    (rdmap.UntaggedHeader(msn=3), "msn 3"),
    (rdmap.UntaggedHeader(msn=3, mo=4), "msn 3 mo 4"),
    (
        rdmap.ReadRequestHeader(1, 2, 3, 4, 5),
        "3 bytes from stag 0x00000004 offset 0x5 into stag 0x00000001 offset 0x2",
    ),
    (rdmap.ImmediateData(b"abcdefgh"), "immediate 0x6162636465666768"),
    (
        rdmap.AtomicRequestHeader(aopcode=2, remote_stag=1, remote_to=2),
        "CMP_SWAP stag 0x00000001 offset 0x2",
    ),
    (rdmap.AtomicRequestHeader(aopcode=9), "aopcode 0x09 stag 0x00000000 offset 0x0"),
    (rdmap.AtomicResponseHeader(original_remote_data=255), "was 0xff"),
    (
        terminate.TerminateControl(layer=0, etype=1, error_code=2),
        "RDMA REMOTE_PROTECTION_ERROR ACCESS_RIGHTS_VIOLATION",
    ),
    (
        terminate.TerminateControl(layer=15, etype=5, error_code=0xA5),
        "layer 0x0f etype 0x05 error_code 0xa5",
    ),
]


def dissection(*headers: Header, others: tuple[Node, ...] = (), length: int = 0) -> Dissection:
    found = Dissection(3, b"", length, 2_500_000_000)
    found.first_ns = 1_000_000_000
    found.nodes += [Node(type(h).label, 0, h.build(), h) for h in headers]
    found.nodes += others
    return found


@pytest.mark.parametrize(("header", "text"), SUMMARIES, ids=lambda value: type(value).__name__)
def test_each_header_has_its_summary(header: Header, text: str) -> None:
    assert INFO[type(header)](header, {}) == text
    assert summary(dissection(header)).info == text


def test_every_header_with_a_summary_is_tested() -> None:
    assert {type(header) for header, _ in SUMMARIES} == INFO.keys()


ATOMIC = ib.AtomicETH(va=1, rkey=2, swapdt=3, cmpdt=4)


@pytest.mark.parametrize(
    ("opcode", "text"), [(0x14, "add 0x3"), (0xB4, "add 0x3"), (0x13, "swap 0x3 if 0x4")]
)
def test_the_opcode_tells_what_an_atomic_does(opcode: int, text: str) -> None:
    bth = ib.BTH(opcode=opcode)
    assert INFO[ib.AtomicETH](ATOMIC, {ib.BTH: bth}).endswith(f"rkey 0x00000002 {text}")


UDP, TCP, IP = inet.UDP(1, 2), inet.TCP(1, 2), inet.IPv4(src=b"abcd", dst=b"efgh")


@pytest.mark.parametrize(
    ("headers", "info"),
    [
        ((IP, UDP), "1 → 2"),
        ((IP, UDP, ib.BTH(4)), "RC_SEND_ONLY qp 0x000000 psn 0"),
        ((IP, TCP, mpa.MPARequest()), "MPA request revision 1"),
        ((IP, TCP, mpa.FPDULength(), rdmap.UntaggedHeader(msn=1)), "msn 1"),
        ((ib.BTH(0x64), ib.DETH(srcqp=1)), "UD_SEND_ONLY qp 0x000000 psn 0, from qp 0x000001"),
        (
            (ib.BTH(0x64), ib.DETH(), mad.MAD(mgmt_class=7, attribute_id=0x10)),
            "UD_SEND_ONLY qp 0x000000 psn 0, CM REQ",
        ),
    ],
)
def test_some_headers_hide_others_in_the_summary(headers: tuple[Header, ...], info: str) -> None:
    assert summary(dissection(*headers)).info == info


def test_every_hidden_summary_has_a_header_that_hides_it() -> None:
    assert SUPPRESSED_BY.keys() <= INFO.keys()


def data(name: str, length: int) -> Node:
    return Node(name, 0, bytes(length))


def noted(field: Derived, text: str) -> Node:
    found = data("note", 0)
    found.add(field, text)
    return found


@pytest.mark.parametrize(
    ("nodes", "length", "info"),
    [
        ([data("payload", 1)], 0, "1 byte"),
        ([data("payload", 5)], 9, "5 bytes captured"),
        ([data("segment", 5)], 9, "5 bytes of a longer FPDU"),
        ([data("trailer", 5)], 0, ""),
        ([noted(generated.CUT, "cut")], 9, "[cut]"),
        ([noted(generated.MPA_NOTE, "lost")], 0, "[lost]"),
        ([noted(generated.TERMINATE_NOTE, "mirrored")], 0, "[mirrored]"),
        (
            [data("payload", 2), Node("malformed", 14, b"", reason="too short")],
            0,
            "2 bytes, [malformed: too short (at byte 14)]",
        ),
    ],
)
def test_what_follows_the_headers_is_in_the_summary(
    nodes: list[Node], length: int, info: str
) -> None:
    assert summary(dissection(others=tuple(nodes), length=length)).info == info


def test_each_fpdu_is_a_part_of_its_own() -> None:
    one, other = rdmap.UntaggedHeader(msn=1), rdmap.UntaggedHeader(msn=2)
    length = mpa.FPDULength()
    found = summary(dissection(IP, TCP, length, one, length, other))
    assert (found.protocol, found.info) == ("iWARP", "msn 1 | msn 2")


def test_bad_checksums_are_in_the_summary() -> None:
    found = dissection(ib.BTH(4))
    found.checks += [Check("ICRC", 1, 2, 8), Check("VCRC", 1, 1, 4)]
    assert summary(found).info.endswith(", [ICRC bad: found 0x00000001, expected 0x00000002]")
    assert summary(found).severity is Severity.ERROR


ETHERNET = inet.Ethernet(dst=b"\x52\x54\0\0\0\1", src=b"\x52\x54\0\0\0\2")
GRH = ib.GRH(sgid=bytes(15) + b"\1", dgid=bytes(15) + b"\2")
IPV6 = inet.IPv6(src=bytes(15) + b"\3", dst=bytes(15) + b"\4")
BTH = ib.BTH(4)


@pytest.mark.parametrize(
    ("headers", "ends", "protocol"),
    [
        ((), ("", ""), ""),
        ((ETHERNET,), ("52:54:00:00:00:02", "52:54:00:00:00:01"), "Ethernet"),
        ((inet.Ethernet8023(),), ("00:00:00:00:00:00",) * 2, "802.3"),
        ((ETHERNET, inet.ARP()), ("52:54:00:00:00:02", "52:54:00:00:00:01"), "ARP"),
        ((ETHERNET, inet.Pause()), ("52:54:00:00:00:02", "52:54:00:00:00:01"), "PAUSE"),
        ((ETHERNET, inet.PFC()), ("52:54:00:00:00:02", "52:54:00:00:00:01"), "PFC"),
        ((ETHERNET, IP), ("97.98.99.100", "101.102.103.104"), "IPv4"),
        ((ETHERNET, IPV6), ("::3", "::4"), "IPv6"),
        ((ETHERNET, IP, UDP), ("97.98.99.100", "101.102.103.104"), "UDP"),
        ((ETHERNET, IP, TCP), ("97.98.99.100", "101.102.103.104"), "TCP"),
        ((ETHERNET, IP, TCP, mpa.MPAReply()), ("97.98.99.100", "101.102.103.104"), "MPA"),
        ((ETHERNET, IP, UDP, BTH), ("97.98.99.100", "101.102.103.104"), "RoCEv2"),
        ((ETHERNET, IPV6, UDP, ETHERNET, IP, UDP), ("97.98.99.100", "101.102.103.104"), "UDP"),
        ((ETHERNET, GRH, BTH), ("::1", "::2"), "RoCE"),
        ((ib.LRH(slid=1, dlid=2), BTH), ("lid 1", "lid 2"), "IB"),
        ((ib.LRH(), GRH, BTH), ("::1", "::2"), "IB"),
        ((ib.FlowControl(),), ("", ""), "IB link"),
    ],
)
def test_a_line_names_the_ends_and_the_protocol(
    headers: tuple[Header, ...], ends: tuple[str, str], protocol: str
) -> None:
    found = summary(dissection(*headers))
    assert ((found.source, found.destination), found.protocol) == (ends, protocol)


@pytest.mark.parametrize(
    ("headers", "severity"),
    [
        ((), Severity.NONE),
        ((IP, TCP), Severity.NONE),
        ((BTH,), Severity.CHAT),
        ((mpa.FPDULength(),), Severity.CHAT),
        ((mpa.MPARequest(),), Severity.CHAT),
        ((mpa.MPAReply(),), Severity.CHAT),
        ((BTH, ib.AETH(ack=0)), Severity.CHAT),
        ((BTH, ib.AETH(ack=1)), Severity.WARN),
        ((BTH, ib.AETH(ack=3)), Severity.WARN),
        ((ib.BTH(4, fecn=1),), Severity.WARN),
        ((ib.BTH(4, becn=1),), Severity.WARN),
        ((inet.IPv4(ecn=3),), Severity.WARN),
        ((inet.IPv6(ecn=3),), Severity.WARN),
        ((inet.IPv4(ecn=1),), Severity.NONE),
        ((mad.MAD(status=1),), Severity.WARN),
        ((mad.DirectedMAD(status=1),), Severity.WARN),
        ((BTH, mad.MAD()), Severity.CHAT),
        ((BTH, ib.CNP()), Severity.WARN),
        ((BTH, cm.REJ()), Severity.WARN),
        ((mpa.FPDULength(), terminate.TerminateControl()), Severity.WARN),
    ],
)
def test_a_line_has_a_severity(headers: tuple[Header, ...], severity: Severity) -> None:
    assert summary(dissection(*headers)).severity is severity


def test_a_malformed_frame_is_bad_whatever_else_it_is() -> None:
    broken = Node("malformed", 0, b"", reason="too short")
    assert summary(dissection(BTH, others=(broken,))).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("::1", "     3   1.500000000 ::1 → ::2                    UDP      7 → 8"),
        ("", "     3   1.500000000                              UDP      7 → 8"),
    ],
)
def test_a_line_has_columns(source: str, line: str) -> None:
    parts = Summary(3, "1.500000000", source, "::2", "UDP", "7 → 8", Severity.NONE)
    assert parts.line() == line
