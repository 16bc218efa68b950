"""`rdmawire doctor`: why RDMA does not work or is slow."""

from typing import TYPE_CHECKING, Any

import click

from rdmawire.capture.io import STANDARD_INPUT, STREAM
from rdmawire.cli import options
from rdmawire.cli.command import Command, option
from rdmawire.cli.streams import bytes_of_input, complain, complain_of_each
from rdmawire.dissect.output import dumped
from rdmawire.errors import RdmaError
from rdmawire.terminal import escape, plural

if TYPE_CHECKING:
    from rdmawire.doctor import Examination, Finding

_FOUND = 1
_USAGE = 2


@click.command(
    "doctor",
    cls=Command,
    examples=(
        "rdmawire doctor",
        "rdmawire doctor two-sockets",
        "ssh gpu-node nvidia-smi topo -m | rdmawire doctor -",
        "rdmawire doctor slow.pcap",
        "rdmawire doctor bar1-exhausted",
        "rdmawire doctor --list",
    ),
)
@click.argument("what", required=False, default="/sys")
@option("Output", "--list", "as_list", is_flag=True, help="List all checks.")
@option(
    "Input", "--check", "names", metavar="NAME", multiple=True,
    help="Do this check alone; may be repeated.",
)  # fmt: skip
@options.text_or_json("Print one JSON object.")
def command(what: str, *, as_list: bool, names: tuple[str, ...], as_json: bool) -> int:
    """Name the causes of problems, what shows them, and what to do.

    WHAT is a host as for `rdmawire topo` (by default this machine), a scenario, or a capture; - is
    standard input with text. A scenario is run, and its frames are examined as well. Exit status:
    0 if nothing was found, 1 if something was, 2 if WHAT cannot be read.
    """
    from rdmawire.doctor import CHECKS, examine

    known = [check.name for check in CHECKS]
    for name in names:
        if name not in known:
            raise click.UsageError(f"--check {escape(name)}: checks are {', '.join(known)}")
    if as_list:
        _list(as_json=as_json)
        return 0
    try:
        examination = _standard_input() if what == STREAM else examine(what)
    except RdmaError as error:
        complain_of_each(error)
        return _USAGE
    found = [one for one in examination.findings if not names or one.check.name in names]
    _show(examination, found, what, as_json=as_json)
    return _FOUND if found else 0


def _standard_input() -> "Examination":
    from rdmawire.doctor.examine import examine_text

    return examine_text(bytes_of_input(), STANDARD_INPUT)


def _list(*, as_json: bool) -> None:
    from rdmawire.doctor import CHECKS

    rows: list[dict[str, Any]] = [
        {
            "check": check.name,
            "subject": check.subject.value,
            "severity": check.severity.value,
            "cause": check.cause,
            "remedy": check.remedy,
            "source": check.source,
        }
        for check in CHECKS
    ]
    if as_json:
        click.echo(dumped(rows, indent=1))
        return
    width = max(len(row["check"]) for row in rows)
    for row in rows:
        click.echo(f"{row['subject']:<8}  {row['check']:<{width}}  {row['cause']}")


def _show(examination: "Examination", found: "list[Finding]", what: str, *, as_json: bool) -> None:
    subject = examination.subject.value
    if as_json:
        values = {"subject": subject, "findings": [one.values() for one in found]}
        click.echo(dumped(values, indent=1))
    else:
        for one in found:
            click.echo("\n".join(map(escape, one.lines())))
        count = plural(len(found), "problem") if found else "no problem"
        name = STANDARD_INPUT if what == STREAM else escape(what)
        click.echo(f"{name}, a {subject}: {count} found")
    for note in examination.notes:
        complain(f"note: {note}")
