"""Work requests that applications post, and how each type becomes packets.

Numbers are those of libibverbs (ibv_wr_opcode, ibv_send_flags). :data:`VERBS` has a row for each
opcode, which requester, completer and responder read instead of testing opcodes.
"""

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from errno import EINVAL
from typing import Final, NamedTuple, Self

from rdmawire.errors import VerbsError
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.mw import Bind, MemoryWindow
from rdmawire.memory.region import Region
from rdmawire.snapshot import shared
from rdmawire.terminal import describe, describe_fields
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import WCOpcode
from rdmawire.wire.opcode import Operation


class SendOpcode(IntEnum):
    """The operation of a send work request."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    LOCAL_INV = 7
    BIND_MW = 8
    SEND_WITH_INV = 9
    FLUSH = 14
    ATOMIC_WRITE = 15
    REG_MR = 32


class SendFlags(IntFlag):
    """Options of a send work request."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8


# The flags as plain integers: operations on IntFlag cost a microsecond.
FENCE: Final = SendFlags.FENCE.value
SIGNALED: Final = SendFlags.SIGNALED.value
SOLICITED: Final = SendFlags.SOLICITED.value
INLINE: Final = SendFlags.INLINE.value


class Sge(NamedTuple):
    """A range of local memory: ``length`` bytes at ``address``, by a local key."""

    address: int
    length: int
    lkey: int


def check_sges(sges: tuple[Sge, ...], most: int) -> None:
    """``VerbsError`` EINVAL for more than ``most`` SGEs, and for invalid ranges."""
    if len(sges) > most:
        raise VerbsError(f"{len(sges)} SGEs, at most {most} are allowed", EINVAL)
    for address, length, lkey in sges:
        bits = address >> 32 | length | lkey  # in one test: this runs for every work request
        if bits >> 32 or bits.__class__ is not int:
            place, pieces = _place_of(sges, (address, length, lkey))
            raise VerbsError(f"SGE {place}: address, length, lkey {pieces}: no such range", EINVAL)


def _place_of(sges: tuple[Sge, ...], sge: tuple[int, int, int]) -> tuple[int, str]:
    """The index of an SGE in the list, and its text."""
    place = next(index for index, other in enumerate(sges) if tuple(other) == sge)
    return place, ", ".join(map(describe, sge))


class BindMW(NamedTuple):
    """The bind of a window to a range of a region.

    The queue pair sets its own number and domain. ``region`` may be ``None`` in a bind of length 0,
    which unbinds a window of type 1.
    """

    window: MemoryWindow
    region: Region | None
    bind: Bind


class RegMR(NamedTuple):
    """The registration of pages with a region."""

    region: Region
    registration: FastRegistration


class SendWR(NamedTuple):
    """A send work request, as in ibv_send_wr.

    ``opcode`` is a :class:`SendOpcode`, or a number that the adapter's rules add. Numbers that its
    opcode does not use are ignored; memory and objects (``sges``, ``inline``, ``ah``, ``bind``,
    ``reg``) that it does not use are refused. With :attr:`SendFlags.INLINE` the bytes of ``sges``
    are copied when the work is posted, and no key is checked; ``inline`` are bytes in place of
    ``sges``. ``imm_data`` is the number as on the wire, most significant byte first.
    ``pkey_index`` is the index of the P_Key in the port's table, for queue pair 1 alone (as in
    Linux's ib_ud_wr); ``None`` is the queue pair's own. ``length`` is the number of bytes that a
    FLUSH covers; ``placement`` and ``selectivity`` are those of its FETH (IBA A19.4).
    """

    opcode: int
    sges: tuple[Sge, ...] = ()
    wr_id: int = 0
    flags: int = SIGNALED
    remote_address: int = 0
    rkey: int = 0
    imm_data: int = 0
    invalidate_rkey: int = 0
    compare_add: int = 0
    swap: int = 0
    ah: AddressHandle | None = None
    remote_qpn: int = 0
    remote_qkey: int = 0
    remote_srqn: int = 0
    placement: int = 0
    selectivity: int = 0
    length: int = 0
    inline: bytes = b""
    bind: BindMW | None = None
    reg: RegMR | None = None
    pkey_index: int | None = None

    def __repr__(self) -> str:
        return describe_fields(self)


class RecvWR(NamedTuple):
    """A receive work request: the SGEs for a message, in order."""

    sges: tuple[Sge, ...] = ()
    wr_id: int = 0

    def __deepcopy__(self, _: object) -> Self:
        return self


WRONG_KIND = (AttributeError, TypeError, ValueError)
"""Errors in checks of a work request whose fields have wrong types."""


def posted_sges(sges: object) -> tuple[Sge, ...]:
    """Copy the SGEs: the caller may change a list once the work is posted.

    ``VerbsError`` EINVAL for other types than tuple and list.
    """
    if not isinstance(sges, (tuple, list)):
        raise VerbsError(f"sges is {describe(sges)}, neither a tuple nor a list", EINVAL)
    return tuple(Sge(address, length, lkey) for address, length, lkey in sges)


def check_receive(wr: RecvWR, most: int) -> RecvWR:
    """Return a receive as queued. ``VerbsError`` EINVAL if invalid or over ``most`` SGEs."""
    try:
        if wr.sges.__class__ is not tuple:
            wr = wr._replace(sges=posted_sges(wr.sges))
        check_sges(wr.sges, most)
        return wr
    except WRONG_KIND as error:
        raise VerbsError(f"no receive: {describe(wr)}: {error}", EINVAL) from error


class Answer(IntEnum):
    """The response that completes a work request."""

    ACK = 0
    """An acknowledgement."""
    READ = 1
    """The READ response packets for its length."""
    ATOMIC = 2
    """A response with the original value in memory."""
    NOTHING = 3
    """None: it is done locally."""


class Local(IntEnum):
    """The use of local memory by the requester."""

    SOURCE = 0
    """Memory to send."""
    SINK = 1
    """Memory for the response."""
    NONE = 2
    """No local memory."""
    INVALID = 3
    """Invalid work, which only a queue in memory can contain."""


@dataclass(frozen=True, slots=True)
class Verb:
    """How one type of work is done.

    ``first``, ``middle``, ``last`` and ``only`` are the operations of a message's packets.
    ``takes_resource`` says that it counts among the READs and atomics in progress (IBA 9.4.4,
    9.4.5, A19), ``takes_receive`` that it uses a receive of the peer. With ``ends_use`` of a key, a
    fence waits for all earlier work, not only READs and atomics (IBA 10.6.5.1). ``min_packets`` is
    0 for work that needs no packet, else 1.
    """

    completion: WCOpcode
    only: int | None = None
    first: int | None = None
    middle: int | None = None
    last: int | None = None
    local: Local = Local.SOURCE
    answer: Answer = Answer.ACK
    one_packet: bool = False
    takes_receive: bool = False
    ends_use: bool = False
    takes_resource: bool = field(init=False)
    is_send: bool = field(init=False)
    min_packets: int = field(init=False)

    __deepcopy__ = shared

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes_resource", self.answer in (Answer.READ, Answer.ATOMIC))
        object.__setattr__(self, "is_send", self.completion is WCOpcode.SEND)
        object.__setattr__(self, "min_packets", int(self.answer is not Answer.NOTHING))


_SEND = (Operation.SEND_FIRST, Operation.SEND_MIDDLE)
_WRITE = (Operation.RDMA_WRITE_FIRST, Operation.RDMA_WRITE_MIDDLE)

VERBS: dict[int, Verb] = {
    SendOpcode.SEND: Verb(
        WCOpcode.SEND, Operation.SEND_ONLY, *_SEND, Operation.SEND_LAST, takes_receive=True
    ),
    SendOpcode.SEND_WITH_IMM: Verb(
        WCOpcode.SEND,
        Operation.SEND_ONLY_WITH_IMMEDIATE,
        *_SEND,
        Operation.SEND_LAST_WITH_IMMEDIATE,
        takes_receive=True,
    ),
    SendOpcode.SEND_WITH_INV: Verb(
        WCOpcode.SEND,
        Operation.SEND_ONLY_WITH_INVALIDATE,
        *_SEND,
        Operation.SEND_LAST_WITH_INVALIDATE,
        takes_receive=True,
    ),
    SendOpcode.RDMA_WRITE: Verb(
        WCOpcode.RDMA_WRITE, Operation.RDMA_WRITE_ONLY, *_WRITE, Operation.RDMA_WRITE_LAST
    ),
    SendOpcode.RDMA_WRITE_WITH_IMM: Verb(
        WCOpcode.RDMA_WRITE,
        Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        *_WRITE,
        Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE,
        takes_receive=True,
    ),
    SendOpcode.RDMA_READ: Verb(
        WCOpcode.RDMA_READ,
        Operation.RDMA_READ_REQUEST,
        local=Local.SINK,
        answer=Answer.READ,
    ),
    SendOpcode.ATOMIC_CMP_AND_SWP: Verb(
        WCOpcode.COMP_SWAP,
        Operation.CMP_SWAP,
        local=Local.SINK,
        answer=Answer.ATOMIC,
        one_packet=True,
    ),
    SendOpcode.ATOMIC_FETCH_AND_ADD: Verb(
        WCOpcode.FETCH_ADD,
        Operation.FETCH_ADD,
        local=Local.SINK,
        answer=Answer.ATOMIC,
        one_packet=True,
    ),
    SendOpcode.FLUSH: Verb(
        WCOpcode.FLUSH, Operation.FLUSH, local=Local.NONE, answer=Answer.READ, one_packet=True
    ),
    SendOpcode.ATOMIC_WRITE: Verb(
        WCOpcode.ATOMIC_WRITE, Operation.ATOMIC_WRITE, answer=Answer.READ, one_packet=True
    ),
    SendOpcode.LOCAL_INV: Verb(
        WCOpcode.LOCAL_INV, local=Local.NONE, answer=Answer.NOTHING, ends_use=True
    ),
    SendOpcode.BIND_MW: Verb(WCOpcode.BIND_MW, local=Local.NONE, answer=Answer.NOTHING),
    SendOpcode.REG_MR: Verb(WCOpcode.REG_MR, local=Local.NONE, answer=Answer.NOTHING),
}
"""How each type of work is done. IBA 9.4, 10.8.2; placement A19."""

ATOMIC_SIZE = 8
"""Operand size of atomic operations in bytes. IBA 9.4.5, A19."""

LONGEST_MESSAGE = 1 << 31
"""Maximum message length in bytes. IBA 9.7.7.1.2 (RETH.dmalen at most 2**31)."""
