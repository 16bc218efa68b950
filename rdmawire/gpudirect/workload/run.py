"""A run of a workload, as packets or as flows, and what it took."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from rdmawire.errors import WorkloadError
from rdmawire.fabric import Cable, Network, Rule, Simulator, SwitchSettings
from rdmawire.gpudirect.message_time import EFFICIENCY, wire_volume
from rdmawire.gpudirect.transfer.host import Traffic
from rdmawire.gpudirect.workload.flows import FlowCarrier
from rdmawire.gpudirect.workload.graph import Kind, Workload, check_workload
from rdmawire.gpudirect.workload.lowering import Hop, lower
from rdmawire.gpudirect.workload.packets import PacketCarrier, check_ranks
from rdmawire.gpudirect.workload.placement import (
    MAX_ADAPTERS,
    LinkId,
    Placement,
    RankPlace,
    plain_machine,
)
from rdmawire.gpudirect.workload.replay import EAGER, MessageCosts, RankMessage, Replay
from rdmawire.topology import Machine
from rdmawire.units import gbps

_NO_LIMIT: Final = 1 << 62
_ROOMY: Final = SwitchSettings(buffer=1 << 40, queue=1 << 40)
"""The switch drops no frame."""


class WorkloadSpec(NamedTuple):
    """How a workload is run: as packets, or with ``flows`` as flows.

    ``machine`` is the host that all hosts are like; without one, a host has just the GPUs that are
    needed, all joined by NVLinks, with an adapter each. ``gpus`` are the ranks of a host, 0 for one
    on each GPU of ``machine``, or one without it. ``rate`` (bits per second) is that of cables, 0
    for the rate of the adapter's port; ``latency`` (ns) that of each of the two cables. Messages of
    up to ``eager`` bytes are sent before their receive is posted; ``overhead``, ``gap`` (ns) and
    ``buffered`` are those of :class:`MessageCosts`. ``loss`` is the share of frames that are lost
    on each link.
    """

    machine: Machine | None = None
    gpus: int = 0
    flows: bool = False
    rate: int = 0
    latency: int = 300
    eager: int = EAGER
    loss: float = 0.0
    seed: int = 0
    overhead: int = 0
    gap: int = 0
    buffered: bool = False

    @property
    def costs(self) -> MessageCosts:
        """What messages cost beside their bytes."""
        return MessageCosts(self.eager, self.overhead, self.gap, self.buffered)


class WorkloadReport(NamedTuple):
    """What a workload took: ``ranks`` is when each rank ended (ns), ``duration`` the last of these.

    ``links`` are the bytes of messages on each link, ``frames`` and ``wire_bytes`` those that
    adapters sent, 0 of flows.
    """

    duration: int
    ranks: list[int]
    messages: int
    message_bytes: int
    links: Mapping[LinkId, int]
    frames: int
    wire_bytes: int


class WorkloadRun:
    """A workload in virtual time; :meth:`run` may be called once. ``network`` has its packets.

    Raises :class:`WorkloadError` for a workload that cannot be run: unmatched messages, cycles.
    """

    def __init__(self, workload: Workload, spec: WorkloadSpec = WorkloadSpec()) -> None:  # noqa: B008
        if min(spec.gpus, spec.rate, spec.latency, spec.eager, spec.overhead, spec.gap) < 0:
            raise WorkloadError("a number of GPUs, a rate, a time or a size below 0")
        self.spec = spec
        self.network: Network | None = None
        if not spec.flows:
            check_ranks(workload)
        self._placement = _placement(workload, spec)
        workload = lower(workload, flows=spec.flows, hop=self._hop, seed=spec.seed)
        check_workload(workload)
        self.workload = workload
        self._volumes: Counter[tuple[int, int, int]] = Counter()
        self._messages = self._message_bytes = 0
        simulator = Simulator(time_limit=_NO_LIMIT, event_limit=_NO_LIMIT)
        self._replay = Replay(workload, simulator, spec.costs, self._transfer_time)
        self._replay.on_message = self._count
        self._packets: PacketCarrier | None = None
        if spec.flows:
            self._replay.carrier = FlowCarrier(self._replay, self._placement)
        else:
            self.network = Network(simulator, seed=spec.seed, settings=_ROOMY)
            self._packets = PacketCarrier(self._replay, self._placement, self.network, spec.seed)
            self._replay.carrier = self._packets

    @property
    def places(self) -> list[RankPlace]:
        """Where the ranks are."""
        return [self._placement.place(rank) for rank in range(self._placement.ranks)]

    @property
    def now(self) -> int:
        """The virtual time (ns)."""
        return self._replay.simulator.now

    def _transfer_time(self, message: RankMessage) -> int:
        """Return the time (ns) of the bytes of a message, with the headers of its packets."""
        route = self._placement.message_route(message.source, message.target, message.nic)
        volume = wire_volume(message.size) / EFFICIENCY if route.wired else message.size
        return round(self._placement.transfer_time(route, volume))

    def _hop(self, source: int, target: int, size: int) -> Hop:
        """Return what a message of ``size`` bytes takes that finds all links free."""
        route = self._placement.message_route(source, target, 0)
        trip = route.dma + route.cables + 2 * self.spec.overhead
        transfer = self._placement.transfer_time(route, size)
        gap = max(self.spec.gap - transfer, 0.0)
        if size <= self.spec.eager:
            return Hop(trip, gap, transfer)
        return Hop(trip + 2 * route.cables, max(trip + route.cables, gap), transfer)

    def _count(self, message: RankMessage) -> None:
        operation = self.workload.ranks[message.source][message.index]
        self._messages += operation.count
        self._message_bytes += message.size
        self._volumes[message.source, message.target, message.nic] += message.size

    def _links(self) -> dict[LinkId, int]:
        """Return the bytes of messages on each link."""
        found: Counter[LinkId] = Counter()
        for (source, target, nic), size in self._volumes.items():
            found.update(
                dict.fromkeys(self._placement.message_route(source, target, nic).links, size)
            )
        return dict(sorted(found.items()))

    def run(self) -> WorkloadReport:
        """Run it, and check the data of messages and the results of collectives.

        Raises :class:`WorkloadError` for operations that wait forever, failed connections and wrong
        results.
        """
        if self.network is not None and self.spec.loss:
            for link in self.network.links:
                self.network.set_faults(link, Rule("drop", chance=self.spec.loss))
        ranks = self._replay.run()
        traffic = self._packets.traffic if self._packets else Traffic()
        return WorkloadReport(
            max(ranks, default=0),
            ranks,
            self._messages,
            self._message_bytes,
            self._links(),
            traffic.frames,
            traffic.bytes,
        )


def _placement(workload: Workload, spec: WorkloadSpec) -> Placement:
    ranks = len(workload.ranks)
    machine, gpus = spec.machine, spec.gpus
    if machine is None:
        gpus = gpus or 1
        machine = plain_machine(gpus, _adapters(workload), spec.rate or gbps(400))
    gpus = gpus or len(machine.gpus)
    return Placement(ranks, machine, gpus, Cable(spec.latency, spec.rate or None))


def _adapters(workload: Workload) -> int:
    """Return how many adapters a rank uses."""
    most = max(
        (one.nic for rank in workload.ranks for one in rank if one.kind is Kind.SEND), default=0
    )
    return min(most + 1, MAX_ADAPTERS)
