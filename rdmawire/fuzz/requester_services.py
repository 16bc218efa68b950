"""Plain models of requesters of the services UC, UD and XRC. IBA 9.8.2, 9.8.3, A14.

Without acknowledgements work completes when its packets are sent, whatever the peer answers. A
local error moves such a queue pair to SQE, and all later work is flushed (IBA 10.3.1.6).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.exchange import Request
from rdmawire.fuzz.inputs import WorkInput
from rdmawire.fuzz.requester_model import RequesterModel
from rdmawire.fuzz.responder_services import PORT_MTU
from rdmawire.fuzz.setup import FRESH_ARENA, PEER_SRQN, TARGET_QPN, Setup
from rdmawire.fuzz.work_requests import QueuedWork
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire.opcode import Service

SELECTS_OWN_QKEY: Final = 1 << 31
"""The bit of a remote Q_Key that selects the queue pair's own. IBA 10.2.5."""


class UnreliableRequester(RequesterModel):
    """The state of a requester on an unreliable connection."""

    wire: ClassVar[Service] = Service.UC
    after_error: ClassVar[QPState] = QPState.SQE

    def _send(self) -> tuple[Request, ...]:
        """Send all work, and complete it."""
        requests: list[Request] = []
        while self.work and not self.failed:
            one = self.work[0]
            self._start(one)
            self._end_local_error()
            if not self.failed:
                self._send_work(one, requests)
                self.unacked = self.newest = self.next
                self._complete()
        return tuple(requests)

    def _send_work(self, one: QueuedWork, requests: list[Request]) -> None:
        super()._send_work(one, requests)
        requests[-1] = requests[-1]._replace(ackreq=0)


class DatagramRequester(UnreliableRequester):
    """The state of a queue pair that sends datagrams, each of one packet."""

    wire: ClassVar[Service] = Service.UD

    @property
    def mtu(self) -> int:
        """The most bytes of payload in a packet."""
        return PORT_MTU

    def _start(self, one: QueuedWork) -> None:
        """Give work its packet, or its local error."""
        super()._start(one)
        if one.error is None and one.one.length > PORT_MTU:
            one.error = WCStatus.LOC_LEN_ERR
            one.packets = 0

    def _request(self, work: WorkInput, operation: int, *values: Any, **named: Any) -> Request:
        qkey = self.setup.qkey if work.qkey & SELECTS_OWN_QKEY else work.qkey
        request = super()._request(work, operation, *values, **named)
        return request._replace(qkey=qkey, source=TARGET_QPN)


class SharedReceiveRequester(RequesterModel):
    """The state of an XRC initiator: each packet names the shared receive queue of its message."""

    wire: ClassVar[Service] = Service.XRC

    def _request(self, work: WorkInput, operation: int, *values: Any, **named: Any) -> Request:
        request = super()._request(work, operation, *values, **named)
        return request._replace(srq=PEER_SRQN + work.srq)


REQUESTER_MODELS: Final[Mapping[QPType, type[RequesterModel]]] = {
    QPType.RC: RequesterModel,
    QPType.UC: UnreliableRequester,
    QPType.UD: DatagramRequester,
    QPType.XRC_INI: SharedReceiveRequester,
}
"""The model of a requester, by the type of its queue pair."""


def fresh_requester(setup: Setup, profile: Profile = IBTA) -> RequesterModel:
    """Return the model of a fresh queue pair, with the accepted differences of ``profile``.

    Raises :class:`FuzzError` for a type without a model.
    """
    if setup.service not in REQUESTER_MODELS:
        raise FuzzError(f"queue pairs of type {setup.service.name} have no model of a requester")
    return REQUESTER_MODELS[setup.service](setup, bytearray(FRESH_ARENA), profile=profile)
