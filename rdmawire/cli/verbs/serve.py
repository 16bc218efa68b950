"""`rdmawire verbs serve`: devices for the programs of other terminals."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command
from rdmawire.cli.verbs import summarize, summary
from rdmawire.cli.verbs.settings import (
    SUMMARY_AS_JSON,
    service_options,
    with_session,
)
from rdmawire.terminal import escape

if TYPE_CHECKING:
    from rdmawire.verbs_service import VerbsSession

_LINE_START = "\r\x1b[K"
"""Go to the start of a terminal's line and erase it: carriage return, Erase in Line (ECMA-48)."""


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
@SUMMARY_AS_JSON
@options.QUIET
def command(*, as_json: bool, quiet: bool, **given: Any) -> int:
    """Serve emulated devices on a socket until Ctrl-C or SIGTERM.

    Programs use them with the variables of `rdmawire verbs env`. Standard error shows the addresses
    of the devices, the commands for other terminals, and a summary at the end; in a terminal also
    frames and bytes, every second. With -w - the capture goes to standard output. --json prints
    only the summary, -q nothing.
    """
    from rdmawire.verbs_service import given_socket

    options.check_summary(as_json=as_json, quiet=quiet)
    if given["pcap"] == "-" and sys.stdout.isatty():
        raise click.UsageError("a capture is binary: pipe it to a program, or name a file")
    path: Path = given["socket"] or given_socket(os.environ)
    with with_session(path, given) as session, _until_signal(session.stop):
        is_silent = quiet or as_json
        if not is_silent:
            _explain(session, is_default=path == given_socket({**os.environ, "RDMAWIRE_VERBS": ""}))
        is_live = not is_silent and sys.stderr.isatty()
        session.serve(partial(_show, session) if is_live else None)
        if is_live:
            click.echo(_LINE_START, err=True, nl=False)
        counters = session.counters()
    if not quiet:
        summarize(counters, given["pcap"], as_json=as_json)
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


def _explain(session: "VerbsSession", *, is_default: bool) -> None:
    from ipaddress import IPv6Address

    for device in session.server.devices:
        address = IPv6Address(device.gids[0])
        click.echo(f"{escape(device.name)}  {address.ipv4_mapped or address}", err=True)
    path = session.files.socket
    option = "" if is_default else f" --socket {shlex.quote(os.fspath(path))}"
    click.echo(f"Serving on {escape(os.fspath(path))} until Ctrl-C. In other terminals:", err=True)
    for words, purpose in (("", "use the devices"), (" --unset", "after the end of the service")):
        line = f'  eval "$(rdmawire verbs env{escape(option)}{words})"'
        click.echo(f"{line}  # {purpose}", err=True)


def _show(session: "VerbsSession") -> None:
    click.echo(f"{_LINE_START}{summary(session.counters())}", err=True, nl=False)
