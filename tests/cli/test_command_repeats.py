"""An option given twice is refused by every command, unless several are meant to be."""

from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from rdmawire.cli.program import _COMMANDS, cli


def _all() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand, with its words."""
    for name, (_, module, _) in _COMMANDS.items():
        command = import_module(module).command
        yield name, command
        for sub, (_, module_of_sub) in getattr(command, "subcommands", {}).items():
            yield f"{name} {sub}", import_module(module_of_sub).command


def _single() -> Iterator[tuple[str, str, int]]:
    """Every option of every command that is given once, and how many values it takes."""
    for name, command in _all():
        for option in command.params:
            if isinstance(option, click.Option) and not (option.is_flag or option.multiple):
                yield name, option.opts[-1], option.nargs


@pytest.mark.parametrize(("command", "option", "values"), [*_single()])
def test_of_two_values_none_is_dropped_in_silence(command: str, option: str, values: int) -> None:
    words = [option, *["1"] * values, option, *["2"] * values]
    done = CliRunner().invoke(cli, [*command.split(), *words])
    assert done.exit_code == 2
    assert "is given 2 times; give it once" in done.output


def test_options_that_may_come_again_still_do() -> None:
    words = ["dissect", "-T", "fields", "-e", "ip.src", "-e", "ip.dst", "no-such.pcap"]
    done = CliRunner().invoke(cli, words)
    assert "times" not in done.output
