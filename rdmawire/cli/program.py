"""The command `rdmawire`: a group whose commands are imported when they are called."""

import os
import re
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class, shell_complete

from rdmawire import __version__
from rdmawire.cli import streams
from rdmawire.cli.command import Command, Context, load
from rdmawire.errors import Ended, RdmaError
from rdmawire.terminal import quote, shorten

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def raise_at_signals() -> None:
    """Raise :class:`Ended` at SIGTERM and SIGHUP, unless the parent process has them ignored."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def end_by_signal(ended: Ended) -> int:
    """End by the signal itself, so that the parent process sees its number."""
    signal.signal(ended.number, signal.SIG_DFL)
    signal.raise_signal(ended.number)
    return 128 + ended.number


_COMMANDS = {
    "dissect": (
        "Read captures", "rdmawire.cli.dissect",
        "Show the frames of captures, decoded and verified.",
    ),
    "stats": (
        "Read captures", "rdmawire.cli.stats",
        "Count opcodes, endpoints, queue pairs and throughput.",
    ),
    "edit": (
        "Make traffic", "rdmawire.cli.edit",
        "Change fields of a capture and recompute its checksums.",
    ),
    "gen": (
        "Make traffic", "rdmawire.cli.gen",
        "Generate test traffic: every verb, losses, ECN, GPU memory.",
    ),
    "run": (
        "Make traffic", "rdmawire.cli.run",
        "Run scenarios of virtual hosts and check their expectations.",
    ),
    "transfer": (
        "Make traffic", "rdmawire.cli.transfer",
        "Send data between GPUs directly, through host memory, by TCP or NVLink.",
    ),
    "storage": (
        "Make traffic", "rdmawire.cli.storage",
        "Read and write between drives and GPUs directly, or through host memory.",
    ),
    "sweep": (
        "Make traffic", "rdmawire.cli.sweep",
        "Measure collectives and transfers with every combination of settings.",
    ),
    "verbs": (
        "Make traffic", "rdmawire.cli.verbs",
        "Run programs that use libibverbs on emulated devices.",
    ),
    "doctor": (
        "Find bugs", "rdmawire.cli.doctor",
        "Say why RDMA does not work on a host, in a scenario or in a capture.",
    ),
    "fuzz": (
        "Find bugs", "rdmawire.cli.fuzz",
        "Fuzz RDMA state machines and parsers, and play findings again.",
    ),
    "topo": (
        "Look up", "rdmawire.cli.topo",
        "Show how near the GPUs and adapters of a host are, and why it matters.",
    ),
    "vectors": (
        "Look up", "rdmawire.cli.vectors",
        "Find test vectors by what they show; print their bytes.",
    ),
    "fields": (
        "Look up", "rdmawire.cli.fields",
        "List every field with its name, type and clause.",
    ),
    "completion": (
        "Set up", "rdmawire.cli.program",
        "Print a script that makes your shell complete rdmawire.",
    ),
}  # fmt: skip
"""Commands: the heading in the help, the module with its ``command``, and its line in the help."""

_COMPLETE = "_RDMAWIRE_COMPLETE"
_INTERRUPTED = 130
_INTERNAL_ERROR = 70
_MAX_REASON = 2000
"""Characters of a message about options, which may repeat a long one."""


class _LazyGroup(click.Group):
    """Imports a command's module only to run it, so that starting stays fast."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in _COMMANDS:
            return None
        return load(_COMMANDS[name][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(_no_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for heading in dict.fromkeys(heading for heading, _, _ in _COMMANDS.values()):
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, text) for name, (of, _, text) in _COMMANDS.items() if of == heading]
                )


@click.command(
    cls=_LazyGroup,
    no_args_is_help=True,
    epilog="Example: rdmawire dissect capture.pcapng",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rdmawire")
def cli() -> None:
    """Read, check, make and edit RDMA traffic: RoCE, InfiniBand and iWARP."""


def _no_command(word: str) -> str:
    """Return the message for an unknown command, with the nearest one, or one that reads a file."""
    if os.path.exists(word):
        import shlex

        dissect = f"rdmawire dissect {shlex.quote(word)}"
        return f"{word!r} is not a command; to see what the file holds: {dissect}"
    near = [name for name in _COMMANDS if _alike(name, word)]
    hint = f"; the nearest is {near[0]}" if near else ""
    return f"no command is named {quote(word)}{hint}"


def _alike(name: str, word: str) -> bool:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, name, word).ratio() >= 0.6


def run() -> int:
    """Run the command line and return the exit status; a failure is one line on standard error.

    1: a file or its contents; 2: wrong usage; 70: a bug in rdmawire.
    """
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        raise_at_signals()
        if not streams.prepare():
            return _complain("standard output is closed; there is nowhere to print to", 1)
        if sys.flags.optimize > 1:
            return _complain("python -OO removes the help; use -O", 1)
        status = _invoke(sys.argv[1:])
        sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        reaction = next(react for kind, react in _REACTIONS if isinstance(error, kind))
        return reaction(error)
    return status if isinstance(status, int) else 0


def _invoke(words: list[str]) -> object:
    """Run the command that the words name, or complete them for the shell.

    click's own ``main`` does both, but ends the process its own way on a closed pipe.
    """
    if instruction := os.environ.get(_COMPLETE):
        _check_completion(instruction, os.environ.get("COMP_CWORD", ""))
        return shell_complete(cli, {}, "rdmawire", _COMPLETE, instruction)
    try:
        with cli.make_context("rdmawire", words) as context:
            return cli.invoke(context)
    except click.exceptions.NoArgsIsHelpError as help_:
        click.echo(help_.format_message())
        return 0


def _check_completion(instruction: str, position: str) -> None:
    """Raise ``UsageError`` for a value that no shell sends; click does not check it."""
    shell, _, what = instruction.partition("_")
    if shell not in ("bash", "zsh", "fish") or what not in ("source", "complete"):
        raise click.UsageError(f"{_COMPLETE}: no shell sends {instruction!r}")
    counted = shell == "fish" or re.fullmatch("[0-9]{1,9}", position)
    if what == "complete" and not ("COMP_WORDS" in os.environ and counted):
        raise click.UsageError(f"{_COMPLETE} needs COMP_WORDS and a number in COMP_CWORD")


def _usage(error: click.UsageError) -> int:
    named = " ".join(["rdmawire", *(word for word in sys.argv[1:2] if word in _COMMANDS)])
    command = error.ctx.command_path if error.ctx else named
    reason = shorten(error.format_message().rstrip("."), _MAX_REASON)
    return _complain(f"{reason}; see `{command} --help`", 2)


def _complain(text: str, status: int) -> int:
    streams.complain(text)
    return status


def _leave_quietly() -> int:
    """Exit with 0 after the reader closed the pipe, without flushing what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _refused(error: RdmaError) -> int:
    """Report an error, unless its cause is that the reader of the output closed the pipe."""
    if isinstance(error.__cause__, BrokenPipeError):
        return _leave_quietly()
    return _complain(str(error), 1)


def _bug(error: BaseException) -> int:
    if os.environ.get("RDMAWIRE_TRACEBACK"):
        raise error
    return _complain(
        f"bug in rdmawire: {type(error).__name__}: {error}. Please report it with the "
        "capture; RDMAWIRE_TRACEBACK=1 shows where",
        _INTERNAL_ERROR,
    )


_REACTIONS: tuple[tuple[type[BaseException], Callable[[Any], int]], ...] = (
    (click.exceptions.Exit, lambda error: error.exit_code),
    (click.UsageError, _usage),
    (click.ClickException, lambda error: _complain(error.format_message(), error.exit_code)),
    (RdmaError, _refused),
    (BrokenPipeError, lambda _: _leave_quietly()),
    (Ended, end_by_signal),
    (KeyboardInterrupt, lambda _: _complain("interrupted", _INTERRUPTED)),
    (click.Abort, lambda _: _complain("interrupted", _INTERRUPTED)),
    (OSError, lambda error: _complain(f"cannot write the output: {error.strerror or error}", 1)),
    (MemoryError, lambda _: _complain("out of memory", 1)),
    (BaseException, _bug),
)
"""The reaction to each type of exception; the first that matches counts."""


@click.command(
    "completion",
    cls=Command,
    examples=(
        """echo 'eval "$(rdmawire completion bash)"' >> ~/.bashrc""",
        "rdmawire completion fish > ~/.config/fish/completions/rdmawire.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that makes SHELL complete commands, options and field names."""
    completion = get_completion_class(shell)
    if completion is None:
        raise click.ClickException(f"this version of click has no completion for {shell}")
    click.echo(completion(cli, {}, "rdmawire", _COMPLETE).source())
