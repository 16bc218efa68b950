"""`rdmawire vectors`: test vectors by what they show."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click
from click.shell_completion import CompletionItem

from rdmawire.capture import Record
from rdmawire.capture.io import STREAM
from rdmawire.cli import options
from rdmawire.cli.command import Command, option
from rdmawire.cli.streams import complain
from rdmawire.dissect.output import dumped
from rdmawire.terminal import escape, quote, suggest
from rdmawire.vectors.cases import (
    Case,
    PackError,
    Vector,
    VectorSearch,
    cases,
    default_folders,
    find_pack,
    generated,
    golden,
    records,
    row_names,
    vocabulary,
    write_excerpt,
)

_USAGE = 2
_ABOUT = "they are in captures/ of the source of rdmawire; name their folder with --dir"


def _complete(ctx: click.Context, _argument: click.Parameter, start: str) -> list[CompletionItem]:
    """Return matching names of cases and rows of the index, for shell completion."""
    folder = ctx.params.get("folder")
    try:
        names = [case.name for case in cases(_pack(folder))]
    except PackError:
        names = []
    known = (*names, *row_names())
    return [CompletionItem(name) for name in known if name.lower().startswith(start.lower())]


@click.command(
    "vectors",
    cls=Command,
    examples=(
        "rdmawire vectors",
        "rdmawire vectors RNR_NAK 0.64",
        "rdmawire vectors 'remote access error' read",
        "rdmawire vectors REJ.reason CONSUMER_REJECT",
        "rdmawire vectors vxlan ipv6",
        "rdmawire vectors -x rnr-timer-12 > rnr.hex",
        "rdmawire vectors -w lost.pcap 'lost: RC_ACKNOWLEDGE'",
        "rdmawire vectors --json RC_CMP_SWAP | jq '.[].frames'",
    ),
)
@click.argument("words", nargs=-1, metavar="[WORD]...", shell_complete=_complete)
@option(
    "Input", "--dir", "folder", metavar="PATH", type=click.Path(path_type=Path),
    help="Folder of the vectors.  [default: captures/ here, or those that come with rdmawire]",
)  # fmt: skip
@option(
    "Output",
    "-x",
    "--hex",
    "hex_dump",
    is_flag=True,
    help="Print frames, a line of hex each.",
)
@options.written(
    "target", "Write the frames to a .pcap or .pcapng, also compressed; - is standard output."
)
@options.text_or_json("Print a JSON array; with -x, frames as hex too.")
def command(
    words: tuple[str, ...],
    *,
    hex_dump: bool,
    target: str | None,
    as_json: bool,
    folder: Path | None,
) -> int:
    """Find golden cases by what they show: name, capture, frame numbers, description.

    A case matches if it has every WORD: an opcode, a syndrome or NAK, a message or reason of
    connection management, an encapsulation, a completion status, or any word of the list. Case and
    punctuation do not matter. What no golden case has, such as RD and iWARP, is looked up frame by
    frame in captures/generated. Exit status: 0 if something matches, 1 if not, 2 for a usage error
    or a pack that cannot be read.
    """
    try:
        return _shown(_pack(folder), words, hex_dump=hex_dump, target=target, as_json=as_json)
    except PackError as error:
        complain(str(error))
        return _USAGE


def _pack(folder: Path | None) -> Path:
    """Return the folder of vectors; raise ``PackError`` with the folders that were searched."""
    try:
        return find_pack(default_folders() if folder is None else (folder,))
    except PackError as error:
        raise PackError(f"{error}; {_ABOUT}") from None


def _shown(
    pack: Path, words: Sequence[str], *, hex_dump: bool, target: str | None, as_json: bool
) -> int:
    """Print or write the vectors that have all words; return the exit status."""
    having = _having(pack, words)
    if not having:
        return 1
    said_to = sys.stderr if target == STREAM else sys.stdout
    frames = _frames(pack, having, target) if hex_dump or target else {}
    if target:
        write_excerpt(target, [one for own in frames.values() for one in own])
    if as_json:
        _say(
            said_to,
            dumped([_object(one, frames, hex_dump=hex_dump) for one in having], indent=1),
        )
    elif hex_dump:
        _say(said_to, *(one.data.hex() for own in frames.values() for one in own))
    else:
        _say(said_to, *_lines([one.case for one in having]))
    return 0


def _having(pack: Path, words: Sequence[str]) -> list[Vector]:
    """Return the golden cases with all words, else generated frames; report if none matches."""
    search = VectorSearch(golden(pack))
    having = search.find(words)
    if not having:
        further = VectorSearch(generated(pack))
        having = further.find(words)
        if not having:
            _report_none(words, (search, further))
    return having


def _report_none(words: Sequence[str], searches: Sequence[VectorSearch]) -> None:
    """Report the first word that matches nothing, with a suggestion."""
    known = [one for search in searches for one in search.vectors]
    for word in words:
        if not any(search.find([word]) for search in searches):
            complain(f"no test vector has {quote(word)}{suggest(word, vocabulary(known))}")
            return
    complain(f"no test vector has all of {', '.join(map(quote, words))}; each alone is found")


def _frames(pack: Path, having: Sequence[Vector], target: str | None) -> dict[str, list[Record]]:
    """Return the frames of each case, by its name."""
    files = dict.fromkeys(one.case.file for one in having)
    if target and any(_same(target, pack / file) for file in files):
        raise click.UsageError(f"{escape(target)} is one of the vectors; -w would write over it")
    return {case.name: own for case, own in records(pack, (one.case for one in having))}


def _same(target: str, path: Path) -> bool:
    return target != STREAM and os.path.exists(target) and os.path.samefile(target, path)


def _say(to: TextIO, *lines: str) -> None:
    to.writelines(f"{line}\n" for line in lines)


def _lines(listed: Sequence[Case]) -> list[str]:
    """Return a line for each case, in aligned columns."""
    rows = [(case.name, case.file, _span(case), case.shows) for case in listed]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        escape("  ".join((*(f"{text:<{w}}" for text, w in zip(row, widths, strict=False)), row[3])))
        for row in rows
    ]


def _span(case: Case) -> str:
    """Return the frame numbers of a case: ``3`` or ``3-7``."""
    return f"{case.first}" if case.first == case.last else f"{case.first}-{case.last}"


def _object(one: Vector, frames: dict[str, list[Record]], *, hex_dump: bool) -> dict[str, object]:
    case = one.case
    found: dict[str, object] = {
        "name": case.name,
        "file": case.file,
        "frames": [case.first, case.last],
        "service": case.service,
        "shows": case.shows,
        "comes_to": list(case.comes_to),
        "has": list(one.rows),
    }
    if hex_dump:
        found["bytes"] = [record.data.hex() for record in frames[case.name]]
    return found
