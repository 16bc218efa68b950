"""Opcodes of the InfiniBand transport, and the layout of the packets of each.

An opcode is a service (three bits) and an operation (five bits), IBA 9.2.1. One table gives the
packet layout: the operation selects the headers, the service adds its own.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from rdmawire.snapshot import shared


class Service(IntEnum):
    """The upper three bits of an opcode: a transport service, or a code for another purpose."""

    RC = 0
    UC = 1
    RD = 2
    UD = 3
    CNP = 4
    XRC = 5
    VENDOR_6 = 6
    VENDOR_7 = 7


class Operation(IntEnum):
    """The lower five bits of an opcode."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_WITH_IMMEDIATE = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_WITH_IMMEDIATE = 0x05
    RDMA_WRITE_FIRST = 0x06
    RDMA_WRITE_MIDDLE = 0x07
    RDMA_WRITE_LAST = 0x08
    RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
    RDMA_WRITE_ONLY = 0x0A
    RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    RDMA_READ_REQUEST = 0x0C
    RDMA_READ_RESPONSE_FIRST = 0x0D
    RDMA_READ_RESPONSE_MIDDLE = 0x0E
    RDMA_READ_RESPONSE_LAST = 0x0F
    RDMA_READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    CMP_SWAP = 0x13
    FETCH_ADD = 0x14
    RESYNC = 0x15
    SEND_LAST_WITH_INVALIDATE = 0x16
    SEND_ONLY_WITH_INVALIDATE = 0x17
    FLUSH = 0x1C
    ATOMIC_WRITE = 0x1D


class Part(Enum):
    """The position of a packet in its message."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    ONLY = "only"


class Payload(Enum):
    """Payload allowed after the headers."""

    NONE = "nothing"
    ANY = "payload"
    EIGHT = "eight bytes"


class Rule(NamedTuple):
    """Layout of an operation's packets, for every service.

    ``headers`` are labels of tables in :mod:`rdmawire.wire.ib`.
    """

    headers: tuple[str, ...]
    part: Part
    payload: Payload = Payload.ANY
    response: bool = False


_FIRST, _MIDDLE, _LAST, _ONLY = Part

RULES: dict[Operation, Rule] = {
    Operation.SEND_FIRST: Rule((), _FIRST),
    Operation.SEND_MIDDLE: Rule((), _MIDDLE),
    Operation.SEND_LAST: Rule((), _LAST),
    Operation.SEND_LAST_WITH_IMMEDIATE: Rule(("immdt",), _LAST),
    Operation.SEND_ONLY: Rule((), _ONLY),
    Operation.SEND_ONLY_WITH_IMMEDIATE: Rule(("immdt",), _ONLY),
    Operation.RDMA_WRITE_FIRST: Rule(("reth",), _FIRST),
    Operation.RDMA_WRITE_MIDDLE: Rule((), _MIDDLE),
    Operation.RDMA_WRITE_LAST: Rule((), _LAST),
    Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE: Rule(("immdt",), _LAST),
    Operation.RDMA_WRITE_ONLY: Rule(("reth",), _ONLY),
    Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE: Rule(("reth", "immdt"), _ONLY),
    Operation.RDMA_READ_REQUEST: Rule(("reth",), _ONLY, Payload.NONE),
    Operation.RDMA_READ_RESPONSE_FIRST: Rule(("aeth",), _FIRST, response=True),
    Operation.RDMA_READ_RESPONSE_MIDDLE: Rule((), _MIDDLE, response=True),
    Operation.RDMA_READ_RESPONSE_LAST: Rule(("aeth",), _LAST, response=True),
    Operation.RDMA_READ_RESPONSE_ONLY: Rule(("aeth",), _ONLY, response=True),
    Operation.ACKNOWLEDGE: Rule(("aeth",), _ONLY, Payload.NONE, response=True),
    Operation.ATOMIC_ACKNOWLEDGE: Rule(
        ("aeth", "atomicacketh"), _ONLY, Payload.NONE, response=True
    ),
    Operation.CMP_SWAP: Rule(("atomiceth",), _ONLY, Payload.NONE),
    Operation.FETCH_ADD: Rule(("atomiceth",), _ONLY, Payload.NONE),
    Operation.RESYNC: Rule((), _ONLY, Payload.NONE),
    Operation.SEND_LAST_WITH_INVALIDATE: Rule(("ieth",), _LAST),
    Operation.SEND_ONLY_WITH_INVALIDATE: Rule(("ieth",), _ONLY),
    Operation.FLUSH: Rule(("feth", "reth"), _ONLY, Payload.NONE),
    Operation.ATOMIC_WRITE: Rule(("reth",), _ONLY, Payload.EIGHT),
}

_SENDS = tuple(Operation)[0x00:0x06]
_WRITES = tuple(Operation)[0x06:0x0C]
_READS_AND_ATOMICS = tuple(Operation)[0x0C:0x15]
_INVALIDATES = (Operation.SEND_LAST_WITH_INVALIDATE, Operation.SEND_ONLY_WITH_INVALIDATE)
_PLACEMENT = (Operation.FLUSH, Operation.ATOMIC_WRITE)
_RELIABLE = _SENDS + _WRITES + _READS_AND_ATOMICS

OPERATIONS: dict[Service, tuple[Operation, ...]] = {
    Service.RC: _RELIABLE + _INVALIDATES + _PLACEMENT,
    Service.UC: _SENDS + _WRITES,
    Service.RD: (*_RELIABLE, Operation.RESYNC, *_PLACEMENT),
    Service.UD: (Operation.SEND_ONLY, Operation.SEND_ONLY_WITH_IMMEDIATE),
    Service.XRC: _RELIABLE + _INVALIDATES + _PLACEMENT,
}
"""Operations of each service: IBA 9.2.1, with annexes A14 (XRC) and A19 (placement)."""

SERVICE_HEADERS: dict[Service, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Service.RC: ((), ()),
    Service.UC: ((), ()),
    Service.RD: (("rdeth", "deth"), ("rdeth",)),
    Service.UD: (("deth",), ()),
    Service.XRC: (("xrceth",), ()),
}
"""Headers that each service puts before the operation's own, in requests and in responses."""


class Opcode(IntEnum):
    """Every opcode of the standard; a test compares it with :data:`OPERATIONS`."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05
    RC_RDMA_WRITE_FIRST = 0x06
    RC_RDMA_WRITE_MIDDLE = 0x07
    RC_RDMA_WRITE_LAST = 0x08
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
    RC_RDMA_WRITE_ONLY = 0x0A
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    RC_RDMA_READ_REQUEST = 0x0C
    RC_RDMA_READ_RESPONSE_FIRST = 0x0D
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0E
    RC_RDMA_READ_RESPONSE_LAST = 0x0F
    RC_RDMA_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_CMP_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_WITH_INVALIDATE = 0x16
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17
    RC_FLUSH = 0x1C
    RC_ATOMIC_WRITE = 0x1D
    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25
    UC_RDMA_WRITE_FIRST = 0x26
    UC_RDMA_WRITE_MIDDLE = 0x27
    UC_RDMA_WRITE_LAST = 0x28
    UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29
    UC_RDMA_WRITE_ONLY = 0x2A
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2B
    RD_SEND_FIRST = 0x40
    RD_SEND_MIDDLE = 0x41
    RD_SEND_LAST = 0x42
    RD_SEND_LAST_WITH_IMMEDIATE = 0x43
    RD_SEND_ONLY = 0x44
    RD_SEND_ONLY_WITH_IMMEDIATE = 0x45
    RD_RDMA_WRITE_FIRST = 0x46
    RD_RDMA_WRITE_MIDDLE = 0x47
    RD_RDMA_WRITE_LAST = 0x48
    RD_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x49
    RD_RDMA_WRITE_ONLY = 0x4A
    RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x4B
    RD_RDMA_READ_REQUEST = 0x4C
    RD_RDMA_READ_RESPONSE_FIRST = 0x4D
    RD_RDMA_READ_RESPONSE_MIDDLE = 0x4E
    RD_RDMA_READ_RESPONSE_LAST = 0x4F
    RD_RDMA_READ_RESPONSE_ONLY = 0x50
    RD_ACKNOWLEDGE = 0x51
    RD_ATOMIC_ACKNOWLEDGE = 0x52
    RD_CMP_SWAP = 0x53
    RD_FETCH_ADD = 0x54
    RD_RESYNC = 0x55
    RD_FLUSH = 0x5C
    RD_ATOMIC_WRITE = 0x5D
    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65
    CNP = 0x81
    XRC_SEND_FIRST = 0xA0
    XRC_SEND_MIDDLE = 0xA1
    XRC_SEND_LAST = 0xA2
    XRC_SEND_LAST_WITH_IMMEDIATE = 0xA3
    XRC_SEND_ONLY = 0xA4
    XRC_SEND_ONLY_WITH_IMMEDIATE = 0xA5
    XRC_RDMA_WRITE_FIRST = 0xA6
    XRC_RDMA_WRITE_MIDDLE = 0xA7
    XRC_RDMA_WRITE_LAST = 0xA8
    XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0xA9
    XRC_RDMA_WRITE_ONLY = 0xAA
    XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0xAB
    XRC_RDMA_READ_REQUEST = 0xAC
    XRC_RDMA_READ_RESPONSE_FIRST = 0xAD
    XRC_RDMA_READ_RESPONSE_MIDDLE = 0xAE
    XRC_RDMA_READ_RESPONSE_LAST = 0xAF
    XRC_RDMA_READ_RESPONSE_ONLY = 0xB0
    XRC_ACKNOWLEDGE = 0xB1
    XRC_ATOMIC_ACKNOWLEDGE = 0xB2
    XRC_CMP_SWAP = 0xB3
    XRC_FETCH_ADD = 0xB4
    XRC_SEND_LAST_WITH_INVALIDATE = 0xB6
    XRC_SEND_ONLY_WITH_INVALIDATE = 0xB7
    XRC_FLUSH = 0xBC
    XRC_ATOMIC_WRITE = 0xBD


@dataclass(frozen=True, slots=True)
class Shape:
    """Layout of the packets of one opcode: a row of :data:`SHAPES`.

    ``headers`` are the labels of the extended transport headers, in wire order after the BTH.
    ``name`` is the opcode's, as in :class:`Opcode`.
    """

    opcode: int
    service: Service
    headers: tuple[str, ...]
    part: Part
    payload: Payload
    response: bool
    name: str

    __deepcopy__ = shared


def _shape(service: Service, operation: Operation) -> Shape:
    rule = RULES[operation]
    before = SERVICE_HEADERS[service][rule.response]
    opcode = Opcode(service << 5 | operation)
    headers = before + rule.headers
    return Shape(opcode, service, headers, rule.part, rule.payload, rule.response, opcode.name)


SHAPES: dict[int, Shape] = {
    service << 5 | operation: _shape(service, operation)
    for service, operations in OPERATIONS.items()
    for operation in operations
}
SHAPES[Opcode.CNP] = Shape(
    Opcode.CNP, Service.CNP, ("cnp",), Part.ONLY, Payload.NONE, True, Opcode.CNP.name
)
"""Opcode to shape. Opcodes without an entry are reserved or vendors'."""


def service_of(opcode: int) -> Service:
    """The service of an opcode (0 to 255): its upper three bits. IBA 9.2.1."""
    return Service(opcode >> 5)


def operation_of(opcode: int) -> int:
    """The operation of an opcode, also of a reserved one: its lower five bits. IBA 9.2.1."""
    return opcode & 0x1F


def is_vendor(opcode: int) -> bool:
    """Whether the opcode is in the vendors' range, 0xC0 to 0xFF."""
    return opcode >> 5 in (Service.VENDOR_6, Service.VENDOR_7)


def opcode_word(opcode: int) -> str:
    """The opcode's name; its type if it has no name."""
    if opcode in SHAPES:
        return Opcode(opcode).name
    return "VENDOR" if is_vendor(opcode) else "RESERVED"
