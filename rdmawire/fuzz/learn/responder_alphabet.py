"""The alphabet of a responder: abstract packets, receives and time.

An input means the same in each state: its PSN is relative to the one that the responder expects,
its key and address are relative to a region. All packets have AckReq, so that a packet that is
executed is answered if the service acknowledges. Lengths fit :data:`SETUP`: a path MTU of 256
bytes. Opcodes of the reliable connected service become those of the service that is learned.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.inputs import (
    ChecksumState,
    PacketInput,
    ReceiveInput,
    ResponderInput,
    WaitInput,
)
from rdmawire.fuzz.setup import AREAS, Setup
from rdmawire.terminal import suggest
from rdmawire.verbs.enums import QPType
from rdmawire.wire import serial
from rdmawire.wire.ib import NO_CREDITS, Ack
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.opcode import Operation as Op

SETUP: Final = Setup()
"""The queue pair that is learned, unless another is given."""
_MTU: Final = SETUP.mtu
_SHORT: Final = 64
"""Bytes of a message of one packet, and of the last packet of a longer one."""
_LONG: Final = _MTU + _SHORT
"""Bytes of a message of two packets."""
_BAD_KEY: Final = 1
_WINDOW: Final = len(AREAS)
_READABLE: Final = 1
"""The region that allows only READs."""
_RESERVED: Final = 0x1F
"""A reserved operation of the reliable connected service."""

_SEND: Final = PacketInput(Op.SEND_ONLY, length=_SHORT)
_MIDDLE: Final = PacketInput(Op.SEND_MIDDLE, length=_MTU)
_WRITE: Final = PacketInput(Op.RDMA_WRITE_ONLY, length=_SHORT)
_FIRST: Final = PacketInput(Op.RDMA_WRITE_FIRST, length=_MTU, dmalen=_LONG)
_READ: Final = PacketInput(Op.RDMA_READ_REQUEST, dmalen=_SHORT)
_ADD: Final = PacketInput(Op.FETCH_ADD, value=1)

INPUTS: Final[dict[str, ResponderInput]] = {
    "SEND_ONLY": _SEND,
    "SEND_FIRST": PacketInput(Op.SEND_FIRST, length=_MTU),
    "SEND_MIDDLE": _MIDDLE,
    "SEND_LAST": PacketInput(Op.SEND_LAST, length=_SHORT),
    "SEND_QUEUE1": replace(_SEND, srq=1),
    "SEND_QUEUE2": replace(_SEND, srq=2),
    "SEND_IMM": PacketInput(Op.SEND_ONLY_WITH_IMMEDIATE, length=_SHORT, value=7),
    "SEND_INV": PacketInput(Op.SEND_ONLY_WITH_INVALIDATE, length=_SHORT, region=_WINDOW),
    "SEND_INV_BADKEY": PacketInput(Op.SEND_ONLY_WITH_INVALIDATE, length=_SHORT, key=_BAD_KEY),
    "SEND_EMPTY": replace(_SEND, length=0),
    "SEND_OVER": replace(_SEND, length=_MTU + 4),
    "SEND_FIRST_SHORT": PacketInput(Op.SEND_FIRST, length=_SHORT),
    "SEND_MIDDLE_SHORT": replace(_MIDDLE, length=_SHORT),
    "SEND_LAST_EMPTY": PacketInput(Op.SEND_LAST),
    "WRITE_ONLY": _WRITE,
    "WRITE_FIRST": _FIRST,
    "WRITE_MIDDLE": PacketInput(Op.RDMA_WRITE_MIDDLE, length=_MTU),
    "WRITE_LAST": PacketInput(Op.RDMA_WRITE_LAST, length=_SHORT),
    "WRITE_IMM": PacketInput(Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE, length=_SHORT, value=7),
    "WRITE_BADKEY": replace(_WRITE, key=_BAD_KEY),
    "WRITE_READONLY": replace(_WRITE, region=_READABLE),
    "WRITE_OUTSIDE": replace(_WRITE, offset=AREAS[0].length - _SHORT + 1),
    "WRITE_ZERO": replace(_WRITE, length=0, key=_BAD_KEY),
    "WRITE_SHORT": replace(_WRITE, length=32, dmalen=_SHORT),
    "WRITE_FIRST3": replace(_FIRST, dmalen=_MTU + _LONG),
    "WRITE_FIRST_SHORT": replace(_FIRST, length=_SHORT),
    "WRITE_FIRST_FITS": replace(_FIRST, dmalen=_MTU),
    "WRITE_LAST_SHORT": PacketInput(Op.RDMA_WRITE_LAST, length=32),
    "READ": _READ,
    "READ2": replace(_READ, dmalen=_LONG),
    "READ_BADKEY": replace(_READ, key=_BAD_KEY),
    "READ_OUTSIDE": replace(_READ, offset=AREAS[0].length - _SHORT + 1),
    "READ_ZERO": replace(_READ, dmalen=0, key=_BAD_KEY),
    "FETCH_ADD": _ADD,
    "CMP_SWAP": PacketInput(Op.CMP_SWAP, offset=8, value=1, compare=1),
    "FETCH_ADD_UNALIGNED": replace(_ADD, offset=3),
    "ATOMIC_WRITE": PacketInput(Op.ATOMIC_WRITE, length=8),
    "FLUSH": PacketInput(Op.FLUSH, dmalen=_SHORT, value=1),
    "DUP": replace(_WRITE, ahead=-1),
    "DUP_SEND": replace(_SEND, ahead=-1),
    "DUP_MIDDLE": replace(_MIDDLE, ahead=-1),
    "DUP_READ": replace(_READ, ahead=-1),
    "DUP_READ2": replace(_READ, ahead=-1, dmalen=_LONG),
    "DUP_ATOMIC": replace(_ADD, ahead=-1),
    "DUP_CMP_SWAP": PacketInput(Op.CMP_SWAP, ahead=-1, offset=8, value=1, compare=1),
    "DUP_OLDEST": replace(_WRITE, ahead=-serial.HALF),
    "GAP": replace(_WRITE, ahead=1),
    "GAP_SEND": replace(_SEND, ahead=1),
    "GAP_READ": replace(_READ, ahead=1),
    "GAP_MIDDLE": replace(_MIDDLE, ahead=1),
    "GAP_LAST": PacketInput(Op.SEND_LAST, length=_SHORT, ahead=1),
    "GAP_FIRST": replace(_FIRST, ahead=1),
    "GHOST": replace(_WRITE, ahead=serial.HALF - 1),
    "CNP": PacketInput(Opcode.CNP, ackreq=0),
    "ACK": PacketInput(Op.ACKNOWLEDGE, ackreq=0, value=NO_CREDITS),
    "NAK": PacketInput(Op.ACKNOWLEDGE, ackreq=0, value=Ack.NAK << 5),
    "READ_RESPONSE": PacketInput(
        Op.RDMA_READ_RESPONSE_ONLY, ackreq=0, length=_SHORT, value=NO_CREDITS
    ),
    "RESERVED_OPCODE": PacketInput(_RESERVED, length=_SHORT),
    "UC_WRITE": replace(_WRITE, opcode=Opcode.UC_RDMA_WRITE_ONLY),
    "BAD_ICRC": replace(_WRITE, checksum=ChecksumState.BROKEN.name),
    "BAD_PKEY": replace(_WRITE, fields=(("bth.pkey", 0x8123),)),
    "BAD_TVER": replace(_WRITE, fields=(("bth.tver", 1),)),
    "BAD_QKEY": replace(_SEND, key=_BAD_KEY),
    "BAD_QPN": replace(_WRITE, fields=(("bth.destqp", 0x123456),)),
    "RECV": ReceiveInput(_MTU + _LONG),
    "RECV_SHORT": ReceiveInput(32),
    "RECV_QUEUE1": ReceiveInput(_MTU + _LONG, srq=1),
    "WAIT": WaitInput(1_000_000_000),
}
"""The inputs, by name. ``DUP`` has the PSN before the expected one, ``GAP`` that after it,
``DUP_OLDEST`` and ``GHOST`` the first and the last one of the window (IBA 9.7.1)."""


class Alphabet(NamedTuple):
    """Inputs that are learned together. ``credits``: whether outputs show the credits of ACKs."""

    about: str
    inputs: tuple[str, ...]
    credits: bool = False


ALPHABETS: Final[dict[str, Alphabet]] = {
    "usual": Alphabet(
        "every verb, each place in a message, duplicates, gaps, a wrong key and a wrong length",
        ("SEND_ONLY", "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "WRITE_ONLY", "WRITE_FIRST",
         "WRITE_LAST", "WRITE_BADKEY", "WRITE_SHORT", "READ2", "FETCH_ADD", "DUP", "DUP_READ",
         "DUP_ATOMIC", "GAP", "GHOST", "RESERVED_OPCODE", "ACK", "CNP", "RECV"),
    ),
    "messages": Alphabet(
        "SENDs of several packets, and receives",
        ("SEND_ONLY", "SEND_FIRST", "SEND_LAST", "DUP_SEND", "GAP_SEND", "RECV"),
    ),
    "writes": Alphabet(
        "WRITEs: places in a message, lengths, keys and bounds",
        ("WRITE_ONLY", "WRITE_FIRST", "WRITE_FIRST3", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_IMM",
         "WRITE_BADKEY", "WRITE_READONLY", "WRITE_OUTSIDE", "WRITE_ZERO", "WRITE_SHORT",
         "WRITE_FIRST_SHORT", "WRITE_FIRST_FITS", "WRITE_LAST_SHORT", "DUP", "GAP", "RECV"),
    ),
    "duplicates": Alphabet(
        "READs and atomics, and duplicates of all verbs",
        ("WRITE_ONLY", "READ", "READ2", "READ_ZERO", "FETCH_ADD", "CMP_SWAP", "ATOMIC_WRITE",
         "FLUSH", "DUP", "DUP_READ", "DUP_READ2", "DUP_ATOMIC", "DUP_CMP_SWAP", "DUP_MIDDLE",
         "DUP_OLDEST", "GAP", "GAP_READ"),
    ),
    "damaged": Alphabet(
        "packets that are malformed, damaged, or of another connection",
        ("SEND_ONLY", "SEND_FIRST", "SEND_EMPTY", "SEND_OVER", "SEND_FIRST_SHORT",
         "SEND_MIDDLE_SHORT", "SEND_LAST_EMPTY", "SEND_INV", "SEND_INV_BADKEY", "SEND_IMM",
         "READ_BADKEY", "READ_OUTSIDE", "FETCH_ADD_UNALIGNED", "RESERVED_OPCODE", "UC_WRITE",
         "BAD_ICRC", "BAD_PKEY", "BAD_TVER", "BAD_QPN", "ACK", "NAK", "READ_RESPONSE", "RECV",
         "WAIT"),
    ),
    "unreliable": Alphabet(
        "what an unreliable connection drops: messages with a packet lost or too many",
        ("SEND_ONLY", "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_IMM", "WRITE_ONLY",
         "WRITE_FIRST", "WRITE_FIRST3", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_SHORT",
         "WRITE_IMM", "WRITE_BADKEY", "GAP", "GAP_FIRST", "GAP_MIDDLE", "GAP_LAST", "DUP_MIDDLE",
         "RECV"),
    ),
    "datagrams": Alphabet(
        "datagrams, their Q_Key, and receives",
        ("SEND_ONLY", "SEND_IMM", "SEND_EMPTY", "SEND_FIRST", "WRITE_ONLY", "DUP_SEND",
         "GAP_SEND", "GHOST", "BAD_QKEY", "BAD_ICRC", "BAD_PKEY", "BAD_TVER", "RECV", "RECV_SHORT"),
    ),
    "shared": Alphabet(
        "messages to the shared receive queues of an XRC target",
        ("SEND_ONLY", "SEND_QUEUE1", "SEND_QUEUE2", "SEND_FIRST", "SEND_LAST", "WRITE_ONLY",
         "DUP_SEND", "GAP_SEND", "RECV", "RECV_QUEUE1"),
    ),
    "credits": Alphabet(
        "receives, and the credits that ACKs grant",
        ("SEND_ONLY", "WRITE_ONLY", "WRITE_IMM", "DUP", "RECV", "RECV_SHORT"),
        credits=True,
    ),
}  # fmt: skip
"""Alphabets by name: each gives a machine that is small enough to learn in seconds."""


USUAL: Final = {
    QPType.RC: "usual",
    QPType.UC: "unreliable",
    QPType.UD: "datagrams",
    QPType.XRC_TGT: "shared",
}
"""The alphabet of a queue pair, unless another is given."""


def alphabet(name: str) -> Alphabet:
    """Return an alphabet: a name of :data:`ALPHABETS`, or inputs separated by commas.

    Raises :class:`FuzzError` for an unknown name.
    """
    if name in ALPHABETS:
        return ALPHABETS[name]
    inputs = listed_inputs(name)
    for one in inputs:
        if one not in INPUTS:
            near = suggest(one, [*INPUTS, *ALPHABETS])
            raise FuzzError(f"no input of a responder is named {one!r}{near} (--list has them)")
    return Alphabet("", inputs)


def listed_inputs(text: str) -> tuple[str, ...]:
    """Return inputs that are separated by commas, each once."""
    return tuple(dict.fromkeys(text.split(",")))
