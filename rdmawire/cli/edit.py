"""`rdmawire edit`: a capture with other addresses, queue pairs, PSNs, keys, and good checksums."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rdmawire.capture import Reader, Record
from rdmawire.capture.source import STANDARD_INPUT, STREAM, shown
from rdmawire.cli import options
from rdmawire.cli.options import OnceCommand
from rdmawire.cli.progress import file_bar
from rdmawire.cli.streams import complain
from rdmawire.decode import Hosts, host
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.mpa_event import CRCStatus, Event, Fpdu, NotIwarp, StartUp, Torn
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.errors import CaptureError
from rdmawire.terminal import plural, quote, shorten
from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.copy import Change, Choose, Fate, edit_capture, later, untagged
from rdmawire.traffic.edit.editor import Editor, Sealing, Tally
from rdmawire.traffic.edit.field_names import fields_named
from rdmawire.traffic.edit.iwarp import NOT_IWARP, Arrived, Finder, Found
from rdmawire.traffic.edit.mapping import PsnRule, QueuePair
from rdmawire.traffic.edit.rules import EditError, Rule, shared, touched
from rdmawire.traffic.edit.text import Maps, missed, read_maps
from rdmawire.units import parse_duration
from rdmawire.wire.inet import TCP, VLAN

if TYPE_CHECKING:
    from rdmawire.filter import Filter


class Asked(NamedTuple):
    """A rule, and the option that asked for it."""

    option: str
    rule: Rule


class Kind(NamedTuple):
    """An option that makes rules: all its texts make one, or each its own."""

    metavar: str
    make: Callable[[Sequence[str]], Sequence[Rule]]
    help: str


def _one(make: Callable[[Sequence[str]], Rule]) -> Callable[[Sequence[str]], Sequence[Rule]]:
    return lambda texts: [make(texts)]


def _each(make: Callable[[str], Rule]) -> Callable[[Sequence[str]], Sequence[Rule]]:
    return lambda texts: [make(one) for one in texts]


def _assignment(said: str) -> Rule:
    """``FIELD=VALUE``; what only filters know is told from what nobody knows."""
    try:
        return text.assignment(said)
    except EditError:
        name = re.split(r"[-+]?=", said, maxsplit=1)[0]
        if not _is_for_filters_alone(name):
            raise
    kept = "filters know it, but no header of a frame has it, so it cannot be set"
    hint = "; --time-shift moves frames in time" if name.startswith("frame.time") else ""
    raise EditError(f"{quote(said)}: {kept}{hint}")


def _is_for_filters_alone(name: str) -> bool:
    from rdmawire.dissect.fields import fields

    try:
        fields_named(name)
    except EditError:
        return any(name == each.name for each in fields())
    return False


KINDS = {
    "mac": Kind("OLD=NEW", _one(text.macs), "Map an Ethernet address."),
    "ip": Kind(
        "OLD=NEW", _one(text.ips),
        "Map an IP address, GID or prefix (10.0.0.0/24=192.168.7.0/24), also in CM messages.",
    ),
    "lid": Kind("OLD=NEW", _one(text.lids), "Map a LID."),
    "vlan": Kind("OLD=NEW", _one(text.vlans), "Map a VLAN id."),
    "pkey": Kind("OLD=NEW", _one(text.pkeys), "Map a P_Key."),
    "qpn": Kind(
        "QPN[@HOST]=NEW", _one(text.qpns),
        "Map a queue pair, of all hosts or of one (0x11@10.0.0.1=0x1234), also in CM messages.",
    ),
    "rkey": Kind(
        "KEY[@HOST]=NEW", _one(text.rkeys), "Map an R_Key or STag, of all hosts or of one."
    ),
    "psn-offset": Kind(
        "[QPN[@HOST]=]N", _one(text.psn_offsets),
        "Add to PSNs: to all, or to those of requests to a queue pair and of responses from it.",
    ),
    "va-offset": Kind(
        "[KEY[@HOST]=]N", _one(text.va_offsets),
        "Add to remote addresses: to all, or to those with a key.",
    ),
    "ecn": Kind("ce|ect0|ect1|not", _each(text.ecn), "Set the ECN field of IP."),
    "dscp": Kind("N", _each(text.dscp), "Set the DSCP of IP."),
    "ttl": Kind("N", _each(text.ttl), "Set the TTL or hop limit."),
    "udp-source": Kind("PORT", _each(text.udp_source), "Set the source port of UDP."),
    "set": Kind(
        "FIELD=VALUE", _each(_assignment),
        "Set any field, by its name in `rdmawire fields` or in the tables; += and -= add.",
    ),
}  # fmt: skip
"""Options by name, in the order in which their rules apply."""

_MAPS = "rdmawire.edit.maps"
"""Where a context keeps what files of maps say, until the options for it are looked at."""
_C = TypeVar("_C", bound=Callable[..., Any])


def rule_options(command: _C) -> _C:
    """Give a command all of :data:`KINDS`; their rules come by their names."""
    for name, kind in reversed(KINDS.items()):
        command = click.option(
            f"--{name}", multiple=True, metavar=kind.metavar, callback=_asked(kind), help=kind.help
        )(command)
    return click.option(
        "--map", "maps", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
        is_eager=True, expose_value=False, callback=_read_maps,
        help="Take maps from a file too: lines OLD=NEW below [ip], [mac], [qpn], [rkey] and such.",
    )(command)  # fmt: skip


def _read_maps(ctx: click.Context, option: click.Parameter, paths: Sequence[Path]) -> None:
    """Keep what files say for the options that the same could have been said with."""
    known: Maps = ctx.meta.setdefault(_MAPS, {})
    for path in paths:
        try:
            found = read_maps(path)
        except EditError as error:
            raise click.BadParameter(str(error), ctx, option) from None
        for name, texts in found.items():
            known.setdefault(name, []).extend(texts)


def _asked(kind: Kind) -> Callable[[click.Context, click.Parameter, Sequence[str]], list[Asked]]:
    def asked(ctx: click.Context, option: click.Parameter, texts: Sequence[str]) -> list[Asked]:
        texts = [*texts, *ctx.meta[_MAPS].get(option.name, ())]
        try:
            rules = kind.make(texts) if texts else []
        except EditError as error:
            raise click.BadParameter(str(error), ctx, option) from None
        return [Asked(option.opts[0], rule) for rule in rules]

    return asked


def chosen(by_name: dict[str, list[Asked]]) -> list[Asked]:
    """What was asked for, in the order in which it applies.

    :class:`click.UsageError` if two set the same field: all mean the frame as it was, so one of
    them would do nothing.
    """
    asked = [each for name in KINDS for each in by_name[name.replace("-", "_")]]
    _check_distinct(asked)
    return asked


def _check_distinct(asked: Sequence[Asked]) -> None:
    for (one, fields), (other, more) in combinations(
        [(each, touched(each.rule)) for each in asked], 2
    ):
        if field := shared(fields, more):
            said, again = _said(one), _said(other)
            raise click.UsageError(f"{said} and {again} both set {field.name}; give one of them")


def _said(asked: Asked) -> str:
    """What was asked for: of a map with many entries, the first."""
    return f"{asked.option} {shorten(asked.rule.entries[0].text)}"


def tag_of(ctx: click.Context, option: click.Parameter, said: str | None) -> list[Change]:
    """A VLAN tag, as what it makes of records."""
    if said is None:
        return []
    try:
        return [text.tag(said)]
    except EditError as error:
        raise click.BadParameter(str(error), ctx, option) from None


def time_shift(ctx: click.Context, option: click.Parameter, said: str | None) -> list[Change]:
    """A length of time with or without a sign, as what it makes of records."""
    if said is None:
        return []
    try:
        shift = parse_duration(said[1:] if said.startswith(("-", "+")) else said)
    except ValueError:
        raise click.BadParameter(
            f"{quote(said)} is no time such as 1.5s or -20ms", ctx, option
        ) from None
    return [later(-shift if said.startswith("-") else shift)]


class Fates:
    """Decides by filters which frames are edited, and which are dropped; counts what passed.

    ``keep`` drops all frames that do not pass it, ``drop`` those that do.
    """

    def __init__(
        self,
        edit: "Filter | None",
        keep: "Filter | None",
        drop: "Filter | None",
        ports: Collection[int],
    ) -> None:
        self._edit = edit
        self._keep = keep
        self._drop = drop
        self._ports = ports

    def __call__(self, reader: Reader) -> Choose | None:
        """What decides about the records of this capture; nothing if all are edited."""
        if self._edit is None and self._keep is None and self._drop is None:
            return None
        dissector = Dissector(self._ports)

        def choose(record: Record) -> Fate:
            frame = dissector.record(record, reader)
            if self._keep is not None and not self._keep(frame):
                return Fate.DROP
            if self._drop is not None and self._drop(frame):
                return Fate.DROP
            return Fate.EDIT if self._edit is None or self._edit(frame) else Fate.LEAVE

        return choose


def fpdu_finder() -> Finder:
    """What puts the TCP streams of one capture together, and finds the FPDUs in them."""
    streams = Streams()

    def find(hosts: Hosts, tcp: TCP, payload: bytes, length: int) -> Arrived | None:
        result = streams.segment(*hosts, tcp, payload, length)
        arrival, events = result.arrival, result.events
        connection = arrival.connection
        if connection.upper.over and not events:
            return None
        found = [_found(event) for event in events if isinstance(event, Fpdu | Torn)]
        known = max(map(_end, events), default=0)
        at = arrival.segment.position
        return Arrived(connection.upper, arrival.way, at, known, found)

    return find


def _found(event: Fpdu | Torn) -> Found:
    judged = isinstance(event, Fpdu) and event.crc is not CRCStatus.ABSENT
    return Found(event.position, event.data, event.fpdu, judged)


def _end(event: Event) -> int:
    """Up to where a stream is understood, now that this has happened."""
    if isinstance(event, NotIwarp):
        return NOT_IWARP
    if isinstance(event, Fpdu | Torn | StartUp):
        return event.position + len(event.data)
    return event.position + event.length


_LID = "LID "


def peers_of(path: str, ports: Collection[int]) -> Mapping[QueuePair, QueuePair]:
    """For each queue pair that responses go to, the one that they come from."""
    if not Path(path).is_file():
        raise click.UsageError(
            "--psn-offset for one queue pair reads the capture twice, to find who answers whom:"
            " name a file"
        )
    try:
        from rdmawire.stats import Statistics
        from rdmawire.stats.collector import report_of
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    statistics = Statistics()
    with suppress(CaptureError):  # the edit itself says where the capture is damaged
        statistics.read(path, ports=ports)
    if not statistics.frames:
        return {}
    flows = report_of(statistics, [path]).flows
    paired = ((flow, flows[flow.back]) for flow in flows if flow.back is not None)
    return {
        QueuePair(_host(flow.destination), flow.qp): QueuePair(_host(back.destination), back.qp)
        for flow, back in paired
        if flow.qp is not None and back.qp is not None and flow.responses.frames
    }


def _host(text: str) -> bytes:
    """An address as statistics write it."""
    if text.startswith(_LID):
        return int(text.removeprefix(_LID)).to_bytes(2, "big")
    return host(ip_address(text).packed)


_TOLD = 5
"""Numbers that stand for two now, of which each is told."""
_LONG = 8 << 20
"""Bytes of a file that are worth a progress bar."""


@click.command("edit", cls=OnceCommand)
@click.argument("file", required=False, metavar="[FILE]")
@click.option("-r", "--read", "read", metavar="FILE", help="The FILE, as tshark asks for it.")
@options.written(
    "target",
    "The new capture; its suffix says what it is: .pcap, .pcapng, and .gz, .xz, .zst or .lz4.",
    required=True,
)
@rule_options
@click.option(
    "-Y", "--display-filter", "wanted", metavar="FILTER", callback=options.display_filter,
    help="Edit only frames that pass a display filter; the others stay as they are.",
)  # fmt: skip
@click.option(
    "--keep", metavar="FILTER", callback=options.display_filter, help="Leave out all other frames."
)
@click.option(
    "--drop", metavar="FILTER", callback=options.display_filter, help="Leave out these frames."
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
@options.PORTS
@options.PROGRESS
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
            complain(f"{option_name} {shorten(unused.text)}: {missed(unused)}")
        _warn_of_merges(option_name, list(rule.merged()))
        if isinstance(rule, PsnRule) and rule.unknown:
            kept = f"{rule.unknown} responses kept their PSN"
            complain(f"{option_name}: {kept}: nothing tells whose they are")


def _warn_of_merges(option_name: str, merged: Sequence[str]) -> None:
    """Say which numbers cannot be told apart any more; of many, the first ones."""
    for each in merged[:_TOLD]:
        complain(f"{option_name}: {each}")
    if len(merged) > _TOLD:
        complain(f"{option_name}: {len(merged) - _TOLD} more numbers stand for two")


def _done(tally: Tally) -> Iterator[str]:
    yield plural(tally.frames, "frame")
    yield f"{tally.changed} changed"
    for count, what in (
        (tally.dropped, "left out"),
        (tally.bad, "had a bad ICRC"),
        (tally.cut, "cut before the ICRC"),
        (tally.plain, "lost comments, for which a pcap has no place"),
    ):
        if count:
            yield f"{count} {what}"
