"""How long a requester waits for an answer, and how often it tries again.

IBA 9.7.6.1.3 (Local ACK Timeout), 9.7.5.2.8 (RNR NAKs). Times are ns; they are arguments, or what
the device says of now.
"""

from typing import TYPE_CHECKING

from rdmawire.ib.device import Device
from rdmawire.verbs.qp_attr import QPAttributes

if TYPE_CHECKING:
    from rdmawire.ib.qp import QueuePair


ACK_TIMEOUT_UNIT = 4_096
"""Nanoseconds that a Local ACK Timeout counts, two to its power times. IBA 9.7.6.1.3."""


class RetryState:
    """The timer of one queue pair, and the retries that are left.

    ``deadline`` is when the timer fires that runs; ``in_rnr_wait`` says that it is the wait that an
    RNR NAK asked for, and not the wait for an ACK. ``retrying`` is since the queue went back for
    an answer that was missing, until something moves.
    """

    __slots__ = (
        "_device",
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

    def __init__(self, device: Device, qp: "QueuePair") -> None:
        self._device = device
        self.qp = qp
        self.deadline: int | None = None
        self.place: int | None = None
        self.in_rnr_wait = self.retrying = False
        self.agree(QPAttributes())
        self.reset_retries()

    def agree(self, attributes: QPAttributes) -> None:
        """Take over how long and how often; retries that were taken stay taken."""
        exponent = attributes.timeout
        self.timeout = ACK_TIMEOUT_UNIT << exponent if exponent else 0
        self.retry_cnt = attributes.retry_cnt
        self.rnr_retry = attributes.rnr_retry

    def reset_retries(self) -> None:
        """All retries are left."""
        self.retries, self.rnr_retries = self.retry_cnt, self.rnr_retry

    def wait(self) -> None:
        """Wait for an ACK, unless a timer runs or nothing is outstanding."""
        if self.deadline is None and self.timeout and self.qp.sq.in_flight:
            self._device.timers.arm(self, self._device.now + self.timeout)

    def restart(self) -> None:
        """An answer moved the queue: all retries are left again, and the wait begins anew."""
        self.retries, self.rnr_retries = self.retry_cnt, self.rnr_retry
        self.retrying = False
        if self.in_rnr_wait:
            return
        if self.timeout and self.qp.sq.in_flight:
            self._device.timers.arm(self, self._device.now + self.timeout)
        else:
            self._device.timers.disarm(self)

    def start_rnr_timer(self, time: int) -> None:
        """Send nothing for so long: the peer was not ready."""
        self.in_rnr_wait = True
        self._device.timers.arm(self, self._device.now + time)

    def stop(self) -> None:
        """Wait for nothing."""
        self._device.timers.disarm(self)
        self.in_rnr_wait = False

    def clear(self) -> None:
        """As at the beginning."""
        self.stop()
        self.retrying = False


class PageWait:
    """The wait of one queue pair. ``deadline`` is when the pages are there (ns), if it waits.

    ``resend`` says that responses were discarded.
    """

    __slots__ = ("_device", "deadline", "place", "qp", "resend")

    def __init__(self, device: "Device", qp: "QueuePair") -> None:
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
        """Wait for nothing."""
        self.resend = False
        self._device.page_waits.disarm(self)
