"""Frames from a peer that keeps to no rule: whatever order and number, and seeds of traffic."""

from itertools import product
from random import Random

import pytest

from rdmawire.errors import WireError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.verbs.async_event import PathMigrationFailed
from rdmawire.verbs.enums import MigrationState, QPState, QPType, WCStatus
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttributes, QPAttrMask
from rdmawire.verbs.srq import XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, BTH, RETH, XRCETH
from rdmawire.wire.opcode import SHAPES, Opcode, service_of
from rdmawire.wire.packet import LAYOUTS, Packet
from tests.ib.stage import Stage, events, statuses

MTU = 1024


def xrc_send(host: Host, peer: Host, qpn: int, srqn: int) -> list[bytes]:
    """A SEND whose second middle packet names another shared receive queue."""
    middle = Opcode.XRC_SEND_MIDDLE
    parts = (Opcode.XRC_SEND_FIRST, middle, middle, Opcode.XRC_SEND_LAST)
    return [
        roce.Frame(
            headers_to(host.path_to(peer), host.mac, 0xC000),
            Packet.make(
                opcode, XRCETH(xrcsrq=srqn + wrong), payload=bytes(MTU), destqp=qpn, psn=psn
            ),
        )
        .seal()
        .build()
        for psn, (opcode, wrong) in enumerate(zip(parts, (0, 0, 50, 0), strict=True), start=100)
    ]


@pytest.mark.parametrize("at_once", [False, True])
def test_each_xrc_packet_names_its_queue(at_once: bool) -> None:
    client, server = Host(1), Host(2)
    nic, cq, domain = server.nic, server.nic.create_cq(9), server.nic.open_xrcd()
    srq = nic.create_srq(server.pd, 4, 1, XRCReceiver(domain, cq))
    nic.post_srq_recv(srq, [RecvWR((server.buffer(4 * MTU).sge(),), 7)])
    qp = nic.create_qp(QPType.XRC_TGT, QPInit(server.pd, cq, cq, xrc_domain=domain))
    server.bring_up(qp, ATTRIBUTES._replace(ah=server.path_to(client)))
    frames = xrc_send(client, server, qp.qp_num, srq.number)
    if at_once:
        nic.receive_all(frames, 0)
    else:
        for frame in frames:
            nic.receive(frame, 0)
    assert qp.state is QPState.ERR
    assert [done.status for done in cq.poll(9)] == [WCStatus.REM_INV_REQ_ERR]


def test_a_migration_to_an_invalid_path_is_one_event() -> None:
    stage = Stage()
    server = stage.server
    elsewhere = server.path_to(stage.client)._replace(dgid=bytes(12) + b"else")
    elsewhere = elsewhere._replace(sgid=bytes(12) + b"here")
    mask = QPAttrMask.PATH_MIG_STATE | QPAttrMask.ALT_PATH
    rearmed = QPAttributes(path_mig_state=MigrationState.REARM, alt_ah=elsewhere)
    server.nic.modify_qp(server.qp, rearmed, mask)
    stage.request(Opcode.RC_SEND_ONLY, psn=5000, migreq=0)
    for _ in range(100):
        stage.request(Opcode.RC_SEND_ONLY, psn=5000, migreq=1)
    failed = PathMigrationFailed(server.qp.qp_num)
    assert events(server) == [failed]
    stage.request(Opcode.RC_SEND_ONLY, psn=5000, migreq=1)
    assert events(server) == [failed]


STATES = (QPState.RESET, QPState.INIT, QPState.RTR, QPState.RTS, QPState.ERR)


def queue_pair(host: Host, peer: Host, kind: QPType, top: QPState) -> QueuePair:
    cq = host.nic.create_cq(99)
    domain = host.nic.open_xrcd() if kind is QPType.XRC_TGT else 0
    qp = host.nic.create_qp(kind, QPInit(host.pd, cq, cq, CAP, xrc_domain=domain))
    wanted = ATTRIBUTES._replace(ah=host.path_to(peer), dest_qp_num=qp.qp_num)
    for state in (QPState.INIT, QPState.RTR, QPState.RTS):
        if state <= top:
            needed = QP_TRANSITIONS[kind, qp.state, state].required | QPAttrMask.STATE
            host.nic.modify_qp(qp, wanted._replace(qp_state=state), needed)
    if top is QPState.ERR:
        host.nic.modify_qp(qp, QPAttributes(qp_state=top), QPAttrMask.STATE)
    return qp


@pytest.mark.parametrize("kind", QPType)
def test_every_opcode_meets_every_type_and_state(kind: QPType) -> None:
    """A frame that is dropped changes nothing: the same queue pair gets the next."""
    for state in STATES:
        victim = Victim(kind, state)
        for opcode in range(256):
            frame = victim.frame(opcode)
            if frame is None:
                continue
            drops = victim.take(frame)
            reserved = opcode not in SHAPES
            service = victim.qp.service.wire
            answered = kind in (QPType.RC, QPType.XRC_TGT) and service_of(opcode) is service
            if state in (QPState.RESET, QPState.INIT, QPState.ERR) or (reserved and not answered):
                assert drops == 1
            if not drops:
                victim = Victim(kind, state)


class Victim:
    """A queue pair of a type, brought to a state, and a peer that sends to it."""

    def __init__(self, kind: QPType, state: QPState) -> None:
        self.host, self.peer = Host(2), Host(1)
        self.qp = queue_pair(self.host, self.peer, kind, state)

    def frame(self, opcode: int) -> bytes | None:
        """A packet of this opcode, or ``None`` if none can be built."""
        layout = LAYOUTS.get(opcode)
        extended: tuple[Header, ...] = tuple(h() for h in layout.headers) if layout else ()
        packet = Packet(BTH(opcode=opcode, destqp=self.qp.qp_num, psn=100), extended, bytes(8))
        path = headers_to(self.peer.path_to(self.host), self.peer.mac, 0xC000)
        try:
            return roce.Frame(path, packet).seal().build()
        except WireError:
            return None

    def take(self, frame: bytes) -> int:
        """Receive a frame, which has one response at most; return how many were dropped."""
        nic = self.host.nic
        before = nic.drops.total()
        nic.receive(frame, 0)
        assert len(nic.transmit(0)) <= 1
        return nic.drops.total() - before


class Traffic:
    """Work between two hosts, with frames lost, repeated and changed on their way."""

    def __init__(self, seed: int, kind: QPType) -> None:
        self.random = Random(seed)
        self.pair = Pair(kind=kind)
        self.ends = (self.pair.client, self.pair.server)
        self.kept: list[bytes] = []
        self.canaries = []
        for end in self.ends:
            secret = end.buffer(4096, access=0)
            secret.write(b"\xa5" * 4096)
            self.canaries.append(secret)

    def work(self) -> None:
        end = self.random.choice(self.ends)
        size = self.random.choice((0, 8, 100, 1024, 5000))
        if end.qp.service.wire is not None and not end.qp.service.connected:
            size = min(size, 1024)
        if end.qp.state is not QPState.RTS:
            return
        choice = self.random.randrange(5)
        there = end.peer.region
        if choice == 0 or end.qp.type is QPType.UD:
            end.send(bytes(size))
        elif choice == 1 or end.qp.type is QPType.UC:
            end.write(bytes(size), to=there)
        elif choice == 2:
            end.read(size, of=there)
        elif choice == 3:
            end.fetch_add(1, of=there)
        else:
            end.write(bytes(size), to=there, imm=1)
        end.peer.receive(6000)

    def changed(self, frame: bytes) -> bytes:
        """The frame with some bytes changed and, mostly, sealed again."""
        data = bytearray(frame)
        for _ in range(self.random.randint(1, 3)):
            data[self.random.randrange(min(len(data), 80))] = self.random.getrandbits(8)
        if self.random.random() < 0.8:
            try:
                return roce.parse(bytes(data)).seal().build()
            except WireError:
                pass
        return bytes(data)

    def pass_on(self, now: int) -> None:
        """What both ends send, and more of the kind."""
        for end in self.ends:
            frames = end.nic.transmit(now, self.random.choice((1, 5, 64)))
            self.kept = (self.kept + frames)[-100:]
            for _ in range(self.random.choice((0, 1, 3)) if self.kept else 0):
                forged = self.changed(self.random.choice(self.kept))
                frames.insert(self.random.randint(0, len(frames)), forged)
            frames = [frame for frame in frames if self.random.random() > 0.03]
            end.peer.nic.receive_all(frames, now)
            if self.kept and self.random.random() < 0.2:
                end.nic.receive(self.random.choice(self.kept), now)

    def check(self) -> None:
        for end, secret in zip(self.ends, self.canaries, strict=True):
            assert secret.read() == b"\xa5" * 4096
            assert len(end.qp.inbound.resources) <= ATTRIBUTES.max_dest_rd_atomic
            assert end.qp.sq.outstanding_reads >= 0


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC, QPType.UD])
@pytest.mark.parametrize("seed", range(12))
def test_traffic_that_is_tampered_with_does_no_harm(seed: int, kind: QPType) -> None:
    traffic = Traffic(seed, kind)
    now = 0
    for _ in range(120):
        if traffic.random.random() < 0.3:
            traffic.work()
        traffic.pass_on(now)
        now += traffic.random.choice((0, 1_000, 100_000_000))
        for end in traffic.ends:
            end.nic.handle_timer(now)
        traffic.check()
    for _, end in product(range(1000), traffic.ends):
        end.nic.transmit(now)
    assert not any(end.nic.transmit(now) for end in traffic.ends)


def test_a_read_of_the_last_bytes_goes_on_past_them_where_a_peer_answers_it() -> None:
    stage = Stage()
    client = stage.client
    sink = client.buffer(3000)
    read = SendWR(SendOpcode.RDMA_READ, (sink.sge(3000),), 1, remote_address=2**64 - 8, rkey=1)
    client.nic.post_send(client.qp, [read])
    client.nic.transmit(0)
    first = Packet.make(
        Opcode.RC_RDMA_READ_RESPONSE_FIRST, AETH(value=31, msn=1), payload=bytes(MTU), psn=100
    )
    stage.deliver(first, by=stage.server)
    due = client.nic.next_timer()
    assert due is not None
    client.nic.handle_timer(due)
    (again,) = client.nic.transmit(due)
    assert roce.parse(again).packet.header(RETH) == RETH(MTU - 8, 1, 3000 - MTU)
    stage.drive()
    assert statuses(client) == [WCStatus.RETRY_EXC_ERR]
