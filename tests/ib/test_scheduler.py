"""Answers and requests of one queue pair share its link: neither waits for all of the other."""

from collections import Counter

import pytest

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Link, wire_time
from rdmawire.fabric.pair import ATTRIBUTES, CAP, End, Pair, connect
from rdmawire.ib.congestion.dcqcn import Dcqcn
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.scheduler import TURN
from rdmawire.units import gbps, us
from rdmawire.verbs.engine import BURST
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Operation

RATE = gbps(100)
SIZE = 1 << 18
FULL = 14 + 20 + 8 + 12 + 4096 + 4
"""Bytes of a middle packet's frame."""
READS = ATTRIBUTES._replace(
    path_mtu=MTU.MTU_4096, timeout=20, max_rd_atomic=8, max_dest_rd_atomic=8
)
RESPONSES = range(Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY + 1)
READ, WRITE = SendOpcode.RDMA_READ, SendOpcode.RDMA_WRITE


class Line:
    """A pair on a link with a rate; ``shares`` counts bytes by sender, receiver and kind."""

    def __init__(self) -> None:
        self.pair = Pair(Link(us(1), rate=RATE), attributes=READS)
        self.ends = (self.pair.client, self.pair.server)
        self.buffers = {end: end.buffer(SIZE) for end in self.ends}
        self.shares: Counter[tuple[bytes, int, bool]] = Counter()
        self.pair.simulator.on_sent.append(self._note)

    def _note(self, frame: Envelope, _: int) -> None:
        data = frame.data
        bth = roce.parse(data).packet.bth
        self.shares[data[6:12], bth.destqp, bth.opcode % 32 in RESPONSES] += len(data)

    def connection(self) -> tuple[QueuePair, QueuePair]:
        """One more connection of both ends."""
        one, other = (
            end.nic.create_qp(QPType.RC, QPInit(end.pd, end.cq, end.cq, CAP)) for end in self.ends
        )
        connect(self.pair.client, one, self.pair.server, other, READS)
        return one, other

    def post(self, end: End, qp: QueuePair, opcode: SendOpcode, messages: int) -> None:
        """Messages of 256 KiB from or to memory of the peer."""
        there = self.buffers[end.peer]
        sges = (self.buffers[end].sge(SIZE),)
        wr = SendWR(opcode, sges, remote_address=there.address, rkey=there.rkey)
        end.nic.post_send(qp, [wr] * messages)

    def share(self, end: End, qp: QueuePair, *, responses: bool) -> float:
        """Of all that an end sent, the part of a queue pair's READ responses, or of the rest."""
        whole = sum(size for (mac, *_), size in self.shares.items() if mac == end.mac)
        return self.shares[end.mac, qp.dest_qp, responses] / whole


def test_answers_and_requests_share_a_link() -> None:
    line = Line()
    client, server = line.ends
    line.post(client, client.qp, READ, 40)
    line.post(server, server.qp, WRITE, 40)
    line.pair.drive(us(400))
    assert line.share(server, server.qp, responses=True) >= 0.45
    assert line.share(server, server.qp, responses=False) >= 0.45


@pytest.mark.parametrize("connections", [1, 3])
def test_both_ends_ask_and_write_at_once_on_several_queue_pairs(connections: int) -> None:
    line = Line()
    qps = [line.connection() for _ in range(connections)]
    for pair in qps:
        for end, qp in zip(line.ends, pair, strict=True):
            # A READ is one request among WRITEs, so both kinds are posted in turn.
            for _ in range(8):
                line.post(end, qp, READ, 4)
                line.post(end, qp, WRITE, 4)
    line.pair.drive(us(500) * connections)
    for pair in qps:
        for end, qp in zip(line.ends, pair, strict=True):
            for responses in (True, False):
                assert line.share(end, qp, responses=responses) >= 0.4 / connections


def test_paced_answers_and_requests_share_a_rate() -> None:
    line = Line()
    client, server = line.ends
    scheme = Dcqcn()
    server.nic.control_congestion(server.qp, scheme)
    scheme.notified(0)  # 20 of 40 Gbit/s, and more from then on
    line.post(client, client.qp, READ, 40)
    line.post(server, server.qp, WRITE, 40)
    line.pair.drive(us(400))
    assert line.share(server, server.qp, responses=True) >= 0.45
    assert line.share(server, server.qp, responses=False) >= 0.45


@pytest.mark.parametrize("paced", [False, True])
def test_a_small_send_waits_for_one_burst_at_most(paced: bool) -> None:
    line = Line()
    client, server = line.ends
    if paced:
        server.nic.control_congestion(server.qp, Dcqcn())
    line.post(client, client.qp, READ, 40)
    client.receive(8)
    line.pair.drive(us(200))
    posted = line.pair.simulator.now
    server.send(b"urgently")
    line.pair.drive(posted + us(1) + (BURST + TURN + 1) * wire_time(FULL, RATE))
    (done,) = [done for done in client.poll() if done.byte_len == 8]
    assert done.qp_num == client.qp.qp_num


def test_small_requests_catch_up_in_bytes() -> None:
    line = Line()
    client, server = line.ends
    line.post(client, client.qp, READ, 8)
    server.nic.receive_all(client.nic.transmit(0), 0)
    for _ in range(200):
        server.write(bytes(64), to=client.region)
    opcodes = [roce.parse(frame).packet.bth.opcode for frame in server.nic.transmit(0)]
    answers = [opcode in RESPONSES for opcode in opcodes]
    assert answers == [True] * TURN + [False] * (BURST - TURN)
    assert server.qp.responses_in_a_row > 0


@pytest.mark.parametrize("room", [1, 3, TURN, 2 * TURN + 1])
def test_turns_go_on_from_call_to_call(room: int) -> None:
    line = Line()
    client, server = line.ends
    line.post(client, client.qp, READ, 8)
    server.nic.receive_all(client.nic.transmit(0), 0)
    line.post(server, server.qp, WRITE, 8)
    frames = [frame for _ in range(96 // room) for frame in server.nic.transmit(0, room)]
    requests = sum(roce.parse(frame).packet.bth.opcode not in RESPONSES for frame in frames)
    assert abs(2 * requests - len(frames)) <= 2 * TURN


def test_who_has_nothing_to_send_leaves_all_to_the_other_and_no_debt() -> None:
    line = Line()
    client, server = line.ends
    line.post(client, client.qp, READ, 1)
    server.nic.receive_all(client.nic.transmit(0), 0)
    server.write(bytes(64), to=client.region)
    frames = server.nic.transmit(0)
    opcodes = [roce.parse(frame).packet.bth.opcode for frame in frames]
    assert [opcode in RESPONSES for opcode in opcodes].index(False) == TURN
    assert len(frames) == BURST
    assert server.qp.responses_in_a_row == 0
