"""What a dissected frame says that columns cannot hold: inner addresses, FPDUs, connections."""

from typing import NamedTuple

from rdmawire.columns.slow_path import split_fpdus
from rdmawire.dissect import generated
from rdmawire.dissect.node import Dissection, Node
from rdmawire.dissect.summary import terminate_words
from rdmawire.wire.cm import REP
from rdmawire.wire.cm_request import REQ
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, LRH
from rdmawire.wire.inet import TCP, UDP, IPv4, IPv6
from rdmawire.wire.mpa import FPDUCRC, FPDULength, MPAReply, MPARequest, UnusedCRC, fpdu_size
from rdmawire.wire.rdmap import Control
from rdmawire.wire.show import ipv4, ipv6
from rdmawire.wire.terminate import TerminateControl, is_mirrored, mirrored


class Pair(NamedTuple):
    """Two addresses, as text."""

    source: str
    destination: str


class Way(NamedTuple):
    """One direction of a TCP connection."""

    source: str
    source_port: int
    destination: str
    destination_port: int


class Fpdu(NamedTuple):
    """An FPDU: its octets from length to CRC without Markers, and those of its payload.

    ``opcode`` is RDMAP's, -1 where the FPDU breaks off before it; ``crc`` is good, bad, absent,
    or torn where its end was never captured; ``terminate`` is what a Terminate says.
    """

    octets: int
    payload: int
    opcode: int
    crc: str
    terminate: str


class Hello(NamedTuple):
    """A CM message that names a queue pair: REQ's under its own number, REP's as an answer."""

    comm_id: int
    qpn: int
    answers: bool


class Facts(NamedTuple):
    """What one frame says. ``length`` is octets from BTH to ICRC, as the carrier says."""

    pair: Pair
    length: int
    ecn: int
    way: Way | None
    fpdus: tuple[Fpdu, ...]
    is_iwarp: bool
    hello: Hello | None


def facts(frame: Dissection) -> Facts | None:
    """The facts of a frame with a BTH or octets of iWARP; ``None`` for any other."""
    at = next((i for i, node in enumerate(frame.nodes) if isinstance(node.header, BTH)), None)
    if at is not None:
        return _of_transport([node.header for node in frame.nodes[:at] if node.header], frame)
    if any(_is_iwarp(node) for node in frame.nodes):
        return _of_iwarp(frame)
    return None


def _of_transport(before: list[Header], frame: Dissection) -> Facts:
    network = next((h for h in reversed(before) if isinstance(h, IPv4 | IPv6 | GRH | LRH)), None)
    length = _length(before[-1]) if before else 0
    ecn = network.ecn if isinstance(network, IPv4 | IPv6) else 0
    return Facts(_pair(network), length, ecn, None, (), False, _hello(frame))


def _length(carrier: Header) -> int:
    if isinstance(carrier, UDP):
        return carrier.length - UDP.SIZE
    if isinstance(carrier, GRH):
        return carrier.paylen
    # IBA 7.7.8: in words of four octets, from the LRH to the ICRC.
    return carrier.pktlen * 4 - LRH.SIZE if isinstance(carrier, LRH) else 0


def _pair(network: Header | None) -> Pair:
    if isinstance(network, IPv4):
        return Pair(ipv4(network.src), ipv4(network.dst))
    if isinstance(network, IPv6):
        return Pair(ipv6(network.src), ipv6(network.dst))
    if isinstance(network, GRH):
        return Pair(ipv6(network.sgid), ipv6(network.dgid))
    if isinstance(network, LRH):
        return Pair(f"LID {network.slid}", f"LID {network.dlid}")
    return Pair("?", "?")


def _hello(frame: Dissection) -> Hello | None:
    for header in frame.headers():
        if isinstance(header, REQ):
            return Hello(header.local_comm_id, header.local_qpn, answers=False)
        if isinstance(header, REP):
            return Hello(header.remote_comm_id, header.local_qpn, answers=True)
    return None


def _is_iwarp(node: Node) -> bool:
    if isinstance(node.header, FPDULength | MPARequest | MPAReply):
        return True
    return any(extra.field in (generated.SEGMENT, generated.MPA_NOTE) for extra in node.extras)


def _of_iwarp(frame: Dissection) -> Facts:
    headers = list(frame.headers())
    tcp = next((at for at, header in enumerate(headers) if isinstance(header, TCP)), len(headers))
    ip = next((h for h in reversed(headers[:tcp]) if isinstance(h, IPv4 | IPv6)), None)
    pair, way = _pair(ip), None
    if tcp < len(headers) and isinstance(found := headers[tcp], TCP):
        way = Way(pair.source, found.srcport, pair.destination, found.dstport)
    _, fpdus = split_fpdus(frame.nodes)
    return Facts(pair, 0, 0, way, tuple(map(_fpdu, fpdus)), True, None)


def _fpdu(nodes: list[Node]) -> Fpdu:
    length = nodes[0].header
    ulpdu = length.ulpdu_length if isinstance(length, FPDULength) else 0
    lengths = [node.extra(generated.DATA_LENGTH) for node in nodes]  # noqa: S610 - not Django's
    payload = sum(length for length in lengths if isinstance(length, int))
    opcode = next((n.header.opcode for n in nodes if isinstance(n.header, Control)), -1)
    said = next((n.header for n in nodes if isinstance(n.header, TerminateControl)), None)
    return Fpdu(fpdu_size(ulpdu), payload, opcode, _crc(nodes), _terminate(said) if said else "")


def _crc(nodes: list[Node]) -> str:
    for node in nodes:
        if isinstance(node.header, FPDUCRC):
            return str(node.extra(generated.MPA_CRC_STATUS))  # noqa: S610 - not Django's
        if isinstance(node.header, UnusedCRC):
            return "absent"
    return "torn"


def _terminate(control: TerminateControl) -> str:
    return terminate_words(mirrored(control) if is_mirrored(control) else control)
