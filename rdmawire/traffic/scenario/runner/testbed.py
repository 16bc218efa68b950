"""The testbed of a scenario: the network, hosts, memory and queue pairs made from its plan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from types import MappingProxyType
from typing import Final, cast

from rdmawire.decode import PROTOCOLS, Protocols, opcodes_of
from rdmawire.errors import MemoryFault
from rdmawire.fabric.classify import BY_CLASS_SELECTOR
from rdmawire.fabric.fault import Faults, Rule, Wanted
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Delivery, Link
from rdmawire.fabric.network import Network
from rdmawire.fabric.simulator import Simulator
from rdmawire.fabric.switch_config import Marking, Pausing, SwitchSettings
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.traffic.scenario.consistency import headroom_of, places_of
from rdmawire.traffic.scenario.document import Failure
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.collective import COLLECTIVES, load_of
from rdmawire.traffic.scenario.model.connection import ConnectionPlan
from rdmawire.traffic.scenario.model.expectation import MemoryExpectation
from rdmawire.traffic.scenario.model.network import FaultPlan, SwitchPlan
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.runner.endpoint import WAYS, QueuePairRuntime
from rdmawire.traffic.scenario.runner.host_runtime import HostRuntime, NamedBuffer
from rdmawire.traffic.scenario.types import End, Span
from rdmawire.wire import serial
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.packet import OpcodeTable


def requests_of(opcodes: OpcodeTable) -> frozenset[int]:
    """Opcodes of requests; responses have the PSNs of the other side."""
    shapes = ((opcode, layout.shape) for opcode, layout in opcodes.items())
    return frozenset(opcode for opcode, shape in shapes if shape and not shape.response)


class LinkFaults(Faults):
    """Faults that count the frames they lose."""

    def __init__(self, rules: Iterable[Rule], random: Random, protocols: Protocols) -> None:
        super().__init__(rules, random, protocols=protocols)
        self.lost = 0

    def apply(self, frame: Envelope, number: int) -> list[Delivery]:
        """Apply all rules to the frame with this number on its link."""
        deliveries = super().apply(frame, number)
        self.lost += not deliveries
        return deliveries

    def hits(self, do: str) -> int:
        """Return how many frames one type of fault changed."""
        return sum(rule.hits for rule in self.rules if rule.do == do)


EVENTS: Final = 1_000_000
EVENTS_PER_PACKET: Final = 256
"""Frames and timers after which a run is stopped: ``EVENTS``, and more for each packet."""


class Testbed:
    """The network, hosts and queue pairs of a scenario.

    ``rules`` are those of the adapters of some hosts, by name; ``protocols`` say what carries what
    in frames. ``failures`` are those met while it was built. ``endpoints`` has the queue pairs of
    each connection's first end, in order. ``initial`` has the bytes of memory that must not change,
    by the id of the expectation.
    """

    def __init__(
        self,
        scenario: Scenario,
        rules: Mapping[str, Rules] = MappingProxyType({}),
        protocols: Protocols = PROTOCOLS,
    ) -> None:
        self.scenario = scenario
        self.protocols = protocols
        self._rules = rules
        self.network = Network(
            Simulator(time_limit=scenario.time_limit, event_limit=_event_limit(scenario)),
            seed=scenario.seed,
        )
        self.machines: dict[str, HostRuntime] = {}
        self.endpoints: dict[str, list[QueuePairRuntime]] = {}
        self.faults: dict[str, LinkFaults] = {}
        self.failures: list[Failure] = []
        self._add_hosts()
        self._add_links()
        for machine in self.machines.values():
            self.failures.extend(machine.allocate())
        for plan in scenario.connections:
            self.endpoints[plan.name] = self._endpoints_of(plan)
        self.initial = dict(self._unchanged())

    def _unchanged(self) -> Iterator[tuple[int, bytes]]:
        for plan in self.scenario.expectations:
            if isinstance(plan, MemoryExpectation) and plan.is_unchanged:
                buffer = self.buffer(plan.span)
                with suppress(MemoryFault):  # memory that is not there yet is not expected
                    yield id(plan), buffer.read(*buffer.extent(plan.span))

    # The network.

    def _add_hosts(self) -> None:
        scenario, network = self.scenario, self.network
        managed = {
            host
            for plan in scenario.connections
            if WAYS[plan.connect].managed
            for host in plan.ends
        }
        neighbours: dict[bytes, bytes] = {}
        places = places_of(scenario.hosts)
        for plan, place in zip(scenario.hosts, places, strict=True):
            random = network.random(f"memory of {plan.name}")
            rules = self._rules.get(plan.name, STANDARD)
            machine = HostRuntime(plan, place, random, rules)
            neighbours.update(dict.fromkeys(machine.gids, machine.mac))
            if plan.name in managed:
                machine.manage(neighbours.get, network.random(f"connections of {plan.name}"))
            self.machines[plan.name] = machine
            network.add_host(plan.name, machine)

    def _add_links(self) -> None:
        add_links(self.network, self.scenario)

    def install_faults(self) -> None:
        opcodes = opcodes_of(self.protocols)
        for link in self.scenario.links:
            rules = [self._rule(plan, opcodes) for plan in link.faults]
            self.faults[link.name] = install_faults(self.network, link.name, rules, self.protocols)

    def _rule(self, plan: FaultPlan, opcodes: OpcodeTable) -> Rule:
        """Return the rule of a fault. Its own ``where`` overrides the fields of its sender."""
        where: dict[str, object] = {}
        per: tuple[str, ...] = ()
        if plan.sent_by is not None:
            endpoints = self.endpoints_at(plan.sent_by)
            receivers = tuple(endpoint.peer.qp.qp_num for endpoint in endpoints)
            where = {"eth.src": endpoints[0].machine.mac, "bth.destqp": receivers}
            if plan.packet:
                first = endpoints[0].attributes.sq_psn
                psns = tuple(serial.add(first, place - 1) for place in plan.packet)
                where |= {"bth.psn": psns, "bth.opcode": requests_of(opcodes)}
                per = ("bth.destqp", "bth.psn")
        return rule_of(plan, where, per)

    # Queue pairs.

    def _endpoints_of(self, plan: ConnectionPlan) -> list[QueuePairRuntime]:
        depth = self._depth(plan)
        endpoints = []
        for number in range(1, plan.count + 1):
            one, other = (
                QueuePairRuntime(self.machines[host], plan, side, number, depth)
                for side, host in enumerate(plan.ends)
            )
            one.peer, other.peer = other, one
            for endpoint in (one, other):
                endpoint.agree()
                endpoint.control(self.network.macs[endpoint.machine.name].egress.rate)
            endpoints.append(one)
        return endpoints

    def _depth(self, plan: ConnectionPlan) -> int:
        """Return the largest number of outstanding work requests of a connection's steps."""
        wanted = [
            step.depth or 0
            for step in self.scenario.steps
            if step.end is not None and step.end.connection == plan.name
        ]
        return max((sum(receive.count for receive in plan.receives), *wanted))

    def endpoints_at(self, end: End) -> list[QueuePairRuntime]:
        endpoints = self.endpoints[end.connection]
        chosen = endpoints if end.number is None else endpoints[end.number - 1 : end.number]
        first = endpoints[0].machine.name == end.host
        return chosen if first else [endpoint.peer for endpoint in chosen]

    def endpoints_of(self, step: StepPlan) -> list[QueuePairRuntime]:
        """Return the queue pairs of a step; none for a step that has no end."""
        return [] if step.end is None else self.endpoints_at(step.end)

    def all_endpoints(self) -> Iterator[QueuePairRuntime]:
        for endpoints in self.endpoints.values():
            for endpoint in endpoints:
                yield endpoint
                yield endpoint.peer

    def wake(self, machine: HostRuntime) -> None:
        """Let the network transmit the frames that a host has queued."""
        if machine.name in self.network.attachments:
            self.network.wake(machine.name)

    def buffer(self, span: Span) -> NamedBuffer:
        return self.machines[span.host].buffers[span.memory]


def add_links(network: Network, scenario: Scenario) -> None:
    """Add the switches and links of a scenario to a network that has its hosts."""
    for switch in scenario.switches:
        room = headroom_of(switch.name, scenario.links, scenario.connections, scenario.steps)
        network.add_switch(switch.name, _settings(switch, room))
    for link in scenario.links:
        laid = Link(link.latency, rate=link.rate, mtu=link.mtu)
        network.join(*link.ends, laid)
    network.find_routes()


def install_faults(
    network: Network, link: str, rules: Sequence[Rule], protocols: Protocols = PROTOCOLS
) -> LinkFaults:
    """Give a link its faults, if it has any. Return them, which count."""
    faults = LinkFaults(rules, network.random(f"faults of {link}"), protocols)
    if rules:
        network.links[link].faults = faults
    return faults


def rule_of(
    plan: FaultPlan, where: Mapping[str, object] = MappingProxyType({}), per: tuple[str, ...] = ()
) -> Rule:
    """Return the rule of a fault; its own ``where`` overrides these fields."""
    wanted = cast(Mapping[str, Wanted], dict(where) | dict(plan.where))
    return Rule(plan.do, wanted, nth=plan.nth, per=per, chance=plan.chance, **plan.options)


def _event_limit(scenario: Scenario) -> int:
    """Return an event limit that is enough for all work with the smallest MTU."""
    sizes = {
        (host.name, memory.name): memory.size for host in scenario.hosts for memory in host.memory
    }
    counts = {plan.name: plan.count for plan in scenario.connections}
    packets = 0
    for step in scenario.steps:
        if step.verb in COLLECTIVES:
            load = load_of(step.verb, step.values)
            packets += load.bytes // PATH_MTUS[0] + load.messages
            continue
        size = sum(
            sizes.get((span.host, span.memory), 0) if span.length is None else span.length
            for span in step.local
        )
        ends = counts.get(step.end.connection, 1) if step.end is not None else 1
        packets += step.times * ends * (size // PATH_MTUS[0] + 1)
    return EVENTS + EVENTS_PER_PACKET * packets


def _settings(plan: SwitchPlan, headroom: int) -> SwitchSettings:
    """Return a switch's settings; without given queues, DSCPs have their default priorities.

    ``headroom`` (bytes) is for queues without their own. A switch that does not trust DSCPs has no
    priorities for them.
    """
    by_dscp = {dscp: queue.priority for queue in plan.queues for dscp in queue.dscp}
    if not plan.queues:
        by_dscp = dict(BY_CLASS_SELECTOR)
    return SwitchSettings(
        plan.buffer,
        plan.queue,
        priorities=by_dscp if plan.trust == "dscp" else {},
        marking={
            queue.priority: Marking(queue.kmin, queue.kmax, queue.pmax)
            for queue in plan.queues
            if queue.kmin is not None and queue.kmax is not None
        },
        pausing={
            queue.priority: Pausing(
                queue.xoff, queue.xon, headroom if queue.headroom is None else queue.headroom
            )
            for queue in plan.queues
            if queue.xoff is not None and queue.xon is not None
        },
        scheduling=plan.scheduling,
        balancing=plan.balancing,
    )
