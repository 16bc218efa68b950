"""Collective operations of GPUs on several hosts, as packets, in a network of their own."""

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
from rdmawire.gpudirect.nccl.collective import MAX_RANKS, CollectiveSpec
from rdmawire.gpudirect.nccl.hosted import CollectiveWork, HostedCollective, RankAdapter
from rdmawire.gpudirect.nccl.node import Nodes
from rdmawire.gpudirect.nccl.plan import EdgeId

_LEAVES: Final = ("leaf1", "leaf2")
_UNLIMITED: Final = SwitchSettings(buffer=1 << 50, queue=1 << 50)
"""A switch that loses nothing for want of buffers: networks of GPUs have PFC or credits."""
_PACKET: Final = 4096
MAX_SIZE: Final = 1 << 30
"""Bytes of an operation in packets: values are kept in memory."""


class NetworkAdapter(RankAdapter):
    """An adapter, and its port of the network: frames to itself, which flush, do not leave it."""

    def __init__(self, name: str, number: int, network: Network) -> None:
        super().__init__(name, Host(place=place_of(number + 1)))
        self.mac = self.host.mac
        self.nic = LoopbackPort(
            self.host.nic,
            self.mac,
            network.simulator.call_at,
            partial(network.wake, name),
        )


class CollectiveRun(HostedCollective):
    """A collective operation in virtual time; ``network`` has a host for each adapter.

    ``cable`` is that of each adapter to its switch, and of the spines. :meth:`run` may be called
    once.
    """

    adapters: list[NetworkAdapter]

    def __init__(self, spec: CollectiveSpec, cable: Cable) -> None:
        spec.check(MAX_RANKS)
        if spec.size > MAX_SIZE:
            raise CollectiveError(
                f"{spec.size} bytes as packets; at most {MAX_SIZE} are supported: take --flows"
            )
        work = CollectiveWork.of(spec)
        limit = _event_limit(spec, work.messages, work.sent)
        switches = replace(_UNLIMITED, balancing=spec.balancing)
        network = Network(Simulator(event_limit=limit), seed=spec.seed, settings=switches)
        super().__init__(spec, network, _adapters(spec, network, cable), work)

    def lose(self, share: float) -> None:
        """Let each link lose this share of its frames, at random by the seed."""
        for link in self.network.links if share else ():
            self.network.set_faults(link, Rule("drop", chance=share))

    def run(self) -> int:
        """Do it; return the virtual time (ns) until the last result was stored.

        Raises :class:`~rdmawire.errors.CollectiveError` if a connection fails, or if a result is
        wrong.
        """
        for adapter in self.adapters:
            adapter.nic.on_taken.append(partial(self._taken, adapter))
        self.start()
        self.network.simulator.run()
        return self.finish()

    def _taken(self, adapter: NetworkAdapter, frame: bytes, _now: int) -> None:
        self.take(adapter, frame)


def _adapters(spec: CollectiveSpec, network: Network, cable: Cable) -> list[NetworkAdapter]:
    """Return the adapters of all hosts, and that of a switch that adds, in the network."""
    leaves = _add_switches(spec, network, cable)
    nodes = Nodes(spec)
    rates = nodes.layout.rates * spec.hosts
    cables = [cable._replace(rate=_slower(cable.rate, rate)) for rate in rates]
    if nodes.aggregation is not None:
        cables.append(Cable())
    adapters = []
    for number, wire in enumerate(cables):
        name = f"host{number}" if number < len(rates) else "aggregation"
        adapters.append(adapter := NetworkAdapter(name, number, network))
        network.add_host(name, adapter)
        network.join(name, leaves[number % len(leaves)], wire.link())
    network.find_routes()
    return adapters


def _add_switches(spec: CollectiveSpec, network: Network, cable: Cable) -> tuple[str, ...]:
    """Add one leaf, or two and the spines between them; return the leaves."""
    leaves = _LEAVES if spec.spines else _LEAVES[:1]
    for leaf in leaves:
        network.add_switch(leaf)
    for number in range(1, spec.spines + 1):
        network.add_switch(f"spine{number}")
        for leaf in leaves:
            network.join(leaf, f"spine{number}", cable.link())
    return leaves


def _slower(rate: int | None, other: float | None) -> int | None:
    """Return the rate of a link (bits per second) that is no faster than ``other`` bytes."""
    if other is None:
        return rate
    return round(other * 8) if rate is None else min(rate, round(other * 8))


def _event_limit(spec: CollectiveSpec, messages: Counter[EdgeId], sent: Counter[int]) -> int:
    """Return more events than an operation without losses can have: many for each packet."""
    packets = 2 * sent.total() * spec.itemsize // _PACKET
    return 1_000_000 + 100 * (packets + messages.total())
