"""The inputs that the machines were learned with: packets, and receives that are posted.

PSNs count from what the responder expects; AckReq is set. The region is 4 KiB, the path MTU 1024.
"""

from collections.abc import Callable
from typing import NamedTuple

from rdmawire.fabric.host import Buffer
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, CNP, IETH, RETH, Ack, AtomicETH, ImmDt
from rdmawire.wire.opcode import Opcode

MTU = 1024
REGION = 4096
STRAY_PSN = 0x776
"""The PSN of responses that nobody waits for."""

Headers = Callable[[Buffer], tuple[Header, ...]]


class Request(NamedTuple):
    """One input packet. ``ahead`` is its PSN less the expected one, ``psn`` a PSN of its own."""

    opcode: int
    headers: Headers = lambda _: ()
    length: int = 0
    ahead: int = 0
    psn: int | None = None
    bth: tuple[tuple[str, int], ...] = ()
    good_icrc: bool = True


class Receive(NamedTuple):
    """A receive that is posted: its length in bytes."""

    length: int


def _reth(length: int, offset: int = 0, key: int = 0) -> Headers:
    """Memory of the region; ``key`` is added to its key."""
    return lambda there: (RETH(there.address + offset, there.rkey + key, length),)


def _atomic(offset: int = 0) -> Headers:
    return lambda there: (AtomicETH(there.address + offset, there.rkey, 1, 0),)


_BAD_KEY = 0x55
_WRITE = Request(Opcode.RC_RDMA_WRITE_ONLY, _reth(64), 64)
_SEND = Request(Opcode.RC_SEND_ONLY, length=64)
_READ = Request(Opcode.RC_RDMA_READ_REQUEST, _reth(64))
_FADD = Request(Opcode.RC_FETCH_ADD, _atomic())
_FIRST = Request(Opcode.RC_RDMA_WRITE_FIRST, _reth(2 * MTU), MTU)
_MIDDLE = Request(Opcode.RC_SEND_MIDDLE, length=MTU)


def _immediate(there: Buffer) -> tuple[Header, ...]:
    return (RETH(there.address, there.rkey, 64), ImmDt(7))


INPUTS: dict[str, Request | Receive] = {
    "SEND_ONLY": _SEND,
    "SEND_FIRST": Request(Opcode.RC_SEND_FIRST, length=MTU),
    "SEND_MIDDLE": _MIDDLE,
    "SEND_LAST": Request(Opcode.RC_SEND_LAST, length=64),
    "WRITE_ONLY": _WRITE,
    "WRITE_BADKEY": _WRITE._replace(headers=_reth(64, key=_BAD_KEY)),
    "WRITE_FIRST": _FIRST,
    "WRITE_MIDDLE": Request(Opcode.RC_RDMA_WRITE_MIDDLE, length=MTU),
    "WRITE_LAST": Request(Opcode.RC_RDMA_WRITE_LAST, length=MTU),
    "READ": _READ,
    "READ2": _READ._replace(headers=_reth(2 * MTU)),
    "READ_OOB": _READ._replace(headers=_reth(64, offset=REGION)),
    "READ_ZERO": _READ._replace(headers=_reth(0, key=_BAD_KEY)),
    "WRITE_ZERO": _WRITE._replace(headers=_reth(0, key=_BAD_KEY), length=0),
    "FADD": _FADD,
    "CAS_MIS": Request(Opcode.RC_CMP_SWAP, _atomic(offset=3)),
    "SEND_INV_BAD": Request(
        Opcode.RC_SEND_ONLY_WITH_INVALIDATE, lambda there: (IETH(there.rkey + _BAD_KEY),), 64
    ),
    "WRITE_IMM": Request(Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, _immediate, 64),
    "SEND_IMM": Request(Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, lambda _: (ImmDt(7),), 64),
    "DUP": _WRITE._replace(ahead=-1),
    "DUP_READ": _READ._replace(ahead=-1),
    "DUP_ATOMIC": _FADD._replace(ahead=-1),
    "DUP_SEND_MIDDLE": _MIDDLE._replace(ahead=-1),
    "GAP": _WRITE._replace(ahead=1),
    "GAP_SEND": _SEND._replace(ahead=1),
    "FAR": _WRITE._replace(ahead=1 << 23),
    "CNP": Request(Opcode.CNP, lambda _: (CNP(),)),
    "ACK": Request(Opcode.RC_ACKNOWLEDGE, lambda _: (AETH(ack=Ack.ACK, value=31),), psn=STRAY_PSN),
    "STRAY_READ_RESP": Request(
        Opcode.RC_RDMA_READ_RESPONSE_ONLY,
        lambda _: (AETH(ack=Ack.ACK, value=31),),
        64,
        psn=STRAY_PSN,
    ),
    "WRITE_SHORT": _WRITE._replace(length=32),
    "SEND_FIRST_SHORT": Request(Opcode.RC_SEND_FIRST, length=64),
    "SEND_MIDDLE_SHORT": _MIDDLE._replace(length=64),
    "WRITE_FIRST_SHORT": _FIRST._replace(length=64),
    "SEND_LAST_EMPTY": Request(Opcode.RC_SEND_LAST),
    "SEND_EMPTY": _SEND._replace(length=0),
    "WRITE_FIRST_FITS": _FIRST._replace(headers=_reth(MTU)),
    "WRITE_LAST_SHORT": Request(Opcode.RC_RDMA_WRITE_LAST, length=64),
    "SEND_OVER": _SEND._replace(length=MTU + 4),
    "BADICRC": _WRITE._replace(good_icrc=False),
    "BADPKEY": _WRITE._replace(bth=(("pkey", 0x8123),)),
    "RES_OP": Request(0x1F, length=64),
    "UC_OP": Request(Opcode.UC_RDMA_WRITE_ONLY, _reth(64), 64),
    "TVER": _WRITE._replace(bth=(("tver", 1),)),
    "POST_RECV": Receive(8 * MTU),
    "POST_SMALL": Receive(32),
}
"""Input to what it is."""
