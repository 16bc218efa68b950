"""`rdmawire verbs status`: the counters of a service's devices."""

import os
from pathlib import Path

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, PathType, option
from rdmawire.dissect.output import dumped
from rdmawire.terminal import escape


@click.command(
    "verbs status",
    cls=Command,
    examples=("rdmawire verbs status", "rdmawire verbs status --json | jq .rw0.xmit_packets"),
)
@option(
    "Service", "--socket", type=PathType(path_type=Path), metavar="PATH",
    help="Socket of the service.  [default: as of `rdmawire verbs serve`]",
)  # fmt: skip
@options.text_or_json("Print all counters of each device as one JSON object.")
def command(*, socket: Path | None, as_json: bool) -> int:
    """Print the counters of the devices of a service, without those that are 0.

    They are frames, bytes, drops and retransmissions, and the numbers of queue pairs, CQs, memory
    regions and contexts. Programs find the counters of Linux in /sys/class/infiniband.
    """
    from rdmawire.verbs_service import given_socket, no_service, read_counters

    path = socket or given_socket(os.environ)
    try:
        found = read_counters(path)
    except OSError:
        raise no_service(path) from None
    if as_json:
        click.echo(dumped(found, indent=1))
        return 0
    for device, counters in found.items():
        click.echo(escape(device))
        for name, value in counters.items():
            if value:
                click.echo(f"  {name} {value}")
    return 0
