"""A dissection in one line: who, to whom, what, and what is wrong with it."""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from rdmawire.analysis.derived import CUT
from rdmawire.analysis.frame import seconds
from rdmawire.analysis.node import Dissection
from rdmawire.wire import ib, inet
from rdmawire.wire.header import Header
from rdmawire.wire.opcode import opcode_word
from rdmawire.wire.show import ipv4, ipv6, mac


class Mood(Enum):
    """How much a frame wants to be looked at."""

    PLAIN = "plain"
    RDMA = "rdma"
    TROUBLE = "trouble"
    BAD = "bad"


class Summary(NamedTuple):
    """The parts of a frame's line. ``time`` is seconds since the first frame, as text."""

    number: int
    time: str
    source: str
    destination: str
    protocol: str
    info: str
    mood: Mood

    def line(self) -> str:
        """The parts in columns."""
        way = f"{self.source} → {self.destination}" if self.source else ""
        return f"{self.number:>6} {self.time:>13} {way:<28} {self.protocol:<8} {self.info}"


def _bth(bth: ib.BTH) -> str:
    marks = [name for name in ("se", "ackreq", "fecn", "becn") if getattr(bth, name)]
    words = [opcode_word(bth.opcode), f"qp 0x{bth.destqp:06x}", f"psn {bth.psn}", *marks]
    return " ".join(words)


def _aeth(aeth: ib.AETH) -> str:
    word = type(aeth).rows[2].meaning_in(aeth).word(aeth.value)
    said = "" if aeth.ack == ib.Ack.ACK else f" {word}"
    return f"{ib.Ack(aeth.ack).name}{said} msn {aeth.msn}"


_SAYINGS: dict[type[Header], Callable[[Any], str]] = {
    ib.BTH: _bth,
    ib.AETH: _aeth,
    ib.RETH: lambda h: f"va 0x{h.va:x} rkey 0x{h.rkey:08x} dmalen {h.dmalen}",
    ib.AtomicETH: lambda h: (
        f"va 0x{h.va:x} rkey 0x{h.rkey:08x} swap 0x{h.swapdt:x} compare 0x{h.cmpdt:x}"
    ),
    ib.AtomicAckETH: lambda h: f"was 0x{h.origremdt:x}",
    ib.DETH: lambda h: f"from qp 0x{h.srcqp:06x}",
    ib.ImmDt: lambda h: f"immediate 0x{h.immdt:08x}",
    ib.IETH: lambda h: f"invalidate 0x{h.rkey:08x}",
    ib.XRCETH: lambda h: f"srq 0x{h.xrcsrq:06x}",
    ib.FlowControl: lambda h: f"vl {h.vl} fctbs {h.fctbs} fccl {h.fccl}",
    inet.ARP: lambda h: (
        f"who has {ipv4(h.dst_proto)}? tell {ipv4(h.src_proto)}"
        if h.opcode == 1
        else f"{ipv4(h.src_proto)} is at {mac(h.src_hw)}"
    ),
    inet.UDP: lambda h: f"{h.srcport} → {h.dstport}",
    inet.TCP: lambda h: f"{h.srcport} → {h.dstport}{_flags(h)}",
    inet.Pause: lambda h: f"{h.pause_time} quanta",
    inet.PFC: lambda h: "priorities " + _priorities(h),
}
"""What each header has to say in its frame's line."""

_SILENT_BEFORE_BTH = (inet.UDP,)
"""Headers that say nothing of interest once a BTH follows them."""

_PROTOCOLS: dict[type[Header], str] = {
    inet.Ethernet: "Ethernet",
    inet.Ethernet8023: "802.3",
    inet.ARP: "ARP",
    inet.IPv4: "IPv4",
    inet.IPv6: "IPv6",
    inet.UDP: "UDP",
    inet.TCP: "TCP",
    inet.Pause: "PAUSE",
    inet.PFC: "PFC",
    ib.LRH: "IB",
    ib.FlowControl: "IB link",
}
"""What a frame is called by its innermost header; a BTH is named by what carries it."""


def _flags(tcp: inet.TCP) -> str:
    names = ("syn", "fin", "rst", "psh", "ack", "urg")
    return "".join(f" {name.upper()}" for name in names if getattr(tcp, name))


def _priorities(pfc: inet.PFC) -> str:
    stopped = [i for i in range(8) if getattr(pfc, f"c{i}")]
    return ", ".join(f"{i}: {getattr(pfc, f'time{i}')}" for i in stopped) or "none"


def _addresses(headers: list[Header]) -> tuple[str, str]:
    """Who speaks to whom, by the innermost addresses."""
    for header in reversed(headers):
        if isinstance(header, inet.IPv4):
            return ipv4(header.src), ipv4(header.dst)
        if isinstance(header, inet.IPv6):
            return ipv6(header.src), ipv6(header.dst)
        if isinstance(header, ib.GRH):
            return ipv6(header.sgid), ipv6(header.dgid)
        if isinstance(header, ib.LRH):
            return f"lid {header.slid}", f"lid {header.dlid}"
        if isinstance(header, inet.Ethernet | inet.Ethernet8023):
            return mac(header.src), mac(header.dst)
    return "", ""


def _protocol(headers: list[Header]) -> str:
    kinds = [type(header) for header in headers]
    if ib.BTH in kinds:
        return "RoCEv2" if inet.UDP in kinds else "IB" if ib.LRH in kinds else "RoCE"
    return next((_PROTOCOLS[kind] for kind in reversed(kinds) if kind in _PROTOCOLS), "")


def _info(frame: Dissection, headers: list[Header]) -> str:
    has_bth = any(type(header) is ib.BTH for header in headers)
    said = [
        _SAYINGS[type(header)](header)
        for header in headers
        if type(header) in _SAYINGS and not (has_bth and type(header) in _SILENT_BEFORE_BTH)
    ]
    said += [f"{len(n.octets)} octets" for n in frame.nodes if n.name == "payload"]
    said += [f"[{check}]" for check in frame.bad_checks]
    said += [f"[{e.field.text(e.value)}]" for n in frame.nodes for e in n.extras if e.field is CUT]
    if frame.malformed:
        said.append(f"[malformed: {frame.malformed.reason} (at octet {frame.malformed.offset})]")
    return ", ".join(filter(None, said))


def _mood(frame: Dissection, headers: list[Header]) -> Mood:
    if frame.malformed or frame.bad_checks:
        return Mood.BAD
    for header in headers:
        if isinstance(header, ib.AETH) and header.ack != ib.Ack.ACK:
            return Mood.TROUBLE
        if isinstance(header, ib.CNP):
            return Mood.TROUBLE
    return Mood.RDMA if any(isinstance(header, ib.BTH) for header in headers) else Mood.PLAIN


def summary(frame: Dissection) -> Summary:
    """The frame's line, in parts."""
    headers = list(frame.headers())
    source, destination = _addresses(headers)
    time = seconds(frame.time_ns - frame.first_ns)
    return Summary(
        frame.number,
        time,
        source,
        destination,
        _protocol(headers),
        _info(frame, headers),
        _mood(frame, headers),
    )
