"""Extended reliable connections: the packet names the shared receive queue. IBA A14."""

from errno import EBUSY, EINVAL
from itertools import count

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.service import Fault
from rdmawire.verbs.async_event import CQError, Event, InvalidRequest, LastWQEReached, QPFatal
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPState, QPType, WCStatus, WorkCompletion
from rdmawire.verbs.srq import SharedReceiveQueue, XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, NO_CREDITS, RETH, XRCETH, Ack, Nak
from rdmawire.wire.opcode import Opcode, Service
from rdmawire.wire.packet import Packet
from tests.ib.test_post_checks import LOCAL, RELIABLE


class Extended:
    """An initiator and a target in an XRC domain, with two shared receive queues."""

    def __init__(self) -> None:
        self.simulator = Simulator()
        self.client, self.server = Host(1), Host(2)
        self.link = Link()
        for host in (self.client, self.server):
            self.simulator.attach(host.nic, host.mac, self.link)
        self.domain = self.server.nic.open_xrcd()
        self.cqs = [self.server.nic.create_cq(64) for _ in range(2)]
        self.srqs = [self.make_srq(self.domain, place) for place in range(2)]
        self.cq = self.client.nic.create_cq(64)
        self.own_cq = self.server.nic.create_cq(64)
        self.initiator = self.make(self.client, QPType.XRC_INI, self.cq, 0)
        self.target = self.make(self.server, QPType.XRC_TGT, self.own_cq, self.domain)
        self.connect()
        self.memory = self.server.buffer(65536)
        self.numbers = count(1)
        self.sent: list[bytes] = []
        self.simulator.on_sent.append(lambda frame, _: self.sent.append(frame.data))

    def make_srq(self, domain: int, place: int) -> SharedReceiveQueue:
        nic, cq = self.server.nic, self.cqs[place]
        return nic.create_srq(self.server.pd, 16, xrc=XRCReceiver(domain, cq))

    @staticmethod
    def make(host: Host, kind: QPType, cq: CompletionQueue, domain: int) -> QueuePair:
        return host.nic.create_qp(kind, QPInit(host.pd, cq, cq, CAP, xrc_domain=domain))

    def connect(self) -> None:
        for host, qp, peer, other in (
            (self.client, self.initiator, self.server, self.target),
            (self.server, self.target, self.client, self.initiator),
        ):
            there = ATTRIBUTES._replace(ah=host.path_to(peer), dest_qp_num=other.qp_num)
            host.bring_up(qp, there)

    def post(self, opcode: SendOpcode, srq: int, length: int = 8) -> None:
        sink = self.client.filled(b"extended" * (length // 8))
        wr = SendWR(
            opcode,
            () if opcode is SendOpcode.FLUSH else (sink.sge(length),),
            next(self.numbers),
            remote_address=self.memory.address,
            rkey=self.memory.rkey,
            remote_srqn=srq,
            placement=1,
        )
        self.client.nic.post_send(self.initiator, (wr,))
        self.simulator.run()

    def receive(self, place: int, wr_id: int, length: int = 8) -> None:
        buffer = self.server.buffer(length)
        self.server.nic.post_srq_recv(self.srqs[place], (RecvWR((buffer.sge(),), wr_id),))

    def statuses(self) -> list[WCStatus]:
        return [done.status for done in self.cq.poll(64)]

    def events(self) -> list[Event]:
        nic = self.server.nic
        return [event for _ in range(9) if (event := nic.next_event()) is not None]


def test_each_message_goes_to_the_queue_it_names() -> None:
    pair = Extended()
    for place, length in ((0, 8), (1, 3000), (1, 8), (0, 3000)):
        pair.receive(place, 10 * place + length, length)
        pair.post(SendOpcode.SEND, pair.srqs[place].number, length)
    assert [done.wr_id for done in pair.cqs[0].poll(9)] == [8, 3000]
    assert [done.wr_id for done in pair.cqs[1].poll(9)] == [3010, 18]
    assert pair.statuses() == [WCStatus.SUCCESS] * 4
    named = [roce.parse(frame).packet.header(XRCETH) for frame in pair.sent]
    assert named[0] == XRCETH(xrcsrq=pair.srqs[0].number)


@pytest.mark.parametrize("opcode", sorted(RELIABLE - LOCAL - {SendOpcode.SEND_WITH_INV}))
def test_an_initiator_has_the_verbs_of_a_reliable_connection(opcode: SendOpcode) -> None:
    pair = Extended()
    pair.receive(0, 1)
    pair.post(opcode, pair.srqs[0].number)
    assert pair.statuses() == [WCStatus.SUCCESS]


@pytest.mark.parametrize("which", ["unknown", "another domain", "no XRC queue"])
def test_a_queue_that_is_not_the_targets_to_use(which: str) -> None:
    pair = Extended()
    number = {
        "unknown": 0xABCDE,
        "another domain": pair.make_srq(pair.server.nic.open_xrcd(), 0).number,
        "no XRC queue": pair.server.nic.create_srq(pair.server.pd, 4).number,
    }[which]
    pair.post(SendOpcode.SEND, number)
    aeth = roce.parse(pair.sent[-1]).packet.header(AETH)
    assert aeth is not None
    assert (aeth.ack, aeth.value) == (Ack.NAK, Nak.INVALID_REQUEST)
    assert pair.statuses() == [WCStatus.REM_INV_REQ_ERR]
    assert pair.target.state is QPState.ERR
    assert pair.events() == [InvalidRequest(pair.target.qp_num)]


@pytest.mark.parametrize("place", [1, 2])
def test_a_message_that_names_another_queue_on_its_way_is_refused(place: int) -> None:
    """Or else what was taken from one queue would complete where the other does."""
    pair = Extended()
    for queue in range(2):
        pair.receive(queue, queue, 3000)
    first, second = (srq.number for srq in pair.srqs)
    send = SendWR(SendOpcode.SEND, (pair.client.filled(bytes(3000)).sge(3000),), remote_srqn=first)
    pair.client.nic.post_send(pair.initiator, (send,))
    frames = pair.client.nic.transmit(0)
    frames[place] = renamed(frames[place], second)
    for frame in frames:
        pair.server.nic.receive(frame, 0)
    assert pair.target.state is QPState.ERR
    assert [done.status for done in pair.cqs[0].poll(9)] == [WCStatus.REM_INV_REQ_ERR]
    assert (pair.cqs[1].poll(9), len(pair.srqs[1])) == ([], 1)


MALFORMED = {
    "reserved opcode": (Service.XRC << 5 | 0x1F, (), Fault.OP_VALID),
    "READ with a payload": (Opcode.XRC_RDMA_READ_REQUEST, (XRCETH(), RETH()), Fault.LENGTH),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_answered_with_a_nak(name: str) -> None:
    opcode, headers, fault = MALFORMED[name]
    pair = Extended()
    pair.post(SendOpcode.RDMA_WRITE, pair.srqs[0].number)
    assert pair.statuses() == [WCStatus.SUCCESS]
    good = roce.parse(pair.sent[0])
    psn = good.packet.bth.psn + 1
    packet = Packet(good.packet.bth.replace(opcode=opcode, psn=psn), headers, bytes(16))
    pair.server.nic.receive(good._replace(packet=packet).seal().build(), pair.simulator.now)
    pair.simulator.run()
    aeth = roce.parse(pair.sent[-1]).packet.header(AETH)
    assert aeth is not None
    assert (aeth.ack, aeth.value) == (Ack.NAK, Nak.INVALID_REQUEST)
    assert pair.events() == [InvalidRequest(pair.target.qp_num, psn, fault)]


def renamed(frame: bytes, srq: int) -> bytes:
    """The same frame, naming another queue."""
    found = roce.parse(frame)
    named = tuple(
        header.replace(xrcsrq=srq) if isinstance(header, XRCETH) else header
        for header in found.packet.extended
    )
    return found._replace(packet=found.packet._replace(extended=named)).seal().build()


def test_an_empty_queue_is_not_ready_and_advertises_no_credits() -> None:
    pair = Extended()
    sink = pair.client.buffer(8)
    wr = SendWR(SendOpcode.SEND, (sink.sge(),), remote_srqn=pair.srqs[1].number)
    pair.client.nic.post_send(pair.initiator, (wr,))
    pair.simulator.run(until=1000)
    aeth = roce.parse(pair.sent[-1]).packet.header(AETH)
    assert aeth is not None
    assert aeth.ack == Ack.RNR_NAK
    pair.receive(1, 1)
    pair.simulator.run()
    aeth = roce.parse(pair.sent[-1]).packet.header(AETH)
    assert aeth is not None
    assert aeth.value == 31
    assert pair.statuses() == [WCStatus.SUCCESS]


def test_a_duplicate_before_any_request_is_acknowledged_without_credits() -> None:
    """No packet has named a shared receive queue yet."""
    pair = Extended()
    pair.post(SendOpcode.RDMA_WRITE, pair.srqs[0].number)
    good = roce.parse(pair.sent[0])
    fresh = Extended()
    bth = good.packet.bth.replace(psn=good.packet.bth.psn - 1)
    fresh.server.nic.receive(
        good._replace(packet=good.packet._replace(bth=bth)).seal().build(), fresh.simulator.now
    )
    fresh.simulator.run()
    aeth = roce.parse(fresh.sent[-1]).packet.header(AETH)
    assert aeth is not None
    assert (aeth.ack, aeth.value) == (Ack.ACK, NO_CREDITS)


def test_a_target_ends_with_the_queue_where_a_receive_would_complete() -> None:
    """What it took from the shared queue, it took once: nothing is tried again."""
    pair = Extended()
    nic = pair.server.nic
    small = nic.create_cq(1)
    srq = nic.create_srq(pair.server.pd, 16, xrc=XRCReceiver(pair.domain, small))
    for wr_id in range(16):
        nic.post_srq_recv(srq, (RecvWR((pair.server.buffer(8).sge(),), wr_id),))
    for _ in range(2):
        pair.post(SendOpcode.SEND, srq.number)
    assert pair.statuses() == [WCStatus.SUCCESS, WCStatus.RETRY_EXC_ERR]
    assert pair.events() == [CQError(small.number), QPFatal(pair.target.qp_num)]
    assert pair.target.state is QPState.ERR
    assert len(srq) == 14


def test_a_target_ends_where_another_overran_the_queue_before() -> None:
    pair = Extended()
    nic = pair.server.nic
    small = nic.create_cq(1)
    for wr_id in range(2):
        small.push(WorkCompletion(wr_id), 0)
    srq = nic.create_srq(pair.server.pd, 16, xrc=XRCReceiver(pair.domain, small))
    nic.post_srq_recv(srq, (RecvWR((pair.server.buffer(8).sge(),)),))
    pair.post(SendOpcode.SEND, srq.number)
    assert pair.events() == [CQError(small.number), QPFatal(pair.target.qp_num)]
    assert pair.target.state is QPState.ERR


def test_neither_end_takes_receives_and_a_target_no_sends() -> None:
    pair = Extended()
    for host, qp in ((pair.client, pair.initiator), (pair.server, pair.target)):
        with pytest.raises(VerbsError) as refusal:
            host.nic.post_recv(qp, (RecvWR(),))
        assert refusal.value.errno == EINVAL
    with pytest.raises(VerbsError) as refusal:
        pair.server.nic.post_send(pair.target, (SendWR(SendOpcode.SEND),))
    assert refusal.value.errno == EINVAL


def test_memory_is_reached_in_the_domain_of_the_named_queue() -> None:
    pair = Extended()
    other = pair.server.nic.alloc_pd()
    cq = pair.cqs[0]
    srq = pair.server.nic.create_srq(other, 4, xrc=XRCReceiver(pair.domain, cq))
    pair.post(SendOpcode.RDMA_WRITE, srq.number)
    assert pair.statuses() == [WCStatus.REM_ACCESS_ERR]


def test_a_read_is_repeated_in_the_domain_of_the_queue_that_it_named() -> None:
    pair = Extended()
    srq = pair.server.nic.create_srq(
        pair.server.nic.alloc_pd(), 4, xrc=XRCReceiver(pair.domain, pair.cqs[1])
    )
    pair.server.nic.post_srq_recv(srq, (RecvWR(),))
    pair.link.drop = frozenset({3})
    sink = pair.client.buffer(8)
    read = SendWR(
        SendOpcode.RDMA_READ,
        (sink.sge(),),
        remote_address=pair.memory.address,
        rkey=pair.memory.rkey,
        remote_srqn=pair.srqs[0].number,
    )
    send = SendWR(SendOpcode.SEND, remote_srqn=srq.number)
    pair.client.nic.post_send(pair.initiator, (read, send))
    pair.simulator.run()
    assert pair.statuses() == [WCStatus.SUCCESS] * 2
    assert [done.status for done in pair.cqs[1].poll(9)] == [WCStatus.SUCCESS]


def test_a_repeated_read_leaves_a_message_its_queue() -> None:
    pair = Extended()
    for place in range(2):
        pair.receive(place, wr_id=place, length=2048)
    pair.post(SendOpcode.RDMA_READ, pair.srqs[0].number)
    pair.post(SendOpcode.SEND, pair.srqs[1].number, length=2048)
    read, first, _ = (frame for frame in pair.sent if frame[6:12] == pair.client.mac)
    again = Extended()
    for place in range(2):
        again.receive(place, wr_id=place, length=2048)
    for frame in (read, first, read):
        again.server.nic.receive(frame, 0)
        again.server.nic.transmit(0)
    again.target.fail()
    assert [len(cq) for cq in again.cqs] == [0, 1]


def test_destroying_a_target_releases_its_objects() -> None:
    pair = Extended()
    nic = pair.server.nic
    other = nic.alloc_pd()
    srq = nic.create_srq(other, 4, xrc=XRCReceiver(pair.domain, pair.cqs[1]))
    users = pair.server.pd.users
    pair.post(SendOpcode.RDMA_WRITE, srq.number, length=0)
    nic.destroy_qp(pair.target)
    assert pair.server.pd.users == users - 1
    assert other.users == 1
    nic.destroy_cq(pair.own_cq)


def test_a_queue_pair_that_fails_takes_no_more_from_its_shared_queue() -> None:
    host = Host()
    cq = host.nic.create_cq(16)
    srq = host.nic.create_srq(host.pd, 4)
    qp = host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP, srq=srq))
    host.bring_up(qp, ATTRIBUTES._replace(ah=host.path_to(host), dest_qp_num=qp.qp_num))
    host.nic.post_srq_recv(srq, (RecvWR(),))
    with pytest.raises(VerbsError) as refusal:
        host.nic.destroy_srq(srq)
    assert refusal.value.errno == EBUSY
    qp.fail()
    assert host.nic.next_event() == LastWQEReached(qp.qp_num)
    assert len(srq) == 1
    assert cq.poll(9) == []
