"""The roles of request operations: family, part of the message, and what they do besides."""

from typing import Final, NamedTuple

from rdmawire.wire.opcode import Operation as Op

FIRST, MIDDLE, LAST, ONLY = "first", "middle", "last", "only"
SEND, WRITE, SINGLE = "SEND", "RDMA WRITE", "a request of one packet"


class RequestRole(NamedTuple):
    """What an operation does: its family, its part of a message, and what it has besides."""

    family: str
    part: str
    begins: bool
    ends: bool
    receives: bool
    imm: bool
    invalidates: bool


def _role(
    family: str,
    part: str = ONLY,
    *,
    receives: bool = False,
    imm: bool = False,
    invalidates: bool = False,
) -> RequestRole:
    begins, ends = part in (FIRST, ONLY), part in (LAST, ONLY)
    return RequestRole(family, part, begins, ends, receives, imm, invalidates)


REQUEST_ROLES: Final[dict[int, RequestRole]] = {
    Op.SEND_FIRST: _role(SEND, FIRST, receives=True),
    Op.SEND_MIDDLE: _role(SEND, MIDDLE),
    Op.SEND_LAST: _role(SEND, LAST),
    Op.SEND_LAST_WITH_IMMEDIATE: _role(SEND, LAST, imm=True),
    Op.SEND_LAST_WITH_INVALIDATE: _role(SEND, LAST, invalidates=True),
    Op.SEND_ONLY: _role(SEND, ONLY, receives=True),
    Op.SEND_ONLY_WITH_IMMEDIATE: _role(SEND, ONLY, receives=True, imm=True),
    Op.SEND_ONLY_WITH_INVALIDATE: _role(SEND, ONLY, receives=True, invalidates=True),
    Op.RDMA_WRITE_FIRST: _role(WRITE, FIRST),
    Op.RDMA_WRITE_MIDDLE: _role(WRITE, MIDDLE),
    Op.RDMA_WRITE_LAST: _role(WRITE, LAST),
    Op.RDMA_WRITE_LAST_WITH_IMMEDIATE: _role(WRITE, LAST, receives=True, imm=True),
    Op.RDMA_WRITE_ONLY: _role(WRITE, ONLY),
    Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE: _role(WRITE, ONLY, receives=True, imm=True),
    Op.RDMA_READ_REQUEST: _role(SINGLE),
    Op.CMP_SWAP: _role(SINGLE),
    Op.FETCH_ADD: _role(SINGLE),
    Op.ATOMIC_WRITE: _role(SINGLE),
    Op.FLUSH: _role(SINGLE),
}
"""The roles of request operations on reliable services."""
