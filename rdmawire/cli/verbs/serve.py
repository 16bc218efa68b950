"""`rdmawire verbs serve`: devices for the programs of other terminals."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command
from rdmawire.cli.verbs.settings import service_options, settings_of, with_session
from rdmawire.terminal import escape

if TYPE_CHECKING:
    from rdmawire.verbs_service import Session


@click.command(
    "verbs serve",
    cls=Command,
    examples=(
        "rdmawire verbs serve --devices 4 -w all.pcap",
        "rdmawire verbs serve -w - | wireshark -k -i -",
        "rdmawire verbs serve --socket /run/rdmawire/verbs.sock --network latency=5us,rate=25G",
        "rdmawire verbs serve --network udp=4800,peer=10.1.0.2:4800 --first-address 1",
    ),
)
@service_options(
    "Socket of the service.  [default: RDMAWIRE_VERBS, else $XDG_RUNTIME_DIR/rdmawire/verbs.sock, "
    "else /tmp/rdmawire-UID/verbs.sock]"
)
@options.QUIET
def command(*, quiet: bool, **given: Any) -> int:
    """Serve emulated devices on a socket until Ctrl-C or SIGTERM.

    Programs use them with the variables of `rdmawire verbs env`. What to do is printed to standard
    error, and in a terminal the counters; with -w - the capture goes to standard output.
    """
    from rdmawire.verbs_service import given_socket

    if given["pcap"] == "-" and sys.stdout.isatty():
        raise click.UsageError("a capture is binary: pipe it to a program, or name a file")
    path: Path = given["socket"] or given_socket(os.environ)
    with with_session(path, settings_of(given)) as session, _until_signal(session.stop):
        if not quiet:
            _explain(session, is_default=given["socket"] is None)
        show = _show if not quiet and sys.stderr.isatty() else None
        session.serve(None if show is None else lambda: show(session))
        if show is not None:
            click.echo("", err=True)
    return 0


@contextmanager
def _until_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at SIGINT and SIGTERM."""

    def handle(_: int, __: FrameType | None) -> None:
        stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _explain(session: "Session", *, is_default: bool) -> None:
    from ipaddress import IPv6Address

    for device in session.server.devices:
        address = IPv6Address(device.gids[0])
        click.echo(f"{escape(device.name)}  {address.ipv4_mapped or address}", err=True)
    path = session.files.socket
    option = "" if is_default else f" --socket {shlex.quote(os.fspath(path))}"
    click.echo(f"Serving on {escape(os.fspath(path))} until Ctrl-C. In other terminals:", err=True)
    click.echo(f'  eval "$(rdmawire verbs env{escape(option)})"', err=True)


def _show(session: "Session") -> None:
    from rdmawire.cli.verbs import summary

    click.echo(f"\r\x1b[K{summary(session.counters())}", err=True, nl=False)
