"""Fabrics in virtual time: frames each second through switches, and many adapters at once."""

import sys
from collections import deque
from collections.abc import Iterator

from rdmawire.fabric import (
    ATTRIBUTES,
    Cable,
    Host,
    Network,
    Simulator,
    connect,
    leaf_spine,
    place_of,
    row,
)
from rdmawire.ib import QPInit, QueuePair
from rdmawire.units import gbps, us
from rdmawire.verbs import QPCap, QPType, SendOpcode, SendWR
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tools.bench.rate import Figure, best_rate

CABLE = Cable(us(1), gbps(100))
QPS = 10
"""Of each adapter, to as many others."""
MESSAGE = 16 * 1024
CAP = QPCap(16, 16, 1, 1, 0)
LEAF = 25
"""Adapters on one leaf."""


class Source:
    """Sends the same frame so many times, and takes in whatever comes."""

    def __init__(self, number: int, frame: bytes, count: int) -> None:
        self.mac = place_of(number).mac
        self.nic = self
        self.heard = 0
        self._frames = deque([frame] * count)

    def receive(self, frame: bytes, now: int) -> None:  # noqa: ARG002
        self.heard += 1

    def transmit(self, now: int) -> list[bytes]:  # noqa: ARG002
        return [self._frames.popleft() for _ in range(min(64, len(self._frames)))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def _frame(size: int) -> bytes:
    ip = IPv4(protocol=IPProtocol.UDP, src=b"\x0a\0\0\1", dst=b"\x0a\0\0\2")
    ethernet = Ethernet(place_of(2).mac, place_of(1).mac, EtherType.IPV4)
    packet = Packet.make(Opcode.RC_RDMA_WRITE_MIDDLE, payload=bytes(size))
    return Frame((ethernet, ip, UDP(srcport=0xC000, dstport=ROCE_PORT)), packet).seal().build()


def forward(size: int, count: int = 20_000) -> int:
    """Frames of so many bytes of payload, through two switches."""
    ends = {"a": Source(1, _frame(size), count), "b": Source(2, b"", 0)}
    network = Network()
    row(network, ends, switches=2, edge=CABLE, trunk=CABLE)
    network.simulator.run()
    if ends["b"].heard != count:
        raise AssertionError(f"{count} frames were sent, {ends['b'].heard} arrived")
    return count


class Cluster:
    """Adapters on leaves and spines, each with queue pairs to the next ones."""

    def __init__(self, nics: int) -> None:
        self.network = Network(Simulator(event_limit=sys.maxsize))
        self.hosts = [Host(place=place_of(number)) for number in range(1, nics + 1)]
        named = {f"h{number}": host for number, host in enumerate(self.hosts, 1)}
        leaves = max(nics // LEAF, 2)
        leaf_spine(self.network, named, leaves=leaves, spines=4, edge=CABLE, trunk=CABLE)
        self.memory = [host.buffer(MESSAGE) for host in self.hosts]
        self.cqs = [host.nic.create_cq(4 * QPS) for host in self.hosts]
        for index in range(nics):
            for step in range(1, QPS // 2 + 1):
                self._connect(index, (index + step * 7) % nics)

    def _connect(self, one: int, other: int) -> None:
        ends = self.hosts[one], self.hosts[other]
        first, second = (self._qp(index) for index in (one, other))
        connect(ends[0], first, ends[1], second, ATTRIBUTES)
        sink = self.memory[other]
        work = SendWR(
            SendOpcode.RDMA_WRITE,
            (self.memory[one].sge(),),
            remote_address=sink.address,
            rkey=sink.rkey,
        )
        ends[0].nic.post_send(first, (work,))

    def _qp(self, index: int) -> QueuePair:
        host, cq = self.hosts[index], self.cqs[index]
        return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))

    def run(self) -> int:
        """All that was posted; how many frames were put on links."""
        self.network.simulator.run()
        done = [status for cq in self.cqs for status in cq.poll(4 * QPS)]
        if len(done) != len(self.hosts) * QPS // 2 or any(wc.status for wc in done):
            raise AssertionError(f"{len(done)} pieces of work are done, or some went wrong")
        return sum(link.frames for link in self.network.links.values())


def measure() -> Iterator[Figure]:
    """Figures, printed as they come."""
    for size in (64, 1024, 4096):
        rate = best_rate(lambda size=size: forward(size))  # type: ignore[misc]
        volume = rate * size / 1e9
        yield Figure(f"fabric: {size} B through two switches", rate, None, "", volume).shown()
