"""`rdmawire sweep transfer`: transfers between GPUs."""

from collections.abc import Iterator
from typing import Any, Final

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, option
from rdmawire.cli.streams import open_host
from rdmawire.cli.sweep import output as sweep_output
from rdmawire.cli.sweep.axis import integer, numbers_of, one_of, quantity, values_of
from rdmawire.cli.sweep.output import Combination, SweepOutput, combined, distinct, perform
from rdmawire.cli.transfer import COMMON_PATHS, LINK_LAYERS, MAX_SIZE, PATHS, ends_of
from rdmawire.errors import RdmaError
from rdmawire.traffic.generate.spec import SpecError, rate
from rdmawire.wire.management import PATH_MTUS

_MTUS: Final = tuple(map(str, PATH_MTUS))


@click.command(
    "transfer",
    cls=Command,
    examples=(
        "rdmawire sweep transfer dgx-h200",
        "rdmawire sweep transfer dgx-h200 --path direct,bounce,tcp --size 8..16M --plot times.svg",
        "rdmawire sweep transfer dgx-h200 --path bounce --size 16M --chunk 64k..4M --slots 1..8",
        "rdmawire sweep transfer dgx-h200 --path host,direct --link-layer ethernet,infiniband",
        "rdmawire sweep transfer dgx-h200 two-sockets --path bounce --size 1M -o hosts.parquet",
    ),
)
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@option(
    "Combinations", "--path", "paths", metavar="NAMES", default=",".join(COMMON_PATHS),
    show_default=True, callback=values_of(one_of(PATHS)),
    help="Paths of the data; also ualink and host.",
)  # fmt: skip
@option(
    "Combinations", "--size", "sizes", metavar="SIZES", default="8..1M", show_default=True,
    callback=numbers_of(options.byte_parser(MAX_SIZE)), help="Bytes.",
)  # fmt: skip
@option(
    "Combinations", "--chunk", "chunks", metavar="SIZES", default="512k", show_default=True,
    callback=numbers_of(options.byte_parser(MAX_SIZE)),
    help="Chunks of bounce and tcp; 0 for no pipeline.",
)  # fmt: skip
@option(
    "Combinations", "--slots", metavar="NUMBERS", default="4", show_default=True,
    callback=numbers_of(integer(1, 256)), help="Chunks that may be on their way.",
)  # fmt: skip
@option(
    "Combinations", "--rate", "rates", metavar="RATES",
    callback=values_of(quantity(rate, SpecError)),
    help="Rates of the links between hosts.  [default: that of the adapter's port]",
)  # fmt: skip
@option(
    "Combinations", "--mtu", "mtus", metavar="NUMBERS", default="4096", show_default=True,
    callback=values_of(one_of(_MTUS)), help=f"Path MTUs of RDMA: {', '.join(_MTUS)}.",
)  # fmt: skip
@option(
    "Combinations", "--latency", "latencies", metavar="NS",
    callback=numbers_of(integer(0, 1_000_000)),
    help="Latencies of each of the two cables, in ns.  [default: 300; 25 with InfiniBand]",
)  # fmt: skip
@option(
    "Combinations", "--link-layer", "layers", metavar="NAMES", default="ethernet",
    show_default=True, callback=values_of(one_of(LINK_LAYERS)),
    help=f"What joins the hosts: {', '.join(LINK_LAYERS)}.",
)  # fmt: skip
@option("Transfer", "--from", "source", metavar="GPU", help="Source.  [default: the first GPU]")
@option(
    "Transfer", "--to", "target", metavar="GPU",
    help="Target.  [default: the second GPU, or the only one]",
)  # fmt: skip
@sweep_output.outputs
def command(
    hosts: tuple[str, ...],
    *,
    output: SweepOutput,
    source: str | None,
    target: str | None,
    **settings: Any,
) -> int:
    """Send data between GPUs with every combination of settings, as `rdmawire transfer` does.

    Options take lists, 2,4,8, and ranges, 8..256M, of which each value is twice the one before.
    A combination that cannot be is a row with the reason. Ctrl-C keeps the rows that are done. Exit
    status: 0, or 2 if no combination can be, 130 for Ctrl-C.
    """
    axes = {
        "host": [*dict.fromkeys(hosts)],
        "path": settings["paths"],
        "chunk": settings["chunks"],
        "slots": settings["slots"],
        "rate": settings["rates"] or [None],
        "mtu": [int(mtu) for mtu in settings["mtus"]],
        "latency": settings["latencies"] or [None],
        "link_layer": settings["layers"],
        "bytes": settings["sizes"],
    }
    chosen = combined(axes)
    try:
        wanted = [*_combinations(chosen, axes["host"], source, target)]
    except RdmaError as error:
        raise click.UsageError(str(error)) from None
    return perform(sweep_output.TRANSFERS, distinct(wanted), output)


def _combinations(
    chosen: list[dict[str, Any]], hosts: list[str], source: str | None, target: str | None
) -> Iterator[Combination]:
    from rdmawire.gpudirect.sweep import TransferJob
    from rdmawire.gpudirect.transfer import LinkLayer, TransferPath, TransferSpec

    machines = {host: open_host(host).machine for host in hosts}
    ends = {host: ends_of(machine, source, target) for host, machine in machines.items()}
    for axes in chosen:
        host = axes["host"]
        spec = TransferSpec(
            machines[host],
            *ends[host],
            path=TransferPath(axes["path"]),
            size=axes["bytes"],
            rate=axes["rate"] or 0,
            layer=LinkLayer(axes["link_layer"]),
            **{name: axes[name] for name in ("chunk", "slots", "mtu", "latency")},
        )
        yield Combination(TransferJob(spec, host), axes)
