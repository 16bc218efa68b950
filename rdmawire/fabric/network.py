"""Networks: hosts, switches and links by name, and the ways between them.

::

    network = Network(seed=7)
    network.add_switch("leaf")
    for name in ("a", "b"):
        network.add_host(name)
        network.join(name, "leaf", Link(us(1), rate=gbps(100)))
    network.find_ways()
"""

from collections import deque
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Protocol

from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.flow import Classifier
from rdmawire.fabric.forwarding import Ports
from rdmawire.fabric.link import Link
from rdmawire.fabric.mac import Adapter, Mac
from rdmawire.fabric.refusal import FabricError
from rdmawire.fabric.settings import Settings
from rdmawire.fabric.station import Station, Tap
from rdmawire.fabric.switch import Switch, SwitchPort
from rdmawire.fabric.world import World
from rdmawire.identifier import Count


class Machine(Protocol):
    """What a host is to a network."""

    @property
    def mac(self) -> bytes: ...

    @property
    def nic(self) -> Adapter: ...


class Network:
    """A world with names.

    ``seed`` is for all that is random: each switch and each link has a generator of its own, made
    of the seed and its name, so that what one does changes nothing for the others. A link is
    called by its ends, ``"a-leaf"``; a port of a switch by the switch and the other end,
    ``"leaf:a"``. ``settings`` are those of switches that are given none.
    """

    def __init__(
        self, world: World | None = None, *, seed: int = 0, settings: Settings | None = None
    ) -> None:
        self.world = World() if world is None else world
        self.seed = seed
        self.settings = Settings() if settings is None else settings
        self.hosts: dict[str, Machine] = {}
        self.switches: dict[str, Switch] = {}
        self.links: dict[str, Link] = {}
        self.ports: dict[str, SwitchPort] = {}
        self.macs: dict[str, Mac] = {}
        self.stations: dict[str, Station] = {}
        self._edges: dict[str, dict[str, SwitchPort | None]] = {}
        self._trees: dict[str, set[str]] = {}
        self._numbers = Count(0)
        self._classifier = Classifier(self.settings.priorities)

    def random(self, name: str) -> Random:
        """The generator that is called so."""
        return Random(f"{self.seed}/{name}")  # noqa: S311 - repeatable is what it must be

    def add_host(self, name: str, machine: Machine) -> None:
        """One more host. It can be on one link."""
        self._add(name)
        self.hosts[name] = machine

    def add_switch(self, name: str, settings: Settings | None = None) -> Switch:
        """One more switch."""
        self._add(name)
        mine = self.settings if settings is None else settings
        draws = self.random(f"arbiters of {name}")
        self.switches[name] = switch = Switch(name, mine, self.random(name), draws)
        self._trees[name] = {name}
        return switch

    def _add(self, name: str) -> None:
        if name in self._edges:
            raise FabricError(f"{name!r} is there already")
        self._edges[name] = {}

    def join(self, one: str, other: str, link: Link) -> Link:
        """Lay a link between two, from now on called by their names.

        Frames to addresses that no switch was told of take no link that closes a loop.
        """
        name = f"{one}-{other}"
        if other in self._neighbours(one) or one in self._neighbours(other):
            raise FabricError(f"link {name!r} is there already")
        link.name = name
        self.links[name] = link
        spans = self._spans(one, other)
        for end, peer in ((one, other), (other, one)):
            self._edges[end][peer] = self._attach(end, peer, link, spans=spans)
        return link

    def _spans(self, one: str, other: str) -> bool:
        """Whether a link joins what was not joined before: such links are a spanning tree."""
        if one not in self.switches or other not in self.switches:
            return True
        few, many = sorted((self._trees[one], self._trees[other]), key=len)
        if few is many:
            return False
        many |= few
        self._trees.update(dict.fromkeys(few, many))
        return True

    def _neighbours(self, name: str) -> dict[str, SwitchPort | None]:
        if name not in self._edges:
            raise FabricError(f"no host and no switch is called {name!r}")
        return self._edges[name]

    def _attach(self, end: str, peer: str, link: Link, *, spans: bool) -> SwitchPort | None:
        if end in self.switches:
            return self._attach_switch(end, peer, link, spans=spans)
        if end in self.stations:
            raise FabricError(f"host {end!r} is on a link already")
        machine = self.hosts[end]
        self.macs[end] = mac = Mac(machine.nic, link, self._classifier)
        self.stations[end] = self.world.place(mac, machine.mac, link)
        return None

    def _attach_switch(self, end: str, peer: str, link: Link, *, spans: bool) -> SwitchPort:
        name = f"{end}:{peer}"
        address = b"\x06" + next(self._numbers).to_bytes(5, "big")
        self.ports[name] = port = self.switches[end].add_port(address, link, spans=spans)
        self.stations[name] = station = self.world.place_relay(port, address, link)
        port.wake = partial(self.world.wake, station)
        return port

    def find_ways(self) -> None:
        """Tell every switch by which ports each host is nearest; all shortest paths are equal."""
        for leaf in self.switches:
            distances = self._distances(leaf)
            for switch in distances:
                self.switches[switch].give(self._ways(switch, leaf, distances))

    def _distances(self, leaf: str) -> dict[str, int]:
        """How many links each switch is away from one. Hosts pass nothing on."""
        distances, waiting = {leaf: 0}, deque([leaf])
        while waiting:
            here = waiting.popleft()
            for peer in self._edges[here]:
                if peer in self.switches and peer not in distances:
                    distances[peer] = distances[here] + 1
                    waiting.append(peer)
        return distances

    def _ways(self, switch: str, leaf: str, distances: Mapping[str, int]) -> dict[bytes, Ports]:
        """The ports of a switch that lead to each host of another, or of the switch itself."""
        nearer = tuple(
            port.number
            for peer, port in self._edges[switch].items()
            if port is not None and distances.get(peer) == distances[switch] - 1
        )
        ways = {}
        for name, port in self._edges[leaf].items():
            if port is not None and name in self.hosts:
                ways[self.hosts[name].mac] = nearer or (port.number,)
        return ways

    def befall(self, link: str, *rules: Rule) -> Faults:
        """Let faults befall what passes a link, in place of those that did."""
        faults = Faults(rules, self.random(f"faults of {link}"))
        self._link(link).faults = faults
        return faults

    def tap(self, where: str, tap: Tap, *, arrivals: bool = False) -> None:
        """Show a tap what is put on a link, or sent by a port or a host; or what arrives there."""
        place = self.stations.get(where) or self.world.segment(self._link(where))
        (place.on_arrival if arrivals else place.on_sent).append(tap)

    def _link(self, name: str) -> Link:
        if name not in self.links:
            raise FabricError(f"no link is called {name!r}")
        return self.links[name]

    def wake(self, host: str) -> None:
        """A host was given something to do while the world runs."""
        self.world.wake(self.stations[host])
