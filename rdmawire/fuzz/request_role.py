"""The roles of request operations: family, place in the message, and what they do besides."""

from typing import Final, NamedTuple

from rdmawire.wire.opcode import Operation as Op

FIRST, MIDDLE, LAST, ONLY = "first", "middle", "last", "only"
SEND, WRITE, SINGLE = "SEND", "RDMA WRITE", "a request of one packet"


class Role(NamedTuple):
    """What an operation does: its family, its place in a message, and what it has besides."""

    family: str
    part: str = ONLY
    receives: bool = False
    imm: bool = False
    invalidates: bool = False

    @property
    def begins(self) -> bool:
        return self.part in (FIRST, ONLY)

    @property
    def ends(self) -> bool:
        return self.part in (LAST, ONLY)


ROLES: Final[dict[int, Role]] = {
    Op.SEND_FIRST: Role(SEND, FIRST, receives=True),
    Op.SEND_MIDDLE: Role(SEND, MIDDLE),
    Op.SEND_LAST: Role(SEND, LAST),
    Op.SEND_LAST_WITH_IMMEDIATE: Role(SEND, LAST, imm=True),
    Op.SEND_LAST_WITH_INVALIDATE: Role(SEND, LAST, invalidates=True),
    Op.SEND_ONLY: Role(SEND, ONLY, receives=True),
    Op.SEND_ONLY_WITH_IMMEDIATE: Role(SEND, ONLY, receives=True, imm=True),
    Op.SEND_ONLY_WITH_INVALIDATE: Role(SEND, ONLY, receives=True, invalidates=True),
    Op.RDMA_WRITE_FIRST: Role(WRITE, FIRST),
    Op.RDMA_WRITE_MIDDLE: Role(WRITE, MIDDLE),
    Op.RDMA_WRITE_LAST: Role(WRITE, LAST),
    Op.RDMA_WRITE_LAST_WITH_IMMEDIATE: Role(WRITE, LAST, receives=True, imm=True),
    Op.RDMA_WRITE_ONLY: Role(WRITE, ONLY),
    Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE: Role(WRITE, ONLY, receives=True, imm=True),
    Op.RDMA_READ_REQUEST: Role(SINGLE),
    Op.CMP_SWAP: Role(SINGLE),
    Op.FETCH_ADD: Role(SINGLE),
    Op.ATOMIC_WRITE: Role(SINGLE),
    Op.FLUSH: Role(SINGLE),
}
"""The roles of request operations on reliable services."""
