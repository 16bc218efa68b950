"""`rdmawire edit`: a capture with new addresses, queue pairs, PSNs, keys and checksums."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from rdmawire.capture import Reader, Record
from rdmawire.capture.io import STANDARD_INPUT, STREAM, display_path
from rdmawire.cli import options
from rdmawire.cli.command import Command, F, option
from rdmawire.cli.progress import file_bar
from rdmawire.cli.streams import complain
from rdmawire.decode import Hosts, host
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.mpa_event import CRCStatus, Event, Fpdu, NotIwarp, PartialFpdu, StartUp
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.errors import CaptureError
from rdmawire.terminal import plural, quote, shorten
from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.copy import Change, Choose, RecordAction, edit_capture, later, untagged
from rdmawire.traffic.edit.editor import ChecksumMode, EditCounts, Editor
from rdmawire.traffic.edit.iwarp import NOT_IWARP, Arrived, Finder, FpduPosition
from rdmawire.traffic.edit.mapping import PsnRule, QpAddress
from rdmawire.traffic.edit.rules import EditError, EditRule, shared, touched
from rdmawire.traffic.edit.text import Maps, fields_named, missed, read_maps
from rdmawire.units import parse_duration
from rdmawire.wire.inet import TCP, VLAN

if TYPE_CHECKING:
    from rdmawire.filter import Filter


class GivenRule(NamedTuple):
    """A rule, and the option that it was given by."""

    option: str
    rule: EditRule


class RuleOption(NamedTuple):
    """An option that makes rules: one of all its values, or one of each."""

    metavar: str
    make: Callable[[Sequence[str]], Sequence[EditRule]]
    help: str


def _one(
    make: Callable[[Sequence[str]], EditRule],
) -> Callable[[Sequence[str]], Sequence[EditRule]]:
    return lambda texts: [make(texts)]


def _each(make: Callable[[str], EditRule]) -> Callable[[Sequence[str]], Sequence[EditRule]]:
    return lambda texts: [make(one) for one in texts]


def _assignment(word: str) -> EditRule:
    """Read ``FIELD=VALUE``; the error of a field that only filters know says so."""
    try:
        return text.assignment(word)
    except EditError:
        name = re.split(r"[-+]?=", word, maxsplit=1)[0]
        if not _is_for_filters_only(name):
            raise
    kept = "filters know this field, but no header has it, so it cannot be set"
    hint = "; --time-shift moves frames in time" if name.startswith("frame.time") else ""
    raise EditError(f"{quote(word)}: {kept}{hint}")


def _is_for_filters_only(name: str) -> bool:
    from rdmawire.dissect.fields import fields

    try:
        fields_named(name)
    except EditError:
        return any(name == each.name for each in fields())
    return False


RULE_OPTIONS = {
    "mac": RuleOption("OLD=NEW", _one(text.macs), "Replace an Ethernet address."),
    "ip": RuleOption(
        "OLD=NEW", _one(text.ips),
        "Replace an IP address, GID or prefix (10.0.0.0/24=192.168.7.0/24), also in CM messages.",
    ),
    "lid": RuleOption("OLD=NEW", _one(text.lids), "Replace a LID."),
    "vlan": RuleOption("OLD=NEW", _one(text.vlans), "Replace a VLAN id."),
    "pkey": RuleOption("OLD=NEW", _one(text.pkeys), "Replace a P_Key."),
    "qpn": RuleOption(
        "QPN[@HOST]=NEW", _one(text.qpns),
        "Replace a queue pair number of all hosts or of one (0x11@10.0.0.1=0x1234), also in CM "
        "messages.",
    ),
    "rkey": RuleOption(
        "KEY[@HOST]=NEW", _one(text.rkeys), "Replace an R_Key or STag of all hosts or of one."
    ),
    "psn-offset": RuleOption(
        "[QPN[@HOST]=]N", _one(text.psn_offsets),
        "Add to all PSNs, or to those of requests to a queue pair and of its responses.",
    ),
    "va-offset": RuleOption(
        "[KEY[@HOST]=]N", _one(text.va_offsets),
        "Add to all remote addresses, or to those with a key.",
    ),
    "ecn": RuleOption("ce|ect0|ect1|not", _each(text.ecn), "Set the ECN field of IP."),
    "dscp": RuleOption("N", _each(text.dscp), "Set the DSCP of IP."),
    "ttl": RuleOption("N", _each(text.ttl), "Set the TTL or hop limit."),
    "udp-source": RuleOption("PORT", _each(text.udp_source), "Set the UDP source port."),
    "set": RuleOption(
        "FIELD=VALUE", _each(_assignment),
        "Set any field by one of its names in `rdmawire fields`; += adds, -= subtracts.",
    ),
}  # fmt: skip
"""Options by name, in the order in which their rules apply."""

_MAPS = "rdmawire.edit.maps"
"""The key in a context's ``meta`` for the values from --map files, by option."""


def rule_options(command: F) -> F:
    """Add all of :data:`RULE_OPTIONS` to a command; it gets their rules by name."""
    for name, kind in reversed(RULE_OPTIONS.items()):
        command = option(
            "Changes", f"--{name}", multiple=True, metavar=kind.metavar, callback=_rules(kind),
            help=kind.help,
        )(command)  # fmt: skip
    return option(
        "Changes", "--map", "maps", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
        is_eager=True, expose_value=False, callback=_read_maps,
        help="Read replacements from FILE: lines OLD=NEW below [mac], [ip], [qpn], [rkey].",
    )(command)  # fmt: skip


def _read_maps(ctx: click.Context, parameter: click.Parameter, paths: Sequence[Path]) -> None:
    """Keep the values from --map files for the options that take such values."""
    known: Maps = ctx.meta.setdefault(_MAPS, {})
    for path in paths:
        try:
            found = read_maps(path)
        except EditError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None
        for name, texts in found.items():
            known.setdefault(name, []).extend(texts)


def _rules(
    kind: RuleOption,
) -> Callable[[click.Context, click.Parameter, Sequence[str]], list[GivenRule]]:
    def asked(
        ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]
    ) -> list[GivenRule]:
        texts = [*texts, *ctx.meta[_MAPS].get(parameter.name, ())]
        try:
            rules = kind.make(texts) if texts else []
        except EditError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None
        return [GivenRule(parameter.opts[0], rule) for rule in rules]

    return asked


def chosen(by_name: dict[str, list[GivenRule]]) -> list[GivenRule]:
    """Return the given rules in the order in which they apply.

    Raise ``click.UsageError`` if two set the same field: all refer to the original frame, so one
    of them would have no effect.
    """
    asked = [each for name in RULE_OPTIONS for each in by_name[name.replace("-", "_")]]
    _check_distinct(asked)
    return asked


def _check_distinct(asked: Sequence[GivenRule]) -> None:
    for (one, fields), (other, more) in combinations(
        [(each, touched(each.rule)) for each in asked], 2
    ):
        if field := shared(fields, more):
            first, second = _shown(one), _shown(other)
            raise click.UsageError(f"{first} and {second} both set {field.name}; give one of them")


def _shown(given: GivenRule) -> str:
    """Return the option with its value, for a map with many entries the first."""
    return f"{given.option} {shorten(given.rule.entries[0].text)}"


def tag_of(ctx: click.Context, parameter: click.Parameter, word: str | None) -> list[Change]:
    """Read a VLAN tag; return the change of records that adds it."""
    if word is None:
        return []
    try:
        return [text.tag(word)]
    except EditError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def time_shift(ctx: click.Context, parameter: click.Parameter, word: str | None) -> list[Change]:
    """Read a signed duration; return the change of records that shifts them by it."""
    if word is None:
        return []
    try:
        shift = parse_duration(word[1:] if word.startswith(("-", "+")) else word)
    except ValueError:
        raise click.BadParameter(
            f"{quote(word)} is not a duration such as 1.5s or -20ms", ctx, parameter
        ) from None
    return [later(-shift if word.startswith("-") else shift)]


class RecordFilter:
    """Decides by filters which frames are edited and which are left out.

    Frames that do not match ``keep`` are left out, and frames that match ``drop``.
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
        """Return the function that decides on records of a capture; ``None`` if all are edited."""
        if self._edit is None and self._keep is None and self._drop is None:
            return None
        dissector = Dissector(self._ports)

        def choose(record: Record) -> RecordAction:
            frame = dissector.record(record, reader)
            if self._keep is not None and not self._keep(frame):
                return RecordAction.DROP
            if self._drop is not None and self._drop(frame):
                return RecordAction.DROP
            return (
                RecordAction.EDIT if self._edit is None or self._edit(frame) else RecordAction.LEAVE
            )

        return choose


def fpdu_finder() -> Finder:
    """Return a function that reassembles the TCP streams of one capture and finds their FPDUs."""
    streams = Streams()

    def find(hosts: Hosts, tcp: TCP, payload: bytes, length: int) -> Arrived | None:
        result = streams.segment(*hosts, tcp, payload, length)
        arrival, events = result.arrival, result.events
        connection = arrival.connection
        if connection.upper.over and not events:
            return None
        found = [_found(event) for event in events if isinstance(event, Fpdu | PartialFpdu)]
        known = max(map(_end, events), default=0)
        at = arrival.segment.position
        return Arrived(connection.upper, arrival.side, at, known, found)

    return find


def _found(event: Fpdu | PartialFpdu) -> FpduPosition:
    judged = isinstance(event, Fpdu) and event.crc is not CRCStatus.ABSENT
    return FpduPosition(event.position, event.data, event.fpdu, judged)


def _end(event: Event) -> int:
    """Return the stream position up to which an event settles the framing."""
    if isinstance(event, NotIwarp):
        return NOT_IWARP
    if isinstance(event, Fpdu | PartialFpdu | StartUp):
        return event.position + len(event.data)
    return event.position + event.length


_LID = "LID "


def peers_of(path: str, ports: Collection[int]) -> Mapping[QpAddress, QpAddress]:
    """Return, for each queue pair that responses go to, the queue pair that sends them."""
    if not Path(path).is_file():
        raise click.UsageError(
            "--psn-offset for one queue pair reads the capture twice, to match responses:"
            " name a file"
        )
    from rdmawire.stats import Statistics
    from rdmawire.stats.collector import report_of

    statistics = Statistics()
    with suppress(CaptureError):  # the edit reports the damage
        statistics.read(path, ports=ports)
    if not statistics.frames:
        return {}
    flows = report_of(statistics, [path]).flows
    paired = ((flow, flows[flow.back]) for flow in flows if flow.back is not None)
    return {
        QpAddress(_host(flow.destination), flow.qp): QpAddress(_host(back.destination), back.qp)
        for flow, back in paired
        if flow.qp is not None and back.qp is not None and flow.responses.frames
    }


def _host(text: str) -> bytes:
    """Return the bytes of an address as statistics write it."""
    if text.startswith(_LID):
        return int(text.removeprefix(_LID)).to_bytes(2, "big")
    return host(ip_address(text).packed)


_MAX_REPORTED = 5
"""Numbers that became ambiguous, of which each is reported."""
_LONG = 8 << 20
"""Size in bytes from which a file gets a progress bar."""


@click.command(
    "edit",
    cls=Command,
    examples=(
        "rdmawire edit --ip 10.0.0.0/24=192.168.7.0/24 -w mine.pcap cluster.pcap",
        "rdmawire edit --qpn 0x11@10.0.0.1=0x1234 --rkey 0x1201=0x77 -w mine.pcap cluster.pcap",
        "rdmawire edit --psn-offset 0x11=+100 -w later.pcap cluster.pcap",
        'rdmawire edit -Y "infiniband.bth.destqp == 0x11" --ecn ce -w marked.pcap cluster.pcap',
        "rdmawire edit --set bth.ackreq=1 --set aeth.msn+=5 -w other.pcapng.zst cluster.pcapng",
        "rdmawire edit --seal all -w good.pcap offloaded.pcap",
    ),
)
@click.argument("file", required=False, metavar="[FILE]")
@option("Input", "-r", "--read", "read", metavar="FILE", help="Read FILE.")
@options.PORTS
@option(
    "Selection", "-Y", "--display-filter", "wanted", metavar="FILTER",
    callback=options.display_filter,
    help="Edit only frames that match a display filter; copy the others unchanged.",
)  # fmt: skip
@option(
    "Selection", "--keep", metavar="FILTER", callback=options.display_filter,
    help="Leave out frames that do not match.",
)  # fmt: skip
@option(
    "Selection", "--drop", metavar="FILTER", callback=options.display_filter,
    help="Leave out frames that match.",
)  # fmt: skip
@rule_options
@option("Changes", "--untag", is_flag=True, help="Remove all VLAN tags.")
@option(
    "Changes", "--tag", metavar="VID[:PCP]", callback=tag_of,
    help="Add a VLAN tag with this id and priority to Ethernet frames without one.",
)  # fmt: skip
@option(
    "Changes", "--time-shift", "shift", metavar="DURATION", callback=time_shift,
    help="Shift the times of all frames: 1.5s, -20ms.",
)  # fmt: skip
@option(
    "Changes", "--seal", "checksum_mode", type=click.Choice([each.value for each in ChecksumMode]),
    default="changed", show_default=True,
    help="Checksums to recompute: changed (bad ones stay bad), all (bad ones become good), none.",
)  # fmt: skip
@options.written(
    "target",
    "The new capture: FILE.pcap or .pcapng, also compressed as .gz, .xz, .zst or .lz4; - is "
    "standard output.",
    required=True,
)
@options.QUIET
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
    checksum_mode: str,
    quiet: bool,
    ports: tuple[int, ...],
    progress: bool | None,
    **by_name: list[GivenRule],
) -> int:
    """Change fields of a capture and recompute its checksums, so that good ones stay good.

    These are ICRC, VCRC and the checksums of IPv4, UDP, TCP and ICMPv6. A bad checksum stays bad by
    the same bits. All options refer to the original frames. Those under Changes with a value can be
    repeated. Times, interfaces and comments are kept. Without FILE, standard input is read.
    """
    if file is not None and read is not None:
        raise click.UsageError(
            f"{display_path(file)} and -r {display_path(read)} are two files: give one"
        )
    source = _source(file if read is None else read)
    asked = chosen(by_name)
    editor = Editor(
        [each.rule for each in asked], checksum_mode=ChecksumMode(checksum_mode), ports=ports
    )
    _find_peers(editor, source, ports)
    drawn = progress if progress is not None else sys.stderr.isatty()
    try:
        with file_bar(source, _LONG, wanted=drawn) as report:
            edit_capture(
                source,
                target,
                editor,
                chooser=RecordFilter(wanted, keep, drop, ports),
                finder=fpdu_finder(),
                changes=[*shift, *[untagged] * untag, *tag],
                growth=VLAN.SIZE * len(tag),
                progress=report,
            )
    except EditError as error:
        raise click.BadParameter(str(error), param_hint="'--time-shift'") from None
    finally:
        if editor.counts.written is not None:
            _report(source, editor, asked, quiet=quiet)
    return 0


def _source(file: str | None) -> str:
    """Return the file to read, by default standard input, unless it is a terminal."""
    if file is None and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("no FILE is given, and standard input is a terminal")
    return file or STREAM


def _find_peers(editor: Editor, source: str, ports: Sequence[int]) -> None:
    """Give the rules that need it the map of connected queue pairs."""
    asking = [each for each in editor.rules if isinstance(each, PsnRule) and each.asks_for_peers]
    for rule in asking:
        rule.peers = peers_of(source, ports)


def _report(source: str, editor: Editor, asked: Sequence[GivenRule], *, quiet: bool) -> None:
    """Write the summary to standard error, and which options had no effect."""
    if not quiet:
        name = STANDARD_INPUT if source == STREAM else display_path(source)
        click.echo(f"{name}: {', '.join(_done(editor.counts))}", err=True)
    for option_name, rule in asked:
        for unused in rule.unused():
            complain(f"{option_name} {shorten(unused.text)}: {missed(unused)}")
        _warn_of_merges(option_name, list(rule.merged()))
        if isinstance(rule, PsnRule) and rule.unknown:
            kept = f"{rule.unknown} responses kept their PSN"
            complain(f"{option_name}: {kept}: their queue pair is unknown")


def _warn_of_merges(option_name: str, merged: Sequence[str]) -> None:
    """Report numbers that became ambiguous, the first of many."""
    for each in merged[:_MAX_REPORTED]:
        complain(f"{option_name}: {each}")
    if len(merged) > _MAX_REPORTED:
        complain(f"{option_name}: {len(merged) - _MAX_REPORTED} more numbers became ambiguous")


def _done(counts: EditCounts) -> Iterator[str]:
    yield plural(counts.frames, "frame")
    yield f"{counts.changed} changed"
    for count, what in (
        (counts.dropped, "left out"),
        (counts.bad, "had a bad ICRC"),
        (counts.cut, "cut before the ICRC"),
        (counts.plain, "lost comments, for which a pcap has no place"),
    ):
        if count:
            yield f"{count} {what}"
