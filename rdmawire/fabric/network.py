"""Networks: hosts, switches and links by name, and the routes between them.

::

    network = Network(seed=7)
    network.add_switch("leaf")
    for name in ("a", "b"):
        network.add_host(name)
        network.join(name, "leaf", Link(us(1), rate=gbps(100)))
    network.find_routes()
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EINVAL
from functools import partial
from random import Random
from typing import Final, NamedTuple, Protocol

from rdmawire.capture.io import AnyPath
from rdmawire.errors import FabricError, VerbsError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.classify import Classifier
from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.host import Place
from rdmawire.fabric.infiniband import (
    InfiniBandHost,
    InfiniBandLink,
    InfiniBandSwitch,
    OneLane,
    keys_of,
)
from rdmawire.fabric.link import Link
from rdmawire.fabric.port_queue import Adapter, Mac
from rdmawire.fabric.simulator import Attachment, Simulator, Tap
from rdmawire.fabric.switch import Ports, Switch, SwitchPort
from rdmawire.fabric.switch_config import SwitchSettings
from rdmawire.identifier import Count
from rdmawire.validate import Integer, check_values
from rdmawire.verbs.ah import mapped
from rdmawire.wire.roce import Medium


class NetworkHost(Protocol):
    """A host of a network: a MAC address and an engine."""

    @property
    def mac(self) -> bytes: ...

    @property
    def nic(self) -> Adapter: ...


class Network:
    """A simulator whose hosts, switches and links have names.

    ``seed`` is for all random numbers: each switch and each link has its own generator, seeded
    with ``seed`` and its name, so that it does not depend on the others. A link is
    named by its ends, ``"a-leaf"``; a port of a switch by the switch and the other end,
    ``"leaf:a"``. ``settings`` are the default settings of switches. With ``Medium.INFINIBAND``
    hosts have LIDs (:class:`~rdmawire.fabric.infiniband.InfiniBandHost`), links are
    :class:`~rdmawire.fabric.infiniband.InfiniBandLink`, and switches have no settings.
    """

    def __init__(
        self,
        simulator: Simulator | None = None,
        *,
        seed: int = 0,
        settings: SwitchSettings | None = None,
        medium: Medium = Medium.ETHERNET,
    ) -> None:
        self.simulator = Simulator() if simulator is None else simulator
        self.seed = seed
        self.medium = medium
        self.settings = SwitchSettings() if settings is None else settings
        self.hosts: dict[str, NetworkHost] = {}
        self.switches: dict[str, Switch] = {}
        self.links: dict[str, Link] = {}
        self.ports: dict[str, SwitchPort] = {}
        self.macs: dict[str, Mac] = {}
        self.attachments: dict[str, Attachment] = {}
        self._edges: dict[str, dict[str, SwitchPort | None]] = {}
        self._trees: dict[str, set[str]] = {}
        self._numbers = Count(0)
        native = medium is Medium.INFINIBAND
        self._classifier = OneLane() if native else Classifier(self.settings.priorities)

    def random(self, name: str) -> Random:
        """Return a random generator seeded with ``seed`` and this name."""
        return Random(f"{self.seed}/{name}")  # noqa: S311 - must be repeatable

    def add_host(self, name: str, machine: NetworkHost) -> None:
        """Add a host. It can be on one link.

        :class:`FabricError` for one without LIDs in a network of InfiniBand.
        """
        if self.medium is Medium.INFINIBAND and not isinstance(machine, InfiniBandHost):
            raise FabricError(f"host {name!r} has no LIDs: the links carry {self.medium.value}")
        self._add(name)
        self.hosts[name] = machine

    def add_switch(self, name: str, settings: SwitchSettings | None = None) -> Switch:
        """Add a switch, with its own settings or the default ones."""
        self._add(name)
        self.switches[name] = switch = self._switch(name, settings)
        self._trees[name] = {name}
        return switch

    def _switch(self, name: str, settings: SwitchSettings | None) -> Switch:
        if self.medium is Medium.INFINIBAND:
            if settings is not None:
                raise FabricError(f"{name}: a switch for {self.medium.value} has no settings")
            return InfiniBandSwitch(name)
        mine = self.settings if settings is None else settings
        draws = self.random(f"arbiters of {name}")
        return Switch(name, mine, self.random(name), draws)

    def _add(self, name: str) -> None:
        if name in self._edges:
            raise FabricError(f"{name!r} is there already")
        self._edges[name] = {}

    def join(self, one: str, other: str, link: Link) -> Link:
        """Join two hosts or switches by a link, which is named ``one-other``.

        Frames to addresses without a static entry avoid links that close a loop.
        """
        name = f"{one}-{other}"
        if other in self._neighbours(one) or one in self._neighbours(other):
            raise FabricError(f"link {name!r} is there already")
        if link.framing.medium is not self.medium:
            carried = f"{link.framing.medium.value}, the network {self.medium.value}"
            raise FabricError(f"link {name!r} carries {carried}")
        if isinstance(link, InfiniBandLink):
            link.adapters = sum(end in self.hosts for end in (one, other))
        link.name = name
        self.links[name] = link
        in_spanning_tree = self._in_spanning_tree(one, other)
        for end, peer in ((one, other), (other, one)):
            self._edges[end][peer] = self._attach(
                end, peer, link, in_spanning_tree=in_spanning_tree
            )
        return link

    def _in_spanning_tree(self, one: str, other: str) -> bool:
        """Whether a link joins two parts that were not connected, and so is in the tree."""
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

    def _attach(
        self, end: str, peer: str, link: Link, *, in_spanning_tree: bool
    ) -> SwitchPort | None:
        if end in self.switches:
            return self._attach_switch(end, peer, link, in_spanning_tree=in_spanning_tree)
        if end in self.attachments:
            raise FabricError(f"host {end!r} is on a link already")
        machine = self.hosts[end]
        self.simulator.prepare(machine.nic, link)
        self.macs[end] = mac = Mac(machine.nic, link, self._classifier)
        self.attachments[end] = self.simulator.attach_paced(mac, machine.mac, link)
        return None

    def _attach_switch(
        self, end: str, peer: str, link: Link, *, in_spanning_tree: bool
    ) -> SwitchPort:
        name = f"{end}:{peer}"
        address = b"\x06" + next(self._numbers).to_bytes(5, "big")
        self.ports[name] = port = self.switches[end].add_port(
            address, link, in_spanning_tree=in_spanning_tree
        )
        self.attachments[name] = attachment = self.simulator.attach_relay(port, address, link)
        port.wake = partial(self.simulator.wake, attachment)
        return port

    def find_routes(self) -> None:
        """Add the shortest paths to each host as static entries to every switch."""
        for leaf in self.switches:
            distances = self._distances(leaf)
            for switch in distances:
                self.switches[switch].give(self._routes(switch, leaf, distances))

    def _distances(self, leaf: str) -> dict[str, int]:
        """Distance of each switch from ``leaf``, in links. Hosts do not forward."""
        distances, waiting = {leaf: 0}, deque([leaf])
        while waiting:
            here = waiting.popleft()
            for peer in self._edges[here]:
                if peer in self.switches and peer not in distances:
                    distances[peer] = distances[here] + 1
                    waiting.append(peer)
        return distances

    def _routes(self, switch: str, leaf: str, distances: Mapping[str, int]) -> dict[bytes, Ports]:
        """Ports of ``switch`` on shortest paths to the hosts of ``leaf``, by MAC address or LID."""
        nearer = tuple(
            port.number
            for peer, port in self._edges[switch].items()
            if port is not None and distances.get(peer) == distances[switch] - 1
        )
        routes: dict[bytes, Ports] = {}
        for name, port in self._edges[leaf].items():
            if port is not None and name in self.hosts:
                routes |= dict.fromkeys(self._addresses(name), nearer or (port.number,))
        return routes

    def _addresses(self, name: str) -> list[bytes]:
        """Return the addresses of a host that switches forward frames to."""
        host = self.hosts[name]
        if self.medium is Medium.INFINIBAND and isinstance(host, InfiniBandHost):
            return keys_of(host)
        return [host.mac]

    def set_faults(self, link: str, *rules: Rule) -> Faults:
        """Replace the faults of a link. Return the new ones, which have counters.

        :class:`FabricError` in a network of InfiniBand: faults find the fields of Ethernet frames.
        """
        if self.medium is not Medium.ETHERNET:
            raise FabricError(f"faults of {link!r}: they are for {Medium.ETHERNET.value} alone")
        faults = Faults(rules, self.random(f"faults of {link}"))
        self._link(link).faults = faults
        return faults

    def tap(self, where: str, tap: Tap, *, arrivals: bool = False) -> None:
        """Add a tap to a link, a host or a port: for frames sent, or with ``arrivals`` received."""
        place = self.attachments.get(where) or self.simulator.segment(self._link(where))
        (place.on_arrival if arrivals else place.on_sent).append(tap)

    @contextmanager
    def captured(self, path: AnyPath) -> Iterator[None]:
        """Capture what each host sends, lost frames too; in a pcapng each host is an interface.

        Native InfiniBand packets are in records of Endace's format (ERF), which tshark reads.
        """
        with CaptureTap(path, medium=self.medium) as tap:
            for name in self.hosts:
                self.tap(name, tap.point(name))
            yield

    def _link(self, name: str) -> Link:
        if name not in self.links:
            raise FabricError(f"no link is called {name!r}")
        return self.links[name]

    def send(self, host: str, frame: bytes) -> None:
        """Send a frame from a host, which its adapter did not make."""
        self.macs[host].send(frame)
        self.wake(host)

    def wake(self, host: str) -> None:
        """Let a host transmit: work was posted to it while the simulator runs."""
        self.simulator.wake(self.attachments[host])


MAX_HOSTS: Final = (1 << 24) - 2


_SWITCHES: Final = Integer(1, 1 << 16, "a number of switches")
_BOUNDS: Final = {
    "row": {"switches": _SWITCHES},
    "leaf_spine": {"leaves": _SWITCHES, "spines": _SWITCHES},
}
"""Allowed numbers of switches, by function."""


class Cable(NamedTuple):
    """Parameters of links: latency (ns), rate (bits per second) and MTU (bytes)."""

    latency: int = 0
    rate: int | None = None
    mtu: int | None = None

    def link(self) -> Link:
        """A new link with these parameters."""
        return Link(self.latency, rate=self.rate, mtu=self.mtu)


class InfiniBandCable(NamedTuple):
    """Parameters of InfiniBand links, as of :class:`~rdmawire.fabric.infiniband.InfiniBandLink`."""

    latency: int = 0
    rate: int | None = None
    switch_latency: int = 0

    def link(self) -> Link:
        """A new link with these parameters."""
        return InfiniBandLink(self.latency, rate=self.rate, switch_latency=self.switch_latency)


AnyCable = Cable | InfiniBandCable


def place_of(number: int) -> Place:
    """Addresses of host ``number`` (1 to 2**24 - 2): 02:00:00:00:00:01 and 10.0.0.1 for 1."""
    if not 0 < number <= MAX_HOSTS:
        raise VerbsError(f"host number {number} is not within 1..{MAX_HOSTS}", EINVAL)
    data = number.to_bytes(3, "big")
    return Place(b"\x02\0\0" + data, mapped(b"\x0a" + data))


def star(network: Network, hosts: Mapping[str, NetworkHost], cable: AnyCable) -> None:
    """Build a star: all hosts on one switch."""
    row(network, hosts, switches=1, edge=cable, trunk=cable)


def row(
    network: Network,
    hosts: Mapping[str, NetworkHost],
    *,
    switches: int,
    edge: AnyCable,
    trunk: AnyCable,
) -> None:
    """Build a row of switches. Hosts are attached in turn, the first to the first switch."""
    check_values("row", {"switches": switches}, _BOUNDS["row"], FabricError)
    names = [f"s{number}" for number in range(1, switches + 1)]
    for number, name in enumerate(names):
        network.add_switch(name)
        if number:
            network.join(names[number - 1], name, trunk.link())
    _spread(network, hosts, names, edge)
    network.find_routes()


def leaf_spine(
    network: Network,
    hosts: Mapping[str, NetworkHost],
    *,
    leaves: int,
    spines: int,
    edge: AnyCable,
    trunk: AnyCable,
) -> None:
    """Build a leaf-spine network: every leaf is joined to every spine."""
    found = {"leaves": leaves, "spines": spines}
    check_values("leaf_spine", found, _BOUNDS["leaf_spine"], FabricError)
    lower = [f"leaf{number}" for number in range(1, leaves + 1)]
    upper = [f"spine{number}" for number in range(1, spines + 1)]
    for name in (*lower, *upper):
        network.add_switch(name)
    for leaf in lower:
        for spine in upper:
            network.join(leaf, spine, trunk.link())
    _spread(network, hosts, lower, edge)
    network.find_routes()


def _spread(
    network: Network, hosts: Mapping[str, NetworkHost], switches: list[str], edge: AnyCable
) -> None:
    for number, (name, machine) in enumerate(hosts.items()):
        network.add_host(name, machine)
        network.join(name, switches[number % len(switches)], edge.link())
