"""Options of commands that read captures: those that all have, and what their texts mean."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from rdmawire.dissect import generated
from rdmawire.dissect.output import Separators
from rdmawire.dissect.select import Bound, BoundError, FieldError, Selection
from rdmawire.wire.inet import ROCE_PORT

if TYPE_CHECKING:
    from rdmawire.filter import Filter


class WholeNumber(click.IntRange):
    """A whole number between two, called so in errors."""

    name = "whole number"


def bound(ctx: click.Context, option: click.Parameter, text: str | None) -> Bound | None:
    """A frame number, a time since the first frame, or a date."""
    try:
        return Bound.parse(text) if text is not None else None
    except BoundError as error:
        raise click.BadParameter(str(error), ctx, option) from None


def display_filter(
    ctx: click.Context, option: click.Parameter, text: str | None
) -> "Filter | None":
    """A display filter; ``None`` if none is asked for."""
    if text is None:
        return None
    from rdmawire.filter import Filter, FilterError

    try:
        return Filter(text)
    except FilterError as error:
        raise click.BadParameter(str(error), ctx, option) from None


def selection(
    ctx: click.Context, option: click.Parameter, names: tuple[str, ...]
) -> Selection | None:
    """Fields by name; ``None`` if none is asked for."""
    try:
        return Selection(names) if names else None
    except FieldError as error:
        raise click.BadParameter(str(error), ctx, option) from None


def complete_field(
    _ctx: click.Context, _option: click.Parameter, start: str
) -> list[CompletionItem]:
    """The field names that begin like this."""
    from rdmawire.dissect.fields import fields

    return [CompletionItem(info.name) for info in fields() if info.name.startswith(start)]


CHECKSUMS = {
    "icrc": generated.ICRC,
    "vcrc": generated.VCRC,
    "lpcrc": generated.LPCRC,
    "mpa": generated.MPA_CRC,
    "ip": generated.IPV4_CHECKSUM,
    "udp": generated.UDP_CHECKSUM,
    "tcp": generated.TCP_CHECKSUM,
}
"""The kinds of checksums, by what the command line calls them."""


def checksum_names(ctx: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    """The names of kinds of checksums, which a list of ours stands for."""
    words = list(CHECKSUMS) if text == "all" else text.split(",")
    for word in words:
        if word not in CHECKSUMS:
            known = ", ".join(CHECKSUMS)
            raise click.BadParameter(f"{word!r} is none of {known}, all", ctx, option)
    return tuple(CHECKSUMS[word].name for word in words)


_CHARACTERS = {"/t": "\t", "/s": " ", "/n": "\n"}


def _character(text: str) -> str:
    """One character, or the name of one; :class:`KeyError` for anything else."""
    return text if len(text) == 1 else _CHARACTERS[text]


_READERS: dict[str, Callable[[str], object]] = {
    "header": {"y": True, "n": False}.__getitem__,
    "separator": _character,
    "aggregator": _character,
    "occurrence": {"a": "a", "f": "f", "l": "l"}.__getitem__,
    "quote": {"d": '"', "s": "'", "n": ""}.__getitem__,
}
_SETTINGS = (
    "header=y|n, separator=CHAR, aggregator=CHAR (a character, /t, /s or /n), "
    "occurrence=a|f|l or quote=d|s|n"
)


def separators(
    ctx: click.Context, option: click.Parameter, settings: tuple[str, ...]
) -> Separators | None:
    """The ``-E`` settings, each ``name=value`` as in tshark; ``None`` if there is none."""
    chosen: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            chosen[name] = _READERS[name](value)
        except KeyError:
            raise click.BadParameter(f"{setting!r}: {_SETTINGS}", ctx, option) from None
    return Separators(**chosen) if chosen else None


DISPLAY_FILTER = click.option(
    "-Y", "--display-filter", "wanted", metavar="FILTER", callback=display_filter,
    help="Only frames that pass a display filter, in Wireshark's language.",
)  # fmt: skip
PORTS = click.option(
    "--port", "ports", type=WholeNumber(0, 65535), multiple=True, default=[ROCE_PORT],
    show_default=True, help="UDP destination port of RoCEv2; may be given several times.",
)  # fmt: skip
PROGRESS = click.option(
    "--progress/--no-progress", default=None, help="A progress bar for long files."
)
"""Options of every command that reads captures."""


F = TypeVar("F", bound=Callable[..., Any])

READ = click.option(
    "-r", "--read", "read", multiple=True, metavar="FILE",
    help="Another FILE, as tshark asks for it.",
)  # fmt: skip
"""Files to read, besides those given as arguments."""


def written(name: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """The option -w or -o for a file to write, as parameter ``name``; ``text`` is its help."""
    words = ("-w", "--write", "-o", "--output", name)
    return click.option(*words, required=required, metavar="FILE", help=text)


def text_or_json(text: str) -> Callable[[F], F]:
    """The options --json and -T; the command gets ``as_json``. ``text`` is the help of --json."""

    def decorate(command: F) -> F:
        @wraps(command)
        def chosen(*args: Any, as_json: bool, form: str | None, **kwargs: Any) -> Any:
            return command(*args, as_json=json_is_asked(form, as_json=as_json), **kwargs)

        flag = click.option("--json", "as_json", is_flag=True, help=f"{text} The same as -T json.")
        choice = click.option(
            "-T", "--format", "form", type=click.Choice(["text", "json"]),
            help="text or json.  [default: text]",
        )  # fmt: skip
        return flag(choice(chosen))  # type: ignore[return-value]

    return decorate


def json_is_asked(form: str | None, *, as_json: bool) -> bool:
    """Whether JSON is wanted; :class:`click.UsageError` if --json and -T contradict each other."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json is -T json, and not -T {form}: give one of them")
    return as_json or form == "json"


class OnceCommand(click.Command):
    """Refuses an option that is given again, unless several are meant to be."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._check_once(ctx, args)
        return super().parse_args(ctx, args)

    def _check_once(self, ctx: click.Context, args: list[str]) -> None:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for each, times in Counter(given).items():
            if times > 1 and isinstance(each, click.Option) and not _may_be_again(each):
                raise click.UsageError(f"{each.opts[0]} is given {times} times; give it once", ctx)


def _may_be_again(each: click.Option) -> bool:
    return each.multiple or each.count or each.is_flag


_BESIDE: Final[dict[str, tuple[str, ...]]] = {
    "listing": (),
    "schema": (),
    "keys": (),
    "show": ("scenarios", "more", "every"),
    "check": ("scenarios", "more", "every", "seed", "as_json", "form", "quiet"),
}
"""What may stand beside each option that has no scenario played."""


def check_together(context: click.Context) -> None:
    """:class:`click.UsageError` for an option, or a scenario, that would not be heeded."""
    given = [name for name, value in context.params.items() if value not in (None, False, ())]
    called = {parameter.name: _called(parameter) for parameter in context.command.params}
    for one, other in _contradictions(given):
        raise click.UsageError(f"{called[one]} and {called[other]} do not go together; use one")


def _contradictions(given: list[str]) -> Iterator[tuple[str, str]]:
    for mode, beside in _BESIDE.items():
        if mode in given:
            yield from ((mode, name) for name in given if name not in (mode, *beside))


def _called(parameter: click.Parameter) -> str:
    """As people write it."""
    return "a SCENARIO" if isinstance(parameter, click.Argument) else parameter.opts[0]
