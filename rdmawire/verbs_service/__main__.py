"""``python -m rdmawire.verbs_service --devices N --socket PATH [--pcap FILE]``: run a service."""

import signal
import sys
from argparse import ArgumentParser
from pathlib import Path

from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import numbered
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.verbs_service.server import Server


def main(arguments: list[str]) -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = ArgumentParser(prog="rdmawire.verbs_service")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--pcap", type=Path)
    options = parser.parse_args(arguments)
    capture = None if options.pcap is None else Capture(options.pcap)
    server = Server(options.socket, numbered(options.devices), DirectNetwork(capture))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    try:
        server.run()
    finally:
        server.close()


if __name__ == "__main__":
    main(sys.argv[1:])
