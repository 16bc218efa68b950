"""Commands with help in groups: options by topic, examples last, colour in a terminal only.

It imports little but click, so that starting stays fast.
"""

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import click

from rdmawire.terminal import quote, suggest

F = TypeVar("F", bound=Callable[..., Any])
_OTHER = "Options"
"""The heading of options without a group: --help and --version."""


def use_color(stream: Any) -> bool:
    """Return whether to colour text on ``stream``: a terminal, unless NO_COLOR is set."""
    return stream is not None and stream.isatty() and "NO_COLOR" not in os.environ


_MAX_SHOWN = 1 << 32
"""Larger upper bounds are left out of the help."""


class IntegerType(click.IntRange):
    """An integer within bounds, at most ``sys.maxsize``; help shows it as INTEGER."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number > sys.maxsize:
            self.fail(f"{number} is larger than {sys.maxsize}", param, ctx)
        return number


class PathType(click.Path):
    """A path, which is not empty: the empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


class _HelpFormatter(click.HelpFormatter):
    """Writes headings in bold and the names of options in colour, in a terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, _styled("Usage: ", bold=True) if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        super().write_heading(_styled(heading, bold=True))

    def write_dl(self, rows: Iterable[tuple[str, str]], *widths: int, **more: int) -> None:
        super().write_dl([(_styled(name, fg="cyan"), text) for name, text in rows], *widths, **more)


def _styled(text: str, **style: Any) -> str:
    return click.style(text, **style) if use_color(sys.stdout) else text


class Context(click.Context):
    """A context whose help is written by the formatter of this module."""

    formatter_class = _HelpFormatter


class Option(click.Option):
    """An option that help lists under the heading ``group``."""

    def __init__(self, *names: Any, group: str = _OTHER, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return the default and the like; a range is written as ``1..64``."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.type, IntegerType):
            shown = self.type.max is not None and self.type.max <= _MAX_SHOWN
            extra["range"] = f"{self.type.min}..{self.type.max if shown else ''}"
        return extra


def option(group: str, *names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator as :func:`click.option`; help lists the option under ``group``."""
    return click.option(*names, cls=Option, group=group, **settings)


class Command(click.Command):
    """A command with options in groups and ``examples``; a repeated option is a usage error."""

    context_class = Context

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Leave out an argument that the name has already: the kind of traffic of `gen`."""
        word = (ctx.info_name or "").partition(" ")[2]
        named = [
            one.metavar
            for one in self.params
            if isinstance(one.type, click.Choice) and word in one.type.choices
        ]
        return [piece for piece in super().collect_usage_pieces(ctx) if piece not in named]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record:
                groups.setdefault(getattr(parameter, "group", _OTHER), []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._check_repeated(ctx, args)
        return super().parse_args(ctx, args)

    def _check_repeated(self, ctx: click.Context, args: list[str]) -> None:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for each, times in Counter(given).items():
            if times > 1 and isinstance(each, click.Option) and not _is_repeatable(each):
                raise click.UsageError(f"{each.opts[0]} is given {times} times; give it once", ctx)


def load(module: str) -> click.Command:
    """Import a module and return its ``command``.

    Python does not search for garbage meanwhile: what modules make stays, and the search takes a
    twentieth of the start.
    """
    gc.disable()
    try:
        command: click.Command = import_module(module).command
    finally:
        gc.enable()
    return command


class CommandWithOthers(Command):
    """A command whose first word may name another command, imported when it is called.

    ``others`` has the module of each, whose ``command`` it is. With ``keeps_word`` that word is the
    first argument of the other command, too.
    """

    def __init__(
        self, *args: Any, others: Mapping[str, str], keeps_word: bool = False, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.others = others
        self.keeps_word = keeps_word

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in self.others:
            name, words = f"{info_name} {args[0]}", args if self.keeps_word else args[1:]
            return load(self.others[args[0]]).make_context(name, words, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


class CommandGroup(click.Group):
    """A command with subcommands, imported when they are called.

    ``subcommands`` has the line in the help of each, and the name of its module, whose ``command``
    it is; ``examples`` end the help.
    """

    context_class = Context

    def __init__(
        self,
        *args: Any,
        subcommands: Mapping[str, tuple[str, str]],
        examples: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.subcommands = subcommands
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.subcommands)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in self.subcommands:
            return None
        return load(self.subcommands[name][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.subcommands and not args[0].startswith("-"):
            near = suggest(args[0], self.subcommands)
            raise click.UsageError(f"no subcommand is named {quote(args[0])}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Subcommands"):
            formatter.write_dl([(name, row[0]) for name, row in self.subcommands.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        records = [row for one in self.get_params(ctx) if (row := one.get_help_record(ctx))]
        with formatter.section(_OTHER):
            formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))


def _is_repeatable(each: click.Option) -> bool:
    return each.multiple or each.count or each.is_flag
