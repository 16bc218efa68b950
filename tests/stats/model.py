"""The plain model: the same counts by straight loops over dissections, one frame at a time."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.errors import CaptureError
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, BTH, DETH, GRH, LRH, RDETH, RETH
from rdmawire.wire.inet import UDP, IPv4, IPv6
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Part, Service
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.serial import distance
from rdmawire.wire.show import ipv4, ipv6

MTUS = (4096, 2048, 1024, 512, 256)
REACH = 65536

FlowKey = tuple[str, str, int, int]


@dataclass
class Sequence:
    """The requests of one flow, for one path MTU. Numbers go on past the circle's end."""

    mtu: int
    number: int | None = None
    expected: int = 0
    taken_most: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    filled: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, before: int, psn: int, read: int) -> None:
        """One request; ``before`` is the PSN of the one before it."""
        step = distance(before, psn)
        most = max(-(-read // 256), 1)
        if self.number is not None and not -REACH <= step <= self.taken_most + REACH:
            self.counts["restarts"] += 1
            self.number = None
        if self.number is None:
            self.number = self.expected = 0
            self.gaps, self.filled = [], set()
        else:
            self.number += step
        self.taken_most = min(most, 2**23 - 1)
        self._judge(min(max(-(-read // self.mtu), 1), 2**23 - 1))

    def _judge(self, span: int) -> None:
        assert self.number is not None
        if self.number > self.expected:
            self.gaps.append((self.expected, self.number))
            self.counts["gaps"] += 1
            self.counts["missing"] += self.number - self.expected
        elif self.number < self.expected:
            self._behind(self.number, span)
        self.expected = max(self.expected, self.number + span)

    def _behind(self, number: int, span: int) -> None:
        ends = [end for start, end in self.gaps if start <= number < end]
        if ends and number not in self.filled and self.expected - number <= REACH:
            self.filled.add(number)
            self.counts["late"] += 1
            self.counts["filled"] += min(span, ends[0] - number)
        else:
            self.counts["duplicates"] += 1


@dataclass
class Flow:
    frames: int = 0
    bytes: int = 0
    payload: int = 0
    requests: list[int] = field(default_factory=list)
    responses: list[int] = field(default_factory=list)
    acks: int = 0
    cnps: int = 0
    marked: int = 0
    services: set[Service] = field(default_factory=set)
    syndromes: Counter[int] = field(default_factory=Counter)
    path_mtu: int = 0
    largest: int = 0
    before: int = 0
    sequences: list[Sequence] = field(default_factory=lambda: [Sequence(mtu) for mtu in MTUS])

    def add(self, frame: Dissection, headers: list[Header], bth: BTH, payload: int) -> None:
        self.frames += 1
        self.bytes += frame.length - frame.lead
        self.payload += payload
        self.largest = max(self.largest, payload)
        self.services.add(Service(bth.opcode >> 5))
        self.cnps += bth.opcode == Opcode.CNP
        network = network_of(headers)
        self.marked += isinstance(network, IPv4 | IPv6) and network.ecn == 3
        self._by_shape(headers, bth, payload)

    def _by_shape(self, headers: list[Header], bth: BTH, payload: int) -> None:
        shape = SHAPES.get(bth.opcode)
        aeth = next((h for h in headers if isinstance(h, AETH)), None)
        if aeth is not None and aeth.ack == 0:
            self.acks += 1
        elif aeth is not None:
            self.syndromes[aeth.ack << 5 | aeth.value] += 1
        if shape is None or shape.service is Service.CNP:
            return
        if shape.part in (Part.FIRST, Part.MIDDLE):
            self.path_mtu = max(self.path_mtu, payload)
        (self.responses if shape.response else self.requests).append(bth.psn)
        if not shape.response and shape.service is not Service.UD:
            self._request(headers, bth)

    def _request(self, headers: list[Header], bth: BTH) -> None:
        read = 0
        if bth.opcode & 0x1F == Operation.RDMA_READ_REQUEST:
            read = next((h.dmalen for h in headers if isinstance(h, RETH)), 0)
        for sequence in self.sequences:
            sequence.add(self.before, bth.psn, read)
        self.before = bth.psn


def network_of(headers: list[Header]) -> Header | None:
    at = next(at for at, header in enumerate(headers) if isinstance(header, BTH))
    found = [header for header in headers[:at] if isinstance(header, IPv4 | IPv6 | GRH | LRH)]
    return found[-1] if found else None


def ends_of(network: Header | None) -> tuple[str, str]:
    match network:
        case IPv4():
            return ipv4(network.src), ipv4(network.dst)
        case IPv6():
            return ipv6(network.src), ipv6(network.dst)
        case GRH():
            return ipv6(network.sgid), ipv6(network.dgid)
        case LRH():
            return f"LID {network.slid}", f"LID {network.dlid}"
    return "?", "?"


def key_of(headers: list[Header], bth: BTH) -> FlowKey:
    service = Service(bth.opcode >> 5) if bth.opcode in SHAPES else None
    number, source = bth.destqp, 0
    for header in headers:
        if isinstance(header, RDETH) and service is Service.RD:
            number = header.eecnxt | 1 << 24
        if isinstance(header, DETH) and service is Service.UD:
            source = header.srcqp
    if service is Service.RD and not number >> 24:
        number = 1 << 24
    return *ends_of(network_of(headers)), number, source


def payload_of(headers: list[Header], bth: BTH) -> int:
    """What the carrier's length leaves for it: of cut frames, too."""
    layout = LAYOUTS.get(bth.opcode)
    if layout is None or layout.shape is None:
        return 0
    at = headers.index(bth)
    match headers[at - 1]:
        case UDP() as udp:
            length = udp.length - 8
        case GRH() as grh:
            length = grh.paylen
        case LRH() as lrh:
            length = lrh.pktlen * 4 - 8
        case _:
            length = 0
    return max(length - 12 - layout.size - 4 - bth.padcnt, 0)


def flows(path: Path) -> dict[FlowKey, Flow]:
    """All flows of a capture, up to its damage if it has some."""
    found: dict[FlowKey, Flow] = {}
    with suppress(CaptureError), open_capture(path) as reader:
        for frame in Dissector().capture(reader):
            headers, bth = list(frame.headers()), frame.header(BTH)
            if bth is not None:
                flow = found.setdefault(key_of(headers, bth), Flow())
                flow.add(frame, headers, bth, payload_of(headers, bth))
    return found
