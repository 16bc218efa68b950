"""`rdmawire fuzz`: fuzz RDMA state machines and parsers."""

import click

from rdmawire.cli.command import CommandGroup


@click.group(
    "fuzz",
    cls=CommandGroup,
    no_args_is_help=True,
    subcommands={
        "run": ("Fuzz a target until a limit is reached, and keep findings.", f"{__name__}.run"),
        "replay": ("Play findings again.", f"{__name__}.replay"),
        "learn": ("Learn a state machine, draw it, compare it.", f"{__name__}.learn"),
        "list": ("List what can be fuzzed.", f"{__name__}.list"),
    },
    examples=(
        "rdmawire fuzz run --time 60s",
        "rdmawire fuzz replay findings/*/",
        "rdmawire fuzz learn --profile rxe --against ibta",
    ),
)
def command() -> None:
    """Fuzz RDMA state machines and parsers."""
    from rdmawire.cli.fuzz.log import show_warnings

    show_warnings()
