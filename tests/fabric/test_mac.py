"""The way out of an adapter: the wire never rests while somebody has something to send."""

from itertools import pairwise

from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Network
from rdmawire.fabric.pair import CAP, connect
from rdmawire.fabric.pfc import pfc_frame
from rdmawire.fabric.port_queue import Mac
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendOpcode, SendWR

GIGABIT = 10**9
FRAME = bytes(12) + b"\x08\x00" + bytes(60)


def queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(64)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))


def test_work_that_comes_while_the_wire_is_busy_goes_out_right_behind() -> None:
    network, one, other = Network(), Host(1), Host(2)
    for name, host in (("one", one), ("other", other)):
        network.add_host(name, host)
    network.join("one", "other", Link(10**6, rate=GIGABIT))
    mine, theirs = queue_pair(one), queue_pair(other)
    connect(one, mine, other, theirs)
    source, sink = one.filled(bytes(8192)), other.buffer(8192)
    wr = SendWR(SendOpcode.RDMA_WRITE, (source.sge(),), remote_address=sink.address, rkey=sink.rkey)
    times: list[int] = []
    network.tap("one", lambda _, now: times.append(now))

    def post() -> None:
        one.nic.post_send(mine, (wr,), network.simulator.now)
        network.wake("one")

    for n in range(4):
        network.simulator.call_at(2_000 * n + 100, post)
    network.simulator.run()
    assert len(times) == 32
    assert max(after - before for before, after in pairwise(times)) < 10_000


class Stub:
    """An adapter that gives one frame at a time, whatever it hears."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def receive(self, frame: bytes, now: int) -> None:
        pass

    def transmit(self, now: int) -> list[bytes]:
        given, self.frames = self.frames[:1], self.frames[1:]
        return given

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        pass


def test_what_comes_when_a_pause_ends_is_not_forgotten() -> None:
    stub = Stub()
    mac = Mac(stub, Link(rate=GIGABIT))
    stub.frames = [FRAME]
    mac.receive(pfc_frame(b"\x06" * 6, 0, 1000), 0)
    assert mac.transmit(0) == []
    end = mac.next_timer()
    assert end is not None
    stub.frames = [FRAME]
    assert mac.transmit(end) == [FRAME]
    free = mac.next_timer()
    assert free is not None
    assert mac.transmit(free) == [FRAME]
