"""What a run of traffic amounted to: a table for people, one JSON object for machines."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rdmawire.traffic.summary import Summary

_SECOND = 1_000_000_000
_COUNTS = (
    "messages",
    "octets",
    "mads",
    "frames",
    "frame_octets",
    "retransmits",
    "naks",
    "rnr_naks",
    "cnps",
    "marks",
    "lost",
    "failed",
    "refused",
)
_WORDS = {
    "octets": "bytes",
    "mads": "MADs",
    "frame_octets": "bytes on the wire",
    "naks": "NAKs",
    "rnr_naks": "RNR NAKs",
    "cnps": "CNPs",
    "marks": "ECN marks",
    "lost": "frames lost",
    "failed": "messages failed",
    "refused": "connections failed",
}
_QUIET = {"mads", "marks", "lost", "failed", "refused", "rnr_naks"}
"""Counts that are left out of the table where they are 0."""
_NO_PARTIES: Mapping[str, int] = MappingProxyType({})
_PATHS = {"host": "host memory", "gpu_direct": "GPUDirect", "bounce": "bounce buffers"}


def write_summary(
    summary: "Summary",
    *,
    as_json: bool,
    to: TextIO | None = None,
    more: Iterable[tuple[str, str]] = (),
    parties: Mapping[str, int] = _NO_PARTIES,
) -> None:
    """Print a summary: to standard output, unless frames go there. A table has ``more`` rows.

    ``parties`` are the numbers of clients, servers and flows, by name; they come first.
    """
    stream = sys.stdout if to is None else to
    if as_json:
        stream.write(json.dumps({**parties, **as_object(summary)}, indent=1) + "\n")
        return
    said = [(name, f"{count:,}") for name, count in parties.items()]
    said += [*rows(summary), *more]
    if stream.isatty():
        _draw(said, stream)
    else:
        stream.writelines(f"{name:<26}{value}\n" for name, value in said)


def as_object(summary: "Summary") -> dict[str, object]:
    """The summary as JSON has it: every count, by its name."""
    found = summary._asdict()
    return {**found, "paths": {name: way._asdict() for name, way in summary.paths.items()}}


def rows(summary: "Summary") -> Iterator[tuple[str, str]]:
    """What is said of each count, those of trouble only where there is any."""
    for name in _COUNTS:
        count: int = getattr(summary, name)
        if count or name not in _QUIET:
            yield _WORDS.get(name, name), f"{count:,}"
    for name, way in summary.paths.items():
        said = f"{way.octets:,} bytes in {way.transactions:,} DMAs, {way.copies:,} copies"
        yield f"by {_PATHS.get(name, name)}", said
    yield "virtual time", f"{summary.virtual_ns / _SECOND:.9f} s"
    yield "wall time", f"{summary.wall_s:.3f} s"


def _draw(said: Iterable[tuple[str, str]], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE, show_header=False)
    drawn.add_column(style="cyan")
    drawn.add_column(justify="right")
    for name, value in said:
        drawn.add_row(name, value)
    Console(file=stream).print(drawn)
