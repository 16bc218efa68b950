"""What each header has to say in the line of its frame."""

from collections.abc import Callable
from typing import Any

from rdmawire.wire import cm_request, ddp, ib, inet, mad, mpa, rdmap, terminate
from rdmawire.wire.header import Header
from rdmawire.wire.management import ManagementClass
from rdmawire.wire.opcode import SHAPES, opcode_word
from rdmawire.wire.show import ipv4, mac


def _named(header: Header, name: str) -> str:
    """The standard's word for a row's value; the number where it has none."""
    return header.word(name) or f"{name} 0x{getattr(header, name):02x}"


def _bth(bth: ib.BTH) -> str:
    name = opcode_word(bth.opcode)
    if bth.opcode not in SHAPES:
        name += f" opcode 0x{bth.opcode:02x}"
    marks = [name for name in ("se", "ackreq", "fecn", "becn") if getattr(bth, name)]
    return " ".join([name, f"qp 0x{bth.destqp:06x}", f"psn {bth.psn}", *marks])


def _aeth(aeth: ib.AETH) -> str:
    said = "" if aeth.ack == ib.Ack.ACK else f" {_named(aeth, 'value')}"
    return f"{ib.Ack(aeth.ack).name}{said} msn {aeth.msn}"


def _congestion(ip: inet.IPv4 | inet.IPv6) -> str:
    return "congestion experienced" if ip.ecn == inet.ECN.CE else ""


def _flags(tcp: inet.TCP) -> str:
    names = ("syn", "fin", "rst", "psh", "ack", "urg")
    return "".join(f" {name.upper()}" for name in names if getattr(tcp, name))


def _priorities(pfc: inet.PFC) -> str:
    stopped = [i for i in range(8) if getattr(pfc, f"c{i}")]
    return ", ".join(f"{i}: {getattr(pfc, f'time{i}')}" for i in stopped) or "none"


def _management(head: Any) -> str:
    attribute = _named(head, "attribute_id")
    if head.mgmt_class == ManagementClass.COM_MGT:
        return f"CM {attribute}"
    return " ".join((_named(head, "mgmt_class"), _named(head, "method"), attribute))


def _start_up(name: str, head: mpa.MPARequest | mpa.MPAReply) -> str:
    flags = {"markers": head.m, "crc": head.c, "rejected": head.r, "enhanced": head.s}
    words = [f"MPA {name} revision {head.rev}", *(word for word, is_set in flags.items() if is_set)]
    return " ".join(words)


def _terminate(control: terminate.TerminateControl) -> str:
    return " ".join(_named(control, name) for name in ("layer", "etype", "error_code"))


def _rdmap(control: rdmap.Control) -> str:
    name = control.word("opcode")
    return name if control.opcode in rdmap.SHAPES else f"{name} opcode 0x{control.opcode:x}"


SAYINGS: dict[type[Header], Callable[[Any], str]] = {
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
    inet.IPv4: _congestion,
    inet.IPv6: _congestion,
    inet.UDP: lambda h: f"{h.srcport} → {h.dstport}",
    inet.TCP: lambda h: f"{h.srcport} → {h.dstport}{_flags(h)}",
    inet.Pause: lambda h: f"{h.pause_time} quanta",
    inet.PFC: lambda h: "priorities " + _priorities(h),
    cm_request.REQ: lambda h: f"service 0x{h.service_id:016x} qp 0x{h.local_qpn:06x}",
    mad.MAD: _management,
    mad.DirectedMAD: _management,
    mpa.MPARequest: lambda h: _start_up("request", h),
    mpa.MPAReply: lambda h: _start_up("reply", h),
    rdmap.RDMAPControl: _rdmap,
    rdmap.RDMAPControlReserved: _rdmap,
    rdmap.RDMAPControlInvalidate: lambda h: f"{_rdmap(h)} 0x{h.invalidate_stag:08x}",
    ddp.TaggedHeader: lambda h: f"stag 0x{h.stag:08x} to 0x{h.to:x}",
    ddp.UntaggedHeader: lambda h: f"msn {h.msn}" + (f" mo {h.mo}" if h.mo else ""),
    rdmap.ReadRequestHeader: lambda h: (
        f"{h.rdma_read_message_size} octets from stag 0x{h.source_stag:08x} to 0x{h.source_to:x}"
    ),
    terminate.TerminateControl: _terminate,
}
"""A header's saying; those that are not here are silent."""

SILENCED_BY: dict[type[Header], set[type[Header]]] = {
    inet.UDP: {ib.BTH},
    inet.TCP: {mpa.FPDULength, mpa.MPARequest, mpa.MPAReply},
    ib.DETH: {mad.MAD, mad.DirectedMAD},
}
"""Headers that say nothing of interest beside others of the frame."""
