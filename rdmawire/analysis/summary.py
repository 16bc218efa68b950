"""A dissection in one line: who, to whom, what, and what is wrong with it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rdmawire.analysis.derived import CUT, ICRC_NOTE, MPA_NOTE, TERMINATE_NOTE
from rdmawire.analysis.frame import seconds
from rdmawire.analysis.mood import Mood
from rdmawire.analysis.node import Dissection, Node
from rdmawire.analysis.saying import SAYINGS, SILENCED_BY, Others
from rdmawire.wire import cm, ib, inet, mad, mpa
from rdmawire.wire.header import Header
from rdmawire.wire.show import ipv4, ipv6, mac, octet_count
from rdmawire.wire.terminate import TerminateControl


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
"""What a frame is called by its innermost header that stands here."""

CARRIERS: dict[type[Header], str] = {inet.UDP: "RoCEv2", ib.LRH: "IB", inet.Ethernet: "RoCE"}
"""What a frame with a BTH is called, by the innermost of these before it."""

ADDRESSES: dict[type[Header], Callable[[Any], tuple[str, str]]] = {
    inet.IPv4: lambda h: (ipv4(h.src), ipv4(h.dst)),
    inet.IPv6: lambda h: (ipv6(h.src), ipv6(h.dst)),
    ib.GRH: lambda h: (ipv6(h.sgid), ipv6(h.dgid)),
    ib.LRH: lambda h: (f"lid {h.slid}", f"lid {h.dlid}"),
    inet.Ethernet: lambda h: (mac(h.src), mac(h.dst)),
    inet.Ethernet8023: lambda h: (mac(h.src), mac(h.dst)),
}
"""Who speaks to whom, by the innermost of these."""


def _addresses(headers: list[Header]) -> tuple[str, str]:
    found = next((header for header in reversed(headers) if type(header) in ADDRESSES), None)
    return ADDRESSES[type(found)](found) if found is not None else ("", "")


def _protocol(headers: list[Header]) -> str:
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
        said.append(f"[malformed: {frame.malformed.reason} (at octet {frame.malformed.offset})]")
    return ", ".join(filter(None, said))


def _parts(frame: Dissection) -> list[list[str]]:
    """What the nodes have to say, in order; each FPDU is a part of its own."""
    others = {type(header): header for header in reversed(list(frame.headers()))}
    parts: list[list[str]] = [[]]
    for node in frame.nodes:
        if type(node.header) is mpa.FPDULength:
            parts.append([])
        if text := _saying(frame, node, others):
            parts[-1].append(text)
    return parts


def _saying(frame: Dissection, node: Node, others: Others) -> str:
    if node.header is None:
        return _length(frame, node)
    kind = type(node.header)
    if SILENCED_BY.get(kind, set()) & others.keys() or kind not in SAYINGS:
        return ""
    return SAYINGS[kind](node.header, others)


def _length(frame: Dissection, node: Node) -> str:
    """How long a payload is; of a frame that the capture cut, how much of it was kept."""
    if node.name == "segment":
        return f"{octet_count(len(node.octets))} of a longer FPDU"
    if node.name != "payload":
        return ""
    return octet_count(len(node.octets)) + (" captured" if frame.length > len(frame.data) else "")


def _notes(frame: Dissection) -> Iterator[str]:
    """What is missing, and what a peer does its own way."""
    for node in frame.nodes:
        for field, value in node.extras:
            if field in (CUT, ICRC_NOTE, MPA_NOTE, TERMINATE_NOTE):
                yield f"[{field.text(value)}]"


_TROUBLING: set[type[Header]] = {ib.CNP, TerminateControl, cm.REJ}


def _is_trouble(header: Header) -> bool:
    """A refusal, a mark of congestion, or a status that is no success."""
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


def _mood(frame: Dissection, headers: list[Header]) -> Mood:
    if frame.malformed or frame.bad_checks:
        return Mood.BAD
    kinds = {type(header) for header in headers}
    if kinds & _TROUBLING or any(map(_is_trouble, headers)):
        return Mood.TROUBLE
    return (
        Mood.RDMA if kinds & {ib.BTH, mpa.FPDULength, mpa.MPARequest, mpa.MPAReply} else Mood.PLAIN
    )


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
        _info(frame),
        _mood(frame, headers),
    )
