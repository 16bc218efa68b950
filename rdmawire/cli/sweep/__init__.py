"""`rdmawire sweep`: collectives and transfers with every combination of some settings."""

import click

from rdmawire.cli.command import CommandGroup
from rdmawire.cli.gen import COLLECTIVES

_COLLECTIVE = "collective"


class _SweepGroup(CommandGroup):
    """The subcommands; the names of collectives are accepted as names of one of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and set(args[0].split(",")) <= set(COLLECTIVES):
            return super().resolve_command(ctx, [_COLLECTIVE, *args])
        return super().resolve_command(ctx, args)


@click.group(
    "sweep",
    cls=_SweepGroup,
    no_args_is_help=True,
    subcommands={
        _COLLECTIVE: (
            "Collectives of GPUs, by one or more names: rdmawire sweep allreduce.",
            f"{__name__}.collective",
        ),
        "transfer": ("Transfers from GPU to GPU.", f"{__name__}.transfer"),
    },
    examples=(
        "rdmawire sweep allreduce --hosts 2,4,8 --size 8..1M",
        "rdmawire sweep allreduce,allgather --hosts 2..128 --gpus 8 --size 1M..1G --flows",
        "rdmawire sweep transfer dgx-h200 --path direct,bounce,tcp --size 8..16M --plot times.svg",
    ),
)
def command() -> None:
    """Do collectives or transfers with every combination of settings, over all cores.

    Options take lists, 2,4,8, and ranges, 8..256M, of which each value is twice the one before.
    """
