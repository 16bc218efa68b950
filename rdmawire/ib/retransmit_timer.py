"""The retransmit timer and the retry counters of a requester, and its wait for its own pages.

Times are in ns. Local ACK Timeout: IBA 9.7.6.1.3; RNR NAKs: 9.7.5.2.8. What follows when a timer
expires is in :mod:`rdmawire.ib.retransmit`.
"""

from typing import Generic

from rdmawire.ib.device import Device, Q
from rdmawire.ib.send_queue import SendQueue
from rdmawire.verbs.qp_attr import QPAttributes

ACK_TIMEOUT_UNIT = 4_096
"""Nanoseconds per unit of a Local ACK Timeout, which is 2 to its power. IBA 9.7.6.1.3."""


_RESET = QPAttributes()


class RetryState(Generic[Q]):
    """The retransmit timer of one queue pair, and the retries that are left.

    ``deadline`` is when the running timer expires (ns); with ``in_rnr_wait`` it is the RNR timer,
    else the ACK timer. ``retrying`` is set from a retransmission until the queue advances.
    """

    __slots__ = (
        "_device",
        "_sq",
        "deadline",
        "in_rnr_wait",
        "place",
        "qp",
        "retries",
        "retry_cnt",
        "retrying",
        "rnr_retries",
        "rnr_retry",
        "timeout",
    )

    def __init__(self, device: Device[Q], qp: Q, sq: SendQueue) -> None:
        self._device = device
        self._sq = sq
        self.qp = qp
        self.deadline: int | None = None
        self.place: int | None = None
        self.in_rnr_wait = self.retrying = False
        self.set_limits(_RESET)
        self.reset_retries()

    def set_limits(self, attributes: QPAttributes) -> None:
        """Set the timeout and retry limits from the attributes; used retries stay used."""
        exponent = attributes.timeout
        self.timeout = ACK_TIMEOUT_UNIT << exponent if exponent else 0
        self.retry_cnt = attributes.retry_cnt
        self.rnr_retry = attributes.rnr_retry

    def reset_retries(self) -> None:
        """Restore all retries."""
        self.retries, self.rnr_retries = self.retry_cnt, self.rnr_retry

    def start_ack_timer(self) -> None:
        """Start the ACK timer, unless a timer runs or nothing is outstanding."""
        if self.deadline is None and self.timeout and self._sq.in_flight:
            self._device.timers.arm(self, self._device.now + self.timeout)

    def restart(self) -> None:
        """Restore all retries and restart the ACK timer: a response advanced the queue."""
        self.retries, self.rnr_retries = self.retry_cnt, self.rnr_retry
        self.retrying = False
        if self.in_rnr_wait:
            return
        if self.timeout and self._sq.in_flight:
            self._device.timers.arm(self, self._device.now + self.timeout)
        else:
            self._device.timers.disarm(self)

    def start_rnr_timer(self, time: int) -> None:
        """Send nothing for ``time`` ns: the peer was not ready."""
        self.in_rnr_wait = True
        self._device.timers.arm(self, self._device.now + time)

    def stop(self) -> None:
        """Stop the timer."""
        self._device.timers.disarm(self)
        self.in_rnr_wait = False

    def clear(self) -> None:
        """Stop the timer and forget retransmission: the queue pair is reset."""
        self.stop()
        self.retrying = False


class PageWait(Generic[Q]):
    """The wait of one queue pair for its own pages. ``deadline`` is when they are present (ns).

    ``resend`` says that responses were discarded.
    """

    __slots__ = ("_device", "deadline", "place", "qp", "resend")

    def __init__(self, device: Device[Q], qp: Q) -> None:
        self._device = device
        self.qp = qp
        self.deadline: int | None = None
        self.place: int | None = None
        self.resend = False

    def wait(self, ready: int, *, resend: bool = False) -> None:
        """Wait until ``ready`` (ns), or until a later deadline set before."""
        self.resend |= resend
        self._device.page_waits.arm(self, max(ready, self.deadline or 0))

    def stop(self) -> None:
        """End the wait."""
        self.resend = False
        self._device.page_waits.disarm(self)
