"""The peer of a connection manager that is learned: it makes any message, and reads the answers.

Messages carry the communication ids and the transaction id that a peer must use in the state
reached; what the manager has not sent yet is 0. IBA 12.6.
"""

from collections.abc import Callable
from typing import Final

from rdmawire.fabric.host import Host
from rdmawire.ib.encapsulation import headers_to
from rdmawire.wire import mad, roce
from rdmawire.wire.cm import (
    APR,
    DREP,
    DREQ,
    LAP,
    MRA,
    REJ,
    REP,
    REQ,
    RTU,
    SIDRREP,
    SIDRREQ,
    AlternatePath,
    CMAttribute,
    Message,
    PrimaryPath,
    RejectReason,
    REQPrivateData,
    SIDRREQPrivateData,
    SIDRStatus,
    TransportService,
)
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, DETH, RETH
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import MTU, ManagementClass, Method
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet

SERVICE: Final = 0x7174
"""The service id that the manager listens to, if it is the passive side."""
TIMEOUT: Final = 10
"""The exponent of all response times: 4 ms."""
RETRIES: Final = 1
"""How often an unanswered message is retransmitted."""
PEER_IDS: Final = (0x7777, 0x7778)
"""Communication ids of the peer: one for a connection, one for a request besides it."""
CM_PEER_QPN: Final = 0x98
_TIDS: Final = {CMAttribute.REQ: 0xA0, CMAttribute.DREQ: 0xB0, CMAttribute.SIDR_REQ: 0xC0}
_GSI: Final = 1
_GSI_QKEY: Final = 0x8001_0000
_CLASS_VERSION: Final = 2
_UDP_PORT: Final = 0xC000
_ANSWERS: Final = {
    CMAttribute.DREP: CMAttribute.DREQ,
    CMAttribute.SIDR_REP: CMAttribute.SIDR_REQ,
}
"""The message whose transaction another one belongs to, if that is not a REQ."""


class CMPeer:
    """The peer ``host`` of the manager at ``other``. ``psn`` is the first PSN that it expects."""

    def __init__(self, host: Host, other: Host, psn: int = 1000) -> None:
        self._path, self._mac, self._psn = host.path_to(other), host.mac, psn
        self._gids = host.gid, other.gid
        self.forget()

    def forget(self) -> None:
        """Forget the ids of a connection that is over."""
        self.mine, self.theirs = PEER_IDS[0], 0
        self._qpn = self._their_psn = 0
        self._tids = {CMAttribute.REQ: 0, CMAttribute.DREQ: 0}
        self._sent = self.mine

    def begin(self) -> None:
        """Use the id of the last message from now on: its request began a connection."""
        self.mine = self._sent

    # Messages to the manager.

    def message(self, name: str) -> bytes:
        """Return the frame of a message, or of data; empty if the queue pair is unknown."""
        if name == "DATA":
            return self._data()
        attribute, pieces = MESSAGES[name](self)
        begun = _ANSWERS.get(attribute, CMAttribute.REQ)
        tid = _TIDS.get(attribute) or self._tids.get(begun) or _TIDS[begun]
        self._sent = int(getattr(pieces[0], "local_comm_id", 0))
        return self._frame(self._mad(attribute, tid, *pieces))

    @staticmethod
    def _mad(attribute: CMAttribute, tid: int, *pieces: Header) -> bytes:
        head = MAD(
            mgmt_class=ManagementClass.COM_MGT,
            class_version=_CLASS_VERSION,
            method=Method.SEND,
            transaction_id=tid,
            attribute_id=attribute,
        )
        return mad.build(head, *pieces)

    def _frame(self, message: bytes) -> bytes:
        deth = DETH(_GSI_QKEY, srcqp=_GSI)
        return self._sealed(Packet.make(Opcode.UD_SEND_ONLY, deth, payload=message, destqp=_GSI))

    def _sealed(self, packet: Packet) -> bytes:
        packet = packet._replace(bth=packet.bth.replace(pkey=0xFFFF))
        headers = headers_to(self._path, self._mac, _UDP_PORT)
        return roce.Frame(headers, packet).seal().build()

    def _data(self) -> bytes:
        """The first packet on the connection: an RDMA WRITE of no bytes."""
        if not self._qpn:
            return b""
        opcode, psn = Opcode.RC_RDMA_WRITE_ONLY, self._their_psn
        packet = Packet.make(opcode, RETH(), destqp=self._qpn, psn=psn, ackreq=1)
        return self._sealed(packet)

    def req(self, *, again: bool) -> tuple[CMAttribute, tuple[Header, ...]]:
        """A REQ with the id of the present connection or another id, for the same queue pair."""
        number = self.mine if again else sum(PEER_IDS) - self.mine
        request = REQ(
            local_comm_id=number,
            service_prefix=SERVICE >> 24,
            service_protocol=SERVICE >> 16 & 0xFF,
            service_port=SERVICE & 0xFFFF,
            local_qpn=CM_PEER_QPN,
            responder_resources=1,
            initiator_depth=1,
            remote_cm_response_timeout=TIMEOUT,
            transport_service_type=TransportService.RC,
            starting_psn=self._psn,
            local_cm_response_timeout=TIMEOUT,
            retry_count=7,
            p_key=0xFFFF,
            path_packet_payload_mtu=MTU.MTU_1024,
            rnr_retry_count=7,
            max_cm_retries=RETRIES,
        )
        local, remote = self._gids
        path = PrimaryPath(
            local_gid=local, remote_gid=remote, hop_limit=64, local_ack_timeout=TIMEOUT
        )
        return CMAttribute.REQ, (request, path, AlternatePath(), REQPrivateData())

    def rep(self, qpn: int) -> tuple[CMAttribute, tuple[Header, ...]]:
        """A REP from the queue pair ``qpn``."""
        reply = REP(
            self.mine,
            self.theirs,
            local_qpn=qpn,
            starting_psn=self._psn,
            responder_resources=1,
            initiator_depth=1,
            target_ack_delay=1,
        )
        return CMAttribute.REP, (reply,)

    def rej(self, reason: RejectReason) -> tuple[CMAttribute, tuple[Header, ...]]:
        """A REJ."""
        return CMAttribute.REJ, (REJ(self.mine, self.theirs, reason=reason),)

    def mra(self, about: Message) -> tuple[CMAttribute, tuple[Header, ...]]:
        """An MRA of a REQ or a REP."""
        answer = MRA(self.mine, self.theirs, about, service_timeout=TIMEOUT + 2)
        return CMAttribute.MRA, (answer,)

    def dreq(self, step: int = 0) -> tuple[CMAttribute, tuple[Header, ...]]:
        """A DREQ; its QPN is ``step`` above the manager's."""
        return CMAttribute.DREQ, (DREQ(self.mine, self.theirs, self._qpn + step),)

    def sidr_rep(self, status: SIDRStatus) -> tuple[CMAttribute, tuple[Header, ...]]:
        """A SIDR_REP."""
        answer = SIDRREP(self.theirs, status, qpn=CM_PEER_QPN, service_id=SERVICE, q_key=5)
        return CMAttribute.SIDR_REP, (answer,)

    # Frames from the manager.

    def take(self, frame: bytes) -> str:
        """Note the ids of a message. Return its name, and what of its ids is wrong."""
        packet = roce.parse(frame).packet
        if packet.bth.destqp != _GSI:
            aeth = packet.header(AETH)
            return "ACK" if aeth is not None and not aeth.ack else Opcode(packet.bth.opcode).name
        (_, head), (_, message), *_ = mad.layout(packet.payload)
        assert isinstance(head, MAD)
        attribute = CMAttribute(head.attribute_id)
        text = f"{attribute.name}{_detail(message)}"
        return text + self._check_tid(attribute, head.transaction_id) + self._note(message)

    def _check_tid(self, attribute: CMAttribute, tid: int) -> str:
        """Note the transaction of a REQ or DREQ; describe a wrong one of another message."""
        if attribute in _TIDS:
            self._tids[attribute] = tid
            return ""
        begun = _ANSWERS.get(attribute, CMAttribute.REQ)
        return "" if tid in (self._tids.get(begun), _TIDS[begun]) else ".other_tid"

    def _note(self, message: object) -> str:
        """Note what a message says of the manager's side; describe a wrong id of the peer."""
        if isinstance(message, SIDRREQ):
            self.theirs = message.request_id
            return ""
        if isinstance(message, SIDRREP):
            return "" if message.request_id == PEER_IDS[0] else ".other_id"
        if isinstance(message, REQ | REP):
            self._qpn, self._their_psn = message.local_qpn, message.starting_psn
        own = int(getattr(message, "local_comm_id", 0))
        if isinstance(message, REQ | REP | MRA | DREQ):
            self.theirs = own
        to = int(getattr(message, "remote_comm_id", self.mine))
        known = {self.mine, self._sent} | ({0} if isinstance(message, REJ) else set())
        return "" if to in known else f".to_{'another' if to else 'id_0'}"


def _detail(message: object) -> str:
    """The reason of a REJ, the status of a SIDR_REP, and the message that an MRA is about."""
    if isinstance(message, REJ):
        about = _named(Message, message.message_rejected)
        return f".{_named(RejectReason, message.reason)}.{about}"
    if isinstance(message, MRA):
        return f".{_named(Message, message.message_mraed)}"
    if isinstance(message, SIDRREP):
        return f".{_named(SIDRStatus, message.status)}"
    return ""


def _named(codes: type[RejectReason | Message | SIDRStatus], number: int) -> str:
    return codes(number).name if number in {*codes} else str(number)


_Make = Callable[[CMPeer], tuple[CMAttribute, tuple[Header, ...]]]

MESSAGES: Final[dict[str, _Make]] = {
    "REQ": lambda peer: peer.req(again=True),
    "REQ_OTHER_ID": lambda peer: peer.req(again=False),
    "REP": lambda peer: peer.rep(CM_PEER_QPN),
    "RTU": lambda peer: (CMAttribute.RTU, (RTU(peer.mine, peer.theirs),)),
    "REJ": lambda peer: peer.rej(RejectReason.CONSUMER_REJECT),
    "REJ_STALE": lambda peer: peer.rej(RejectReason.STALE_CONNECTION),
    "MRA_REQ": lambda peer: peer.mra(Message.REQ),
    "MRA_REP": lambda peer: peer.mra(Message.REP),
    "DREQ": lambda peer: peer.dreq(),
    "DREQ_OTHER_QPN": lambda peer: peer.dreq(1),
    "DREP": lambda peer: (CMAttribute.DREP, (DREP(peer.mine, peer.theirs),)),
    "LAP": lambda peer: (CMAttribute.LAP, (LAP(peer.mine, peer.theirs),)),
    "APR": lambda peer: (CMAttribute.APR, (APR(peer.mine, peer.theirs),)),
    "SIDR_REQ": lambda _: (
        CMAttribute.SIDR_REQ,
        (SIDRREQ(PEER_IDS[0], 0xFFFF, service_id=SERVICE), SIDRREQPrivateData()),
    ),
    "SIDR_REP": lambda peer: peer.sidr_rep(SIDRStatus.SUCCESS),
    "SIDR_REP_REFUSED": lambda peer: peer.sidr_rep(SIDRStatus.REJECTED),
}
"""What the peer can send, by the name of the input; ``DATA`` is a packet on the connection."""
