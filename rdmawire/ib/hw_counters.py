"""Counters under the names that Linux drivers give them, as ``rdma statistic show`` prints them.

The bodies of :class:`QPCounters` and :class:`AdapterCounters` are the table: a row for each
counter, with its meaning and its names. ``mlx5`` is the name in ``hw_counters`` of mlx5_ib
(drivers/infiniband/hw/mlx5/counters.c; the meanings are those of NVIDIA's "Understanding mlx5 Linux
Counters and Status Parameters"), ``rxe`` that of soft-RoCE
(drivers/infiniband/sw/rxe/rxe_hw_counters.c), and ``port`` that of the standard's PortCounters (IBA
16.1.3.5), which Linux shows in ``counters``.

Rare events are counted when they happen; frames and bytes once per call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from rdmawire.ib.service import Fault
from rdmawire.verbs.enums import WCStatus

DATA_UNIT: Final = 4
"""Bytes per unit of a port's data counters. IBA 16.1.3.5."""

DRIVERS: Final = ("mlx5", "rxe", "port")
"""The drivers whose counter names are known, and the standard's PortCounters."""


def _row(meaning: str, *, mlx5: str = "", rxe: str = "", port: str = "") -> int:
    """A counter that begins at 0."""
    names = {"meaning": meaning, "mlx5": mlx5, "rxe": rxe, "port": port}
    row: int = field(default=0, metadata=names)
    return row


@dataclass(slots=True)
class QPCounters:
    """Counters of one queue pair. RESET does not clear them, as with mlx5."""

    rx_write_requests: int = _row("WRITE requests accepted.", mlx5="rx_write_requests")
    rx_read_requests: int = _row("READ requests accepted.", mlx5="rx_read_requests")
    rx_atomic_requests: int = _row(
        "Atomic requests accepted, including ATOMIC WRITE.", mlx5="rx_atomic_requests"
    )
    out_of_buffer: int = _row(
        "Requests for which no receive was posted: answered with an RNR NAK, or dropped.",
        mlx5="out_of_buffer",
    )
    out_of_sequence: int = _row(
        "Request packets with a PSN after the expected one: a packet before them was lost.",
        mlx5="out_of_sequence",
    )
    out_of_seq_request: int = _row(
        "NAKs with PSN Sequence Error sent: one for each gap.", rxe="out_of_seq_request"
    )
    duplicate_request: int = _row(
        "Duplicate request packets.", mlx5="duplicate_request", rxe="duplicate_request"
    )
    send_rnr_err: int = _row("RNR NAKs sent.", rxe="send_rnr_err")
    resp_local_length_error: int = _row(
        "Messages longer than the receive posted for them.", mlx5="resp_local_length_error"
    )
    resp_remote_access_errors: int = _row(
        "Requests refused because their key does not allow the access.",
        mlx5="resp_remote_access_errors",
    )
    resp_cqe_error: int = _row(
        "Receives that completed with an error, including flushed ones.", mlx5="resp_cqe_error"
    )
    resp_cqe_flush_error: int = _row("Receives that were flushed.", mlx5="resp_cqe_flush_error")
    rdma_recvs: int = _row("Receives that completed with success.", rxe="rdma_recvs")
    packet_seq_err: int = _row(
        "NAKs with PSN Sequence Error received, without those that moved the queue pair to ERR.",
        mlx5="packet_seq_err",
    )
    rcvd_seq_err: int = _row("NAKs with PSN Sequence Error received.", rxe="rcvd_seq_err")
    rnr_nak_retry_err: int = _row(
        "RNR NAKs received after which the queue pair retransmitted.", mlx5="rnr_nak_retry_err"
    )
    rcvd_rnr_err: int = _row("RNR NAKs received.", rxe="rcvd_rnr_err")
    implied_nak_seq_err: int = _row(
        "Implied NAKs: a response to later work showed that a READ or atomic response was lost.",
        mlx5="implied_nak_seq_err",
    )
    local_ack_timeout_err: int = _row(
        "Local ACK Timeouts after which the queue pair retransmitted.",
        mlx5="local_ack_timeout_err",
    )
    completer_retry_err: int = _row(
        "Retransmissions after a timeout, a NAK with PSN Sequence Error or an implied NAK.",
        rxe="completer_retry_err",
    )
    req_transport_retries_exceeded: int = _row(
        "Sends that failed because retry_cnt was exhausted.",
        mlx5="req_transport_retries_exceeded",
        rxe="retry_exceeded_err",
    )
    req_rnr_retries_exceeded: int = _row(
        "Sends that failed because rnr_retry was exhausted.",
        mlx5="req_rnr_retries_exceeded",
        rxe="retry_rnr_exceeded_err",
    )
    req_remote_invalid_request: int = _row(
        "Sends that failed with a NAK with Invalid Request.", mlx5="req_remote_invalid_request"
    )
    req_remote_access_errors: int = _row(
        "Sends that failed with a NAK with Remote Access Error.",
        mlx5="req_remote_access_errors",
    )
    req_cqe_error: int = _row(
        "Sends that completed with an error, including flushed ones.", mlx5="req_cqe_error"
    )
    req_cqe_flush_error: int = _row("Sends that were flushed.", mlx5="req_cqe_flush_error")
    rdma_sends: int = _row("SENDs that completed, with success or an error.", rxe="rdma_sends")
    np_ecn_marked_roce_packets: int = _row(
        "Packets received with the ECN mark Congestion Experienced.",
        mlx5="np_ecn_marked_roce_packets",
    )
    np_cnp_sent: int = _row("CNPs sent.", mlx5="np_cnp_sent")
    rp_cnp_handled: int = _row(
        "CNPs received by queue pairs with congestion control.", mlx5="rp_cnp_handled"
    )
    rp_cnp_ignored: int = _row(
        "CNPs received by queue pairs without congestion control.", mlx5="rp_cnp_ignored"
    )

    def add(self, other: "QPCounters") -> None:
        """Add the counters of another queue pair."""
        for name, count in zip(QP_COUNTERS, _counts(other), strict=True):
            if count:
                setattr(self, name, getattr(self, name) + count)

    def increment(self, *names: str) -> None:
        """Add one to each of these counters."""
        for name in names:
            setattr(self, name, getattr(self, name) + 1)

    def named(self, driver: str) -> dict[str, int]:
        """The counters of ``driver``, by its names for them.

        ``driver`` is one of :data:`DRIVERS`; ``KeyError`` for others. Those of :data:`NOT_COUNTED`
        are 0.
        """
        absent = dict.fromkeys(NOT_COUNTED[driver], 0)
        rows = ((row.metadata[driver], row.name) for row in fields(self))
        return {name: getattr(self, attribute) for name, attribute in rows if name} | absent


QP_COUNTERS: Final = tuple(row.name for row in fields(QPCounters))
"""The counters of a queue pair."""
_counts: Final = attrgetter(*QP_COUNTERS)


@dataclass(slots=True)
class AdapterCounters(QPCounters):
    """Counters of an adapter: sums over its queue pairs, and those of its port.

    A frame's bytes are those from its Ethernet header on, without the FCS.
    """

    rx_icrc_encapsulated: int = _row(
        "RoCE packets received with a bad ICRC.", mlx5="rx_icrc_encapsulated"
    )
    rcvd_pkts: int = _row(
        "RoCE packets received for this port whose headers and ICRC are good.", rxe="rcvd_pkts"
    )
    port_rcv_packets: int = _row(
        "Frames received, with or without errors.", port="port_rcv_packets"
    )
    port_rcv_data: int = _row("Bytes of frames received, divided by 4.", port="port_rcv_data")
    port_rcv_errors: int = _row(
        "Frames received that are malformed, or whose checksum or ICRC is bad.",
        port="port_rcv_errors",
    )
    port_xmit_packets: int = _row("Frames sent.", rxe="sent_pkts", port="port_xmit_packets")
    port_xmit_data: int = _row("Bytes of frames sent, divided by 4.", port="port_xmit_data")
    port_xmit_discards: int = _row(
        "Frames that were not sent because the port's link was down.",
        rxe="send_err",
        port="port_xmit_discards",
    )
    link_downed: int = _row(
        "How often the port's link went down.", rxe="link_downed", port="link_downed"
    )


ADAPTER_COUNTERS: Final = tuple(row.name for row in fields(AdapterCounters))
"""The counters of an adapter."""

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {row.name: row.metadata["meaning"] for row in fields(AdapterCounters)}
)
"""Meaning of each counter, by its name."""

_NO_SLOW_RESTART: Final = "slow restart of mlx5 is not emulated"
_NO_ADAPTIVE_TIMEOUT: Final = "the Local ACK Timeout is constant, as in the standard"
_NO_WIRE: Final = "the emulated port has no physical layer"

NOT_COUNTED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "mlx5": {
            "rx_dct_connect": "there are no dynamically connected queue pairs",
            "roce_adp_retrans": _NO_ADAPTIVE_TIMEOUT,
            "roce_adp_retrans_to": _NO_ADAPTIVE_TIMEOUT,
            "roce_slow_restart": _NO_SLOW_RESTART,
            "roce_slow_restart_cnps": _NO_SLOW_RESTART,
            "roce_slow_restart_trans": _NO_SLOW_RESTART,
        },
        "rxe": {"ack_deferred": "it counts how Linux schedules its completer"},
        "port": {
            "symbol_error": _NO_WIRE,
            "link_error_recovery": _NO_WIRE,
            "local_link_integrity_errors": _NO_WIRE,
            "excessive_buffer_overrun_errors": _NO_WIRE,
            "port_rcv_remote_physical_errors": "RoCE has no EBP delimiter",
            "port_rcv_switch_relay_errors": "the port does not belong to a switch",
            "port_rcv_constraint_errors": "RoCE has no partition enforcement in the port",
            "port_xmit_constraint_errors": "RoCE has no partition enforcement in the port",
            "port_xmit_wait": "the fabric counts flow control: `paused_ns` of a host",
            "VL15_dropped": "RoCE has no virtual lane 15",
        },
    }
)
"""Counters of drivers that stay 0 here, with the reason."""

BY_FAULT: Final[Mapping[Fault, str]] = MappingProxyType(
    {
        Fault.DUPLICATE: "duplicate_request",
        Fault.SEQUENCE: "out_of_sequence",
        Fault.NOT_READY: "out_of_buffer",
        Fault.TOO_LONG: "resp_local_length_error",
        Fault.RKEY: "resp_remote_access_errors",
    }
)
"""The counter that the responder increments for each fault."""

BY_SEND_STATUS: Final[Mapping[WCStatus, str]] = MappingProxyType(
    {
        WCStatus.WR_FLUSH_ERR: "req_cqe_flush_error",
        WCStatus.REM_INV_REQ_ERR: "req_remote_invalid_request",
        WCStatus.REM_ACCESS_ERR: "req_remote_access_errors",
        WCStatus.RETRY_EXC_ERR: "req_transport_retries_exceeded",
        WCStatus.RNR_RETRY_EXC_ERR: "req_rnr_retries_exceeded",
    }
)
"""The counter that the requester increments besides ``req_cqe_error``, by completion status."""
