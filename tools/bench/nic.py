"""The software RNIC: two of them in one process, every frame made, checked and answered.

Frames are whole, from Ethernet to ICRC. The ICRC is made on one end and checked on the other, and
so are queue pair, PSN, key and range; each message is acknowledged and completes on both ends that
it completes on. Nothing is left out but a wire.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click

from rdmawire.fabric import ATTRIBUTES, Buffer, Host
from rdmawire.ib import Nic, QPInit
from rdmawire.verbs import QPCap, QPType, RecvWR, SendOpcode, SendWR, WCStatus
from rdmawire.wire.management import MTU
from tools.bench import peer
from tools.bench.rate import Figure, best_rate

_BATCH = 64
_SMALL = 64
_LARGE = 1 << 20
_HUGE_PAGE = 1 << 21
_CAP = QPCap(1024, 1024, 1, 1)
_SCAPY = "Scapy builds and reads one"

Take = Callable[[Nic, Sequence[bytes]], None]
"""How frames are handed to an adapter."""


def one_by_one(nic: Nic, frames: Sequence[bytes]) -> None:
    """Each frame by itself."""
    for frame in frames:
        nic.receive(frame, 0)


def in_bursts(nic: Nic, frames: Sequence[bytes]) -> None:
    """As many as came."""
    nic.receive_all(frames, 0)


class End(Host):
    """One end of the connection, with a huge page of memory."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.cq = self.nic.create_cq(_CAP.max_send_wr + _CAP.max_recv_wr)
        self.qp = self.nic.create_qp(QPType.RC, QPInit(self.pd, self.cq, self.cq, _CAP))
        self.memory: Buffer = self.buffer(_HUGE_PAGE, page_size=_HUGE_PAGE)
        self.memory.write(bytes(range(256)) * (_HUGE_PAGE // 256))


class Stages:
    """Where the time goes, in seconds."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._since = 0.0

    def begin(self) -> None:
        """From now on."""
        self._since = time.perf_counter()

    def end(self, stage: str) -> None:
        """What was done since."""
        now = time.perf_counter()
        self.seconds[stage] += now - self._since
        self._since = now


class Job(NamedTuple):
    """What is measured: so many bytes in each message, and how frames are handed over."""

    name: str
    work: SendWR
    receives: int
    bytes: int
    take: Take


class Connection:
    """Two ends that are connected, at the greatest MTU."""

    def __init__(self) -> None:
        self.client, self.server = End(1), End(2)
        for end, other in ((self.client, self.server), (self.server, self.client)):
            end.bring_up(
                end.qp,
                ATTRIBUTES._replace(
                    path_mtu=MTU.MTU_4096, ah=end.path_to(other), dest_qp_num=other.qp.qp_num
                ),
            )

    def send(self) -> SendWR:
        """A SEND of 64 bytes."""
        return SendWR(SendOpcode.SEND, (self.client.memory.sge(_SMALL),))

    def remote(self, opcode: SendOpcode) -> SendWR:
        """A WRITE or READ of 1 MiB."""
        far = self.server.memory
        sges = (self.client.memory.sge(_LARGE),)
        return SendWR(opcode, sges, remote_address=far.address, rkey=far.rkey)

    def run(self, job: Job, messages: int, stages: Stages) -> int:
        """Send so many messages, in batches; how many completed."""
        client, server = self.client, self.server
        recv = RecvWR((server.memory.sge(_SMALL, _LARGE),))
        done = 0
        while done < messages:
            stages.begin()
            server.nic.post_recv(server.qp, [recv] * job.receives)
            client.nic.post_send(client.qp, [job.work] * max(job.receives, 1))
            stages.end("post")
            self._drive(job.take, stages)
            done += self._poll()
            stages.end("poll")
        return done

    def _drive(self, take: Take, stages: Stages) -> None:
        client, server = self.client.nic, self.server.nic
        while frames := client.transmit(0):
            stages.end("client makes frames")
            take(server, frames)
            stages.end("server takes frames")
            answers = server.transmit(0)
            stages.end("server makes frames")
            while answers:
                take(client, answers)
                stages.end("client takes frames")
                answers = server.transmit(0)
                stages.end("server makes frames")

    def _poll(self) -> int:
        sent = self.client.cq.poll(_CAP.max_send_wr)
        received = self.server.cq.poll(_CAP.max_recv_wr)
        if any(done.status is not WCStatus.SUCCESS for done in (*sent, *received)):
            raise SystemExit(f"a message failed: {sent}, {received}")
        return len(sent)


def jobs(connection: Connection) -> Iterator[Job]:
    """Everything that is measured."""
    write = connection.remote(SendOpcode.RDMA_WRITE)
    read = connection.remote(SendOpcode.RDMA_READ)
    yield Job("SEND 64 B", connection.send(), _BATCH, _SMALL, one_by_one)
    yield Job("SEND 64 B, in bursts", connection.send(), _BATCH, _SMALL, in_bursts)
    yield Job("WRITE 1 MiB, MTU 4096", write, 0, _LARGE, one_by_one)
    yield Job("WRITE 1 MiB, MTU 4096, in bursts", write, 0, _LARGE, in_bursts)
    yield Job("READ 1 MiB, MTU 4096", read, 0, _LARGE, in_bursts)


def measure(size: int = 256 << 20, messages: int = 64_000) -> Iterator[Figure]:
    """All figures, printed as they come, and where the time goes."""
    scapy = peer.scapy_messages()
    yield Figure(f"nic: {_SCAPY} of 64 B", scapy, unit="packets/s").shown()
    connection = Connection()
    for job in jobs(connection):
        count = min(messages, size // job.bytes)
        yield _measured(connection, job, count, scapy)


def _measured(connection: Connection, job: Job, count: int, scapy: float) -> Figure:
    stages = Stages()
    rate = best_rate(lambda: connection.run(job, count, stages))
    ratio = rate / scapy if job.bytes == _SMALL else None
    volume = rate * job.bytes / 1e9
    figure = Figure(f"nic: {job.name}", rate, ratio, _SCAPY, volume, "messages/s").shown()
    whole = sum(stages.seconds.values())
    for stage, seconds in stages.seconds.items():
        click.echo(f"    {stage:<44} {100 * seconds / whole:>11.1f} %")
    return figure
