"""`rdmawire fuzz replay`: findings, played again."""

import json
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rdmawire.cli.command import Command, option
from rdmawire.cli.streams import complain
from rdmawire.errors import FuzzError
from rdmawire.terminal import escape, quote, shorten

if TYPE_CHECKING:
    from rdmawire.fuzz.oracle import Violation

_MAX_TEXT: Final = 4000
"""Characters of what was expected or happened that are printed."""
_MAX_MESSAGE: Final = 300
"""Characters of a message about the values of a finding."""


@click.command(
    "replay",
    cls=Command,
    examples=("rdmawire fuzz replay findings/*/", "rdmawire fuzz replay --json findings/*/"),
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...",
                type=click.Path(readable=False))  # fmt: skip
@option("Safety", "--trust", is_flag=True,
        help="Also run the command or the Python function that a finding names. Use it for "
        "findings of your own.")  # fmt: skip
@option("Output", "--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(folders: tuple[str, ...], *, trust: bool, as_json: bool) -> int:
    """Play findings again, each on the target that it was found on.

    A finding of a command or of a Python function is played with --trust alone, since its file says
    what is run. The module of a function is looked for in the current folder and on PYTHONPATH. A
    finding that cannot be played is a line on standard error; the others are played all the same.

    Exit status: 0 if no finding shows a violation any more, 1 if one does, 2 if one cannot be
    played, whatever the others show.
    """
    if trust:
        _search_current_folder()
    shown: list[dict[str, Any]] = []
    status = 0
    for folder in (str(Path(each)) if each else "" for each in folders):
        try:
            violation = _replayed(folder, trust=trust)
        except FuzzError as error:
            complain(str(error))
            shown.append({**_object(folder, None), "error": str(error)})
            status = 2
            continue
        status = max(status, int(violation is not None))
        shown.append(_object(folder, violation))
        if not as_json:
            _print(folder, violation)
    if as_json:
        click.echo(json.dumps(shown, indent=1))
    return status


def _search_current_folder() -> None:
    """Look for modules in the current folder, too, last; there is none if it was removed."""
    with suppress(OSError):
        sys.path.append("")


def _replayed(folder: str, *, trust: bool) -> "Violation | None":
    """Play a finding. Raises :class:`FuzzError` for one that runs other code, without ``trust``."""
    from rdmawire.fuzz.finding import code_of, path_text, read_finding, replay

    if not folder:
        raise FuzzError("the path of a finding is empty")
    path = Path(folder)
    finding = read_finding(path)
    code = code_of(finding.spec)
    if code and not trust:
        raise FuzzError(
            f"{path_text(path)}: it runs {quote(code)}: add --trust if you know where it is from"
        )
    try:
        with redirect_stdout(sys.stderr):  # of modules that print when they are imported
            return replay(finding)
    except FuzzError as error:
        raise FuzzError(f"{path_text(path)}: {shorten(str(error), _MAX_MESSAGE)}") from error


def _object(folder: str, violation: "Violation | None") -> dict[str, Any]:
    return {"folder": folder, "violation": violation._asdict() if violation else None}


def _print(folder: str, violation: "Violation | None") -> None:
    name = escape(folder)
    if violation is None:
        click.echo(f"{name}: no violation any more")
        return
    click.echo(f"{name}: {_text(violation.what)} at input {violation.place + 1}")
    click.echo(violation_text(violation))


def violation_text(violation: "Violation") -> str:
    """Write what was expected, what happened and the clause, in three lines."""
    return (
        f"  expected: {_text(violation.expected)}\n"
        f"  happened: {_text(violation.happened)}\n"
        f"  clause:   {_text(violation.clause or 'none')}"
    )


def _text(text: str) -> str:
    """Write a text of a finding, whose file may be from someone else."""
    return escape(shorten(text, _MAX_TEXT))
