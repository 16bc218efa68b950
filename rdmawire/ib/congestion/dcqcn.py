"""DCQCN: CNPs reduce the rate; time and sent bytes without CNPs restore it.

Y. Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, section 3; the
names of the parameters are the paper's. This is the reaction point, at the sender; the
notification point is :mod:`rdmawire.ib.congestion.dcqcn`, the congestion point a switch.
"""

from dataclasses import dataclass
from typing import Final, Self

from rdmawire.ib.congestion.base import (
    GIGABIT,
    MEGABIT,
    RATE,
    SHARE,
    TIMES,
    check_parameters,
)
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.tx_template import TxTemplate
from rdmawire.validate import PERIOD, Constraint, Integer, check_type
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, CNP, GRH
from rdmawire.wire.inet import IPv4, IPv6
from rdmawire.wire.opcode import Opcode


@dataclass(frozen=True, slots=True)
class DcqcnParameters:
    """The parameters of the reaction point, with the paper's values (section 5.2).

    The paper gives no value for ``hyper``; this is five additive steps. Raises ``VerbsError``
    EINVAL for a value that :data:`BOUNDS` does not allow.
    """

    line_rate: float = 40 * GIGABIT
    """Bits in a second of a flow at first, and at most."""
    min_rate: float = 10 * MEGABIT
    """Bits in a second of a flow at least."""
    g: float = 1 / 256
    """The weight of a new sign of congestion in alpha."""
    alpha_timer: int = 55_000
    """Nanoseconds without a CNP after which alpha decreases (K)."""
    rate_timer: int = 55_000
    """Nanoseconds after which the rate increases (T)."""
    byte_counter: int = 10_000_000
    """Bytes after which the rate increases (B)."""
    fast_recovery: int = 5
    """Times that the rate is halved towards its target before the target increases (F)."""
    additive: float = 40 * MEGABIT
    """Bits in a second by which the target increases (R_AI)."""
    hyper: float = 200 * MEGABIT
    """Bits in a second by which the target increases after a long time without a CNP (R_HAI)."""

    def __post_init__(self) -> None:
        check_parameters(self, BOUNDS)

    @classmethod
    def at(cls, line_rate: float) -> Self:
        """The paper's parameters for ``line_rate`` (bits/s), which also limits the minimum rate."""
        return cls(line_rate=line_rate, min_rate=min(cls().min_rate, line_rate))


BOUNDS: Final[dict[str, Constraint]] = {
    "line_rate": RATE,
    "min_rate": RATE,
    "g": SHARE,
    "alpha_timer": PERIOD,
    "rate_timer": PERIOD,
    "byte_counter": Integer(1, called="a number of bytes"),
    "fast_recovery": TIMES,
    "additive": RATE,
    "hyper": RATE,
}
"""Constraint of each parameter."""


class Dcqcn:
    """The reaction point of one flow.

    ``target`` is the rate to recover. Until the first CNP the flow has its line rate, and nothing
    is counted.
    """

    def __init__(self, parameters: DcqcnParameters | None = None) -> None:
        self.parameters = DcqcnParameters() if parameters is None else parameters
        check_type("parameters", self.parameters, DcqcnParameters)
        self.rate = self.target = self.parameters.line_rate
        self._alpha = 1.0
        self._alpha_since: int | None = None
        self._rate_due: int | None = None
        self._bytes = self._by_bytes = self._by_time = 0

    def notified(self, now: int) -> None:
        """Equations 1: save the rate as target, reduce it by alpha, and restart recovery."""
        known = self.parameters
        alpha = self.alpha(now)
        self.target = self.rate
        self.rate = max(self.rate * (1 - alpha / 2), known.min_rate)
        self._alpha = (1 - known.g) * alpha + known.g
        self._alpha_since = now
        self._bytes = self._by_bytes = self._by_time = 0
        self._rate_due = now + known.rate_timer

    def alpha(self, now: int) -> float:
        """The estimate of congestion: equation 2, applied once for each alpha timer since a CNP."""
        if self._alpha_since is None:
            return self._alpha
        times = (now - self._alpha_since) // self.parameters.alpha_timer
        return self._alpha * _power(1 - self.parameters.g, times)

    def sent(self, size: int, now: int) -> None:  # noqa: ARG002 - a scheme's
        """Count bytes: each full counter is one step of recovery."""
        if self._rate_due is None:
            return
        self._bytes += size
        while self._bytes >= self.parameters.byte_counter:
            self._bytes -= self.parameters.byte_counter
            self._by_bytes += 1
            self._increase()

    def acknowledged(self, rtt: int, now: int) -> None:
        """Round trips have no effect."""

    def next_timer(self) -> int | None:
        """The rate's timer; alpha is computed on demand and needs no timer."""
        return self._rate_due

    def handle_timer(self, now: int) -> None:
        """Apply the steps of recovery that are due."""
        while self._rate_due is not None and self._rate_due <= now:
            self._rate_due += self.parameters.rate_timer
            self._by_time += 1
            self._increase()

    def _increase(self) -> None:
        """One step: fast recovery, then additive, then hyper increase. Figure 7, equations 3, 4."""
        known = self.parameters
        slower = min(self._by_time, self._by_bytes)
        if slower > known.fast_recovery:
            self.target += known.hyper * (slower - known.fast_recovery)
        elif max(self._by_time, self._by_bytes) > known.fast_recovery:
            self.target += known.additive
        self.target = min(self.target, known.line_rate)
        self.rate = (self.rate + self.target) / 2
        if self.rate >= known.line_rate * (1 - _RECOVERED):
            self.rate = self.target = known.line_rate
            self._rate_due = None


_RECOVERED = 1e-3
"""Difference from the line rate that counts as reached: halving would never reach it."""


def _power(base: float, times: int) -> float:
    """``base ** times`` by multiplications only, which give the same result on every machine."""
    result = 1.0
    while times:
        if times & 1:
            result *= base
        base *= base
        times >>= 1
    return result


# The notification point, at the receiver. Section 3.1; CNPs are IBA A17.9.

CNP_INTERVAL = 50_000
"""Nanoseconds between two CNPs of one flow (the paper's N)."""

MAX_PENDING_CNPS = 1 << 16
"""Maximum number of pending CNPs of a queue pair; further marks are ignored."""


class NotificationPoint:
    """Queues CNPs for a queue pair's peer: one at the first mark, then at most one per interval.

    With interval 0, each mark queues one, up to :data:`MAX_PENDING_CNPS` pending ones.
    ``traffic_class`` is that of its CNPs, ECN in the two lowest bits; ``None`` for the path's.
    """

    __slots__ = ("_interval", "_path", "_qp", "_quiet_until", "_template", "_traffic_class")

    def __init__(
        self, qp: QueuePair, interval: int = CNP_INTERVAL, traffic_class: int | None = None
    ) -> None:
        self._qp = qp
        self._interval = interval
        self._traffic_class = traffic_class
        self._quiet_until = 0
        self._path = self._template = TxTemplate((), BTH())

    def marked(self) -> None:
        """Process a packet marked CE: queue a CNP unless one was queued within the interval."""
        qp = self._qp
        now = qp.device.now
        if now >= self._quiet_until:
            self._quiet_until = now + self._interval
            due = qp.inbound.cnps_due + 1 if self._interval == 0 else 1
            qp.inbound.cnps_due = min(due, MAX_PENDING_CNPS)
            qp.wake()

    def frame(self) -> bytes:
        """Return the CNP: to the peer's queue pair, with BECN and without a PSN."""
        self._qp.counters.np_cnp_sent += 1
        path = self._qp.response_template
        if self._path is not path:
            self._path, self._template = path, self._template_of(path)
        return self._template.frame(Opcode.CNP, 0, CNP().build(), b"")

    def _template_of(self, path: TxTemplate) -> TxTemplate:
        """Return the builder of a path's CNPs."""
        headers = path.headers
        if self._traffic_class is not None:
            headers = tuple(_of_class(header, self._traffic_class) for header in headers)
        return TxTemplate(headers, path.bth.replace(becn=1))


def _of_class(header: Header, traffic_class: int) -> Header:
    """Return a header of a path, with this traffic class if it has one."""
    if isinstance(header, IPv4 | IPv6):
        return header.replace(dscp=traffic_class >> 2, ecn=traffic_class & 3)
    return header.replace(tclass=traffic_class) if isinstance(header, GRH) else header
