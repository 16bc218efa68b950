"""`rdmawire dissect`: the frames of captures, decoded and checked."""

import os
import sys
from collections.abc import Callable

import click

from rdmawire.analysis.mood import Mood
from rdmawire.analysis.output import Fields, Lines, Objects, Output, Separators, plain
from rdmawire.analysis.selection import Selection
from rdmawire.analysis.window import Bound, Window
from rdmawire.cli import option
from rdmawire.cli.run import Run

_STYLES = {Mood.RDMA: "cyan", Mood.TROUBLE: "yellow", Mood.BAD: "bold red"}


@click.command("dissect")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-V", "--tree", "trees", is_flag=True, help="All fields, with octet offsets.")
@click.option("-x", "--hex", "octets", is_flag=True, help="The octets below each frame.")
@click.option(
    "-T", "--format", "form", type=click.Choice(["text", "fields", "json", "ndjson"]),
    help="text (a line per frame), fields (the -e fields, with tabs), json, ndjson.",
)  # fmt: skip
@click.option(
    "-e", "--field", "selection", multiple=True, metavar="FIELD", callback=option.selection,
    shell_complete=option.complete_field,
    help="A field to print, by its name in `rdmawire fields`.",
)  # fmt: skip
@click.option(
    "-E", "separators", multiple=True, metavar="NAME=VALUE", callback=option.separators,
    help="For fields: header=y, separator=CHAR, aggregator=CHAR, occurrence=a|f|l, quote=d|s|n.",
)  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after so many frames.")
@click.option(
    "--from", "start", metavar="WHERE", callback=option.bound,
    help="First frame: a number, a time since the first (1.5s, 20ms), or a date.",
)  # fmt: skip
@click.option("--to", "end", metavar="WHERE", callback=option.bound, help="Last frame, likewise.")
@click.option(
    "--port", "ports", type=click.IntRange(0, 65535), multiple=True, default=[4791],
    show_default=True, help="UDP destination port of RoCEv2; may be given several times.",
)  # fmt: skip
@click.option(
    "--fail-on-bad-checksum", is_flag=True, help="Exit with 1 if any checksum does not hold."
)
@click.option("-q", "--quiet", is_flag=True, help="Only count: a line per file.")
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
)
@click.option("--progress/--no-progress", default=None, help="A progress bar for long files.")
def command(
    files: tuple[str, ...],
    *,
    trees: bool,
    octets: bool,
    form: str | None,
    selection: Selection | None,
    separators: Separators,
    count: int | None,
    start: Bound | None,
    end: Bound | None,
    ports: tuple[int, ...],
    fail_on_bad_checksum: bool,
    quiet: bool,
    color: str,
    progress: bool | None,
) -> int:
    r"""Show the frames of each FILE (pcap or pcapng, also compressed; - is standard input).

    Every checksum is verified: ICRC, VCRC, MPA's CRC, and those of IPv4, UDP and TCP. What does
    not parse is shown up to where it breaks, with the reason.

    \b
    Examples:
      rdmawire dissect capture.pcapng
      rdmawire dissect -V --from 17 --to 17 capture.pcapng
      rdmawire dissect -T fields -e frame.number -e infiniband.bth.psn capture.pcap
      rdmawire dissect -T ndjson capture.pcap.zst | jq .malformed
      tcpdump -i eth0 -w - udp port 4791 | rdmawire dissect -
    """
    form = form or ("fields" if selection else "text")
    lines = Lines(trees=trees, octets=octets, paint=_painter(color))
    output = _output(form, selection, separators, lines)
    bar = progress if progress is not None else sys.stderr.isatty() and not sys.stdout.isatty()
    run = Run(output, Window(start, end), count, quiet=quiet, talkative=form == "text")
    return run.files(files or ("-",), ports, progress=bar, strict=fail_on_bad_checksum)


def _output(form: str, selection: Selection | None, separators: Separators, lines: Lines) -> Output:
    """The format asked for, if it goes with the fields asked for."""
    if form == "text":
        if selection is not None:
            raise click.UsageError("-e FIELD goes with -T fields, json or ndjson")
        return lines
    if form == "fields":
        if selection is None:
            raise click.UsageError("-T fields needs at least one -e FIELD")
        return Fields(selection, separators)
    return Objects(selection, array=form == "json")


def _painter(color: str) -> Callable[[Mood, str], str]:
    """What colours lines: only in a terminal, unless asked for."""
    wanted = (
        sys.stdout.isatty() and "NO_COLOR" not in os.environ
        if color == "auto"
        else color == "always"
    )
    if not wanted:
        return plain
    from rich.style import Style

    styles = {mood: Style.parse(style) for mood, style in _STYLES.items()}
    return lambda mood, text: styles[mood].render(text) if mood in styles else text
