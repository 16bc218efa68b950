"""Files of maps: what becomes of which address, queue pair or key, a line each.

::

    [ip]
    10.77.0.1=192.168.7.1
    [qpn]
    0x11@10.77.0.1=0x1234  # as behind --qpn

``#`` begins a comment. :class:`EditError` says in which line something is wrong.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rdmawire.capture.source import shown
from rdmawire.screen import quoted
from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.mapping import MapRule, Range
from rdmawire.traffic.edit.refusal import EditError

MOST_OCTETS: Final = 8 << 20
"""Octets of a file: some hundred thousand lines."""
SECTIONS: Final[Mapping[str, Callable[[Sequence[str]], MapRule]]] = {
    "mac": text.macs,
    "ip": text.ips,
    "lid": text.lids,
    "vlan": text.vlans,
    "pkey": text.pkeys,
    "qpn": text.qpns,
    "rkey": text.rkeys,
}
"""What a line makes, by the section in which it stands."""

_HEADING = re.compile(r"\[\s*(.*?)\s*\]")

_Source = tuple[Range, bytes | None]
"""What is mapped, and whose."""
Maps = dict[str, list[str]]
"""The maps of each section, as :mod:`rdmawire.traffic.edit.text` takes them."""


def read_maps(path: Path) -> Maps:
    """The maps of a file; :class:`EditError` naming the line of the first mistake."""
    maps: Maps = {name: [] for name in SECTIONS}
    lines: dict[tuple[str, _Source], int] = {}
    section = ""
    for number, line in _lines(path):
        heading = _HEADING.fullmatch(line)
        try:
            if heading:
                section = _section(heading[1])
                continue
            said, sources = _map(_section(section), line)
            for source in sources:
                if lines.setdefault((section, source), number) != number:
                    raise EditError(f"line {lines[section, source]} maps the same")
            maps[section].append(said)
        except EditError as error:
            raise EditError(f"{shown(str(path))}, line {number}: {error}") from None
    return maps


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    for number, line in enumerate(_text(path).split("\n"), 1):
        said = line.partition("#")[0].strip()
        if said:
            yield number, said


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            octets = file.read(MOST_OCTETS + 1)
        if len(octets) > MOST_OCTETS:
            raise EditError(f"{shown(str(path))}: more than {MOST_OCTETS} octets")
        return octets.decode("utf-8-sig")
    except OSError as error:
        raise EditError(f"{shown(str(path))}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise EditError(f"{shown(str(path))}, line {line}: no UTF-8") from None


def _section(name: str) -> str:
    """The name of a section that there is."""
    if name in SECTIONS:
        return name
    known = ", ".join(f"[{each}]" for each in SECTIONS)
    raise EditError(
        f"{quoted(f'[{name}]')} is none of {known}" if name else f"one of {known} comes first"
    )


def _map(section: str, line: str) -> tuple[str, Iterator[_Source]]:
    """A map without blanks around its numbers, and what it maps."""
    said = "=".join(part.strip() for part in line.split("="))
    (entry,) = SECTIONS[section]([said]).entries
    return said, ((old, entry.host) for old, _ in entry.ranges)
