"""`rdmawire verbs`: run programs that use libibverbs on emulated devices."""

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import CommandWithOthers, option
from rdmawire.cli.streams import complain
from rdmawire.cli.verbs.settings import (
    SUMMARY_AS_JSON,
    service_options,
    with_session,
)
from rdmawire.terminal import escape, plural

if TYPE_CHECKING:
    from subprocess import Popen

    from rdmawire.verbs_service import VerbsSession

    Counters = Mapping[str, Mapping[str, int]]

_SUBCOMMANDS = {
    "serve": ("Serve devices until Ctrl-C, for programs of other terminals.", f"{__name__}.serve"),
    "env": ("Print variables for a shell, or run a command with them.", f"{__name__}.env"),
    "status": ("Print the counters of the devices of a service.", f"{__name__}.status"),
}
_STAND_IN = "rdma"
"""A command that is among the files of a service."""
_NOT_EXECUTABLE, _NOT_FOUND, _SIGNALED = 126, 127, 128
"""Exit statuses, as of shells."""


class _VerbsCommand(CommandWithOthers):
    """The command that runs a program, and subcommands."""

    subcommands: Mapping[str, tuple[str, str]] = _SUBCOMMANDS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subcommands"):
            formatter.write_dl([(name, row[0]) for name, row in _SUBCOMMANDS.items()])
        super().format_options(ctx, formatter)


@click.command(
    "verbs",
    cls=_VerbsCommand,
    others={name: module for name, (_, module) in _SUBCOMMANDS.items()},
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False},
    examples=(
        "rdmawire verbs -- ibv_devinfo",
        "rdmawire verbs -w pingpong.pcap -- bash",
        "rdmawire verbs -- sh -c 'ib_write_bw -d rw0 & sleep 1; ib_write_bw -d rw1 localhost'",
        "rdmawire verbs --network loss=0.001,latency=10us -- pytest",
        "rdmawire verbs --host dgx-h100 -- ucx_info -d",
        "rdmawire verbs --socket v.sock -- ib_write_bw -d rw0  # one terminal, and in another:",
        "rdmawire verbs env --socket v.sock ib_write_bw -d rw1 localhost",
        'rdmawire verbs serve --devices 4  # then, in others: eval "$(rdmawire verbs env)"',
    ),
)
@click.argument("words", metavar="COMMAND", nargs=-1, required=True, type=click.UNPROCESSED)
@service_options(
    "Socket of the service, for programs of other terminals.  [default: a private one]"
)
@option(
    "Command", "--no-preload", is_flag=True,
    help="Let the command see the machine's own /sys: UCX and NCCL look for devices there.",
)  # fmt: skip
@SUMMARY_AS_JSON
@options.QUIET
def command(
    words: tuple[str, ...], *, no_preload: bool, as_json: bool, quiet: bool, **given: Any
) -> int:
    """Run COMMAND with libibverbs devices that are emulated, without RDMA hardware or root.

    The devices rw0, rw1, ... belong to a service, which ends with the command. Both ends of a
    connection use the same service: run them in one COMMAND, such as a shell, a script or a test
    runner, or give --socket, and run the other end by `rdmawire verbs env --socket` in another
    terminal. The summary goes to standard error. Exit status: that of the command, 126 if it cannot
    be executed, 127 if there is none.
    """
    from rdmawire.cli.verbs.signals import forwarded

    options.check_summary(as_json=as_json, quiet=quiet)
    if given["pcap"] == "-":
        raise click.UsageError("standard output is that of the command: name a file with -w FILE")
    if (status := status_of_missing(words[0])) is not None:
        return status
    if not quiet:
        note_executable(words[0])
    sys.stdout.flush()
    with (
        with_session(given["socket"], given) as session,
        forwarded(session.limit_wait) as forward_to,
    ):
        try:
            child = session.start(words, os.environ, preload=not no_preload)
        except OSError as error:
            return status_of_failure(words[0], error)
        forward_to(child)
        status = _run(session, child)
        counters = session.counters()
    if not quiet:
        summarize(counters, given["pcap"], as_json=as_json)
    return status


def status_of_missing(word: str) -> int | None:
    """Print an error for a command that cannot be run, and return the exit status, or ``None``."""
    if shutil.which(word) is not None or word == _STAND_IN:
        return None
    if os.path.exists(word) and os.sep in word:
        complain(f"{escape(word)}: not an executable file")
        return _NOT_EXECUTABLE
    complain(f"{escape(word) or 'an empty name'}: there is no such command")
    return _NOT_FOUND


def note_executable(word: str) -> None:
    """Print why a command will find no devices, if its file shows that."""
    from rdmawire.cli.verbs.executable import note_of

    note = note_of(shutil.which(word) or word)
    if note is not None:
        complain(f"note: {escape(word)} {note}")


def status_of_failure(word: str, error: OSError) -> int:
    """Print an error for a command that the system refused to run, and return the exit status."""
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        reason = "the interpreter that it names is not found"
    complain(f"{escape(word)}: cannot be executed: {reason}")
    return _NOT_EXECUTABLE


def _run(session: "VerbsSession", child: "Popen[bytes]") -> int:
    """Serve until the command ends; return its exit status, or 128 plus the number of a signal."""
    try:
        session.serve()
    finally:
        session.end_service()  # if it failed, the command sees that its devices are gone
        status = child.wait()
    return status if status >= 0 else _SIGNALED - status


def summarize(counters: "Counters", pcap: str | None, *, as_json: bool) -> None:
    """Print the counters of devices to standard error: a summary in one line, or a JSON object."""
    from rdmawire.dissect.output import dumped

    if as_json:
        click.echo(dumped({"devices": counters, "capture": pcap}), err=True)
    else:
        end = f"; {escape(pcap)}" if pcap else ""
        click.echo(f"rdmawire: {summary(counters)}{end}", err=True)


def summary(counters: "Counters") -> str:
    """Return a summary of the counters of devices in one line."""
    from rdmawire.wire.show import byte_count

    def total(name: str) -> int:
        return sum(values[name] for values in counters.values())

    text = f"{plural(len(counters), 'device')}, {plural(total('xmit_packets'), 'frame')}"
    size = byte_count(total("xmit_bytes"))
    return f"{text}, {size}, {plural(total('retransmits'), 'retransmission')}"
