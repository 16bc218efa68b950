"""`rdmawire fields`: the list of all fields."""

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command
from rdmawire.cli.streams import complain
from rdmawire.dissect.fields import FieldInfo, fields
from rdmawire.dissect.output import dumped


@click.command(
    "fields",
    cls=Command,
    examples=(
        "rdmawire fields",
        "rdmawire fields aeth",
        "rdmawire fields ip.ecn",
        "rdmawire fields 'retry count'",
        "rdmawire fields --json | jq '.[].name'",
    ),
)
@click.argument("pattern", default="")
@options.text_or_json("Print a JSON array.")
def command(pattern: str, *, as_json: bool) -> int:
    """List the fields that `dissect -e` and filters take: name, type, clause, meaning.

    The last column is the name in the header tables, for fields that have one: either name works
    wherever a field is named. PATTERN selects fields whose names or meaning contain
    it; case does not matter, and a space matches an underscore. Exit status: 0 if a field matches,
    else 1.
    """
    found = [info for info in fields() if _matches(info, _plain(pattern))]
    if as_json:
        click.echo(dumped([_as_object(info) for info in found], indent=1))
    else:
        click.echo("".join(f"{_line(info)}\n" for info in found), nl=False)
    if not found:
        complain(f"no field's name or meaning contains {pattern!r}")
    return 0 if found else 1


def _matches(info: FieldInfo, pattern: str) -> bool:
    return any(pattern in _plain(text) for text in (info.name, info.own_name, info.doc))


def _plain(text: str) -> str:
    return text.lower().replace("_", " ")


def _line(info: FieldInfo) -> str:
    return f"{info.name}\t{info.type}\t{info.clause}\t{info.doc}\t{info.own_name}".rstrip("\t")


def _as_object(info: FieldInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "type": info.type,
        "bits": info.width,
        "header": info.header,
        "row": info.row,
        "clause": info.clause,
        "doc": info.doc,
    }
