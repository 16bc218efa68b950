"""The service behind the stand-in ``libibverbs.so.1``: emulated devices for unmodified programs.

Import public names from here::

    server = Server(Path("/tmp/verbs.sock"), numbered(2), DirectNetwork())
    server.run()  # until server.stop()
"""

from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import DeviceSpec, numbered
from rdmawire.verbs_service.network import DirectNetwork, Network
from rdmawire.verbs_service.server import Server

__all__ = ["Capture", "DeviceSpec", "DirectNetwork", "Network", "Server", "numbered"]
