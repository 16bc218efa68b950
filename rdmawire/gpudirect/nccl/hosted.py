"""A collective operation on the hosts and the network of a caller.

Between hosts data goes over RDMA, as in :mod:`rdmawire.gpudirect.nccl.connection`, within a host
over NVLink or what the host has. Values are really added, and the results checked.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from rdmawire.errors import CollectiveError
from rdmawire.fabric import Host, Network
from rdmawire.gpudirect.nccl.algorithm import traffic_of, workers_of
from rdmawire.gpudirect.nccl.collective import Collective, CollectiveSpec
from rdmawire.gpudirect.nccl.connection import NetConnection
from rdmawire.gpudirect.nccl.node import Nodes
from rdmawire.gpudirect.nccl.plan import EdgeId, NodeWorker
from rdmawire.gpudirect.nccl.task import (
    Edge,
    LocalEdge,
    LocalPort,
    RankValues,
    ReadyQueue,
    Task,
    bind_runners,
)
from rdmawire.ib import QueuePair
from rdmawire.wire.roce import bth_offset

_DEST_QP: Final = 5
"""Offset of the destination queue pair, of three bytes, in a BTH. IBA 9.2."""


class RankAdapter:
    """An adapter of the network, ``name`` in it, and the connections that end at it."""

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self.host = host
        self._ends: dict[int, tuple[NetConnection, QueuePair, Task]] = {}

    def add_end(self, connection: NetConnection, qps: list[QueuePair], task: Task) -> None:
        """Add one end of a connection, and the task that sends or receives at it."""
        for qp in qps:
            self._ends[qp.qp_num] = connection, qp, task

    def poll(self, frame: bytes) -> Task | None:
        """Take the completions that a frame caused; return the task that may go on."""
        bth = bth_offset(frame, 0, len(frame))
        at = bth + _DEST_QP
        end = self._ends.get(int.from_bytes(frame[at : at + 3], "big"))
        if bth < 0 or end is None:
            return None
        connection, qp, task = end
        connection.poll(qp)
        return task


class CollectiveWork(NamedTuple):
    """What all nodes do, the messages of each edge, and the values that each node sends."""

    workers: list[NodeWorker]
    messages: Counter[EdgeId]
    sent: Counter[int]

    @classmethod
    def of(cls, spec: CollectiveSpec) -> Self:
        """Return the work of an operation."""
        workers = list(workers_of(spec))
        return cls(workers, *traffic_of(workers))


class HostedCollective:
    """A collective operation, done once.

    ``adapters`` are those of the first host, of the second and so on, and last that of a switch
    that adds, if the algorithm has one. ``names`` are those of the ranks in messages.

    The owner of the network calls :meth:`start`, :meth:`take` with each frame that an adapter has
    received, and :meth:`finish` when the simulation has ended. All raise
    :class:`~rdmawire.errors.CollectiveError` if a connection fails or a result is wrong.
    """

    def __init__(
        self,
        spec: CollectiveSpec,
        network: Network,
        adapters: Sequence[RankAdapter],
        work: CollectiveWork | None = None,
        *,
        names: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.network = network
        self.adapters = adapters
        self.nodes = Nodes(spec, names)
        workers, self._expected, self.sent = CollectiveWork.of(spec) if work is None else work
        self._data = RankValues(spec)
        self.local_edges: list[LocalEdge] = []
        self.connections: list[NetConnection] = []
        self._ports: dict[tuple[int, ...], LocalPort] = {}
        self._ready = ReadyQueue(self._note_progress)
        self._ended = 0
        protocol = spec.chosen_protocol
        self._tasks = [
            Task(self._data, worker, protocol, self.nodes.name_of(worker.node))
            for worker in workers
        ]
        self._edges = bind_runners(self._tasks, self._edge)

    # Building.

    def _edge(self, edge: EdgeId, source: Task, target: Task) -> Edge[bytes]:
        if self.nodes.is_local(edge):
            return self._local_edge(edge, source, target)
        sender, receiver = (self.adapters[self.nodes.adapter_of(node)] for node in edge[:2])
        names = {sender.host: sender.name, receiver.host: receiver.name}
        flush = self.spec.net.flush and self.nodes.is_direct(edge.target)
        connection = NetConnection(
            sender.host,
            receiver.host,
            self.spec.chosen_protocol,
            self.spec.net._replace(flush=flush),
            lambda host: self.network.wake(names[host]),
            f"from {self.nodes.name_of(edge.source)} to {self.nodes.name_of(edge.target)}",
        )
        sender.add_end(connection, connection.sending, source)
        receiver.add_end(connection, connection.receiving, target)
        if connection.flush_qp is not None:
            receiver.add_end(connection, [connection.flush_qp], target)
        self.connections.append(connection)
        return connection

    def _local_edge(self, edge: EdgeId, source: Task, target: Task) -> LocalEdge:
        made = LocalEdge(
            self.nodes.local_path(edge),
            self.spec.chosen_protocol.slots,
            self._ports.setdefault(self.nodes.local_port(edge), LocalPort()),
            self.network.simulator,
            partial(self._ready.wake, source),
            partial(self._ready.wake, target),
        )
        self.local_edges.append(made)
        return made

    # Running.

    @property
    def now(self) -> int:
        """The virtual time (ns)."""
        return self.network.simulator.now

    def start(self) -> None:
        """Offer memory for all messages, and do what can be done without any."""
        for edge, messages in self._expected.items():
            self._edges[edge].expect(messages)
        for task in self._tasks:
            self._ready.wake(task)

    def take(self, adapter: RankAdapter, frame: bytes) -> None:
        """Go on after a frame that an adapter has received."""
        task = adapter.poll(frame)
        if task is not None:
            self._ready.wake(task)

    @property
    def is_done(self) -> bool:
        """Whether all ranks have stored their results and sent all their messages."""
        return all(task.is_done for task in self._tasks)

    def finish(self) -> int:
        """Check what is left to check; return the time (ns) at which the last result was stored."""
        for connection in self.connections:
            connection.poll_all()
        late = [task for task in self._tasks if not task.is_done]
        if late:
            left = f"{len(late)} of {len(self._tasks)} ranks in channels are not done"
            raise CollectiveError(f"{late[0].name} did not end: {left}")
        self._check_results()
        return self._ended

    def _note_progress(self) -> None:
        self._ended = self.now

    def _check_results(self) -> None:
        """Check that each rank has all its results; they were compared when they were stored."""
        stored = [0] * self.spec.ranks
        for task in self._tasks:
            if task.stored:
                stored[task.node] += task.stored
        for rank, count in enumerate(stored):
            wanted = _wanted(self.spec, rank)
            if count != wanted:
                name = self.nodes.name_of(rank)
                raise CollectiveError(f"{name} stored {count} of {wanted} values")


def _wanted(spec: CollectiveSpec, rank: int) -> int:
    """Return how many values a rank stores in all."""
    block = spec.values // spec.ranks
    match spec.collective:
        case Collective.REDUCE_SCATTER:
            return block
        case Collective.ALL_TO_ALL:
            return spec.values - block
        case Collective.REDUCE:
            return spec.values * (rank == spec.root)
    return spec.values
