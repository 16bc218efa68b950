"""What statistics say in the end: values for tables, JSON and pictures.

Frames and octets are counted as on the wire. Times are nanoseconds since the epoch.
"""

from dataclasses import dataclass, fields
from typing import Any

from rdmawire.capture.record import SECOND


@dataclass(frozen=True, slots=True)
class Total:
    """Frames, their octets on the wire, and those of payload."""

    frames: int
    octets: int
    payload: int


@dataclass(frozen=True, slots=True)
class OpcodeCount(Total):
    """The frames of one opcode of the InfiniBand transport."""

    opcode: int
    name: str


@dataclass(frozen=True, slots=True)
class RDMAPCount:
    """The FPDUs with one opcode of RDMAP; -1 for those that break off before it."""

    fpdus: int
    opcode: int
    name: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What an address sent and received of RDMA."""

    address: str
    sent: Total
    received: Total


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a flow; the counts are explained in :mod:`.sequence`.

    ``first_psn`` and ``last_psn`` are those of the first and last one in the capture's order.
    UD's PSNs need not follow one another: its counts are zero.
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
    """RNR NAKs with one timer, and the least wait that it asks for."""

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
class Flow(Total):
    """One direction of a connection, told by the queue pair that it leads to.

    ``qp`` is that queue pair, ``ee_context`` is there instead for RD; all are ``None`` in the
    flow that holds what is not told apart. ``source_qp`` is the sender's, where it is known;
    ``back`` is the place of the flow back in the report.
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
class Stream:
    """One direction of a TCP connection that carries iWARP.

    ``octets`` are those of frames with iWARP in them, ``fpdu_octets`` those of FPDUs from length
    to CRC, without Markers. ``crc`` counts FPDUs by good, bad, absent and torn.
    """

    source: str
    source_port: int
    destination: str
    destination_port: int
    frames: int
    octets: int
    fpdus: int
    fpdu_octets: int
    payload: int
    opcodes: dict[str, int]
    crc: dict[str, int]
    terminates: dict[str, int]
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Sums over stretches of time of ``interval_ns`` each, from ``start_ns`` on."""

    start_ns: int
    interval_ns: int
    frames: list[int]
    octets: list[int]
    payload: list[int]
    other_octets: list[int]


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said of a capture, or of several together."""

    files: list[str]
    frames: int
    octets: int
    first_ns: int
    last_ns: int
    transport: Total
    iwarp: Total
    other: Total
    opcodes: list[OpcodeCount]
    rdmap_opcodes: list[RDMAPCount]
    endpoints: list[Endpoint]
    flows: list[Flow]
    streams: list[Stream]
    throughput: Throughput

    @property
    def seconds(self) -> float:
        """From the first frame to the last one."""
        return (self.last_ns - self.first_ns) / SECOND


def shallow(value: Any) -> dict[str, Any]:
    """A value of this module as an object of JSON, one level deep: a ``default`` for encoders."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
