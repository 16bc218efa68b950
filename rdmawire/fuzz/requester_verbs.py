"""The types of work of a requester: their completions, and operations of packets. IBA 9.4."""

from typing import Final, NamedTuple

from rdmawire.verbs.enums import WCOpcode
from rdmawire.wire.opcode import Operation as Op


class Verb(NamedTuple):
    """One type of work: its completion and its operations.

    ``only`` is the operation of a message of one packet; ``parts`` those of longer ones: first,
    middle, last. ``response`` is the operation of the last response, ACKNOWLEDGE for an ACK.
    """

    completion: WCOpcode
    only: Op
    parts: tuple[Op, ...] = ()
    response: Op = Op.ACKNOWLEDGE
    receives: bool = False

    @property
    def answered(self) -> bool:
        """Whether a response other than an ACK completes it: it uses one of ``max_rd_atomic``."""
        return self.response != Op.ACKNOWLEDGE


_SEND_PARTS: Final = (Op.SEND_FIRST, Op.SEND_MIDDLE)
_WRITE_PARTS: Final = (Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_MIDDLE)
DATA: Final = Op.RDMA_READ_RESPONSE_LAST
VERBS: Final = {
    "SEND": Verb(
        WCOpcode.SEND, Op.SEND_ONLY, (*_SEND_PARTS, Op.SEND_LAST), receives=True
    ),
    "SEND_WITH_IMM": Verb(
        WCOpcode.SEND, Op.SEND_ONLY_WITH_IMMEDIATE,
        (*_SEND_PARTS, Op.SEND_LAST_WITH_IMMEDIATE), receives=True,
    ),
    "SEND_WITH_INV": Verb(
        WCOpcode.SEND, Op.SEND_ONLY_WITH_INVALIDATE,
        (*_SEND_PARTS, Op.SEND_LAST_WITH_INVALIDATE), receives=True,
    ),
    "RDMA_WRITE": Verb(
        WCOpcode.RDMA_WRITE, Op.RDMA_WRITE_ONLY, (*_WRITE_PARTS, Op.RDMA_WRITE_LAST)
    ),
    "RDMA_WRITE_WITH_IMM": Verb(
        WCOpcode.RDMA_WRITE, Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        (*_WRITE_PARTS, Op.RDMA_WRITE_LAST_WITH_IMMEDIATE), receives=True,
    ),
    "RDMA_READ": Verb(WCOpcode.RDMA_READ, Op.RDMA_READ_REQUEST, response=DATA),
    "ATOMIC_CMP_AND_SWP": Verb(
        WCOpcode.COMP_SWAP, Op.CMP_SWAP, response=Op.ATOMIC_ACKNOWLEDGE
    ),
    "ATOMIC_FETCH_AND_ADD": Verb(
        WCOpcode.FETCH_ADD, Op.FETCH_ADD, response=Op.ATOMIC_ACKNOWLEDGE
    ),
    "ATOMIC_WRITE": Verb(WCOpcode.ATOMIC_WRITE, Op.ATOMIC_WRITE, response=DATA),
    "FLUSH": Verb(WCOpcode.FLUSH, Op.FLUSH, response=DATA),
}  # fmt: skip
"""The types of work, by name."""
