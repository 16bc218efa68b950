"""`rdmawire sweep allreduce` and other collectives."""

from functools import partial
from typing import Any, Final

import click

from rdmawire.cli import options
from rdmawire.cli.collective import DTYPE, MAX_HOSTS, MAX_SIZE, ROOT, layout_of, wanted_collective
from rdmawire.cli.command import Command, option
from rdmawire.cli.gen import COLLECTIVES
from rdmawire.cli.sweep import output as sweep_output
from rdmawire.cli.sweep.axis import integer, numbers_of, one_of, quantity, values_of
from rdmawire.cli.sweep.output import Combination, SweepOutput, combined, distinct, perform
from rdmawire.errors import RdmaError
from rdmawire.traffic.generate.spec import MAX_LOSS, SpecError, rate, share

_ALGORITHMS: Final = ("ring", "tree", "collnet", "nvls", "nvls-tree")
_PROTOCOLS: Final = ("ll", "ll128", "simple")
_NOTHING: Final = (None,)
"""The values of an option that is not given."""


@click.command(
    "collective",
    cls=Command,
    examples=(
        "rdmawire sweep allreduce --hosts 2,4,8 --size 8..1M",
        "rdmawire sweep allreduce --hosts 2..128 --gpus 8 --size 64k..1G --flows --plot bw.svg",
        "rdmawire sweep allreduce --hosts 4 --algo ring,tree --protocol ll,ll128,simple",
        "rdmawire sweep allgather,alltoall --hosts 4 --size 1M --loss 0,0.01%,0.1% --seed 0,1,2",
        "rdmawire sweep allreduce --topology dgx-h200,two-sockets --size 96k..3M -o times.csv",
    ),
)
@click.argument("collectives", metavar="COLLECTIVE[,...]", callback=values_of(one_of(COLLECTIVES)))
@option(
    "Combinations", "--size", "sizes", metavar="SIZES", default="8..1M", show_default=True,
    callback=numbers_of(options.byte_parser(MAX_SIZE)),
    help="Bytes of values of each GPU; of allgather, bytes of the result.",
)  # fmt: skip
@option(
    "Combinations", "--hosts", metavar="NUMBERS", default="2", show_default=True,
    callback=numbers_of(integer(1, MAX_HOSTS)), help="Numbers of hosts.",
)  # fmt: skip
@option(
    "Combinations", "--gpus", metavar="NUMBERS", callback=numbers_of(integer(1, 16)),
    help="GPUs of each host.  [default: 1, or those of --topology]",
)  # fmt: skip
@option(
    "Combinations", "--topology", "topologies", metavar="HOSTS", callback=values_of(str),
    help="What each host is, as `rdmawire topo` reads it: dgx-h200 or a file.",
)  # fmt: skip
@option(
    "Combinations", "--algo", "algorithms", metavar="NAMES", default="ring", show_default=True,
    callback=values_of(one_of(_ALGORITHMS)), help=f"NCCL's algorithms: {', '.join(_ALGORITHMS)}.",
)  # fmt: skip
@option(
    "Combinations", "--protocol", "protocols", metavar="NAMES",
    callback=values_of(one_of(_PROTOCOLS)),
    help=f"NCCL's protocols: {', '.join(_PROTOCOLS)}.  [default: ll up to 1 MiB, else simple]",
)  # fmt: skip
@option(
    "Combinations", "--channels", metavar="NUMBERS", callback=numbers_of(integer(1, 32)),
    help="Rings or trees that share the work.  [default: 1 to 8, by the size]",
)  # fmt: skip
@option(
    "Combinations", "--qps", metavar="NUMBERS", callback=numbers_of(integer(1, 16)), default="1",
    show_default=True, help="Queue pairs of a connection.",
)  # fmt: skip
@option(
    "Combinations", "--rate", "rates", metavar="RATES", default="400G", show_default=True,
    callback=values_of(quantity(rate, SpecError)), help="Rates of each adapter's link.",
)  # fmt: skip
@option(
    "Combinations", "--loss", "losses", metavar="SHARES", default="0", show_default=True,
    callback=values_of(quantity(partial(share, most=MAX_LOSS), SpecError)),
    help="Shares of frames that are lost on the links: 0.1% or 0.001.",
)  # fmt: skip
@option(
    "Combinations", "--seed", "seeds", metavar="NUMBERS", default="0", show_default=True,
    callback=values_of(integer(0, (1 << 32) - 1)),
    help="Seeds of values and losses: the same seed gives the same row.",
)  # fmt: skip
@ROOT
@DTYPE
@option("Operation", "--split", is_flag=True, help="Split each message over all queue pairs.")
@option(
    "Operation", "--ar-threshold", metavar="SIZE", callback=options.number_of_bytes(MAX_SIZE),
    help="With adaptive routing, messages of more bytes are a WRITE and an empty one with the "
    "immediate.  [default: no adaptive routing]",
)  # fmt: skip
@option("Operation", "--gdr-flush", "flush", is_flag=True, help="Flush what was written to GPUs.")
@option(
    "Operation", "--flows", is_flag=True,
    help="Compute times and bytes message by message, without packets and values.",
)  # fmt: skip
@sweep_output.outputs
def command(
    collectives: list[str],
    *,
    output: SweepOutput,
    flows: bool,
    topologies: list[str] | None,
    losses: list[float],
    **settings: Any,
) -> int:
    """Do collectives of GPUs with every combination of settings, as `rdmawire gen` does one.

    Options take lists, 2,4,8, and ranges, 8..256M, of which each value is twice the one before.
    A row has the time, and the bandwidths as NCCL's tests define them; a combination that cannot
    be has the reason. Ctrl-C keeps the rows that are done. Exit status: 0, or 2 if no combination
    can be, 130 for Ctrl-C.
    """
    if flows and any(losses):
        raise click.UsageError("--flows knows no losses: leave --loss out")
    axes = {
        "collective": collectives,
        "topology": topologies or _NOTHING,
        "hosts": settings.pop("hosts"),
        "gpus": settings.pop("gpus") or _NOTHING,
        "algorithm": settings.pop("algorithms"),
        "protocol": settings.pop("protocols") or _NOTHING,
        "channels": settings.pop("channels") or _NOTHING,
        "qps": settings.pop("qps"),
        "rate": settings.pop("rates"),
        "loss": losses,
        "seed": settings.pop("seeds"),
        "bytes": settings.pop("sizes"),
    }
    chosen = combined(axes)
    try:
        layouts = {name: layout_of(name) for name in axes["topology"]}
    except RdmaError as error:
        raise click.UsageError(str(error)) from None
    wanted = [_combination(one, settings, layouts[one["topology"]], flows=flows) for one in chosen]
    return perform(sweep_output.COLLECTIVES, distinct(wanted), output)


def _combination(
    axes: dict[str, Any], settings: dict[str, Any], layout: Any, *, flows: bool
) -> Combination:
    from rdmawire.gpudirect.sweep import CollectiveJob

    named = {**settings, **axes, "algo": axes["algorithm"], "size": axes["bytes"]}
    spec, cable = wanted_collective(named, layout)
    return Combination(CollectiveJob(spec, cable, axes["loss"], flows, axes["topology"]), axes)
