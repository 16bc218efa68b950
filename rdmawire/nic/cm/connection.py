"""One connection, or one look for a datagram service, as one side sees it."""

from rdmawire.nic.address import AddressHandle
from rdmawire.nic.cm.service import Endpoints
from rdmawire.nic.cm.settings import ConnParam, Terms
from rdmawire.nic.cm.state import CMState
from rdmawire.nic.qp import QueuePair
from rdmawire.wire.cm_code import RejectReason, SIDRStatus


class Connection:
    """Ids of this side are ``id`` and ``tid``, its transaction; ``path`` leads to the peer.

    ``active`` says that this side asked, ``datagrams`` that it is a look for a service; with
    ``by_hand`` the owner wants to see the peer's answer before the connection stands. ``qpn`` is
    the number of ``qp``, which the owner may have taken back. ``peer_id`` is the peer's id, 0
    while none is known; ``answered`` the transaction of the message that is answered next.
    ``offer`` is what this side offers, ``terms`` what both agreed upon. ``again`` is sent again if
    no answer came by ``answer_due`` (ns), ``tries`` times at most and every ``period`` ns;
    ``deadline`` and ``place`` belong to :class:`~rdmawire.nic.timers.Timers`. A peer's request came
    at ``since`` (ns) and waits ``owner_timeout`` ns for the owner's answer. ``reason`` and
    ``last_words`` are those of a refusal. A ``silent`` one tells its owner nothing any more.
    """

    __slots__ = (
        "active",
        "again",
        "answer_due",
        "answered",
        "by_hand",
        "datagrams",
        "deadline",
        "endpoints",
        "has_alternate",
        "heard_data",
        "id",
        "last_words",
        "max_tries",
        "offer",
        "owner_timeout",
        "path",
        "peer_id",
        "period",
        "pkey_index",
        "place",
        "psn",
        "qp",
        "qpn",
        "reason",
        "service_id",
        "sidr_status",
        "silent",
        "since",
        "state",
        "terms",
        "tid",
        "timewait",
        "tries",
        "uc",
    )

    def __init__(self, number: int, tid: int, path: AddressHandle, service: int) -> None:
        self.id = number
        self.tid = self.answered = tid
        self.path = path
        self.service_id = service
        self.active = True
        self.datagrams = self.by_hand = self.has_alternate = False
        self.peer_id = 0
        self.pkey_index = 0
        self.state = CMState.IDLE
        self.deadline: int | None = None
        self.place: int | None = None
        self.answer_due = 0
        self.period = self.timewait = 0
        self.since = self.owner_timeout = 0
        self.tries = self.max_tries = 0
        self.again = b""
        self.psn = 0
        self.uc = False
        self.qp: QueuePair | None = None
        self.qpn = 0
        self.offer = ConnParam()
        self.terms = Terms()
        self.endpoints: Endpoints | None = None
        self.reason: RejectReason = RejectReason.CONSUMER_REJECT
        self.sidr_status = SIDRStatus.REJECTED
        self.heard_data = self.last_words = b""
        self.silent = False

    def take_qp(self, qp: QueuePair) -> None:
        """Speak for this queue pair from now on."""
        self.qp = qp
        self.qpn = qp.number

    def ask(self, message: bytes, now: int) -> bytes:
        """``message`` waits for an answer from now on."""
        self.again = message
        self.tries = self.max_tries
        self.answer_due = now + self.period
        return message

    @property
    def remote(self) -> bytes:
        """The peer's GID."""
        return self.path.dgid
