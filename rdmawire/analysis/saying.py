"""What each header has to say in the line of its frame.

A saying is a function of the header and of the frame's headers by kind (the first of each), for
what only others tell: whether an atomic's operand is added or swapped in.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rdmawire.wire import cm, cm_request, ddp, ib, inet, mad, mpa, rdmap, rmpp, terminate
from rdmawire.wire.header import Header
from rdmawire.wire.management import ManagementClass
from rdmawire.wire.opcode import SHAPES, Operation, opcode_word
from rdmawire.wire.show import ipv4, mac

Others = Mapping[type[Header], Header]
Saying = Callable[[Any, Others], str]


def named(header: Header, name: str) -> str:
    """The standard's word for a row's value; the number where it has none."""
    return header.word(name) or f"{name} 0x{getattr(header, name):02x}"


def terminate_words(control: terminate.TerminateControl) -> str:
    """Layer, type and code of an error."""
    return " ".join(named(control, name) for name in ("layer", "etype", "error_code"))


def _bth(bth: ib.BTH, _: Others) -> str:
    name = opcode_word(bth.opcode)
    if bth.opcode not in SHAPES:
        name += f" opcode 0x{bth.opcode:02x}"
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
    return f"{request.rdma_read_message_size} octets from {source} into {sink}"


def _atomic_request(request: rdmap.AtomicRequestHeader, _: Others) -> str:
    return (
        f"{named(request, 'aopcode')} stag 0x{request.remote_stag:08x} "
        f"offset 0x{request.remote_to:x}"
    )


SAYINGS: dict[type[Header], Saying] = {
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
    cm_request.REQ: lambda h, _: (
        f"service 0x{h.service_id:016x} local qp 0x{h.local_qpn:06x} starting psn {h.starting_psn}"
    ),
    cm.REP: lambda h, _: f"local qp 0x{h.local_qpn:06x} starting psn {h.starting_psn}",
    cm.REJ: lambda h, _: named(h, "reason"),
    cm.DREQ: lambda h, _: f"remote qp 0x{h.remote_qpn_eecn:06x}",
    cm_request.SIDRREQ: lambda h, _: f"service 0x{h.service_id:016x}",
    cm.SIDRREP: lambda h, _: f"{named(h, 'status')} qp 0x{h.qpn:06x}",
    mpa.MPARequest: _start_up,
    mpa.MPAReply: _start_up,
    rdmap.RDMAPControl: _rdmap,
    rdmap.RDMAPControlReserved: _rdmap,
    rdmap.RDMAPControlInvalidate: lambda h, o: f"{_rdmap(h, o)} stag 0x{h.invalidate_stag:08x}",
    ddp.TaggedHeader: lambda h, _: f"stag 0x{h.stag:08x} offset 0x{h.to:x}",
    ddp.UntaggedHeader: lambda h, _: f"msn {h.msn}" + (f" mo {h.mo}" if h.mo else ""),
    rdmap.ReadRequestHeader: _read,
    rdmap.ImmediateData: lambda h, _: f"immediate 0x{h.immediate_data.hex()}",
    rdmap.AtomicRequestHeader: _atomic_request,
    rdmap.AtomicResponseHeader: lambda h, _: f"was 0x{h.original_remote_data:x}",
    terminate.TerminateControl: lambda h, _: terminate_words(h),
}
"""A header's saying; those that are not here are silent."""

SILENCED_BY: dict[type[Header], set[type[Header]]] = {
    inet.UDP: {ib.BTH},
    inet.TCP: {mpa.FPDULength, mpa.MPARequest, mpa.MPAReply},
    ib.DETH: {mad.MAD, mad.DirectedMAD},
}
"""Headers that say nothing of interest beside others of the frame."""
