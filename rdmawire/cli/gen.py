"""`rdmawire gen`: test traffic as a capture, with every checksum and every answer in it."""

import re
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rdmawire.capture import LinkType, create_capture
from rdmawire.capture.source import STREAM
from rdmawire.cli import options
from rdmawire.cli.options import OnceCommand
from rdmawire.cli.progress import late_bar
from rdmawire.cli.streams import by_own_name, check_suffix, complain
from rdmawire.cli.table import write_summary
from rdmawire.terminal import quote
from rdmawire.traffic.generate.spec import (
    CNP_DSCP,
    LAST_SEED,
    LAST_TIMEOUT,
    MAX_HOSTS,
    MAX_LOSS,
    MAX_MESSAGES,
    MAX_QPS,
    Address,
    CapturePoint,
    Order,
    OrderError,
    Sizes,
    Tag,
    Verb,
    rate,
    share,
)
from rdmawire.units import parse_duration
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MAX_IN_FLIGHT, MODULUS

if TYPE_CHECKING:
    from rdmawire.traffic.summary import Summary

T = TypeVar("T")
_MANY = 100_000
"""Messages or frames that are worth another library."""
_GAP = re.compile(r"(?<=[0-9])\s+(?=[a-z]+$)")
"""Between a number and its unit, as scenarios write times."""


def _read(parse: Callable[[str], T]) -> Callable[..., T | None]:
    """The callback of an option whose text is parsed so."""

    def read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except OrderError as error:
            raise click.BadParameter(str(error), ctx, parameter) from None

    return read


def _latency(text: str) -> int:
    try:
        return parse_duration(_GAP.sub("", text.strip()))
    except ValueError:
        raise OrderError(f"{quote(text)} is no time such as 1us or 500 ns") from None


def _psn(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < MODULUS:
        raise OrderError(f"{quote(text)} is no PSN within 0..0xffffff")
    return number


@click.command("gen", cls=OnceCommand)
@click.argument("verb", metavar="VERB", type=click.Choice([verb.value for verb in Verb]))
@options.written(
    "path",
    "The capture: FILE.pcap or .pcapng, packed as .gz, .xz, .zst or .lz4 say; - is standard "
    "output.",
    required=True,
)
@click.option(
    "--size", "sizes", metavar="SIZE", callback=_read(Sizes.parse),
    help="Bytes of a message: 64, 4k or 4 KiB, 1M; any of a range, 64-4k; one of several, 64,1k.  "
    "[default: 4k; 1k for ud; several for mix]",
)  # fmt: skip
@click.option(
    "--mtu", type=click.Choice([str(mtu) for mtu in PATH_MTUS]), default="1024", show_default=True,
    help="Path MTU: bytes of payload that a frame has at most. Links of 1500 bytes carry 1024, "
    "4096 takes jumbo frames.",
)  # fmt: skip
@click.option(
    "--count", type=options.WholeNumber(1, MAX_MESSAGES),
    help="Messages; connections of cm, CNPs of cnp.  [default: 1000]",
)  # fmt: skip
@click.option(
    "--frames", type=options.WholeNumber(1, MAX_MESSAGES),
    help="Frames instead: exactly so many, whatever messages they are of.",
)  # fmt: skip
@click.option(
    "--qps", type=options.WholeNumber(1, MAX_QPS),
    help="Queue pairs, which take turns: for each pair of a client and a server. Their UDP source "
    "ports are hashed from their numbers: of hundreds, a few share one.  [default: 1]",
)  # fmt: skip
@click.option(
    "--clients", type=options.WholeNumber(1, MAX_HOSTS - 1), default=1, show_default=True,
    help="Hosts that send requests. More than two hosts are joined by a switch: --rate and "
    "--latency are those of each host's link to it.",
)  # fmt: skip
@click.option(
    "--servers", type=options.WholeNumber(1, MAX_HOSTS - 1), default=1, show_default=True,
    help="Hosts that respond. Many clients and one server are an incast; with many of both, "
    "clients and servers are paired round robin.",
)  # fmt: skip
@click.option(
    "--flows", type=options.WholeNumber(1, MAX_QPS),
    help="Instead of --qps: the number of queue pairs of all pairs of hosts together.",
)  # fmt: skip
@click.option(
    "--loss", metavar="SHARE", default="0", callback=_read(lambda text: share(text, MAX_LOSS)),
    help="Frames that are lost, such as 1% or 0.01: they are sent again as the standard has it. In "
    "a pcapng, a comment names them.",
)  # fmt: skip
@click.option(
    "--ecn", "marks", metavar="[SHARE]", is_flag=False, flag_value="1%",
    callback=_read(lambda text: share(text, 1.0)),
    help="Data with ECN, of which a SHARE (1% if not given) meets congestion on its way: CNPs come "
    "back, and senders slow down. Marks are seen by --tap arrived.",
)  # fmt: skip
@click.option("--gpu", is_flag=True, help="From GPU memory to GPU memory, by GPUDirect.")
@click.option("--ipv6", is_flag=True, help="IPv6 instead of IPv4.")
@click.option(
    "--vlan", "tag", metavar="VID[:PCP]", callback=_read(Tag.parse),
    help="In a VLAN, with its tag. PCP is the priority of all frames; left out, it is what each "
    "frame's DSCP selects: 3 for 26, 1 for 10.",
)  # fmt: skip
@click.option(
    "--dscp", type=options.WholeNumber(0, 63), default=0, help="DSCP of frames.  [default: 0]"
)
@click.option(
    "--cnp-dscp", type=options.WholeNumber(0, 63), default=CNP_DSCP, show_default=True,
    help="DSCP of CNPs, which adapters send in a class of their own.",
)  # fmt: skip
@click.option(
    "--client", metavar="ADDRESS[/MAC]", callback=_read(Address.parse),
    help="Who asks: an IP address, and the Ethernet address. Those of more clients follow it.  "
    "[default: 10.0.0.1 or fd00::1, 02:00:00:00:00:01]",
)  # fmt: skip
@click.option(
    "--server", metavar="ADDRESS[/MAC]", callback=_read(Address.parse),
    help="Who answers; those of more servers follow.  [default: what comes behind the clients: the "
    "same with 2]",
)  # fmt: skip
@click.option(
    "--psn", metavar="PSN", callback=_read(_psn),
    help="The PSN that queue pairs begin with: 0xfffff0 soon wraps.  [default: each its own]",
)  # fmt: skip
@click.option(
    "--seed", type=options.WholeNumber(0, LAST_SEED), default=0, show_default=True,
    help="For all that is random: the same seed gives the same bytes.",
)  # fmt: skip
@click.option(
    "--tap", type=click.Choice([tap.value for tap in CapturePoint]),
    default=CapturePoint.SENT.value, show_default=True,
    help="What was sent, lost frames too, or only what arrived, with its marks: what `rdmawire run "
    "--arrived` takes.",
)  # fmt: skip
@click.option(
    "--rate", metavar="RATE", default="100G", show_default=True, callback=_read(rate),
    help="Bits a second of the link, by which frames are timed.",
)  # fmt: skip
@click.option(
    "--latency", metavar="TIME", default="1us", show_default=True, callback=_read(_latency),
    help="From end to end of the link.",
)  # fmt: skip
@click.option(
    "--timeout", metavar="EXPONENT", type=options.WholeNumber(1, LAST_TIMEOUT),
    help="How long an answer is waited for: 4.096 us times 2 to it.  [default: as long as one may "
    "take where nothing is lost]",
)  # fmt: skip
@click.option(
    "--window", metavar="PACKETS", type=options.WholeNumber(1, MAX_IN_FLIGHT),
    help="Request packets that a queue pair leaves unacknowledged: soft-RoCE has 129.  [default: "
    "no limit]",
)  # fmt: skip
@options.text_or_json("Print the summary as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say what was done.")
@click.option("--progress/--no-progress", default=None, help="A progress bar for what takes long.")
def command(path: str, *, as_json: bool, quiet: bool, progress: bool | None, **wishes: Any) -> int:
    """Write test traffic of VERB to a capture, and say what it amounts to.

    \b
    write, send, read, atomic   reliable connections and their answers
    ud                          datagrams
    cm                          connections set up and taken down
    cnp                         congestion notifications
    mix                         a blend of all kinds of messages

    Emulated adapters talk to each other, two or many, so all is as real ones send it: ICRCs, PSNs,
    ACKs, NAKs, retransmissions, source ports by flow.

    \b
    Examples:
      rdmawire gen write --frames 10000 --loss 1% -w lossy.pcap
      rdmawire gen write --clients 8 --flows 1000 -w incast.pcap
      rdmawire gen mix --qps 64 --ipv6 --seed 7 -w mix.pcapng.zst
      rdmawire gen send --size 64 --count 1000000 --psn 0xfffff0 -w small.pcap
      rdmawire gen ud --size 64-1k --vlan 100:3 -q -w - | tcpreplay -i eth1 -
    """  # noqa: D301 - click keeps the lines behind a backspace
    if as_json and quiet:
        raise click.UsageError("--json prints the summary, -q does not: give one of them")
    order = _order(**wishes)
    check_suffix(path)
    path = by_own_name(path)
    if path == STREAM and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("a capture is no text: name a file with -w FILE")
    if not quiet:
        _hint(order)
    wanted = progress if progress is not None else sys.stderr.isatty()
    summary = _written(order, path, progress=wanted)
    if not quiet:
        to = sys.stderr if path == STREAM else None
        write_summary(summary, as_json=as_json, to=to, parties=_parties(order, as_json=as_json))
    return 0


def _order(verb: str, mtu: str, tap: str, tag: Tag | None, **wishes: Any) -> Order:
    """What is asked for; wishes that clash are wrong usage."""
    if tag is not None:
        wishes |= tag._asdict()
    try:
        return Order(verb=Verb(verb), mtu=int(mtu), tap=CapturePoint(tap), **wishes)
    except OrderError as error:
        raise click.UsageError(str(error)) from None


def _parties(order: Order, *, as_json: bool) -> dict[str, int]:
    """Hosts and flows by name; a table has them only where there is more than one client or server.

    A flow is a queue pair of a client and its peer at a server.
    """
    found = {"clients": order.clients, "servers": order.servers, "flows": order.lanes}
    return found if as_json or order.switched else {}


def _hint(order: Order) -> None:
    """Say what would make a long run short."""
    if max(order.frames or 0, order.messages or 0) >= _MANY:
        try:
            import_module("numpy")
        except ImportError:
            complain("NumPy makes this many times as fast: pip install 'rdmawire[columns]'")


def _written(order: Order, path: str, *, progress: bool) -> "Summary":
    """Write the capture; what it amounts to."""
    from rdmawire.traffic.generate.generator import generate

    start = time.perf_counter()
    with (
        late_bar(f"gen {order.verb}", wanted=progress) as told,
        create_capture(path, link_type=LinkType.ETHERNET) as writer,
    ):
        summary = generate(order, writer, told)
    return summary._replace(wall_s=time.perf_counter() - start)
