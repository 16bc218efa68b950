"""Collection of statistics, block by block in bounded memory, and the report of them."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.pcap import RECORD
from rdmawire.columns.query import select_frames
from rdmawire.columns.table import Columns
from rdmawire.filter import Filter
from rdmawire.stats import report
from rdmawire.stats.flows import REST, VALUE_BITS, CmPairs, Flows, Grouped, Pairing
from rdmawire.stats.iwarp import FrameFacts, IwarpCounts, StreamCounts, TcpDirection
from rdmawire.stats.packets import (
    EE_CONTEXT,
    FACTS,
    IS_REQUEST,
    AddressNumbers,
    IntArray,
    Packets,
    blocks,
    packets,
)
from rdmawire.stats.psn_sequence import RequestCounts, largest_payload, path_mtu
from rdmawire.stats.throughput import Bins, PsnPoints
from rdmawire.wire import opcode, rdmap
from rdmawire.wire.ib import RNR_TIMER_NS, Ack, Nak
from rdmawire.wire.inet import ROCE_PORT

_MAX_ROWS = 1 << 17
"""Frames that are counted at once."""


class Statistics:
    """Counts of one capture, or of several together.

    ``interval`` is the width of the throughput intervals in ns, ``None`` for a width that suits the
    capture. ``points`` keeps a sample of PSNs over time, for a picture.
    """

    def __init__(self, *, interval: int | None = None, points: bool = False) -> None:
        self.frames = 0
        self.bytes = 0
        self.first_ns = self.last_ns = 0
        self.opcodes = {name: np.zeros(256, np.int64) for name in ("frames", "bytes", "payload")}
        self.addresses = AddressNumbers()
        self.flows = Flows(self.addresses)
        self.requests = RequestCounts()
        self.pairing = Pairing(self.addresses)
        self.streams = IwarpCounts()
        self.bins = Bins(interval)
        self.points = PsnPoints() if points else None
        self._cm_pairs = CmPairs(self.addresses, self.pairing)

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        ports: Iterable[int] = (ROCE_PORT,),
        where: str | Filter | None = None,
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Count the frames of a capture, or those that pass a filter.

        ``ports`` are UDP destination ports of RoCEv2, ``where`` is a display filter. ``progress``
        is called with the number of bytes that have been counted.

        Raises :class:`~rdmawire.errors.CaptureError` at damage, after all before it is counted, and
        :class:`~.throughput.IntervalError` if there are too many intervals.
        """
        read = 0
        for block in blocks(path, ports, select_frames(where)):
            for part in _parts(block):
                self.add(part)
            read += int(block["frame.cap_len"].values.sum()) + RECORD * block.rows
            progress(read)

    def add(self, block: Columns) -> None:
        """Count a block."""
        times = block["frame.time_epoch"].values
        sizes = block["frame.len"].values.astype(np.int64)
        self._span(times, int(sizes.sum()))
        is_rdma = block["infiniband.bth.opcode"].valid.copy()
        payload = np.zeros(block.rows, np.int64)
        found = packets(block, self.addresses)
        payload[is_rdma] = found.payload
        self._dissected(block, times, sizes, payload, is_rdma)
        other = np.where(is_rdma, 0, sizes)
        passed = {"frames": is_rdma.astype(np.int64), "bytes": sizes - other}
        self.bins.add(times, {**passed, "payload": payload, "other_bytes": other})
        if len(found):
            self._transport(found)

    def _span(self, times: IntArray, size: int) -> None:
        if not self.frames:
            self.first_ns = self.last_ns = int(times[0])
        self.frames += len(times)
        self.bytes += size
        self.first_ns = min(self.first_ns, int(times.min()))
        self.last_ns = max(self.last_ns, int(times.max()))

    def _dissected(
        self,
        block: Columns,
        times: IntArray,
        sizes: IntArray,
        payload: IntArray,
        is_rdma: NDArray[np.bool_],
    ) -> None:
        """Count facts of dissected frames; mark those with iWARP, and set their payload."""
        facts = block[FACTS]
        for at in np.flatnonzero(facts.valid):
            fact: FrameFacts = facts.values[at]
            self._cm_pairs.add(fact)
            if fact.is_iwarp:
                is_rdma[at] = True
                payload[at] = self.streams.add(fact, int(sizes[at]), int(times[at]))

    def _transport(self, found: Packets) -> None:
        self._count_opcodes(found)
        sorted_ = self.flows.add(found)
        requests = sorted_.of(IS_REQUEST[sorted_.packets.opcode])
        self.requests.add(requests)
        self.pairing.add(sorted_)
        if self.points is not None:
            self._keep(requests)

    def _count_opcodes(self, found: Packets) -> None:
        counted = {"frames": np.ones(len(found)), "bytes": found.bytes, "payload": found.payload}
        for name, each in counted.items():
            sums = np.bincount(found.opcode, weights=each, minlength=256)
            self.opcodes[name] += sums.astype(np.int64)

    def _keep(self, requests: Grouped) -> None:
        assert self.points is not None
        order = np.argsort(requests.rows)
        own = requests.packets
        self.points.add(own.times[order], own.psn[order], requests.flow[order])


def _parts(block: Columns) -> Iterator[Columns]:
    for start in range(0, block.rows, _MAX_ROWS):
        yield block.at(slice(start, start + _MAX_ROWS))


MAX_INTERVALS = 120
"""Intervals of throughput; at least half as many unless the capture is very short."""
OTHER = "other"
"""The address of the flow that counts all others."""


def report_of(statistics: Statistics, files: Iterable[str]) -> report.Report:
    """Return the report of all that has been counted; ``files`` are the names in it."""
    transport, iwarp = _transport(statistics), _iwarp(statistics)
    flows = list(_flows(statistics))
    streams = [
        _stream(direction, counts) for direction, counts in statistics.streams.streams.items()
    ]
    frames, size = statistics.frames, statistics.bytes
    return report.Report(
        files=list(files),
        frames=frames,
        bytes=size,
        first_ns=statistics.first_ns,
        last_ns=statistics.last_ns,
        transport=transport,
        iwarp=iwarp,
        other=report.Total(
            frames - transport.frames - iwarp.frames, size - transport.bytes - iwarp.bytes, 0
        ),
        opcodes=list(_opcodes(statistics)),
        rdmap_opcodes=list(_rdmap_opcodes(statistics)),
        endpoints=_endpoints(flows, streams),
        flows=flows,
        streams=streams,
        throughput=throughput_of(statistics, MAX_INTERVALS),
    )


def throughput_of(statistics: Statistics, max_intervals: int) -> report.Throughput:
    """Return the throughput in at most ``max_intervals`` intervals."""
    found = statistics.bins.throughput(max_intervals)
    sums = {name: each.tolist() for name, each in found.sums.items()}
    return report.Throughput(found.start_ns, found.width, **sums)


def _transport(statistics: Statistics) -> report.Total:
    counts = statistics.opcodes
    return report.Total(*(int(counts[name].sum()) for name in ("frames", "bytes", "payload")))


def _iwarp(statistics: Statistics) -> report.Total:
    streams = statistics.streams
    payload = sum(stream.payload for stream in streams.streams.values())
    return report.Total(streams.frames, streams.bytes, payload)


def _opcodes(statistics: Statistics) -> Iterator[report.OpcodeCount]:
    """Yield the counts of opcodes, the most frequent first."""
    counts = statistics.opcodes
    frames = counts["frames"].tolist()
    for code in sorted(range(256), key=lambda code: -frames[code]):
        if frames[code]:
            size, payload = int(counts["bytes"][code]), int(counts["payload"][code])
            name = opcode.opcode_word(code)
            yield report.OpcodeCount(frames[code], size, payload, code, name)


def _rdmap_opcodes(statistics: Statistics) -> Iterator[report.RDMAPCount]:
    total: dict[int, int] = defaultdict(int)
    for stream in statistics.streams.streams.values():
        for code, count in stream.opcodes.items():
            total[code] += count
    for code in sorted(total, key=lambda code: -total[code]):
        yield report.RDMAPCount(total[code], code, _rdmap_word(code))


def _rdmap_word(code: int) -> str:
    return rdmap.opcode_word(code) if code >= 0 else "NONE"


def _flows(statistics: Statistics) -> Iterator[report.FlowReport]:
    back = statistics.pairing.pairs(statistics.flows)
    syndromes: dict[int, dict[int, int]] = defaultdict(dict)
    for (flow, syndrome), count in statistics.flows.syndromes.items():
        syndromes[flow][syndrome] = count
    numbers = [*range(len(statistics.flows.keys))]
    numbers += [REST] if statistics.flows.counts["frames"][REST] else []
    for number in numbers:
        yield _flow(statistics, number, back.get(number, -1), syndromes[number])


def _flow(
    statistics: Statistics, number: int, back: int, syndromes: dict[int, int]
) -> report.FlowReport:
    flows = statistics.flows
    counts = {name: int(each[number]) for name, each in flows.counts.items()}
    mtu = path_mtu(flows, number, back)
    ends = _ends(statistics, number, back)
    return report.FlowReport(
        frames=counts["frames"],
        bytes=counts["bytes"],
        payload=counts["payload"],
        source=ends.source,
        destination=ends.destination,
        qp=ends.qp,
        ee_context=ends.ee_context,
        source_qp=ends.source_qp,
        back=back if back >= 0 else None,
        services=_services(int(flows.services[number])),
        path_mtu=mtu or None,
        first_ns=int(flows.first_ns[number]),
        last_ns=int(flows.last_ns[number]),
        requests=_requests(statistics, number, mtu, back),
        responses=_responses(flows, number, syndromes),
        cnps=counts["cnps"],
        ecn_ce=counts["marked"],
    )


class _FlowEnds(NamedTuple):
    """The ends of a flow: both addresses, the destination QP or EE context, the source QP."""

    source: str
    destination: str
    qp: int | None
    ee_context: int | None
    source_qp: int | None


def _ends(statistics: Statistics, number: int, back: int) -> _FlowEnds:
    if number == REST:
        return _FlowEnds(OTHER, OTHER, None, None, None)
    key = statistics.flows.keys[number]
    pair = statistics.addresses.pairs[key.pair]
    is_context = key.destination >= EE_CONTEXT
    destination = key.destination % EE_CONTEXT
    back_qp = statistics.flows.keys[back].destination % EE_CONTEXT if back >= 0 else None
    if is_context:
        return _FlowEnds(*pair, None, destination, key.source or None)
    return _FlowEnds(*pair, destination, None, key.source or back_qp)


def _services(mask: int) -> list[str]:
    return [service.name for service in opcode.Service if mask >> service & 1]


def _psn(value: int) -> int | None:
    return value if value >= 0 else None


def _requests(statistics: Statistics, number: int, mtu: int, back: int) -> report.Requests:
    flows = statistics.flows
    counts = statistics.requests.counts(number, mtu, largest_payload(flows, number, back))
    frames = int(flows.counts["requests"][number] + flows.counts["datagrams"][number])
    first, last = (int(flows.psns[f"{end}_request"][number]) for end in ("first", "last"))
    return report.Requests(frames, _psn(first), _psn(last), **counts)


def _responses(flows: Flows, number: int, syndromes: dict[int, int]) -> report.Responses:
    first, last = (int(flows.psns[f"{end}_response"][number]) for end in ("first", "last"))
    naks: dict[str, int] = {}
    rnr_naks = []
    for syndrome, count in sorted(syndromes.items()):
        type_, value = divmod(syndrome, 1 << VALUE_BITS)
        if type_ == Ack.RNR_NAK:
            rnr_naks.append(report.RNR(value, RNR_TIMER_NS[value], count))
        else:
            naks[_nak_word(type_, value)] = count
    frames, acks = int(flows.counts["responses"][number]), int(flows.counts["acks"][number])
    return report.Responses(frames, _psn(first), _psn(last), acks, naks, rnr_naks)


def _nak_word(type_: int, code: int) -> str:
    if type_ == Ack.NAK and code in list(Nak):
        return Nak(code).name
    return f"RESERVED syndrome 0x{type_ << VALUE_BITS | code:02x}"


def _stream(direction: TcpDirection, counts: StreamCounts) -> report.StreamReport:
    values = {each.name: getattr(counts, each.name) for each in fields(counts)}
    values["opcodes"] = {_rdmap_word(code): n for code, n in counts.opcodes.most_common()}
    values |= {"crc": dict(counts.crc), "terminates": dict(counts.terminates)}
    return report.StreamReport(**direction._asdict(), **values)


def _endpoints(
    flows: list[report.FlowReport], streams: list[report.StreamReport]
) -> list[report.Endpoint]:
    sent: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    received: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    both: list[report.FlowReport | report.StreamReport] = [*flows, *streams]
    for each in both:
        for counts in (sent[each.source], received[each.destination]):
            for at, value in enumerate((each.frames, each.bytes, each.payload)):
                counts[at] += value
    names = sorted({*sent, *received}, key=lambda name: (-sent[name][1] - received[name][1], name))
    return [
        report.Endpoint(name, report.Total(*sent[name]), report.Total(*received[name]))
        for name in names
    ]
