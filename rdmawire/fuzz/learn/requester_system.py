"""The requester of the software RNIC as a system to learn, on a fresh queue pair for each word.

Inputs are verbs of the application, responses of the peer (:mod:`.requester_peer`) and the expiry
of the queue pair's timer. Outputs are the requests sent and the completions, in this order:
``SEND_ONLY?@0`` is a request with AckReq whose PSN is the oldest that the peer has not answered,
``RDMA_READ_REQUEST?@0*2`` one that asks for two responses, ``READ=SUCCESS`` the completion of the
verb READ. ``-`` is nothing, ``ENOMEM`` the error of a verb. How long the timer runs is not part of
the machine.
"""

from collections.abc import Sequence
from errno import errorcode
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError, VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fuzz.learn.requester_peer import MTU, REMOTE, REMOTE_BYTES, RESPONSES, SHORT, Peer
from rdmawire.fuzz.setup import PEER_QPN, TARGET_QPN
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPType, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.wr import FENCE, SIGNALED, SendOpcode, SendWR
from rdmawire.wire import management

TIMEOUT: Final = "TIMEOUT"
"""The input that lets time pass until the queue pair's timer expires."""


class Work(NamedTuple):
    """A work request: opcode, bytes, and flags besides SIGNALED."""

    opcode: SendOpcode
    length: int = SHORT
    flags: int = 0


WORK: Final[dict[str, Work]] = {
    "SEND": Work(SendOpcode.SEND),
    "SEND2": Work(SendOpcode.SEND, MTU + SHORT),
    "SEND3": Work(SendOpcode.SEND, 2 * MTU + SHORT),
    "SEND_FENCED": Work(SendOpcode.SEND, flags=FENCE),
    "WRITE": Work(SendOpcode.RDMA_WRITE),
    "WRITE2": Work(SendOpcode.RDMA_WRITE, MTU + SHORT),
    "READ": Work(SendOpcode.RDMA_READ),
    "READ2": Work(SendOpcode.RDMA_READ, MTU + SHORT),
    "READ3": Work(SendOpcode.RDMA_READ, 2 * MTU + SHORT),
    "FETCH_ADD": Work(SendOpcode.ATOMIC_FETCH_AND_ADD, 8),
    "CMP_SWAP": Work(SendOpcode.ATOMIC_CMP_AND_SWP, 8),
}
"""The verbs, by the name of the input."""

INPUTS: Final[dict[str, tuple[str, ...]]] = {
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
}  # fmt: skip
"""Alphabets: each gives a machine that is small enough to learn in seconds."""

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
    """The requester of one adapter. ``psn`` is its first PSN, ``inputs`` the alphabet.

    Raises :class:`FuzzError` for an unknown input.
    """

    def __init__(
        self,
        inputs: Sequence[str] = INPUTS["acks"],
        *,
        rules: Rules = STANDARD,
        profile: Profile = IBTA,
        psn: int = 1000,
        limits: Limits = SMALL,
        name: str = "requester",
    ) -> None:
        for one in inputs:
            if one not in WORK and one not in RESPONSES and one != TIMEOUT:
                raise FuzzError(f"a requester has no input {one!r}")
        self.name, self.inputs = name, tuple(inputs)
        self._psn, self._limits = psn, limits
        self._host = Host(2, profile=profile, rules=rules)
        other = Host(1)
        self._path = self._host.path_to(other)
        source = REMOTE_BYTES[::-1][: 4 * MTU]
        self._peer = Peer(other.path_to(self._host), other.mac, TARGET_QPN, source)
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
            QPType.RC, QPInit(host.pd, self._cq, self._cq, cap), TARGET_QPN
        )
        host.bring_up(self._qp, self._attributes())
        self._peer.reset(self._psn)

    def _attributes(self) -> QPAttributes:
        limits = self._limits
        return QPAttributes(
            path_mtu=management.MTU.MTU_256,
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
        if name in WORK:
            refusal = self._post(name)
        elif name == TIMEOUT:
            self._expire()
        else:
            nic.receive(self._peer.respond(name), self._now)
        shown = [refusal, *map(self._peer.take, self._sent())]
        shown += map(self._completed, self._cq.poll(256))
        return ",".join(filter(None, shown)) or "-"

    def _post(self, name: str) -> str:
        """Post work; return the name of the error if it is refused."""
        assert self._qp is not None
        opcode, length, flags = WORK[name]
        start = len(self._posted) % _SLOTS * _SLOT
        reads = opcode not in _SENT
        buffer = self._sink if reads else self._source
        if reads:
            self._sink.write(bytes(_SLOT), start)
        wr = SendWR(
            opcode,
            (buffer.sge(length, start if reads else 0),),
            wr_id=len(self._posted),
            flags=SIGNALED | flags,
            remote_address=REMOTE + start,
        )
        try:
            self._host.nic.post_send(self._qp, (wr,))
        except VerbsError as error:
            return errorcode[error.errno]
        self._posted.append(name)
        return ""

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
        if done.wr_id != self._done:
            text += ".out_of_order"
        self._done = done.wr_id + 1
        if done.status is WCStatus.SUCCESS:
            self._peer.complete(self._done)
        opcode, length, _ = WORK[name]
        if opcode in _SENT or done.status is not WCStatus.SUCCESS:
            return text
        start = done.wr_id % _SLOTS * _SLOT
        placed = self._sink.read(_SLOT, start)
        wanted = REMOTE_BYTES[start : start + length].ljust(_SLOT, b"\0")
        return text if placed == wanted else f"{text}.other_bytes"


_SENT: Final = (SendOpcode.SEND, SendOpcode.RDMA_WRITE)
"""Work that sends bytes of local memory; other work places bytes there."""
