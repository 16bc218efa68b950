"""Plain models of responders of the services UC, UD and XRC. IBA 9.8.2, 9.8.3, A14."""

from collections import deque
from typing import ClassVar, Final

from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.request_role import REQUEST_ROLES, RequestRole
from rdmawire.fuzz.responder_model import EXECUTE, IN_ERROR, OTHER_OPCODE, ResponderModel
from rdmawire.fuzz.responder_state import NO_MESSAGE, Receive
from rdmawire.fuzz.setup import SHARED_QUEUES
from rdmawire.fuzz.target import Completion
from rdmawire.verbs.enums import WCOpcode, WCStatus
from rdmawire.wire import serial
from rdmawire.wire.ib import NO_CREDITS
from rdmawire.wire.opcode import OPERATIONS, Operation, Service

PORT_MTU: Final = 4096
"""Bytes of the longest datagram: the MTU of the port."""
GRH_BYTES: Final = 40
_UC_OPERATIONS: Final = frozenset(OPERATIONS[Service.UC])
_UD_OPERATIONS: Final = frozenset(OPERATIONS[Service.UD])
_XRC_CLAUSE: Final = "IBA A14"


class UnreliableModel(ResponderModel):
    """The state of a responder of the service UC: it drops what it cannot do. IBA 9.8.2.

    It sends nothing. A fault drops the message in progress; the next first or only packet begins a
    new one, with the receive that the dropped message left.
    """

    wire: ClassVar[Service] = Service.UC

    def request(self, request: Request) -> Expected:
        """Model one request packet that is addressed to the queue pair and has a good ICRC."""
        if self.failed:
            return IN_ERROR
        operation = request.opcode & 31
        known = request.opcode >> 5 == self.wire and operation in _UC_OPERATIONS
        if not known or request.malformed:
            return OTHER_OPCODE
        role = REQUEST_ROLES[operation]
        self.counters["out_of_sequence"] += request.psn != self.epsn
        gap = request.psn != self.epsn
        if self.message.family and gap and not role.begins:
            self.epsn, self.message = request.psn, NO_MESSAGE
            return self._dropped("IBA 9.8.2.2.1", "a packet before it is missing")
        if role.begins or gap:
            self.message = NO_MESSAGE
        self.epsn = request.psn
        if self.message.family != ("" if role.begins else role.family):
            return self._dropped("IBA 9.8.2.2.1, 9.8.2.2.2", "no message that it continues")
        return EXECUTE[role.family](self, operation, role, request)

    def _dropped(self, clause: str, why: str) -> Expected:
        """Drop the message; the next packet is expected."""
        self.message = NO_MESSAGE
        self.epsn = serial.add(self.epsn, 1)
        return Expected((), clause, why)

    def _invalid(self, clause: str, why: str) -> Expected:
        return self._dropped(f"{clause}, 9.8.2.2", why)

    def _access_error(self, why: str) -> Expected:
        self.counters["resp_remote_access_errors"] += 1
        return self._dropped("IBA 9.8.2.2.5", why)

    def _not_ready(self, _: RequestRole) -> Expected:
        self.counters["out_of_buffer"] += 1
        return self._dropped("IBA 9.8.2.2.4", "no receive is posted")

    def _fail(self, _: WCStatus, *__: Reply, clause: str, why: str) -> Expected:
        """End the queue pair after a message that is longer than its receive."""
        return super()._fail(WCStatus.LOC_LEN_ERR, clause=clause, why=why)

    def _acknowledged(self, _: Request) -> Expected:
        return Expected((), "IBA 9.8.2", "the service acknowledges nothing")


class DatagramModel(ResponderModel):
    """The state of a queue pair of the service UD. IBA 9.8.3.

    It receives from every address and queue pair, and sends nothing. What it does not accept it
    drops without a trace: no packet can end it, since any sender may have sent it.
    """

    wire: ClassVar[Service] = Service.UD
    any_sender: ClassVar[bool] = True

    @property
    def mtu(self) -> int:
        """The most bytes of payload in a packet."""
        return PORT_MTU

    def request(self, request: Request) -> Expected:
        """Model one datagram that is addressed to the queue pair and has a good ICRC."""
        operation = request.opcode & 31
        if request.opcode >> 5 != self.wire or operation not in _UD_OPERATIONS or request.malformed:
            return OTHER_OPCODE
        if request.qkey != self.setup.qkey:
            return Expected((), "IBA 9.6.1.4.1", "another Q_Key")
        if len(request.payload) > PORT_MTU and self.profile.checks_send_lengths:
            return Expected((), "IBA 9.8.3", "a payload that is longer than the MTU")
        if not self.receives:
            self.counters["out_of_buffer"] += 1
            return Expected((), "IBA 9.8.3", "no receive is posted")
        if GRH_BYTES + len(request.payload) > self.receives[0].length:
            self.counters["resp_local_length_error"] += 1
            return Expected((), "IBA 9.8.3", "longer than the receive, which the next one uses")
        return self._received(operation, request)

    def _received(self, operation: int, request: Request) -> Expected:
        """Place the network header and the payload; complete the receive."""
        receive = self.receives.popleft()
        data = request.payload
        start, end = receive.start, receive.start + GRH_BYTES
        if gap := GRH_BYTES - len(request.network):
            self.undefined.append((start, start + gap))
        self.memory[end - len(request.network) : end] = request.network
        self.memory[end : end + len(data)] = data
        has_imm = operation == Operation.SEND_ONLY_WITH_IMMEDIATE
        value = request.value if has_imm else 0
        done = Completion(
            receive.number, WCStatus.SUCCESS, WCOpcode.RECV, GRH_BYTES + len(data), value,
            request.source,
        )  # fmt: skip
        self.completions.append(done)
        return Expected((), "IBA 11.4.1.2, A17.4.4", "40 bytes of header, then the payload")


class SharedReceiveModel(ResponderModel):
    """The state of an XRC target: each packet names the shared receive queue it uses. IBA A14.

    It answers as a responder of the service RC. Its receives are in shared receive queues, which an
    error of the queue pair leaves as they are, and of which its ACKs grant no credits. ``selected``
    is the index of the queue that was named last.
    """

    wire: ClassVar[Service] = Service.XRC

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queues: list[deque[Receive]] = [deque() for _ in SHARED_QUEUES]
        self.selected = 0

    def post_receive(self, length: int, srq: int = 0) -> Expected:
        """Model a receive that is posted to a shared receive queue."""
        self.queues[srq].append(self._next_receive(length))
        return Expected()

    def waiting(self, srq: int) -> int:
        """Return how many receives a queue has."""
        return len(self.queues[srq])

    def grant_credits(self) -> int:
        """Return the syndrome of an ACK without credits, as of all shared queues. IBA 9.7.7.2.1."""
        return NO_CREDITS

    def _in_sequence(self, operation: int, role: RequestRole, request: Request) -> Expected:
        follows = "" if role.begins else role.family
        if self.message.family == follows and (refused := self._select_queue(role, request)):
            return refused
        return super()._in_sequence(operation, role, request)

    def _select_queue(self, role: RequestRole, request: Request) -> Expected | None:
        """Select the queue that the packet names; all packets of a message name the same."""
        if not self._names_valid_queue(request):
            return self._invalid(_XRC_CLAUSE, "no shared receive queue of the XRC domain")
        named = self.numbers.srqs.index(request.srq)
        if not role.begins and named != self.selected:
            return self._invalid(
                _XRC_CLAUSE, "another shared receive queue than the first packet's"
            )
        self.selected = named
        self.receives = self.queues[named]
        return None

    def _names_valid_queue(self, request: Request) -> bool:
        """Whether the packet names a queue of the XRC domain."""
        srqs = self.numbers.srqs
        return request.srq in srqs and SHARED_QUEUES[srqs.index(request.srq)].usable

    def _fail(self, status: WCStatus, *replies: Reply, clause: str, why: str) -> Expected:
        """End the queue pair; only the receive in use completes."""
        self.receives = deque()
        return super()._fail(status, *replies, clause=clause, why=why)
