"""A peer made of bytes: says whatever a test wants to one side, and receives nothing."""

from rdmawire.ib.cm import messages as compose
from rdmawire.ib.cm.connection import Connection, Endpoints, Terms
from rdmawire.ib.cm.gsi import GSI_QKEY
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.messages import of
from rdmawire.ib.encapsulation import headers_to
from rdmawire.verbs.ah import SOURCE_PORTS
from rdmawire.wire.cm import (
    DREP,
    DREQ,
    IPCM4,
    MRA,
    REJ,
    REP,
    REQ,
    RTU,
    SIDRREP,
    AlternatePath,
    CMAttribute,
    Message,
    PrimaryPath,
    RejectReason,
    SIDRStatus,
)
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH
from rdmawire.wire.mad import MAD
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tests.ib.cm.stage import DATAGRAMS, SERVICE, MessageLink, Side, Two

PEER_ID = 0x7777
PEER_TID = 0xABCD
PEER_QPN = 0x98
EVERYTHING = frozenset(attribute.name for attribute in CMAttribute)


class Forger:
    """Speaks as the client of :class:`Two` to ``side``, or as the server to the client."""

    def __init__(self, side: Side, peer: Side) -> None:
        self.side, self.peer = side, peer
        self.asked = self._asked(SERVICE)
        self.looked = self._asked(DATAGRAMS)

    def _asked(self, service: int) -> Connection:
        path = self.peer.path_to(self.side)
        conn = Connection(PEER_ID, PEER_TID, path, service)
        conn.endpoints = Endpoints(self.peer.gid, self.side.gid, 0xC123)
        conn.qpn = PEER_QPN
        conn.psn = 1000
        conn.terms = Terms(responder_resources=2, initiator_depth=3)
        return conn

    def frame(self, mad: bytes) -> bytes:
        """A datagram of the peer's, sealed."""
        headers = headers_to(self.peer.path_to(self.side), self.peer.mac, SOURCE_PORTS)
        deth = DETH(GSI_QKEY, srcqp=1)
        packet = Packet.make(Opcode.UD_SEND_ONLY, deth, payload=mad, destqp=1, pkey=0xFFFF)
        return Frame(headers, packet).seal().build()

    def deliver(self, mad: bytes) -> None:
        """Hand it over."""
        self.side.receive(self.frame(mad), self.side.simulator.now)

    def say(self, attribute: CMAttribute, message: Header, tid: int = PEER_TID) -> None:
        self.deliver(of(attribute, tid, message))

    def req(self, **changes: int) -> None:
        self.deliver(self.req_bytes(**changes))

    def req_bytes(self, **changes: int) -> bytes:
        """A REQ, with other values in the attributes of what is asked."""
        for name, value in changes.items():
            setattr(self.asked, name, value)
        return compose.req(self.asked, self.peer.nic.device, DEFAULTS)

    def sidr_req(self) -> None:
        self.deliver(compose.sidr_req(self.looked, self.peer.nic.device))

    def rep(self, conn: Connection, *, qpn: int = PEER_QPN, depth: int = 1) -> None:
        message = REP(
            PEER_ID,
            conn.id,
            local_qpn=qpn,
            starting_psn=7,
            responder_resources=depth,
            initiator_depth=depth,
        )
        self.say(CMAttribute.REP, message)

    def mra(self, conn: Connection, about: Message, timeout: int = 10) -> None:
        message = MRA(PEER_ID, conn.id, about, service_timeout=timeout)
        self.say(CMAttribute.MRA, message)

    def rej(self, conn: Connection, reason: int = RejectReason.CONSUMER_REJECT) -> None:
        self.say(CMAttribute.REJ, REJ(PEER_ID, conn.id, reason=reason))

    def rtu(self, conn: Connection) -> None:
        self.say(CMAttribute.RTU, RTU(PEER_ID, conn.id))

    def dreq(self, conn: Connection) -> None:
        self.say(CMAttribute.DREQ, DREQ(PEER_ID, conn.id, conn.qpn))

    def drep(self, conn: Connection) -> None:
        self.say(CMAttribute.DREP, DREP(PEER_ID, conn.id))

    def sidr_rep(self, conn: Connection, status: int = SIDRStatus.SUCCESS) -> None:
        message = SIDRREP(conn.id, status, qpn=PEER_QPN, q_key=5)
        self.say(CMAttribute.SIDR_REP, message)


def deaf() -> Two:
    """Two whose messages are all lost: only what is forged is received."""
    return Two(MessageLink(lost=EVERYTHING))


def changed(mad: bytes, table: type[Header], **fields: int | bytes) -> bytes:
    """A REQ with other values in one of its headers, wherever that stands."""
    at = MAD.SIZE
    places = {MAD: 0, REQ: at, PrimaryPath: at + REQ.SIZE}
    places[AlternatePath] = places[PrimaryPath] + PrimaryPath.SIZE
    places[IPCM4] = places[AlternatePath] + AlternatePath.SIZE
    start = places[table]
    header = table.parse(mad, start).replace(**fields).build()
    return mad[:start] + header + mad[start + len(header) :]
