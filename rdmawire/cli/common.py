"""Options that mean the same in every command: -r reads, -w writes, and --json is -T json."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

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
