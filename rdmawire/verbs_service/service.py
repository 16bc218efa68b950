"""A service from settings as a command line has them, until a signal ends it."""

import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rdmawire.traffic.scenario import read_scenario, read_shipped, shipped
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import DeviceSpec, numbered
from rdmawire.verbs_service.fabric_network import (
    FabricNetwork,
    devices_of,
    of_scenario,
    one_link,
    parse_link,
)
from rdmawire.verbs_service.network import DirectNetwork, Network
from rdmawire.verbs_service.server import Server
from rdmawire.verbs_service.udp_network import UdpNetwork, parse_udp

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def network_of(
    text: str, devices: int, capture: Capture | None = None
) -> tuple[Network, Sequence[DeviceSpec]]:
    """The network that a text describes, and its devices.

    Without text the devices are joined directly. ``loss=0.001,latency=10us,rate=25G`` puts a link
    between them, ``udp=PORT,peer=HOST:PORT`` joins services. Any other text is the name of a
    shipped scenario or the path of one, whose hosts are the devices. ``FabricError`` or
    ``ScenarioError`` for what is wrong.
    """
    if not text:
        return DirectNetwork(capture), numbered(devices)
    if "udp=" in text:
        return UdpNetwork(parse_udp(text), capture), numbered(devices)
    if "=" in text:
        return FabricNetwork(one_link(parse_link(text)), capture), numbered(devices)
    scenario = read_shipped(text) if text in shipped() else read_scenario(text)
    return FabricNetwork(of_scenario(scenario), capture), devices_of(scenario)


def serve(path: Path, devices: int = 2, network: str = "", pcap: Path | None = None) -> None:
    """Serve devices on the socket ``path`` until SIGINT or SIGTERM.

    ``network`` is as in :func:`network_of`; with a scenario, ``devices`` is not used. Frames are
    captured to the file or FIFO ``pcap``. ``OSError`` for a socket or file that cannot be made.
    """
    allow_descriptors()
    capture = None if pcap is None else Capture(pcap)
    joined, specs = network_of(network, devices, capture)
    server = Server(path, specs, joined)

    def stop(_: int, __: FrameType | None) -> None:
        server.stop()

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        server.run()
    finally:
        server.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def allow_descriptors() -> None:
    """Raise the limit of open descriptors: each CQ, channel and context has some."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
