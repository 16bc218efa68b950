"""`rdmawire verbs env`: the variables with which programs use a service."""

import os
import shlex
import sys
from pathlib import Path

import click

from rdmawire.cli.command import Command, PathType, option
from rdmawire.cli.verbs import status_of_missing


@click.command(
    "verbs env",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=(
        'eval "$(rdmawire verbs env)"',
        "rdmawire verbs env ib_write_bw -d rw1 localhost",
        "rdmawire verbs env --socket /run/rdmawire/verbs.sock ibv_devinfo",
    ),
)
@click.argument("words", metavar="[COMMAND]", nargs=-1, type=click.UNPROCESSED)
@option(
    "Service", "--socket", type=PathType(path_type=Path), metavar="PATH",
    help="Socket of the service.  [default: as of `rdmawire verbs serve`]",
)  # fmt: skip
@option(
    "Command", "--no-preload", is_flag=True,
    help="Let programs see the machine's own /sys: UCX and NCCL look for devices there.",
)  # fmt: skip
def command(words: tuple[str, ...], *, socket: Path | None, no_preload: bool) -> int:
    """Print `export` lines for the shell's eval, or run COMMAND with these variables."""
    from rdmawire.verbs_service import ProgramFiles, given_socket, is_served, no_service

    path = socket or given_socket(os.environ)
    if not is_served(path):
        raise no_service(path)
    files = ProgramFiles(path)
    if not words:
        for name, value in files.variables(os.environ, preload=not no_preload).items():
            click.echo(f"export {name}={shlex.quote(value)}")
        return 0
    status = status_of_missing(words[0])
    if status is None:
        sys.stdout.flush()
        variables = files.command_variables(os.environ, preload=not no_preload)
        os.execvpe(words[0], words, {**os.environ, **variables})  # noqa: S606  the user's command
    return status
