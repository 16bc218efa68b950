"""Captures of what TCP does to iWARP: bytes cut, sent again, lost, out of order, joined late."""

from collections.abc import Callable
from itertools import product

from rdmawire.wire import mpa
from rdmawire.wire.mpa import MPAReply, MPARequest
from rdmawire.wire.rdmap import RDMAPOpcode
from tools.make_captures.iwarp_stream import ENHANCED, TO, Frames, Stream, text, ulpdu
from tools.make_captures.tcp import CLIENT, CLIENT_V6, SERVER, SERVER_V6, Conversation


def split_start_up() -> Frames:
    """Start-up frames of several segments: the key, the header and the private data cut."""
    stream = Stream(crc=True)
    stream.tcp.open()
    request = MPARequest(c=1, pd_length=300).build() + text(300)
    reply = MPAReply(c=1, pd_length=40).build() + text(40, 9)
    for way, whole, cuts in ((0, request, (7, 18, 100)), (1, reply, (21,))):
        for start, end in zip((0, *cuts), (*cuts, len(whole)), strict=True):
            stream.tcp.say(way, whole[start:end])
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 33))
    return stream.close()


def markers(crc: bool) -> Frames:
    """Markers at every place: between FPDUs, behind the length, in the pad, before the CRC."""
    stream = Stream(crc=crc, markers=(True, True)).open()
    for way, length in product((0, 1), (*range(440, 520), 1000, 1400)):
        stream.say(way, ulpdu(RDMAPOpcode.SEND, length % 500 or 3))
    for way, length in product((0, 1), (1100, 1200, 1300, 1380)):
        stream.say(way, ulpdu(RDMAPOpcode.RDMA_WRITE, length))
    stream.say(0, *(ulpdu(RDMAPOpcode.SEND, length) for length in (1, 50, 500)))
    return stream.close()


def segments(crc: bool) -> Frames:
    """FPDUs that span segments, segments of several FPDUs, and both at once."""
    stream = Stream(crc=crc).open()
    stream.say(0, *(ulpdu(RDMAPOpcode.SEND, length) for length in (0, 1, 2, 3, 100)))
    data = b"".join(
        stream.fpdu(0, ulpdu(opcode, length))
        for opcode, length in product((RDMAPOpcode.SEND, RDMAPOpcode.RDMA_WRITE), (5, 700, 2000))
    )
    for start in range(0, len(data), 333):
        stream.tcp.say(0, data[start : start + 333])
    small = stream.fpdu(1, ulpdu(RDMAPOpcode.RDMA_READ_RESPONSE, 9))
    for byte in small:
        stream.tcp.say(1, bytes([byte]))
    stream.say(1, ulpdu(RDMAPOpcode.SEND, 12))
    return stream.close()


def disorder(isn: int = 1000) -> Frames:
    """Segments out of order, sent again, and overlapping."""
    stream = Stream(Conversation(isn=(isn, 5000)), crc=True).open()
    tcp = stream.tcp
    first, second, third, fourth = (
        stream.fpdu(0, ulpdu(RDMAPOpcode.SEND, length, msn=msn))
        for msn, length in enumerate((100, 200, 300, 400), 1)
    )
    at = tcp.seq[0]
    tcp.say(0, second, seq=at + len(first))
    tcp.say(0, first, seq=at)
    tcp.say(0, first, seq=at)
    after = at + len(first) + len(second)
    tcp.say(0, third[:150], seq=after)
    tcp.say(0, third[100:], seq=after + 100)
    after += len(third)
    tcp.say(0, fourth[200:], seq=after + 200)
    tcp.say(0, fourth[:220], seq=after)
    tcp.say(0, fourth[100:], seq=after + 100)
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 8, msn=5))
    return stream.close()


def conflict() -> Frames:
    """A segment sent again with other bytes than the first time: the first ones count."""
    stream = Stream(Conversation(), crc=True).open()
    tcp = stream.tcp
    fpdu = stream.fpdu(0, ulpdu(RDMAPOpcode.SEND, 400))
    at = tcp.seq[0]
    tcp.say(0, fpdu[200:], seq=at + 200)
    tcp.say(0, fpdu[:100] + bytes(120), seq=at)
    tcp.say(0, fpdu[100:], seq=at + 100)
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 8, msn=2))
    return stream.close()


def wrap() -> Frames:
    """Sequence numbers that pass zero inside an FPDU, in both directions, with Markers."""
    isn = ((1 << 32) - 700, (1 << 32) - 90)
    stream = Stream(Conversation(isn=isn), crc=True, markers=(True, True)).open()
    for length in (100, 900, 1200, 60):
        stream.say(0, ulpdu(RDMAPOpcode.SEND, length))
        stream.say(1, ulpdu(RDMAPOpcode.SEND, length))
    return stream.close()


def joined(crc: bool, markers: bool = False) -> Frames:
    """A stream whose start nobody captured; the capture begins inside an FPDU."""
    stream = Stream(crc=crc, markers=(markers, markers)).open()
    data = b"".join(
        stream.fpdu(0, ulpdu(RDMAPOpcode.RDMA_WRITE, 1000, l=int(i % 4 == 3), to=TO + i * 1000))
        for i in range(12)
    )
    before = len(stream.frames)
    for start in range(0, len(data), 1100):
        stream.tcp.say(0, data[start : start + 1100])
    for msn in range(1, 9):
        stream.say(1, ulpdu(RDMAPOpcode.SEND, 30 + msn, msn=msn, mo=0))
    return stream.close()[before + 1 :]


def hole(crc: bool) -> Frames:
    """A stream of which two segments were never captured, though the receiver got them."""
    stream = Stream(crc=crc).open()
    for msn in range(1, 17):
        stream.say(0, ulpdu(RDMAPOpcode.SEND, 500 + msn, msn=msn, mo=0))
        stream.tcp.acknowledge(1)
        if msn in (4, 5):
            del stream.frames[-2]
    return stream.close()


def snapped() -> Frames:
    """FPDUs of every opcode, longer than the capture keeps, and some that it keeps whole."""
    stream = Stream(crc=True).open()
    for opcode in RDMAPOpcode:
        stream.say(opcode % 2, ulpdu(opcode, 600))
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 3), ulpdu(RDMAPOpcode.RDMA_WRITE, 400))
    stream.say(0, *(ulpdu(RDMAPOpcode.SEND, 50) for _ in range(3)))
    data = stream.fpdu(0, ulpdu(RDMAPOpcode.SEND, 900))
    for start in range(0, len(data), 500):
        stream.tcp.say(0, data[start : start + 500])
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 5))
    return stream.close()


def version_6() -> Frames:
    """The same protocols over IPv6."""
    stream = Stream(Conversation(CLIENT_V6, SERVER_V6), crc=True).open(2, (ENHANCED, ENHANCED))
    for opcode in RDMAPOpcode:
        stream.say(opcode % 2, ulpdu(opcode, 70))
    return stream.close()


def other_protocol() -> Frames:
    """TCP that is no iWARP, with bytes that look like it further on."""
    tcp = Conversation(CLIENT, SERVER._replace(port=80))
    tcp.open()
    tcp.say(0, b"GET /MPA HTTP/1.1\r\nHost: example\r\n\r\n")
    tcp.say(1, b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
    tcp.say(1, b"".join(mpa.build_fpdu(ulpdu(RDMAPOpcode.SEND, 100)) for _ in range(7)))
    tcp.close()
    return tcp.frames


def same_ports() -> Frames:
    """Two connections, one after the other, between the same ports."""
    frames: Frames = []
    for isn in ((1_000_000, 5_000_000), (1_500_000, 5_500_000)):
        stream = Stream(Conversation(isn=isn), crc=True).open()
        stream.say(0, ulpdu(RDMAPOpcode.SEND, 20)).say(1, ulpdu(RDMAPOpcode.SEND, 21))
        frames += stream.close()
    return frames


def odd_numbers() -> Frames:
    """Sequence numbers that are hard to count from: late SYNs, repeated ones, none at all."""
    tcp = Conversation(isn=(700, 5000))
    tcp.say(1, b"abc")
    tcp.say(0, b"xx")
    tcp.say(0, b"yy", seq=690)
    tcp.send(0, b"", rst=1)
    tcp.seq = [9000, 8000]
    tcp.open()
    tcp.send(0, b"hello", ack=1, fin=1)
    tcp.send(0, b"", seq=9000, syn=1)
    tcp.send(0, b"tfo", seq=20000, syn=1)
    for seq in (30000, 40000):
        tcp.send(1, b"", seq=seq, syn=1, ack=1)
    tcp.send(1, b"q", seq=40001, ack=1)
    late = Conversation(CLIENT._replace(port=6002), isn=(1001, 0))
    late.say(0, b"data")
    late.send(0, b"", seq=1000, syn=1)
    late.say(0, b"data")
    return tcp.frames + late.frames


STREAMS: dict[str, Callable[[], Frames]] = {
    "iwarp_start_up_split": split_start_up,
    "iwarp_markers": lambda: markers(crc=False),
    "iwarp_markers_crc": lambda: markers(crc=True),
    "iwarp_segments": lambda: segments(crc=False),
    "iwarp_segments_crc": lambda: segments(crc=True),
    "iwarp_disorder": disorder,
    "iwarp_disorder_wrap": lambda: disorder((1 << 32) - 250),
    "iwarp_wrap": wrap,
    "iwarp_joined": lambda: joined(crc=False),
    "iwarp_joined_crc": lambda: joined(crc=True),
    "iwarp_joined_markers": lambda: joined(crc=False, markers=True),
    "iwarp_joined_markers_crc": lambda: joined(crc=True, markers=True),
    "iwarp_hole": lambda: hole(crc=False),
    "iwarp_hole_crc": lambda: hole(crc=True),
    "iwarp_same_ports": same_ports,
    "iwarp_ipv6": version_6,
    "iwarp_not": other_protocol,
    "tcp_odd_numbers": odd_numbers,
}
"""File name (without its ending) to scenario."""
