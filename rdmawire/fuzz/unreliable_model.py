"""A plain model of a responder on an unreliable connection: it drops what it cannot do. IBA 9.8.2.

It sends nothing. A fault drops the message in progress; the next first or only packet begins a new
one, with the receive that the dropped message left.
"""

from typing import ClassVar, Final

from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.request_role import REQUEST_ROLES, RequestRole
from rdmawire.fuzz.responder_model import EXECUTE, IN_ERROR, OTHER_OPCODE, ResponderModel
from rdmawire.fuzz.responder_state import NO_MESSAGE
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire import serial
from rdmawire.wire.opcode import OPERATIONS, Service

_OPERATIONS: Final = frozenset(OPERATIONS[Service.UC])


class UnreliableModel(ResponderModel):
    """The state of a responder of the service UC."""

    wire: ClassVar[Service] = Service.UC

    def request(self, request: Request) -> Expected:
        """Model one request packet that is addressed to the queue pair and has a good ICRC."""
        if self.failed:
            return IN_ERROR
        operation = request.opcode & 31
        known = request.opcode >> 5 == self.wire and operation in _OPERATIONS
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
