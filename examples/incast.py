"""Incast: many hosts write to one at the same time, across one switch.

::

    incast = Incast(with_dcqcn(Plan()))
    incast.run(until=ms(24))
    print(jain([rates[-1] for rates in incast.rates]), max(incast.queue))
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize
from typing import Final

from examples.stream import DSCP, Stream, bytes_in, poll_all
from rdmawire import IBTA, Host, Network, Profile, Simulator, gbps, us
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
    star,
)
from rdmawire.ib.congestion import (
    CongestionController,
    Dcqcn,
    DcqcnParameters,
    Timely,
    TimelyParameters,
)
from rdmawire.wire.management import MTU

LOSSLESS: Final = 3
"""The priority of all that is written."""

MARKING: Final = Marking(kmin=5_000, kmax=200_000, pmax=0.01, departing=True)
"""For 40 Gb/s and frames of 1 KiB. Y. Zhu et al., SIGCOMM 2015, section 5.2."""

PAUSING: Final = Pausing(xoff=512 * KIB, xon=480 * KIB, headroom=64 * KIB)
"""So late that marks come first."""

SWITCH: Final = SwitchSettings(
    buffer=12 * MIB,
    queue=12 * MIB,
    priorities={DSCP: LOSSLESS},
    pausing={LOSSLESS: PAUSING},
)
SEGMENTS: Final = 4
"""Packets of 4 KiB between two ACKs, for TIMELY: its segments are of 16 KB to 64 KB."""

_SHARE_OF_SLOWEST: Final = 400
"""A flow of TIMELY is never slower than this part of the line. The paper gives no floor."""

_PUBLISHED_FRAME: Final = 1024

MakeScheme = Callable[[], CongestionController]


def dcqcn(rate: int) -> MakeScheme:
    """DCQCN with the values that were published, on a line of so many bits a second."""
    return partial(Dcqcn, DcqcnParameters.at(rate))


def timely(rate: int) -> MakeScheme:
    """TIMELY with the values that were published, on a line of so many bits a second."""
    slowest = rate / _SHARE_OF_SLOWEST
    return partial(Timely, TimelyParameters(line_rate=rate, min_rate=slowest))


def per_byte(marking: Marking, mtu: MTU) -> Marking:
    """As many marks for each byte with other frames as with those of 1 KiB."""
    return replace(marking, pmax=marking.pmax * mtu.bytes / _PUBLISHED_FRAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An incast. ``rate`` is in bits a second, ``latency`` of each link and ``every`` in ns.

    ``scheme`` makes the congestion control of each sender, where there is any; ``every`` so
    often it is sampled. ``settings`` are the switch's, ``seed`` is for its marks.
    """

    senders: int = 8
    rate: int = gbps(40)
    latency: int = us(1)
    mtu: MTU = MTU.MTU_1024
    settings: SwitchSettings = SWITCH
    scheme: MakeScheme | None = None
    profile: Profile = IBTA
    seed: int = 1
    every: int = us(100)


def with_dcqcn(plan: Plan, marking: Marking = MARKING) -> Plan:
    """The same with DCQCN, and marks as they were published for frames of 1 KiB."""
    marks = {LOSSLESS: per_byte(marking, plan.mtu)}
    settings = replace(plan.settings, marking=marks)
    return replace(plan, scheme=dcqcn(plan.rate), settings=settings)


def with_timely(plan: Plan) -> Plan:
    """The same with TIMELY, and an ACK for each segment: it hears of the network by no others."""
    profile = replace(plan.profile, packets_per_ack=SEGMENTS)
    return replace(plan, scheme=timely(plan.rate), profile=profile)


class Incast:
    """``h1``, ``h2`` ... write to ``sink`` as fast as they are let.

    By sender, in their order: ``streams``, and ``rates`` (bits a second) at which their frames
    leave the switch. ``queue`` are bytes that wait there for the sink. Both are sampled at
    ``sampler.times``. ``failed`` are messages that ended with an error.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.network = Network(
            Simulator(event_limit=maxsize), seed=plan.seed, settings=plan.settings
        )
        names = [*(f"h{number}" for number in range(1, plan.senders + 1)), "sink"]
        self.hosts = {
            name: Host(place=place_of(number), profile=plan.profile)
            for number, name in enumerate(names, 1)
        }
        star(self.network, self.hosts, Cable(plan.latency, plan.rate))
        self.streams = [self._stream(name) for name in names[:-1]]
        self.port = self.network.ports["s1:sink"]
        self.failed = 0
        self._watch()

    def _stream(self, name: str) -> Stream:
        plan = self.plan
        scheme = None if plan.scheme is None else plan.scheme()
        return Stream(self.hosts[name], self.hosts["sink"], mtu=plan.mtu, scheme=scheme)

    def _watch(self) -> None:
        meter = Meter()
        self.network.tap("s1:sink", meter)
        self.sampler = Sampler(self.network.simulator, self.plan.every)
        self.queue = self.sampler.watch(lambda: self.port.egress.bytes[LOSSLESS])
        self.rates = [
            self.sampler.rate(partial(meter.bytes.__getitem__, stream.source.mac))
            for stream in self.streams
        ]

    def run(self, until: int) -> None:
        """Have all write from time 0 on, and look on up to the time ``until`` (ns)."""
        for stream in self.streams:
            stream.write(bytes_in(until, self.plan.rate))
        self.sampler.begin(until)
        self.network.simulator.run(until)
        self.failed = poll_all(self.streams)

    @property
    def pauses(self) -> int:
        """How often the switch told a sender to stop."""
        ports = self.network.ports.values()
        return sum(port.stops[LOSSLESS] for port in ports)

    @property
    def drops(self) -> int:
        """Frames for which the switch had no room."""
        return sum(port.drops.total() for port in self.network.ports.values())
