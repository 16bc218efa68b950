"""Two adapters that are watched and lied to: what the tests of the NIC's machines stand on."""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import Buffer
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.ib.encapsulation import headers_to
from rdmawire.units import us
from rdmawire.verbs.ah import SOURCE_PORTS
from rdmawire.verbs.async_event import Event
from rdmawire.verbs.enums import QPState, QPType, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttributes, QPAttrMask
from rdmawire.verbs.wr import SendOpcode, SendWR, Sge
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, RETH, Ack
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

WITHOUT_MEMORY = (SendOpcode.FLUSH, SendOpcode.LOCAL_INV, SendOpcode.BIND_MW, SendOpcode.REG_MR)
"""Work that uses no local memory."""


def fitting(wr: SendWR, kind: QPType) -> SendWR:
    """Work with only those pieces of memory and objects that its opcode uses on this type."""
    return wr._replace(
        sges=() if wr.opcode in WITHOUT_MEMORY else wr.sges,
        ah=wr.ah if kind is QPType.UD else None,
        bind=wr.bind if wr.opcode == SendOpcode.BIND_MW else None,
        reg=wr.reg if wr.opcode == SendOpcode.REG_MR else None,
    )


FIRST_PSN = ATTRIBUTES.sq_psn
PATIENT = ATTRIBUTES._replace(timeout=0)
"""Nothing is sent again unless it is asked for."""


class Sent(NamedTuple):
    """What was put on the link, lost or not."""

    time: int
    mac: bytes
    frame: bytes
    packet: Packet


class Stage:
    """Keeps what a pair sends, and says of the pair what tests ask."""

    def __init__(self, pair: Pair | None = None) -> None:
        self.pair = Pair() if pair is None else pair
        self.client, self.server = self.pair.client, self.pair.server
        self.sent: list[Sent] = []
        self.pair.simulator.on_sent.append(self._note)

    def _note(self, frame: Envelope, now: int) -> None:
        data = frame.data
        self.sent.append(Sent(now, data[6:12], data, roce.parse(data).packet))

    @property
    def now(self) -> int:
        return self.pair.simulator.now

    def drive(self, until: int | None = None) -> None:
        self.pair.drive(until)

    def by(self, end: End) -> list[Sent]:
        """What one end sent."""
        return [sent for sent in self.sent if sent.mac == end.mac]

    def opcodes(self, end: End) -> list[Opcode]:
        return [Opcode(sent.packet.bth.opcode) for sent in self.by(end)]

    def psns(self, end: End) -> list[int]:
        return [sent.packet.bth.psn for sent in self.by(end)]

    def aeths(self, end: End) -> list[AETH]:
        """The ACKs and NAKs of one end."""
        found = (sent.packet.header(AETH) for sent in self.by(end))
        return [aeth for aeth in found if aeth is not None]

    def forge(self, packet: Packet, *, by: End | None = None) -> bytes:
        """A frame as the client (or another end) would send it."""
        end = self.client if by is None else by
        return self.frame_of(packet, by=end).seal().build()

    def frame_of(self, packet: Packet, *, by: End | None = None) -> Frame:
        """As :meth:`forge`, before it is sealed."""
        end = self.client if by is None else by
        headers = headers_to(end.path_to(end.peer), end.mac, SOURCE_PORTS)
        return Frame(headers, packet.replace(bth=packet.bth.replace(destqp=end.peer.qp.qp_num)))

    def deliver(self, packet: Packet, *, by: End | None = None) -> None:
        """Hand a forged packet to the end that it is for."""
        end = self.client if by is None else by
        end.peer.nic.receive(self.forge(packet, by=end), self.now)

    def request(self, opcode: Opcode, *more: Header, payload: bytes = b"", **bth: int) -> None:
        """Hand the server a forged request."""
        self.deliver(Packet.make(opcode, *more, payload=payload, **bth))


def lossy(*drop: int, profile: Profile = IBTA, **attributes: int) -> Stage:
    """A pair on a link of a microsecond that loses the frames of these numbers."""
    there = ATTRIBUTES._replace(**attributes)  # type: ignore[arg-type]
    return Stage(Pair(Link(us(1), drop=drop), attributes=there, profile=profile))


def nak_of(stage: Stage) -> tuple[int, int]:
    """The code and PSN of the one NAK that the server sent."""
    ((psn, aeth),) = (
        (sent.packet.bth.psn, aeth)
        for sent in stage.by(stage.server)
        if (aeth := sent.packet.header(AETH)) is not None and aeth.ack == Ack.NAK
    )
    return aeth.value, psn


def statuses(end: End) -> list[WCStatus]:
    """How the work of one end ended, as far as nobody took it yet."""
    return [done.status for done in end.poll()]


def outcomes(end: End) -> list[tuple[int, WCStatus]]:
    return [(done.wr_id, done.status) for done in end.poll()]


def events(end: End) -> list[Event]:
    """What an end was told unasked."""

    def told() -> Iterator[Event]:
        while (event := end.nic.next_event()) is not None:
            yield event

    return list(told())


def only(end: End) -> WorkCompletion:
    """The one completion that there is."""
    (done,) = end.poll()
    return done


def go(
    end: End,
    state: QPState,
    mask: QPAttrMask = QPAttrMask.STATE,
    attributes: QPAttributes = ATTRIBUTES,
) -> None:
    """Change the state of an end's queue pair, and what the mask says."""
    end.nic.modify_qp(end.qp, attributes._replace(qp_state=state), mask | QPAttrMask.STATE)


def climb(end: End, top: QPState, attributes: QPAttributes = ATTRIBUTES) -> None:
    """From RESET up to a state, with all that each step may be given."""
    go(end, QPState.RESET)
    peer = attributes._replace(ah=end.path_to(end.peer), dest_qp_num=end.peer.qp.qp_num)
    for state in (QPState.INIT, QPState.RTR, QPState.RTS):
        if end.qp.state < top:
            go(end, state, QP_TRANSITIONS[end.qp.type, end.qp.state, state].required, peer)


def to_remote(opcode: SendOpcode, there: Buffer, *sges: Sge) -> SendWR:
    """Work on the beginning of a peer's memory."""
    return SendWR(opcode, sges, remote_address=there.address, rkey=there.rkey)


def key_of(there: Buffer, length: int) -> RETH:
    """The RETH for so many bytes from its beginning."""
    return RETH(there.address, there.rkey, length)
