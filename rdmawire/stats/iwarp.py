"""iWARP counts for each direction of a TCP connection, and facts from dissected frames."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from rdmawire.columns.read import split_fpdus
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection, terminate_words
from rdmawire.dissect.node import Node
from rdmawire.wire.cm import REP, REQ
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, LRH
from rdmawire.wire.inet import TCP, UDP, IPv4, IPv6
from rdmawire.wire.mpa import FPDUCRC, FPDULength, MPAReply, MPARequest, UnusedCRC, fpdu_size
from rdmawire.wire.rdmap import Control
from rdmawire.wire.show import ipv4, ipv6
from rdmawire.wire.terminate import TerminateControl, is_mirrored, mirrored


class AddressPair(NamedTuple):
    """Source and destination address, as text."""

    source: str
    destination: str


class TcpDirection(NamedTuple):
    """One direction of a TCP connection."""

    source: str
    source_port: int
    destination: str
    destination_port: int


class FpduRecord(NamedTuple):
    """An FPDU: its bytes from length to CRC without Markers, and those of its payload.

    ``opcode`` is RDMAP's, -1 if the FPDU is truncated before it. ``crc`` is good, bad, absent, or
    truncated if the end was not captured. ``terminate`` is the reason in a Terminate.
    """

    bytes: int
    payload: int
    opcode: int
    crc: str
    terminate: str


class CmQueuePair(NamedTuple):
    """A queue pair that a CM message names: a REQ, or a REP if ``answers``."""

    comm_id: int
    qpn: int
    answers: bool


class FrameFacts(NamedTuple):
    """Facts of one frame; ``length`` is the bytes from BTH to ICRC, by a length field."""

    pair: AddressPair
    length: int
    ecn: int
    direction: TcpDirection | None
    fpdus: tuple[FpduRecord, ...]
    is_iwarp: bool
    cm_qp: CmQueuePair | None


def facts(frame: Dissection) -> FrameFacts | None:
    """Return the facts of a frame with a BTH or with iWARP; ``None`` for any other frame."""
    at = next((i for i, node in enumerate(frame.nodes) if isinstance(node.header, BTH)), None)
    if at is not None:
        return _of_transport([node.header for node in frame.nodes[:at] if node.header], frame)
    if any(_is_iwarp(node) for node in frame.nodes):
        return _of_iwarp(frame)
    return None


def _of_transport(before: list[Header], frame: Dissection) -> FrameFacts:
    network = next((h for h in reversed(before) if isinstance(h, IPv4 | IPv6 | GRH | LRH)), None)
    length = _length(before[-1]) if before else 0
    ecn = network.ecn if isinstance(network, IPv4 | IPv6) else 0
    return FrameFacts(_pair(network), length, ecn, None, (), False, _cm_queue_pair(frame))


def _length(carrier: Header) -> int:
    if isinstance(carrier, UDP):
        return carrier.length - UDP.SIZE
    if isinstance(carrier, GRH):
        return carrier.paylen
    # IBA 7.7.8: in words of four bytes, from the LRH to the ICRC.
    return carrier.pktlen * 4 - LRH.SIZE if isinstance(carrier, LRH) else 0


def _pair(network: Header | None) -> AddressPair:
    if isinstance(network, IPv4):
        return AddressPair(ipv4(network.src), ipv4(network.dst))
    if isinstance(network, IPv6):
        return AddressPair(ipv6(network.src), ipv6(network.dst))
    if isinstance(network, GRH):
        return AddressPair(ipv6(network.sgid), ipv6(network.dgid))
    if isinstance(network, LRH):
        return AddressPair(f"LID {network.slid}", f"LID {network.dlid}")
    return AddressPair("?", "?")


def _cm_queue_pair(frame: Dissection) -> CmQueuePair | None:
    for header in frame.headers():
        if isinstance(header, REQ):
            return CmQueuePair(header.local_comm_id, header.local_qpn, answers=False)
        if isinstance(header, REP):
            return CmQueuePair(header.remote_comm_id, header.local_qpn, answers=True)
    return None


def _is_iwarp(node: Node) -> bool:
    if isinstance(node.header, FPDULength | MPARequest | MPAReply):
        return True
    return any(extra.field in (generated.SEGMENT, generated.MPA_NOTE) for extra in node.extras)


def _of_iwarp(frame: Dissection) -> FrameFacts:
    headers = list(frame.headers())
    tcp = next((at for at, header in enumerate(headers) if isinstance(header, TCP)), len(headers))
    ip = next((h for h in reversed(headers[:tcp]) if isinstance(h, IPv4 | IPv6)), None)
    pair, direction = _pair(ip), None
    if tcp < len(headers) and isinstance(found := headers[tcp], TCP):
        direction = TcpDirection(pair.source, found.srcport, pair.destination, found.dstport)
    _, fpdus = split_fpdus(frame.nodes)
    return FrameFacts(pair, 0, 0, direction, tuple(map(_fpdu, fpdus)), True, None)


def _fpdu(nodes: list[Node]) -> FpduRecord:
    length = nodes[0].header
    ulpdu = length.ulpdu_length if isinstance(length, FPDULength) else 0
    lengths = [node.extra(generated.DATA_LENGTH) for node in nodes]  # noqa: S610 - not Django's
    payload = sum(length for length in lengths if isinstance(length, int))
    opcode = next((n.header.opcode for n in nodes if isinstance(n.header, Control)), -1)
    terminate = next((n.header for n in nodes if isinstance(n.header, TerminateControl)), None)
    return FpduRecord(
        fpdu_size(ulpdu), payload, opcode, _crc(nodes), _terminate(terminate) if terminate else ""
    )


def _crc(nodes: list[Node]) -> str:
    for node in nodes:
        if isinstance(node.header, FPDUCRC):
            return str(node.extra(generated.MPA_CRC_STATUS))  # noqa: S610 - not Django's
        if isinstance(node.header, UnusedCRC):
            return "absent"
    return "truncated"


def _terminate(control: TerminateControl) -> str:
    return terminate_words(mirrored(control) if is_mirrored(control) else control)


MAX_DIRECTIONS = 1 << 14
"""Directions that are counted separately; all later ones are counted as one."""
REST = TcpDirection("other", 0, "other", 0)
_MAX_TERMINATES = 64
"""Different Terminates of a direction that are counted separately."""


@dataclass(slots=True)
class StreamCounts:
    """Counts of one direction of a connection.

    ``frames`` and ``bytes`` (bytes on the wire) are of frames that carry iWARP; ``fpdu_bytes`` is
    the size of FPDUs in bytes, from length to CRC without Markers; ``crc`` counts FPDUs by status.
    """

    frames: int = 0
    bytes: int = 0
    fpdus: int = 0
    fpdu_bytes: int = 0
    payload: int = 0
    first_ns: int = 0
    last_ns: int = 0
    opcodes: Counter[int] = field(default_factory=Counter)
    crc: Counter[str] = field(default_factory=Counter)
    terminates: Counter[str] = field(default_factory=Counter)

    def add(self, fpdu: FpduRecord) -> None:
        """Count an FPDU."""
        self.fpdus += 1
        self.fpdu_bytes += fpdu.bytes
        self.payload += fpdu.payload
        self.opcodes[fpdu.opcode] += 1
        self.crc[fpdu.crc] += 1
        if fpdu.terminate:
            known = fpdu.terminate in self.terminates or len(self.terminates) < _MAX_TERMINATES
            self.terminates[fpdu.terminate if known else "other"] += 1


class IwarpCounts:
    """Counts of all directions."""

    def __init__(self) -> None:
        self.streams: dict[TcpDirection, StreamCounts] = {}
        self.frames = 0
        self.bytes = 0

    def add(self, facts: FrameFacts, size: int, time_ns: int) -> int:
        """Count a frame of ``bytes`` bytes; return its payload in bytes."""
        stream = self._of(facts.direction or REST, time_ns)
        for count in (self, stream):
            count.frames += 1
            count.bytes += size
        stream.last_ns = time_ns
        for fpdu in facts.fpdus:
            stream.add(fpdu)
        return sum(fpdu.payload for fpdu in facts.fpdus)

    def _of(self, direction: TcpDirection, time_ns: int) -> StreamCounts:
        if direction not in self.streams and len(self.streams) >= MAX_DIRECTIONS:
            direction = REST
        return self.streams.setdefault(direction, StreamCounts(first_ns=time_ns))
