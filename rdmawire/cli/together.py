"""Options of `rdmawire run` that go together: what else each thing to do takes."""

from collections.abc import Iterator
from typing import Final

import click

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
