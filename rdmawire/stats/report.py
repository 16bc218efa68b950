"""The report of statistics: values for tables, JSON and pictures.

``frames`` and ``bytes`` are counted as on the wire. Times are in ns since the epoch.
"""

from dataclasses import dataclass, fields
from typing import Any

from rdmawire.units import SECOND


@dataclass(frozen=True, slots=True)
class Total:
    """Frames, their bytes on the wire, and their bytes of payload."""

    frames: int
    bytes: int
    payload: int


@dataclass(frozen=True, slots=True)
class OpcodeCount(Total):
    """The frames of one opcode of the InfiniBand transport."""

    opcode: int
    name: str


@dataclass(frozen=True, slots=True)
class RDMAPCount:
    """The FPDUs with one RDMAP opcode; -1 for those truncated before it."""

    fpdus: int
    opcode: int
    name: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """RDMA traffic that an address sent and received."""

    address: str
    sent: Total
    received: Total


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a flow; the counts are explained in :mod:`.psn_sequence`.

    ``first_psn`` and ``last_psn`` are the PSNs of the first and the last request in the capture.
    PSNs of UD need not be consecutive: its counts are 0.
    """

    frames: int
    first_psn: int | None
    last_psn: int | None
    duplicates: int
    gaps: int
    missing: int
    late: int
    filled: int
    restarts: int


@dataclass(frozen=True, slots=True)
class RNR:
    """RNR NAKs with one timer, and the minimum wait that it demands."""

    timer: int
    wait_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses of a flow: PSNs as in :class:`Requests`, NAKs by code."""

    frames: int
    first_psn: int | None
    last_psn: int | None
    acks: int
    naks: dict[str, int]
    rnr_naks: list[RNR]


@dataclass(frozen=True, slots=True)
class FlowReport(Total):
    """One direction of a connection, identified by its destination queue pair.

    ``qp`` is that queue pair; RD has an ``ee_context`` instead; both are ``None`` in the flow that
    counts all others. ``source_qp`` is the sender's queue pair if it is known; ``back`` is the
    index of the reverse flow in the report.
    """

    source: str
    destination: str
    qp: int | None
    ee_context: int | None
    source_qp: int | None
    back: int | None
    services: list[str]
    path_mtu: int | None
    first_ns: int
    last_ns: int
    requests: Requests
    responses: Responses
    cnps: int
    ecn_ce: int


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One direction of a TCP connection that carries iWARP.

    ``bytes`` is the bytes of frames that carry iWARP, ``fpdu_bytes`` those of FPDUs from length
    to CRC, without Markers. ``crc`` counts FPDUs as good, bad, absent and truncated.
    """

    source: str
    source_port: int
    destination: str
    destination_port: int
    frames: int
    bytes: int
    fpdus: int
    fpdu_bytes: int
    payload: int
    opcodes: dict[str, int]
    crc: dict[str, int]
    terminates: dict[str, int]
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Sums over intervals of ``interval_ns``, from ``start_ns`` on."""

    start_ns: int
    interval_ns: int
    frames: list[int]
    bytes: list[int]
    payload: list[int]
    other_bytes: list[int]


@dataclass(frozen=True, slots=True)
class Report:
    """Statistics of a capture, or of several together."""

    files: list[str]
    frames: int
    bytes: int
    first_ns: int
    last_ns: int
    transport: Total
    iwarp: Total
    other: Total
    opcodes: list[OpcodeCount]
    rdmap_opcodes: list[RDMAPCount]
    endpoints: list[Endpoint]
    flows: list[FlowReport]
    streams: list[StreamReport]
    throughput: Throughput

    @property
    def seconds(self) -> float:
        """Seconds from the first frame to the last one."""
        return (self.last_ns - self.first_ns) / SECOND


def shallow(value: Any) -> dict[str, Any]:
    """Return a value of this module as a dict, one level deep: a ``default`` for JSON encoders."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
