"""A plain model of a requester: posted work, the packets it may send, and how it may complete.

The model sees the frames that the queue pair sends and those that it receives. It judges each
request packet, and each completion: work succeeds only after the responses that acknowledge it,
fails only for a reason that was on the wire, and completes once and in order. IBA 9.7, 10.8.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rdmawire.fuzz.requester_model import NAK_STATUS, READ_RESPONSES
from rdmawire.fuzz.state_setup import PATH_MTU, RD_ATOMIC, RETRY_CNT, RNR_RETRY, TIMEOUT
from rdmawire.ib.retransmit_timer import ACK_TIMEOUT_UNIT
from rdmawire.verbs.enums import WCStatus, WorkCompletion
from rdmawire.verbs.wr import FENCE, SIGNALED, VERBS, Answer, SendOpcode, SendWR
from rdmawire.wire import roce, serial
from rdmawire.wire.ib import AETH, IETH, RETH, Ack, AtomicAckETH, AtomicETH, ImmDt, Nak
from rdmawire.wire.opcode import Operation as Op

ACK_TIMEOUT: Final = ACK_TIMEOUT_UNIT << TIMEOUT
"""The Local ACK Timeout in ns."""


class Problem(NamedTuple):
    """A rule that is violated: its name, its clause, what was expected and what happened."""

    rule: str
    clause: str
    expected: str
    happened: str


@dataclass(slots=True)
class PostedWork:
    """A posted work request.

    ``data`` are the bytes that it sends, ``length`` those of its message or of its response.
    ``sink`` is where its response is placed in local memory, -1 if nowhere. ``local_error`` says
    that its local key is invalid. ``first`` and ``packets`` are its PSNs; ``sent`` counts the
    packets that were sent at least once.
    """

    wr: SendWR
    length: int = 0
    data: bytes = b""
    sink: int = -1
    local_error: bool = False
    first: int = 0
    packets: int = 0
    sent: int = 0

    @property
    def takes_resource(self) -> bool:
        """Whether it is a READ, FLUSH or atomic, which needs a response of its own."""
        return VERBS[self.wr.opcode].takes_resource

    @property
    def is_read(self) -> bool:
        """Whether its responses are READ responses."""
        return VERBS[self.wr.opcode].answer is Answer.READ

    @property
    def signaled(self) -> bool:
        """Whether it has a completion if it succeeds."""
        return bool(self.wr.flags & SIGNALED)

    def payload(self, index: int) -> bytes:
        """Return the payload of its packet with this index."""
        return self.data[index * PATH_MTU : (index + 1) * PATH_MTU]

    def operation(self, index: int) -> int | None:
        """Return the operation of its packet with this index."""
        verb = VERBS[self.wr.opcode]
        if self.packets == 1 or self.takes_resource:
            return verb.only
        if index == 0:
            return verb.first
        return verb.last if index == self.packets - 1 else verb.middle


class WorkModel:
    """The send queue of one queue pair.

    ``psn`` is the first PSN, ``base`` the service's bits of the opcode. ``reliable`` says that
    responses acknowledge. Times are in ns.
    """

    def __init__(self, psn: int, base: int, *, reliable: bool) -> None:
        self.base = base
        self.reliable = reliable
        self.works: deque[PostedWork] = deque()
        self.next_psn = self.unacked = psn
        self.sent_end = psn
        self.answers: dict[int, bytes] = {}
        self.progress = 0
        self.timer_from = 0
        self._signals = self._rnr_naks = 0
        self._rnr_until = 0
        self._reasons: set[WCStatus] = set()
        self.has_failed = False
        """Whether work has failed, so that all after it is flushed."""

    # Work.

    def post(self, work: PostedWork, now: int) -> None:
        """Add posted work, and give it its PSNs."""
        verb = VERBS[work.wr.opcode]
        if not self.works and self.has_failed:
            self.next_psn = self.sent_end  # flushed work took no PSNs
        if not self.waits:
            self.resume(now)
        if work.local_error or verb.answer is Answer.NOTHING:
            work.packets = 0
        elif verb.one_packet:
            work.packets = 1
        else:
            work.packets = max(-(-work.length // PATH_MTU), 1)
        work.first = self.next_psn
        self.next_psn = serial.add(self.next_psn, work.packets)
        self.works.append(work)

    @property
    def waits(self) -> bool:
        """Whether work is not complete, or has no completion yet that it needs."""
        return any(work.signaled or self._is_open(work) for work in self.works)

    def resume(self, now: int) -> None:
        """Note that work may be started now."""
        self.progress = self.timer_from = now

    def sinks(self) -> Iterator[tuple[int, int]]:
        """Yield start and length of the local memory that responses may change."""
        for work in self.works:
            if work.sink >= 0 and not work.local_error:
                yield work.sink, work.length

    def _work_at(self, psn: int) -> PostedWork | None:
        """The work with this PSN."""
        for work in self.works:
            if serial.in_window(psn, work.first, work.packets):
                return work
        return None

    # Packets sent.

    def judge_request(self, frame: roce.Frame, now: int, *, begins: bool) -> Problem | None:
        """Judge a request packet. ``begins`` says that new work may be started."""
        bth = frame.packet.bth
        work = self._work_at(bth.psn)
        if work is None:
            return _wrong("request PSN", "IBA 9.7.2", "a PSN of posted work", f"PSN {bth.psn}")
        index = serial.span(work.first, bth.psn)
        problem = self._judge_start(work, index, now, begins=begins) or self._judge_content(
            work, index, frame
        )
        if problem is None:
            self._count_sent(work, index)
        return problem

    def _judge_start(
        self, work: PostedWork, index: int, now: int, *, begins: bool
    ) -> Problem | None:
        """Judge when the packet is sent."""
        if index > work.sent or (index == 0 == work.sent and work.first != self.sent_end):
            happened = f"packet {index} of work {work.wr.wr_id}, sent {work.sent}"
            return _wrong("request order", "IBA 9.7.2", "the packets in order", happened)
        if now < self._rnr_until:
            expected = f"no packet before {self._rnr_until} ns"
            return _wrong("RNR wait", "IBA 9.7.5.2.8", expected, f"a packet at {now} ns")
        if index or work.sent:
            return None
        if not begins:
            return _wrong("SQD", "IBA 10.3.1.5", "no new work in SQD", f"work {work.wr.wr_id}")
        return self._judge_limits(work)

    def _judge_limits(self, work: PostedWork) -> Problem | None:
        """Judge new work: a fence, and the limit of READs and atomics."""
        earlier = (one for one in self.works if one is not work and one.takes_resource)
        open_reads = sum(one.sent > 0 and self._is_open(one) for one in earlier)
        if work.wr.flags & FENCE and open_reads:
            happened = f"fenced work {work.wr.wr_id} with {open_reads} READs or atomics before it"
            return _wrong("fence", "IBA 10.8.3.3", "earlier READs and atomics complete", happened)
        if work.takes_resource and open_reads >= RD_ATOMIC:
            happened = f"{open_reads + 1} READs and atomics"
            return _wrong("max_rd_atomic", "IBA 9.4.4", f"{RD_ATOMIC} at most", happened)
        return None

    def _judge_content(self, work: PostedWork, index: int, frame: roce.Frame) -> Problem | None:
        """Compare opcode, headers and payload with the work request."""
        packet = frame.packet
        operation = work.operation(index)
        payload = work.data if work.takes_resource else work.payload(index)
        wanted: list[tuple[str, Any]] = [
            ("opcode", self.base | (operation or 0)),
            ("payload", payload),
        ]
        found: dict[str, Any] = {"opcode": packet.bth.opcode, "payload": packet.payload}
        for name, expected_value, seen in _header_values(work, index, packet):
            wanted.append((name, expected_value))
            found[name] = seen
        for name, value in wanted:
            if found[name] != value:
                expected = f"{name} {_shown(value)} of work {work.wr.wr_id}"
                return _wrong("request content", "IBA 9.4", expected, _shown(found[name]))
        if self.reliable and index == work.packets - 1 and not packet.bth.ackreq:
            return _wrong("AckReq", "IBA 9.7.3.1", "AckReq in the last packet", "no AckReq")
        return None

    def _count_sent(self, work: PostedWork, index: int) -> None:
        sent = work.packets if work.takes_resource else index + 1
        if sent > work.sent:
            work.sent = sent
            self.sent_end = serial.add(work.first, sent)

    # Responses received.

    def note_response(self, frame: roce.Frame, now: int, rnr_timers: tuple[int, ...]) -> None:
        """Note a response that the queue pair receives. ``rnr_timers`` are in ns, by index."""
        packet = frame.packet
        in_flight = serial.span(self.unacked, self.sent_end)
        if not serial.in_window(packet.bth.psn, self.unacked, in_flight):
            return
        aeth = packet.header(AETH)
        operation = packet.bth.opcode & 31
        psn = packet.bth.psn
        if aeth is not None and aeth.ack != Ack.ACK:
            if self._settle(psn, now):
                self._note_refusal(operation, aeth, now, rnr_timers)
        elif operation == Op.ACKNOWLEDGE:
            self._settle(serial.add(psn, 1), now)
        elif self._settle(psn, now):
            self._note_data(operation, packet, now)

    def _settle(self, psn: int, now: int) -> bool:
        """Acknowledge all before ``psn``, up to a READ or atomic without its response."""
        before = self.unacked
        for work in self.works:
            if not self._is_open(work):
                continue
            left = serial.span(self.unacked, psn)
            if not left or work.takes_resource:
                break
            unacked = work.packets - self._acked(work)
            self.unacked = serial.add(self.unacked, min(unacked, left))
        if self.unacked != before:
            self._note_progress(now)
        if self.unacked != psn:
            self._signals += 1
        return self.unacked == psn

    def _acked(self, work: PostedWork) -> int:
        """How many packets of the work are acknowledged."""
        return min(max(serial.distance(work.first, self.unacked), 0), work.packets)

    def _is_open(self, work: PostedWork) -> bool:
        """Whether packets of the work are not acknowledged, or not sent if nothing answers."""
        done = self._acked(work) if self.reliable else work.sent
        return done < work.packets

    def _note_progress(self, now: int) -> None:
        """Note progress, which restores all retries. IBA 9.7.6.1.3."""
        self.progress = self.timer_from = now
        self._signals = self._rnr_naks = 0

    def _note_refusal(
        self, operation: int, aeth: AETH, now: int, rnr_timers: tuple[int, ...]
    ) -> None:
        if operation != Op.ACKNOWLEDGE:  # a READ or atomic response refuses nothing
            self._reasons.add(WCStatus.BAD_RESP_ERR)
        elif aeth.ack == Ack.RNR_NAK:
            self._rnr_naks += 1
            if now >= self._rnr_until:
                self._rnr_until = now + rnr_timers[aeth.value]
        elif aeth.ack == Ack.NAK and aeth.value == Nak.PSN_SEQUENCE_ERROR:
            self._signals += 1
        elif aeth.ack == Ack.NAK:
            self._reasons.add(NAK_STATUS.get(aeth.value, WCStatus.BAD_RESP_ERR))

    def _note_data(self, operation: int, packet: Any, now: int) -> None:
        """Note the response that a READ or atomic waits for."""
        work = self._work_at(packet.bth.psn)
        if work is None:
            return
        atomic = packet.header(AtomicAckETH)
        fits = work.takes_resource and work.is_read == (operation in READ_RESPONSES)
        if not fits or (work.is_read and not self._fits(work, operation, packet)):
            self._reasons.add(WCStatus.BAD_RESP_ERR)
            return
        data = packet.payload if atomic is None else atomic.origremdt.to_bytes(8, "little")
        self.answers[packet.bth.psn] = data
        self.unacked = serial.add(packet.bth.psn, 1)
        self._note_progress(now)

    @staticmethod
    def _fits(work: PostedWork, operation: int, packet: Any) -> bool:
        """Whether a READ response has the length and the position that its PSN implies."""
        index = serial.span(work.first, packet.bth.psn)
        size = work.length if work.sink >= 0 else 0
        wanted = min(size - index * PATH_MTU, PATH_MTU) if size else 0
        last = index == work.packets - 1
        ends = operation in (Op.RDMA_READ_RESPONSE_LAST, Op.RDMA_READ_RESPONSE_ONLY)
        return last == ends and len(packet.payload) == wanted

    # Completions.

    def judge_completion(self, done: WorkCompletion, now: int, local: bytes) -> Problem | None:
        """Judge a completion. ``local`` is the local memory of the queue pair."""
        passed = []
        while self.works and self.works[0].wr.wr_id != done.wr_id:
            passed.append(self.works.popleft())
        if not self.works:
            happened = f"work {done.wr_id} completed with {done.status.name}"
            return _wrong("exactly once", "IBA 10.8.5", "one completion in order", happened)
        work = self.works.popleft()
        for one in passed:
            if one.signaled or self._is_open(one):
                happened = f"work {done.wr_id} completed first"
                expected = f"the completion of work {one.wr.wr_id}"
                return _wrong("exactly once", "IBA 10.8.5", expected, happened)
        if done.status is WCStatus.SUCCESS:
            return self._succeeded(work, done, local)
        return self._failed(work, done.status, now)

    def _succeeded(self, work: PostedWork, done: WorkCompletion, local: bytes) -> Problem | None:
        number = work.wr.wr_id
        if work.local_error:
            return _wrong("local key", "IBA 10.6.3.1", "LOC_PROT_ERR", f"work {number} succeeded")
        if done.opcode != VERBS[work.wr.opcode].completion:
            expected = VERBS[work.wr.opcode].completion.name
            return _wrong("completion opcode", "IBA 11.4.2.1", expected, str(done.opcode))
        if self._is_open(work):
            expected = f"PSN {serial.add(work.first, work.packets - 1)} acknowledged"
            happened = f"work {number} succeeded, next unacknowledged PSN {self.unacked}"
            return _wrong("unacknowledged success", "IBA 9.7.3", expected, happened)
        return self._placed(work, local)

    def _placed(self, work: PostedWork, local: bytes) -> Problem | None:
        """Compare the local memory of a READ or atomic with the responses."""
        if work.sink < 0:
            return None
        psns = (serial.add(work.first, index) for index in range(work.packets))
        wanted = b"".join(self.answers.pop(psn, b"") for psn in psns)
        found = local[work.sink : work.sink + work.length]
        if found != wanted:
            return _wrong("response data", "IBA 9.7.5.1", wanted.hex(), found.hex())
        return None

    def _failed(self, work: PostedWork, status: WCStatus, now: int) -> Problem | None:
        allowed = self._allowed(work, status, now)
        self.has_failed = self.has_failed or status is not WCStatus.WR_FLUSH_ERR
        if allowed:
            return None
        happened = f"work {work.wr.wr_id} ended with {status.name}"
        return _wrong("completion status", "IBA 10.8.5, 11.6.2", "a reason on the wire", happened)

    def _allowed(self, work: PostedWork, status: WCStatus, now: int) -> bool:
        """Whether the status has a reason."""
        if status is WCStatus.WR_FLUSH_ERR:
            return True  # the state of the queue pair is judged by its owner
        if status is WCStatus.LOC_PROT_ERR:
            return work.local_error
        if status is WCStatus.MW_BIND_ERR:
            return work.wr.opcode in (SendOpcode.BIND_MW, SendOpcode.LOCAL_INV)
        if status is WCStatus.RNR_RETRY_EXC_ERR:
            return self._rnr_naks > RNR_RETRY
        if status is WCStatus.RETRY_EXC_ERR:
            timeouts = (now - self.timer_from) // ACK_TIMEOUT
            return self._signals + timeouts > RETRY_CNT
        return status in self._reasons

    def unfinished(self) -> PostedWork | None:
        """Return signaled work that is acknowledged, but has no completion."""
        for work in self.works:
            if work.local_error or self._is_open(work):
                return None
            if work.signaled:
                return work
        return None

    def no_progress_since(self) -> int | None:
        """The time (ns) of the last progress; ``None`` if no work waits."""
        return self.progress if any(work.signaled for work in self.works) else None


def _wrong(rule: str, clause: str, expected: str, happened: str) -> Problem:
    return Problem(rule, clause, expected, happened)


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {value[:16].hex()}"
    return f"{value:#x}" if isinstance(value, int) else str(value)


def _header_values(work: PostedWork, index: int, packet: Any) -> Iterator[tuple[str, int, int]]:
    """Yield the values of extended headers: name, what the work request says, what is sent."""
    wr = work.wr
    reth, atomic = packet.header(RETH), packet.header(AtomicETH)
    if reth is not None:
        done = index * PATH_MTU if work.is_read else 0
        length = work.length if work.is_read or work.sink < 0 else 8
        yield "reth.va", (wr.remote_address + done) % (1 << 64), reth.va
        yield "reth.rkey", wr.rkey, reth.rkey
        yield "reth.dmalen", length - done, reth.dmalen
    if atomic is not None:
        adds = wr.opcode == SendOpcode.ATOMIC_FETCH_AND_ADD
        yield "atomiceth.va", wr.remote_address, atomic.va
        yield "atomiceth.rkey", wr.rkey, atomic.rkey
        yield "atomiceth.swapdt", wr.compare_add if adds else wr.swap, atomic.swapdt
        yield "atomiceth.cmpdt", 0 if adds else wr.compare_add, atomic.cmpdt
    for table, field, value in ((ImmDt, "immdt", wr.imm_data), (IETH, "rkey", wr.invalidate_rkey)):
        header = packet.header(table)
        if header is not None:
            yield f"{table.label}.{field}", value, getattr(header, field)
