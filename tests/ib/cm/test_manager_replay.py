"""Real conversations of Linux's rdma_cm with our manager in the place of one end.

Ours is handed the peer's frames as captured and makes the calls of the captured program; what it
sends is compared byte for byte, from the Ethernet header to the ICRC. What a manager may choose
is given to ours as Linux chose it (:class:`Chosen`); what else may differ is in :data:`FREE`.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from rdmawire.ib.cm.connection import RDMA_UDP_QKEY, ConnParam, PortSpace, service_id
from rdmawire.ib.cm.event import (
    CMEvent,
    ConnectRequest,
    DatagramRequest,
    Disconnected,
    Established,
    Resolved,
)
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.cm.messages import ReceivedMad
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.address_space import AddressSpace
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import RXE
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.wire import roce
from rdmawire.wire.cm import DREQ, REP, REQ, SIDRREP, SIDRREQ, CMAttribute
from rdmawire.wire.inet import UDP, Ethernet, IPv4
from tests.ib.cm.stage import message_in
from tests.ib.replay.capture import Seen, read

RPING: Final = service_id(PortSpace.TCP, 7174)
UCMATOSE: Final = service_id(PortSpace.TCP, 7471)
UDADDY: Final = service_id(PortSpace.UDP, 7174)
ONE_AND_ONE: Final = ConnParam(responder_resources=1, initiator_depth=1)
"""What rping asks for and grants."""

UCMATOSE_ASKS: Final = ConnParam(
    responder_resources=1, initiator_depth=1, retry_count=5, rnr_retry_count=0
)
"""What ucmatose asks for; it grants the same, but for an RNR retry count of 7."""

FREE: Final = {
    "identification": "a packet that is never fragmented needs none (RFC 6864, 4.1); ours is 0",
    "ackreq": "means nothing in a datagram (IBA 9.2.8); Linux sets it to queue pair 1, ours never",
    "psn": "of queue pair 1 is its sender's count, which began before the udaddy capture",
}
"""Fields of the frames that ours are given from the capture before all bytes are compared."""


class Chosen:
    """Gives what Linux drew, in the order in which ours draws: id, transaction, starting PSN."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def getrandbits(self, k: int, /) -> int:
        number = self.numbers.pop(0)
        assert number < 1 << k
        return number


def message_of(seen: Seen) -> ReceivedMad:
    received = message_in(seen.data)
    assert received is not None
    return received


def transaction(frames: tuple[Seen, ...], gid: bytes) -> int:
    """The transaction of an end's own requests; any, where it makes none."""
    received = (message_of(seen) for seen in frames if seen.source == gid)
    return next((one.tid for one in received if isinstance(one.message, REQ | DREQ)), 1)


def drawn(frames: tuple[Seen, ...], gid: bytes) -> Iterator[int]:
    """What the manager of one end drew."""
    for seen in frames:
        received = message_of(seen)
        message = received.message
        if seen.source == gid and isinstance(message, REQ | REP):
            yield from (message.local_comm_id, transaction(frames, gid), message.starting_psn)
            return
        if seen.source == gid and isinstance(message, SIDRREQ):
            yield from (message.request_id, received.tid)
            return
        if seen.source == gid:
            yield from (1, 1)  # a passive manager's own number is on no wire
            return


class Player:
    """One end of a captured conversation, played by our manager."""

    def __init__(self, name: str, *, active: bool) -> None:
        self.frames = read(name).management
        first = self.frames[0]
        peer = self.frames[1]
        mine = first if active else peer
        self.gid, self.other = mine.source, mine.destination
        self.mac, self.other_mac = _mac(mine), _mac(peer if active else first)
        self.nic = Nic(self.mac, [self.gid], AddressSpace(), profile=RXE)
        chosen = Chosen(*drawn(self.frames, self.gid))
        self.port = ManagedPort(self.nic, {self.other: self.other_mac}.get, chosen)
        self.compared: list[str] = []

    @property
    def path(self) -> AddressHandle:
        return AddressHandle(self.other_mac, self.other, self.gid)

    def qp(self, kind: QPType, number: int) -> QueuePair:
        """One with the captured number: numbers are given in turn."""
        pd, cq = self.nic.alloc_pd(), self.nic.create_cq(16)
        while True:
            qp = self.nic.create_qp(kind, QPInit(pd, cq, cq, QPCap(4, 4)))
            if qp.qp_num == number:
                return qp

    def take_events(self, attribute: CMAttribute) -> list[CMEvent]:
        """Hand over the peer's message of this kind; what its owner is told."""
        seen = self._seen(attribute, self.other)
        self.port.receive(seen.data, seen.time)
        return list(iter(self.port.next_event, None))

    def sends(self, attribute: CMAttribute) -> None:
        """Compare what it sends now, and that alone, with what was captured."""
        seen = self._seen(attribute, self.gid)
        (frame,) = self.port.transmit(seen.time)
        assert with_free_fields(frame, seen) == seen.data
        self.compared.append(attribute.name)

    def is_silent(self) -> bool:
        return not self.port.transmit(0)

    def said(self, attribute: CMAttribute, *, by_peer: bool = False) -> ReceivedMad:
        return message_of(self._seen(attribute, self.other if by_peer else self.gid))

    def _seen(self, attribute: CMAttribute, source: bytes) -> Seen:
        (found,) = (
            seen
            for seen in self.frames
            if seen.source == source and message_of(seen).mad.attribute_id == attribute
        )
        return found


def _mac(seen: Seen) -> bytes:
    ethernet = seen.header(Ethernet)
    assert ethernet is not None
    return ethernet.src


def with_free_fields(ours: bytes, seen: Seen) -> bytes:
    """Our frame with the fields of :data:`FREE` as captured, and sealed again."""
    frame = roce.parse(ours)
    there = seen.header(IPv4)
    assert there is not None
    headers = tuple(
        header.replace(identification=there.identification) if isinstance(header, IPv4) else header
        for header in frame.headers
    )
    captured = seen.frame.packet.bth
    bth = frame.packet.bth.replace(ackreq=captured.ackreq, psn=captured.psn)
    return frame._replace(headers=headers, packet=frame.packet.replace(bth=bth)).seal().build()


def connected(player: Player, service: int, asks: ConnParam) -> tuple[REQ, QueuePair, int]:
    """The active end up to the RTU: its request, its queue pair, and its connection's id."""
    received = player.said(CMAttribute.REQ)
    req, header = received.message, received.ip_header
    assert isinstance(req, REQ)
    assert header is not None
    qp = player.qp(QPType.RC, req.local_qpn)
    manager = player.port.manager
    number = manager.connect(qp, player.path, service, 0, asks, source_port=header.source_port)
    player.sends(CMAttribute.REQ)
    (told,) = player.take_events(CMAttribute.REP)
    assert isinstance(told, Established)
    player.sends(CMAttribute.RTU)
    return req, qp, number


def test_rping_from_the_active_side() -> None:
    player = Player("rxe61_rping", active=True)
    req, qp, number = connected(player, RPING, ONE_AND_ONE)
    attributes = player.nic.query_qp(qp)
    rep = player.said(CMAttribute.REP, by_peer=True).message
    assert isinstance(rep, REP)
    assert attributes.qp_state is QPState.RTS
    assert attributes.dest_qp_num == rep.local_qpn
    assert (attributes.rq_psn, attributes.sq_psn) == (req.starting_psn, rep.starting_psn)
    assert (attributes.max_rd_atomic, attributes.max_dest_rd_atomic) == (1, 1)
    assert (attributes.timeout, attributes.retry_cnt, attributes.rnr_retry) == (19, 7, 7)
    player.port.manager.disconnect(number, 0)
    player.sends(CMAttribute.DREQ)
    assert player.take_events(CMAttribute.DREP) == [Disconnected(number)]
    assert player.is_silent()
    assert player.compared == ["REQ", "RTU", "DREQ"]


def test_rping_from_the_passive_side() -> None:
    player = Player("rxe61_rping", active=False)
    rep, manager = player.said(CMAttribute.REP).message, player.port.manager
    assert isinstance(rep, REP)
    manager.listen(RPING)
    (asked,) = player.take_events(CMAttribute.REQ)
    assert isinstance(asked, ConnectRequest)
    assert (asked.responder_resources, asked.initiator_depth) == (1, 1)
    assert asked.private_data == bytes(56)
    qp = player.qp(QPType.RC, rep.local_qpn)
    manager.accept(asked.id, qp, 0, ONE_AND_ONE)
    assert player.nic.query_qp(qp).qp_state is QPState.RTS
    player.sends(CMAttribute.REP)
    assert player.take_events(CMAttribute.RTU) == [Established(asked.id, bytes(224))]
    assert player.take_events(CMAttribute.DREQ) == [Disconnected(asked.id)]
    assert player.is_silent()
    manager.disconnect(asked.id, 0)
    assert player.nic.query_qp(qp).qp_state is QPState.ERR
    player.sends(CMAttribute.DREP)
    assert player.compared == ["REP", "DREP"]


def test_rpings_data_follow_the_connection_that_was_made() -> None:
    """The queue pair sends as Linux's did: same numbers, same PSNs, same UDP source port."""
    player = Player("rxe61_rping", active=False)
    player.port.manager.listen(RPING)
    (asked,) = player.take_events(CMAttribute.REQ)
    assert isinstance(asked, ConnectRequest)
    qp = player.qp(QPType.RC, 0x11)
    player.port.manager.accept(asked.id, qp, 0, ONE_AND_ONE)
    player.sends(CMAttribute.REP)
    requests = [seen for seen in read("rxe61_rping").frames if not seen.shape.response]
    mine = next(seen for seen in requests if seen.source == player.gid)
    peers = next(seen for seen in requests if seen.source == player.other)
    udp, captured = qp.request_template.headers[-1], mine.header(UDP)
    assert isinstance(udp, UDP)
    assert captured is not None
    assert udp.srcport == captured.srcport
    assert mine.psn == qp.sq.unacked_psn
    assert peers.psn == qp.inbound.epsn
    assert peers.qpn == qp.qp_num


def test_ucmatose_from_the_active_side() -> None:
    player = Player("rxe61_ucmatose", active=True)
    _, _, number = connected(player, UCMATOSE, UCMATOSE_ASKS)
    assert player.take_events(CMAttribute.DREQ) == [Disconnected(number)]
    player.port.manager.disconnect(number, 0)
    player.sends(CMAttribute.DREP)
    assert player.is_silent()
    assert player.compared == ["REQ", "RTU", "DREP"]


def test_ucmatose_from_the_passive_side() -> None:
    player = Player("rxe61_ucmatose", active=False)
    rep, manager = player.said(CMAttribute.REP).message, player.port.manager
    assert isinstance(rep, REP)
    manager.listen(UCMATOSE)
    (asked,) = player.take_events(CMAttribute.REQ)
    assert isinstance(asked, ConnectRequest)
    assert (asked.retry_count, asked.rnr_retry_count) == (5, 0)
    qp = player.qp(QPType.RC, rep.local_qpn)
    manager.accept(asked.id, qp, 0, UCMATOSE_ASKS._replace(rnr_retry_count=rep.rnr_retry_count))
    player.sends(CMAttribute.REP)
    assert player.take_events(CMAttribute.RTU) == [Established(asked.id, bytes(224))]
    manager.disconnect(asked.id, 0)
    player.sends(CMAttribute.DREQ)
    assert player.take_events(CMAttribute.DREP) == [Disconnected(asked.id)]
    assert player.is_silent()
    assert player.compared == ["REP", "DREQ"]


def test_udaddy_from_the_active_side() -> None:
    player = Player("rxe61_udaddy", active=True)
    header = player.said(CMAttribute.SIDR_REQ).ip_header
    answer = player.said(CMAttribute.SIDR_REP, by_peer=True).message
    assert header is not None
    assert isinstance(answer, SIDRREP)
    qp = player.qp(QPType.UD, answer.qpn)
    port = header.source_port
    number = player.port.manager.connect(qp, player.path, UDADDY, 0, source_port=port)
    player.sends(CMAttribute.SIDR_REQ)
    (told,) = player.take_events(CMAttribute.SIDR_REP)
    assert isinstance(told, Resolved)
    assert (told.id, told.remote_qpn, told.remote_qkey) == (number, answer.qpn, RDMA_UDP_QKEY)
    assert (qp.state, qp.qkey) == (QPState.RTS, RDMA_UDP_QKEY)
    assert player.is_silent()


def test_udaddy_from_the_passive_side() -> None:
    player = Player("rxe61_udaddy", active=False)
    answer = player.said(CMAttribute.SIDR_REP).message
    assert isinstance(answer, SIDRREP)
    player.port.manager.listen(UDADDY, datagrams=True)
    (asked,) = player.take_events(CMAttribute.SIDR_REQ)
    assert isinstance(asked, DatagramRequest)
    assert asked.private_data == bytes(180)
    player.port.manager.accept(asked.id, player.qp(QPType.UD, answer.qpn), 0)
    player.sends(CMAttribute.SIDR_REP)
    assert player.is_silent()


@pytest.mark.parametrize("name", ["rxe61_rping", "rxe61_ucmatose", "rxe61_udaddy"])
def test_every_management_frame_is_one_of_ours_to_send(name: str) -> None:
    """The tests above, of both ends together, compare all that there are."""
    attributes = [CMAttribute(message_of(seen).mad.attribute_id) for seen in read(name).management]
    sent = {
        "rxe61_rping": ["REQ", "REP", "RTU", "DREQ", "DREP"],
        "rxe61_ucmatose": ["REQ", "REP", "RTU", "DREQ", "DREP"],
        "rxe61_udaddy": ["SIDR_REQ", "SIDR_REP"],
    }
    assert [attribute.name for attribute in attributes] == sent[name]
