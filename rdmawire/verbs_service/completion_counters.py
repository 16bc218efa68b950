"""Counters of completions of queue pairs: ibv_create_comp_cntr(3)."""

from errno import EBUSY, EINVAL, EOPNOTSUPP
from functools import partial
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib import QueuePair
from rdmawire.verbs import QPState, WCOpcode, WCStatus
from rdmawire.verbs_service.connection import NO_VALUES, Reply
from rdmawire.verbs_service.context import CompletionCounter, Context, QueuePairHandle
from rdmawire.verbs_service.protocol import COUNTED_OPERATIONS

_OPERATION: Final = {
    WCOpcode.SEND: 1 << 0,
    WCOpcode.RECV: 1 << 1,
    WCOpcode.RECV_RDMA_WITH_IMM: 1 << 1,
    WCOpcode.RDMA_READ: 1 << 2,
    WCOpcode.RDMA_WRITE: 1 << 4,
}
"""The bit of ``ibv_qp_attach_comp_cntr_op`` for a completion. Requests of the peer have none."""
_BYTES: Final = 1
_MODULUS: Final = 1 << 64


class CompletionCounterCalls:
    """Calls of one context, with the names and arguments that the protocol has."""

    _context: Context

    def create_comp_cntr(self, kind: int) -> Reply:
        self._context.check_room()
        if kind > _BYTES:
            raise VerbsError(f"type {kind}: neither work requests (0) nor bytes (1)", EINVAL)
        return Reply((self._context.add(CompletionCounter(counts_bytes=kind == _BYTES)),))

    def destroy_comp_cntr(self, counter: int) -> Reply:
        found = self._context.find(counter, CompletionCounter)
        if found.users:
            raise VerbsError(f"counter {counter} is attached to a queue pair", EBUSY)
        self._context.remove(counter)
        return NO_VALUES

    def change_comp_cntr(self, counter: int, of_errors: int, adds: int, value: int) -> Reply:
        """Set the completions or the errors, or add to them."""
        found = self._context.find(counter, CompletionCounter)
        index = bool(of_errors)
        before = found.values[index] if adds else 0
        found.values[index] = (before + value) % _MODULUS
        return NO_VALUES

    def read_comp_cntr(self, counter: int) -> Reply:
        return Reply(tuple(self._context.find(counter, CompletionCounter).values))

    def attach_comp_cntr(self, qp: int, counter: int, operations: int) -> Reply:
        """Count operations of a queue pair until it is destroyed, each by one counter."""
        owner = self._context.find(qp, QueuePairHandle)
        found = self._context.find(counter, CompletionCounter)
        if not operations or operations & ~COUNTED_OPERATIONS:
            raise VerbsError(f"operations {operations:#x} are not counted", EOPNOTSUPP)
        if owner.qp.state not in {QPState.RESET, QPState.INIT}:
            raise VerbsError(f"the queue pair is in {owner.qp.state.name}, not INIT", EINVAL)
        if any(operations & others for others in owner.counters.values()):
            raise VerbsError(f"operations {operations:#x} have a counter", EINVAL)
        found.users += found not in owner.counters
        owner.counters[found] = owner.counters.get(found, 0) | operations
        _count(owner.qp, owner.counters)
        return NO_VALUES


def _count(qp: QueuePair, counters: dict[CompletionCounter, int]) -> None:
    """Count completions of a queue pair from now on; ``counters`` have bits of operations."""
    by_opcode = {
        opcode: counter
        for opcode, operation in _OPERATION.items()
        for counter, operations in counters.items()
        if operation & operations
    }
    qp.completed = partial(_completed, by_opcode)


def _completed(
    counters: dict[WCOpcode, CompletionCounter], opcode: WCOpcode, length: int, status: WCStatus
) -> None:
    counter = counters.get(opcode)
    if counter is None:
        return
    is_error = status is not WCStatus.SUCCESS
    amount = length if counter.counts_bytes and not is_error else 1
    counter.values[is_error] = (counter.values[is_error] + amount) % _MODULUS
