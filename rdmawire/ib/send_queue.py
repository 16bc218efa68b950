"""The send queue of a queue pair: work to be sent, and work in flight.

A posted work request becomes a :class:`Wqe`. In the send queue it moves from ``posted`` (packets of
it are to be sent) to ``sent`` (its response, or that of earlier work, is missing). Retransmission
moves it back: all of ``sent`` from some PSN on is sent again (go-back-N, IBA 9.7.3.2). The oldest
work always completes first.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.sge import NOTHING, Gather, Inline, Piece
from rdmawire.verbs.wr import SOLICITED, VERBS, Answer, Local, SendWR, Verb
from rdmawire.wire import serial
from rdmawire.wire.serial import MODULUS

NO_PSN = -1


class Wqe:
    """One send work request in the send queue.

    ``psn`` is the first of its ``packets`` PSNs (:data:`NO_PSN` until it is begun). ``sent`` counts
    packets sent in the present pass, ``max_sent`` the most in any pass, ``unacked`` the packets not
    acknowledged, ``answered`` the responses placed. ``se`` is the Solicited Event bit of its last
    packet (IBA 9.2.3).
    """

    __slots__ = (
        "answered",
        "flags",
        "length",
        "max_sent",
        "packets",
        "psn",
        "se",
        "sent",
        "sink",
        "source",
        "status",
        "unacked",
        "verb",
        "wr",
    )

    def __init__(self, wr: SendWR, verbs: Mapping[Any, Verb] = VERBS) -> None:
        self.wr = wr
        self.flags = int(wr.flags)
        self.verb = verbs[wr.opcode]
        self.se = 1 if self.flags & SOLICITED and self.verb.takes_receive else 0
        self.psn = NO_PSN
        self.packets = self.unacked = 0
        self.sent = self.max_sent = self.answered = self.length = 0
        self.source: Piece | Gather | Inline = NOTHING
        self.sink: Piece | Gather = NOTHING
        self.status: WCStatus | None = None

    @property
    def last_psn(self) -> int:
        """The PSN of its last packet, or of the last response to it."""
        return serial.add(self.psn, self.packets - 1)

    @property
    def places(self) -> bool:
        """Whether responses write to local memory."""
        return self.verb.local is Local.SINK

    @property
    def awaited(self) -> bool:
        """Whether it uses one of the peer's resources for READs and atomics."""
        return self.verb.takes_resource and self.status is None

    def sent_before(self, psn: int) -> int:
        """How many of its packets precede ``psn``; 0 for work of one request packet."""
        if self.verb.answer is not Answer.ACK:
            return 0
        return min(max(serial.distance(self.psn, psn), 0), self.packets)


class SendQueue:
    """Send work of one queue pair, and the PSNs of the connection.

    ``next_psn`` is the first unused PSN, ``unacked_psn`` the oldest unacknowledged one;
    ``in_flight`` counts PSNs from there on that were sent or are expected in responses. ``ssn``
    counts messages. ``outstanding_reads`` counts the READs and atomics in ``sent`` without all
    their responses, ``awaited_responses`` the response packets that are missing. ``broken`` says
    that an old ACK came between the responses to a READ
    (:attr:`~rdmawire.verbs.profile.Bug.OLD_ACK_BREAKS_READ`).
    """

    __slots__ = (
        "awaited_responses",
        "broken",
        "in_flight",
        "next_psn",
        "outstanding_reads",
        "posted",
        "sent",
        "ssn",
        "unacked_psn",
    )

    def __init__(self) -> None:
        self.posted: deque[Wqe] = deque()
        self.sent: deque[Wqe] = deque()
        self.reset(0)

    def reset(self, psn: int) -> None:
        """Discard all work; the next PSN is ``psn``."""
        self.posted.clear()
        self.sent.clear()
        self.next_psn = self.unacked_psn = psn
        self.in_flight = self.outstanding_reads = self.awaited_responses = 0
        self.broken = False
        self.ssn = 0

    def __len__(self) -> int:
        return len(self.posted) + len(self.sent)

    def oldest(self) -> Wqe | None:
        """The oldest work that has PSNs and is not complete."""
        if self.sent:
            return self.sent[0]
        return self.posted[0] if self.posted and self.posted[0].psn != NO_PSN else None

    @property
    def under_way(self) -> bool:
        """Whether started work is incomplete."""
        return self.oldest() is not None

    def begin(self, wqe: Wqe, packets: int) -> None:
        """Give work its PSNs, once: the next ``packets`` ones."""
        wqe.psn = self.next_psn
        wqe.packets = wqe.unacked = packets
        if packets:
            self.next_psn = (self.next_psn + packets) % MODULUS
            self.ssn = (self.ssn + 1) % MODULUS

    def move_short(self, count: int) -> None:
        """Move the first ``count`` messages, of one packet each, to ``sent``: they were sent.

        They have their PSNs already.
        """
        posted, sent = self.posted, self.sent
        for _ in range(count):
            wqe = posted.popleft()
            wqe.packets = wqe.unacked = wqe.sent = wqe.max_sent = 1
            sent.append(wqe)
        self.next_psn = (self.next_psn + count) % MODULUS
        self.ssn = (self.ssn + count) % MODULUS
        self.in_flight += count

    def go_back(self, psn: int) -> None:
        """Move work from ``psn`` on back to ``posted``; finished work keeps its status."""
        self.broken = False
        while self.sent and not serial.is_before(self.sent[-1].last_psn, psn):
            wqe = self.sent.pop()
            self._await_no_more(wqe)
            self.posted.appendleft(wqe)
        for wqe in self.posted:
            if wqe.psn == NO_PSN:
                break
            wqe.sent = wqe.sent_before(psn)

    def advance(self, wqe: Wqe, packets: int) -> None:
        """Count ``packets`` more packets of this work as sent."""
        wqe.sent += packets
        if wqe.sent > wqe.max_sent:
            self.in_flight += wqe.sent - wqe.max_sent
            wqe.max_sent = wqe.sent

    def pass_by(self, packets: int) -> None:
        """Count ``packets`` more PSNs as acknowledged."""
        self.unacked_psn = serial.add(self.unacked_psn, packets)
        self.in_flight -= packets

    def acknowledge(self, wqe: Wqe, packets: int) -> None:
        """Count ``packets`` more packets of the oldest work as acknowledged."""
        self.pass_by(packets)
        wqe.unacked -= packets
        if not wqe.verb.takes_resource:
            wqe.sent = max(wqe.sent, wqe.packets - wqe.unacked)
        elif self.sent:  # not if it is being retransmitted
            self.awaited_responses -= packets

    def ask(self, wqe: Wqe) -> None:
        """Count a READ or atomic that is sent, and the responses that it waits for."""
        self.outstanding_reads += 1
        self.awaited_responses += wqe.packets - wqe.answered

    def _await_no_more(self, wqe: Wqe) -> None:
        """Undo :meth:`ask` for work that leaves ``sent``, if it waits for responses."""
        if wqe.awaited:
            self.outstanding_reads -= 1
            self.awaited_responses -= wqe.packets - wqe.answered

    def finish(self, wqe: Wqe, status: WCStatus) -> None:
        """Set the status of the oldest work, which stays in ``sent`` until it is completed."""
        if not self.sent:
            self.sent.append(self.posted.popleft())
        else:
            self._await_no_more(wqe)
        wqe.status = status
