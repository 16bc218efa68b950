"""A report as tables of text."""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from rdmawire.stats.report import (
    Endpoint,
    Flow,
    OpcodeCount,
    RDMAPCount,
    Report,
    Stream,
    Throughput,
    Total,
)
from rdmawire.terminal import escape
from rdmawire.units import format_duration, format_rate, format_seconds


class Head(NamedTuple):
    """The head of a column; numbers stand to the right."""

    name: str
    is_number: bool = True


class Table(NamedTuple):
    """A table: its title, the heads of its columns, the rows, and how many rows are left out.

    The first ``keys`` columns say what a row is about.
    """

    title: str
    heads: list[Head]
    rows: list[list[str]]
    left_out: int
    keys: int

    def columns(self, chosen: list[int]) -> "Table":
        """Some of the columns."""
        rows = [[row[at] for at in chosen] for row in self.rows]
        return self._replace(heads=[self.heads[at] for at in chosen], rows=rows)


_TOTAL = [Head("frames"), Head("bytes"), Head("payload")]


def heading(report: Report) -> str:
    """What a capture is, in one line."""
    parts = ((report.transport, "RoCE or InfiniBand"), (report.iwarp, "iWARP"))
    said = [f"{total.frames} {name}" for total, name in parts if total.frames]
    said += [f"{report.other.frames} other"]
    length = format_duration(report.last_ns - report.first_ns)
    names = ", ".join(escape(name) for name in report.files)
    return f"{names}: {report.frames} frames, {report.bytes} bytes in {length}: {', '.join(said)}"


def tables(report: Report, throughput: Throughput, top: int) -> Iterator[Table]:
    """All tables that have rows; ``top`` rows at most of each, but of throughput; 0 for all."""
    flows = _largest(report.flows)
    streams = sorted(report.streams, key=lambda each: -each.bytes)
    for keys, title, heads, rows in (
        (1, "opcodes", _OPCODES, map(_opcode, report.opcodes)),
        (1, "RDMAP opcodes", _RDMAP, map(_rdmap, report.rdmap_opcodes)),
        (1, "endpoints", _ENDPOINTS, map(_endpoint, report.endpoints)),
        (4, "queue pairs", _QUEUE_PAIRS, map(_flow, flows)),
        (3, "NAKs", _NAKS, chain.from_iterable(map(_naks, flows))),
        (2, "iWARP streams", _STREAMS, map(_stream, streams)),
        (2, "Terminates", _TERMINATES, chain.from_iterable(map(_terminates, streams))),
    ):
        if shown := list(islice(rows, top or None)):
            yield Table(title, heads, shown, sum(1 for _ in rows), keys)
    if rates := list(_throughput(throughput)):
        title = f"throughput, each {format_duration(throughput.interval_ns)}"
        yield Table(title, _THROUGHPUT, rates, 0, 1)


def _largest(flows: list[Flow]) -> list[Flow]:
    """The largest first; each is followed by the flow back."""
    seen: set[int] = set()
    found = []
    for number in sorted(range(len(flows)), key=lambda number: -flows[number].bytes):
        for each in (number, flows[number].back):
            if each is not None and each not in seen:
                seen.add(each)
                found.append(flows[each])
    return found


_OPCODES = [Head("opcode", False), *_TOTAL]


def _opcode(each: OpcodeCount) -> list[str]:
    known = each.name not in ("RESERVED", "VENDOR")
    return [each.name if known else f"{each.name} 0x{each.opcode:02x}", *_total(each)]


def _total(each: Total) -> list[str]:
    return [str(each.frames), str(each.bytes), str(each.payload)]


_RDMAP = [Head("opcode", False), Head("FPDUs")]


def _rdmap(each: RDMAPCount) -> list[str]:
    return [each.name, str(each.fpdus)]


_ENDPOINTS = [
    Head("address", False),
    *(Head(f"{way} {head.name}") for way in ("sent", "received") for head in _TOTAL),
]


def _endpoint(each: Endpoint) -> list[str]:
    return [each.address, *_total(each.sent), *_total(each.received)]


def _number(qp: int | None) -> str:
    return "?" if qp is None else f"0x{qp:06x}"


def _queue(flow: Flow) -> str:
    if flow.ee_context is not None:
        return f"EE 0x{flow.ee_context:06x}"
    return _number(flow.qp)


_FLOW: list[tuple[Head, Callable[[Flow], str]]] = [
    (Head("source", False), lambda flow: flow.source),
    (Head("QP", False), lambda flow: _number(flow.source_qp)),
    (Head("destination", False), lambda flow: flow.destination),
    (Head("QP", False), _queue),
    (Head("service", False), lambda flow: " ".join(flow.services)),
    (Head("frames"), lambda flow: str(flow.frames)),
    (Head("bytes"), lambda flow: str(flow.bytes)),
    (Head("payload"), lambda flow: str(flow.payload)),
    (Head("first PSN"), lambda flow: _psn(flow.requests.first_psn, flow.responses.first_psn)),
    (Head("last PSN"), lambda flow: _psn(flow.requests.last_psn, flow.responses.last_psn)),
    (Head("dup"), lambda flow: str(flow.requests.duplicates)),
    (Head("gaps"), lambda flow: str(flow.requests.gaps)),
    (Head("missing"), lambda flow: str(flow.requests.missing)),
    (Head("late"), lambda flow: str(flow.requests.late)),
    (Head("NAK"), lambda flow: str(sum(flow.responses.naks.values()))),
    (Head("RNR"), lambda flow: str(sum(rnr.count for rnr in flow.responses.rnr_naks))),
    (Head("CNP"), lambda flow: str(flow.cnps)),
    (Head("CE"), lambda flow: str(flow.ecn_ce)),
]
"""The columns of the table of queue pairs, and what stands in them."""

_QUEUE_PAIRS = [head for head, _ in _FLOW]


def _flow(each: Flow) -> list[str]:
    return [write(each) for _, write in _FLOW]


def _psn(request: int | None, response: int | None) -> str:
    """The PSN of the requests; in brackets that of the responses, if there is nothing else."""
    if request is not None:
        return str(request)
    return "" if response is None else f"({response})"


_NAKS = [
    *(Head("from", False), Head("to", False), Head("QP", False)),
    *(Head("NAK", False), Head("count")),
]


def _naks(flow: Flow) -> Iterator[list[str]]:
    where = [flow.source, flow.destination, _queue(flow)]
    for name, count in flow.responses.naks.items():
        yield [*where, name, str(count)]
    for rnr in flow.responses.rnr_naks:
        said = f"RNR, timer {rnr.timer}, {format_duration(rnr.wait_ns)}"
        yield [*where, said, str(rnr.count)]


_CRCS = ("good", "bad", "absent", "torn")
_STREAMS = [
    *(Head("source", False), Head("destination", False), *_TOTAL, Head("FPDUs")),
    *(Head(f"CRC {state}" if state != "torn" else state) for state in _CRCS),
    Head("Terminates"),
]


def _stream(each: Stream) -> list[str]:
    crc = [str(each.crc.get(state, 0)) for state in _CRCS]
    counts = [str(n) for n in (each.frames, each.bytes, each.payload, each.fpdus)]
    return [*_sockets(each), *counts, *crc, str(sum(each.terminates.values()))]


def _sockets(each: Stream) -> list[str]:
    ends = ((each.source, each.source_port), (each.destination, each.destination_port))
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in ends]


_TERMINATES = [
    Head("source", False),
    Head("destination", False),
    Head("says", False),
    Head("count"),
]


def _terminates(each: Stream) -> Iterator[list[str]]:
    for said, count in each.terminates.items():
        yield [*_sockets(each), said, str(count)]


_THROUGHPUT = [
    *(Head("from"), Head("RDMA frames"), Head("RDMA bytes"), Head("payload")),
    *(Head("RDMA rate"), Head("other bytes")),
]


def _throughput(found: Throughput) -> Iterator[list[str]]:
    columns = zip(found.frames, found.bytes, found.payload, found.other_bytes, strict=True)
    for number, (frames, data, payload, other) in enumerate(columns):
        since = format_seconds(number * found.interval_ns)
        counts = [str(n) for n in (frames, data, payload)]
        yield [since, *counts, format_rate(data, found.interval_ns), str(other)]
