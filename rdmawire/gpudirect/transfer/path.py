"""Transfers from a GPU to another one, by each path that data can take, in virtual time.

Between two hosts data goes by GPUDirect RDMA, or through host memory and then over RDMA or TCP;
within a host over NVLink or UALink. Beside them is RDMA from pinned memory of a host to that of
another, without a GPU. The links between hosts are Ethernet or InfiniBand. Packets are real, copies
move real bytes, and both take the time of the links of the hosts (:mod:`rdmawire.topology`). Times
are ns, sizes bytes.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial, reduce
from itertools import pairwise
from math import ceil
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, TransferError, VerbsError
from rdmawire.fabric import Network, Simulator
from rdmawire.fabric.network import NetworkHost
from rdmawire.gpudirect.transfer.host import (
    LinkLayer,
    Traffic,
    TransferHost,
    join,
    link_cable,
    link_uses,
)
from rdmawire.gpudirect.transfer.host_pair import check_pair, event_limit
from rdmawire.gpudirect.transfer.stage import Chunk, Stage, StageKind
from rdmawire.gpudirect.transfer.wire import RdmaWire, TcpWire, Wire
from rdmawire.topology import (
    CachedRegion,
    Costs,
    Device,
    LinkUse,
    Machine,
    RegisteredKind,
    Registrar,
    RegistrationCache,
    RegistrationMode,
    Route,
    TranslationCounts,
    nvlink_route,
    ualink_route,
)
from rdmawire.topology.cost import H200_COSTS
from rdmawire.units import SECOND

MAX_SIZE: Final = 1 << 30


class TransferPath(Enum):
    """A path of data from one GPU to another; of ``HOST`` between memories of hosts."""

    HOST = "host"
    DIRECT = "direct"
    BOUNCE = "bounce"
    PAGEABLE = "pageable"
    TCP = "tcp"
    NVLINK = "nvlink"
    UALINK = "ualink"


class WireKind(Enum):
    """What carries data between hosts."""

    RDMA = "RDMA from pinned buffers"
    RDMA_TO_HOST = "RDMA from pinned memory of the data"
    RDMA_TO_GPU = "RDMA from GPU memory"
    TCP = "TCP"

    @property
    def is_zero_copy(self) -> bool:
        """Whether the adapter accesses the memory of the data itself."""
        return self in (WireKind.RDMA_TO_HOST, WireKind.RDMA_TO_GPU)


class Plan(NamedTuple):
    """How data takes a path: the stages of the sender, the wire, and the stages of the receiver.

    ``pipelined`` paths are divided into chunks, of which several are on their way.
    """

    sender: tuple[StageKind, ...]
    wire: WireKind | None
    receiver: tuple[StageKind, ...]
    pipelined: bool = False


PLANS: Final[Mapping[TransferPath, Plan]] = {
    TransferPath.HOST: Plan((), WireKind.RDMA_TO_HOST, ()),
    TransferPath.DIRECT: Plan((), WireKind.RDMA_TO_GPU, ()),
    TransferPath.BOUNCE: Plan(
        (StageKind.COPY_OUT,), WireKind.RDMA, (StageKind.COPY_IN,), pipelined=True
    ),
    TransferPath.PAGEABLE: Plan(
        (StageKind.PAGEABLE_OUT, StageKind.MEMCPY),
        WireKind.RDMA,
        (StageKind.MEMCPY, StageKind.PAGEABLE_IN),
    ),
    TransferPath.TCP: Plan(
        (StageKind.COPY_OUT, StageKind.TCP_OUT),
        WireKind.TCP,
        (StageKind.TCP_IN, StageKind.COPY_IN),
        pipelined=True,
    ),
    TransferPath.NVLINK: Plan((StageKind.PEER_COPY,), None, ()),
    TransferPath.UALINK: Plan((StageKind.PEER_COPY,), None, ()),
}
"""The plan of each path."""


class Registering(NamedTuple):
    """When the memory of the data is registered for RDMA, and by which driver if it is a GPU's.

    ``max_regions`` and ``max_bytes`` are the limits of a cache (:class:`RegistrationCache`).
    """

    mode: RegistrationMode = RegistrationMode.NONE
    kind: RegisteredKind = RegisteredKind.PEERMEM
    max_regions: int | None = None
    max_bytes: int | None = None

    def registrar(self, costs: Costs, wire: WireKind | None) -> Registrar:
        """Return what registers memory for a wire so, with a cache of its own."""
        kind = RegisteredKind.HOST if wire is WireKind.RDMA_TO_HOST else self.kind
        limits = {"max_regions": self.max_regions, "max_bytes": self.max_bytes}
        return Registrar(self.mode, RegistrationCache(kind, costs=costs, **limits))


class RegistrationCounts(NamedTuple):
    """Registrations of both hosts: the regions, what the caches did, and the time of all (ns)."""

    registered: int
    deregistered: int
    hits: int
    misses: int
    evictions: int
    time: float


class TransferSpec(NamedTuple):
    """A transfer: ``size`` bytes from a GPU to another one, both by their names in ``machine``.

    Between hosts both hosts are such machines. ``chunk`` is the size of a chunk of a pipelined
    path, 0 for no pipeline; ``slots`` the chunks on their way. NCCL's chunks over a network are of
    128 KiB to 512 KiB, UCX's of 512 KiB (``UCX_RNDV_FRAG_SIZE``). ``rate`` is that of the wire in
    bits per second, 0 for the rate of the adapter's port; ``mtu`` the path MTU of RDMA in bytes.
    ``layer`` is what joins hosts, ``latency`` (ns) that of each of the two cables to the switch, by
    default the layer's. The transfer is done ``repeat`` times, one after the other, with
    ``buffers`` buffers in turn.
    """

    machine: Machine
    source: str
    target: str
    path: TransferPath = TransferPath.DIRECT
    size: int = 1 << 20
    chunk: int = 1 << 19
    slots: int = 4
    rate: int = 0
    mtu: int = 4096
    latency: int | None = None
    seed: int = 0
    costs: Costs = H200_COSTS
    registering: Registering = Registering()
    repeat: int = 1
    buffers: int = 1
    layer: LinkLayer = LinkLayer.ETHERNET

    @property
    def cable_latency(self) -> int:
        """Latency (ns) of each of the two cables to the switch."""
        return self.layer.latency if self.latency is None else self.latency


class TransferReport(NamedTuple):
    """What a transfer took.

    ``durations`` are the times (ns) of each repetition from its start until a kernel on the target
    may use the data, and memory is deregistered if that is done each time. ``copies`` is how often
    processors and copy engines copied each byte. ``cpu`` is the time (ns) of processors, without
    waits for a completion or a packet. ``frames`` and ``wire_bytes`` are those of both directions.
    ``links`` is the use of the links of the hosts, by the names of host, source and target;
    ``translations`` are those of their IOMMUs. All but ``durations`` and ``copies`` are sums of all
    repetitions.
    """

    path: TransferPath
    size: int
    durations: tuple[int, ...]
    copies: int
    chunks: int
    cpu: float
    frames: int
    wire_bytes: int
    links: Mapping[tuple[str, str, str], LinkUse]
    registrations: RegistrationCounts
    translations: TranslationCounts

    @property
    def duration(self) -> int:
        """Time of the first transfer (ns)."""
        return self.durations[0]

    @property
    def later(self) -> float:
        """Mean time of the transfers after the first one (ns); of the only one, if it is alone."""
        others = self.durations[1:] or self.durations
        return sum(others) / len(others)

    @property
    def elapsed(self) -> int:
        """Time of all repetitions (ns)."""
        return sum(self.durations)

    @property
    def rate(self) -> float:
        """Bytes per second, in all repetitions."""
        return self.size * len(self.durations) / self.elapsed * SECOND

    def totals(self) -> dict[str, int]:
        """Return what it took, by name, as JSON has it."""
        return {
            "duration_ns": self.duration,
            "bytes_per_s": round(self.rate),
            "copies": self.copies,
            "chunks": self.chunks,
            "cpu_ns": round(self.cpu),
            "frames": self.frames,
            "wire_bytes": self.wire_bytes,
        }

    @property
    def cpu_share(self) -> float:
        """Time of processors, as a share of the time."""
        return self.cpu / self.elapsed


class Transfer:
    """A transfer by one path; :meth:`run` does it, once. ``network`` carries its packets.

    Raises :class:`TransferError` if the hosts do not have this path.
    """

    def __init__(self, spec: TransferSpec) -> None:
        self.spec = spec
        self.plan = PLANS[spec.path]
        _check(spec)
        self._data = random_bytes(spec.size, spec.seed)
        limit = event_limit(spec.size, spec.repeat)
        medium, wire = spec.layer.medium, self.plan.wire
        self.network = Network(Simulator(event_limit=limit), seed=spec.seed, medium=medium)
        link = _link(spec)
        self.hosts = [
            TransferHost(name, number, spec.machine, gpu, spec.costs, peer, link, layer=spec.layer)
            for number, (name, gpu, peer) in enumerate(_ends(spec), 1)
        ]
        for host in self.hosts:
            pinned = wire is WireKind.RDMA_TO_HOST
            allocate = host.allocate_pinned if pinned else host.allocate
            allocate(spec.size * spec.buffers)
        self._registrars = [spec.registering.registrar(spec.costs, wire) for _ in self.hosts]
        self._regions: list[CachedRegion | None] = []
        self._traffic = Traffic()
        pipelined = self.plan.pipelined and spec.chunk
        self._size = min(spec.chunk, spec.size) if pipelined else spec.size
        self._round = self._started = 0
        self._durations: list[int] = []
        self._chunks: deque[Chunk] = deque()
        self._total = -(-spec.size // self._size)
        self._slots = min(spec.slots, self._total)
        self._entered = self._freed = self._arrived = 0
        self._wire = self._connect() if self.plan.wire else None
        if self._wire is not None:
            self._wire.on_free = self._free
        self._stages = self._build()

    def _cut(self) -> Iterator[Chunk]:
        first = self._round * self._total
        for number, offset in enumerate(range(0, self.spec.size, self._size), first):
            yield Chunk(number, offset, self._data[offset : offset + self._size])

    @property
    def _buffer(self) -> int:
        """Where the buffer of this repetition begins in the memory of the GPUs."""
        return self._round % self.spec.buffers * self.spec.size

    @property
    def _is_zero_copy(self) -> bool:
        return self.plan.wire is not None and self.plan.wire.is_zero_copy

    def _connect(self) -> Wire:
        """Connect the hosts by a switch; return what carries chunks between them."""
        if self.plan.wire is WireKind.TCP:
            return self._connect_tcp()
        spec, (sender, receiver) = self.spec, self.hosts
        self._join(sender, receiver)
        direct = self._is_zero_copy
        return RdmaWire(
            sender,
            receiver,
            self.network.simulator,
            self.network.wake,
            self._received,
            slots=spec.buffers if direct else self._slots,
            slot_size=self._size,
            mtu=spec.mtu,
            buffers=(sender.registered(), receiver.registered()) if direct else None,
            on_gpus=self.plan.wire is WireKind.RDMA_TO_GPU,
        )

    def _connect_tcp(self) -> Wire:
        wire = TcpWire(self.hosts[0], self.hosts[1], self.network.wake, self._received)
        self._join(*wire.endpoints)
        return wire

    def _join(self, *ports: NetworkHost) -> None:
        spec = self.spec
        cable = link_cable(self.hosts[0], spec.layer, spec.rate, spec.latency)
        names = [host.name for host in self.hosts]
        self._traffic = join(self.network, dict(zip(names, ports, strict=True)), cable)

    def _build(self) -> list[Stage]:
        """Build the stages, each passing chunks on to the next; return those of the sender."""
        simulator = self.network.simulator
        sender, receiver = self.hosts[0], self.hosts[-1]
        make = partial(Stage, simulator=simulator, slots=self._slots, slot_size=self._size)
        first = [make(kind, sender) for kind in self.plan.sender]
        last = [make(kind, receiver) for kind in self.plan.receiver]
        for stages in (first, last):
            for one, following in pairwise(stages):
                one.after = following.put
        if first:
            first[-1].after = self._send if self._wire else self._store
        if last:
            last[-1].after = self._store
        self._inward = last[0].put if last else self._store
        return first

    # A transfer.

    def run(self) -> TransferReport:
        """Do it, and check the data at the target.

        Raises :class:`TransferError` if a connection fails, or if data is wrong.
        """
        for buffer in range(self.spec.buffers):
            self.hosts[0].fill(self._data, buffer * self.spec.size)
        self._begin()
        try:
            self.network.simulator.run()
        except FabricError as error:
            raise TransferError(f"the transfer does not end: {error}") from error
        if len(self._durations) < self.spec.repeat:
            arrived = f"{self._arrived} of {self._total * self.spec.repeat} chunks arrived"
            raise TransferError(arrived)
        return self._report()

    def _begin(self) -> None:
        """Begin a repetition: register the memory of both hosts, and then send."""
        self._started = self.network.simulator.now
        self._after(self._register(), self._start)

    def _start(self) -> None:
        self._chunks.extend(self._cut())
        self._enter()

    def _register(self) -> float:
        """Register the buffers of a direct transfer; return the time until both hosts have it."""
        if not self._is_zero_copy:
            return 0.0
        times = []
        for host, registrar in zip(self.hosts, self._registrars, strict=True):
            time, region = registrar.acquire(host.address + self._buffer, self.spec.size)
            host.cpu += time
            times.append(time)
            self._regions.append(region)
        return max(times)

    def _release(self) -> float:
        """End the use of the buffers; return the time until both hosts have deregistered."""
        times = [0.0]
        registering = zip(self.hosts, self._registrars, self._regions, strict=False)
        for host, registrar, region in registering:
            times.append(registrar.release(region))
            host.cpu += times[-1]
        self._regions.clear()
        return max(times)

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something after a delay (ns), at once if there is none."""
        if delay:
            self.network.simulator.call_at(ceil(self.network.simulator.now + delay), action)
        else:
            action()

    def _end(self) -> None:
        """End a repetition, and begin the next one if there is one."""
        if self.hosts[-1].result(self.spec.size, self._buffer) != self._data:
            raise TransferError("the data at the target is not that of the source")
        self._durations.append(self.network.simulator.now - self._started)
        self.hosts[-1].store(self._buffer, bytes(self.spec.size))  # the next data is to arrive
        self._round += 1
        if self._round < self.spec.repeat:
            self._begin()
        elif self._wire is not None:
            self._wire.close()

    def _enter(self) -> None:
        """Begin with chunks, as many as may be on their way."""
        while self._chunks and self._entered - self._freed < self.spec.slots:
            self._entered += 1
            chunk = self._chunks.popleft()
            if self._stages:
                self._stages[0].put(chunk)
            else:
                self._send(chunk)

    def _free(self) -> None:
        self._freed += 1
        self._enter()

    def _send(self, chunk: Chunk) -> None:
        assert self._wire is not None
        self._wire.send(chunk.number, chunk.data)

    def _received(self, number: int, data: bytes) -> None:
        """Take a chunk from the wire: its bytes, with what its slot has after them."""
        start = number % self._total * self._size
        length = min(self._size, self.spec.size - start)
        self._inward(Chunk(number, start, data[:length]))

    def _store(self, chunk: Chunk) -> None:
        """Store a chunk that has taken all stages; its slot is free."""
        if not self._is_zero_copy:
            self.hosts[-1].store(self._buffer + chunk.offset, chunk.data)
        self._arrived += 1
        if self._wire is None:
            self._free()
        elif self._arrived < self._total * self.spec.repeat:
            self._wire.release()
        if self._arrived == self._total * (self._round + 1):
            self._after(self._release(), self._end)

    def _report(self) -> TransferReport:
        links = link_uses(self.hosts)
        return TransferReport(
            self.spec.path,
            self.spec.size,
            tuple(self._durations),
            sum(host.copies for host in self.hosts) // (self._total * self.spec.repeat),
            self._total,
            sum(host.cpu for host in self.hosts),
            self._traffic.frames,
            self._traffic.bytes,
            links,
            self._registered(),
            reduce(TranslationCounts.plus, (host.bus.translations for host in self.hosts)),
        )

    def _registered(self) -> RegistrationCounts:
        each = [
            RegistrationCounts(
                one.registered,
                one.deregistered,
                one.cache.hits,
                one.cache.misses,
                one.cache.evictions,
                one.time,
            )
            for one in self._registrars
        ]
        return RegistrationCounts(*map(sum, zip(*each, strict=True)))


_LINKS: Final = {
    TransferPath.NVLINK: ("NVLinks", nvlink_route),
    TransferPath.UALINK: ("UALinks", ualink_route),
}
"""What joins the GPUs of a host, by the path, and the function that returns the route over it."""


def _link(spec: TransferSpec) -> Route | None:
    """Return the route over the links between GPUs of a host, for the paths that take them."""
    if spec.path not in _LINKS:
        return None
    name, route = _LINKS[spec.path]
    source, target = (spec.machine.device(gpu) for gpu in (spec.source, spec.target))
    direct = route(spec.machine, source, target)
    if not direct.steps:
        raise TransferError(f"{source.name} and {target.name} have no {name}")
    return direct


def _ends(spec: TransferSpec) -> list[tuple[str, Device, Device | None]]:
    """Return the hosts of a transfer, by their names: the GPU of each, and its peer within it."""
    source, target = (spec.machine.device(name) for name in (spec.source, spec.target))
    if PLANS[spec.path].wire is None:
        return [("host", source, target)]
    return [("sender", source, None), ("receiver", target, None)]


def random_bytes(size: int, seed: int) -> bytes:
    """Return bytes that any seed makes: a block of them, again and again with its number."""
    block = Random(seed).randbytes(_BLOCK)  # noqa: S311 - repeatable
    count = -(-size // _BLOCK)
    return b"".join(number.to_bytes(8, "little") + block[8:] for number in range(count))[:size]


def _check(spec: TransferSpec) -> None:
    check_pair(spec)
    if PLANS[spec.path].wire is WireKind.TCP and spec.layer is LinkLayer.INFINIBAND:
        raise TransferError("TCP over InfiniBand (IPoIB) is not modelled: it takes Ethernet")
    if not 0 < spec.size <= MAX_SIZE:
        raise TransferError(f"a transfer of {spec.size} bytes; 1 to {MAX_SIZE} are supported")
    _check_repeat(spec)
    if spec.chunk < 0 or not 0 < spec.slots <= _MAX_SLOTS:
        raise TransferError(f"chunks of {spec.chunk} bytes in {spec.slots} slots; up to 256 slots")
    if -(-spec.size // (spec.chunk or spec.size)) > _MAX_CHUNKS:
        least = -(-spec.size // _MAX_CHUNKS)
        raise TransferError(f"chunks of {spec.chunk} bytes are too many: take {least} or more")


def _check_repeat(spec: TransferSpec) -> None:
    if not (0 < spec.repeat <= _MAX_REPEAT and 0 < spec.buffers <= _MAX_SLOTS):
        most = f"up to {_MAX_REPEAT} repetitions with {_MAX_SLOTS} buffers"
        raise TransferError(f"{spec.repeat} repetitions with {spec.buffers} buffers; {most}")
    if spec.size * max(spec.repeat, spec.buffers) > MAX_SIZE:
        what = f"{spec.size} bytes, {spec.repeat} times, in {spec.buffers} buffers"
        raise TransferError(f"{what}: all together may have {MAX_SIZE} bytes")


_BLOCK: Final = 1 << 16
_MAX_SLOTS: Final = 256
_MAX_REPEAT: Final = 10_000
_MAX_CHUNKS: Final = 1 << 16


def transfer(spec: TransferSpec) -> TransferReport:
    """Do a transfer; return what it took.

    Raises :class:`TransferError` if the hosts do not have this path, or if it fails.
    """
    try:
        return Transfer(spec).run()
    except VerbsError as error:
        raise TransferError(f"{spec.path.value}: {error}") from error
