"""The service behind the stand-in ``libibverbs.so.1``: emulated devices for unmodified programs.

Import public names from here::

    server = Server(Path("/tmp/verbs.sock"), numbered(2), DirectNetwork())
    server.run()  # until server.stop()

A name is loaded from its module when it is first used: programs that only want to use a service
need nothing of what serves.
"""

from typing import TYPE_CHECKING

from rdmawire.lazy_names import lazy_names

if TYPE_CHECKING:
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
    from rdmawire.verbs_service.network import DeviceNetwork, DirectNetwork
    from rdmawire.verbs_service.program import ProgramFiles
    from rdmawire.verbs_service.server import Server
    from rdmawire.verbs_service.service_socket import given_socket, is_served, no_service
    from rdmawire.verbs_service.session import SessionSettings, VerbsSession, network_of
    from rdmawire.verbs_service.udp_network import UdpNetwork, UdpSettings, parse_udp

__all__ = [
    "Capture",
    "DeviceNetwork",
    "DeviceSpec",
    "DirectNetwork",
    "FabricNetwork",
    "LinkSettings",
    "ProgramFiles",
    "Server",
    "SessionSettings",
    "UdpNetwork",
    "UdpSettings",
    "VerbsSession",
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
]

_MODULES = {
    "capture": ("Capture",),
    "counters": ("read_counters",),
    "device": ("DeviceSpec", "numbered"),
    "fabric_network": (
        *("FabricNetwork", "LinkSettings", "devices_of"),
        *("of_scenario", "one_link", "parse_link"),
    ),
    "network": ("DirectNetwork", "DeviceNetwork"),
    "program": ("ProgramFiles",),
    "server": ("Server",),
    "service_socket": ("given_socket", "is_served", "no_service"),
    "session": ("VerbsSession", "SessionSettings", "network_of"),
    "udp_network": ("UdpNetwork", "UdpSettings", "parse_udp"),
}

__getattr__ = lazy_names(__name__, _MODULES)
