"""Captures of iWARP made from the tables: every RDMAP opcode, every error, every way of TCP.

Each scenario gives Ethernet frames, the same ones at every run. Fields are non-zero and distinct
where their rules allow it, so that a value in the wrong place shows.
"""

from collections.abc import Callable, Iterator
from itertools import count, product

from rdmawire.wire import rdmap
from rdmawire.wire.mpa import MPAReply, MPARequest
from rdmawire.wire.rdmap import AtomicOpcode, RDMAPOpcode, segment
from rdmawire.wire.terminate import (
    DDPErrorType,
    Layer,
    LLPErrorType,
    MPAError,
    RDMAError,
    RDMAErrorType,
    TaggedError,
    TerminateControl,
    TerminatedLength,
    UntaggedError,
)
from tools.make_captures.iwarp_stream import (
    ENHANCED,
    READ_REQUEST,
    Frames,
    Stream,
    atomic_request,
    text,
    ulpdu,
)
from tools.make_captures.iwarp_streams import STREAMS
from tools.make_captures.tcp import CLIENT, Conversation


def opcodes(crc: bool = False) -> Frames:
    """Every opcode, with every length of pad, as the last segment of its message and not."""
    stream = Stream(crc=crc).open()
    for opcode in RDMAPOpcode:
        for length in (0, 1, 2, 3, 64):
            stream.say(opcode % 2, ulpdu(opcode, length))
        if not rdmap.SHAPES[opcode].whole:
            stream.say(opcode % 2, ulpdu(opcode, 40, l=0))
    for atomic in range(16):
        stream.say(0, segment(RDMAPOpcode.ATOMIC_REQUEST, b"", atomic_request(atomic), msn=7))
    return stream.close()


def reserved_bits() -> Frames:
    """Reserved bits set, versions and opcodes that nobody defined, queues that are not used."""
    stream = Stream().open()
    for opcode in RDMAPOpcode:
        stream.say(0, ulpdu(opcode, 16, rsvd=0xA, rsv=2))
    for reserved in range(12, 16):
        raw = bytearray(ulpdu(RDMAPOpcode.SEND, 16))
        raw[1] = 0x40 | reserved
        stream.say(0, bytes(raw))
    for version in (0, 2, 3):
        stream.say(0, ulpdu(RDMAPOpcode.SEND, 16, dv=version))
        stream.say(0, ulpdu(RDMAPOpcode.SEND, 16, rv=version))
    atomic = atomic_request(AtomicOpcode.CMP_SWAP).replace(reserved=0x5A5A5A5)
    stream.say(0, segment(RDMAPOpcode.ATOMIC_REQUEST, b"", atomic, msn=9))
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 16, reserved=0xE1E2E3E4))
    stream.say(0, ulpdu(RDMAPOpcode.SEND, 16, qn=0xF1F2F3F4))
    return stream.close()


_ERRORS = (
    *product([Layer.RDMA], RDMAErrorType, RDMAError),
    *product([Layer.DDP], [DDPErrorType.TAGGED_BUFFER_ERROR], TaggedError),
    *product([Layer.DDP], [DDPErrorType.UNTAGGED_BUFFER_ERROR], UntaggedError),
    *product([Layer.DDP], [DDPErrorType(0), DDPErrorType.RESERVED_FOR_LLP], [0, 0x5C]),
    *product([Layer.LLP], LLPErrorType, MPAError),
    *product([Layer.LLP, 3, 15], [5], [0xA5]),
)


def _terminate(control: TerminateControl, quoted: bytes = b"") -> bytes:
    return segment(RDMAPOpcode.TERMINATE, quoted, control, msn=1)


def terminates() -> Frames:
    """A Terminate of every layer, type and code, and with every set of quoted headers."""
    stream = Stream().open()
    for layer, etype, code in _ERRORS:
        stream.say(1, _terminate(TerminateControl(layer, etype, code)))
    length = TerminatedLength(0x1F2).build()
    tagged = ulpdu(RDMAPOpcode.RDMA_WRITE)
    untagged = ulpdu(RDMAPOpcode.SEND)
    read, atomic = ulpdu(RDMAPOpcode.RDMA_READ_REQUEST), ulpdu(RDMAPOpcode.ATOMIC_REQUEST)
    for m, header, (layer, etype) in product((0, 1), (tagged, untagged), ((0, 1), (1, 1), (1, 2))):
        control = TerminateControl(layer, etype, 1, m=m, d=1, reserved=0x155)
        stream.say(1, _terminate(control, length + header))
    for request, etype in product((read, atomic), (1, 2)):
        control = TerminateControl(Layer.RDMA, etype, 2, m=1, d=1, r=1)
        stream.say(1, _terminate(control, length + request))
    stream.say(1, _terminate(TerminateControl(Layer.DDP, 2, 3, m=1), length))
    stream.say(1, _terminate(TerminateControl(Layer.RDMA, 1, 2, r=1), READ_REQUEST.build()))
    return stream.close()


def start_up(
    rev: int,
    m: tuple[int, int],
    c: tuple[int, int],
    private: bytes = b"",
    number: int = 0,
    **reply: int,
) -> Frames:
    """One start-up with these bits in request and reply, and a Send if it was not rejected.

    ``number`` tells connections apart that use the same ports; ``reply`` are rows of the reply.
    """
    tcp = Conversation(CLIENT._replace(port=50001 + number))
    tcp.open()
    request = MPARequest(m=m[0], c=c[0], s=int(rev == 2), rev=rev, pd_length=len(private))
    answer = MPAReply(m=m[1], c=c[1], s=int(rev == 2), rev=rev, pd_length=len(private)).replace(
        **reply
    )
    tcp.say(0, request.build() + private)
    tcp.say(1, answer.build() + private)
    if not answer.r:
        stream = Stream(tcp, crc=bool(c[0] | c[1]), markers=(bool(m[0]), bool(m[1])))
        stream.say(0, ulpdu(RDMAPOpcode.SEND, 20))
        stream.say(1, ulpdu(RDMAPOpcode.SEND, 600))
    tcp.close()
    return tcp.frames


_BITS = ((0, 0), (1, 0), (0, 1), (1, 1))


def start_ups() -> Frames:
    """Start-ups of both revisions, one connection after the other on the same ports."""
    frames: Frames = []
    number = count(1)
    for rev, m, c in product((1, 2), _BITS, _BITS):
        frames += start_up(rev, m, c, ENHANCED if rev == 2 else b"", next(number))
    for length in (1, 4, 511, 512):
        frames += start_up(1, (0, 0), (0, 0), text(length), next(number))
        frames += start_up(2, (0, 0), (1, 1), (ENHANCED + text(length))[:512], next(number))
    frames += start_up(1, (0, 0), (0, 0), b"no", next(number), r=1)
    frames += start_up(2, (0, 1), (0, 0), ENHANCED, next(number), r=1)
    frames += start_up(9, (0, 0), (0, 0), b"", next(number), res=0xF)
    return frames


SCENARIOS: dict[str, Callable[[], Frames]] = {
    "iwarp_opcodes": opcodes,
    "iwarp_opcodes_crc": lambda: opcodes(crc=True),
    "iwarp_terminate": terminates,
    "iwarp_start_up": start_ups,
}
"""File name (without its ending) to scenario; those about TCP are in ``iwarp_streams``."""


def captures() -> Iterator[tuple[str, Frames]]:
    """Every capture by name."""
    for name, scenario in (SCENARIOS | STREAMS).items():
        yield name, scenario()
