"""Workloads as graphs: what each rank computes, sends and receives, and what must be before what.

Traces of every kind become a :class:`Workload`. Messages are matched as those of MPI: a receive
takes the first message from its peer with its tag, in the order of the sends (MPI 4.1, 3.5).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.workload.algorithm import MscclAlgorithm
from rdmawire.terminal import plural

MAX_RANKS: Final = 1024
MAX_OPERATIONS: Final = 1 << 20
"""Operations of all ranks together."""
MAX_SIZE: Final = 1 << 40
"""Bytes of a message, and of an operand of a collective."""
MAX_TIME: Final = 10**15
"""Time (ns) of one computation."""
ANY: Final = -1
"""Any source, or any tag, of a receive. Tags of messages of collectives are below it."""
ANY_32: Final = (1 << 32) - 1
"""Any source, or any tag, as GOAL has it in 32 bits."""
CHANNELS: Final = 256
"""Channels of a collective."""


class Kind(Enum):
    """What an operation does."""

    COMPUTE = "calc"
    SEND = "send"
    RECEIVE = "recv"
    COLLECTIVE = "collective"


class Call(NamedTuple):
    """The call of a collective operation by the ranks of a ``group``.

    ``number`` is that of the operation among those of the workload. Rank ``group[place]`` does what
    GPU ``place`` of the algorithm does. ``exact`` algorithms are a part of the trace: their
    messages are sent one by one, also as flows.
    """

    algorithm: MscclAlgorithm
    group: tuple[int, ...]
    number: int = 0
    exact: bool = False


class Move(Protocol):
    """What an operation does with data of its rank.

    :meth:`load` returns the bytes of a send, :meth:`store` takes those of a receive, and
    :meth:`apply` works on local data.
    """

    def load(self) -> bytes: ...

    def store(self, data: bytes) -> None: ...

    def apply(self) -> None: ...


@dataclass(slots=True)
class Operation:
    """An operation of a rank.

    ``size`` is in bytes, of a computation in ns. ``peer`` and ``tag`` are those of a message. A
    computation occupies ``stream`` of its rank, a message takes the adapter ``nic``. ``after`` are
    the operations of the rank that must have ended before, ``after_start`` those that must have
    begun. ``count`` is the number of messages for which a send or a receive stands.
    """

    kind: Kind
    size: int
    peer: int = 0
    tag: int = 0
    stream: int = 0
    nic: int = 0
    label: str = ""
    line: int = 0
    count: int = 1
    after: Sequence[int] = ()
    after_start: Sequence[int] = ()
    move: Move | None = None
    call: Call | None = None

    def require(self, index: int, *, start: bool = False) -> None:
        """Let this operation wait for the end of another one, or for its ``start``."""
        name = "after_start" if start else "after"
        found = getattr(self, name)
        if isinstance(found, list):
            found.append(index)
        else:
            setattr(self, name, [*found, index])


class Workload:
    """What each rank does. ``sources`` are the files of the ranks, or the one of all of them."""

    def __init__(self, form: str, sources: Sequence[str], ranks: list[list[Operation]]) -> None:
        self.form = form
        self.sources = sources
        self.ranks = ranks

    def source(self, rank: int) -> str:
        """Return the name of the file that a rank is from."""
        return self.sources[rank if len(self.sources) > 1 else 0]

    @property
    def operations(self) -> int:
        """The number of operations of all ranks."""
        return sum(map(len, self.ranks))

    def name(self, rank: int, index: int) -> str:
        """Return the rank and the label of an operation, and where it is in its file."""
        operation = self.ranks[rank][index]
        label = operation.label or f"operation {index}"
        line = f", line {operation.line}" if operation.line else ""
        return f"rank {rank}, {label} ({self.source(rank)}{line})"

    def describe(self, rank: int, index: int) -> str:
        """Return the name of an operation, and what it does."""
        return f"{self.name(rank, index)}: {_text(self.ranks[rank][index])}"


def _text(operation: Operation) -> str:
    if operation.kind is Kind.COMPUTE:
        return f"calc of {operation.size} ns"
    if operation.call is not None:
        name = operation.call.algorithm.collective.value
        return f"{name} of {plural(operation.size, 'byte')}"
    word = "to" if operation.kind is Kind.SEND else "from"
    peer = "any rank" if operation.peer == ANY else f"rank {operation.peer}"
    size = plural(operation.size, "byte")
    return f"{operation.kind.value} of {size} {word} {peer} with {_tag_text(operation.tag)}"


def _tag_text(tag: int) -> str:
    if tag < ANY:
        return f"channel {(ANY - 1 - tag) % CHANNELS}"
    return "any tag" if tag == ANY else f"tag {tag}"


def add_operation(found: list[Operation], operation: Operation, total: int, where: str) -> None:
    """Append an operation to those of a rank; ``total`` are those of all ranks so far.

    Raises :class:`WorkloadError`, with the place ``where``, for too many of them, and for a size or
    time that is too large.
    """
    if total >= MAX_OPERATIONS:
        raise WorkloadError(f"{where}: more than {MAX_OPERATIONS} operations")
    computes = operation.kind is Kind.COMPUTE
    if operation.size > (MAX_TIME if computes else MAX_SIZE):
        unit, most = ("ns", MAX_TIME) if computes else ("bytes", MAX_SIZE)
        raise WorkloadError(f"{where}: {operation.size} {unit}, at most {most} are supported")
    found.append(operation)


# Checks before a run.


def check_workload(workload: Workload) -> None:
    """Check that peers exist, that dependencies form no cycle, and that messages have both ends.

    Raises :class:`WorkloadError` with the first problem.
    """
    for rank, operations in enumerate(workload.ranks):
        _check_peers(workload, rank)
        if (cycle := _cycle(operations)) is not None:
            raise WorkloadError(_cycle_text(workload, rank, cycle))
    _check_messages(workload)


def _check_peers(workload: Workload, rank: int) -> None:
    ranks = len(workload.ranks)
    for index, operation in enumerate(workload.ranks[rank]):
        if operation.kind is not Kind.SEND and operation.kind is not Kind.RECEIVE:
            continue
        is_any = operation.kind is Kind.RECEIVE and operation.peer == ANY
        if not is_any and not 0 <= operation.peer < ranks:
            raise WorkloadError(f"{workload.describe(rank, index)}, but ranks are 0 to {ranks - 1}")


Followers = list[Sequence[int]]
"""For each operation of a rank the ones that wait for it."""


def followers(operations: Sequence[Operation]) -> tuple[Followers, Followers]:
    """Return which operations wait for the end of each one, and which for its start."""
    ends: Followers = [()] * len(operations)
    starts: Followers = [()] * len(operations)
    for index, operation in enumerate(operations):
        for before in operation.after:
            _append(ends, before, index)
        for before in operation.after_start:
            _append(starts, before, index)
    return ends, starts


def _append(found: Followers, before: int, index: int) -> None:
    """Let an operation follow another one; most have none or one follower, and need no list."""
    known = found[before]
    if isinstance(known, list):
        known.append(index)
    else:
        found[before] = [*known, index] if known else (index,)


def _cycle(operations: Sequence[Operation]) -> list[int] | None:
    """Return operations that wait for one another in a circle, if there are any."""
    if all(
        max(one.after, default=-1) < index and max(one.after_start, default=-1) < index
        for index, one in enumerate(operations)
    ):
        return None
    waits = [len(one.after) + len(one.after_start) for one in operations]
    ends, starts = followers(operations)
    ready = [index for index, count in enumerate(waits) if not count]
    while ready:
        index = ready.pop()
        for after in (*ends[index], *starts[index]):
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    index = next((index for index, count in enumerate(waits) if count), -1)
    if index < 0:
        return None
    path: dict[int, None] = {}
    while index not in path:
        path[index] = None
        before = (*operations[index].after, *operations[index].after_start)
        index = next(one for one in before if waits[one])
    return [*list(path)[list(path).index(index) :], index]


_SHOWN: Final = 6


def _cycle_text(workload: Workload, rank: int, cycle: list[int]) -> str:
    operations = workload.ranks[rank]
    names = [operations[index].label or f"operation {index}" for index in cycle]
    if len(names) > _SHOWN:
        names = [*names[: _SHOWN - 2], "...", names[-1]]
    line = operations[cycle[0]].line
    place = f"{workload.source(rank)}, line {line}" if line else workload.source(rank)
    return f"rank {rank}: a cycle of dependencies: {' after '.join(names)} ({place})"


Ends = defaultdict[tuple[int, int, int], list[int]]
"""Operations by the source, the target and the tag of their messages."""


def _check_messages(workload: Workload) -> None:
    """Compare sends and receives: by peer and tag, or by number where a receive takes any."""
    sends, receives = _ends(workload, Kind.SEND), _ends(workload, Kind.RECEIVE)
    wild = Counter(
        {
            rank: sum(is_wild(one) for one in operations)
            for rank, operations in enumerate(workload.ranks)
        }
    )
    for key in {**receives, **sends}:
        _compare(workload, key, sends[key], receives[key], wild)
    for rank, left in wild.items():
        if left > 0:
            operations = workload.ranks[rank]
            last = max(index for index, one in enumerate(operations) if is_wild(one))
            raise WorkloadError(f"{workload.describe(rank, last)} has no send: none is left for it")


def is_wild(operation: Operation) -> bool:
    """Return whether a receive takes any source or any tag."""
    return operation.kind is Kind.RECEIVE and ANY in {operation.peer, operation.tag}


def _ends(workload: Workload, kind: Kind) -> Ends:
    """Return the sends or receives by source, target and tag, without those that take any."""
    found: Ends = defaultdict(list)
    for rank, operations in enumerate(workload.ranks):
        for index, one in enumerate(operations):
            if one.kind is kind and not is_wild(one):
                pair = (rank, one.peer) if kind is Kind.SEND else (one.peer, rank)
                found[*pair, one.tag].append(index)
    return found


def _compare(
    workload: Workload,
    key: tuple[int, int, int],
    sends: list[int],
    receives: list[int],
    wild: Counter[int],
) -> None:
    source, target, _ = key
    extra = len(sends) - len(receives)
    if extra < 0:
        text = workload.describe(target, receives[len(sends)])
        counted = f"{plural(len(sends), 'send')} for {plural(len(receives), 'receive')}"
        raise WorkloadError(f"{text} has no send: rank {source} has {counted}")
    if extra > wild[target]:
        text = workload.describe(source, sends[len(receives)])
        counted = f"{plural(len(receives), 'receive')} for {plural(len(sends), 'send')}"
        raise WorkloadError(f"{text} has no receive: rank {target} has {counted}")
    wild[target] -= extra
