"""`rdmawire edit`: a capture with other addresses, queue pairs, PSNs, keys, and good checksums."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from rdmawire.capture.refusal import shown
from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.cli import common, option
from rdmawire.cli.edit_options import Asked, chosen, rule_options, time_shift
from rdmawire.cli.edit_options import tag as tag_of
from rdmawire.cli.fate import Fates
from rdmawire.cli.fpdus import fpdu_finder
from rdmawire.cli.once import OnceCommand
from rdmawire.cli.peers import peers_of
from rdmawire.cli.progress import file_bar
from rdmawire.cli.streams import complain
from rdmawire.screen import counted, shortened
from rdmawire.traffic.edit.copy import edit_capture
from rdmawire.traffic.edit.editor import Editor
from rdmawire.traffic.edit.offset import PsnRule
from rdmawire.traffic.edit.record import Change, untagged
from rdmawire.traffic.edit.refusal import EditError
from rdmawire.traffic.edit.seal import Sealing
from rdmawire.traffic.edit.tally import Tally
from rdmawire.traffic.edit.text import missed
from rdmawire.wire.inet import VLAN

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter

_TOLD = 5
"""Numbers that stand for two now, of which each is told."""
_LONG = 8 << 20
"""Octets of a file that are worth a progress bar."""


@click.command("edit", cls=OnceCommand)
@click.argument("file", required=False, metavar="[FILE]")
@click.option("-r", "--read", "read", metavar="FILE", help="The FILE, as tshark asks for it.")
@common.written(
    "target",
    "The new capture; its suffix says what it is: .pcap, .pcapng, and .gz, .xz, .zst or .lz4.",
    required=True,
)
@rule_options
@click.option(
    "-Y", "--display-filter", "wanted", metavar="FILTER", callback=option.display_filter,
    help="Edit only frames that pass a display filter; the others stay as they are.",
)  # fmt: skip
@click.option(
    "--keep", metavar="FILTER", callback=option.display_filter, help="Leave out all other frames."
)
@click.option(
    "--drop", metavar="FILTER", callback=option.display_filter, help="Leave out these frames."
)
@click.option(
    "--time-shift", "shift", metavar="TIME", callback=time_shift,
    help="Have all frames come later, or earlier: 1.5s, -20ms.",
)  # fmt: skip
@click.option("--untag", is_flag=True, help="Take all VLAN tags away.")
@click.option(
    "--tag", metavar="VID[:PCP]", callback=tag_of,
    help="Give Ethernet frames without a VLAN tag one, with this id and priority.",
)  # fmt: skip
@click.option(
    "--seal", "sealing", type=click.Choice([each.value for each in Sealing]), default="changed",
    show_default=True,
    help="Checksums that are made to fit: those that did before, all, or none.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not say what was done.")
@option.PORTS
@option.PROGRESS
def command(
    file: str | None,
    *,
    read: str | None,
    target: str,
    wanted: "Filter | None",
    keep: "Filter | None",
    drop: "Filter | None",
    shift: list[Change],
    untag: bool,
    tag: list[Change],
    sealing: str,
    quiet: bool,
    ports: tuple[int, ...],
    progress: bool | None,
    **by_name: list[Asked],
) -> int:
    """Change fields of a capture, and seal its frames again: checksums that fitted fit again.

    That is ICRC, VCRC and the checksums of IPv4, UDP, TCP and ICMPv6. What was wrong stays wrong,
    by as much. All options mean the frames as they were. Those that map, add or set may be given
    several times. Times, interfaces and comments stay. Without FILE, standard input is read.

    \b
    Examples:
      rdmawire edit --ip 10.0.0.0/24=192.168.7.0/24 -w mine.pcap cluster.pcap
      rdmawire edit --qpn 0x11@10.0.0.1=0x1234 --rkey 0x1201=0x77 -w mine.pcap cluster.pcap
      rdmawire edit --psn-offset 0x11=+100 -w later.pcap cluster.pcap
      rdmawire edit -Y "infiniband.bth.destqp == 0x11" --ecn ce -w marked.pcap cluster.pcap
      rdmawire edit --set bth.ackreq=1 --set aeth.msn+=5 -w other.pcapng.zst cluster.pcapng
      rdmawire edit --seal all -w good.pcap offloaded.pcap
    """  # noqa: D301 - click keeps the lines behind a backspace
    if file is not None and read is not None:
        raise click.UsageError(f"{shown(file)} and -r {shown(read)} are two files: give one")
    source = _source(file if read is None else read)
    asked = chosen(by_name)
    editor = Editor([each.rule for each in asked], sealing=Sealing(sealing), ports=ports)
    _find_peers(editor, source, ports)
    drawn = progress if progress is not None else sys.stderr.isatty()
    try:
        with file_bar(source, _LONG, wanted=drawn) as told:
            edit_capture(
                source,
                target,
                editor,
                chooser=Fates(wanted, keep, drop, ports),
                finder=fpdu_finder(),
                changes=[*shift, *[untagged] * untag, *tag],
                growth=VLAN.SIZE * len(tag),
                progress=told,
            )
    except EditError as error:
        raise click.BadParameter(str(error), param_hint="'--time-shift'") from None
    finally:
        if editor.tally.written is not None:
            _report(source, editor, asked, quiet=quiet)
    return 0


def _source(file: str | None) -> str:
    """The file asked for; standard input if none is, unless somebody would have to type it."""
    if file is None and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("no FILE is given, and standard input is a terminal")
    return file or STREAM


def _find_peers(editor: Editor, source: str, ports: Sequence[int]) -> None:
    """Have rules know which queue pairs belong together, where they ask for it."""
    asking = [each for each in editor.rules if isinstance(each, PsnRule) and each.asks_for_peers]
    for rule in asking:
        rule.peers = peers_of(source, ports)


def _report(source: str, editor: Editor, asked: Sequence[Asked], *, quiet: bool) -> None:
    """Say on standard error what was done, and what was asked for in vain."""
    if not quiet:
        name = STANDARD_INPUT if source == STREAM else shown(source)
        click.echo(f"{name}: {', '.join(_done(editor.tally))}", err=True)
    for option_name, rule in asked:
        for unused in rule.unused():
            complain(f"{option_name} {shortened(unused.text)}: {missed(unused)}")
        _warn_of_merges(option_name, list(rule.merged()))
        if isinstance(rule, PsnRule) and rule.unknown:
            kept = f"{rule.unknown} responses kept their PSN"
            complain(f"{option_name}: {kept}: nothing tells whose they are")


def _warn_of_merges(option_name: str, merged: Sequence[str]) -> None:
    """Say which numbers cannot be told apart any more; of many, the first ones."""
    for text in merged[:_TOLD]:
        complain(f"{option_name}: {text}")
    if len(merged) > _TOLD:
        complain(f"{option_name}: {len(merged) - _TOLD} more numbers stand for two")


def _done(tally: Tally) -> Iterator[str]:
    yield counted(tally.frames, "frame")
    yield f"{tally.changed} changed"
    for count, what in (
        (tally.dropped, "left out"),
        (tally.bad, "had a bad ICRC"),
        (tally.cut, "cut before the ICRC"),
        (tally.plain, "lost comments, for which a pcap has no place"),
    ):
        if count:
            yield f"{count} {what}"
