"""`rdmawire completion`: shell completion, by click."""

import click
from click.shell_completion import get_completion_class

from rdmawire.cli.options import OnceCommand
from rdmawire.cli.program import cli


@click.command("completion", cls=OnceCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the lines that make SHELL complete commands, options and field names.

    \b
    Examples:
      echo 'eval "$(rdmawire completion bash)"' >> ~/.bashrc
      rdmawire completion fish > ~/.config/fish/completions/rdmawire.fish
    """  # noqa: D301 - click keeps the lines behind a backspace
    completion = get_completion_class(shell)
    if completion is None:
        raise click.ClickException(f"this click has no completion for {shell}")
    click.echo(completion(cli, {}, "rdmawire", "_RDMAWIRE_COMPLETE").source())
