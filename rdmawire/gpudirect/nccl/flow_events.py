"""Operations as flows, message by message: trees, switches that add, operations with a root.

Each node does its steps when their messages are there; a message takes the time of its bytes on the
links that it shares with others, but there are no packets and no values.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from rdmawire.errors import CollectiveError
from rdmawire.fabric import Cable, Simulator
from rdmawire.gpudirect.message_time import message_time
from rdmawire.gpudirect.nccl.algorithm import traffic_of, workers_of
from rdmawire.gpudirect.nccl.collective import CollectiveSpec
from rdmawire.gpudirect.nccl.node import Nodes
from rdmawire.gpudirect.nccl.plan import EdgeId, NodeWorker
from rdmawire.gpudirect.nccl.task import (
    BoundStep,
    LocalPort,
    ReadyQueue,
    WorkerRunner,
    bind_runners,
)
from rdmawire.units import SECOND

MAX_MESSAGES: Final = 1 << 20
_EVENTS: Final = 8
"""More events than a message has."""
ENTRY: Final = 64
"""Bytes of an entry that offers a buffer; about the time (ns) that it adds."""


class CollectiveFlowReport(NamedTuple):
    """What an operation takes: ``duration`` in ns, and the bytes on links.

    ``adapter_bytes`` are bytes of values that the busiest adapter sends, ``nvlink_bytes`` those
    over all NVLinks.
    """

    duration: int
    adapter_bytes: int
    nvlink_bytes: int
    messages: int


class _FlowEdge:
    """An edge whose messages are numbers of bytes.

    ``sender`` and ``receiver`` are the links that it shares, ``times`` says how long (ns) a message
    occupies them, and when it has arrived. ``offer`` is the time (ns) in which the sender learns
    that a buffer is free.
    """

    def __init__(  # noqa: PLR0917
        self,
        simulator: Simulator,
        slots: int,
        sender: LocalPort,
        receiver: LocalPort,
        times: Callable[[int], tuple[float, float]],
        offer: int,
        wakes: tuple[Callable[[], None], Callable[[], None]],
    ) -> None:
        self._simulator = simulator
        self._sender = sender
        self._receiver = receiver
        self._times = times
        self._offer = offer
        self._wake_source, self._wake_target = wakes
        self._free = 0
        self._arrived = 0
        simulator.call_at(offer, partial(self._offer_buffers, slots))

    @property
    def can_send(self) -> bool:
        return self._free > 0

    @property
    def has_message(self) -> bool:
        return self._arrived > 0

    def expect(self, messages: int) -> None:
        """Do nothing: buffers are always offered."""

    def send(self, data: int) -> None:
        """Send a message of ``data`` bytes."""
        self._free -= 1
        busy, duration = self._times(data)
        begin = max(self._simulator.now, self._sender.free_at)
        self._sender.free_at = round(begin + busy)
        arrival = round(max(begin + duration, self._receiver.free_at + busy))
        self._receiver.free_at = arrival
        self._simulator.call_at(arrival, self._arrive)

    def _arrive(self) -> None:
        self._arrived += 1
        self._wake_target()

    def receive(self) -> int:
        """Take the next message; its size is known."""
        self._arrived -= 1
        self._simulator.call_at(self._simulator.now + self._offer, partial(self._offer_buffers, 1))
        return 0

    def _offer_buffers(self, count: int) -> None:
        self._free += count
        self._wake_source()


class _FlowRunner(WorkerRunner[int]):
    """A worker whose messages have a size alone."""

    def __init__(self, worker: NodeWorker, size_of: Callable[[int], int]) -> None:
        super().__init__(worker)
        self._size_of = size_of

    def do(self, bound: BoundStep[int]) -> None:
        """Receive and send messages."""
        for source in bound.sources:
            source.edge.receive()
        for target in bound.targets:
            target.edge.send(self._size_of(bound.step.length))


class EventFlow:
    """An operation as flows; :meth:`run` may be called once."""

    def __init__(self, spec: CollectiveSpec, cable: Cable) -> None:
        _check_messages(spec)
        self._protocol = spec.chosen_protocol
        self._itemsize = spec.itemsize
        self._cable = cable
        self._nodes = Nodes(spec)
        workers = list(workers_of(spec))
        self._messages, _ = traffic_of(workers)
        limit = _EVENTS * (self._messages.total() + len(self._messages)) + 1
        self._simulator = Simulator(event_limit=limit)
        self._ready = ReadyQueue(self._note_progress)
        self._senders: dict[object, LocalPort] = {}
        self._receivers: dict[object, LocalPort] = {}
        self._ended = 0
        self._local_bytes = 0
        self._by_adapter: Counter[int] = Counter()
        self._runners = [_FlowRunner(worker, self._size_of) for worker in workers]
        bind_runners(self._runners, self._edge)
        for worker in workers:
            for step in worker.steps:
                self._count(step.targets, step.length)

    def _size_of(self, length: int) -> int:
        return self._protocol.wire_size(length * self._itemsize)

    def _note_progress(self) -> None:
        self._ended = self._simulator.now

    def _count(self, edges: tuple[EdgeId, ...], length: int) -> None:
        """Count the bytes of a step: those of values from adapters, and those within hosts."""
        for edge in edges:
            if self._nodes.is_local(edge):
                self._local_bytes += self._size_of(length)
            elif edge.source != self._nodes.aggregation:
                self._by_adapter[self._nodes.adapter_of(edge.source)] += length * self._itemsize

    def _edge(self, edge: EdgeId, source: _FlowRunner, target: _FlowRunner) -> _FlowEdge:
        wakes = partial(self._ready.wake, source), partial(self._ready.wake, target)
        slots = self._protocol.slots
        if self._nodes.is_local(edge):
            path = self._nodes.local_path(edge)
            sender = self._senders.setdefault(self._nodes.local_port(edge), LocalPort())

            def local(size: int) -> tuple[float, float]:
                busy = size / path.rate * SECOND
                return busy, busy + path.latency

            return _FlowEdge(self._simulator, slots, sender, LocalPort(), local, 0, wakes)
        sender = self._adapter_port(self._senders, edge.source)
        receiver = self._adapter_port(self._receivers, edge.target)
        is_near = self._nodes.aggregation in edge[:2]
        times = self._near_time if is_near else self._net_time
        offer = (1 if is_near else 2) * self._cable.latency + ENTRY
        return _FlowEdge(self._simulator, slots, sender, receiver, times, offer, wakes)

    def _adapter_port(self, ports: dict[object, LocalPort], node: int) -> LocalPort:
        """Return the link of a node's adapter; the switch that adds has links without a limit."""
        if node == self._nodes.aggregation:
            return LocalPort()
        return ports.setdefault(self._nodes.adapter_of(node), LocalPort())

    def _net_time(self, size: int) -> tuple[float, float]:
        return message_time(size, self._cable)

    def _near_time(self, size: int) -> tuple[float, float]:
        """Return the times between an adapter and the switch that adds: over one link."""
        busy, _ = message_time(size, self._cable)
        return busy, busy + self._cable.latency

    def run(self) -> CollectiveFlowReport:
        """Return what the operation takes."""
        for runner in self._runners:
            self._ready.wake(runner)
        self._simulator.run()
        far = sum(count for edge, count in self._messages.items() if not self._nodes.is_local(edge))
        busiest = max(self._by_adapter.values(), default=0)
        return CollectiveFlowReport(self._ended, busiest, self._local_bytes, far)


def _check_messages(spec: CollectiveSpec) -> None:
    """Refuse what would have too many messages, before they are made."""
    chunk = spec.chosen_protocol.chunk
    parts = max(-(-spec.size // chunk), spec.chosen_channels)
    count = 2 * parts * spec.ranks
    if count > MAX_MESSAGES:
        raise CollectiveError(
            f"about {count} messages, at most {MAX_MESSAGES} are followed:"
            " take fewer GPUs or bytes, or a ring, whose flows are computed all at once"
        )
