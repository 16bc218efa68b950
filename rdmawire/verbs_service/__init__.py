"""The service behind the stand-in ``libibverbs.so.1``: emulated devices for unmodified programs.

Import public names from here::

    server = Server(Path("/tmp/verbs.sock"), numbered(2), DirectNetwork())
    server.run()  # until server.stop()
"""

from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.counters import read_counters
from rdmawire.verbs_service.device import DeviceSpec, numbered
from rdmawire.verbs_service.fabric_network import (
    FabricNetwork,
    LinkSettings,
    devices_of,
    of_scenario,
    one_link,
    parse_link,
)
from rdmawire.verbs_service.network import DirectNetwork, Network
from rdmawire.verbs_service.program import ProgramFiles, given_socket, is_served, no_service
from rdmawire.verbs_service.serve import network_of, serve
from rdmawire.verbs_service.server import Server
from rdmawire.verbs_service.session import Session, SessionSettings
from rdmawire.verbs_service.udp_network import UdpNetwork, UdpSettings, parse_udp

__all__ = [
    "Capture",
    "DeviceSpec",
    "DirectNetwork",
    "FabricNetwork",
    "LinkSettings",
    "Network",
    "ProgramFiles",
    "Server",
    "Session",
    "SessionSettings",
    "UdpNetwork",
    "UdpSettings",
    "devices_of",
    "given_socket",
    "is_served",
    "network_of",
    "no_service",
    "numbered",
    "of_scenario",
    "one_link",
    "parse_link",
    "parse_udp",
    "read_counters",
    "serve",
]
