"""The hosts of a running scenario: their named memory, its registration, and shared queues."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from errno import EINVAL, EOPNOTSUPP, errorcode
from functools import cached_property, partial, reduce
from operator import or_
from random import Random
from typing import Final

from rdmawire.errors import ENOTSUPP, MemoryFault, VerbsError
from rdmawire.fabric.dma import DmaPort, adapter_routes
from rdmawire.fabric.host import ALL_ACCESS, Host, Memory, NotifyingPort, Place
from rdmawire.ib.cm.connection import CMSettings
from rdmawire.ib.cm.machine import Neighbours
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.rules import Rules
from rdmawire.memory.dmabuf import DmaBufFiles, DmaBufRange, reg_dmabuf_mr
from rdmawire.memory.gpu.device import Gpu
from rdmawire.memory.gpu.driver import GpuDriver, export_dmabuf
from rdmawire.memory.gpu.peermem import Peermem, reg_bounce_mr
from rdmawire.memory.key import DMABUF_FLAGS, Access
from rdmawire.memory.mr_table import Extent
from rdmawire.memory.mw import MemoryWindow
from rdmawire.memory.region import Region
from rdmawire.topology import Bus, PeerStatus
from rdmawire.traffic.scenario.document import Failure
from rdmawire.traffic.scenario.model.host import MODELS, HostPlan, MemoryPlan, SrqPlan
from rdmawire.traffic.scenario.types import Content, Fill, Span
from rdmawire.verbs.profile import named
from rdmawire.verbs.srq import SharedReceiveQueue, XRCReceiver
from rdmawire.verbs.wr import Sge

PIECE: Final = 1 << 20
"""Bytes that are written or compared at a time."""


@dataclass(slots=True, eq=False)
class NamedBuffer:
    """Memory or a window with a name.

    Applications access it in ``memory`` at ``start``, adapters by ``key`` at ``iova`` of the last
    registration, even after deregistration. A window has no memory until it is bound.
    """

    name: str
    plan: MemoryPlan | None = None
    memory: Memory | None = None
    start: int = 0
    length: int = 0
    iova: int = 0
    key: int = 0
    region: Region | None = None
    window: MemoryWindow | None = None
    gpu: Gpu | None = None

    def take(self, region: Region, iova: int) -> None:
        """Set the region whose key adapters use for the buffer."""
        self.region = region
        self.key = region.rkey
        self.iova = iova

    def extent(self, span: Span) -> tuple[int, int]:
        """Return offset and length of a span (bytes)."""
        length = self.length - span.offset if span.length is None else span.length
        return span.offset, length

    def sge(self, span: Span) -> Sge:
        offset, length = self.extent(span)
        return Sge(self.iova + offset, length, self.key)

    def read(self, offset: int, length: int) -> bytes:
        """Read as an application does; raise ``MemoryFault`` outside the buffer."""
        return self._readable(offset, length).read(self.start + offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write as an application does; raise ``MemoryFault`` outside the buffer."""
        self._readable(offset, len(data)).write(self.start + offset, data)

    def _readable(self, offset: int, length: int) -> Memory:
        if self.memory is None or offset + length > self.length:
            raise MemoryFault(f"outside of {self.name}", offset, length)
        return self.memory


def bytes_of(content: Content, length: int, random: Random) -> Iterator[bytes]:
    """Yield ``length`` bytes of a content in chunks."""
    unit = _UNITS.get(content.fill, content.data) or bytes(1)
    piece = unit * max(1, PIECE // len(unit))
    for start in range(0, length, len(piece)):
        size = min(len(piece), length - start)
        yield random.randbytes(size) if content.fill is Fill.RANDOM else piece[:size]


_UNITS: Final = {Fill.ZEROS: bytes(1), Fill.COUNT: bytes(range(256)), Fill.RANDOM: bytes(1)}


def access_of(names: tuple[str, ...] | None, allowed: int = ALL_ACCESS) -> int:
    """Return access flags by name; without names, all that are allowed."""
    if names is None:
        return ALL_ACCESS & allowed
    return reduce(or_, (Access[name].value for name in names), 0)


class MemoryRegistrar:
    """Registers the memory of one host, by the method in ``via``.

    ``peermem`` and ``dmabuf`` say which drivers the host has for the memory of GPUs, ``status``
    whether the adapter may access it.
    """

    def __init__(
        self,
        host: Host,
        *,
        peermem: bool = True,
        dmabuf: bool = True,
        status: PeerStatus = PeerStatus.OK,
    ) -> None:
        self.host = host
        self.status = status
        self.peermem = peermem
        self.dmabuf = dmabuf
        self.driver = GpuDriver(host.space)
        self.files = DmaBufFiles()

    def register(self, buffer: NamedBuffer, access: tuple[str, ...] | None) -> None:
        """Register a buffer; raise ``VerbsError`` if the adapter refuses."""
        plan = buffer.plan
        if plan is None:
            raise VerbsError(f"{buffer.name} is no memory", EINVAL)
        if plan.fast:
            pages = -(-buffer.length // plan.page)
            buffer.take(self.host.nic.memory.alloc_mr(self.host.pd, pages), buffer.start)
            return
        way = _plain if buffer.gpu is None else WAYS[plan.via]
        region = way(self, buffer, access)
        buffer.take(region, region.iova)

    def check_access(self) -> None:
        """Refuse GPU memory that the adapter may not access on PCI Express."""
        if self.status is not PeerStatus.OK:
            raise VerbsError(f"Invalid argument: {self.status.meaning}", EINVAL)

    def deregister(self, buffer: NamedBuffer) -> None:
        """Deregister a buffer, but keep its key, which peers still use."""
        if buffer.region is None:
            raise VerbsError(f"{buffer.name} is not registered", EINVAL)
        self.host.nic.memory.dereg_mr(buffer.region)
        buffer.region = None


def _plain(of: MemoryRegistrar, buffer: NamedBuffer, access: tuple[str, ...] | None) -> Region:
    on_demand = buffer.plan is not None and buffer.plan.on_demand
    flags = access_of(access) | (Access.ON_DEMAND.value if on_demand else 0)
    return of.host.nic.memory.reg_mr(of.host.pd, buffer.start, buffer.length, flags)


def _by_peermem(
    of: MemoryRegistrar,
    buffer: NamedBuffer,
    access: tuple[str, ...] | None,
    *,
    persistent: bool = True,
) -> Region:
    if of.peermem:
        of.check_access()
    clients = of.host.nic.memory.clients
    clients[:] = [Peermem(of.driver, persistent=persistent)] if of.peermem else []
    try:
        return _plain(of, buffer, access)
    finally:
        clients.clear()


def _by_dmabuf(of: MemoryRegistrar, buffer: NamedBuffer, access: tuple[str, ...] | None) -> Region:
    if not of.dmabuf:
        raise VerbsError("Operation not supported: this host registers no dma-bufs", EOPNOTSUPP)
    of.check_access()
    descriptor = of.files.open(export_dmabuf(of.driver, buffer.start, buffer.length))
    wanted = DmaBufRange(0, buffer.length, buffer.start, descriptor)
    flags = access_of(access, DMABUF_FLAGS)
    return reg_dmabuf_mr(of.host.nic.memory, of.files, of.host.pd, wanted, flags)


def _by_bounce(of: MemoryRegistrar, buffer: NamedBuffer, access: tuple[str, ...] | None) -> Region:
    extent = Extent(buffer.start, buffer.start, buffer.length)
    registrar = of.host.nic.memory
    if buffer.gpu is None:
        raise VerbsError(f"{buffer.name} is no GPU's", EINVAL)
    return reg_bounce_mr(registrar, buffer.gpu, of.host.pd, extent, access_of(access))


_Way = Callable[[MemoryRegistrar, NamedBuffer, tuple[str, ...] | None], Region]

WAYS: Final[dict[str, _Way]] = {
    "peermem": _by_peermem,
    "peermem-legacy": partial(_by_peermem, persistent=False),
    "dmabuf": _by_dmabuf,
    "bounce": _by_bounce,
}
"""Registration of GPU memory by the value of ``via``."""


# Hosts.

SRQ_SGES: Final = 16

NEARBY: Final = CMSettings(response_timeout=14, packet_life=8)
"""Response timeouts of milliseconds, as hosts of a scenario are close to each other."""

_ANY_MAC: Final = "00:00:00:00:00:00"
# Python calls 95 ENOTSUP, which Linux and verbs call EOPNOTSUPP.
_ERRNOS: Final = {**errorcode, EOPNOTSUPP: "EOPNOTSUPP", ENOTSUPP: "ENOTSUPP"}


def errno_name(error: VerbsError) -> str:
    """Return the name of an error's errno."""
    return _ERRNOS.get(error.errno, str(error.errno))


def refusal(error: VerbsError | None) -> str:
    """Describe an error, or that there was none."""
    return "no refusal" if error is None else f"{errno_name(error)} ({error.reason})"


class HostRuntime:
    """One host. ``buffers`` has memory and windows by name, ``events`` counts its events.

    ``gids`` are all its addresses. ``random`` generates the random content of its memory, ``rules``
    are those of its adapter. ``bus`` are its links, if it has a topology.
    """

    def __init__(self, plan: HostPlan, place: Place, random: Random, rules: Rules) -> None:
        self.plan = plan
        self.name = plan.name
        self.host = Host(profile=named(plan.profile), place=place, rules=rules)
        self.gids = (place.gid, *(Place.of(_ANY_MAC, other).gid for other in plan.further))
        if plan.further:
            self.host.nic.gids = self.gids
            self.host.events()  # discard the resulting event
        self.port = NotifyingPort(self.host.nic)
        self.host.nic.memory.locked.limit = plan.locked_memory
        status = PeerStatus.OK if plan.topology is None else plan.topology.status
        self.registering = MemoryRegistrar(
            self.host, peermem=plan.peermem, dmabuf=plan.dmabuf, status=status
        )
        self.bus: Bus | None = None
        self.gpus: dict[str, Gpu] = {}
        for gpu in plan.gpus:
            profile = MODELS[gpu.model]
            profile = profile if gpu.bar1 is None else profile._replace(bar1=gpu.bar1)
            self.gpus[gpu.name] = self.registering.driver.add(profile)
        self.buffers: dict[str, NamedBuffer] = {}
        self.srqs: dict[str, SharedReceiveQueue] = {}
        self.events: Counter[str] = Counter()
        self._random = random
        self.domain = self.host.nic.open_xrcd() if any(srq.xrc for srq in plan.srqs) else 0

    @property
    def mac(self) -> bytes:
        return self.host.mac

    @cached_property
    def nic(self) -> NotifyingPort | DmaPort:
        """The port that is attached to the network; with a topology, its DMA takes time."""
        place = self.plan.topology
        if place is None:
            return self.port
        self.bus = Bus(place.host_machine)
        routes = adapter_routes(self.bus, place.device, place.gpu_device, place.node or 0)
        return DmaPort(self.port, self.host.nic, routes)

    def manage(self, neighbours: Neighbours, random: Random) -> None:
        managed = ManagedPort(self.host.nic, neighbours, random, NEARBY)
        self.port = NotifyingPort(self.host.nic, managed)

    def allocate(self) -> Iterator[Failure]:
        """Make the memory and the queues of the plan; yield failures."""
        for window in self.plan.windows:
            self.buffers[window.name] = buffer = NamedBuffer(f"{self.name}.{window.name}")
            buffer.window = self.host.nic.memory.alloc_mw(self.host.pd, 2)
            buffer.key = buffer.window.rkey
        for srq in self.plan.srqs:
            self.srqs[srq.name] = self._srq(srq)
        for memory in self.plan.memory:
            yield from self._memory(memory)

    def _srq(self, plan: SrqPlan) -> SharedReceiveQueue:
        nic, xrc = self.host.nic, None
        if plan.xrc:
            domain = nic.open_xrcd() if plan.other_domain else self.domain
            xrc = XRCReceiver(domain, nic.create_cq(plan.max_wr))
        srq = nic.create_srq(self.host.pd, plan.max_wr, SRQ_SGES, xrc)
        if plan.limit:
            srq.modify(limit=plan.limit)
        return srq

    def _memory(self, plan: MemoryPlan) -> Iterator[Failure]:
        self.buffers[plan.name] = buffer = NamedBuffer(f"{self.name}.{plan.name}", plan)
        buffer.length = plan.size
        try:
            self._allocate(buffer, plan)
        except VerbsError as error:
            yield Failure(plan.mark, f"memory {buffer.name}", "to be there", refusal(error))
            return
        if plan.content.fill is not Fill.ZEROS:
            self.fill(buffer, Span(self.name, plan.name), plan.content)
        if plan.registered:
            yield from self._register(buffer, plan)

    def _allocate(self, buffer: NamedBuffer, plan: MemoryPlan) -> None:
        if plan.within is not None:
            whole = self.buffers[plan.within]
            buffer.memory, buffer.start = whole.memory, whole.start + plan.offset
        elif plan.gpu is None:
            window = self.host.space.allocate(plan.size, plan.page)
            buffer.memory, buffer.start = window, window.base
        else:
            gpu = self.gpus[plan.gpu]
            buffer.start = gpu.allocate(plan.size).address
            buffer.memory = buffer.gpu = gpu
        buffer.iova = buffer.start

    def _register(self, buffer: NamedBuffer, plan: MemoryPlan) -> Iterator[Failure]:
        refused: VerbsError | None = None
        try:
            self.registering.register(buffer, plan.access)
        except VerbsError as error:
            refused = error
        if plan.refused != (refused and errno_name(refused)):
            expected = plan.refused or "no refusal"
            what = f"registration of {buffer.name}"
            yield Failure(plan.mark, what, expected, refusal(refused))

    def fill(self, buffer: NamedBuffer, span: Span, content: Content) -> None:
        offset, length = buffer.extent(span)
        for piece in bytes_of(content, length, self._random):
            buffer.write(offset, piece)
            offset += len(piece)

    def flush(self) -> None:
        """Make writes to all GPUs visible to kernels."""
        for gpu in self.gpus.values():
            gpu.flush()
