"""Options of commands that read captures: those that all have, and what their texts mean."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rdmawire.analysis import checksum
from rdmawire.analysis.output import Separators
from rdmawire.analysis.selection import FieldError, Selection
from rdmawire.analysis.window import Bound, BoundError
from rdmawire.wire.inet import ROCE_PORT

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter


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
    from rdmawire.analysis.filter import Filter, FilterError

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
    from rdmawire.analysis.fields import fields

    return [CompletionItem(info.name) for info in fields() if info.name.startswith(start)]


CHECKSUMS = {
    "icrc": checksum.ICRC,
    "vcrc": checksum.VCRC,
    "lpcrc": checksum.LPCRC,
    "mpa": checksum.MPA_CRC,
    "ip": checksum.IPV4,
    "udp": checksum.UDP,
    "tcp": checksum.TCP,
}
"""The kinds of checksums, by what the command line calls them."""


def checksums(ctx: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
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
