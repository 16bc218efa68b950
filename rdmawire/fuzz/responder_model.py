"""A plain model of a responder on a reliable connection: what the standard requires it to answer.

The model shares no code with the adapter. It gets each request as values, and returns the replies,
with the clause that requires them; its memory and completions
(:mod:`rdmawire.fuzz.responder_state`) are what the target's must be. What another profile than
``ibta`` may do is in :mod:`rdmawire.fuzz.profile_differences`.
"""

from collections.abc import Callable
from typing import Final

from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.request_role import REQUEST_ROLES, SEND, SINGLE, WRITE, RequestRole
from rdmawire.fuzz.responder_state import (
    NO_MESSAGE,
    Message,
    Remembered,
    ResponderState,
    covers,
)
from rdmawire.fuzz.target import Completion
from rdmawire.memory.key import REMOTE_READ, REMOTE_WRITE, Access
from rdmawire.verbs.enums import WCOpcode, WCStatus
from rdmawire.wire import serial
from rdmawire.wire.ib import Ack, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.opcode import Operation as Op

_MAX_DMALEN: Final = 1 << 31
_DUPLICATES: Final = "IBA 9.7.5.1.2, 9.7.5.1.4"


_IS_RESPONSE: Final = frozenset(
    (
        Op.RDMA_READ_RESPONSE_FIRST,
        Op.RDMA_READ_RESPONSE_MIDDLE,
        Op.RDMA_READ_RESPONSE_LAST,
        Op.RDMA_READ_RESPONSE_ONLY,
        Op.ACKNOWLEDGE,
        Op.ATOMIC_ACKNOWLEDGE,
    )
)


_new: Final = tuple.__new__
IN_ERROR: Final = Expected((), "IBA 10.3.1.7", "the queue pair is in the error state")
OTHER_OPCODE: Final = Expected(
    (), "IBA 9.6.1.1.2, 9.7.4", "the opcode is not a request of this service"
)
_SECOND_GAP: Final = Expected(
    (), "IBA 9.7.4.1.2, 9.7.5.2.8", "one NAK for each gap, none after an RNR NAK"
)
_NOT_ASKED: Final = Expected((), "IBA 9.7.5.1.1", "no ACK was requested")
_ACCEPTED: Final = Expected()


class ResponderModel(ResponderState):
    """A responder of the service RC, which executes requests on its state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        profile = self.profile
        self._drops = bool(
            profile.unsupported
            or profile.flush_icrc_covers_headers_twice
            or not profile.naks_malformed_requests
        )

    # Inputs.

    def post_receive(self, length: int, _: int = 0) -> Expected:
        """Model a posted receive, which always succeeds."""
        receive = self._next_receive(length)
        if self.failed:
            self.completions.append(Completion(receive.number, WCStatus.WR_FLUSH_ERR))
            return Expected((), "IBA 10.3.1.7", "receives posted in the error state are flushed")
        self.receives.append(receive)
        if self.no_credits_left:
            ack = self._ack(self.ack_psn)
            return Expected((ack,), "IBA 9.7.7.2.4", "an unsolicited ACK grants new credits")
        return _ACCEPTED

    def request(self, request: Request) -> Expected:
        """Model one request packet that is addressed to the queue pair and has a good ICRC."""
        if self.failed:
            return IN_ERROR
        opcode, psn, *_ = request
        operation = opcode & 31
        if opcode >> 5 != self.wire or operation in _IS_RESPONSE:
            return OTHER_OPCODE
        if self._drops and (dropped := self._not_supported(operation, request)):
            return dropped
        if psn != self.epsn:
            if serial.distance(self.epsn, psn) < 0:
                return self._duplicate(operation, request)
            return self._gap()
        role = REQUEST_ROLES.get(operation)
        if role is None or request.malformed:
            return self._malformed(role)
        return self._in_sequence(operation, role, request)

    def _not_supported(self, operation: int, request: Request) -> Expected | None:
        """Requests that the profile drops as if they had not arrived."""
        profile = self.profile
        if profile.flush_icrc_covers_headers_twice and request.opcode == Opcode.RC_FLUSH:
            return Expected((), "", "a FLUSH whose ICRC is wrong for the profile")
        if request.malformed or operation not in REQUEST_ROLES:
            dropped = Expected((), "", "a malformed request, which the profile drops")
            return None if profile.naks_malformed_requests else dropped
        if operation in profile.unsupported:
            return Expected((), "", "an operation that the profile does not support")
        return None

    # Refusals.

    def _gap(self) -> Expected:
        self.counters["out_of_sequence"] += 1
        if self.nak_sent:
            return _SECOND_GAP
        self.nak_sent = True
        self.counters["out_of_seq_request"] += 1
        nak = self._nak(Nak.PSN_SEQUENCE_ERROR)
        return Expected((nak,), "IBA 9.7.4.1.2", "a PSN after the expected one")

    def _malformed(self, role: RequestRole | None) -> Expected:
        what = "a reserved opcode" if role is None else "a payload that the operation lacks"
        return self._invalid("IBA 9.7.4.1.4, 9.7.4.1.6", what)

    # Requests in sequence.

    def _in_sequence(self, operation: int, role: RequestRole, request: Request) -> Expected:
        follows = "" if role.begins else role.family
        if self.message.family != follows:
            return self._invalid("IBA 9.7.4.1.3", "an operation that cannot follow the last one")
        return EXECUTE[role.family](self, operation, role, request)

    def _take_receive(self, role: RequestRole) -> Expected | None:
        if self.receive is None:
            if not self.receives:
                return self._not_ready(role)
            self.receive = self.receives.popleft()
        return None

    def _not_ready(self, role: RequestRole) -> Expected:
        if role.begins:
            self.message = NO_MESSAGE
        self.counters["out_of_buffer"] += 1
        self.counters["send_rnr_err"] += 1
        self.nak_sent = not self.profile.naks_gaps_after_rnr
        rnr = Reply(Op.ACKNOWLEDGE, self.epsn, Ack.RNR_NAK << 5 | self.setup.rnr_timer, self.msn)
        return Expected((rnr,), "IBA 9.7.5.2.8", "no receive is posted")

    def _bad_length(self, role: RequestRole, length: int) -> Expected | None:
        """Check that first and middle packets are full, and last ones neither empty nor longer."""
        mtu = self.setup.mtu
        fits = length <= mtu and (length or role.begins) if role.ends else length == mtu
        if fits or (role.family == SEND and not self.profile.checks_send_lengths):
            return None
        why = "is not as long as the path MTU"
        if role.ends:
            why = "is longer than the path MTU" if length else "is empty"
        return self._invalid("IBA 9.7.4.1.6", f"the payload of the {role.part} packet {why}")

    def _send(self, _: int, role: RequestRole, request: Request) -> Expected:
        if role.begins and (missing := self._take_receive(role)):
            return missing
        if wrong := self._bad_length(role, len(request.payload)):
            return wrong
        assert self.receive is not None
        if role.begins:
            self.message = Message(SEND, self.receive.start, self.receive.length)
        message = self.message
        if message.placed + len(request.payload) > message.limit:
            self.counters["resp_local_length_error"] += 1
            status, nak = self.profile.too_long_status, self._nak(self.profile.too_long)
            return self._fail(status, nak, clause="IBA 9.9.3", why="longer than the receive")
        self._write_payload(request.payload)
        if role.invalidates and (refused := self._invalidate(request)):
            return refused
        return self._done(role, request, WCOpcode.RECV)

    def _invalidate(self, request: Request) -> Expected | None:
        """Invalidate the key, if it is a window's."""
        grant = self._granted.get(request.rkey)
        if grant is not None and grant.is_window:
            grant.access, grant.length = 0, -1
            return None
        why = "key not invalidated"
        done = self._fail(WCStatus.REM_INV_REQ_ERR, clause="IBA 9.9.3 class J", why=why)
        return done._replace(replies=(self._ack(request.psn),))

    def _write(self, _: int, role: RequestRole, request: Request) -> Expected:
        if role.begins and not self.setup.access:
            return self._invalid("IBA 9.7.4.1.4", "the queue pair allows no RDMA WRITE")
        if role.receives and (missing := self._take_receive(role)):
            return missing
        if wrong := self._bad_length(role, len(request.payload)):
            return wrong
        if role.begins and (refused := self._open(role, request)):
            return refused
        message = self.message
        end = message.placed + len(request.payload)
        if end > message.limit or (role.ends and end != message.limit):
            return self._invalid("IBA 9.7.4.1.6", "other bytes than RETH.dmalen announced")
        self._write_payload(request.payload)
        return self._done(role, request, WCOpcode.RECV_RDMA_WITH_IMM)

    def _open(self, role: RequestRole, request: Request) -> Expected | None:
        """Begin a WRITE: check RETH.dmalen and the key."""
        length, dmalen = len(request.payload), request.dmalen
        may_fit = role.ends or self.profile.first_may_fit
        fits = may_fit if dmalen == length else length < dmalen and not role.ends
        if self._is_too_long(dmalen):
            return self._invalid("IBA 9.7.4.1.6", "RETH.dmalen is more than a message may have")
        if not fits:
            why = "is not the payload" if role.ends else "is not more than the first payload"
            return self._invalid("IBA 9.7.4.1.6", f"RETH.dmalen {why}")
        start = self._start_of(request, dmalen, REMOTE_WRITE) if dmalen else 0
        if start is None:
            return self._access_error("the key does not allow the WRITE")
        self.message = Message(WRITE, start, dmalen)
        self.counters["rx_write_requests"] += 1
        return None

    def _is_too_long(self, dmalen: int) -> bool:
        """Whether a message is longer than any may be. IBA 9.7.4.1.6."""
        return dmalen > _MAX_DMALEN and self.profile.limits_dmalen

    def _write_payload(self, payload: bytes) -> None:
        message = self.message
        start = message.start + message.placed
        self.memory[start : start + len(payload)] = payload
        message.placed += len(payload)

    def _done(self, role: RequestRole, request: Request, receipt: WCOpcode) -> Expected:
        """Finish a packet of a SEND or WRITE: expect the next PSN, acknowledge if asked."""
        if role.ends:
            self.msn = serial.add(self.msn, 1)
            if self.receive is not None and (role.family == SEND or role.imm):
                self._complete(role, request, receipt)
            self.message = NO_MESSAGE
        self.epsn = (self.epsn + 1) % serial.MODULUS
        self.nak_sent = False
        return self._acknowledged(request)

    def _acknowledged(self, request: Request) -> Expected:
        if not request.ackreq:
            return _NOT_ASKED
        return _new(Expected, ((self._ack(request.psn),), "IBA 9.7.5.1.1", "AckReq is set"))

    def _complete(self, role: RequestRole, request: Request, receipt: WCOpcode) -> None:
        assert self.receive is not None
        value = request.value if role.imm else request.rkey if role.invalidates else 0
        length = self.message.placed
        done = Completion(self.receive.number, WCStatus.SUCCESS, receipt, length, value)
        self.completions.append(done)
        self.receive = None

    # Requests of one packet.

    def _single(self, operation: int, _: RequestRole, request: Request) -> Expected:
        needed = _RIGHTS[operation]
        if needed and not self.setup.access:
            return self._invalid("IBA 9.7.4.1.4", "the queue pair does not allow the operation")
        if self.outstanding >= self.max_outstanding:
            return self._invalid("IBA 9.7.4.1.5", "more READs and atomics than were agreed")
        if operation == Op.RDMA_READ_REQUEST:
            return self._read(request)
        if operation == Op.FLUSH:
            return self._flush(request)
        return self._atomic(operation, request)

    def _read(self, request: Request) -> Expected:
        if self._is_too_long(request.dmalen):
            return self._invalid("IBA 9.7.4.1.6", "RETH.dmalen is more than a message may have")
        start: int | None = 0
        if request.dmalen:
            start = self._start_of(request, request.dmalen, REMOTE_READ)
        if start is None:
            return self._access_error("the key does not allow the READ")
        packets = max(-(-request.dmalen // self.setup.mtu), 1)
        self.counters["rx_read_requests"] += 1
        self._respond(request, packets, None)
        data = bytes(self.memory[start : start + request.dmalen])
        replies = self._read_replies(request.psn, packets, data)
        return Expected(replies, "IBA 9.7.5.1.3", "a READ is answered with its bytes")

    def _read_replies(
        self, psn: int, packets: int, data: bytes, *, goes_on: bool = False
    ) -> tuple[Reply, ...]:
        """The responses of a READ; those that go on with an earlier READ have no first one."""
        mtu, replies = self.setup.mtu, []
        for index in range(packets):
            first, last = index == 0 and not goes_on, index == packets - 1
            operation = _READ_PARTS[first, last]
            syndrome, msn = (self.grant_credits(), self.msn) if first or last else (-1, 0)
            piece = data[index * mtu : (index + 1) * mtu]
            values = (operation, serial.add(psn, index), syndrome, msn, piece)
            replies.append(_new(Reply, values))
        return tuple(replies)

    def _flush(self, request: Request) -> Expected:
        placement, selectivity = request.value, request.compare
        needed = sum(right for bit, right in _PLACEMENTS if placement & bit)
        if not needed or not self.setup.access or selectivity > 1:
            return self._invalid("IBA A19.4", "a FLUSH that the queue pair does not allow")
        grant = self._granted.get(request.rkey)
        if selectivity == 1 and grant is not None:
            allowed = not needed & ~grant.access
        else:
            allowed = self._start_of(request, request.dmalen, needed) is not None
        if not allowed:
            return self._access_error("the key does not allow the FLUSH")
        self._respond(request, 1, None)
        return self._empty_response(request.psn, "a FLUSH has a response")

    def _empty_response(self, psn: int, why: str) -> Expected:
        reply = Reply(Op.RDMA_READ_RESPONSE_ONLY, psn, self.grant_credits(), self.msn)
        return Expected((reply,), "IBA A19.3", why)

    def _atomic(self, operation: int, request: Request) -> Expected:
        if operation == Op.ATOMIC_WRITE and request.dmalen != len(request.payload):
            return self._invalid("IBA 9.7.4.1.6", "RETH.dmalen of an ATOMIC WRITE is not 8")
        if request.va % 8:
            return self._invalid("IBA 9.4.5", "an address that is not a multiple of eight")
        start = self._start_of(request, 8, _RIGHTS[operation])
        if start is None:
            return self._access_error("the key does not allow the atomic")
        self.counters["rx_atomic_requests"] += 1
        before = bytes(self.memory[start : start + 8])
        self.memory[start : start + 8] = _executed(operation, request, before)
        if operation == Op.ATOMIC_WRITE:
            self._respond(request, 1, None)
            return self._empty_response(request.psn, "an ATOMIC WRITE has a response")
        original = before[::-1]
        self._respond(request, 1, original)
        return self._atomic_reply(request.psn, original, "an atomic returns the original value")

    def _atomic_reply(self, psn: int, original: bytes, why: str) -> Expected:
        reply = Reply(Op.ATOMIC_ACKNOWLEDGE, psn, self.grant_credits(), self.msn, original)
        return Expected((reply,), "IBA 9.7.5.1.4", why)

    def _respond(self, request: Request, packets: int, original: bytes | None) -> None:
        """Advance past a READ, FLUSH or atomic, and remember it for duplicates."""
        before = self.ack_psn
        self.epsn = serial.add(self.epsn, packets)
        is_read = request.opcode & 31 == Op.RDMA_READ_REQUEST
        if is_read or not self.profile.acks_newest:
            self._before_responses, self.response_end = before, self.epsn
        self.msn = serial.add(self.msn, 1)
        self.nak_sent = False
        length = request.dmalen
        one = Remembered(
            request.opcode, request.psn, packets, length, request.va, request.rkey,
            request.value, request.compare, original,
        )  # fmt: skip
        self.remembered.append(one)
        while len(self.remembered) > self.setup.rd_atomic:
            self.remembered.popleft()

    # Duplicates.

    def _duplicate(self, operation: int, request: Request) -> Expected:
        """Answer a request whose PSN is before the expected one."""
        self.counters["duplicate_request"] += 1
        found = [one for one in self.remembered if covers(one, request.psn)]
        one = found[-1] if found else None
        role = REQUEST_ROLES.get(operation)
        if role is None or request.malformed:
            return Expected((), _DUPLICATES, "a malformed duplicate is dropped")
        if role.family != SINGLE:
            return self._message_again(request, one)
        if one is None or one.opcode != request.opcode:
            return Expected((), _DUPLICATES, "a duplicate that is not remembered")
        if operation == Op.RDMA_READ_REQUEST:
            return self._read_again(request, one, _DUPLICATES)
        if operation in (Op.CMP_SWAP, Op.FETCH_ADD):
            return self._atomic_again(request, one)
        return self._empty_response(request.psn, "a duplicate")

    def _message_again(self, request: Request, one: Remembered | None) -> Expected:
        """Acknowledge a duplicate SEND or WRITE. ``one`` is the READ or atomic with its PSN."""
        if one is not None and self.profile.validates_duplicates:
            return Expected((), _DUPLICATES, "a SEND or WRITE with the PSN of a READ or atomic")
        newest = self.profile.acks_newest
        psn = self.ack_psn if newest else self._ack_before(request.psn)
        return Expected((self._ack(psn),), _DUPLICATES, "a duplicate")

    def _atomic_again(self, request: Request, one: Remembered) -> Expected:
        """Return the original value of an atomic again, if its operands are the same."""
        same = (one.va, one.rkey, one.value, one.compare) == (
            request.va, request.rkey, request.value, request.compare
        )  # fmt: skip
        same = same or not self.profile.validates_duplicates
        if not same or one.original is None:
            return Expected((), _DUPLICATES, "an atomic with other operands than the original")
        return self._atomic_reply(request.psn, one.original, "a duplicate atomic")

    def _names_valid_queue(self, request: Request) -> bool:  # noqa: ARG002
        """Whether the shared receive queue that a request names is valid; RC requests name none."""
        return True

    def _read_again(self, request: Request, one: Remembered, clause: str) -> Expected:
        skipped = serial.span(one.psn, request.psn)
        packets = max(-(-request.dmalen // self.setup.mtu), 1)
        if not self._is_part(request, one, skipped) or packets > one.packets - skipped:
            return Expected((), clause, "a READ of other memory than the original")
        start: int | None = 0
        if request.dmalen:
            start = self._start_of(request, request.dmalen, REMOTE_READ)
        if start is None or not self._names_valid_queue(request):
            return Expected((), clause, "a duplicate READ whose key is invalid by now")
        data = bytes(self.memory[start : start + request.dmalen])
        goes_on = skipped > 0 and self.profile.resumed_reads_go_on
        replies = self._read_replies(request.psn, packets, data, goes_on=goes_on)
        return Expected(replies, clause, "a duplicate READ")

    def _is_part(self, request: Request, one: Remembered, skipped: int) -> bool:
        """Whether a READ names the memory of the original from its packet ``skipped`` on."""
        if not self.profile.validates_duplicates:
            inside = one.va <= request.va and request.va + request.dmalen <= one.va + one.length
            return inside and request.rkey == one.rkey
        if not one.length:
            return not request.dmalen
        offset = skipped * self.setup.mtu
        same = request.rkey == one.rkey and request.va == one.va + offset
        return same and 0 < request.dmalen <= one.length - offset


EXECUTE: Final[dict[str, Callable[[ResponderModel, int, RequestRole, Request], Expected]]] = {
    SEND: ResponderModel._send,
    WRITE: ResponderModel._write,
    SINGLE: ResponderModel._single,
}
_RIGHTS: Final[dict[int, int]] = {
    Op.RDMA_READ_REQUEST: int(Access.REMOTE_READ),
    Op.CMP_SWAP: int(Access.REMOTE_ATOMIC),
    Op.FETCH_ADD: int(Access.REMOTE_ATOMIC),
    Op.ATOMIC_WRITE: int(Access.REMOTE_WRITE),
    Op.FLUSH: 0,
}
_PLACEMENTS: Final = ((1, int(Access.FLUSH_GLOBAL)), (2, int(Access.FLUSH_PERSISTENT)))
_READ_PARTS: Final = {
    (True, True): Op.RDMA_READ_RESPONSE_ONLY,
    (True, False): Op.RDMA_READ_RESPONSE_FIRST,
    (False, False): Op.RDMA_READ_RESPONSE_MIDDLE,
    (False, True): Op.RDMA_READ_RESPONSE_LAST,
}


def _executed(operation: int, request: Request, before: bytes) -> bytes:
    """Return the eight bytes after an atomic. Memory is little-endian."""
    if operation == Op.ATOMIC_WRITE:
        return request.payload
    number = int.from_bytes(before, "little")
    if operation == Op.FETCH_ADD:
        number = (number + request.value) % (1 << 64)
    elif number == request.compare:
        number = request.value
    return number.to_bytes(8, "little")
