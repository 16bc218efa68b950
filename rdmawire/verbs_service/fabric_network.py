"""Links, switches and faults between devices: a fabric whose virtual time is driven by real time.

The simulator runs up to the present time in each step, so a frame that takes 10 us on a link
arrives 10 us later, by the clock of the machine. Each step does a bounded number of events. A
machine that is too slow for the traffic falls behind: then virtual time goes more slowly than real
time, frames arrive as soon as the service gets to them, and a line says so.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FabricError
from rdmawire.fabric import Chances, Envelope, Link, Network, Place, Simulator
from rdmawire.fabric.simulator import Attachment, SimulationLimit
from rdmawire.ib.congestion import CongestionController
from rdmawire.live import now
from rdmawire.traffic.scenario import Scenario
from rdmawire.traffic.scenario.consistency import places_of
from rdmawire.traffic.scenario.runner.endpoint import CONTROLS
from rdmawire.traffic.scenario.runner.testbed import add_links, install_faults, rule_of
from rdmawire.traffic.scenario.types import parse_rate
from rdmawire.units import ms, parse_duration, parse_share, us
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import DeviceSpec, EmulatedDevice
from rdmawire.verbs_service.diagnostics import warn
from rdmawire.verbs_service.network import CapturedNetwork, Neighbours
from rdmawire.wire.management import MTU

_NO_LIMIT: Final = 1 << 62
_MAX_EVENTS: Final = 128
"""Maximum frames, timers and calls of one step, besides those that are due at the same time: they
take a few ms, and then the service serves its clients."""
_MAX_LAG: Final = ms(100)
"""Maximum time (ns) that virtual time is behind real time."""
_MAX_DELAY: Final = us(100)
_MAX_HEADERS: Final = 128
"""Maximum bytes of a packet besides its payload, in a link's MTU."""

Build = Callable[[Simulator, Sequence[EmulatedDevice]], list[Attachment]]
"""Attaches devices to links. Returns the attachments, in order."""


class FabricNetwork(CapturedNetwork):
    """Devices with links and switches between them, in real time.

    ``build`` attaches the devices: see :func:`one_link` and :func:`of_scenario`. ``capture`` gets
    each frame once, when a device sends it, also those that are lost later.
    """

    def __init__(self, build: Build, capture: Capture | None = None) -> None:
        super().__init__(capture)
        self._build = build
        self._neighbours = Neighbours()
        self._attachments: list[Attachment] = []
        self._devices: Sequence[EmulatedDevice] = ()
        self._simulator = Simulator(time_limit=_NO_LIMIT, event_limit=_MAX_EVENTS)
        self._start = now()
        self._is_late = False

    def attach(self, devices: Sequence[EmulatedDevice]) -> None:
        self._devices = devices
        for device in devices:
            self._neighbours.add(device.gids, device.mac)
        self._attachments = self._build(self._simulator, devices)
        if self.capture is not None:
            for attachment in self._attachments:
                attachment.on_sent.append(self._record)

    def _record(self, frame: Envelope, time: int) -> None:
        self.record([frame.data], self._start + time)

    def resolve(self, gid: bytes) -> bytes:
        return self._neighbours.resolve(gid)

    @property
    def is_idle(self) -> bool:
        return False

    def move(self, time: int) -> bool:
        virtual = time - self._start
        due = self._simulator.next_time()
        if (due is None or due > virtual) and not any(one.nic.sends_more for one in self._devices):
            self._simulator.clock.now = virtual
            return False
        try:
            self._simulator.run(until=virtual)
        except SimulationLimit:
            self._limit_lag(virtual - self._simulator.now)
        return self._simulator.events > 0

    def _limit_lag(self, lag: int) -> None:
        """Let virtual time go more slowly if it is ``lag`` (ns) behind, and that is too much.

        Print that once.
        """
        if lag <= _MAX_LAG:
            return
        self._start += lag - _MAX_LAG
        if not self._is_late:
            self._is_late = True
            text = "this machine is too slow for the traffic, or timers are too short for it"
            warn(f"the network falls behind: {text}. Frames arrive late")

    def next_timer(self) -> int | None:
        due = self._simulator.next_time()
        return None if due is None else due + self._start


class LinkSettings(NamedTuple):
    """A link that all devices share: latency in ns, rate in bits per second, and shares of frames.

    Shares are from 0 to 1. Frames of ``reorder`` arrive up to :data:`_MAX_DELAY` late, and later
    frames overtake them.
    """

    latency: int = 0
    rate: int | None = None
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    seed: int = 0


def _share(text: str) -> float:
    """Read a share. ``ValueError`` for more than 1."""
    share = parse_share(text)
    if share > 1:
        raise ValueError(text)
    return share


def _rate(text: str) -> int:
    """Read a rate in bits per second. ``ValueError`` for 0 or less, and from 2**64 on."""
    rate = parse_rate(text)
    if not 0 < rate < _MAX_RATE:
        raise ValueError(text)
    return rate


_MAX_RATE: Final = 1 << 64
_PARSERS: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "latency": (parse_duration, "a time such as 10us"),
    "rate": (_rate, "bits per second such as 25G"),
    "loss": (_share, "a share from 0 to 1, such as 0.001 or 0.1%"),
    "duplicate": (_share, "a share from 0 to 1, such as 0.001 or 0.1%"),
    "reorder": (_share, "a share from 0 to 1, such as 0.001 or 0.1%"),
    "seed": (int, "a whole number"),
}
"""The parser of each setting's value, and the words of its error."""


def parse_link(text: str) -> LinkSettings:
    """Read ``loss=0.001,latency=10us,rate=25G``. ``FabricError`` for any other text."""
    values: dict[str, object] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        name = name.strip()
        if name not in _PARSERS:
            known = ", ".join(_PARSERS)
            raise FabricError(
                f"network {part!r}: the settings of a link are {known}, as NAME=VALUE"
            )
        if name in values:
            raise FabricError(f"network {part!r}: {name} is given twice")
        parse, words = _PARSERS[name]
        try:
            values[name] = parse(value.strip())
        except ValueError as error:
            raise FabricError(f"network {part!r}: {name} is {words}") from error
    return LinkSettings(**values)  # type: ignore[arg-type]


def one_link(settings: LinkSettings) -> Build:
    """All devices are on one link."""
    return partial(_on_one_link, settings)


def _on_one_link(
    settings: LinkSettings, simulator: Simulator, devices: Sequence[EmulatedDevice]
) -> list[Attachment]:
    random = Random(settings.seed)  # noqa: S311  faults are repeatable
    shares = settings.loss, settings.duplicate, settings.reorder
    chances = Chances(random, *shares, max_delay=_MAX_DELAY) if any(shares) else None
    link = Link(settings.latency, rate=settings.rate, chances=chances)
    return [simulator.attach(device.nic, device.mac, link) for device in devices]


def of_scenario(scenario: Scenario) -> Build:
    """The devices are the hosts of a scenario, in order, with its switches, links and faults.

    Its steps and expectations are not used; of its connections only the congestion control is.
    ``FabricError`` for faults that name an end of a connection.
    """
    for link in scenario.links:
        for fault in link.faults:
            if fault.sent_by is not None:
                text = (
                    f"link {link.name}: a fault of packets from {fault.sent_by} needs a connection"
                )
                raise FabricError(f"{text}, which real programs make themselves: select by fields")
    return partial(_as_hosts, scenario)


def _as_hosts(
    scenario: Scenario, simulator: Simulator, devices: Sequence[EmulatedDevice]
) -> list[Attachment]:
    network = Network(simulator, seed=scenario.seed)
    for device in devices:
        network.add_host(device.name, device)
    add_links(network, scenario)
    for link in scenario.links:
        install_faults(network, link.name, [rule_of(plan) for plan in link.faults])
    return [
        network.attachments[device.name] for device in devices if device.name in network.attachments
    ]


def devices_of(scenario: Scenario) -> tuple[DeviceSpec, ...]:
    """A device for each host of a scenario, with its name, addresses and congestion control."""
    mtus = {end: link.mtu for link in scenario.links for end in link.ends}
    rates = {end: link.rate for link in scenario.links for end in link.ends}
    specs = []
    for host, place in zip(scenario.hosts, places_of(scenario.hosts), strict=True):
        further = tuple(Place.of("02:00:00:00:00:01", other).gid for other in host.further)
        rate = rates.get(host.name)
        specs.append(
            DeviceSpec(
                host.name,
                place,
                further,
                _path_mtu(mtus.get(host.name)),
                100 if rate is None else rate / 1e9,
                _congestion_of(scenario, host.name, rate),
            )
        )
    return tuple(specs)


def _congestion_of(
    scenario: Scenario, host: str, rate: int | None
) -> Callable[[], CongestionController] | None:
    """Return what makes the congestion control of a host: that of its first connection with one."""
    for connection in scenario.connections:
        scheme = connection.congestion
        if scheme is not None and host in connection.ends:
            return partial(CONTROLS[scheme].made, scheme, connection.parameters, rate)
    return None


def _path_mtu(mtu: int | None) -> MTU:
    """The greatest path MTU whose packets fit a link's MTU."""
    fitting = [one for one in MTU if mtu is None or one.bytes + _MAX_HEADERS <= mtu]
    return max(fitting, default=MTU.MTU_256)
