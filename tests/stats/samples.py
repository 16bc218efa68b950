"""Captures made for the tests: RC packets between two hosts."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rdmawire.capture import Record, create_capture
from rdmawire.wire import ib
from rdmawire.wire.header import Header
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from rdmawire.wire.serial import add

ETHERNET = Ethernet(bytes(5) + b"\2", bytes(5) + b"\1", EtherType.IPV4)
START_NS = 1_700_000_000_000_000_000


class Sent(NamedTuple):
    """A packet from host ``source`` to host ``destination``, for queue pair ``qp``."""

    opcode: Opcode
    psn: int
    qp: int = 17
    headers: tuple[Header, ...] = ()
    payload: int = 0
    source: int = 1
    destination: int = 2
    ecn: int = 0

    def frame(self) -> bytes:
        src, dst = (bytes([10, 0, 0, host]) for host in (self.source, self.destination))
        ip = IPv4(df=1, protocol=IPProtocol.UDP, src=src, dst=dst, ecn=self.ecn)
        packet = Packet.make(
            self.opcode, *self.headers, payload=bytes(self.payload), destqp=self.qp, psn=self.psn
        )
        return Frame((ETHERNET, ip, UDP(49152, ROCE_PORT)), packet).seal().build()


def write(path: Path, packets: Iterable[Sent], apart_ns: int = 1000) -> None:
    """A capture of packets, each so long after the one before."""
    with create_capture(path) as writer:
        for number, sent in enumerate(packets):
            frame = sent.frame()
            writer.write(Record(frame, START_NS + number * apart_ns, len(frame), 1))


def read(psn: int, length: int, **where: int) -> Sent:
    return Sent(Opcode.RC_RDMA_READ_REQUEST, psn, headers=(ib.RETH(0, 0, length),), **where)


def ack(psn: int, **where: int) -> Sent:
    return Sent(Opcode.RC_ACKNOWLEDGE, psn, headers=(ib.AETH(ack=ib.Ack.ACK, value=31),), **where)


def nak(psn: int, code: int, **where: int) -> Sent:
    return Sent(Opcode.RC_ACKNOWLEDGE, psn, headers=(ib.AETH(ack=3, value=code),), **where)


_STEPS = (*[0] * 12, 1, 2, 5, -1, -1, -2, -3, -8, 40, -40, 65536, -65536, 65537, -65537, 9_000_000)


def random_requests(chance: random.Random, count: int) -> Iterator[Sent]:
    """Requests on a few queue pairs, which go ahead, back and far away at random."""
    reading = chance.random() < 0.5
    ends = {qp: chance.randrange(1 << 24) for qp in range(1, 4)}
    for _ in range(count):
        qp = chance.choice(list(ends))
        psn = add(ends[qp], chance.choice(_STEPS))
        length = chance.choice((1, 256, 257, 3000, 5000, 100_000, (1 << 31) + 1)) if reading else 0
        packets = -(-length // 1024) if chance.random() < 0.3 else 0
        ends[qp] = add(psn, packets or 1)
        yield read(psn, length, qp=qp) if packets else Sent(Opcode.RC_SEND_ONLY, psn, qp)
