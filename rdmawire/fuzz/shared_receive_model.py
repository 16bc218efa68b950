"""A plain model of an XRC target: each packet names the shared receive queue it uses. IBA A14.

It answers as a responder of the service RC. Its receives are in shared receive queues, which an
error of the queue pair leaves as they are, and of which its ACKs grant no credits.
"""

from collections import deque
from typing import ClassVar

from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.request_role import RequestRole
from rdmawire.fuzz.responder_model import ResponderModel
from rdmawire.fuzz.responder_state import Receive
from rdmawire.fuzz.setup import SHARED_QUEUES
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire.ib import NO_CREDITS
from rdmawire.wire.opcode import Service

_CLAUSE = "IBA A14"


class SharedReceiveModel(ResponderModel):
    """The state of an XRC target. ``selected`` is the index of the queue that was named last."""

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
            return self._invalid(_CLAUSE, "no shared receive queue of the XRC domain")
        named = self.numbers.srqs.index(request.srq)
        if not role.begins and named != self.selected:
            return self._invalid(_CLAUSE, "another shared receive queue than the first packet's")
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
