"""What the ports of switches counted: values that stay when the network is gone."""

from typing import NamedTuple

from rdmawire.fabric.network import Network


class PortCounts(NamedTuple):
    """One port, all priorities together.

    ``marks`` are frames that it marked with CE, ``drops`` those it had no room for. ``stops`` are
    pauses that it asked for, ``pauses`` how often it was stopped itself, for ``paused_ns`` in all.
    """

    marks: int
    drops: int
    stops: int
    pauses: int
    paused_ns: int


def ports_of(network: Network) -> dict[str, PortCounts]:
    """Every port of every switch, by its name (``leaf:server``)."""
    return {
        name: PortCounts(
            port.marks.total(),
            port.drops.total(),
            port.stops.total(),
            sum(port.egress.pauses),
            sum(port.egress.paused_ns),
        )
        for name, port in network.ports.items()
    }
