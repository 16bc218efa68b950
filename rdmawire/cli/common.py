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
"""Files to read, besides those that are named without an option."""


def written(name: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """The file to write, as parameter ``name``; ``text`` is its help. tshark has -w, others -o."""
    words = ("-w", "--write", "-o", "--output", name)
    return click.option(*words, required=required, metavar="FILE", help=text)


def text_or_json(text: str) -> Callable[[F], F]:
    """--json, and -T json; the command gets ``as_json``, and ``text`` is the help."""

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
    """Whether JSON is wanted; :class:`click.UsageError` where both options say otherwise."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json is -T json, and not -T {form}: give one of them")
    return as_json or form == "json"
