"""A stream: one connection by which a host writes to another for as long as it is let."""

from collections.abc import Iterable
from typing import Final

from rdmawire import Host, QPCap, QPInit, QPType, QueuePair, SendOpcode, SendWR, WCStatus, connect
from rdmawire.fabric import ATTRIBUTES
from rdmawire.ib.congestion import CongestionController
from rdmawire.units import seconds
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU
from rdmawire.wire.serial import MAX_IN_FLIGHT

MESSAGE: Final = 1 << 20
"""Bytes of one RDMA WRITE."""

DSCP: Final = 26
"""Of what is to be lossless; the deployments that publish theirs mostly use this one."""

_CAP: Final = QPCap(1 << 13, 1, 1, 1, 0)


class Stream:
    """An RC connection from ``source`` to ``sink``. It writes the same memory again and again.

    ``completed`` are bytes of messages that are done, ``failed`` messages that ended with an
    error; both as of the last :meth:`poll`. Its frames have ``dscp`` and may be marked. ``scheme``
    says how fast it sends, where there is one, and ``notifies`` whether the sink tells of marks.
    """

    def __init__(
        self,
        source: Host,
        sink: Host,
        *,
        mtu: MTU = MTU.MTU_1024,
        message: int = MESSAGE,
        dscp: int = DSCP,
        scheme: CongestionController | None = None,
        notifies: bool = True,
    ) -> None:
        self.source, self.sink, self.scheme = source, sink, scheme
        self.qp, self.peer = _queue_pair(source), _queue_pair(sink)
        connect(
            source,
            self.qp,
            sink,
            self.peer,
            ATTRIBUTES._replace(path_mtu=mtu),
            traffic_class=dscp << 2 | ECN.ECT_0,
            packets_in_flight=MAX_IN_FLIGHT,  # only congestion control or a pause slows it down
        )
        source.nic.control_congestion(self.qp, scheme)
        if notifies:
            sink.nic.notify_congestion(self.peer)
        self._message, self.completed, self.failed = message, 0, 0
        self._here, self._there = source.buffer(message), sink.buffer(message)

    def write(self, size: int) -> None:
        """Post work for so many bytes, in complete messages."""
        work = SendWR(
            SendOpcode.RDMA_WRITE,
            (self._here.sge(),),
            remote_address=self._there.address,
            rkey=self._there.rkey,
        )
        messages = -(-size // self._message)
        self.source.nic.post_send(self.qp, (work,) * messages)

    def poll(self) -> None:
        """Take the completions that are there."""
        for one in self.qp.send_cq.poll(_CAP.max_send_wr):
            if one.status == WCStatus.SUCCESS:
                self.completed += self._message
            else:
                self.failed += 1


def poll_all(streams: Iterable[Stream]) -> int:
    """Take all completions of several; how many of their messages have failed."""
    failed = 0
    for stream in streams:
        stream.poll()
        failed += stream.failed
    return failed


def bytes_in(time: int, rate: int) -> int:
    """What a line of so many bits a second carries at the most in so many ns."""
    return rate * time // (8 * seconds(1))


def _queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(_CAP.max_send_wr)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, _CAP))
