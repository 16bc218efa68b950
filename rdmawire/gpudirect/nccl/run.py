"""Collective operations of GPUs on several hosts, as packets.

Within a host data goes over NVLink or what the host has, between hosts over RDMA, as in
:mod:`rdmawire.gpudirect.nccl.connection`. Values are really added, and the results checked.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

from rdmawire.errors import CollectiveError
from rdmawire.fabric import (
    Cable,
    Host,
    LoopbackPort,
    Network,
    Rule,
    Simulator,
    SwitchSettings,
    place_of,
)
from rdmawire.gpudirect.nccl.algorithm import traffic_of, workers_of
from rdmawire.gpudirect.nccl.collective import (
    MAX_RANKS,
    Collective,
    CollectiveSpec,
)
from rdmawire.gpudirect.nccl.connection import NetConnection
from rdmawire.gpudirect.nccl.node import Nodes
from rdmawire.gpudirect.nccl.plan import EdgeId
from rdmawire.gpudirect.nccl.task import (
    Data,
    Edge,
    LocalEdge,
    LocalPort,
    ReadyQueue,
    Task,
    bind_runners,
)
from rdmawire.ib import QueuePair

_LEAVES: Final = ("leaf1", "leaf2")
_UNLIMITED: Final = SwitchSettings(buffer=1 << 50, queue=1 << 50)
"""A switch that loses nothing for want of buffers: networks of GPUs have PFC or credits."""
_DEST_QP: Final = slice(47, 50)
"""The destination queue pair in a frame of RoCEv2: after Ethernet, IPv4, UDP and 5 bytes of BTH."""
_PACKET: Final = 4096


class Adapter:
    """An adapter in the network, and the connections that end at it.

    It is a port of the network too: frames to itself, which flush, do not leave it.
    """

    def __init__(self, name: str, number: int, network: Network) -> None:
        self.name = name
        self.host = Host(place=place_of(number + 1))
        self.mac = self.host.mac
        self.nic = LoopbackPort(
            self.host.nic,
            self.mac,
            network.simulator.call_at,
            partial(network.wake, name),
        )
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


class CollectiveRun:
    """A collective operation in virtual time; ``network`` has a host for each adapter.

    ``cable`` is that of each adapter to its switch, and of the spines. :meth:`run` may be called
    once.
    """

    def __init__(self, spec: CollectiveSpec, cable: Cable) -> None:
        spec.check(MAX_RANKS)
        self.spec = spec
        self.nodes = Nodes(spec)
        workers = list(workers_of(spec))
        self._expected, self.sent = traffic_of(workers)
        limit = _event_limit(spec, self._expected, self.sent)
        switches = replace(_UNLIMITED, balancing=spec.balancing)
        self.network = Network(Simulator(event_limit=limit), seed=spec.seed, settings=switches)
        self.adapters = self._built_network(cable)
        self._data = Data(spec)
        self.local_edges: list[LocalEdge] = []
        self.connections: list[NetConnection] = []
        self._ports: dict[tuple[int, ...], LocalPort] = {}
        self._ready = ReadyQueue(self._note_progress)
        self._ended = 0
        protocol = spec.chosen_protocol
        self._tasks = [Task(self._data, worker, protocol) for worker in workers]
        self._edges = bind_runners(self._tasks, self._edge)

    # Building.

    def _built_network(self, cable: Cable) -> list[Adapter]:
        """Return the adapters of all hosts, and that of a switch that adds, in the network."""
        leaves = self._add_switches(cable)
        rates = self.nodes.layout.rates * self.spec.hosts
        cables = [cable._replace(rate=_slower(cable.rate, rate)) for rate in rates]
        if self.nodes.aggregation is not None:
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

    def lose(self, share: float) -> None:
        """Let each link lose this share of its frames, at random by the seed."""
        for link in self.network.links if share else ():
            self.network.set_faults(link, Rule("drop", chance=share))

    def run(self) -> int:
        """Do it; return the virtual time (ns) until the last result was stored.

        Raises :class:`CollectiveError` if a connection fails, or if a result is wrong.
        """
        for adapter in self.adapters:
            adapter.nic.on_taken.append(partial(self._taken, adapter))
        for edge, messages in self._expected.items():
            self._edges[edge].expect(messages)
        for task in self._tasks:
            self._ready.wake(task)
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
            self._ready.wake(task)

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


def _event_limit(spec: CollectiveSpec, messages: Counter[EdgeId], sent: Counter[int]) -> int:
    """Return more events than an operation without losses can have: many for each packet."""
    packets = 2 * sent.total() * spec.itemsize // _PACKET
    return 1_000_000 + 100 * (packets + messages.total())
