"""An adapter in the place of whom a captured request went to, and what it answers.

::

    responder = Responder(request)
    responder.memory(reth.va, 4096, reth.rkey)
    answers = responder.answer(request)
"""

from errno import EINVAL
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import ALL_ACCESS, Buffer, Host, Place
from rdmawire.fabric.pair import ATTRIBUTES, CAP, COMPLETIONS
from rdmawire.ib.encapsulation import gids_of
from rdmawire.ib.qp import QPInit
from rdmawire.memory.page import PAGE_4K
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPType, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire import roce
from rdmawire.wire.ib import DETH
from rdmawire.wire.inet import Ethernet
from rdmawire.wire.opcode import Service, service_of

_KINDS: Final = {Service.RC: QPType.RC, Service.UC: QPType.UC, Service.UD: QPType.UD}


class Responder(Host):
    """Has the addresses, the queue pair and the PSN that a first RoCEv2 request expects.

    A request does not say who sent it: ``peer_qpn`` is where the answers go. All else that is not
    in it is of ``attributes``. ``VerbsError`` EINVAL for services other than RC, UC and UD;
    ``WireError`` for octets that are no frame of RoCE.
    """

    def __init__(
        self,
        request: bytes,
        *,
        peer_qpn: int = 0,
        attributes: QPAttributes = ATTRIBUTES,
        profile: Profile = IBTA,
    ) -> None:
        frame = roce.parse(request)
        peer, own = gids_of(frame.headers)
        ethernet = next(piece for piece in frame.headers if isinstance(piece, Ethernet))
        super().__init__(place=Place(ethernet.dst, own), profile=profile)
        self.cq = self.nic.create_cq(COMPLETIONS)
        bth = frame.packet.bth
        init = QPInit(self.pd, self.cq, self.cq, CAP)
        self.qp = self.nic.create_qp(_kind(bth.opcode), init, bth.destqp)
        wanted = attributes._replace(
            ah=AddressHandle(ethernet.src, peer, own), dest_qp_num=peer_qpn, rq_psn=bth.psn
        )
        qkeys = (piece.qkey for piece in frame.packet.extended if isinstance(piece, DETH))
        self.bring_up(self.qp, wanted._replace(qkey=next(qkeys, attributes.qkey)))

    def memory(self, address: int, length: int, rkey: int, access: int = ALL_ACCESS) -> Buffer:
        """Memory for the peer at the address and by the key that its requests name.

        ``length`` octets, no more: what goes beyond them is refused.
        """
        inside = address % PAGE_4K
        memory = self.space.allocate(inside + length)
        start = memory.base + inside
        region = self.nic.memory.reg_mr(self.pd, start, length, access, iova=address)
        self.nic.memory.choose_key(region, rkey)
        return Buffer(memory, region)

    def receive(self, length: int) -> Buffer:
        """Post a receive for a message of so many octets; a datagram's GRH comes before them."""
        sink = self.buffer(max(length + self.qp.service.grh, 1))
        self.nic.post_recv(self.qp, (RecvWR((sink.sge(),)),), now=0)
        return sink

    def answer(self, frame: bytes, now: int = 0) -> list[bytes]:
        """Take in one frame at a time (ns); the frames that it is answered with.

        None at all for a request that asks for none, and for one that was dropped: ``drops`` of
        the adapter (``nic``) count those, by reason.
        """
        self.nic.receive(frame, now)
        answers: list[bytes] = []
        while sent := self.nic.transmit(now):
            answers += sent
        return answers

    def poll(self) -> list[WorkCompletion]:
        """Completions of receives that are there."""
        return self.cq.poll(COMPLETIONS)


def _kind(opcode: int) -> QPType:
    service = service_of(opcode)
    if service not in _KINDS:
        names = ", ".join(kind.name for kind in _KINDS)
        raise VerbsError(f"no responder for {service.name}: there are {names}", EINVAL)
    return _KINDS[service]
