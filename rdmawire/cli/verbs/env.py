"""`rdmawire verbs env`: the variables with which programs use a service."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from rdmawire.cli.command import Command, PathType, option
from rdmawire.cli.streams import complain
from rdmawire.cli.verbs import note_executable, status_of_failure, status_of_missing


@click.command(
    "verbs env",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=(
        'eval "$(rdmawire verbs env)"',
        'eval "$(rdmawire verbs env --unset)"  # the shell is as before',
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
@option(
    "Command", "--unset", is_flag=True,
    help="Print lines that remove the variables from a shell, also after the end of the service.",
)  # fmt: skip
def command(words: tuple[str, ...], *, socket: Path | None, no_preload: bool, unset: bool) -> int:
    """Print `export` lines for the shell's eval, or run COMMAND with these variables."""
    from rdmawire.verbs_service import ProgramFiles, given_socket, no_service

    path = socket or given_socket(os.environ)
    files = ProgramFiles(path)
    if unset:
        if words or no_preload:
            raise click.UsageError("--unset prints lines for a shell: give nothing else with it")
        _print_lines(files.variables_without(os.environ))
        return 0
    if not files.wait_for_service(
        lambda: complain(f"waiting for the service that is starting at {path}")
    ):
        raise no_service(path)
    files.check()
    if not words:
        _print_lines(files.variables(os.environ, preload=not no_preload))
        return 0
    return _execute(words, files.command_variables(os.environ, preload=not no_preload))


def _execute(words: tuple[str, ...], variables: Mapping[str, str]) -> int:
    """Run a command in place of this process. Return the exit status if that is impossible."""
    if (status := status_of_missing(words[0])) is not None:
        return status
    note_executable(words[0])
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, {**os.environ, **variables})  # noqa: S606  the user's
    except OSError as error:
        return status_of_failure(words[0], error)


def _print_lines(variables: Mapping[str, str | None]) -> None:
    """Print a line for each variable, for the shell's eval."""
    for name, value in variables.items():
        line = f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        click.echo(line)
