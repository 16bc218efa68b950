"""A report as tables of text."""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from rdmawire.stats.report import (
    Endpoint,
    FlowReport,
    OpcodeCount,
    RDMAPCount,
    Report,
    StreamReport,
    Throughput,
    Total,
)
from rdmawire.terminal import escape
from rdmawire.units import format_duration, format_rate, format_seconds


class ReportColumn(NamedTuple):
    """A column of a table; numbers are aligned right."""

    name: str
    is_number: bool = True


class ReportTable(NamedTuple):
    """A table: its title, columns and rows, and the number of omitted rows.

    The first ``keys`` columns identify a row.
    """

    title: str
    columns: list[ReportColumn]
    rows: list[list[str]]
    left_out: int
    keys: int

    def select(self, chosen: list[int]) -> "ReportTable":
        """Return the table with some of its columns, by index."""
        rows = [[row[at] for at in chosen] for row in self.rows]
        return self._replace(columns=[self.columns[at] for at in chosen], rows=rows)


_TOTAL = [ReportColumn("frames"), ReportColumn("bytes"), ReportColumn("payload")]


def heading(report: Report) -> str:
    """Return one line on a capture: its files, frames, bytes and duration."""
    parts = ((report.transport, "RoCE or InfiniBand"), (report.iwarp, "iWARP"))
    counts = [f"{total.frames} {name}" for total, name in parts if total.frames]
    counts += [f"{report.other.frames} other"]
    length = format_duration(report.last_ns - report.first_ns)
    names = ", ".join(escape(name) for name in report.files)
    return f"{names}: {report.frames} frames, {report.bytes} bytes in {length}: {', '.join(counts)}"


def tables(report: Report, throughput: Throughput, top: int) -> Iterator[ReportTable]:
    """Yield all tables that have rows, each with at most ``top``, 0 for all.

    The table of ``throughput`` has all of its intervals.
    """
    flows = _largest(report.flows)
    streams = sorted(report.streams, key=lambda each: -each.bytes)
    for keys, title, columns, rows in (
        (1, "opcodes", _OPCODES, map(_opcode, report.opcodes)),
        (1, "RDMAP opcodes", _RDMAP, map(_rdmap, report.rdmap_opcodes)),
        (1, "endpoints", _ENDPOINTS, map(_endpoint, report.endpoints)),
        (4, "queue pairs", _QUEUE_PAIRS, map(_flow, flows)),
        (3, "NAKs", _NAKS, chain.from_iterable(map(_naks, flows))),
        (2, "iWARP streams", _STREAMS, map(_stream, streams)),
        (2, "Terminates", _TERMINATES, chain.from_iterable(map(_terminates, streams))),
    ):
        if shown := list(islice(rows, top or None)):
            yield ReportTable(title, columns, shown, sum(1 for _ in rows), keys)
    if rates := list(_throughput(throughput)):
        title = f"throughput, each {format_duration(throughput.interval_ns)}"
        yield ReportTable(title, _THROUGHPUT, rates, 0, 1)


def _largest(flows: list[FlowReport]) -> list[FlowReport]:
    """Return the largest first; each is followed by its reverse flow."""
    seen: set[int] = set()
    found = []
    for number in sorted(range(len(flows)), key=lambda number: -flows[number].bytes):
        for each in (number, flows[number].back):
            if each is not None and each not in seen:
                seen.add(each)
                found.append(flows[each])
    return found


_OPCODES = [ReportColumn("opcode", False), *_TOTAL]


def _opcode(each: OpcodeCount) -> list[str]:
    known = each.name not in ("RESERVED", "VENDOR")
    return [each.name if known else f"{each.name} 0x{each.opcode:02x}", *_total(each)]


def _total(each: Total) -> list[str]:
    return [str(each.frames), str(each.bytes), str(each.payload)]


_RDMAP = [ReportColumn("opcode", False), ReportColumn("FPDUs")]


def _rdmap(each: RDMAPCount) -> list[str]:
    return [each.name, str(each.fpdus)]


_ENDPOINTS = [
    ReportColumn("address", False),
    *(
        ReportColumn(f"{direction} {column.name}")
        for direction in ("sent", "received")
        for column in _TOTAL
    ),
]


def _endpoint(each: Endpoint) -> list[str]:
    return [each.address, *_total(each.sent), *_total(each.received)]


def _number(qp: int | None) -> str:
    return "?" if qp is None else f"0x{qp:06x}"


def _queue(flow: FlowReport) -> str:
    if flow.ee_context is not None:
        return f"EE 0x{flow.ee_context:06x}"
    return _number(flow.qp)


_FLOW: list[tuple[ReportColumn, Callable[[FlowReport], str]]] = [
    (ReportColumn("source", False), lambda flow: flow.source),
    (ReportColumn("QP", False), lambda flow: _number(flow.source_qp)),
    (ReportColumn("destination", False), lambda flow: flow.destination),
    (ReportColumn("QP", False), _queue),
    (ReportColumn("service", False), lambda flow: " ".join(flow.services)),
    (ReportColumn("frames"), lambda flow: str(flow.frames)),
    (ReportColumn("bytes"), lambda flow: str(flow.bytes)),
    (ReportColumn("payload"), lambda flow: str(flow.payload)),
    (
        ReportColumn("first PSN"),
        lambda flow: _psn(flow.requests.first_psn, flow.responses.first_psn),
    ),
    (ReportColumn("last PSN"), lambda flow: _psn(flow.requests.last_psn, flow.responses.last_psn)),
    (ReportColumn("dup"), lambda flow: str(flow.requests.duplicates)),
    (ReportColumn("gaps"), lambda flow: str(flow.requests.gaps)),
    (ReportColumn("missing"), lambda flow: str(flow.requests.missing)),
    (ReportColumn("late"), lambda flow: str(flow.requests.late)),
    (ReportColumn("NAK"), lambda flow: str(sum(flow.responses.naks.values()))),
    (ReportColumn("RNR"), lambda flow: str(sum(rnr.count for rnr in flow.responses.rnr_naks))),
    (ReportColumn("CNP"), lambda flow: str(flow.cnps)),
    (ReportColumn("CE"), lambda flow: str(flow.ecn_ce)),
]
"""The columns of the table of queue pairs, and the functions for their cells."""

_QUEUE_PAIRS = [column for column, _ in _FLOW]


def _flow(each: FlowReport) -> list[str]:
    return [write(each) for _, write in _FLOW]


def _psn(request: int | None, response: int | None) -> str:
    """Return the PSN of requests; without requests, that of responses in brackets."""
    if request is not None:
        return str(request)
    return "" if response is None else f"({response})"


_NAKS = [
    *(ReportColumn("from", False), ReportColumn("to", False), ReportColumn("QP", False)),
    *(ReportColumn("NAK", False), ReportColumn("count")),
]


def _naks(flow: FlowReport) -> Iterator[list[str]]:
    ends = [flow.source, flow.destination, _queue(flow)]
    for name, count in flow.responses.naks.items():
        yield [*ends, name, str(count)]
    for rnr in flow.responses.rnr_naks:
        name = f"RNR, timer {rnr.timer}, {format_duration(rnr.wait_ns)}"
        yield [*ends, name, str(rnr.count)]


_CRCS = ("good", "bad", "absent", "truncated")
_STREAMS = [
    *(
        ReportColumn("source", False),
        ReportColumn("destination", False),
        *_TOTAL,
        ReportColumn("FPDUs"),
    ),
    *(ReportColumn(f"CRC {state}" if state != "truncated" else state) for state in _CRCS),
    ReportColumn("Terminates"),
]


def _stream(each: StreamReport) -> list[str]:
    crc = [str(each.crc.get(state, 0)) for state in _CRCS]
    counts = [str(n) for n in (each.frames, each.bytes, each.payload, each.fpdus)]
    return [*_sockets(each), *counts, *crc, str(sum(each.terminates.values()))]


def _sockets(each: StreamReport) -> list[str]:
    ends = ((each.source, each.source_port), (each.destination, each.destination_port))
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in ends]


_TERMINATES = [
    ReportColumn("source", False),
    ReportColumn("destination", False),
    ReportColumn("reason", False),
    ReportColumn("count"),
]


def _terminates(each: StreamReport) -> Iterator[list[str]]:
    for reason, count in each.terminates.items():
        yield [*_sockets(each), reason, str(count)]


_THROUGHPUT = [
    *(
        ReportColumn("from"),
        ReportColumn("RDMA frames"),
        ReportColumn("RDMA bytes"),
        ReportColumn("payload"),
    ),
    *(ReportColumn("RDMA rate"), ReportColumn("other bytes")),
]


def _throughput(found: Throughput) -> Iterator[list[str]]:
    columns = zip(found.frames, found.bytes, found.payload, found.other_bytes, strict=True)
    for number, (frames, data, payload, other) in enumerate(columns):
        since = format_seconds(number * found.interval_ns)
        counts = [str(n) for n in (frames, data, payload)]
        yield [since, *counts, format_rate(data, found.interval_ns), str(other)]
