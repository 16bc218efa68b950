"""Collective operations of GPUs on several hosts, as packets: rings as NCCL builds them.

Each GPU has an adapter beside it. Within a host data goes over NVLink, between hosts over RDMA, as
in :mod:`rdmawire.gpudirect.nccl_net`. Values are really added, and the results checked.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

try:
    import numpy as np
except ImportError as error:
    raise ImportError("collectives need NumPy: pip install 'rdmawire[columns]'") from error
from numpy.typing import NDArray

from rdmawire.errors import CollectiveError
from rdmawire.fabric import Cable, Host, Network, NotifyingPort, Simulator, place_of, star
from rdmawire.gpudirect.nccl_net import NetConnection
from rdmawire.gpudirect.ring import Collective, RingStep, ring_steps
from rdmawire.units import SECOND

Values = NDArray[Any]


class MessageProtocol(NamedTuple):
    """How NCCL puts values into messages: the buffers of a connection, and what a message holds.

    ``name`` is that of the protocol, ``chunk`` the maximum number of bytes of values in a chunk,
    which is sent in ``slices`` messages. With ``flags``, four bytes of values are followed by four
    bytes of a flag.
    """

    name: str
    slots: int
    slot_size: int
    chunk: int
    slices: int
    flags: bool


LL: Final = MessageProtocol("ll", slots=8, slot_size=1 << 16, chunk=1 << 14, slices=1, flags=True)
"""Low latency: the receiver sees by the flags what has arrived; half of the bytes are flags."""
SIMPLE: Final = MessageProtocol(
    "simple", slots=4, slot_size=1 << 20, chunk=1 << 21, slices=2, flags=False
)
"""Values alone, in large messages."""
PROTOCOLS: Final = {protocol.name: protocol for protocol in (LL, SIMPLE)}
_LL_LIMIT: Final = 1 << 20
"""Bytes of an operation up to which LL is the default."""
_THREADS: Final = 512 * 8
"""Bytes per rank for which a channel is worth using: NCCL's threads times its threshold for LL."""
MAX_CHANNELS: Final = 8
MAX_RANKS: Final = 4096


class CollectiveSpec(NamedTuple):
    """A collective operation: what it does, on how many hosts with how many GPUs each.

    ``size`` are the bytes of values, of all-gather those of the result. ``protocol`` and
    ``channels`` are NCCL's choice if they are not given. ``nvlink_rate`` is in bytes per second,
    ``nvlink_latency`` in ns.
    """

    collective: Collective = Collective.ALL_REDUCE
    hosts: int = 2
    gpus: int = 1
    size: int = 1 << 20
    protocol: str = ""
    channels: int = 0
    dtype: str = "int32"
    seed: int = 0
    nvlink_rate: float = 370.8e9
    nvlink_latency: int = 1000

    @property
    def ranks(self) -> int:
        """The number of GPUs."""
        return self.hosts * self.gpus

    @property
    def chosen_protocol(self) -> MessageProtocol:
        """The protocol that is given, or the one for this size; values alone between pairs."""
        if not self.collective.is_ring:
            return SIMPLE
        return PROTOCOLS[self.protocol or ("ll" if self.size <= _LL_LIMIT else "simple")]

    @property
    def chosen_channels(self) -> int:
        """The channels that are given, or those that are worth using."""
        if not self.collective.is_ring:
            return 1
        wanted = self.size // (_THREADS * self.ranks)
        return self.channels or max(1, min(wanted, MAX_CHANNELS))


class Edge(Protocol):
    """One direction between two ranks that are neighbours in a ring."""

    @property
    def can_send(self) -> bool: ...

    @property
    def has_message(self) -> bool: ...

    def expect(self, messages: int) -> None: ...

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes: ...


class NvlinkPort:
    """The NVLinks of a GPU, which all its edges share; ``free_at`` is when they are free (ns)."""

    __slots__ = ("free_at",)

    def __init__(self) -> None:
        self.free_at = 0


class NvlinkEdge:
    """An edge within a host: messages arrive after a latency, one after the other.

    ``slots`` are the messages that may be on their way, ``wake`` is called when one arrives.
    """

    def __init__(
        self,
        spec: CollectiveSpec,
        slots: int,
        port: NvlinkPort,
        simulator: Simulator,
        wake: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._slots = slots
        self._port = port
        self._simulator = simulator
        self._wake = wake
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
        self._port.free_at = begin + round(len(data) / self._spec.nvlink_rate * SECOND)
        self._pending.append(data)
        self.bytes += len(data)
        self._simulator.call_at(self._port.free_at + self._spec.nvlink_latency, self._arrive)

    def _arrive(self) -> None:
        self._arrived += 1
        self._wake()

    def receive(self) -> bytes:
        """Take the next message."""
        self._arrived -= 1
        return self._pending.popleft()


class _Part(NamedTuple):
    """A step of a ring on some values: the first one, and how many."""

    step: RingStep
    start: int
    length: int


class Data:
    """The values of all ranks, made when they are needed, and what each result must be.

    The values of a rank are common random integers and one number of its own, so that sums are
    exact and memory does not grow with the ranks.
    """

    def __init__(self, spec: CollectiveSpec) -> None:
        generator = np.random.default_rng(spec.seed)
        self.dtype = np.dtype(spec.dtype)
        self.total = spec.size // np.dtype(spec.dtype).itemsize
        self._common: Values = generator.integers(-1000, 1000, self.total).astype(spec.dtype)
        self._own: Values = generator.integers(-1000, 1000, spec.ranks).astype(spec.dtype)
        self._gathers = spec.collective is Collective.ALL_GATHER
        self._ranks = spec.ranks
        self._block = self.total // spec.ranks

    def values(self, rank: int, rows: slice) -> Values:
        """Return some values of a rank."""
        found: Values = self._common[rows] + self._own[rank]
        return found

    def expected(self, rows: slice) -> Values:
        """Return the result: the sum of all ranks, or the values of the rank that owns the rows."""
        if self._gathers:
            return self.values(rows.start // self._block, rows)
        dtype = self._common.dtype.type
        found: Values = self._common[rows] * dtype(self._ranks) + self._own.sum(dtype=dtype)
        return found


class _Task:
    """What a rank does in one channel: the parts of all loops, one after the other.

    ``before`` is the edge from the rank that sends to it, ``sender`` that rank's task, ``after``
    the edge to the next rank. ``stored`` counts the values whose result was right.
    """

    def __init__(
        self, data: Data, rank: int, parts: Iterator[_Part], protocol: MessageProtocol
    ) -> None:
        self._data = data
        self.rank = rank
        self._parts = deque(parts)
        self._protocol = protocol
        self._flag_out = self._flag_in = 0
        self.stored = 0
        self.before: Edge | None = None
        self.after: Edge | None = None
        self.sender: _Task | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self._parts

    @property
    def receives(self) -> int:
        """The number of messages that are still to be received."""
        return sum(part.step.receive for part in self._parts)

    def progress(self) -> bool:
        """Do what can be done; return whether anything was."""
        begun = len(self._parts)
        while self._parts and self._is_ready(self._parts[0].step):
            self._do(self._parts.popleft())
        return len(self._parts) < begun

    def _is_ready(self, step: RingStep) -> bool:
        assert self.before is not None
        assert self.after is not None
        if step.receive and not self.before.has_message:
            return False
        return not step.send or self.after.can_send

    def _do(self, part: _Part) -> None:
        assert self.before is not None
        assert self.after is not None
        step, rows = part.step, slice(part.start, part.start + part.length)
        found = self._received(part.length) if step.receive else self._data.values(self.rank, rows)
        if step.reduce:
            found = found + self._data.values(self.rank, rows)
        if step.store:
            self._store(rows, found)
        if step.send:
            self.after.send(self._encoded(found))

    def _store(self, rows: slice, found: Values) -> None:
        """Compare a result with what it must be, as NumPy adds it."""
        wrong = np.flatnonzero(found != self._data.expected(rows))
        if len(wrong):
            at = rows.start + int(wrong[0])
            raise CollectiveError(f"rank {self.rank}: the result is wrong at value {at}")
        self.stored += len(found)

    def _received(self, length: int) -> Values:
        assert self.before is not None
        return self._decoded(self.before.receive())[:length]

    def _encoded(self, values: Values) -> bytes:
        if not self._protocol.flags:
            return values.tobytes()
        self._flag_out += 1
        words = values.view(np.uint32)
        lines = np.empty((len(words) + len(words) % 2, 2), np.uint32)
        lines[: len(words), 0] = words
        lines[len(words) :, 0] = 0
        lines[:, 1] = self._flag_out
        return lines.tobytes()

    def _decoded(self, data: bytes) -> Values:
        dtype = self._data.dtype
        if not self._protocol.flags:
            return np.frombuffer(data, dtype)
        self._flag_in += 1
        lines = np.frombuffer(data, np.uint32).reshape(-1, 2)
        if (lines[:, 1] != self._flag_in).any():
            raise CollectiveError(f"a message without the flag {self._flag_in}")
        return np.ascontiguousarray(lines[:, 0]).view(dtype)


class _PairTask:
    """What one rank sends to another: consecutive values, in messages.

    The values are ``rows`` of the sender's. ``stored`` counts those that arrived and were right.
    """

    sender = None

    def __init__(self, data: Data, source: int, target: int, rows: slice, message: int) -> None:
        self._data = data
        self._source = source
        self.rank = target
        every = range(rows.start, rows.stop, message)
        parts = [slice(start, min(start + message, rows.stop)) for start in every]
        self._to_send, self._to_receive = deque(parts), deque(parts)
        self.stored = 0
        self.before: Edge | None = None
        self.after: Edge | None = None

    @property
    def is_done(self) -> bool:
        return not self._to_receive

    @property
    def receives(self) -> int:
        return len(self._to_receive)

    def progress(self) -> bool:
        """Send and receive what is possible; return whether anything was."""
        assert self.after is not None
        begun = len(self._to_send) + len(self._to_receive)
        while self._to_send and self.after.can_send:
            rows = self._to_send.popleft()
            self.after.send(self._data.values(self._source, rows).tobytes())
        while self._to_receive and self.after.has_message:
            rows = self._to_receive.popleft()
            found = np.frombuffer(self.after.receive(), self._data.dtype)
            if not np.array_equal(found, self._data.values(self._source, rows)):
                raise CollectiveError(f"rank {self.rank}: wrong values from rank {self._source}")
            self.stored += len(found)
        return len(self._to_send) + len(self._to_receive) < begun


_AnyTask = _Task | _PairTask


def _parts(
    spec: CollectiveSpec, total: int, channel: int, order: Sequence[int], place: int
) -> Iterator[_Part]:
    """Yield the parts of a rank at this place of a channel's ring; ``total`` are all values."""
    steps = ring_steps(spec.collective, place, spec.ranks)
    in_place = spec.collective is Collective.ALL_REDUCE
    every = total if in_place else total // spec.ranks
    first, end = (every * number // spec.chosen_channels for number in (channel, channel + 1))
    protocol = spec.chosen_protocol
    most = protocol.chunk // np.dtype(spec.dtype).itemsize
    while first < end:
        count = min(most, -(-(end - first) // (spec.ranks if in_place else 1)))
        for step in steps:
            start = first + step.chunk * count if in_place else first + order[step.chunk] * every
            left = max(min(count, end - start), 0) if in_place else count
            yield from _slices(step, start, left, protocol.slices)
        first += count * (spec.ranks if in_place else 1)


def _slices(step: RingStep, start: int, count: int, slices: int) -> Iterator[_Part]:
    size = max(-(-count // slices), 1)
    for offset in range(0, count, size):
        yield _Part(step, start + offset, min(size, count - offset))


class _Adapter:
    """An adapter in the network, and the connections that end at it."""

    def __init__(self, number: int) -> None:
        self.name = f"host{number}"
        self.host = Host(place=place_of(number + 1))
        self.port = NotifyingPort(self.host.nic)
        self.outgoing: list[tuple[NetConnection, _AnyTask]] = []
        self.incoming: list[tuple[NetConnection, _AnyTask]] = []

    @property
    def mac(self) -> bytes:
        return self.host.mac

    @property
    def nic(self) -> NotifyingPort:
        return self.port

    def poll(self) -> list[_AnyTask]:
        """Take all completions; return the tasks that may go on."""
        for connection, _ in self.outgoing:
            connection.poll_sender()
        for connection, _ in self.incoming:
            connection.poll_receiver()
        return [task for _, task in (*self.outgoing, *self.incoming)]


class CollectiveRun:
    """A collective operation in virtual time; ``network`` has a host for each GPU that sends.

    ``cable`` is that of each adapter to the one switch. :meth:`run` may be called once.
    """

    def __init__(self, spec: CollectiveSpec, cable: Cable) -> None:
        _check(spec)
        self.spec = spec
        self.network = Network(Simulator(event_limit=_event_limit(spec)), seed=spec.seed)
        self.adapters = [_Adapter(number) for number in range(spec.ranks)]
        star(self.network, {one.name: one for one in self.adapters}, cable)
        self._data = Data(spec)
        self.nvlink_edges: list[NvlinkEdge] = []
        self._nvlink_ports = [NvlinkPort() for _ in range(spec.ranks)]
        self.connections: list[NetConnection] = []
        self._tasks: list[_AnyTask] = []
        self._ended = 0
        if spec.collective.is_ring:
            for channel in range(spec.chosen_channels):
                self._add_channel(channel)
        else:
            self._add_pairs()

    def _add_channel(self, channel: int) -> None:
        gpus = self.spec.gpus
        turned = [(channel + index) % gpus for index in range(gpus)]
        order = [host * gpus + gpu for host in range(self.spec.hosts) for gpu in turned]
        tasks = [
            _Task(
                self._data,
                rank,
                _parts(self.spec, self._data.total, channel, order, place),
                self.spec.chosen_protocol,
            )
            for place, rank in enumerate(order)
        ]
        self._tasks += tasks
        for place, rank in enumerate(order):
            following = (place + 1) % len(order)
            edge = self._edge(rank, order[following], tasks[place], tasks[following])
            tasks[place].after = tasks[following].before = edge
            tasks[following].sender = tasks[place]

    def _add_pairs(self) -> None:
        """Connect each rank with those that it sends to, the next one first."""
        ranks, block = self.spec.ranks, self._data.total // self.spec.ranks
        sends_all = self.spec.collective is Collective.SEND_RECEIVE
        for distance in range(1, 2 if sends_all else ranks):
            for rank in range(ranks):
                target = (rank + distance) % ranks
                rows = slice(target * block, (target + 1) * block)
                rows = slice(0, self._data.total) if sends_all else rows
                message = _pair_message(rows.stop - rows.start, self._data.dtype.itemsize)
                task = _PairTask(self._data, rank, target, rows, message)
                task.before = task.after = self._edge(rank, target, task, task)
                self._tasks.append(task)

    def _edge(self, rank: int, after: int, task: _AnyTask, receiver: _AnyTask) -> Edge:
        protocol = self.spec.chosen_protocol
        if rank // self.spec.gpus == after // self.spec.gpus:
            wake = partial(self._progress, (receiver, task))
            port = self._nvlink_ports[rank]
            edge = NvlinkEdge(self.spec, protocol.slots, port, self.network.simulator, wake)
            self.nvlink_edges.append(edge)
            return edge
        source, target = self.adapters[rank], self.adapters[after]
        names = {source.host: source.name, target.host: target.name}
        connection = NetConnection(
            source.host,
            target.host,
            protocol.slots,
            protocol.slot_size,
            lambda host: self.network.wake(names[host]),
        )
        source.outgoing.append((connection, task))
        target.incoming.append((connection, receiver))
        self.connections.append(connection)
        return connection

    @property
    def now(self) -> int:
        """The virtual time (ns)."""
        return self.network.simulator.now

    def run(self) -> int:
        """Do it; return the virtual time (ns) until the last result was stored.

        Raises :class:`CollectiveError` if a connection fails, or if a result is wrong.
        """
        for adapter in self.adapters:
            adapter.port.on_taken.append(partial(self._taken, adapter))
        for task in self._tasks:
            assert task.before is not None
            task.before.expect(task.receives)
        self._progress(self._tasks)
        simulator = self.network.simulator
        simulator.run()
        undone = sum(not task.is_done for task in self._tasks)
        if undone:
            raise CollectiveError(f"{undone} of {len(self._tasks)} ranks in channels did not end")
        self._check_results()
        return self._ended

    def _taken(self, adapter: _Adapter, _frame: bytes, _now: int) -> None:
        self._progress(adapter.poll())

    def _progress(self, tasks: Sequence[_AnyTask]) -> None:
        """Let tasks do what they can, and those before them, whose messages they have taken."""
        waiting = deque(tasks)
        while waiting:
            task = waiting.popleft()
            if not task.progress():
                continue
            self._ended = self.now
            if task.sender is not None:
                waiting.append(task.sender)

    def _check_results(self) -> None:
        """Check that each rank has all its results; they were compared when they were stored."""
        wanted = self._data.total
        if self.spec.collective is Collective.REDUCE_SCATTER:
            wanted //= self.spec.ranks
        if self.spec.collective is Collective.ALL_TO_ALL:
            wanted -= wanted // self.spec.ranks
        stored = [0] * self.spec.ranks
        for task in self._tasks:
            stored[task.rank] += task.stored
        for rank, count in enumerate(stored):
            if count != wanted:
                raise CollectiveError(f"rank {rank} stored {count} of {wanted} values")


def _pair_message(values: int, itemsize: int) -> int:
    """Return the values in a message between two ranks.

    NCCL's default is 128 KiB (``NCCL_P2P_NET_CHUNKSIZE``); up to 64 KiB it wrote 32 KiB.
    """
    size = values * itemsize
    return (1 << 15 if size <= 1 << 16 else 1 << 17) // itemsize


def _event_limit(spec: CollectiveSpec) -> int:
    """Return more events than an operation without losses can have: many for each packet."""
    packets = 2 * spec.hosts * spec.chosen_channels * (spec.size // 4096 + spec.ranks)
    messages = 4 * spec.ranks * spec.ranks * spec.chosen_channels
    return 1_000_000 + 100 * (packets + messages)


def _check(spec: CollectiveSpec) -> None:
    """Check what a specification asks for."""
    if not 2 <= spec.ranks <= MAX_RANKS:
        raise CollectiveError(f"{spec.ranks} GPUs; 2 to {MAX_RANKS} are supported")
    item = np.dtype(spec.dtype).itemsize
    if spec.size % (item * spec.ranks) or not spec.size:
        raise CollectiveError(
            f"{spec.size} bytes are no whole number of values of {item} bytes for each of"
            f" {spec.ranks} GPUs: take a multiple of {item * spec.ranks}"
        )
