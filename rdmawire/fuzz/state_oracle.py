"""The oracle of state-level fuzzing: judges each event at a host.

An event is a frame that arrives, a timer, or a verb. After each, the frames that the host sends,
its completions, its memory and its counters must be what the models of its ends allow.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from rdmawire.errors import Copyable, WireError
from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.packet_validation import Accepted, accepted_packet, reply_in, request_in
from rdmawire.fuzz.queue_end import COMPLETIONS, QueueEnd, Station
from rdmawire.fuzz.setup import AREAS, PKEY, WINDOW
from rdmawire.fuzz.target import Completion
from rdmawire.fuzz.work_model import Problem
from rdmawire.ib.hw_counters import DATA_UNIT
from rdmawire.memory.key import Access
from rdmawire.verbs.enums import QPState, QPType, WCFlags, WCStatus, WorkCompletion
from rdmawire.wire import roce
from rdmawire.wire.ib import Ack, Nak
from rdmawire.wire.opcode import SHAPES
from rdmawire.wire.opcode import Operation as Op

RECEIVING: Final = frozenset((QPState.RTR, QPState.RTS, QPState.SQD, QPState.SQE))
"""States in which packets of the peer are processed. IBA 10.3.1."""
SENDING: Final = frozenset((QPState.RTS, QPState.SQD))
"""States in which requests are sent. IBA 10.3.1."""
_ATOMIC_RIGHTS: Final = {
    Op.CMP_SWAP: int(Access.REMOTE_ATOMIC),
    Op.FETCH_ADD: int(Access.REMOTE_ATOMIC),
    Op.ATOMIC_WRITE: int(Access.REMOTE_WRITE),
}
_SENDS: Final = frozenset(op for op in Op if op.name.startswith("SEND"))
_WRITES: Final = frozenset(op for op in Op if op.name.startswith("RDMA_WRITE"))
_BEGIN_WRITE: Final = frozenset(
    (Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_ONLY, Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE)
)

Ranges = list[tuple[int, int]]
"""Parts of memory: start and length in bytes."""


class StateViolation(Copyable, Exception):
    """Raised when a rule is violated. ``problem`` describes it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.rule} ({problem.clause}): {problem.happened}")
        self.problem = problem


def fail(rule: str, clause: str, expected: str, happened: str) -> None:
    """Raise :class:`StateViolation`."""
    raise StateViolation(Problem(rule, clause, expected, happened))


class ExpectedArrival(NamedTuple):
    """A frame for an end of a host: what it is, and what may follow."""

    end: QueueEnd | None = None
    request: Request | None = None
    response: roce.Frame | None = None
    was: QPState = QPState.RESET
    replies: Expected = Expected()
    writable: tuple[tuple[int, int], ...] = ()


NOTHING: Final = ExpectedArrival()


class StateOracle:
    """Judges the events at the stations. ``ends`` are all ends, by QPN."""

    def __init__(self, ends: dict[int, QueueEnd]) -> None:
        self.ends = ends

    # Arriving frames.

    def expect(self, station: Station, frame: bytes, now: int) -> ExpectedArrival:
        """Count and model a frame before the host receives it; return what it is and may do."""
        station.seen.received += 1
        station.seen.received_bytes += len(frame)
        end = self._addressed(station, frame)
        if end is None or end.state not in RECEIVING:
            return NOTHING if end is None else ExpectedArrival(end, was=end.state)
        found = accepted_packet(frame, end.headers, end.qpn)
        if found is None:
            return ExpectedArrival(end, was=end.state)
        if SHAPES.get(found.frame.packet.bth.opcode, _REQUEST).response:
            return self._expect_response(end, found.frame, now)
        return self._expect_request(end, found)

    def _addressed(self, station: Station, frame: bytes) -> QueueEnd | None:
        """The end of the station that the BTH names."""
        offset = roce.bth_offset(frame, 0, len(frame))
        if offset < 0:
            return None
        qpn = int.from_bytes(frame[offset + 5 : offset + 8], "big")
        return next((end for end in station.ends if end.qpn == qpn), None)

    def _expect_response(self, end: QueueEnd, frame: roce.Frame, now: int) -> ExpectedArrival:
        mine = frame.packet.bth.opcode & 0xE0 == end.base
        if mine and end.reliable and end.kind is not QPType.XRC_TGT:
            end.work.note_response(frame, now, end.station.profile.rnr_timer_ns)
        return ExpectedArrival(end, response=frame, was=end.state)

    def _expect_request(self, end: QueueEnd, found: Accepted) -> ExpectedArrival:
        request = request_in(found.frame, malformed=found.malformed)
        if end.responder is not None:
            replies = end.responder.request(request)
            return ExpectedArrival(end, request, was=end.state, replies=replies)
        if request.opcode & 0xE0 != end.base or end.kind is QPType.XRC_INI:
            return ExpectedArrival(end, was=end.state)
        ranges = tuple(self._writable(end, request))
        return ExpectedArrival(end, request, was=end.state, writable=ranges)

    def _writable(self, end: QueueEnd, request: Request) -> Iterator[tuple[int, int]]:
        """Yield the parts of the arena that a request may change."""
        operation = request.opcode & 31
        if operation in _SENDS:
            yield from ((start, length) for _, start, length in end.receives)
        if operation in _BEGIN_WRITE and _is_expected(end, request):
            right = int(Access.REMOTE_WRITE)
            end.open_write = _granted(end, request, request.dmalen, right) or (0, 0)
        if operation in _WRITES:
            yield end.open_write
        if operation in _ATOMIC_RIGHTS:
            cell = _granted(end, request, 8, _ATOMIC_RIGHTS[Op(operation)])
            yield from () if cell is None else (cell,)

    # After an event.

    def judge(
        self, station: Station, arrival: ExpectedArrival, frames: list[bytes], now: int
    ) -> None:
        """Judge what a host did in one event."""
        replies = list(self._judge_requests(station, arrival, frames, now))
        self._judge_replies(arrival, replies)
        sinks = {end: list(end.work.sinks()) for end in station.ends}
        for end in station.ends:
            self._judge_completions(end, arrival, now)
            self._judge_local(end, sinks[end], arrival)
        self._judge_memory(station, arrival)

    def _judge_requests(
        self, station: Station, arrival: ExpectedArrival, frames: list[bytes], now: int
    ) -> Iterator[tuple[QueueEnd, Reply]]:
        """Judge the requests among frames that a host sends; yield its replies."""
        for data in frames:
            station.seen.sent += 1
            station.seen.sent_bytes += len(data)
            frame = _parsed(data)
            end = self._sender(station, frame)
            bth = frame.packet.bth
            if SHAPES[bth.opcode].response:
                reply = reply_in(frame)
                _count_nak(station, reply)
                self._check_answers(end, arrival)
                yield end, reply
                continue
            if end.state not in SENDING:
                fail("state", "IBA 10.3.1", f"no request in {end.state.name}", bth_words(frame))
            _raise(end.work.judge_request(frame, now, begins=end.state is QPState.RTS))

    def _sender(self, station: Station, frame: roce.Frame) -> QueueEnd:
        """The end that sent a frame."""
        peer = self.ends.get(frame.packet.bth.destqp)
        if peer is None or peer.peer.station is not station:
            fail("destination", "IBA 9.6", "a frame to a peer", bth_words(frame))
        assert peer is not None
        return peer.peer

    def _check_answers(self, end: QueueEnd, arrival: ExpectedArrival) -> None:
        """Responses are sent in states that receive; in ERR only to the last request."""
        if end.state in RECEIVING or (end is arrival.end and arrival.was in RECEIVING):
            return
        fail("state", "IBA 10.3.1", f"no response in {end.state.name}", "a response")

    def _judge_replies(self, arrival: ExpectedArrival, found: list[tuple[QueueEnd, Reply]]) -> None:
        """Compare the replies with those of the model."""
        for other, reply in found:
            if other is not arrival.end and other.responder is not None:
                fail("replies", "IBA 9.7", "none without a request", str(reply))
        end = arrival.end
        if end is None or end.responder is None:
            return
        replies, wanted = _of(end, found), list(arrival.replies.replies)
        if replies != wanted:
            _, clause, why = arrival.replies
            fail("replies", clause or "IBA 9.7", f"{_words(wanted)} ({why})", _words(replies))

    # Completions.

    def _judge_completions(self, end: QueueEnd, arrival: ExpectedArrival, now: int) -> None:
        sends = end.send_cq.poll(COMPLETIONS)
        receives = end.recv_cq.poll(COMPLETIONS)
        if end.responder is not None and end.responder.failed:
            end.state = QPState.ERR
        elif end.responder is None and self._may_fail(end, arrival):
            end.state = end.qp.state
        if sends:
            local = end.local_bytes()
            for done in sends:
                self._judge_send(end, done, now, local)
        self._judge_receives(end, receives)
        self._judge_state(end)

    @staticmethod
    def _may_fail(end: QueueEnd, arrival: ExpectedArrival) -> bool:
        """Whether a request that arrived may have ended a queue pair without an exact model."""
        asked = arrival.end is end and arrival.request is not None
        return asked and end.qp.state is QPState.ERR

    def _judge_send(self, end: QueueEnd, done: WorkCompletion, now: int, local: bytes) -> None:
        _raise(end.work.judge_completion(done, now, local))
        failed = done.status is not WCStatus.SUCCESS
        flushed = done.status is WCStatus.WR_FLUSH_ERR
        end.station.seen.failed_sends += failed
        end.station.seen.flushed_sends += flushed
        if flushed and end.state not in (QPState.ERR, QPState.SQE):
            fail("flush", "IBA 10.8.3.3", f"none in {end.state.name}", f"work {done.wr_id} flushed")
        if failed and end.reliable:
            end.state = QPState.ERR
            if end.responder is not None:
                end.responder.enter_error()
        elif failed and end.state is not QPState.ERR:
            end.state = QPState.SQE

    def _judge_receives(self, end: QueueEnd, found: list[WorkCompletion]) -> None:
        seen = end.station.seen
        for done in found:
            seen.receives += done.status is WCStatus.SUCCESS
            seen.failed_receives += done.status is not WCStatus.SUCCESS
            seen.flushed_receives += done.status is WCStatus.WR_FLUSH_ERR
        if end.responder is None:
            self._in_order(end, found)
            return
        wanted, end.responder.completions = end.responder.completions, []
        shown = [_completion(done) for done in found]
        if shown != wanted:
            fail("receive completions", "IBA 10.8.5", _words(wanted), _words(shown))

    @staticmethod
    def _in_order(end: QueueEnd, found: list[WorkCompletion]) -> None:
        """Receives complete in the order in which they were posted, each once."""
        for done in found:
            while end.srq is not None and end.receives and end.receives[0].number < done.wr_id:
                end.receives.popleft()  # a reset target never completes the receive that it used
            if not end.receives or end.receives[0].number != done.wr_id:
                expected = f"receive {end.receives[0].number}" if end.receives else "none"
                fail("exactly once", "IBA 10.8.5", expected, f"receive {done.wr_id} completed")
            end.receives.popleft()

    @staticmethod
    def _judge_state(end: QueueEnd) -> None:
        """The queue pair is in the state that the model knows."""
        if end.qp.state is not end.state:
            fail("state", "IBA 10.3.1", end.state.name, end.qp.state.name)

    # Memory.

    def _judge_local(self, end: QueueEnd, sinks: Ranges, arrival: ExpectedArrival) -> None:
        """Local memory changes only in the slots of work that waits for a response."""
        found = end.local_bytes()
        if found == end.local:
            return
        allowed = sinks if arrival.end is end and arrival.response is not None else []
        _check_changes("local memory", "IBA 10.6.3.1", bytes(end.local), found, allowed)
        end.local[:] = found

    def _judge_memory(self, station: Station, arrival: ExpectedArrival) -> None:
        """The arena changes only as the request allows."""
        found = station.arena_bytes()
        if found == station.memory:
            return
        _check_changes(
            "memory", "IBA 9.7.4.1.5, 10.6.3", bytes(station.memory), found, list(arrival.writable)
        )
        station.memory[:] = found

    # Counters.

    def judge_counters(self, station: Station) -> None:
        """The counters of the adapter are those of frames and completions seen."""
        counters, seen = station.nic.counters, station.seen
        wanted = {
            "port_rcv_packets": seen.received,
            "port_rcv_data": seen.received_bytes // DATA_UNIT,
            "port_xmit_packets": seen.sent,
            "port_xmit_data": seen.sent_bytes // DATA_UNIT,
            "rdma_recvs": seen.receives,
            "resp_cqe_error": seen.failed_receives,
            "resp_cqe_flush_error": seen.flushed_receives,
            "req_cqe_error": seen.failed_sends,
            "req_cqe_flush_error": seen.flushed_sends,
            "send_rnr_err": seen.rnr_naks,
            "out_of_seq_request": seen.sequence_naks,
        }
        for name, value in wanted.items():
            if getattr(counters, name) != value:
                fail("counters", "IBA 16.1.3.5", f"{name} {value}", str(getattr(counters, name)))


class _Shape(NamedTuple):
    response: bool = False


_REQUEST: Final[Any] = _Shape()
"""The shape of reserved opcodes, which count as requests."""


def _is_expected(end: QueueEnd, request: Request) -> bool:
    """Whether a queue pair without an exact model executes the request: not one out of sequence."""
    return not end.reliable or request.psn == end.qp.inbound.epsn


def _granted(end: QueueEnd, request: Request, length: int, right: int) -> tuple[int, int] | None:
    """The part of the arena that a key of the end allows, or ``None``."""
    numbers = end.numbers
    for area, va, rkey in zip((*AREAS, WINDOW), numbers.vas, numbers.rkeys, strict=True):
        inside = va <= request.va and request.va + length <= va + area.length
        if rkey == request.rkey and inside and area.access & right:
            return area.start + request.va - va, length
    return None


def _parsed(data: bytes) -> roce.Frame:
    """Parse a frame that a host sent."""
    try:
        frame = roce.parse(data)
    except WireError as error:
        raise StateViolation(
            Problem("frame", "IBA 9.2, 7.8.1", "a frame with good checksums", str(error))
        ) from error
    if frame.seal() != frame or frame.packet.bth.pkey != PKEY:
        fail("frame", "IBA 9.2, 7.8.1", "good checksums and P_Key", bth_words(frame))
    return frame


def bth_words(frame: roce.Frame) -> str:
    """Describe a frame by its BTH."""
    bth = frame.packet.bth
    return f"opcode {bth.opcode:#04x}, PSN {bth.psn}, to QP {bth.destqp:#x}"


def _count_nak(station: Station, reply: Reply) -> None:
    if reply.syndrome < 0:
        return
    kind, code = reply.syndrome >> 5, reply.syndrome & 31
    station.seen.rnr_naks += kind == Ack.RNR_NAK
    station.seen.sequence_naks += kind == Ack.NAK and code == Nak.PSN_SEQUENCE_ERROR


def _of(end: QueueEnd, found: Iterable[tuple[QueueEnd, Reply]]) -> list[Reply]:
    return [reply for one, reply in found if one is end]


def _completion(done: WorkCompletion) -> Completion:
    if done.status is not WCStatus.SUCCESS:
        return Completion(done.wr_id, done.status)
    value = done.imm_data if done.wc_flags & WCFlags.WITH_IMM else 0
    if done.wc_flags & WCFlags.WITH_INV:
        value = done.invalidated_rkey
    return Completion(done.wr_id, done.status, done.opcode, done.byte_len, value)


def _words(values: Iterable[object]) -> str:
    return "; ".join(map(str, values)) or "nothing"


def _raise(problem: Problem | None) -> None:
    if problem is not None:
        raise StateViolation(problem)


def _check_changes(rule: str, clause: str, before: bytes, found: bytes, allowed: Ranges) -> None:
    """Check that bytes changed only in the allowed ranges."""
    may = bytearray(len(before))
    for start, length in allowed:
        may[start : start + length] = b"\1" * length
    wrong = [
        offset for offset, byte in enumerate(found) if byte != before[offset] and not may[offset]
    ]
    if wrong:
        first, last = wrong[0], wrong[-1] + 1
        expected = f"{bytes(before[first : min(last, first + 16)]).hex()} at {first}"
        happened = f"{found[first : min(last, first + 16)].hex()}: {len(wrong)} bytes differ"
        fail(rule, clause, expected, happened)
