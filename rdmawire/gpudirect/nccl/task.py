"""Workers at run time: the values of ranks, the edges between nodes, and what is done when."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from rdmawire.errors import CollectiveError
from rdmawire.fabric import Simulator
from rdmawire.gpudirect.nccl.collective import CollectiveSpec
from rdmawire.gpudirect.nccl.layout import LocalPath
from rdmawire.gpudirect.nccl.plan import EdgeId, NodeWorker, WorkerStep
from rdmawire.gpudirect.nccl.protocol import MessageProtocol, Values
from rdmawire.units import SECOND

_MAX_VALUE: Final = 1000


M = TypeVar("M")
"""A message: its bytes, or only how many they are."""


class Edge(Protocol[M]):
    """One direction between two nodes."""

    @property
    def can_send(self) -> bool: ...

    @property
    def has_message(self) -> bool: ...

    def expect(self, messages: int) -> None: ...

    def send(self, data: M) -> None: ...

    def receive(self) -> M: ...


class LocalPort:
    """The links of a GPU to others of its host, which all its edges share.

    ``free_at`` is when they are free (ns).
    """

    __slots__ = ("free_at",)

    def __init__(self) -> None:
        self.free_at = 0


class LocalEdge:
    """An edge within a host: messages arrive after a latency, one after the other.

    ``slots`` are the messages that may be on their way or not yet taken. ``wake`` is called when a
    message arrives, and when one was taken.
    """

    def __init__(  # noqa: PLR0917
        self,
        path: LocalPath,
        slots: int,
        port: LocalPort,
        simulator: Simulator,
        wake_source: Callable[[], None],
        wake_target: Callable[[], None],
    ) -> None:
        self.path = path
        self._slots = slots
        self._port = port
        self._simulator = simulator
        self._wake_source = wake_source
        self._wake_target = wake_target
        self._pending: deque[bytes] = deque()
        self._arrived = 0
        self.bytes = 0

    @property
    def can_send(self) -> bool:
        return len(self._pending) < self._slots

    @property
    def has_message(self) -> bool:
        return self._arrived > 0

    def expect(self, messages: int) -> None:
        """Do nothing: the buffers at the target are always offered."""

    def send(self, data: bytes) -> None:
        """Begin to copy a message."""
        begin = max(self._simulator.now, self._port.free_at)
        self._port.free_at = begin + round(len(data) / self.path.rate * SECOND)
        self._pending.append(data)
        self.bytes += len(data)
        self._simulator.call_at(self._port.free_at + self.path.latency, self._arrive)

    def _arrive(self) -> None:
        self._arrived += 1
        self._wake_target()

    def receive(self) -> bytes:
        """Take the next message."""
        self._arrived -= 1
        data = self._pending.popleft()
        self._wake_source()
        return data


class RankValues:
    """The values of all ranks, made when they are needed, and what each result must be.

    The values of a rank are common random integers and one number of its own, so that sums are
    exact and memory does not grow with the ranks.
    """

    def __init__(self, spec: CollectiveSpec) -> None:
        generator = np.random.default_rng(spec.seed)
        self.dtype: np.dtype[Any] = np.dtype(spec.dtype)
        self.total = spec.values
        self._common: Values = generator.integers(-_MAX_VALUE, _MAX_VALUE, self.total).astype(
            spec.dtype
        )
        self._own: Values = generator.integers(-_MAX_VALUE, _MAX_VALUE, spec.ranks).astype(
            spec.dtype
        )
        self._ranks = spec.ranks

    def values(self, rank: int, rows: slice) -> Values:
        """Return some values of a rank."""
        found: Values = self._common[rows] + self._own[rank]
        return found

    def expected(self, rows: slice, origin: int | None) -> Values:
        """Return the result: the values of ``origin``, or the sum of all ranks as NumPy adds."""
        if origin is not None:
            return self.values(origin, rows)
        dtype = self._common.dtype.type
        found: Values = self._common[rows] * dtype(self._ranks) + self._own.sum(dtype=dtype)
        return found


class EdgeEnd(Generic[M]):
    """An end of an edge, which counts its messages."""

    __slots__ = ("count", "edge")

    def __init__(self, edge: Edge[M]) -> None:
        self.edge = edge
        self.count = 0


class BoundStep(NamedTuple, Generic[M]):
    """A step, and the ends of its edges."""

    step: WorkerStep
    sources: tuple[EdgeEnd[M], ...]
    targets: tuple[EdgeEnd[M], ...]


class WorkerRunner(ABC, Generic[M]):
    """A worker at run time: it does its steps as soon as their messages are there."""

    def __init__(self, worker: NodeWorker) -> None:
        self.worker = worker
        self.node = worker.node
        self._steps: deque[BoundStep[M]] = deque()

    def bind(self, edges: Mapping[EdgeId, Edge[M]]) -> None:
        """Take the edges, when all are made."""
        ends: dict[EdgeId, EdgeEnd[M]] = {}
        for step in self.worker.steps:
            for edge in (*step.sources, *step.targets):
                if edge not in ends:
                    ends[edge] = EdgeEnd(edges[edge])
            sources = tuple(ends[source] for source in step.sources)
            targets = tuple(ends[target] for target in step.targets)
            self._steps.append(BoundStep(step, sources, targets))

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self._steps

    def progress(self) -> bool:
        """Do what can be done; return whether anything was."""
        begun = len(self._steps)
        while self._steps and _is_ready(self._steps[0]):
            self.do(self._steps.popleft())
        return len(self._steps) < begun

    @abstractmethod
    def do(self, bound: BoundStep[M]) -> None:
        """Do a step, whose messages are there."""


R = TypeVar("R", bound=WorkerRunner[Any])


def bind_runners(
    runners: Sequence[R], make: Callable[[EdgeId, R, R], Edge[M]]
) -> dict[EdgeId, Edge[M]]:
    """Make the edges of all runners and bind their steps to them; return the edges.

    ``make`` returns an edge, by its id and the runners that send and receive over it.
    """
    sources: dict[EdgeId, R] = {}
    targets: dict[EdgeId, R] = {}
    for runner in runners:
        for step in runner.worker.steps:
            sources.update(dict.fromkeys(step.targets, runner))
            targets.update(dict.fromkeys(step.sources, runner))
    edges = {edge: make(edge, source, targets[edge]) for edge, source in sources.items()}
    for runner in runners:
        runner.bind(edges)
    return edges


def _is_ready(bound: BoundStep[M]) -> bool:
    """Return whether all messages of a step are there, and all edges can send."""
    for source in bound.sources:
        if not source.edge.has_message:
            return False
    for target in bound.targets:  # noqa: SIM110 - half of the time of all()
        if not target.edge.can_send:
            return False
    return True


class ReadyQueue:
    """Runners that may go on. ``on_progress`` is called after each that did something."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        self._ready: deque[WorkerRunner[Any]] = deque()
        self._on_progress = on_progress
        self._is_draining = False

    def wake(self, runner: WorkerRunner[Any]) -> None:
        """Let a runner do what it can, and then those that it woke."""
        if not runner.is_done:
            self._ready.append(runner)
        if self._is_draining:
            return
        self._is_draining = True
        while self._ready:
            if self._ready.popleft().progress():
                self._on_progress()
        self._is_draining = False


class Task(WorkerRunner[bytes]):
    """A worker with values. ``stored`` counts those whose result was right.

    ``name`` is for messages.
    """

    def __init__(
        self, data: RankValues, worker: NodeWorker, protocol: MessageProtocol, name: str
    ) -> None:
        super().__init__(worker)
        self.name = name
        self._data = data
        self._protocol = protocol
        self.stored = 0

    def do(self, bound: BoundStep[bytes]) -> None:
        """Receive, add, store and send values."""
        step = bound.step
        rows = slice(step.start, step.start + step.length)
        found = self._data.values(self.node, rows) if step.own else None
        for source in bound.sources:
            received = self._received(source)[: step.length]
            found = received if found is None else found + received
        assert found is not None
        if step.store:
            self._store(step, found)
        for target in bound.targets:
            target.count += 1
            target.edge.send(self._protocol.encoded(found, target.count))

    def _store(self, step: WorkerStep, found: Values) -> None:
        """Compare a result with what it must be."""
        rows = slice(step.start, step.start + step.length)
        wrong = np.flatnonzero(found != self._data.expected(rows, step.origin))
        if len(wrong):
            at = step.start + int(wrong[0])
            raise CollectiveError(f"{self.name}: the result is wrong at value {at}")
        self.stored += len(found)

    def _received(self, source: EdgeEnd[bytes]) -> Values:
        source.count += 1
        return self._protocol.decoded(source.edge.receive(), source.count, self._data.dtype)
