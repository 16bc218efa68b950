"""Options that several commands have, and the callbacks that read their values."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rdmawire.capture.io import STREAM, display_path, write_error
from rdmawire.capture.writer import format_named
from rdmawire.cli.command import F, IntegerType, option
from rdmawire.dissect import generated
from rdmawire.dissect.output import Separators, dumped
from rdmawire.dissect.select import Bound, BoundError, FieldError, Selection
from rdmawire.terminal import escape, quote
from rdmawire.units import QuantityError, parse_quantity, size_factor
from rdmawire.wire.inet import ROCE_PORT

T = TypeVar("T")

if TYPE_CHECKING:
    from rdmawire.fabric import Network
    from rdmawire.filter import Filter
    from rdmawire.topology import Costs


def bound(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Bound | None:
    """Read a frame number, a time since the first frame, or a date."""
    try:
        return Bound.parse(text) if text is not None else None
    except BoundError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def display_filter(
    ctx: click.Context, parameter: click.Parameter, text: str | None
) -> "Filter | None":
    """Read a display filter; return ``None`` if the option is not given."""
    if text is None:
        return None
    from rdmawire.filter import Filter, FilterError

    try:
        return Filter(text)
    except FilterError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def selection(
    ctx: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> Selection | None:
    """Read field names; return ``None`` if the option is not given."""
    try:
        return Selection(names) if names else None
    except FieldError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def complete_field(
    _ctx: click.Context, _parameter: click.Parameter, start: str
) -> list[CompletionItem]:
    """Return the field names that begin with ``start``, for shell completion."""
    from rdmawire.dissect.fields import fields

    return [CompletionItem(info.name) for info in fields() if info.name.startswith(start)]


CHECKSUMS = {
    "icrc": generated.ICRC,
    "vcrc": generated.VCRC,
    "lpcrc": generated.LPCRC,
    "mpa": generated.MPA_CRC,
    "ip": generated.IPV4_CHECKSUM,
    "udp": generated.UDP_CHECKSUM,
    "tcp": generated.TCP_CHECKSUM,
}
"""Checksums by their names on the command line."""


def checksum_names(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """Read a comma-separated list of checksums; return the names that dissections have for them."""
    words = list(CHECKSUMS) if text == "all" else text.split(",")
    for word in words:
        if word not in CHECKSUMS:
            known = ", ".join(CHECKSUMS)
            raise click.BadParameter(f"{word!r} is not one of {known}, all", ctx, parameter)
    return tuple(CHECKSUMS[word].name for word in words)


_CHARACTERS = {"/t": "\t", "/s": " ", "/n": "\n"}


def _character(text: str) -> str:
    """Return the character that ``text`` is or names; raise ``KeyError`` for any other text."""
    return text if len(text) == 1 else _CHARACTERS[text]


_READERS: dict[str, Callable[[str], object]] = {
    "header": {"y": True, "n": False}.__getitem__,
    "separator": _character,
    "aggregator": _character,
    "occurrence": {"a": "a", "f": "f", "l": "l"}.__getitem__,
    "quote": {"d": '"', "s": "'", "n": ""}.__getitem__,
}
_SETTINGS = (
    "header=y|n, separator=CHAR, aggregator=CHAR (a character, /t, /s or /n), "
    "occurrence=a|f|l or quote=d|s|n"
)


def separators(
    ctx: click.Context, parameter: click.Parameter, settings: tuple[str, ...]
) -> Separators | None:
    """Read the ``-E`` settings, each ``name=value`` as in tshark; return ``None`` without any."""
    chosen: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            chosen[name] = _READERS[name](value)
        except KeyError:
            raise click.BadParameter(f"{setting!r}: {_SETTINGS}", ctx, parameter) from None
    return Separators(**chosen) if chosen else None


READ = option(
    "Input", "-r", "--read", "read", multiple=True, metavar="FILE",
    help="Read FILE; the same as a FILE argument. Repeatable.",
)  # fmt: skip
PORTS = option(
    "Input", "--port", "ports", type=IntegerType(0, 65535), multiple=True, default=[ROCE_PORT],
    show_default=True, help="UDP destination port of RoCEv2. Repeatable.",
)  # fmt: skip
DISPLAY_FILTER = option(
    "Selection", "-Y", "--display-filter", "wanted", metavar="FILTER", callback=display_filter,
    help="Only frames that match a display filter in Wireshark's syntax.",
)  # fmt: skip
PROGRESS = option(
    "Output", "--progress/--no-progress", default=None,
    help="Show a progress bar for long files.  [default: only in a terminal]",
)  # fmt: skip
SCHEDULER = option(
    "Work", "--scheduler", metavar="ADDRESS",
    help="Run on the Dask cluster of this scheduler, e.g. tcp://10.0.0.1:8786.",
)  # fmt: skip
QUIET = option("Output", "-q", "--quiet", is_flag=True, help="Suppress the summary.")


def check_summary(*, as_json: bool, quiet: bool) -> None:
    """Raise ``UsageError`` if a summary is asked for in JSON, and suppressed."""
    if as_json and quiet:
        raise click.UsageError("--json prints the summary, -q does not: give one of them")


def seed(group: str, text: str) -> Callable[[F], F]:
    """Return the option --seed, 32 bits and by default 0, with its help."""
    return option(
        group, "--seed", type=IntegerType(0, (1 << 32) - 1), default=0, show_default=True,
        help=text,
    )  # fmt: skip


COSTS = option(
    "Host", "--costs", "costs_file", metavar="FILE",
    help="Constants of the model of costs, as `rdmawire topo --calibrate` writes them.  "
    "[default: those of servers with H200]",
)  # fmt: skip


def costs_of(path: str | None) -> "Costs":
    """Return the constants of a file, or the usual ones.

    End with status 2 after a line for each error of the file; raise an ``RdmaError`` without one.
    """
    from rdmawire.cli.streams import each_error_of_yaml
    from rdmawire.topology import Costs
    from rdmawire.traffic.scenario.topology_file import open_costs

    with each_error_of_yaml():
        return Costs() if path is None else open_costs(path)


def written(name: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """Return the option -w or -o for a file to write: the parameter ``name``, with its help."""
    words = ("-w", "--write", "-o", "--output", name)
    return option("Output", *words, required=required, metavar="FILE", help=text)


_PICTURES = (".svg", ".png")


def _picture(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in _PICTURES:
        wanted = " or ".join(_PICTURES)
        raise click.BadParameter(f"{path.name!r} must end in {wanted}", ctx, parameter)
    return path


def picture(text: str, flag: str = "--plot", name: str = "picture") -> Callable[[F], F]:
    """Return the option of a picture with its help; the command gets it as ``name``."""
    return option(
        "Output", flag, name, type=click.Path(path_type=Path), metavar="FILE",
        callback=_picture, help=text,
    )  # fmt: skip


def check_drawing(picture: Path | None) -> None:
    """Raise an error if a picture cannot be drawn, before any work is done.

    ``ClickException`` without Matplotlib, ``CaptureError`` if the folder does not exist.
    """
    if picture is None:
        return
    check_installed("rdmawire.figure")
    if not picture.parent.is_dir():
        raise write_error(FileNotFoundError(errno.ENOENT, ""), display_path(str(picture)))


def check_installed(module: str) -> None:
    """Raise ``ClickException`` if a module needs a library that is not installed."""
    try:
        import_module(module)
    except ImportError as error:
        raise click.ClickException(str(error)) from None


def reads(parse: Callable[[Any], T], error: type[Exception]) -> Callable[..., T | None]:
    """Return the callback of an option whose value ``parse`` reads, or refuses by this error."""

    def read(ctx: click.Context, parameter: click.Parameter, text: Any) -> T | None:
        try:
            return None if text is None else parse(text)
        except error as reason:
            raise click.BadParameter(str(reason), ctx, parameter) from None

    return read


def check_workers(scheduler: str | None) -> None:
    """Raise ``UsageError`` for --jobs with the workers of a cluster."""
    source = click.get_current_context().get_parameter_source("jobs")
    if scheduler is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            "--jobs is for processes of this machine: with --scheduler there is one for each "
            "worker of the cluster"
        )


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def number_of_bytes(most: int) -> Callable[..., int | None]:
    """Return the callback of an option for a number of bytes: ``4096``, ``64k`` or ``1MiB``."""
    return reads(byte_parser(most), ValueError)


def numbers_of_bytes(most: int) -> Callable[..., list[int] | None]:
    """Return the callback of an option that is given for each of several numbers of bytes."""
    parse = byte_parser(most)
    return reads(lambda texts: [parse(text) for text in texts], ValueError)


def byte_parser(most: int) -> Callable[[str], int]:
    """Return a function that reads a number of bytes, or raises ``ValueError``."""

    def parse(text: str) -> int:
        try:
            found = parse_quantity(text.strip(), size_factor)
        except QuantityError:
            raise ValueError(f"{quote(text)} is no number of bytes, such as 64k or 1MiB") from None
        if not (found.exact and found.value <= most):
            raise ValueError(f"{quote(text)}: whole bytes are expected, at most {most}")
        return found.value

    return parse


_STANDARD_OUTPUT = 1
"""File descriptor of standard output."""
_SUFFIXES = ".pcap or .pcapng, and .gz, .xz, .zst or .lz4 for compression"


def check_suffix(path: str) -> None:
    """Raise ``click.UsageError`` if the suffix of ``path`` names no capture format.

    Standard output needs no suffix, nor does an existing device or pipe.
    """
    if path == STREAM or format_named(path) or _is_no_file(path):
        return
    raise click.UsageError(f"-w {escape(path)} names no format; end it in {_SUFFIXES}")


def capture_path(path: str) -> str:
    """Return the name of a capture to write, ``-`` for standard output.

    Raises ``click.UsageError`` for a suffix of no format, and if the capture would be written to a
    terminal.
    """
    check_suffix(path)
    path = by_own_name(path)
    if path == STREAM and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("a capture is binary: name a file with -w FILE")
    return path


def captured(network: "Network", path: str | None) -> AbstractContextManager[None]:
    """Return a context in which the packets of a network are written to a capture, if named."""
    return nullcontext() if path is None else network.captured(path)


def by_own_name(path: str) -> str:
    """Return ``-`` if ``path`` is another name of the pipe on standard output, else ``path``.

    ``/dev/stdout`` is such a name: then the summary must go to standard error.
    """
    with suppress(OSError, ValueError):  # missing, not a possible name, or closed
        found, output = os.stat(path), os.fstat(_STANDARD_OUTPUT)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):
            return STREAM if os.path.samestat(found, output) else path
    return path


def _is_no_file(path: str) -> bool:
    try:
        return os.path.exists(path) and not os.path.isfile(path)
    except ValueError:  # a byte that no name may have
        return False


def text_or_json(text: str) -> Callable[[F], F]:
    """Return the options --json, with the help ``text``, and -T; the command gets ``as_json``."""

    def decorate(command: F) -> F:
        @wraps(command)
        def chosen(*args: Any, as_json: bool, form: str | None, **kwargs: Any) -> Any:
            return command(*args, as_json=json_is_asked(form, as_json=as_json), **kwargs)

        flag = option(
            "Output", "--json", "as_json", is_flag=True, help=f"{text} The same as -T json."
        )
        choice = option(
            "Output", "-T", "--format", "form", type=click.Choice(["text", "json"]),
            help="Output format.  [default: text]",
        )  # fmt: skip
        return flag(choice(chosen))  # type: ignore[return-value]

    return decorate


def json_is_asked(form: str | None, *, as_json: bool) -> bool:
    """Return whether JSON is asked for; raise ``UsageError`` if --json and -T disagree."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json is -T json, and not -T {form}: give one of them")
    return as_json or form == "json"


class RunOutput(NamedTuple):
    """Where the packets, the picture and the summary of a run go.

    ``path`` names the capture: ``-`` is standard output, ``None`` is no capture.
    """

    path: str | None
    picture: Path | None
    as_json: bool
    quiet: bool

    def show(self, values: object, lines: Iterable[str]) -> None:
        """Print the summary: ``values`` as JSON, or ``lines``.

        It goes to standard error if the capture is on standard output.
        """
        if not self.quiet:
            text = dumped(values, indent=1) if self.as_json else "\n".join(lines)
            click.echo(text, err=self.path == STREAM)


def run_output(capture: str, summary: str, drawing: str = "") -> Callable[[F], F]:
    """Return the options -w, --json, -T and -q of a run; the command gets ``output``.

    ``capture`` is the help of -w, ``summary`` that of --json, and ``drawing`` that of --plot, which
    is left out without one. ``output`` is a :class:`RunOutput` whose files can be written.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def checked(*args: Any, path: str | None, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
            check_summary(as_json=as_json, quiet=quiet)
            path = None if path is None else capture_path(path)
            drawn = kwargs.pop("picture", None)
            check_drawing(drawn)
            return command(*args, output=RunOutput(path, drawn, as_json, quiet), **kwargs)

        shown = text_or_json(summary)(QUIET(checked))
        return written("path", capture)(picture(drawing)(shown) if drawing else shown)  # type: ignore[return-value]

    return decorate


_COMPATIBLE: Final[dict[str, tuple[str, ...]]] = {
    "listing": (),
    "schema": (),
    "keys": (),
    "show": ("scenarios", "more", "every"),
    "check": ("scenarios", "more", "every", "seed", "as_json", "form", "quiet"),
}
"""The parameters that may be given with each option of `run` that runs no scenario."""


def check_compatible(context: click.Context) -> None:
    """Raise ``UsageError`` if an option or a scenario is given that `run` would ignore."""
    given = [name for name, value in context.params.items() if value not in (None, False, ())]
    words = {parameter.name: _word(parameter) for parameter in context.command.params}
    for one, other in _contradictions(given):
        raise click.UsageError(f"{words[one]} and {words[other]} do not go together; use one")


def _contradictions(given: list[str]) -> Iterator[tuple[str, str]]:
    for mode, compatible in _COMPATIBLE.items():
        if mode in given:
            yield from ((mode, name) for name in given if name not in (mode, *compatible))


def _word(parameter: click.Parameter) -> str:
    return "a SCENARIO" if isinstance(parameter, click.Argument) else parameter.opts[0]
