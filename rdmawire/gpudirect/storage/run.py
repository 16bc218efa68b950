"""GPUDirect Storage in virtual time: a namespace and GPU memory, with and without a bounce.

Over a fabric it is NVMe over RDMA, in real packets; within a host, the DMA of a drive. Times are
ns, sizes bytes.
"""

from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, TransferError, VerbsError
from rdmawire.fabric import Network, Registered, Simulator
from rdmawire.gpudirect.storage.controller import MAX_ENTRIES
from rdmawire.gpudirect.storage.drive import (
    BLOCK,
    MAX_NAMESPACE,
    MAX_TRANSFER,
    Drive,
    DriveCosts,
    Namespace,
)
from rdmawire.gpudirect.storage.host import StorageHost, StorageHostSpec
from rdmawire.gpudirect.storage.initiator import StorageInitiator
from rdmawire.gpudirect.storage.local import LocalQueue, contiguous
from rdmawire.gpudirect.storage.registration import CommandRegions
from rdmawire.gpudirect.storage.target import StorageTarget
from rdmawire.gpudirect.storage.workload import Executed, StorageWorkload, plan
from rdmawire.gpudirect.transfer.host import Traffic, cable_of, join, link_uses
from rdmawire.gpudirect.transfer.host_pair import check_mtu, event_limit
from rdmawire.memory.page import PAGE_4K, PAGE_64K
from rdmawire.topology import (
    Costs,
    Device,
    DeviceKind,
    LinkUse,
    Machine,
    PeerStatus,
    memory_route,
    nearest,
    peer_route,
    peer_status,
)
from rdmawire.topology.cost import H200_COSTS
from rdmawire.units import SECOND

MAX_COMMANDS: Final = 4096
_PIECE: Final = 1 << 27


class StoragePath(Enum):
    """A path of data between a namespace and a GPU."""

    FABRIC = "fabric"
    FABRIC_BOUNCE = "fabric-bounce"
    DRIVE = "drive"
    DRIVE_BOUNCE = "drive-bounce"


class StoragePlan(NamedTuple):
    """How data takes a path: over a fabric or from a drive, with a bounce or without."""

    is_remote: bool
    bounces: bool
    meaning: str


PLANS: Final[Mapping[StoragePath, StoragePlan]] = {
    StoragePath.FABRIC: StoragePlan(True, False, "NVMe over RDMA, into GPU memory"),
    StoragePath.FABRIC_BOUNCE: StoragePlan(True, True, "NVMe over RDMA, through host memory"),
    StoragePath.DRIVE: StoragePlan(False, False, "DMA of a drive, into GPU memory"),
    StoragePath.DRIVE_BOUNCE: StoragePlan(False, True, "DMA of a drive, through host memory"),
}
"""The plan of each path."""


class StorageFault(Enum):
    """What goes wrong, if anything does."""

    LBA = "lba"
    """The last command addresses blocks after the end of the namespace."""
    REVOKE = "revoke"
    """The memory of the GPU is freed after half of the commands."""


class StorageSpec(NamedTuple):
    """What is done: ``reads`` and ``writes`` of ``block_size`` bytes each, in random order.

    ``gpu`` is a GPU of ``machine``; over a fabric the target is another such host. ``queue_depth``
    commands are in progress. ``size`` is that of the namespace. ``drive`` is the name of the
    drive, by default the one nearest to the GPU or to the adapter. With ``invalidate``, memory is
    registered for each command over a fabric, and the response invalidates its key. ``rate`` is
    that of the wire in bits per second, 0 for the rate of the adapter's port; ``latency`` that of
    each of the two cables.
    """

    machine: Machine
    gpu: str
    path: StoragePath = StoragePath.FABRIC
    reads: int = 8
    writes: int = 8
    block_size: int = 1 << 16
    queue_depth: int = 8
    size: int = 1 << 24
    drive: str = ""
    fault: StorageFault | None = None
    invalidate: bool = False
    rate: int = 0
    mtu: int = 4096
    latency: int = 300
    seed: int = 0
    costs: Costs = H200_COSTS
    drive_costs: DriveCosts = DriveCosts()


class StorageReport(NamedTuple):
    """What a run took.

    ``setup`` is the time until the I/O queue was connected, ``duration`` that of all commands.
    ``copies`` is how often processors and copy engines copied each byte, ``cpu`` the time of the
    processors of the host with the GPU for the commands. ``frames``, ``wire_bytes`` and ``links``
    are of the setup, too. ``executed`` are the commands, ``errors`` the failures of
    RDMA work of the target. ``links`` is the use of links, by host, source and target.
    """

    spec: StorageSpec
    drive: str
    setup: int
    duration: int
    copies: int
    cpu: float
    frames: int
    wire_bytes: int
    executed: list[Executed]
    errors: list[str]
    links: Mapping[tuple[str, str, str], LinkUse]

    @property
    def size(self) -> int:
        """Bytes of the commands that succeeded."""
        return sum(one.status == "SUCCESS" for one in self.executed) * self.spec.block_size

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size / self.duration * SECOND if self.duration else 0.0

    @property
    def mean_latency(self) -> float:
        """Mean time (ns) of a command."""
        return sum(one.end - one.start for one in self.executed) / len(self.executed)

    @property
    def is_right(self) -> bool:
        """Whether all commands succeeded."""
        return all(one.status == "SUCCESS" for one in self.executed)


class StorageRun:
    """A run; :meth:`run` does it, once. ``network`` carries its packets.

    Raises :class:`TransferError` if the host does not have this path.
    """

    def __init__(self, spec: StorageSpec) -> None:
        _check(spec)
        self.spec = spec
        self.plan = PLANS[spec.path]
        count = spec.reads + spec.writes
        limit = event_limit(count * spec.block_size)
        self.network = Network(Simulator(event_limit=limit), seed=spec.seed)
        self._traffic = Traffic()
        self._setup_at = 0
        self._cpu = 0.0
        self._end_at: int | None = None
        random = Random(spec.seed)  # noqa: S311 - repeatable
        self._namespace = Namespace(_data(random, spec.size))
        self._host = self._make_host("host", 1)
        self._hosts = [self._host]
        self._host.allocate(max(count * spec.block_size, 1 << 21))
        self._host.fill(_data(random, count * spec.block_size))
        self._target: StorageTarget | None = None
        self._initiator: StorageInitiator | None = None
        if self.plan.is_remote:
            self._join()
        self._staging = self._staged()
        self._workload = self._make_workload()
        self._drive = self._connect()

    def _make_host(self, name: str, number: int) -> StorageHost:
        host = StorageHostSpec(self.spec.machine, _gpu(self.spec), self.spec.costs)
        return StorageHost(name, number, host, self.network.simulator)

    def _staged(self) -> Registered | None:
        """Return the pinned memory of a bounce, if there is one."""
        if not self.plan.bounces:
            return None
        return self._host.host.buffer(self.spec.queue_depth * self.spec.block_size)

    def _make_workload(self) -> StorageWorkload:
        spec = self.spec
        count = spec.reads + spec.writes
        accesses = plan(spec.reads, spec.writes, spec.block_size, self._namespace.blocks, spec.seed)
        if spec.fault is StorageFault.LBA:
            accesses[-1] = accesses[-1]._replace(slba=self._namespace.blocks)
        revoke_at = max(count // 2, 1) if spec.fault is StorageFault.REVOKE else None
        made = StorageWorkload(
            accesses,
            spec.block_size,
            spec.queue_depth,
            self._host,
            self._namespace,
            self._staging,
            revoke_at,
        )
        made.on_end = self._ended
        return made

    # Over a fabric.

    def _join(self) -> None:
        """Join the host and the target by a switch."""
        spec, network = self.spec, self.network
        self._hosts.append(self._make_host("target", 2))
        neighbours = {host.host.gid: host.mac for host in self._hosts}
        for host in self._hosts:
            host.manage(network.wake, neighbours.get, spec.seed)
        ports = {host.name: host for host in self._hosts}
        self._traffic = join(network, ports, cable_of(self._host, spec.rate, spec.latency))

    def _connect(self) -> str:
        """Prepare what carries the commands; return the name of the drive."""
        return self._connect_remote() if self.plan.is_remote else self._connect_local()

    def _connect_remote(self) -> str:
        spec, (host, target) = self.spec, self._hosts
        device = _drive(spec, target.adapter)
        route = target.bus.route(memory_route(spec.machine, device, target.node))
        drive = self._make_drive(target)
        self._target = StorageTarget(target, drive, route, spec.mtu, spec.block_size)
        path = host.host.path_to(target.host)
        self._initiator = StorageInitiator(host, path, spec.queue_depth + 1, spec.mtu)
        self._initiator.memory = self._staging or host.registered()
        if spec.invalidate:
            self._initiator.regions = self._regions(self._initiator.memory)
        self._initiator.on_ready = self._ready
        self._workload.submit = self._initiator.submit
        return device.name

    def _regions(self, memory: Registered) -> CommandRegions:
        """Return regions for the commands, in pages of the host or of the GPU."""
        spec, size = self.spec, memory.region.length
        if self._staging is None:
            page_size, pages = PAGE_64K, list(self._host.bus_addresses(size))
        else:
            end = memory.address + size
            page_size, pages = PAGE_4K, list(range(memory.address, end, PAGE_4K))
        return CommandRegions(
            self._host, memory.address, pages, page_size, spec.queue_depth, spec.block_size
        )

    def _make_drive(self, host: StorageHost) -> Drive:
        simulator = self.network.simulator
        return Drive(self._namespace, host.host.space, simulator, self.spec.drive_costs)

    # Within the host.

    def _connect_local(self) -> str:
        spec, host = self.spec, self._host
        gpu = host.device
        device = _drive(spec, gpu)
        memory = host.bus.route(memory_route(spec.machine, device, host.node))
        if self._staging is not None:
            base, data = self._staging.address, memory
        else:
            status = peer_status(spec.machine, device, gpu)
            if status is not PeerStatus.OK:
                raise TransferError(f"{device.name} may not access {gpu.name}: {status.meaning}")
            count = (spec.reads + spec.writes) * spec.block_size
            base = contiguous(list(host.bus_addresses(count)))
            data = host.bus.route(peer_route(spec.machine, device, gpu))
        drive = self._make_drive(host)
        queue = LocalQueue(host, drive, spec.queue_depth, memory, data, base)
        self._workload.submit = queue.submit
        return device.name

    # The run.

    def run(self) -> StorageReport:
        """Do it, and check all bytes of the namespace and of the GPU's memory.

        Raises :class:`TransferError` if no connection can be made, or if data is wrong.
        """
        simulator = self.network.simulator
        begin = self._ready if self._initiator is None else self._initiator.start
        simulator.call_at(0, begin)
        try:
            simulator.run()
        except FabricError as error:
            raise TransferError(f"the run does not end: {error}") from error
        if self._end_at is None:
            raise TransferError("some commands have no response")
        self._workload.check()
        return self._report(self._end_at)

    def _ready(self) -> None:
        self._setup_at = self.network.simulator.now
        self._cpu = -self._host.cpu
        self._workload.start()

    def _ended(self) -> None:
        self._end_at = self.network.simulator.now
        self._cpu += self._host.cpu
        if self._initiator is not None:
            self._initiator.close()

    def _report(self, end: int) -> StorageReport:
        executed = [one for one in self._workload.executed if one is not None]
        return StorageReport(
            self.spec,
            self._drive,
            self._setup_at,
            end - self._setup_at,
            -(-self._host.copies // len(executed)),
            self._cpu,
            self._traffic.frames,
            self._traffic.bytes,
            executed,
            self._target.errors if self._target else [],
            link_uses(self._hosts),
        )


def _data(random: Random, size: int) -> bytes:
    """Return random bytes, in pieces: ``randbytes`` makes less than 256 MiB at once."""
    return b"".join(random.randbytes(min(_PIECE, size - at)) for at in range(0, size, _PIECE))


def _gpu(spec: StorageSpec) -> Device:
    gpu = spec.machine.device(spec.gpu)
    if gpu.kind is not DeviceKind.GPU:
        raise TransferError(f"{spec.gpu} is no GPU")
    return gpu


def _drive(spec: StorageSpec, beside: Device) -> Device:
    """Return the drive of a run: by its name, or the one nearest to a device."""
    if spec.drive:
        drive = spec.machine.device(spec.drive)
        if drive.kind is not DeviceKind.NVME:
            raise TransferError(f"{spec.drive} is no NVMe drive")
        return drive
    drives = nearest(spec.machine, beside, DeviceKind.NVME)
    if not drives:
        raise TransferError("the host has no NVMe drive")
    return drives[0]


def _check(spec: StorageSpec) -> None:
    count, size = spec.reads + spec.writes, spec.block_size
    if min(spec.reads, spec.writes) < 0 or not 0 < count <= MAX_COMMANDS:
        raise TransferError(f"{count} commands; 1 to {MAX_COMMANDS} are supported")
    if size % BLOCK or not 0 < size <= MAX_TRANSFER:
        raise TransferError(
            f"commands of {size} bytes; they are a multiple of {BLOCK}, up to {MAX_TRANSFER}"
        )
    if not 0 < spec.queue_depth < MAX_ENTRIES:
        raise TransferError(
            f"{spec.queue_depth} commands in progress; 1 to {MAX_ENTRIES - 1} are supported"
        )
    _check_namespace(spec, count * size)
    check_mtu(spec.mtu)
    if spec.fault is StorageFault.REVOKE:
        _check_revocation(spec)


def _check_revocation(spec: StorageSpec) -> None:
    if PLANS[spec.path].bounces:
        raise TransferError("memory of the GPU is revoked only on a path without a bounce")
    if spec.reads + spec.writes < 2:
        raise TransferError("memory of the GPU is revoked between commands: take 2 or more")


def _check_namespace(spec: StorageSpec, size: int) -> None:
    """Raise :class:`TransferError` for a namespace without room for ``size`` bytes of commands."""
    if spec.size % BLOCK or not 0 < spec.size <= MAX_NAMESPACE:
        raise TransferError(
            f"a namespace of {spec.size} bytes; it is a multiple of {BLOCK}, up to {MAX_NAMESPACE}"
        )
    if size > spec.size:
        count = spec.reads + spec.writes
        raise TransferError(
            f"{count} commands of {spec.block_size} bytes; each has other blocks of {spec.size}"
        )


def storage(spec: StorageSpec) -> StorageReport:
    """Do a run; return what it took.

    Raises :class:`TransferError` if the host does not have this path, or if it fails.
    """
    try:
        return StorageRun(spec).run()
    except VerbsError as error:
        raise TransferError(f"{spec.path.value}: {error}") from error
