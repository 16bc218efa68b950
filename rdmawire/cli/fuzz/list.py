"""`rdmawire fuzz list`: what can be fuzzed."""

import json

import click

from rdmawire.cli.command import Command, option


@click.command("list", cls=Command, examples=("rdmawire fuzz list", "rdmawire fuzz list --json"))
@option("Output", "--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(*, as_json: bool) -> None:
    """List the targets of `rdmawire fuzz run`."""
    from rdmawire.fuzz.fuzzer import ABOUT

    if as_json:
        click.echo(json.dumps({"targets": ABOUT}, indent=1))
        return
    click.echo("Targets:")
    width = max(map(len, ABOUT))
    for name, text in ABOUT.items():
        click.echo(f"  {name:<{width}}  {text}")
