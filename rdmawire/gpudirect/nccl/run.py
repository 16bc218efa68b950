"""Collective operations of GPUs on several hosts, as packets.

Within a host data goes over NVLink or what the host has, between hosts over RDMA, as in
:mod:`rdmawire.gpudirect.nccl.connection`. Values are really added, and the results checked.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from rdmawire.errors import CollectiveError
from rdmawire.fabric import (
    Cable,
    Host,
    Network,
    NotifyingPort,
    Simulator,
    SwitchSettings,
    place_of,
)
from rdmawire.gpudirect.nccl.collective import (
    MAX_RANKS,
    Algorithm,
    Collective,
    CollectiveSpec,
)
from rdmawire.gpudirect.nccl.connection import NetConnection, NetSettings
from rdmawire.gpudirect.nccl.in_network import (
    aggregation_node,
    in_network_workers,
    nvswitch_of,
)
from rdmawire.gpudirect.nccl.layout import LocalPath
from rdmawire.gpudirect.nccl.pairs import pair_workers
from rdmawire.gpudirect.nccl.plan import EdgeId, Worker
from rdmawire.gpudirect.nccl.ring import ring_workers
from rdmawire.gpudirect.nccl.task import Data, Edge, LocalEdge, LocalPort, Task
from rdmawire.gpudirect.nccl.tree import tree_workers
from rdmawire.ib import QueuePair

_WORKERS: Final[dict[Algorithm, Callable[[CollectiveSpec], Iterator[Worker]]]] = {
    Algorithm.RING: ring_workers,
    Algorithm.TREE: tree_workers,
    Algorithm.COLLNET: in_network_workers,
    Algorithm.NVLS: in_network_workers,
    Algorithm.NVLS_TREE: in_network_workers,
}
_LEAVES: Final = ("leaf1", "leaf2")
_UNLIMITED: Final = SwitchSettings(buffer=1 << 50, queue=1 << 50)
"""A switch that loses nothing for want of buffers: networks of GPUs have PFC or credits."""
_DEST_QP: Final = slice(47, 50)
"""The destination queue pair in a frame of RoCEv2: after Ethernet, IPv4, UDP and 5 bytes of BTH."""
_LOOPBACK: Final = 547 // 2
"""Time (ns) of a packet that an adapter sends to itself to flush: half of a read over PCIe.

Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018: 547 ns for a read of 64 bytes.
"""
_PACKET: Final = 4096


def workers_of(spec: CollectiveSpec) -> Iterator[Worker]:
    """Yield what all nodes do."""
    return _WORKERS[spec.algorithm](spec) if spec.collective.is_ring else pair_workers(spec)


class Adapter:
    """An adapter in the network, and the connections that end at it.

    It is a port of the network too: frames to itself, which flush, do not leave it.
    """

    def __init__(self, name: str, number: int, network: Network) -> None:
        self.name = name
        self.host = Host(place=place_of(number + 1))
        self.mac = self.host.mac
        self.nic = _LoopbackPort(self.host, network, name)
        self._ends: dict[int, tuple[NetConnection, QueuePair, Task]] = {}

    def add_end(self, connection: NetConnection, qps: list[QueuePair], task: Task) -> None:
        """Add one end of a connection, and the task that sends or receives at it."""
        for qp in qps:
            self._ends[qp.qp_num] = connection, qp, task

    def poll(self, frame: bytes) -> Task | None:
        """Take the completions that a frame caused; return the task that may go on."""
        end = self._ends.get(int.from_bytes(frame[_DEST_QP], "big"))
        if end is None:
            return None
        connection, qp, task = end
        connection.poll(qp)
        return task


class _LoopbackPort(NotifyingPort):
    """A port whose frames to its own address come back to it."""

    def __init__(self, host: Host, network: Network, name: str) -> None:
        super().__init__(host.nic)
        self._mac = host.mac
        self._network = network
        self._name = name

    def transmit(self, now: int, *more: int) -> list[bytes]:
        frames = super().transmit(now, *more)
        if not any(frame.startswith(self._mac) for frame in frames):
            return frames
        for frame in frames:
            if frame.startswith(self._mac):
                self._network.simulator.call_at(now + _LOOPBACK, partial(self._return, frame))
        return [frame for frame in frames if not frame.startswith(self._mac)]

    def _return(self, frame: bytes) -> None:
        self.receive(frame, self._network.simulator.now)
        self._network.wake(self._name)


class CollectiveRun:
    """A collective operation in virtual time; ``network`` has a host for each adapter.

    ``cable`` is that of each adapter to its switch, and of the spines. :meth:`run` may be called
    once.
    """

    def __init__(self, spec: CollectiveSpec, cable: Cable) -> None:
        spec.check(MAX_RANKS)
        self.spec = spec
        self.layout = spec.chosen_layout
        workers = list(workers_of(spec))
        self._expected, self.sent = _traffic(workers)
        limit = _event_limit(spec, self._expected, self.sent)
        switches = replace(_UNLIMITED, balancing=spec.balancing)
        self.network = Network(Simulator(event_limit=limit), seed=spec.seed, settings=switches)
        self.adapters = self._built_network(cable)
        self._data = Data(spec)
        self.local_edges: list[LocalEdge] = []
        self.connections: list[NetConnection] = []
        self._ports: dict[tuple[int, ...], LocalPort] = {}
        self._edges: dict[EdgeId, Edge] = {}
        self._ready: deque[Task] = deque()
        self._is_draining = False
        self._ended = 0
        protocol = spec.chosen_protocol
        self._tasks = [Task(self._data, worker, protocol) for worker in workers]
        self._join()

    # Building.

    def _built_network(self, cable: Cable) -> list[Adapter]:
        """Return the adapters of all hosts, and that of a switch that adds, in the network."""
        leaves = self._add_switches(cable)
        rates = self.layout.rates * self.spec.hosts
        cables = [cable._replace(rate=_slower(cable.rate, rate)) for rate in rates]
        if aggregation_node(self.spec) is not None:
            cables.append(Cable())
        adapters = []
        for number, wire in enumerate(cables):
            name = f"host{number}" if number < len(rates) else "aggregation"
            adapters.append(adapter := Adapter(name, number, self.network))
            self.network.add_host(name, adapter)
            self.network.join(name, leaves[number % len(leaves)], wire.link())
        self.network.find_routes()
        return adapters

    def _add_switches(self, cable: Cable) -> tuple[str, ...]:
        """Add one leaf, or two and the spines between them; return the leaves."""
        leaves = _LEAVES if self.spec.spines else _LEAVES[:1]
        for leaf in leaves:
            self.network.add_switch(leaf)
        for number in range(1, self.spec.spines + 1):
            self.network.add_switch(f"spine{number}")
            for leaf in leaves:
                self.network.join(leaf, f"spine{number}", cable.link())
        return leaves

    def _join(self) -> None:
        """Make the edges between tasks."""
        sources: dict[EdgeId, Task] = {}
        targets: dict[EdgeId, Task] = {}
        for task in self._tasks:
            for step in task.worker.steps:
                sources.update(dict.fromkeys(step.targets, task))
                targets.update(dict.fromkeys(step.sources, task))
        for edge, source in sources.items():
            self._edges[edge] = self._edge(edge, source, targets[edge])
        for task in self._tasks:
            task.bind(self._edges)

    def _edge(self, edge: EdgeId, source: Task, target: Task) -> Edge:
        if self._host_of(edge.source) == self._host_of(edge.target):
            return self._local_edge(edge, source, target)
        protocol = self.spec.chosen_protocol
        sender, receiver = self._adapter_of(edge.source), self._adapter_of(edge.target)
        names = {sender.host: sender.name, receiver.host: receiver.name}
        connection = NetConnection(
            sender.host,
            receiver.host,
            protocol,
            self._settings_for(edge.target),
            lambda host: self.network.wake(names[host]),
            f"from {self._name_of(edge.source)} to {self._name_of(edge.target)}",
        )
        sender.add_end(connection, connection.sending, source)
        receiver.add_end(connection, connection.receiving, target)
        if connection.flush_qp is not None:
            receiver.add_end(connection, [connection.flush_qp], target)
        self.connections.append(connection)
        return connection

    def _settings_for(self, node: int) -> NetSettings:
        """Return the settings of connections to a node: only the memory of GPUs is flushed."""
        settings = self.spec.net
        is_gpu = node < self.spec.ranks and self.layout.direct[node % self.spec.gpus]
        return settings if is_gpu else settings._replace(flush=False)

    def _local_edge(self, edge: EdgeId, source: Task, target: Task) -> LocalEdge:
        # Each port of an NVSwitch has its own links; a GPU shares its links among all others.
        shared = edge[:1] if edge.source < self.spec.ranks else edge[:2]
        made = LocalEdge(
            self._local_path(edge),
            self.spec.chosen_protocol.slots,
            self._ports.setdefault(shared, LocalPort()),
            self.network.simulator,
            partial(self._wake, source),
            partial(self._wake, target),
        )
        self.local_edges.append(made)
        return made

    def _local_path(self, edge: EdgeId) -> LocalPath:
        """Return the path between two GPUs, or between a GPU and the NVSwitches of its host."""
        gpus, ranks = self.spec.gpus, self.spec.ranks
        if max(edge.source, edge.target) >= ranks:
            return LocalPath(self.spec.nvlink_rate, self.spec.nvlink_latency)
        return self.layout.paths[edge.source % gpus][edge.target % gpus]

    # Nodes.

    def _host_of(self, node: int) -> int | None:
        """Return the host of a GPU or of NVSwitches; none for the switch of the network."""
        if node == aggregation_node(self.spec):
            return None
        return (
            node // self.spec.gpus if node < self.spec.ranks else node - nvswitch_of(self.spec, 0)
        )

    def _adapter_of(self, node: int) -> Adapter:
        if node == aggregation_node(self.spec):
            return self.adapters[-1]
        host, gpu = divmod(node, self.spec.gpus)
        return self.adapters[host * len(self.layout.rates) + self.layout.adapters[gpu]]

    def _name_of(self, node: int) -> str:
        return f"rank {node}" if node < self.spec.ranks else "the aggregation node"

    # Running.

    @property
    def now(self) -> int:
        """The virtual time (ns)."""
        return self.network.simulator.now

    def run(self) -> int:
        """Do it; return the virtual time (ns) until the last result was stored.

        Raises :class:`CollectiveError` if a connection fails, or if a result is wrong.
        """
        for adapter in self.adapters:
            adapter.nic.on_taken.append(partial(self._taken, adapter))
        for edge, messages in self._expected.items():
            self._edges[edge].expect(messages)
        for task in self._tasks:
            self._wake(task)
        self.network.simulator.run()
        for connection in self.connections:
            connection.poll_all()
        undone = sum(not task.is_done for task in self._tasks)
        if undone:
            raise CollectiveError(f"{undone} of {len(self._tasks)} ranks in channels did not end")
        self._check_results()
        return self._ended

    def _taken(self, adapter: Adapter, frame: bytes, _now: int) -> None:
        task = adapter.poll(frame)
        if task is not None:
            self._wake(task)

    def _wake(self, task: Task) -> None:
        """Let a task do what it can, and then those that it woke."""
        if not task.is_done:
            self._ready.append(task)
        if self._is_draining:
            return
        self._is_draining = True
        while self._ready:
            if self._ready.popleft().progress():
                self._ended = self.now
        self._is_draining = False

    def _check_results(self) -> None:
        """Check that each rank has all its results; they were compared when they were stored."""
        stored = [0] * self.spec.ranks
        for task in self._tasks:
            if task.stored:
                stored[task.node] += task.stored
        for rank, count in enumerate(stored):
            wanted = _wanted(self.spec, rank)
            if count != wanted:
                raise CollectiveError(f"rank {rank} stored {count} of {wanted} values")


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


def _slower(rate: int | None, other: float | None) -> int | None:
    """Return the rate of a link (bits per second) that is no faster than ``other`` bytes."""
    if other is None:
        return rate
    return round(other * 8) if rate is None else min(rate, round(other * 8))


def _traffic(workers: list[Worker]) -> tuple[Counter[EdgeId], Counter[int]]:
    """Return the messages of each edge, and the values that each node sends."""
    messages: Counter[EdgeId] = Counter()
    values: Counter[int] = Counter()
    for worker in workers:
        for step in worker.steps:
            messages.update(step.sources)
            values[worker.node] += step.length * len(step.targets)
    return messages, values


def _event_limit(spec: CollectiveSpec, messages: Counter[EdgeId], sent: Counter[int]) -> int:
    """Return more events than an operation without losses can have: many for each packet."""
    packets = 2 * sent.total() * spec.itemsize // _PACKET
    return 1_000_000 + 100 * (packets + messages.total())
