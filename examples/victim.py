"""A victim: a flow whose way is free, behind others that are told to stop.

Senders and the victim are on switch ``s1``, two sinks on ``s2``. From :attr:`Plan.begin` on all
senders write to ``hot``, whose link is too slow for them; the victim writes to ``cold``, and
nobody else does. What joins the switches is fast enough for all. Where ``s2`` tells ``s1`` to
stop, it stops the victim as well, for a pause names a priority and no flow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from sys import maxsize
from typing import Final

from examples.incast import MakeScheme, dcqcn
from examples.stream import DSCP, Stream, bytes_in, poll_all
from rdmawire import Host, Network, Simulator, gbps, ms, us
from rdmawire.fabric import (
    KIB,
    MIB,
    Cable,
    Marking,
    Meter,
    Pausing,
    Sampler,
    SwitchSettings,
    place_of,
)
from rdmawire.wire.management import MTU

OTHER_DSCP: Final = 34
"""Of the victim, where it has a priority of its own."""

PRIORITIES: Final = {DSCP: 3, OTHER_DSCP: 4}
EDGE: Final = gbps(10)

_PAUSING: Final = Pausing(xoff=512 * KIB, xon=480 * KIB, headroom=160 * KIB)
_MARKING: Final = Marking(kmin=10 * KIB, kmax=50 * KIB, pmax=0.1)


def _settings(*, pauses: bool, marks: bool) -> SwitchSettings:
    return SwitchSettings(
        buffer=12 * MIB,
        queue=512 * KIB,
        priorities=PRIORITIES,
        pausing=dict.fromkeys(PRIORITIES.values(), _PAUSING) if pauses else {},
        marking=dict.fromkeys(PRIORITIES.values(), _MARKING) if marks else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``rate`` of hosts and ``trunk`` in bits a second, ``latency`` of each link in ns.

    ``victim_dscp`` is the victim's, by which it shares the senders' priority or does not.
    """

    settings: SwitchSettings = field(default_factory=partial(_settings, pauses=True, marks=False))
    scheme: MakeScheme | None = None
    victim_dscp: int = DSCP
    senders: int = 4
    rate: int = EDGE
    trunk: int = gbps(100)
    latency: int = us(1)
    mtu: MTU = MTU.MTU_4096
    message: int = 64 * KIB
    seed: int = 1
    begin: int = ms(1)
    every: int = us(100)


PLANS: Final[Mapping[str, Plan]] = {
    "pauses": Plan(),
    "pauses, a priority of its own": Plan(victim_dscp=OTHER_DSCP),
    "pauses and DCQCN": Plan(settings=_settings(pauses=True, marks=True), scheme=dcqcn(EDGE)),
    "no pauses": Plan(settings=_settings(pauses=False, marks=False)),
}
"""What may be done about it, by name."""


class Victim:
    """The experiment. ``victim`` and ``others`` are what arrives of both, in bits a second.

    They are sampled at ``sampler.times``; ``others`` is the sum of all senders. ``failed``
    are messages that ended with an error.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.network = Network(
            Simulator(event_limit=maxsize), seed=plan.seed, settings=plan.settings
        )
        self._hosts: dict[str, Host] = {}
        senders = [f"h{number}" for number in range(1, plan.senders + 1)]
        self._lay("s1", [*senders, "victim"])
        self._lay("s2", ["hot", "cold"])
        self.network.join("s1", "s2", Cable(plan.latency, plan.trunk).link())
        self.network.find_routes()
        # Of lengths that differ: else one is always first where there is room for one frame.
        lengths = (plan.message - 1000 * number for number in range(plan.senders))
        self.streams = [
            self._stream(name, "hot", DSCP, length)
            for name, length in zip(senders, lengths, strict=True)
        ]
        self.stream = self._stream("victim", "cold", plan.victim_dscp, plan.message)
        self.sampler = Sampler(self.network.simulator, plan.every)
        self.victim, self.others = self._received("cold"), self._received("hot")
        self.failed = 0

    def _lay(self, switch: str, names: list[str]) -> None:
        """A switch with its hosts."""
        network, cable = self.network, Cable(self.plan.latency, self.plan.rate)
        network.add_switch(switch)
        for name in names:
            self._hosts[name] = Host(place=place_of(len(self._hosts) + 1))
            network.add_host(name, self._hosts[name])
            network.join(name, switch, cable.link())

    def _stream(self, source: str, sink: str, dscp: int, message: int) -> Stream:
        ends, make = (self._hosts[source], self._hosts[sink]), self.plan.scheme
        scheme = None if make is None else make()
        return Stream(*ends, mtu=self.plan.mtu, message=message, dscp=dscp, scheme=scheme)

    def _received(self, sink: str) -> list[float]:
        meter = Meter()
        self.network.tap(f"s2:{sink}", meter)
        return self.sampler.rate(meter.bytes.total)

    def run(self, until: int) -> None:
        """Let the victim write from time 0 on, the others later, up to ``until`` (ns)."""
        simulator = self.network.simulator
        data = bytes_in(until, self.plan.rate)
        self.stream.write(data)
        simulator.call_at(self.plan.begin, partial(self._begin, data))
        self.sampler.begin(until)
        simulator.run(until)
        self.failed = poll_all((self.stream, *self.streams))

    def _begin(self, size: int) -> None:
        for number, stream in enumerate(self.streams, 1):
            stream.write(size)
            self.network.wake(f"h{number}")

    @property
    def drops(self) -> int:
        """Frames for which a switch had no room."""
        return sum(port.drops.total() for port in self.network.ports.values())

    def paused(self, host: str) -> int:
        """How long a host was told to rest, in ns."""
        egress = self.network.macs[host].egress
        return sum(egress.rested(priority, self.network.simulator.now) for priority in range(8))
