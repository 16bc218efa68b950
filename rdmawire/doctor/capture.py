"""Checks of a capture: what its frames say of losses, pauses, marks, keys and memory."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from rdmawire.columns import iter_columns
from rdmawire.doctor.finding import Check, Finding, Severity, Subject, findings
from rdmawire.stats import Statistics, report_of
from rdmawire.stats.report import FlowReport, Report
from rdmawire.terminal import plural
from rdmawire.wire.cm import RejectReason

_MANY_QPS: Final = 8
_FIELDS: Final = (
    "frame.number", "ip.src", "ip.dst", "ip.dsfield.dscp", "ipv6.tclass.dscp", "vlan.priority",
    "udp.srcport", "infiniband.bth.opcode", "infiniband.bth.destqp", "rdmawire.icrc.status",
    "macc.cbfc.enbv", "infiniband.cm.rej.reason", "rdmawire.vcrc.status", "rdmawire.malformed",
)  # fmt: skip
_CNP: Final = 0x81
_PRIORITY_SHIFT: Final = 3


class Frames(NamedTuple):
    """Counts of frames that statistics do not have.

    ``bad_icrcs``, ``bad_vcrcs`` and ``malformed`` are numbers of frames. ``priorities`` of RDMA are
    those of VLAN tags, else of the class selector of the DSCP, with their frames; ``paused`` those
    that PFC pauses. ``ports`` are the UDP source ports and queue pairs between two addresses.
    """

    bad_icrcs: list[int]
    bad_vcrcs: list[int]
    malformed: list[int]
    priorities: Counter[int]
    cnp_priorities: Counter[int]
    paused: Counter[int]
    rejects: Counter[int]
    ports: dict[tuple[int, int], tuple[set[int], set[int]]]


class CaptureFacts(NamedTuple):
    """A capture: its statistics and counts of its frames."""

    report: Report
    frames: Frames


def read_capture(path: str | Path) -> CaptureFacts:
    """Read a capture; :class:`~rdmawire.errors.CaptureError` if it is damaged."""
    statistics = Statistics()
    statistics.read(path)
    frames = Frames([], [], [], Counter(), Counter(), Counter(), Counter(), {})
    for block in iter_columns(path, list(_FIELDS)):
        _count(block, frames)
    return CaptureFacts(report_of(statistics, [str(path)]), frames)


def _count(block: Any, frames: Frames) -> None:
    """Count the frames of a block of columns."""
    numbers = block["frame.number"].values
    for found, name in ((frames.bad_icrcs, "icrc"), (frames.bad_vcrcs, "vcrc")):
        status = block[f"rdmawire.{name}.status"]
        found.extend(numbers[status.valid & (status.values == "bad")].tolist())
    frames.malformed.extend(numbers[block["rdmawire.malformed"].valid].tolist())
    rejects = block["infiniband.cm.rej.reason"]
    frames.rejects.update(rejects.values[rejects.valid].tolist())
    pauses = block["macc.cbfc.enbv"]
    for mask in pauses.values[pauses.valid].tolist():
        frames.paused.update(bit for bit in range(8) if mask >> bit & 1)
    opcode = block["infiniband.bth.opcode"]
    is_cnp = opcode.valid & (opcode.values == _CNP)
    for counter, chosen in (
        (frames.priorities, opcode.valid & ~is_cnp),
        (frames.cnp_priorities, is_cnp),
    ):
        counter.update(_priorities(block, chosen))
    _count_ports(block, opcode.valid & ~is_cnp, frames)


def _priorities(block: Any, chosen: Any) -> Iterator[int]:
    """Yield the priorities of frames."""
    tag = block["vlan.priority"]
    yield from tag.values[chosen & tag.valid].tolist()
    for name in ("ip.dsfield.dscp", "ipv6.tclass.dscp"):
        dscp = block[name]
        values = dscp.values[chosen & dscp.valid & ~tag.valid]
        yield from (values >> _PRIORITY_SHIFT).tolist()


def _count_ports(block: Any, chosen: Any, frames: Frames) -> None:
    source, target, port = block["ip.src"], block["ip.dst"], block["udp.srcport"]
    number = block["infiniband.bth.destqp"]
    rows = chosen & source.valid & target.valid & port.valid & number.valid
    names = (source, target, port, number)
    for one, other, used, qpn in set(
        zip(*(part.values[rows].tolist() for part in names), strict=True)
    ):
        ports, numbers = frames.ports.setdefault((one, other), (set(), set()))
        ports.add(used)
        numbers.add(qpn)


# The checks.


def _name(flow: FlowReport) -> str:
    queue = "several queue pairs" if flow.qp is None else f"queue pair {flow.qp:#x}"
    return f"{flow.source} to {flow.destination}, {queue}"


def _naks(facts: CaptureFacts, word: str) -> Iterator[str]:
    for flow in facts.report.flows:
        for name, count in flow.responses.naks.items():
            if word in name.lower().replace("_", " "):
                yield f"{_name(flow)}: {plural(count, 'NAK')} ({name})"


def _sequence(facts: CaptureFacts) -> Iterator[str]:
    yield from _naks(facts, "sequence")


def _invalid(facts: CaptureFacts) -> Iterator[str]:
    yield from _naks(facts, "invalid request")


def _access(facts: CaptureFacts) -> Iterator[str]:
    yield from _naks(facts, "access")


def _operational(facts: CaptureFacts) -> Iterator[str]:
    yield from _naks(facts, "operational")


def _not_ready(facts: CaptureFacts) -> Iterator[str]:
    for flow in facts.report.flows:
        for rnr in flow.responses.rnr_naks:
            wait = rnr.wait_ns / 1e6
            yield f"{_name(flow)}: {plural(rnr.count, 'RNR NAK')}, each demands {wait:g} ms"


def _unanswered(facts: CaptureFacts) -> Iterator[str]:
    flows = facts.report.flows
    for flow in flows:
        again = flow.requests.duplicates
        answers = flows[flow.back].responses if flow.back is not None else None
        is_reliable = "RC" in flow.services
        if is_reliable and again > 1 and (answers is None or not answers.frames):
            yield f"{_name(flow)}: {plural(again, 'request')} sent again, and no response at all"


def _timeouts(facts: CaptureFacts) -> Iterator[str]:
    flows = facts.report.flows
    for flow in flows:
        answers = flows[flow.back].responses if flow.back is not None else None
        if answers is None or not answers.frames or answers.rnr_naks:
            continue
        asked = any("SEQUENCE" in name.upper() for name in answers.naks)
        if flow.requests.duplicates and not asked:
            yield f"{_name(flow)}: {plural(flow.requests.duplicates, 'request')} sent again, no NAK"


def _reordered(facts: CaptureFacts) -> Iterator[str]:
    for flow in facts.report.flows:
        if flow.requests.late:
            yield f"{_name(flow)}: {plural(flow.requests.late, 'request')} after later ones"


def _icrcs(facts: CaptureFacts) -> Iterator[str]:
    for number in facts.frames.bad_icrcs:
        yield f"frame {number}"


def _vcrcs(facts: CaptureFacts) -> Iterator[str]:
    for number in facts.frames.bad_vcrcs:
        yield f"frame {number}"


def _malformed(facts: CaptureFacts) -> Iterator[str]:
    for number in facts.frames.malformed:
        yield f"frame {number}"


def _wrong_priority(facts: CaptureFacts) -> Iterator[str]:
    frames = facts.frames
    if frames.paused and frames.priorities and not frames.paused.keys() & frames.priorities.keys():
        paused, used = (_listed(counter) for counter in (frames.paused, frames.priorities))
        yield f"PFC pauses priority {paused}, RDMA is in priority {used}"


def _listed(counter: Counter[int]) -> str:
    return ", ".join(map(str, sorted(counter)))


def _unmarked(facts: CaptureFacts) -> Iterator[str]:
    flows = facts.report.flows
    for flow in flows:
        answers = flows[flow.back].cnps if flow.back is not None else 0
        if flow.ecn_ce and not answers:
            yield f"{_name(flow)}: {plural(flow.ecn_ce, 'marked frame')}, and no CNP back"


def _slow_cnps(facts: CaptureFacts) -> Iterator[str]:
    cnps, data = facts.frames.cnp_priorities, facts.frames.priorities
    if cnps and data and max(cnps) < max(data):
        yield f"CNPs are in priority {_listed(cnps)}, data in {_listed(data)}"


def _untrusted(facts: CaptureFacts) -> Iterator[str]:
    is_default = facts.frames.priorities.keys() == {0}
    if is_default and any(_sequence(facts)):
        yield "packets were lost, and all RDMA has a DSCP below 8 and no VLAN priority"


def _one_port(facts: CaptureFacts) -> Iterator[str]:
    for (source, target), (ports, numbers) in facts.frames.ports.items():
        if len(numbers) >= _MANY_QPS and len(ports) == 1:
            ends = f"{_address(source)} to {_address(target)}"
            yield f"{ends}: {len(numbers)} queue pairs, UDP source port {min(ports)}"


def _address(number: int) -> str:
    return ".".join(map(str, number.to_bytes(4, "big")))


def _rejected(facts: CaptureFacts) -> Iterator[str]:
    known = {int(reason): reason.name for reason in RejectReason}
    for reason, count in sorted(facts.frames.rejects.items()):
        yield f"{plural(count, 'REJ')}: {known.get(reason, f'reason {reason}')}"


def _terminated(facts: CaptureFacts) -> Iterator[str]:
    for stream in facts.report.streams:
        for name, count in stream.terminates.items():
            yield f"{stream.source} to {stream.destination}: {plural(count, 'Terminate')}, {name}"


def _bad_crcs(facts: CaptureFacts) -> Iterator[str]:
    for stream in facts.report.streams:
        if bad := stream.crc.get("bad", 0):
            yield f"{stream.source} to {stream.destination}: {plural(bad, 'FPDU')}"


_CAPTURE: Final = Subject.CAPTURE
_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

CAPTURE_CHECKS: Final = (
    Check(
        "loss", _CAPTURE, _ERROR,
        "packets were lost: responders ask for them by NAKs of sequence errors",
        "look for drops at switch ports (PFC and buffers of this priority) and for bad cables",
        "IBA 9.7.5.2.8", _sequence,
    ),
    Check(
        "tail-loss", _CAPTURE, _ERROR,
        "requests were sent again after a timeout: last packets or responses were lost",
        "look for drops as above; a shorter local ACK timeout makes the wait shorter",
        "IBA 9.7.6.1.3", _timeouts,
    ),
    Check(
        "no-answer", _CAPTURE, _ERROR,
        "the peer does not answer: requests are repeated until the retry count is exceeded",
        "see whether the peer's queue pair is in RTR or RTS, and whether its address is right",
        "IBA 9.7.6.1.3", _unanswered,
    ),
    Check(
        "receiver-not-ready", _CAPTURE, _WARNING,
        "the receiver has no receive posted when messages arrive",
        "post more receives, or an SRQ with a limit; a shorter RNR timer makes the wait shorter",
        "IBA 9.7.5.2.8", _not_ready,
    ),
    Check(
        "remote-access", _CAPTURE, _ERROR,
        "a key, an address or a right was refused: often memory that was freed or never registered",
        "compare the RETH of the request before each NAK with the registration at the peer",
        "IBA 9.7.5.2.4", _access,
    ),
    Check(
        "invalid-request", _CAPTURE, _ERROR,
        "a request was refused: too long for its receive, or not allowed on this queue pair",
        "compare the length with the posted receive, and the opcode with the queue pair's rights",
        "IBA 9.7.5.2.5", _invalid,
    ),
    Check(
        "remote-operation", _CAPTURE, _ERROR,
        "the peer could not do a valid request", "look for errors of memory or the adapter there",
        "IBA 9.7.5.2.6", _operational,
    ),
    Check(
        "reordered", _CAPTURE, _WARNING,
        "packets of one queue pair arrive out of order: go-back-N repeats what was not lost",
        "turn adaptive routing or packet spraying off for this traffic, or use adapters that "
        "accept it",
        "IBA 9.7.1", _reordered,
    ),
    Check(
        "bad-icrc", _CAPTURE, _ERROR,
        "frames are damaged: the ICRC is bad", "replace cables and transceivers on the way",
        "IBA 9.2.1", _icrcs,
    ),
    Check(
        "bad-vcrc", _CAPTURE, _ERROR,
        "packets are damaged on a link: the VCRC is bad",
        "replace cables and transceivers of the link before the capture", "IBA 7.8.2", _vcrcs,
    ),
    Check(
        "malformed", _CAPTURE, _ERROR,
        "frames cannot be parsed: lengths or headers contradict each other",
        "rdmawire dissect -V shows what does not fit; look for software that builds frames",
        "IBA 9.6.1", _malformed,
    ),
    Check(
        "pfc-on-wrong-priority", _CAPTURE, _ERROR,
        "PFC pauses a priority that RDMA does not use",
        "let DSCP or PCP of RDMA map to the priority with PFC, at hosts and switches",
        "IEEE 802.1Q, 36", _wrong_priority,
    ),
    Check(
        "dscp-not-set", _CAPTURE, _WARNING,
        "RDMA is in the default class, where switches drop frames",
        "set the traffic class (NCCL_IB_TC, --tclass, cma_roce_tos) and trust DSCP at the ports",
        "IEEE 802.1Q, 36", _untrusted,
    ),
    Check(
        "marks-without-cnp", _CAPTURE, _WARNING,
        "switches mark frames, and the receiver sends no CNP: the sender does not slow down",
        "enable ECN (the notification point) for this priority at the receiver",
        "IBA A17.9", _unmarked,
    ),
    Check(
        "cnp-in-low-priority", _CAPTURE, _WARNING,
        "CNPs are in a lower priority than data, and wait behind it",
        "give CNPs a priority of their own, above that of data (cnp_dscp, cnp_802p_prio)",
        "DCQCN, SIGCOMM 2015", _slow_cnps,
    ),
    Check(
        "one-source-port", _CAPTURE, _WARNING,
        "all queue pairs use one UDP source port, so that equal-cost paths cannot share them",
        "set flow labels, or let the adapter take the source port from the queue pairs",
        "IBA A17.9.1.1", _one_port,
    ),
    Check(
        "rejected", _CAPTURE, _ERROR,
        "a connection was rejected by the connection manager",
        "the reason says which of service, resources or parameters it was",
        "IBA 12.6.7.2", _rejected,
    ),
    Check(
        "terminated", _CAPTURE, _ERROR,
        "an iWARP stream was terminated by an error", "the error says which layer refused what",
        "RFC 5040, 4.8", _terminated,
    ),
    Check(
        "bad-crc", _CAPTURE, _ERROR,
        "FPDUs are damaged: the CRC of MPA is bad", "replace cables and transceivers on the way",
        "RFC 5044, 4.4", _bad_crcs,
    ),
)  # fmt: skip
"""Checks of a capture."""


def examine_capture(path: str | Path) -> list[Finding]:
    """Return what a capture shows; :class:`~rdmawire.errors.CaptureError` if it is damaged."""
    return findings(CAPTURE_CHECKS, read_capture(path))
