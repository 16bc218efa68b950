"""Transmission on a real network: a token bucket, a send window, and a queue of messages.

None of them reads a clock or has a socket: times (ns) are arguments, and the queue is given the
function that sends, so that they are tested like the engine.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from rdmawire.validate import check_int

_RETRY: Final = 500_000
"""Time (ns) after which a message that the socket did not take is sent again."""
_SECOND: Final = 1_000_000_000


class TokenBucket:
    """A rate in bytes per second, with credit for bursts of at most ``burst`` bytes.

    ``VerbsError`` EINVAL unless both are 1 or more.
    """

    def __init__(self, rate: int, burst: int) -> None:
        check_int("rate", rate, 1)
        check_int("burst", burst, 1)
        self.rate = rate
        self.burst = burst
        self._credit = burst * _SECOND  # in bytes times ns
        self._time: int | None = None

    def free_at(self, now: int) -> int:
        """When something may be sent (ns): ``now``, or a time after it."""
        self._fill(now)
        return now if self._credit > 0 else now - (self._credit - 1) // self.rate

    def take(self, size: int, now: int) -> None:
        """Take credit for ``size`` bytes that are sent. The credit may become negative."""
        self._fill(now)
        self._credit -= size * _SECOND

    def _fill(self, now: int) -> None:
        """Add the credit of the time since the last call."""
        if self._time is not None and now > self._time:
            gained = (now - self._time) * self.rate
            self._credit = min(self._credit + gained, self.burst * _SECOND)
        self._time = now if self._time is None else max(now, self._time)


class SendWindow:
    """The bytes that may be in flight: at most ``size``, or one message, without a report.

    Each message has an offset: the bytes sent before it. The peer reports the greatest end of a
    message that it received, so lost messages are counted with a later one. Without a report for
    ``report_timeout`` ns everything in flight counts as lost. ``VerbsError`` EINVAL unless both are
    1 or more.
    """

    def __init__(self, size: int, report_timeout: int) -> None:
        check_int("size", size, 1)
        check_int("report_timeout", report_timeout, 1)
        self.size = size
        self.report_timeout = report_timeout
        self.offset = 0
        self._reported = 0
        self._deadline: int | None = None

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent now."""
        return self.offset - self._reported < self.size

    def sent(self, length: int, now: int) -> None:
        """Count a message of ``length`` bytes as sent."""
        self.offset += length
        if self._deadline is None:
            self._deadline = now + self.report_timeout

    def reported(self, end: int, now: int) -> None:
        """Take the peer's report: it has received a message with this end."""
        if self._reported < end <= self.offset:
            self._reported = end
            self._deadline = now + self.report_timeout if end < self.offset else None

    def next_timer(self) -> int | None:
        """When bytes without a report count as lost (ns), if there are any."""
        return self._deadline

    def handle_timer(self, now: int) -> None:
        """Count bytes as lost that were not reported in time."""
        if self._deadline is not None and now >= self._deadline:
            self._reported = self.offset
            self._deadline = None


Send = Callable[[bytes, int], bool]
"""Sends a message with its offset; ``False`` if that would have to wait."""


class TransmitQueue:
    """Messages in order, sent as a bucket and a window allow, and as the socket takes them.

    Without a bucket or window there is no such limit. Messages beyond ``max_waiting`` are dropped,
    as a full queue of a network card drops them, and counted in ``dropped``.
    """

    def __init__(
        self,
        send: Send,
        max_waiting: int,
        bucket: TokenBucket | None = None,
        window: SendWindow | None = None,
    ) -> None:
        self._send = send
        self._max_waiting = max_waiting
        self._bucket = bucket
        self._window = window
        self._waiting: deque[bytes] = deque()
        self._blocked = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: bytes) -> None:
        """Add a message."""
        if len(self._waiting) >= self._max_waiting:
            self.dropped += 1
        else:
            self._waiting.append(message)

    def flush(self, now: int) -> int:
        """Send what may be sent. Return how many messages that were."""
        bucket, window, waiting, count = self._bucket, self._window, self._waiting, 0
        self._blocked = False
        if window is not None:
            window.handle_timer(now)
        while waiting:
            if window is not None and not window.has_room:
                break
            if bucket is not None and bucket.free_at(now) > now:
                break
            if not self._send(waiting[0], 0 if window is None else window.offset):
                self._blocked = True
                break
            if bucket is not None:
                bucket.take(len(waiting[0]), now)
            if window is not None:
                window.sent(len(waiting[0]), now)
            waiting.popleft()
            count += 1
        return count

    def next_timer(self, now: int) -> int | None:
        """When :meth:`flush` can send more (ns); ``None`` if that depends on no time."""
        if not self._waiting:
            return None
        if self._blocked:
            return now + _RETRY
        if self._window is not None and not self._window.has_room:
            return self._window.next_timer()
        return now if self._bucket is None else self._bucket.free_at(now)
