"""The notification point of DCQCN: marks that arrive are told to the sender, not too often.

Y. Zhu et al., SIGCOMM 2015, section 3.1 (NP algorithm); CNPs are IBA A17.9.
"""

from rdmawire.nic.qp import QueuePair
from rdmawire.nic.seal import Seal
from rdmawire.wire.ib import CNP
from rdmawire.wire.opcode import Opcode

CNP_INTERVAL = 50_000
"""Nanoseconds between two CNPs of one flow (the paper's N)."""


class Notifier:
    """Owes the peer of a queue pair a CNP: for the first mark, then one in an interval at most."""

    __slots__ = ("_interval", "_quiet_until")

    def __init__(self, interval: int = CNP_INTERVAL) -> None:
        self._interval = interval
        self._quiet_until = 0

    def marked(self, qp: QueuePair) -> None:
        """A packet with the mark CE came."""
        now = qp.device.now
        if now >= self._quiet_until:
            self._quiet_until = now + self._interval
            qp.inbound.cnp_due = True
            qp.wake()

    @staticmethod
    def frame(qp: QueuePair) -> bytes:
        """The CNP: to the peer's queue pair, with BECN and without a PSN."""
        seal = Seal(qp.seal.headers, qp.seal.bth.replace(becn=1))
        return seal.frame(Opcode.CNP, 0, CNP().build(), b"")
