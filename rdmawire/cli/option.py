"""Options of commands that read captures: what their texts mean."""

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from rdmawire.analysis.output import Separators
from rdmawire.analysis.selection import FieldError, Selection
from rdmawire.analysis.window import Bound, BoundError


def bound(ctx: click.Context, option: click.Parameter, text: str | None) -> Bound | None:
    """A frame number, a time since the first frame, or a date."""
    try:
        return Bound.parse(text) if text is not None else None
    except BoundError as error:
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


_CHARACTERS = {"/t": "\t", "/s": " ", "/n": "\n"}
_READERS: dict[str, Callable[[str], object]] = {
    "header": {"y": True, "n": False}.__getitem__,
    "separator": lambda text: _CHARACTERS.get(text, text),
    "aggregator": lambda text: _CHARACTERS.get(text, text),
    "occurrence": {"a": "a", "f": "f", "l": "l"}.__getitem__,
    "quote": {"d": '"', "s": "'", "n": ""}.__getitem__,
}


def separators(
    ctx: click.Context, option: click.Parameter, settings: tuple[str, ...]
) -> Separators:
    """The ``-E`` settings, each ``name=value`` as in tshark."""
    chosen: dict[str, object] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            chosen[name] = _READERS[name](value)
        except KeyError:
            raise click.BadParameter(
                f"{setting!r}: header=y|n, separator=CHAR, aggregator=CHAR, "
                "occurrence=a|f|l or quote=d|s|n",
                ctx,
                option,
            ) from None
    return Separators(**chosen)  # type: ignore[arg-type]
