"""``python -m rdmawire.verbs_service --socket PATH``: run a service without the command line."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from rdmawire.verbs_service.service import serve


def main(arguments: list[str]) -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = ArgumentParser(prog="rdmawire.verbs_service")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--network", default="")
    parser.add_argument("--pcap", type=Path)
    options = parser.parse_args(arguments)
    serve(options.socket, options.devices, options.network, options.pcap)


if __name__ == "__main__":
    main(sys.argv[1:])
