"""`rdmawire fuzz list`: what can be fuzzed, and the bugs that can be planted."""

import json
from collections.abc import Mapping

import click

from rdmawire.cli.command import Command, option


@click.command("list", cls=Command, examples=("rdmawire fuzz list", "rdmawire fuzz list --json"))
@option("Output", "--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(*, as_json: bool) -> None:
    """List the targets of `rdmawire fuzz run`, and the names that its options take.

    A planted bug is listed with the transport service, the parser or the role of the connection
    manager where it shows. The target cm plays all roles.
    """
    from rdmawire.fuzz.fuzzer import FUZZERS
    from rdmawire.fuzz.parser_target import FORMS
    from rdmawire.fuzz.parsers import PARSERS
    from rdmawire.fuzz.planted_bugs import PLANTED_BUGS
    from rdmawire.fuzz.service_model import ALL, SERVICES
    from rdmawire.verbs.profile import PROFILES

    about = {name: kind.about for name, kind in FUZZERS.items()}
    bugs = {bug.name: bug.about for bug in PLANTED_BUGS.values()}
    options = {
        "--profile": tuple(PROFILES),
        "--service": (*SERVICES, ALL),
        "--function": tuple(PARSERS),
        "--form": tuple(FORMS),
    }
    if as_json:
        click.echo(json.dumps({"targets": about, "options": options, "bugs": bugs}, indent=1))
        return
    _print("Targets:", about)
    click.echo("")
    _print("Options:", {name: ", ".join(values) for name, values in options.items()})
    for kind in dict.fromkeys(bug.kind for bug in PLANTED_BUGS.values()):
        click.echo("")
        of_kind = [bug for bug in PLANTED_BUGS.values() if bug.kind == kind]
        width = max(len(bug.service) for bug in of_kind)
        texts = {bug.name: f"{bug.service:<{width}}  {bug.about}" for bug in of_kind}
        _print(f"Planted bugs ({kind} --bug NAME), and where each shows:", texts)


def _print(title: str, texts: Mapping[str, str]) -> None:
    click.echo(title)
    width = max(map(len, texts))
    for name, text in texts.items():
        click.echo(f"  {name:<{width}}  {text}")
