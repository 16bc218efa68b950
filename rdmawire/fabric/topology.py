"""Networks of a known shape: hosts round one switch, in a row of switches, on leaves and spines.

Switches are called ``s1``, ``s2`` ..., or ``leaf1`` ... and ``spine1`` ...; hosts have the names
they come with. All ways are found when a function returns.
"""

from collections.abc import Mapping
from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.bound import Whole
from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Place
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Machine, Network
from rdmawire.fabric.refusal import check_values
from rdmawire.verbs.ah import mapped

MOST_HOSTS: Final = (1 << 24) - 2


_SWITCHES: Final = Whole(1, 1 << 16, "a number of switches")
_BOUNDS: Final = {
    "row": {"switches": _SWITCHES},
    "leaf_spine": {"leaves": _SWITCHES, "spines": _SWITCHES},
}
"""How many switches there may be, by function; ``FabricError`` for others."""


class Cable(NamedTuple):
    """What links are made of: latency (ns), rate (bits a second) and MTU (octets)."""

    latency: int = 0
    rate: int | None = None
    mtu: int | None = None

    def link(self) -> Link:
        """One more link of this kind."""
        return Link(self.latency, rate=self.rate, mtu=self.mtu)


def place_of(number: int) -> Place:
    """02:00:00:00:00:01 and 10.0.0.1 for number 1, up to 2**24 - 2: more than a host's number."""
    if not 0 < number <= MOST_HOSTS:
        raise VerbsError(f"host number {number} is not within 1..{MOST_HOSTS}", EINVAL)
    octets = number.to_bytes(3, "big")
    return Place(b"\x02\0\0" + octets, mapped(b"\x0a" + octets))


def star(network: Network, hosts: Mapping[str, Machine], cable: Cable) -> None:
    """All hosts on one switch."""
    row(network, hosts, switches=1, edge=cable, trunk=cable)


def row(
    network: Network,
    hosts: Mapping[str, Machine],
    *,
    switches: int,
    edge: Cable,
    trunk: Cable,
) -> None:
    """Switches one behind the other; hosts take turns, the first on the first switch."""
    check_values("row", {"switches": switches}, _BOUNDS["row"])
    names = [f"s{number}" for number in range(1, switches + 1)]
    for number, name in enumerate(names):
        network.add_switch(name)
        if number:
            network.join(names[number - 1], name, trunk.link())
    _spread(network, hosts, names, edge)
    network.find_ways()


def leaf_spine(
    network: Network,
    hosts: Mapping[str, Machine],
    *,
    leaves: int,
    spines: int,
    edge: Cable,
    trunk: Cable,
) -> None:
    """Every leaf on every spine, so that between leaves there are as many ways as spines."""
    found = {"leaves": leaves, "spines": spines}
    check_values("leaf_spine", found, _BOUNDS["leaf_spine"])
    lower = [f"leaf{number}" for number in range(1, leaves + 1)]
    upper = [f"spine{number}" for number in range(1, spines + 1)]
    for name in (*lower, *upper):
        network.add_switch(name)
    for leaf in lower:
        for spine in upper:
            network.join(leaf, spine, trunk.link())
    _spread(network, hosts, lower, edge)
    network.find_ways()


def _spread(
    network: Network, hosts: Mapping[str, Machine], switches: list[str], edge: Cable
) -> None:
    for number, (name, machine) in enumerate(hosts.items()):
        network.add_host(name, machine)
        network.join(name, switches[number % len(switches)], edge.link())
