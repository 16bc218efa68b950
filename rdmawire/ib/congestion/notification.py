"""The notification point of DCQCN: marks that arrive are told to the sender, not too often.

Y. Zhu et al., SIGCOMM 2015, section 3.1 (NP algorithm); CNPs are IBA A17.9.
"""

from rdmawire.ib.qp import QueuePair
from rdmawire.ib.tx_template import TxTemplate
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, CNP, GRH
from rdmawire.wire.inet import IPv4, IPv6
from rdmawire.wire.opcode import Opcode

CNP_INTERVAL = 50_000
"""Nanoseconds between two CNPs of one flow (the paper's N)."""

MAX_OWED = 1 << 16
"""CNPs that one queue pair owes at the most: marks beyond that, while none was sent, are lost."""


class NotificationPoint:
    """Owes the peer of a queue pair a CNP: for the first mark, then one in an interval at most.

    Without an interval (0) it owes one for each mark, and at most :data:`MAX_OWED` of them.
    ``traffic_class`` is that of its CNPs, ECN in the two lowest bits; ``None`` for that of the
    path, as all else has it.
    """

    __slots__ = ("_interval", "_path", "_quiet_until", "_seal", "_traffic_class")

    def __init__(self, interval: int = CNP_INTERVAL, traffic_class: int | None = None) -> None:
        self._interval = interval
        self._traffic_class = traffic_class
        self._quiet_until = 0
        self._path = self._seal = TxTemplate((), BTH())

    def marked(self, qp: QueuePair) -> None:
        """A packet with the mark CE came."""
        now = qp.device.now
        if now >= self._quiet_until:
            self._quiet_until = now + self._interval
            owed = qp.inbound.cnps_due + 1 if self._interval == 0 else 1
            qp.inbound.cnps_due = min(owed, MAX_OWED)
            qp.wake()

    def frame(self, qp: QueuePair) -> bytes:
        """The CNP: to the peer's queue pair, with BECN and without a PSN."""
        qp.counters.np_cnp_sent += 1
        if self._path is not qp.response_seal:
            self._path, self._seal = qp.response_seal, self._sealing(qp.response_seal)
        return self._seal.frame(Opcode.CNP, 0, CNP().build(), b"")

    def _sealing(self, path: TxTemplate) -> TxTemplate:
        """What makes the CNPs of a path."""
        headers = path.headers
        if self._traffic_class is not None:
            headers = tuple(_of_class(header, self._traffic_class) for header in headers)
        return TxTemplate(headers, path.bth.replace(becn=1))


def _of_class(header: Header, traffic_class: int) -> Header:
    """A header of a path, with this traffic class if it has one."""
    if isinstance(header, IPv4 | IPv6):
        return header.replace(dscp=traffic_class >> 2, ecn=traffic_class & 3)
    return header.replace(tclass=traffic_class) if isinstance(header, GRH) else header
