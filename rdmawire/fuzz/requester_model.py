"""A plain model of a requester on a reliable connection: what the standard requires it to send.

Models of the other services are made from it (:mod:`rdmawire.fuzz.requester_services`).

The model shares no code with the adapter. It gets the work that is posted, the responses as values
and the time, and returns the requests to send (:mod:`rdmawire.fuzz.work_requests`), with the clause
that requires them; its memory, completions and state are what the target's must be. Packets are
counted from 0 without wrapping; only packets have PSNs of 24 bits. Where the standard leaves a
choice, the model makes that of the profile ``ibta``: all work is sent at once, and AckReq is set in
the last packet of each message.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from rdmawire.fuzz.exchange import Reply, Request
from rdmawire.fuzz.inputs import SINK_WORK, WorkInput
from rdmawire.fuzz.setup import AREAS, MAX_SEND_WR
from rdmawire.fuzz.target import REQUESTER_COUNTERS, Completion
from rdmawire.fuzz.work_requests import DATA, VERBS, QueuedWork, WorkRequests
from rdmawire.memory.key import Access
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire import serial
from rdmawire.wire.ib import CREDITS, NO_CREDITS, Ack, Nak
from rdmawire.wire.opcode import OPERATIONS
from rdmawire.wire.opcode import Operation as Op

NAK_STATUS: Final[dict[int, WCStatus]] = {
    Nak.INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS_ERROR: WCStatus.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATIONAL_ERROR: WCStatus.REM_OP_ERR,
    Nak.INVALID_RD_REQUEST: WCStatus.REM_INV_RD_REQ_ERR,
}
"""Completion status by NAK code. IBA 9.9.2.3."""
_COUNTED: Final = {
    WCStatus.WR_FLUSH_ERR: "req_cqe_flush_error",
    WCStatus.REM_INV_REQ_ERR: "req_remote_invalid_request",
    WCStatus.REM_ACCESS_ERR: "req_remote_access_errors",
    WCStatus.RETRY_EXC_ERR: "req_transport_retries_exceeded",
    WCStatus.RNR_RETRY_EXC_ERR: "req_rnr_retries_exceeded",
}
"""The counter of a status, besides that of all errors."""
_ENDLESS: Final = 7
"""The ``rnr_retry`` without a limit."""
_TIMEOUT_UNIT: Final = 4096


class Sent(NamedTuple):
    """The requests that a target must send, and the clause that requires what it does."""

    requests: tuple[Request, ...] = ()
    clause: str = ""
    why: str = ""


READ_RESPONSES: Final = (
    Op.RDMA_READ_RESPONSE_FIRST,
    Op.RDMA_READ_RESPONSE_MIDDLE,
    Op.RDMA_READ_RESPONSE_LAST,
    Op.RDMA_READ_RESPONSE_ONLY,
)
_ENDS: Final = (Op.RDMA_READ_RESPONSE_LAST, Op.RDMA_READ_RESPONSE_ONLY)


@dataclass
class RequesterModel(WorkRequests):
    """The state of a requester, as the standard has it. Memory is ``memory``, from the arena.

    ``profile`` has the differences from ``ibta`` that are accepted, ``counters`` are
    :data:`rdmawire.fuzz.target.REQUESTER_COUNTERS`.
    ``unacked`` is the oldest packet that is not acknowledged, ``next`` the next one to send, and
    ``newest`` the first one that was never sent.
    """

    after_error: ClassVar[QPState] = QPState.ERR
    """The state after work that failed. IBA 10.3.1."""

    completions: list[Completion] = field(default_factory=list)
    profile: Profile = IBTA

    def __post_init__(self) -> None:
        self.work: deque[QueuedWork] = deque()
        self.posted = 0
        self.unacked = self.next = self.newest = 0
        self.failed = False
        self.now = 0
        self.deadline: int | None = None
        self.waiting = False
        """Whether the deadline ends the wait after an RNR NAK."""
        self._timeout = _TIMEOUT_UNIT << self.setup.timeout if self.setup.timeout else 0
        self._repeating = False
        self._halted = False
        self._started = 0
        self._messages = 0
        self._limit: int | None = None
        self._silent = 0
        self._clause = self._why = ""
        self.counters = dict.fromkeys(REQUESTER_COUNTERS, 0)
        self._restore()

    def _restore(self) -> None:
        """Progress restores all retries. IBA 9.7.6.1.3, 9.7.5.2.8."""
        self._retries, self._rnr_retries = self.setup.retry_cnt, self.setup.rnr_retry
        self._repeating = False

    # What the inputs need.

    @property
    def state(self) -> QPState:
        """The state of the queue pair."""
        return self.after_error if self.failed else QPState.RTS

    def accepts(self, one: WorkInput) -> bool:
        """Whether the service has such work, and the profile supports it."""
        operation = VERBS[one.verb].only
        return operation in OPERATIONS[self.wire] and operation not in self.profile.unsupported

    @property
    def in_flight(self) -> int:
        """Packets sent and not acknowledged; of a READ, its responses are counted."""
        return self.newest - self.unacked

    @property
    def room(self) -> int:
        """How many sends may be posted: unsignaled ones count until a later one completes."""
        return MAX_SEND_WR - len(self.work) - self._silent

    def msn(self, packet: int) -> int:
        """Return the MSN of a responder that has executed all messages up to this packet."""
        done = sum(1 for one in self.work if one.first >= 0 and one.packets and one.end <= packet)
        return serial.add(self._messages, done)

    # Inputs.

    def post(self, one: WorkInput) -> Sent:
        """Model posted work, which always succeeds if there is room."""
        self._because("IBA 10.8.2, 9.7.1", "posted work is sent")
        self.posted += 1
        verb = VERBS[one.verb]
        if self.failed:
            self._because("IBA 10.8.3.3", "work posted in the error state is flushed")
            self._end_with(self.posted, WCStatus.WR_FLUSH_ERR)
            return self._sent(())
        packets = 1 if verb.answered and one.verb != "RDMA_READ" else self._packets(one.length)
        inline = self._read(one, 0, one.length) if one.inline else None
        self.work.append(QueuedWork(self.posted, one, verb, packets, inline))
        return self._sent(self._send())

    def wait(self, ns: int) -> Sent:
        """Model ``ns`` nanoseconds that pass."""
        self._because(*_NOT_YET[self.deadline is not None, self.waiting])
        end = self.now + ns
        requests: list[Request] = []
        while self.deadline is not None and self.deadline <= end:
            self.now, self.deadline = self.deadline, None
            self._expired()
            requests.extend(self._send())
        self.now = end
        return self._sent(tuple(requests))

    def _expired(self) -> None:
        if self.waiting:
            self.waiting = False
            self._because("IBA 9.7.5.2.8", "the RNR NAK's time is over")
            return
        self._because("IBA 9.7.6.1.3", "no ACK arrived in time")
        self.counters["local_ack_timeout_err"] += self._go_back()

    def answer(self, reply: Reply) -> Sent:
        """Model one response packet of the service, addressed to the queue pair, undamaged."""
        if self.failed:
            self._because("IBA 10.3.1.7", "the queue pair is in the error state")
            return self._sent(())
        ahead = serial.distance(self.psn(self.unacked), reply.psn)
        if 0 <= ahead < self.in_flight:
            self._answer_in_window(reply, self.unacked + ahead)
        else:
            self._answer_outside(reply, ahead)
        return self._sent(self._send())

    def _because(self, clause: str, why: str) -> None:
        self._clause, self._why = clause, why

    def _sent(self, requests: tuple[Request, ...]) -> Sent:
        return Sent(requests, self._clause, self._why)

    # Responses.

    def _answer_outside(self, reply: Reply, ahead: int) -> None:
        """A duplicate response may grant credits, a ghost response has no effect."""
        self._because("IBA 9.7.5.1.2", "a response to nothing that is outstanding")
        ghost = not -serial.HALF < ahead < 0
        if ghost or reply.syndrome < 0 or reply.syndrome >> 5 != Ack.ACK:
            return
        limit = self._limit_in(reply)
        more = None not in (limit, self._limit) and serial.is_before(self._limit or 0, limit or 0)
        if ahead == -1 or more:
            self._limit = limit
            self._because("IBA 9.7.7.2.4", "a duplicate ACK may grant credits")

    def _limit_in(self, reply: Reply) -> int | None:
        """The last message that the responder has a receive for; ``None`` without a limit."""
        count = reply.syndrome & 31
        return None if count == NO_CREDITS else serial.add(reply.msn, CREDITS[count])

    def _answer_in_window(self, reply: Reply, packet: int) -> None:
        kind = reply.syndrome >> 5 if reply.syndrome >= 0 else Ack.ACK
        if kind == Ack.ACK:
            if reply.syndrome >= 0:
                self._limit = self._limit_in(reply)
            self._acknowledged(reply, packet)
        elif reply.operation != Op.ACKNOWLEDGE:
            if self._settle(packet):
                self._bad_response("IBA 9.7.5.2", "only an Acknowledge packet has a NAK")
        elif kind == Ack.RNR_NAK:
            self._not_ready(reply.syndrome & 31, packet)
        elif kind == Ack.NAK:
            self._refused(reply.syndrome & 31, packet)
        else:
            self._because("IBA 9.7.5.2", "a reserved syndrome is ignored")

    def _acknowledged(self, reply: Reply, packet: int) -> None:
        if reply.operation == Op.ACKNOWLEDGE:
            self._because("IBA 9.7.5.1.2", "an ACK completes all work up to its PSN")
            self._settle(packet + 1)
        elif self._settle(packet):
            self._responded(reply)

    def _responded(self, reply: Reply) -> None:
        """Place the response to the oldest work."""
        if not self.work:
            return
        one = self.work[0]
        is_read = reply.operation in READ_RESPONSES
        if is_read != (one.verb.response == DATA) or not one.verb.answered:
            self._bad_response("IBA 9.7.5.1", "a response of another operation")
        elif is_read:
            self._read_responded(one, reply)
        else:
            self._because("IBA 9.7.5.1.4", "an atomic returns the original value")
            self._placed(one, reply.data[::-1])

    def _read_responded(self, one: QueuedWork, reply: Reply) -> None:
        left = one.packets - one.answered
        wanted = one.one.length if one.one.verb == "RDMA_READ" else 0
        wanted = min(wanted - one.answered * self.setup.mtu, self.setup.mtu)
        if (left == 1) != (reply.operation in _ENDS):
            self._bad_response("IBA 9.7.5.1.3", "first and middle responses precede one last")
        elif len(reply.data) != max(wanted, 0):
            self._bad_response("IBA 9.7.5.1.3", "a READ response of another length")
        else:
            self._because("IBA 9.7.5.1.3", "a READ response is written to the SGEs")
            self._placed(one, reply.data)

    def _placed(self, one: QueuedWork, data: bytes) -> None:
        """Write a response to local memory; the last one completes the work."""
        if one.one.verb in SINK_WORK:
            self._write(one.one, one.answered * self.setup.mtu, data)
        one.answered += 1
        self.unacked += 1
        if one.answered == one.packets:
            self._complete()
        self._progress()

    def _bad_response(self, clause: str, why: str) -> None:
        self._because(clause, f"{why}: Bad Response Error, IBA 11.6.2")
        self._fail(WCStatus.BAD_RESP_ERR)

    def _not_ready(self, timer: int, packet: int) -> None:
        if not self._settle(packet):
            return
        self.counters["rcvd_rnr_err"] += 1
        if not self.work:
            return
        self._because("IBA 9.7.5.2.8", "an RNR NAK: wait, then retransmit")
        if self.waiting:
            return
        if not self._rnr_retries:
            self._because("IBA 9.7.5.2.8", "no RNR retry is left")
            self._fail(WCStatus.RNR_RETRY_EXC_ERR)
            return
        self._rnr_retries -= self.setup.rnr_retry != _ENDLESS
        self.counters["rnr_nak_retry_err"] += 1
        self.next = self.unacked
        self.waiting = True
        self.deadline = self.now + self.profile.rnr_timer_ns[timer]

    def _refused(self, code: int, packet: int) -> None:
        if not self._settle(packet):
            return
        if code == Nak.PSN_SEQUENCE_ERROR:
            self._sequence_error()
            return
        if not self.work:
            return
        self._because("IBA 9.9.2.3", f"{_nak_text(code)} ends the oldest work")
        self._fail(NAK_STATUS.get(code, WCStatus.BAD_RESP_ERR))

    def _sequence_error(self) -> None:
        """Retransmit from the oldest packet, as a NAK demands."""
        self.counters["rcvd_seq_err"] += 1
        repeats = self._repeating or self.waiting
        if self.work:
            self._because("IBA 9.7.5.2", "a PSN sequence error: retransmit from there")
            repeats = self._repeat() or repeats
        self.counters["packet_seq_err"] += repeats

    # Progress and completions.

    def _settle(self, packet: int) -> bool:
        """Complete work before ``packet``. Return ``False`` if a response before it is missing."""
        before = self.unacked
        while self.work and self.work[0].first >= 0 and self.unacked < packet:
            one = self.work[0]
            if one.verb.answered:
                break
            self.unacked = min(one.end, packet)
            if self.unacked == one.end:
                self._complete()
        if self.unacked != before:
            self._progress()
        if self.failed or self.unacked >= packet:
            return True
        self._because("IBA 9.7.5.1.2", "an implied NAK: an earlier response is missing")
        self.counters["implied_nak_seq_err"] += self._repeat()
        return False

    def _complete(self) -> None:
        """Complete the oldest work; then local errors of later work have their turn."""
        one = self.work.popleft()
        self._messages += 1
        if one.one.signaled:
            length = one.one.length if one.one.verb in SINK_WORK else 0
            done = Completion(one.number, WCStatus.SUCCESS, one.verb.completion, length)
            self.completions.append(done)
            self._silent = 0
        else:
            self._silent += 1
        self._end_local_error()

    def _end_local_error(self) -> None:
        if self.work and (error := self.work[0].error) is not None:
            self._because("IBA 10.8.3.3", "work with a local error ends in its turn")
            self._fail(error)

    def _fail(self, status: WCStatus) -> None:
        """End the queue pair: the oldest work gets ``status``, all other is flushed."""
        for index, one in enumerate(self.work):
            got = WCStatus.WR_FLUSH_ERR if index else status
            self._end_with(one.number, got)
        self.work.clear()
        self.failed, self.waiting, self.deadline, self._silent = True, False, None, 0

    def _end_with(self, number: int, status: WCStatus) -> None:
        """Complete work with an error."""
        self.completions.append(Completion(number, status))
        self.counters["req_cqe_error"] += 1
        if status in _COUNTED:
            self.counters[_COUNTED[status]] += 1

    def _progress(self) -> None:
        """Restore the retries and restart the timer."""
        self.next = max(self.next, self.unacked)
        self._restore()
        if not self.waiting:
            self.deadline = None
            self._start_timer()

    def _start_timer(self) -> None:
        if self.deadline is None and self._timeout and self.in_flight and not self.failed:
            self.deadline = self.now + self._timeout

    # Retransmission.

    def _repeat(self) -> bool:
        """Send again, once until there is progress or a time-out; return whether it is now."""
        if self._repeating or self.waiting:
            return False
        goes_back = self._go_back()
        self._repeating = True
        return goes_back

    def _go_back(self) -> bool:
        """Send again from the oldest packet. Return ``False`` if no retry is left."""
        self._repeating = False
        if not self._retries:
            self._because(self._clause, f"{self._why}, and no retry is left")
            self._fail(WCStatus.RETRY_EXC_ERR)
            return False
        self.counters["completer_retry_err"] += 1
        self._retries -= self.setup.retry_cnt != self.profile.endless_retry_cnt
        self.next = self.unacked
        self.deadline = None
        return True

    # Requests.

    def _send(self) -> tuple[Request, ...]:
        """Send all that may be sent now."""
        if self.failed or self.waiting:
            return ()
        requests: list[Request] = []
        for one in self.work:
            if one.first < 0:
                if self._held(one):
                    break
                self._start(one)
            if one.error is None:
                self._send_work(one, requests)
        self.newest = max(self.newest, self.next)
        self._start_timer()
        self._end_local_error()
        return tuple(requests)

    def _held(self, one: QueuedWork) -> bool:
        """Whether work must wait for earlier work, or for credits."""
        if self._halted:
            return True
        reads = sum(other.first >= 0 and other.verb.answered for other in self.work)
        if reads and one.one.fence:
            return True  # IBA 10.8.3.3
        if one.verb.answered:
            return reads >= self.setup.rd_atomic  # IBA 9.4.4
        if self._limit is None or not one.verb.receives:
            return False
        # IBA 9.7.7.2.5: one message is sent without credits if nothing is outstanding.
        in_flight = self.next > self.unacked
        return in_flight and serial.is_before(self._limit, serial.add(self._started, 1))

    def _start(self, one: QueuedWork) -> None:
        """Give work its packets, or its local error."""
        one.first = self.next
        if self._is_allowed(one):
            self._started += 1
            return
        one.error = WCStatus.LOC_PROT_ERR
        one.packets = 0
        self._halted = True

    def _is_allowed(self, one: QueuedWork) -> bool:
        """Whether the local keys allow the access."""
        needed = Access.LOCAL_WRITE if one.one.verb in SINK_WORK else 0
        if one.inline is not None or not one.one.sges:
            return True
        if one.one.key:
            return False
        return all(
            offset >= 0
            and offset + length <= AREAS[index].length
            and not needed & ~AREAS[index].access
            for index, offset, length in one.one.sges
        )

    def _send_work(self, one: QueuedWork, requests: list[Request]) -> None:
        if one.verb.answered:
            if self.next < one.end:
                requests.append(self._single(one))
                self.next = one.end
            return
        while self.next < one.end:
            requests.append(self._packet(one, self.next - one.first))
            self.next += 1


_NOT_YET: Final = {
    (False, False): ("", "nothing is due"),
    (True, False): ("IBA 9.7.6.1.3", "the time for an ACK is not over"),
    (True, True): ("IBA 9.7.5.2.8", "the RNR NAK's time is not over"),
}
"""Why nothing is sent, by whether a timer runs, and whether it is that of an RNR NAK."""


def _nak_text(code: int) -> str:
    return f"NAK {Nak(code).name}" if code in NAK_STATUS else "a NAK with a reserved code"
