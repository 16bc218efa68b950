"""The order and the rate in which a queue pair sends its responses and its requests.

While both are pending, they are sent in turns of :data:`TURN` frames, and the side that has sent
fewer bytes has the next turn. So each side gets about half of the bytes, and waits for one turn of
the other at most. The standard leaves this order to the adapter: IBA 9.7.5 orders responses, 9.7.2
requests.
"""

import math
from collections import deque
from collections.abc import Callable
from itertools import islice

from rdmawire.ib.congestion.base import KILOBIT, UNSCHEDULED, CongestionController, Pacer
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.requester import send
from rdmawire.ib.responses import answer
from rdmawire.verbs.enums import QPState
from rdmawire.wire import serial

TURN = 8
"""Frames of one turn: enough to send runs of middle packets together."""

Side = Callable[[QueuePair, list[bytes], int], None]
"""Appends frames of a queue pair to a list, until it has that many frames or nothing is pending."""


def transmit(qp: QueuePair, frames: list[bytes], room: int, send: Side = send) -> None:
    """Append a queue pair's pending frames to ``frames``, until that has ``room`` frames.

    ``send`` appends its requests.
    """
    if not qp.sends or qp.retry_state.in_rnr_wait:
        answer(qp, frames, room)
    elif qp.inbound.pending and qp.sq.posted:
        _share(qp, frames, room, (answer, send))
    else:
        qp.responses_in_a_row = 0
        answer(qp, frames, room)
        queue = qp.sq
        if queue.posted or queue.sent or qp.state is QPState.SQD:
            send(qp, frames, room)


def _share(qp: QueuePair, frames: list[bytes], room: int, sides: tuple[Side, Side]) -> None:
    """Send both sides in turn; when one has nothing pending, the other gets the rest."""
    while len(frames) < room:
        requests = qp.responses_in_a_row > 0
        before, end = len(frames), min(room, len(frames) + TURN)
        sides[requests](qp, frames, end)
        if len(frames) < end:
            qp.responses_in_a_row = 0
            sides[not requests](qp, frames, room)
            return
        sent = sum(map(len, islice(frames, before, None)))
        qp.responses_in_a_row += -sent if requests else sent


# Pacing, if the rate of a queue pair is controlled: each frame is sent when the pacer allows it,
# and the engine is called when the next one may be sent. ACKs are not paced. A round trip is
# measured from a packet that was sent once to the response that covers it: of a retransmitted
# packet it is unknown which copy was acknowledged.


def govern(qp: QueuePair, scheme: CongestionController | None) -> None:
    """Control a queue pair's rate by ``scheme``, below its ``rate_limit``."""
    limited = qp.attributes.rate_limit
    chosen = UNSCHEDULED if scheme is None and limited else scheme
    qp.govern(None if chosen is None else Governor(qp, chosen))


def limit_rate(qp: QueuePair) -> None:
    """Apply the ``rate_limit`` (kbit/s) of a queue pair. ibv_modify_qp_rate_limit(3)."""
    governor, limited = qp.governor, qp.attributes.rate_limit
    if governor is None and not limited:
        return
    if governor is None or (governor.scheme is UNSCHEDULED and not limited):
        govern(qp, None)
    else:
        governor.obey_limit()
    qp.wake()


class Governor:
    """The rate control of one queue pair. ``deadline`` is when it next acts (ns)."""

    def __init__(self, qp: QueuePair, scheme: CongestionController) -> None:
        self.qp = qp
        self.scheme = scheme
        self.deadline: int | None = None
        self.place: int | None = None
        self._pacer = Pacer(scheme)
        self.obey_limit()
        self._waits = False
        self._sent: deque[tuple[int, int]] = deque()  # next PSN and time, of packets sent once

    def obey_limit(self) -> None:
        """Apply the queue pair's ``rate_limit`` (kbit/s); 0 is no limit."""
        self._pacer.limit = self.qp.attributes.rate_limit * KILOBIT or math.inf

    def transmit(self, frames: list[bytes], room: int) -> None:
        """Append frames that may be sent now, until there are ``room``, and set the next deadline.

        Data of responses and of requests take turns, while the rate allows.
        """
        now, pacer, before = self.qp.device.now, self._pacer, -1
        self._waits = False
        while before < len(frames) < room:
            self._answer_at_once(frames, room)
            if pacer.free_at > now:
                self._waits = self.qp.sends or self.qp.inbound.gives_data
                break
            before = len(frames)
            transmit(self.qp, frames, min(before + 1, room), self._send)
            if len(frames) > before:
                pacer.sent(len(frames[-1]), now)
        self._plan()

    def _answer_at_once(self, frames: list[bytes], room: int) -> None:
        """Append responses without payload, which are not paced."""
        before = -1
        while before < len(frames) < room and not self.qp.inbound.gives_data:
            before = len(frames)
            answer(self.qp, frames, before + 1)

    def _send(self, qp: QueuePair, frames: list[bytes], room: int) -> None:
        """Append requests, and record the send time of those sent for the first time."""
        queue = qp.sq
        in_flight = queue.in_flight
        send(qp, frames, room)
        if queue.in_flight > in_flight:
            self._sent.append((serial.add(queue.unacked_psn, queue.in_flight), qp.device.now))

    def acknowledged(self) -> None:
        """Report the round-trip time of the newest acknowledged packet."""
        unacked, now = self.qp.sq.unacked_psn, self.qp.device.now
        sent: int | None = None
        while self._sent and not serial.is_before(unacked, self._sent[0][0]):
            _, sent = self._sent.popleft()
        if sent is not None:
            self.scheme.acknowledged(now - sent, now)
            self._plan()

    def went_back(self) -> None:
        """Discard the send times of packets in flight: they are retransmitted."""
        self._sent.clear()

    def notified(self) -> None:
        """Report a CNP to the scheme."""
        self.scheme.notified(self.qp.device.now)
        self._plan()

    def due(self, now: int) -> None:
        """Act at the deadline."""
        self._waits = False
        self.scheme.handle_timer(now)
        self.qp.wake()
        self._plan()

    def _plan(self) -> None:
        """Set the deadline: when the next frame may be sent, or the scheme has a timer."""
        times = [time for time in (self.scheme.next_timer(),) if time is not None]
        if self._waits:
            times.append(self._pacer.free_at)
        if times:
            self.qp.device.governors.arm(self, min(times))
        else:
            self.stop()

    def stop(self) -> None:
        """Remove the deadline."""
        self.qp.device.governors.disarm(self)
