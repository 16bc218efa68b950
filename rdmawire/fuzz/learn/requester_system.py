"""The requester of the software RNIC as a system to learn, on a fresh queue pair for each word.

Inputs are verbs of the application, responses of the peer (:mod:`.requester_peer`) and the expiry
of the queue pair's timer. Outputs are the requests sent and the completions, in this order:
``SEND_ONLY?@0`` is a request with AckReq whose PSN is the oldest that the peer has not answered,
``RDMA_READ_REQUEST?@0*2`` one that asks for two responses, ``READ=SUCCESS`` the completion of the
verb READ. ``-`` is nothing, ``ENOMEM`` the error of a verb. How long the timer runs is not part of
the machine. Of services without responses, PSNs count from the first one of the step.
"""

from collections.abc import Sequence
from errno import errorcode
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError, VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fuzz.learn.requester_peer import (
    MTU,
    OWN_QKEY,
    REMOTE,
    REMOTE_BYTES,
    RESPONSES,
    SHORT,
    Peer,
)
from rdmawire.fuzz.setup import PEER_QPN, QKEY, TARGET_QPN
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPState, QPType, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.wr import FENCE, SIGNALED, SendOpcode, SendWR
from rdmawire.wire import management
from rdmawire.wire.opcode import Service

TIMEOUT: Final = "TIMEOUT"
"""The input that lets time pass until the queue pair's timer expires."""
TO_RTS: Final = "TO_RTS"
"""The input that moves the queue pair to RTS: out of SQE, the state after a local error."""
_PORT_MTU: Final = 4096


class WorkTemplate(NamedTuple):
    """A work request: opcode, bytes, and send flags.

    ``key`` is added to the local key. ``srq`` is the shared receive queue that it names, ``qkey``
    its remote Q_Key; ``other`` sends it to another peer.
    """

    opcode: SendOpcode
    length: int = SHORT
    flags: int = SIGNALED
    key: int = 0
    srq: int = 0
    qkey: int = QKEY
    other: bool = False


WORK_TEMPLATES: Final[dict[str, WorkTemplate]] = {
    "SEND": WorkTemplate(SendOpcode.SEND),
    "SEND2": WorkTemplate(SendOpcode.SEND, MTU + SHORT),
    "SEND3": WorkTemplate(SendOpcode.SEND, 2 * MTU + SHORT),
    "SEND_FENCED": WorkTemplate(SendOpcode.SEND, flags=SIGNALED | FENCE),
    "SEND_IMM": WorkTemplate(SendOpcode.SEND_WITH_IMM),
    "SEND_SILENT": WorkTemplate(SendOpcode.SEND, flags=0),
    "SEND_BADKEY": WorkTemplate(SendOpcode.SEND, key=1),
    "SEND_OVER": WorkTemplate(SendOpcode.SEND, _PORT_MTU + 1),
    "SEND_QUEUE1": WorkTemplate(SendOpcode.SEND, srq=1),
    "SEND2_QUEUE1": WorkTemplate(SendOpcode.SEND, MTU + SHORT, srq=1),
    "SEND_OWN_QKEY": WorkTemplate(SendOpcode.SEND, qkey=1 << 31),
    "SEND_OTHER": WorkTemplate(SendOpcode.SEND, other=True),
    "WRITE": WorkTemplate(SendOpcode.RDMA_WRITE),
    "WRITE2": WorkTemplate(SendOpcode.RDMA_WRITE, MTU + SHORT),
    "WRITE_IMM": WorkTemplate(SendOpcode.RDMA_WRITE_WITH_IMM),
    "READ": WorkTemplate(SendOpcode.RDMA_READ),
    "READ2": WorkTemplate(SendOpcode.RDMA_READ, MTU + SHORT),
    "READ3": WorkTemplate(SendOpcode.RDMA_READ, 2 * MTU + SHORT),
    "FETCH_ADD": WorkTemplate(SendOpcode.ATOMIC_FETCH_AND_ADD, 8),
    "CMP_SWAP": WorkTemplate(SendOpcode.ATOMIC_CMP_AND_SWP, 8),
}
"""The verbs, by the name of the input."""

ALPHABETS: Final[dict[str, tuple[str, ...]]] = {
    "acks": (
        "SEND", "SEND2", "ACK", "ACK_ALL", "ACK_OLD", "ACK_GHOST", "NAK_SEQUENCE",
        "NAK_SEQUENCE_NEXT", TIMEOUT,
    ),
    "rnr": (
        "SEND", "READ", "ACK", "READ_ONLY", "RNR", "RNR_NEXT", "RNR_OLD", "NAK_SEQUENCE", TIMEOUT,
    ),
    "naks": (
        "WRITE", "ACK", "NAK_INVALID", "NAK_ACCESS", "NAK_ACCESS_NEXT", "NAK_ACCESS_OLD",
        "NAK_ACCESS_GHOST", "NAK_OPERATION", "NAK_RD", "NAK_RESERVED", "ACK_RESERVED",
        "READ_ONLY", "ATOMIC",
    ),
    "reads": (
        "READ", "READ3", "SEND", "READ_FIRST", "READ_MIDDLE", "READ_LAST", "READ_ONLY",
        "READ_ONLY_SHORT", "READ_MIDDLE_NEXT", "READ_ONLY_OLD", "ACK", "ACK_ALL", TIMEOUT,
    ),
    "atomics": (
        "FETCH_ADD", "READ", "SEND_FENCED", "ATOMIC", "ATOMIC_NEXT", "ATOMIC_OLD", "READ_ONLY",
        "ACK", "ACK_ALL", "NAK_ACCESS", "NAK_SEQUENCE", TIMEOUT,
    ),
    "credits": ("SEND", "WRITE", "ACK", "ACK_0_CREDITS", "ACK_1_CREDIT", "ACK_OLD_1_CREDIT"),
    "unreliable": (
        "SEND", "SEND3", "SEND_IMM", "SEND_SILENT", "SEND_BADKEY", "SEND_FENCED", "WRITE2",
        "WRITE_IMM", "READ", "FETCH_ADD", "ACK", "RC_ACK", "RC_NAK", "RC_READ_ONLY", "PEER_SEND",
        TO_RTS, TIMEOUT,
    ),
    "datagrams": (
        "SEND", "SEND_IMM", "SEND_SILENT", "SEND_BADKEY", "SEND_OVER", "SEND_OWN_QKEY",
        "SEND_OTHER", "SEND_FENCED", "WRITE", "READ", "ACK", "RC_ACK", "RC_NAK", "PEER_SEND",
        TO_RTS, TIMEOUT,
    ),
    "shared": (
        "SEND", "SEND2_QUEUE1", "ACK", "ACK_ALL", "ACK_OLD", "NAK_SEQUENCE", "RC_ACK_ALL",
        "PEER_SEND", TIMEOUT,
    ),
}  # fmt: skip
"""Alphabets: each gives a machine that is small enough to learn in seconds."""

USUAL: Final = {
    QPType.RC: "acks",
    QPType.UC: "unreliable",
    QPType.UD: "datagrams",
    QPType.XRC_INI: "shared",
}
"""The alphabet of a queue pair, unless another is given."""
_WIRE: Final = {
    QPType.RC: Service.RC,
    QPType.UC: Service.UC,
    QPType.UD: Service.UD,
    QPType.XRC_INI: Service.XRC,
}
"""Queue pairs that can be learned, with the service of their packets."""

_SLOT: Final = 1024
"""Bytes of memory for the result of one work request."""
_SLOTS: Final = 4


class Limits(NamedTuple):
    """Limits of the queue pair: small ones give small machines.

    ``queue`` is max_send_wr, ``reads`` max_rd_atomic.
    """

    queue: int = 2
    retry_cnt: int = 1
    rnr_retry: int = 1
    reads: int = 2


SMALL: Final = Limits()


class RequesterSystem:
    """The requester of one adapter. ``psn`` is its first PSN.

    ``service`` is the type of its queue pair; ``inputs`` is the alphabet, by default that of
    :data:`USUAL`. Raises :class:`FuzzError` for an unknown input, and for a type without requests.
    """

    def __init__(
        self,
        inputs: Sequence[str] = (),
        *,
        service: QPType = QPType.RC,
        rules: Rules = STANDARD,
        profile: Profile = IBTA,
        psn: int = 1000,
        limits: Limits = SMALL,
        name: str = "requester",
    ) -> None:
        if service not in _WIRE:
            raise FuzzError(f"queue pairs of type {service.name} send no requests to learn")
        self.name, self.inputs = name, tuple(inputs) or ALPHABETS[USUAL[service]]
        for one in self.inputs:
            if one not in WORK_TEMPLATES and one not in RESPONSES and one not in (TIMEOUT, TO_RTS):
                raise FuzzError(f"a requester has no input {one!r} (--list has them)")
        self._service, self._psn, self._limits = service, psn, limits
        self._host = Host(2, profile=profile, rules=rules)
        other = Host(1)
        self._path = self._host.path_to(other)
        self._other_path = self._host.path_to(Host(3))
        source = REMOTE_BYTES[::-1] + bytes(MTU)
        self._peer = Peer(other.path_to(self._host), other.mac, source, _WIRE[service])
        self._source = self._host.filled(source)
        self._sink = self._host.buffer(_SLOT * _SLOTS)
        self._cq = self._host.nic.create_cq(256)
        self._qp: QueuePair | None = None

    def reset(self) -> None:
        """Make a fresh queue pair in RTS, without work."""
        host, limits = self._host, self._limits
        if self._qp is not None:
            host.nic.destroy_qp(self._qp)
            self._cq.poll(256)
            host.events()
        self._now = 0
        self._posted: list[str] = []
        self._done = 0
        cap = QPCap(max_send_wr=limits.queue, max_recv_wr=1)
        self._qp = host.nic.create_qp(
            self._service, QPInit(host.pd, self._cq, self._cq, cap), TARGET_QPN
        )
        host.bring_up(self._qp, self._attributes())
        self._peer.reset(self._psn)

    def _attributes(self) -> QPAttributes:
        limits = self._limits
        return QPAttributes(
            path_mtu=management.MTU.MTU_256,
            qkey=OWN_QKEY,
            rq_psn=self._psn,
            sq_psn=self._psn,
            max_rd_atomic=limits.reads,
            max_dest_rd_atomic=1,
            timeout=14,
            retry_cnt=limits.retry_cnt,
            rnr_retry=limits.rnr_retry,
            dest_qp_num=PEER_QPN,
            ah=self._path,
        )

    def step(self, name: str) -> str:
        """Play one input; return the requests and completions."""
        nic = self._host.nic
        refusal = ""
        if name in WORK_TEMPLATES:
            refusal = self._post(name)
        elif name == TIMEOUT:
            self._expire()
        elif name == TO_RTS:
            refusal = self._to_rts()
        else:
            nic.receive(self._peer.respond(name), self._now)
        shown = [refusal, *map(self._peer.take, self._sent())]
        shown += map(self._completed, self._cq.poll(256))
        self._peer.end_step()
        return ",".join(filter(None, shown)) or "-"

    def _post(self, name: str) -> str:
        """Post work; return the name of the error if it is refused."""
        assert self._qp is not None
        try:
            self._host.nic.post_send(self._qp, (self._work_request(WORK_TEMPLATES[name]),))
        except VerbsError as error:
            return errorcode[error.errno]
        self._posted.append(name)
        return ""

    def _work_request(self, work: WorkTemplate) -> SendWR:
        """Make the next work request, with memory of its own if it has a response."""
        start = len(self._posted) % _SLOTS * _SLOT
        if work.opcode in _SENT:
            sge = self._source.sge(work.length)
        else:
            self._sink.write(bytes(_SLOT), start)
            sge = self._sink.sge(work.length, start)
        is_datagram = self._service is QPType.UD
        return SendWR(
            work.opcode,
            (sge._replace(lkey=sge.lkey + work.key),),
            wr_id=len(self._posted),
            flags=work.flags,
            remote_address=REMOTE + start,
            remote_srqn=work.srq,
            ah=(self._other_path if work.other else self._path) if is_datagram else None,
            remote_qpn=PEER_QPN,
            remote_qkey=work.qkey,
        )

    def _to_rts(self) -> str:
        """Move the queue pair to RTS; return the name of the error if it is refused."""
        assert self._qp is not None
        try:
            wanted = QPAttributes(qp_state=QPState.RTS)
            self._host.nic.modify_qp(self._qp, wanted, QPAttrMask.STATE)
        except VerbsError as error:
            return errorcode[error.errno]
        return "ok"

    def _expire(self) -> None:
        """Let time pass until the next timer, and handle it."""
        nic = self._host.nic
        if (due := nic.next_timer()) is not None:
            self._now = max(due, self._now)
            nic.handle_timer(self._now)

    def _sent(self) -> list[bytes]:
        nic = self._host.nic
        frames = nic.transmit(self._now)
        while nic.sends_more and (more := nic.transmit(self._now)):
            frames += more
        return frames

    def _completed(self, done: WorkCompletion) -> str:
        """Describe a completion: the verb, the status, and whether order or data is wrong."""
        name = self._posted[done.wr_id]
        text = f"{name}={done.status.name}"
        if not self._is_next(done.wr_id):
            text += ".out_of_order"
        self._done = done.wr_id + 1
        if done.status is WCStatus.SUCCESS:
            self._peer.complete(self._done)
        work = WORK_TEMPLATES[name]
        if work.opcode in _SENT or done.status is not WCStatus.SUCCESS:
            return text
        start = done.wr_id % _SLOTS * _SLOT
        placed = self._sink.read(_SLOT, start)
        wanted = REMOTE_BYTES[start : start + work.length].ljust(_SLOT, b"\0")
        return text if placed == wanted else f"{text}.other_bytes"

    def _is_next(self, number: int) -> bool:
        """Whether a completion is the next one: unsignaled work before it needs none."""
        between = self._posted[self._done : number]
        return number >= self._done and not any(
            WORK_TEMPLATES[one].flags & SIGNALED for one in between
        )


_SENT: Final = (
    *(SendOpcode.SEND, SendOpcode.SEND_WITH_IMM),
    *(SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_WITH_IMM),
)
"""Work that sends bytes of local memory; other work places bytes there."""
