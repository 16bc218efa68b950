"""Stations with a raw packet queue pair, their frames, and the specifications of flows."""

from array import array
from struct import Struct
from typing import NamedTuple

from rdmawire.verbs_service.protocol import MAX_FLOW_SPEC_BYTES
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.inet import UDP, Ethernet, EtherType, IPProtocol, IPv4
from tests.verbs_service.client import (
    SUCCESS,
    Client,
    Completion,
    CompletionQueue,
    QueuePair,
    Region,
)
from tests.verbs_service.running import Service

RAW = 8
NORMAL, ALL_DEFAULT, MC_DEFAULT, SNIFFER = range(4)
DONT_TRAP, EGRESS = 2, 4
MACS = [bytes((2, 0, 0, 0, 0, number)) for number in (1, 2, 3)]
GROUP, UNKNOWN = bytes.fromhex("01005e000001"), bytes.fromhex("02000000aa01")
ETH, IPV4, IPV6, IPV4_EXT, UDP_SPEC, VXLAN, GRE = 0x20, 0x30, 0x31, 0x32, 0x41, 0x50, 0x51
TAG, DROP = 0x1000, 0x1001
SIZE, ROOM = 2048, 64
"""Bytes of a receive, and how many receives there are; frames are sent from the place behind."""


class Station(NamedTuple):
    """A client with a raw packet queue pair in RTS."""

    client: Client
    qp: QueuePair
    cq: CompletionQueue
    memory: Region

    def post(self, *frames: bytes) -> None:
        """Post frames, without completions."""
        for number, frame in enumerate(frames):
            at = SIZE * (ROOM + number)
            self.memory.memory[at : at + len(frame)] = frame
            self.client.send(self.qp, self.memory.sge(at, len(frame)), flags=0)

    def expect(self, count: int = 1) -> None:
        """Post receives."""
        for number in range(count):
            self.client.receive(self.qp, self.memory.sge(SIZE * number, SIZE), wr_id=number)

    def bytes_of(self, done: Completion) -> bytes:
        """The frame of a completion."""
        assert done.status == SUCCESS
        return self.memory.memory[SIZE * done.wr_id : SIZE * done.wr_id + done.byte_len]

    def received(self, count: int = 1) -> list[bytes]:
        """Wait for frames."""
        return [self.bytes_of(done) for done in self.cq.wait(count)]

    def flow(self, *specs: bytes, kind: int = NORMAL, priority: int = 0, flags: int = 0) -> int:
        """Create a flow to the queue pair."""
        return create_flow(self.client, self.qp, *specs, kind=kind, priority=priority, flags=flags)


def create_flow(
    client: Client,
    qp: QueuePair,
    *specs: bytes,
    kind: int = NORMAL,
    priority: int = 0,
    flags: int = 0,
    port: int = 1,
) -> int:
    data = b"".join(specs)
    words = array("Q", data.ljust(MAX_FLOW_SPEC_BYTES, b"\0"))
    head = (qp.handle, kind, priority, port, flags, len(specs), len(data))
    (handle,) = client.call("create_flow", *head, *words)
    return handle


def station(service: Service, index: int) -> Station:
    client = service.connect(index)
    cq = client.create_cq(256)
    qp = client.create_qp(cq, kind=RAW)
    client.bring_up_raw(qp)
    return Station(client, qp, cq, client.buffer(SIZE * (ROOM + 16)))


def spec(kind: int, value: bytes, mask: bytes, aligned: int = 8) -> bytes:
    size = aligned + len(value) + len(mask)
    return (
        Struct("=IH").pack(kind, size + -size % 4).ljust(aligned, b"\0")
        + value
        + mask
        + bytes(-size % 4)
    )


def eth_spec(dst: bytes | None = None, ethertype: int = 0) -> bytes:
    value, mask = bytearray(16), bytearray(16)
    if dst is not None:
        value[:6], mask[:6] = dst, b"\xff" * 6
    if ethertype:
        value[12:14], mask[12:14] = ethertype.to_bytes(2, "big"), b"\xff\xff"
    return spec(ETH, bytes(value), bytes(mask), 6)


def udp_spec(port: int) -> bytes:
    return spec(UDP_SPEC, port.to_bytes(2, "big") + bytes(2), b"\xff\xff\0\0", 6)


def tag_spec(tag: int) -> bytes:
    return Struct("=IHxxI").pack(TAG, 12, tag)


def frame(dst: bytes, number: int = 0, length: int = 60) -> bytes:
    return Ethernet(dst, MACS[0], 0x88B5).build() + bytes([number]).ljust(length - 14, b"\x5a")


def udp_frame(dst: bytes, port: int, source: int = 1) -> bytes:
    ip = IPv4(protocol=IPProtocol.UDP, total_length=36, src=address(source), dst=address(2))
    ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
    link = Ethernet(dst, MACS[0], EtherType.IPV4)
    return link.build() + ip.build() + UDP(40000, port, 16).build() + bytes(8)


def address(number: int) -> bytes:
    return bytes((10, 0, 0, number))
