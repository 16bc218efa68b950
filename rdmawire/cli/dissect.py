"""`rdmawire dissect`: the frames of captures, decoded and checked."""

import sys
from typing import TYPE_CHECKING

import click

from rdmawire.analysis.output import Separators
from rdmawire.analysis.selection import Selection
from rdmawire.analysis.window import Bound, BoundError, Window
from rdmawire.capture.source import STREAM
from rdmawire.cli import common, option
from rdmawire.cli.captures import Demands, Run
from rdmawire.cli.export import FORMS, Export
from rdmawire.cli.form import Form
from rdmawire.cli.once import OnceCommand

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter


@click.command("dissect", cls=OnceCommand)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@common.READ
@option.DISPLAY_FILTER
@click.option("-V", "--tree", "trees", is_flag=True, help="All fields, with octet offsets.")
@click.option("-x", "--hex", "octets", is_flag=True, help="The octets of each frame as well.")
@click.option(
    "-T", "--format", "form", type=click.Choice(["text", "fields", "json", "ndjson", *FORMS]),
    help="text (a line per frame), fields (the -e fields, with tabs), json, ndjson; tables of "
    "the -e fields, or the usual ones: csv, parquet, arrow.",
)  # fmt: skip
@click.option(
    "-e", "--field", "selection", multiple=True, metavar="FIELD", callback=option.selection,
    shell_complete=option.complete_field,
    help="A field to print, by its name in `rdmawire fields`.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as -T json.")
@common.written("output", "Where -T csv, parquet and arrow write to, if not to standard output.")
@click.option(
    "--row", type=click.Choice(["frame", "fpdu"]),
    help="What a row of these tables is: a frame, or an FPDU of iWARP.  [default: frame]",
)  # fmt: skip
@click.option(
    "-E", "separators", multiple=True, metavar="NAME=VALUE", callback=option.separators,
    help="For fields: header=y, separator=CHAR, aggregator=CHAR, occurrence=a|f|l, quote=d|s|n.",
)  # fmt: skip
@click.option(
    "-c",
    "--count",
    type=option.WholeNumber(min=1),
    help="Stop after so many frames, of all files together.",
)
@click.option(
    "--from", "start", metavar="WHERE", callback=option.bound,
    help="First frame: a number, a time since the first (1.5s, 20ms), or a date.",
)  # fmt: skip
@click.option("--to", "end", metavar="WHERE", callback=option.bound, help="Last frame, likewise.")
@option.PORTS
@click.option(
    "--fail-on-bad-checksum", is_flag=True, help="Exit with 1 if any checksum does not hold."
)
@click.option(
    "--checksums", "checksums", metavar="KIND,...", callback=option.checksums, default="all",
    help=f"What --fail-on-bad-checksum minds: {', '.join(option.CHECKSUMS)}; all if not given.",
)  # fmt: skip
@click.option(
    "--fail-on-malformed", is_flag=True, help="Exit with 1 if any frame does not parse to its end."
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Only count: a line per file, or an object with -T json."
)
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
)
@option.PROGRESS
def command(
    files: tuple[str, ...],
    *,
    read: tuple[str, ...],
    wanted: "Filter | None",
    trees: bool,
    octets: bool,
    form: str | None,
    as_json: bool,
    selection: Selection | None,
    output: str | None,
    row: str | None,
    separators: Separators | None,
    count: int | None,
    start: Bound | None,
    end: Bound | None,
    ports: tuple[int, ...],
    fail_on_bad_checksum: bool,
    checksums: tuple[str, ...],
    fail_on_malformed: bool,
    quiet: bool,
    color: str,
    progress: bool | None,
) -> int:
    """Show the frames of each FILE (pcap or pcapng, also compressed; - is standard input).

    Every checksum is verified: ICRC, VCRC, MPA's CRC, and those of IPv4, UDP and TCP. What does
    not parse is shown up to where it breaks, with the reason.

    \b
    Examples:
      rdmawire dissect capture.pcapng
      rdmawire dissect -V --from 17 --to 17 capture.pcapng
      rdmawire dissect -Y "infiniband.bth.opcode == RC_ACKNOWLEDGE" capture.pcap
      rdmawire dissect -T fields -e frame.number -e infiniband.bth.psn capture.pcap
      rdmawire dissect -T ndjson capture.pcap.zst | jq .malformed
      rdmawire dissect -T parquet -w capture.parquet capture.pcap
      rdmawire dissect -q --fail-on-bad-checksum --checksums icrc,mpa *.pcap
      tcpdump -i eth0 -w - udp port 4791 | rdmawire dissect -
    """  # noqa: D301 - click keeps the lines behind a backspace
    if common.json_is_asked(form, as_json=as_json):
        form = "json"
    form = form or ("fields" if selection else "text")
    demanding = fail_on_bad_checksum or fail_on_malformed
    asked = Form(form, trees, octets, selection, separators, quiet, color, output, row, demanding)
    asked.check()
    window, paths = _window(start, end), _paths(read + files)
    if asked.is_table:
        names = tuple(selection.names) if selection else ()
        table = Export(form, names, row or "frame", ports, window, wanted, count)
        return table.write(paths, STREAM if output is None else output)
    demands = Demands(checksums if fail_on_bad_checksum else (), fail_on_malformed)
    bar = progress if progress is not None else sys.stderr.isatty() and not sys.stdout.isatty()
    return Run(asked.show(), window, count, ports, demands, passes=wanted).files(
        paths, progress=bar
    )


def _window(start: Bound | None, end: Bound | None) -> Window:
    try:
        return Window(start, end)
    except BoundError as error:
        raise click.BadParameter(str(error), param_hint="--from and --to") from None


def _paths(named: tuple[str, ...]) -> tuple[str, ...]:
    """The files asked for; standard input if none is, unless somebody would have to type it."""
    if not named and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("no FILE is given, and standard input is a terminal")
    return named or (STREAM,)
