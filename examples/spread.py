"""Spread: how flows between two leaves fall upon the spines."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from sys import maxsize
from typing import Final

from examples.stream import Stream, poll_all
from rdmawire import Host, Network, Simulator, gbps, us
from rdmawire.fabric import KIB, Cable, Envelope, SwitchSettings, Tap, leaf_spine, place_of

CABLE: Final = Cable(us(1), gbps(100))

_FLOW: Final = slice(26, 36)
"""Of an IPv4 frame: both addresses, and the UDP source port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``flows`` of ``message`` bytes each, from the hosts of one leaf to those of the other.

    ``hash_seed`` turns the switches' choice, ``hosts`` are those of both leaves.
    """

    flows: int = 400
    spines: int = 4
    hosts: int = 16
    message: int = 4 * KIB
    hash_seed: int = 0


class Spread:
    """The experiment. ``bytes`` are those of frames that went there, by spine.

    ``flows`` are the flows that took each spine: their addresses, and UDP source ports. ``failed``
    are messages that ended with an error.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        settings = SwitchSettings(seed=plan.hash_seed)
        self.network = Network(Simulator(event_limit=maxsize), settings=settings)
        named = {f"h{n}": Host(place=place_of(n)) for n in range(1, plan.hosts + 1)}
        leaf_spine(self.network, named, leaves=2, spines=plan.spines, edge=CABLE, trunk=CABLE)
        self.spines = [f"spine{number}" for number in range(1, plan.spines + 1)]
        self.bytes: Counter[str] = Counter()
        self.flows: dict[str, set[bytes]] = {spine: set() for spine in self.spines}
        for spine in self.spines:
            self.network.tap(f"leaf1:{spine}", self._noting(spine))
        hosts = [*named.values()]
        self.streams = [self._stream(hosts, number) for number in range(plan.flows)]
        self.failed = 0

    def _stream(self, hosts: list[Host], number: int) -> Stream:
        """Hosts take turns on the leaves: the first, the third and so on are on one of them."""
        sources, sinks = hosts[::2], hosts[1::2]
        step = number // len(sources)
        sink = sinks[(number + step) % len(sinks)]
        return Stream(sources[number % len(sources)], sink, message=self.plan.message)

    def _noting(self, spine: str) -> Tap:
        return partial(self._note, spine)

    def _note(self, spine: str, frame: Envelope, _: int) -> None:
        self.bytes[spine] += len(frame.data)
        self.flows[spine].add(frame.data[_FLOW])

    def run(self) -> None:
        """One message by each flow."""
        for stream in self.streams:
            stream.write(self.plan.message)
        self.network.simulator.run()
        self.failed = poll_all(self.streams)
