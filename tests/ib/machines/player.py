"""An emulated responder that is given the machines' inputs, and what it answers in their words."""

from errno import ENOMEM
from functools import cache

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.key import Access
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, BTH, Ack
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from rdmawire.wire.serial import MODULUS
from tests.ib.machines.alphabet import INPUTS, REGION, Receive, Request

_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
_ATTRIBUTES = QPAttributes(
    path_mtu=MTU.MTU_1024,
    rq_psn=1000,
    sq_psn=5000,
    qp_access_flags=_RIGHTS,
    max_rd_atomic=4,
    max_dest_rd_atomic=4,
    min_rnr_timer=12,
)
_CAP = QPCap(max_send_wr=1, max_recv_wr=1)
_PORT = 0xC000
_NUMBER = 17


class Player:
    """One host with a region; each word is played on a new queue pair."""

    def __init__(self, profile: Profile) -> None:
        self.host, self.peer = Host(2, profile=profile), Host(1)
        self.region = self.host.buffer(REGION, _RIGHTS)
        self.sink = self.host.buffer(8192)
        self.cq = self.host.nic.create_cq(4096)
        self._frames: dict[tuple[str, int], bytes] = {}
        self.headers = headers_to(self.peer.path_to(self.host), self.peer.mac, _PORT)

    def play(self, word: tuple[str, ...]) -> tuple[str, ...]:
        """What each input of a word is answered with, on a fresh queue pair in RTS."""
        qp = self._fresh()
        answers = tuple(self._polled(qp, name) for name in word)
        self.host.nic.destroy_qp(qp)
        return answers

    def _fresh(self) -> QueuePair:
        nic = self.host.nic
        qp = nic.create_qp(QPType.RC, QPInit(self.host.pd, self.cq, self.cq, _CAP), _NUMBER)
        path = self.host.path_to(self.peer)
        self.host.bring_up(qp, _ATTRIBUTES._replace(ah=path, dest_qp_num=77))
        return qp

    def _polled(self, qp: QueuePair, name: str) -> str:
        """The answer to one input; completions are taken, and free their receives."""
        answer = self._step(qp, name)
        self.cq.poll(4096)
        return answer

    def _step(self, qp: QueuePair, name: str) -> str:
        given = INPUTS[name]
        if isinstance(given, Receive):
            return self._post(qp, given)
        expected = qp.inbound.epsn
        if (name, expected) not in self._frames:
            self._frames[name, expected] = self._frame(given, expected)
        self.host.nic.receive(self._frames[name, expected], 0)
        return ",".join(self._answers(expected)) or "-"

    def _answers(self, expected: int) -> list[str]:
        return [_word(frame, expected) for frame in self.host.nic.transmit(0)]

    def _post(self, qp: QueuePair, receive: Receive) -> str:
        try:
            self.host.nic.post_recv(qp, (RecvWR((self.sink.sge(receive.length),)),))
        except VerbsError as error:
            return "full" if error.errno == ENOMEM else f"errno {error.errno}"
        return ",".join(("ok", *self._answers(qp.inbound.epsn)))

    def _frame(self, given: Request, expected: int) -> bytes:
        psn = (expected + given.ahead) % MODULUS if given.psn is None else given.psn
        fields = {"pkey": 0xFFFF, "destqp": _NUMBER, "psn": psn, "ackreq": 1, **dict(given.bth)}
        bth = BTH(opcode=given.opcode, **fields)
        packet = Packet(bth, given.headers(self.region), bytes(given.length))
        frame = Frame(self.headers, packet).seal().build()
        return frame if given.good_icrc else frame[:-1] + bytes((frame[-1] ^ 1,))


_KINDS = {
    Opcode.RC_ACKNOWLEDGE: "",
    Opcode.RC_ATOMIC_ACKNOWLEDGE: "ATOMIC:",
    Opcode.RC_RDMA_READ_RESPONSE_FIRST: "RESP_FIRST:",
    Opcode.RC_RDMA_READ_RESPONSE_MIDDLE: "RESP_MIDDLE:",
    Opcode.RC_RDMA_READ_RESPONSE_LAST: "RESP_LAST:",
    Opcode.RC_RDMA_READ_RESPONSE_ONLY: "RESP_ONLY:",
}


@cache
def _word(frame: bytes, expected: int) -> str:
    """An answer as the machines have it: ``[opcode:]syndrome@PSN``."""
    packet = roce.parse(frame).packet
    aeth = packet.header(AETH)
    assert aeth is not None
    code = str(aeth.value) if aeth.ack == Ack.NAK else ""
    syndrome = {Ack.ACK: "ACK", Ack.RNR_NAK: "RNR", Ack.NAK: "NAK"}[Ack(aeth.ack)]
    place = _place(packet.bth.psn, expected)
    return f"{_KINDS[Opcode(packet.bth.opcode)]}{syndrome}{code}@{place}"


def _place(psn: int, expected: int) -> str:
    """A PSN as the machines have it, by what was expected before the input."""
    ahead = (psn - expected + MODULUS // 2) % MODULUS - MODULUS // 2
    if -1 <= ahead <= 1:
        return str(ahead)
    return "old" if ahead < 0 else "new"
