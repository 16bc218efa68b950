"""The captures that the benchmarks read: small mixed RoCEv2 frames, and large ones."""

import random
from collections.abc import Iterator
from pathlib import Path

from rdmawire.capture import Record, create_capture
from rdmawire.wire import ib
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

_DISTINCT = 4096
"""Different frames in a capture; they come round again and again."""

_KINDS = (
    (Opcode.RC_SEND_ONLY, (), 64),
    (Opcode.RC_RDMA_WRITE_ONLY, (ib.RETH(0x7F0000001000, 0x1234, 64),), 64),
    (Opcode.RC_RDMA_WRITE_MIDDLE, (), 128),
    (Opcode.RC_ACKNOWLEDGE, (ib.AETH(ack=ib.Ack.ACK, value=31, msn=77),), 0),
    (Opcode.RC_ACKNOWLEDGE, (ib.AETH(ack=ib.Ack.ACK, value=31, msn=78),), 0),
    (Opcode.RC_RDMA_READ_REQUEST, (ib.RETH(0x7F0000002000, 0x1234, 4096),), 0),
    (Opcode.RC_RDMA_READ_RESPONSE_ONLY, (ib.AETH(ack=ib.Ack.ACK, value=31, msn=79),), 61),
    (Opcode.UD_SEND_ONLY, (ib.DETH(0x11111111, 0, 0x15),), 48),
    (Opcode.RC_FETCH_ADD, (ib.AtomicETH(0x7F0000003000, 0x1234, 1, 0),), 0),
)


def _frame(packet: Packet, port: int) -> bytes:
    ip = IPv4(df=1, protocol=IPProtocol.UDP, src=bytes([10, 0, 0, 1]), dst=bytes([10, 0, 0, 2]))
    ethernet = Ethernet(bytes(5) + b"\2", bytes(5) + b"\1", EtherType.IPV4)
    return Frame((ethernet, ip, UDP(port, ROCE_PORT)), packet).seal().build()


def small_frames(seed: int = 1) -> Iterator[bytes]:
    """Requests, responses and acknowledges of every common kind."""
    chance = random.Random(seed)
    for psn in range(_DISTINCT):
        opcode, headers, length = chance.choice(_KINDS)
        packet = Packet.make(
            opcode, *headers, payload=chance.randbytes(length), destqp=psn % 64 + 17, psn=psn
        )
        yield _frame(packet, 49152 + psn % 64)


def large_frames(seed: int = 2) -> Iterator[bytes]:
    """RDMA WRITE and READ of 4096 bytes each."""
    chance = random.Random(seed)
    for psn in range(_DISTINCT // 16):
        opcode = chance.choice((Opcode.RC_RDMA_WRITE_MIDDLE, Opcode.RC_RDMA_READ_RESPONSE_MIDDLE))
        packet = Packet.make(opcode, payload=chance.randbytes(4096), destqp=17, psn=psn)
        yield _frame(packet, 49152)


def write(path: Path, frames: list[bytes], count: int) -> None:
    """A capture of ``count`` frames, a microsecond apart."""
    with create_capture(path) as writer:
        for i in range(count):
            frame = frames[i % len(frames)]
            writer.write(Record(frame, 1_700_000_000_000_000_000 + i * 1000, len(frame), 1))
