"""What was found in a frame, and its line: addresses, protocol, info column and errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from rdmawire.dissect.generated import CUT, ICRC_NOTE, MPA_NOTE, TERMINATE_NOTE
from rdmawire.dissect.node import Check, Node
from rdmawire.units import decimal_seconds
from rdmawire.wire import cm, ib, inet, mad, mpa, rdmap, rmpp, terminate
from rdmawire.wire.header import Header
from rdmawire.wire.management import ManagementClass
from rdmawire.wire.opcode import SHAPES, Operation, opcode_word
from rdmawire.wire.show import byte_count, ipv4, ipv6, mac
from rdmawire.wire.terminate import TerminateControl

HeaderT = TypeVar("HeaderT", bound=Header)


class Dissection:
    """Everything found in one frame.

    ``data`` are the captured bytes, ``length`` counts those on the wire, ``number`` counts
    frames from one. Times are nanoseconds; ``time_ns`` since the epoch. ``lead`` bytes of the
    data are a capturing card's own header, which is not part of the frame. ``checks`` are the
    checksums that were computed, ``unverified`` the names of those that could not be.
    """

    __slots__ = (
        *("checks", "comments", "data", "file", "first_ns", "interface", "interface_description"),
        *("interface_name", "lead", "length", "nodes", "number", "previous_ns", "time_ns"),
        "unverified",
    )

    def __init__(self, number: int, data: bytes, length: int, time_ns: int) -> None:
        self.number = number
        self.data = data
        self.length = length
        self.time_ns = self.previous_ns = self.first_ns = time_ns
        self.lead = 0
        self.interface: int | None = None
        self.interface_name = self.interface_description = ""
        self.comments: tuple[str, ...] = ()
        self.nodes: list[Node] = []
        self.checks: list[Check] = []
        self.unverified: list[str] = []
        self.file = ""

    def __str__(self) -> str:
        """The frame's line, as ``rdmawire dissect`` prints it."""
        return summary(self).line()

    @property
    def malformed(self) -> Node | None:
        """The first node that says why the frame does not parse to its end, if it does not."""
        if not self.nodes or not self.nodes[-1].reason:
            return None
        return next(node for node in self.nodes if node.reason)

    @property
    def bad_checks(self) -> list[Check]:
        """The checksums that do not hold."""
        return [check for check in self.checks if not check.good]

    def headers(self) -> Iterator[Header]:
        """The headers found, outermost first."""
        return (node.header for node in self.nodes if node.header is not None)

    def header(self, table: type[HeaderT]) -> HeaderT | None:
        """The outermost header of this table, if the frame has one."""
        return next((header for header in self.headers() if isinstance(header, table)), None)


Others = Mapping[type[Header], Header]
InfoFormatter = Callable[[Any, Others], str]


def named(header: Header, name: str) -> str:
    """The standard's name for a field's value; the number if it has none."""
    return header.word(name) or f"{name} 0x{getattr(header, name):02x}"


def terminate_words(control: terminate.TerminateControl) -> str:
    """Layer, type and code of an error."""
    return " ".join(named(control, name) for name in ("layer", "etype", "error_code"))


def _bth(bth: ib.BTH, _: Others) -> str:
    name = opcode_word(bth.opcode)
    if bth.opcode not in SHAPES:
        name += f" opcode 0x{bth.opcode:02x}"
    return _packet(name, bth)


def _packet(name: str, bth: ib.BTH) -> str:
    marks = [name for name in ("se", "ackreq", "fecn", "becn") if getattr(bth, name)]
    return " ".join([name, f"qp 0x{bth.destqp:06x}", f"psn {bth.psn}", *marks])


def _aeth(aeth: ib.AETH, _: Others) -> str:
    said = "" if aeth.ack == ib.Ack.ACK else f" {named(aeth, 'value')}"
    return f"{ib.Ack(aeth.ack).name}{said} msn {aeth.msn}"


def _atomic(atomic: ib.AtomicETH, others: Others) -> str:
    bth = others.get(ib.BTH)
    adds = isinstance(bth, ib.BTH) and bth.opcode & 31 == Operation.FETCH_ADD
    operands = f"swap 0x{atomic.swapdt:x} if 0x{atomic.cmpdt:x}"
    return f"va 0x{atomic.va:x} rkey 0x{atomic.rkey:08x} " + (
        f"add 0x{atomic.swapdt:x}" if adds else operands
    )


def _flush(flush: ib.FETH, _: Others) -> str:
    return f"{named(flush, 'plt')} of {named(flush, 'sel')}"


def _congestion(ip: inet.IPv4 | inet.IPv6, _: Others) -> str:
    return "congestion experienced" if ip.ecn == inet.ECN.CE else ""


def _arp(arp: inet.ARP, _: Others) -> str:
    if arp.opcode == 1:
        return f"who has {ipv4(arp.dst_proto)}? tell {ipv4(arp.src_proto)}"
    return f"{ipv4(arp.src_proto)} is at {mac(arp.src_hw)}"


def _tcp(tcp: inet.TCP, _: Others) -> str:
    names = ("syn", "fin", "rst", "psh", "ack", "urg")
    flags = "".join(f" {name.upper()}" for name in names if getattr(tcp, name))
    return f"{tcp.srcport} → {tcp.dstport}{flags}"


def _pfc(pfc: inet.PFC, _: Others) -> str:
    stopped = [i for i in range(8) if getattr(pfc, f"c{i}")]
    times = ", ".join(f"{i}: {getattr(pfc, f'time{i}')}" for i in stopped)
    return f"priorities {times or 'none'}"


def _management(head: mad.MAD | mad.DirectedMAD, _: Others) -> str:
    attribute = named(head, "attribute_id")
    status = f" {named(head, 'status')}" if head.status else ""
    if head.mgmt_class == ManagementClass.COM_MGT:
        return f"CM {attribute}{status}"
    words = (named(head, "mgmt_class"), named(head, "method"), attribute)
    return " ".join(words) + status


def _rmpp(head: rmpp.RMPP, _: Others) -> str:
    if not head.active:
        return ""
    ends = "".join(f" {name}" for name in ("first", "last") if getattr(head, name))
    return f"RMPP {named(head, 'type')} segment {head.data1}{ends}"


def _start_up(head: mpa.MPARequest | mpa.MPAReply, _: Others) -> str:
    name = "request" if isinstance(head, mpa.MPARequest) else "reply"
    flags = {"markers": head.m, "crc": head.c, "rejected": head.r, "enhanced": head.s}
    words = [f"MPA {name} revision {head.rev}", *(word for word, is_set in flags.items() if is_set)]
    return " ".join(words)


def _rdmap(control: rdmap.Control, _: Others) -> str:
    name = control.word("opcode")
    return name if control.opcode in rdmap.SHAPES else f"{name} opcode 0x{control.opcode:x}"


def _read(request: rdmap.ReadRequestHeader, _: Others) -> str:
    source = f"stag 0x{request.source_stag:08x} offset 0x{request.source_to:x}"
    sink = f"stag 0x{request.sink_stag:08x} offset 0x{request.sink_to:x}"
    return f"{request.rdma_read_message_size} bytes from {source} into {sink}"


def _atomic_request(request: rdmap.AtomicRequestHeader, _: Others) -> str:
    return (
        f"{named(request, 'aopcode')} stag 0x{request.remote_stag:08x} "
        f"offset 0x{request.remote_to:x}"
    )


INFO: dict[type[Header], InfoFormatter] = {
    inet.VLAN: lambda h, _: f"vlan {h.id}",
    inet.ServiceVLAN: lambda h, _: f"service vlan {h.id}",
    inet.VXLAN: lambda h, _: f"vni {h.vni}",
    inet.ARP: _arp,
    inet.IPv4: _congestion,
    inet.IPv6: _congestion,
    inet.UDP: lambda h, _: f"{h.srcport} → {h.dstport}",
    inet.TCP: _tcp,
    inet.Pause: lambda h, _: f"{h.pause_time} quanta",
    inet.PFC: _pfc,
    ib.BTH: _bth,
    ib.AETH: _aeth,
    ib.RETH: lambda h, _: f"va 0x{h.va:x} rkey 0x{h.rkey:08x} dmalen {h.dmalen}",
    ib.AtomicETH: _atomic,
    ib.AtomicAckETH: lambda h, _: f"was 0x{h.origremdt:x}",
    ib.DETH: lambda h, _: f"from qp 0x{h.srcqp:06x}",
    ib.ImmDt: lambda h, _: f"immediate 0x{h.immdt:08x}",
    ib.IETH: lambda h, _: f"invalidate 0x{h.rkey:08x}",
    ib.XRCETH: lambda h, _: f"srq 0x{h.xrcsrq:06x}",
    ib.FETH: _flush,
    ib.FlowControl: lambda h, _: f"vl {h.vl} fctbs {h.fctbs} fccl {h.fccl}",
    mad.MAD: _management,
    mad.DirectedMAD: _management,
    rmpp.RMPP: _rmpp,
    cm.REQ: lambda h, _: (
        f"service 0x{h.service_id:016x} local qp 0x{h.local_qpn:06x} starting psn {h.starting_psn}"
    ),
    # An XRC target is in the place of the EE context.
    cm.REP: lambda h, _: (
        f"local qp 0x{h.local_qpn or h.local_ee_context_number:06x} starting psn {h.starting_psn}"
    ),
    cm.REJ: lambda h, _: named(h, "reason"),
    cm.DREQ: lambda h, _: f"remote qp 0x{h.remote_qpn_eecn:06x}",
    cm.SIDRREQ: lambda h, _: f"service 0x{h.service_id:016x}",
    cm.SIDRREP: lambda h, _: f"{named(h, 'status')} qp 0x{h.qpn:06x}",
    mpa.MPARequest: _start_up,
    mpa.MPAReply: _start_up,
    rdmap.RDMAPControl: _rdmap,
    rdmap.RDMAPControlReserved: _rdmap,
    rdmap.RDMAPControlInvalidate: lambda h, o: f"{_rdmap(h, o)} stag 0x{h.invalidate_stag:08x}",
    rdmap.TaggedHeader: lambda h, _: f"stag 0x{h.stag:08x} offset 0x{h.to:x}",
    rdmap.UntaggedHeader: lambda h, _: f"msn {h.msn}" + (f" mo {h.mo}" if h.mo else ""),
    rdmap.ReadRequestHeader: _read,
    rdmap.ImmediateData: lambda h, _: f"immediate 0x{h.immediate_data.hex()}",
    rdmap.AtomicRequestHeader: _atomic_request,
    rdmap.AtomicResponseHeader: lambda h, _: f"was 0x{h.original_remote_data:x}",
    terminate.TerminateControl: lambda h, _: terminate_words(h),
}
"""Text for each header type in the info column; other headers have none."""

SUPPRESSED_BY: dict[type[Header], set[type[Header]]] = {
    inet.UDP: {ib.BTH},
    inet.TCP: {mpa.FPDULength, mpa.MPARequest, mpa.MPAReply},
    ib.DETH: {mad.MAD, mad.DirectedMAD},
}
"""Headers that are omitted if one of the others is in the frame."""


class Severity(Enum):
    """How much a line asks for attention, as in Wireshark's expert information."""

    COMMENT = "comment"
    NONE = "none"
    CHAT = "chat"
    WARN = "warning"
    ERROR = "error"


class Summary(NamedTuple):
    """The parts of a frame's line. ``time`` is seconds since the first frame, as text."""

    number: int
    time: str
    source: str
    destination: str
    protocol: str
    info: str
    severity: Severity

    def line(self) -> str:
        """The parts in columns."""
        ends = ends_and_protocol(self.source, self.destination, self.protocol)
        return f"{self.number:>6} {self.time:>13} {ends} {self.info}"


def ends_and_protocol(source: str, destination: str, protocol: str) -> str:
    """The columns of a line with its addresses and protocol."""
    ends = f"{source} → {destination}" if source else ""
    return f"{ends:<28} {protocol:<8}"


PROTOCOLS: dict[type[Header], str] = {
    inet.Ethernet: "Ethernet",
    inet.Ethernet8023: "802.3",
    inet.ARP: "ARP",
    inet.IPv4: "IPv4",
    inet.IPv6: "IPv6",
    inet.UDP: "UDP",
    inet.TCP: "TCP",
    inet.Pause: "PAUSE",
    inet.PFC: "PFC",
    mpa.MPARequest: "MPA",
    mpa.MPAReply: "MPA",
    mpa.FPDULength: "iWARP",
    ib.LRH: "IB",
    ib.FlowControl: "IB link",
}
"""Protocol name of a frame, by its innermost header that is listed."""

CARRIERS: dict[type[Header], str] = {inet.UDP: "RoCEv2", ib.LRH: "IB", inet.Ethernet: "RoCE"}
"""Protocol name of a frame with a BTH, by the innermost of these headers before it."""

ADDRESSES: dict[type[Header], Callable[[Any], tuple[str, str]]] = {
    inet.IPv4: lambda h: (ipv4(h.src), ipv4(h.dst)),
    inet.IPv6: lambda h: (ipv6(h.src), ipv6(h.dst)),
    ib.GRH: lambda h: (ipv6(h.sgid), ipv6(h.dgid)),
    ib.LRH: lambda h: (f"lid {h.slid}", f"lid {h.dlid}"),
    inet.Ethernet: lambda h: (mac(h.src), mac(h.dst)),
    inet.Ethernet8023: lambda h: (mac(h.src), mac(h.dst)),
}
"""Source and destination, by the innermost of these headers."""


def addresses_of(headers: Sequence[Header]) -> tuple[str, str]:
    """The source and destination of a frame with these headers."""
    found = next((header for header in reversed(headers) if type(header) in ADDRESSES), None)
    return ADDRESSES[type(found)](found) if found is not None else ("", "")


def protocol_of(headers: Sequence[Header]) -> str:
    """The protocol name of a frame with these headers."""
    kinds = [type(header) for header in headers]
    if ib.BTH in kinds:
        return _innermost(kinds[: kinds.index(ib.BTH)], CARRIERS)
    return _innermost(kinds, PROTOCOLS)


def _innermost(kinds: list[type[Header]], names: dict[type[Header], str]) -> str:
    return next((names[kind] for kind in reversed(kinds) if kind in names), "")


def _info(frame: Dissection) -> str:
    said = [" | ".join(", ".join(part) for part in _parts(frame) if part)]
    said += [f"[{check}]" for check in frame.bad_checks] + [*_notes(frame)]
    if frame.malformed:
        said.append(f"[malformed: {frame.malformed.reason} (at byte {frame.malformed.offset})]")
    return ", ".join(filter(None, said))


def _parts(frame: Dissection) -> list[list[str]]:
    """The texts of the nodes, in order; each FPDU is a part of its own."""
    others = {type(header): header for header in reversed(list(frame.headers()))}
    parts: list[list[str]] = [[]]
    for node in frame.nodes:
        if type(node.header) is mpa.FPDULength:
            parts.append([])
        if text := _info_text(frame, node, others):
            parts[-1].append(text)
    return parts


def _info_text(frame: Dissection, node: Node, others: Others) -> str:
    if node.header is None:
        return _length(frame, node)
    if node.words and isinstance(node.header, ib.BTH):
        return _packet(node.words["opcode"], node.header)
    return info_of(node.header, others)


def info_of(header: Header, others: Others) -> str:
    """The text of a header in the info column; ``others`` are headers of the frame, by table."""
    kind = type(header)
    return INFO[kind](header, others) if has_info(kind, others) else ""


def has_info(kind: type[Header], others: Others) -> bool:
    """Whether headers of this table may have a text in the info column."""
    return kind in INFO and not SUPPRESSED_BY.get(kind, set()) & others.keys()


def _length(frame: Dissection, node: Node) -> str:
    """Size of a payload; if the capture truncated the frame, also the captured size."""
    if node.name == "segment":
        return f"{byte_count(len(node.data))} of a longer FPDU"
    if node.name != "payload":
        return ""
    return byte_count(len(node.data)) + (" captured" if frame.length > len(frame.data) else "")


def _notes(frame: Dissection) -> Iterator[str]:
    """Missing bytes, and deviations of the peer from the standard."""
    for node in frame.nodes:
        for field, value in node.extras:
            if field in (CUT, ICRC_NOTE, MPA_NOTE, TERMINATE_NOTE):
                yield f"[{field.text(value)}]"


_WARNINGS: set[type[Header]] = {ib.CNP, TerminateControl, cm.REJ}
_RDMA: set[type[Header]] = {ib.BTH, mpa.FPDULength, mpa.MPARequest, mpa.MPAReply}


def _is_warning(header: Header) -> bool:
    """Whether the header is a refusal, a congestion mark, or a status other than success."""
    match header:
        case ib.AETH():
            return header.ack != ib.Ack.ACK
        case ib.BTH():
            return bool(header.fecn or header.becn)
        case inet.IPv4() | inet.IPv6():
            return header.ecn == inet.ECN.CE
        case mad.MAD() | mad.DirectedMAD():
            return header.status != 0
    return False


def _severity(frame: Dissection, headers: list[Header]) -> Severity:
    if frame.malformed or frame.bad_checks:
        return Severity.ERROR
    kinds = {type(header) for header in headers}
    if kinds & _WARNINGS or any(map(_is_warning, headers)):
        return Severity.WARN
    return (
        Severity.CHAT
        if kinds & {ib.BTH, mpa.FPDULength, mpa.MPARequest, mpa.MPAReply}
        else Severity.NONE
    )


def summary(frame: Dissection) -> Summary:
    """The columns of the frame's line."""
    headers = list(frame.headers())
    source, destination = addresses_of(headers)
    time = decimal_seconds(frame.time_ns - frame.first_ns)
    return Summary(
        frame.number,
        time,
        source,
        destination,
        protocol_of(headers),
        _info(frame),
        _severity(frame, headers),
    )
