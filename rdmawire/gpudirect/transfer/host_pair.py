"""Two hosts with a GPU each, joined by a switch."""

from typing import Protocol

from rdmawire.errors import TransferError
from rdmawire.fabric import Network, Simulator
from rdmawire.gpudirect.transfer.host import TransferHost, cable_of, join
from rdmawire.topology import Costs, DeviceKind, Machine
from rdmawire.wire.management import PATH_MTUS


class PairEnds(Protocol):
    """What two hosts are, both such machines, and the path MTU between them (bytes).

    ``source`` and ``target`` are GPUs by their names.
    """

    @property
    def machine(self) -> Machine: ...

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def mtu(self) -> int: ...


class PairSpec(PairEnds, Protocol):
    """Two hosts, and the network between them.

    ``rate`` is that of the wire in bits per second, 0 for that of the adapter's port; ``latency``
    (ns) that of each of the two cables.
    """

    @property
    def rate(self) -> int: ...

    @property
    def latency(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def costs(self) -> Costs: ...


def check_pair(spec: PairEnds) -> None:
    """Raise :class:`TransferError` for ends that are no GPUs, and for a path MTU that is none."""
    for name in (spec.source, spec.target):
        if spec.machine.device(name).kind is not DeviceKind.GPU:
            raise TransferError(f"{name} is no GPU")
    check_mtu(spec.mtu)


def check_mtu(mtu: int) -> None:
    """Raise :class:`TransferError` for a path MTU (bytes) that is none."""
    if mtu not in PATH_MTUS:
        known = ", ".join(map(str, PATH_MTUS))
        raise TransferError(f"a path MTU of {mtu}; there are {known}")


def event_limit(size: int, repeat: int = 1) -> int:
    """Return more events than ``repeat`` transfers of ``size`` bytes have: many for each packet."""
    return 1_000_000 + 100 * repeat * (size // 256 + 10)


class HostPair:
    """Two hosts of these names, and their network, for a transfer of ``size`` bytes.

    ``traffic`` counts the frames of both.
    """

    def __init__(self, spec: PairSpec, names: tuple[str, str], size: int) -> None:
        check_pair(spec)
        self.network = Network(Simulator(event_limit=event_limit(size)), seed=spec.seed)
        gpus = (spec.source, spec.target)
        self.hosts = [
            TransferHost(name, number, spec.machine, spec.machine.device(gpu), spec.costs)
            for number, (name, gpu) in enumerate(zip(names, gpus, strict=True), 1)
        ]
        ports = {host.name: host for host in self.hosts}
        cable = cable_of(self.hosts[0], spec.rate, spec.latency)
        self.traffic = join(self.network, ports, cable)
