"""Requests that an adapter makes and its peer refuses, and what both ends make of it.

IBA 9.7.4, 9.7.5.2, 9.9.2, 9.9.3.
"""

from collections.abc import Iterator
from functools import partial

from rdmawire.fabric import ALL_ACCESS
from rdmawire.ib import Fault
from rdmawire.memory import Access
from rdmawire.verbs import SendOpcode
from rdmawire.wire.ib import Placement
from tools.make_captures.golden.case import (
    CLIENT,
    MEMORY,
    SERVER,
    STEP,
    Case,
    Ends,
    Lose,
    Made,
    Receive,
    Register,
    Work,
    case,
)

_S = SendOpcode
_WRONG = 0x0100_0000
LOCAL_ONLY = int(Access.LOCAL_WRITE)
ON_DEMAND = int(ALL_ACCESS | Access.ON_DEMAND)

work = partial(Work, 0, CLIENT)
"""Work of the client at the beginning."""

_ONE_SIDED = (
    work(_S.RDMA_WRITE, 5),
    work(_S.RDMA_WRITE, 600),
    work(_S.RDMA_READ, 600),
    work(_S.ATOMIC_CMP_AND_SWP, 8, swap=1),
    work(_S.ATOMIC_FETCH_AND_ADD, 8, compare_add=1),
    work(_S.ATOMIC_WRITE, 8),
    work(_S.FLUSH, 8, placement=Placement.GLOBAL_VISIBILITY),
)
"""Work on the peer's memory."""
_ALIGNED = (_S.ATOMIC_CMP_AND_SWP, _S.ATOMIC_FETCH_AND_ADD, _S.ATOMIC_WRITE)


def errors() -> Iterator[Case]:
    """Every error that an adapter can bring about by asking."""
    for asked in _ONE_SIDED:
        yield from _of_rights_and_keys(asked)
    yield from _of_keys_taken_back()
    yield from _of_receives()
    yield from _of_limits()


def _word(asked: Work) -> str:
    return f"{asked.do.name.lower().replace('_', '-')}-{asked.bytes}"


def _of_rights_and_keys(asked: Work) -> Iterator[Case]:
    """The queue pair's rights, then the key's. IBA 9.7.4.1.4, 10.6."""
    word, name = _word(asked), f"{asked.do.name} of {asked.bytes} bytes"
    yield case(
        f"no-right-of-qp-{word}", f"{name} that the queue pair does not allow", asked,
        server={"qp_access_flags": LOCAL_ONLY}, fault=Fault.OP_VALID,
    )  # fmt: skip
    yield case(
        f"unknown-key-{word}", f"{name} by a key that nobody gave out", by_wrong_key(asked),
        fault=Fault.RKEY,
    )  # fmt: skip
    yield case(
        f"no-right-of-key-{word}", f"{name} by a key that does not allow it", asked,
        server={"access": LOCAL_ONLY}, fault=Fault.RKEY,
    )  # fmt: skip
    yield case(
        f"beyond-the-key-{word}", f"{name}, of which the last is not the region's",
        asked._replace(offset=MEMORY - asked.bytes // 16 * 8), fault=Fault.RKEY,
    )  # fmt: skip
    yield case(
        f"memory-gone-{word}", f"{name} in memory that was unmapped, by a key that is good",
        Lose(0, SERVER), asked._replace(at=STEP), server={"access": ON_DEMAND},
        fault=Fault.OPERATIONAL,
    )  # fmt: skip


def by_wrong_key(asked: Work) -> Made:
    """The same, by a key that nobody gave out."""
    return lambda ends: asked._replace(key=ends[SERVER].memory.rkey ^ _WRONG)


def _of_keys_taken_back() -> Iterator[Case]:
    yield case(
        "key-invalidated", "a key that is good, then invalidated by a SEND, then used again",
        lambda ends: Register(0, SERVER, ends[SERVER].fast.variant(1)),
        Receive(0, SERVER, 5),
        lambda ends: _by_fast_key(work(_S.RDMA_WRITE, 5), ends),
        lambda ends: _invalidating(ends, 5)._replace(at=STEP),
        lambda ends: _by_fast_key(work(_S.RDMA_WRITE, 5), ends)._replace(at=2 * STEP),
        fault=Fault.RKEY,
    )  # fmt: skip
    yield case(
        "flushed-behind-an-error",
        "three WRITEs at once; the second has a wrong key, and the third never happens",
        work(_S.RDMA_WRITE, 5), by_wrong_key(work(_S.RDMA_WRITE, 6)), work(_S.RDMA_WRITE, 7),
        fault=Fault.RKEY,
    )  # fmt: skip
    for name, data in (("only", 5), ("last", 600)):
        yield case(
            f"invalidate-unknown-key-{name}",
            f"a SEND of {data} bytes that invalidates a key that was not good: acknowledged, "
            "and an error",
            Receive(0, SERVER, data),
            partial(_invalidating, size=data, wrong=_WRONG),
            fault=Fault.INVALIDATE,
        )  # fmt: skip


def _by_fast_key(asked: Work, ends: Ends) -> Work:
    fast, usual = ends[SERVER].fast, ends[SERVER].memory
    return asked._replace(key=fast.variant(1), offset=fast.va - usual.va)


def _invalidating(ends: Ends, size: int, wrong: int = 0) -> Work:
    return work(_S.SEND_WITH_INV, size, invalidate_rkey=ends[SERVER].fast.variant(1) ^ wrong)


def _of_receives() -> Iterator[Case]:
    """Receives that are too short, or whose own memory cannot be reached. IBA 9.9.3."""
    for do in (_S.SEND, _S.SEND_WITH_IMM):
        for data, room in ((5, 4), (600, 300), (600, 599)):
            yield case(
                f"too-long-{_word(work(do, data))}-into-{room}",
                f"{do.name} of {data} bytes into a receive of {room}",
                Receive(0, SERVER, room), work(do, data), fault=Fault.TOO_LONG,
            )  # fmt: skip
    for data in (5, 600):
        yield case(
            f"broken-receive-{data}",
            f"SEND of {data} bytes into a receive whose local key is wrong",
            Receive(0, SERVER, data, broken=True), work(_S.SEND, data), fault=Fault.LOCAL,
        )  # fmt: skip


def _of_limits() -> Iterator[Case]:
    yield case(
        "too-many-reads", "two READs at once where one was agreed upon",
        work(_S.RDMA_READ, 600), work(_S.RDMA_READ, 600),
        server={"max_dest_rd_atomic": 1}, fault=Fault.RESOURCES,
    )  # fmt: skip
    for do in _ALIGNED:
        yield case(
            f"misaligned-{_word(work(do, 8))}",
            f"{do.name} at an address that is no multiple of eight",
            work(do, 8, offset=4), fault=Fault.MISALIGNED,
        )  # fmt: skip
