"""A plain model of a queue pair that receives datagrams. IBA 9.8.3.

It receives from every address and queue pair, and sends nothing. What it does not accept it drops
without a trace: no packet can end it, since any sender may have sent it.
"""

from typing import ClassVar, Final

from rdmawire.fuzz.exchange import Expected, Request
from rdmawire.fuzz.responder_model import OTHER_OPCODE, ResponderModel
from rdmawire.fuzz.target import Completion
from rdmawire.verbs.enums import WCOpcode, WCStatus
from rdmawire.wire.opcode import OPERATIONS, Operation, Service

PORT_MTU: Final = 4096
"""Bytes of the longest datagram: the MTU of the port."""
GRH_BYTES: Final = 40
_OPERATIONS: Final = frozenset(OPERATIONS[Service.UD])


class DatagramModel(ResponderModel):
    """The state of a queue pair of the service UD."""

    wire: ClassVar[Service] = Service.UD
    any_sender: ClassVar[bool] = True

    @property
    def mtu(self) -> int:
        """The most bytes of payload in a packet."""
        return PORT_MTU

    def request(self, request: Request) -> Expected:
        """Model one datagram that is addressed to the queue pair and has a good ICRC."""
        operation = request.opcode & 31
        if request.opcode >> 5 != self.wire or operation not in _OPERATIONS or request.malformed:
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
