"""Hosts that send given frames and keep those that they receive, and frames for them."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from rdmawire.wire import roce
from rdmawire.wire.inet import ECN, ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

SIZE = 1000
BURST = 16


def mac_of(number: int) -> bytes:
    return b"\x02\0\0\0" + number.to_bytes(2, "big")


def frame_of(
    source: int,
    destination: int,
    psn: int = 0,
    *,
    dscp: int = 0,
    ecn: int = ECN.ECT_0,
    port: int = 0xC000,
    size: int = SIZE,
    checksum: int = 0,
    ipv6: bool = False,
    opcode: int = Opcode.RC_RDMA_WRITE_MIDDLE,
) -> bytes:
    """A sealed frame from one host to another."""
    kind = EtherType.IPV6 if ipv6 else EtherType.IPV4
    headers = (
        Ethernet(mac_of(destination), mac_of(source), kind),
        _ipv6(source, destination, dscp, ecn) if ipv6 else _ipv4(source, destination, dscp, ecn),
        UDP(srcport=port, dstport=ROCE_PORT, checksum=checksum),
    )
    packet = Packet.make(opcode, payload=bytes(size), psn=psn, destqp=destination)
    return Frame(headers, packet).seal().build()


def _ipv4(source: int, destination: int, dscp: int, ecn: int) -> IPv4:
    src, dst = (b"\x0a\0" + n.to_bytes(2, "big") for n in (source, destination))
    return IPv4(dscp=dscp, ecn=ecn, df=1, protocol=IPProtocol.UDP, src=src, dst=dst)


def _ipv6(source: int, destination: int, dscp: int, ecn: int) -> IPv6:
    src, dst = (b"\xfd" + n.to_bytes(15, "big") for n in (source, destination))
    return IPv6(dscp=dscp, ecn=ecn, next_header=IPProtocol.UDP, src=src, dst=dst)


def frames_of(source: int, destination: int, count: int, **given: int) -> list[bytes]:
    """So many frames, numbered by their PSNs."""
    return [frame_of(source, destination, psn, **given) for psn in range(count)]  # type: ignore[arg-type]


class Reception(NamedTuple):
    time: int
    frame: bytes

    @property
    def psn(self) -> int:
        return roce.parse(self.frame).packet.bth.psn


class Talker:
    """An adapter that has frames to send, in bursts, and that keeps what comes."""

    def __init__(self, number: int, frames: Iterable[bytes] = ()) -> None:
        self.mac = mac_of(number)
        self.frames = deque(frames)
        self.received: list[Reception] = []

    @property
    def nic(self) -> "Talker":
        return self

    @property
    def psns(self) -> list[int]:
        return [received.psn for received in self.received]

    def receive(self, frame: bytes, now: int) -> None:
        self.received.append(Reception(now, frame))

    def transmit(self, now: int) -> list[bytes]:
        return [self.frames.popleft() for _ in range(min(BURST, len(self.frames)))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        """Nothing is ever due."""
