"""Frames compared with tshark, those of many captures in one run of tshark."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rdmawire.capture import Interface, LinkType, Record, create_capture, open_capture
from rdmawire.decode import walk_frame
from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES, KnownDifference
from rdmawire.fuzz.tshark_fields import differing, own_values, shared_fields, tshark_values
from rdmawire.traffic.edit import Editor, text
from rdmawire.wire.inet import TCP, IPv4, IPv6

FIELDS = shared_fields()
UNREADABLE = LinkType.INFINIBAND
"""The one link type that tshark cannot open."""

Connection = frozenset[tuple[bytes, int]]
"""A TCP connection: the address and the port of both ends."""


class Merged(NamedTuple):
    """A file with the frames of several captures, and the name of the capture of each frame."""

    path: Path
    names: list[str]


def records(path: Path) -> list[Record]:
    with open_capture(path) as reader:
        return list(reader)


def link_types(path: Path) -> set[int]:
    return {record.link_type for record in records(path)}


def is_readable(path: Path) -> bool:
    """Whether tshark knows the capture's link types."""
    return UNREADABLE not in link_types(path)


def merged(paths: Iterable[Path], folder: Path) -> Iterator[Merged]:
    """Merge the captures that tshark can open into few files in a folder.

    A pcapng stays as it is. Those with records of Endace's format are merged by themselves: in a
    pcapng, tshark takes the time from the record. A TCP connection that an earlier capture of the
    file has gets other addresses, since tshark would take both for one.
    """
    kinds: dict[str, list[Path]] = {}
    for path in filter(is_readable, paths):
        is_erf = link_types(path) == {LinkType.ERF}
        kind = path.name if path.suffix == ".pcapng" else "erf.pcap" if is_erf else "many.pcapng"
        kinds.setdefault(kind, []).append(path)
    for kind, found in kinds.items():
        contents = {path.name: records(path) for path in found}
        names = [name for name, content in contents.items() for _ in content]
        yield Merged(found[0] if len(found) == 1 else _write(folder / kind, contents), names)


def _write(path: Path, contents: dict[str, list[Record]]) -> Path:
    """Write the records of captures one after the other, with an interface for each link type."""
    every = [record for content in _apart(contents.values()) for record in content]
    links = sorted({record.link_type for record in every})
    interfaces = [Interface(link) for link in links] if path.suffix == ".pcapng" else []
    with create_capture(path, link_type=links[0], interfaces=interfaces) as writer:
        for record in every:
            writer.write(record._replace(interface=links.index(record.link_type)))
    return path


def _apart(contents: Iterable[list[Record]]) -> Iterator[list[Record]]:
    """Yield the records of each capture; no two captures have a TCP connection in common."""
    seen: set[Connection] = set()
    for number, content in enumerate(contents):
        found = set(_connections(content))
        yield _moved(content, number) if found & seen else content
        seen |= found


def _connections(content: Iterable[Record]) -> Iterator[Connection]:
    for record in content:
        headers = [header for _, header in walk_frame(record.data, record.link_type).headers]
        ips = [header for header in headers if isinstance(header, IPv4 | IPv6)]
        for tcp in (header for header in headers if isinstance(header, TCP)):
            yield frozenset({(ips[-1].src, tcp.srcport), (ips[-1].dst, tcp.dstport)})


def _moved(content: Sequence[Record], number: int) -> list[Record]:
    """Return the records with other addresses; what was right or wrong of checksums stays so."""
    networks = [f"192.0.2.0/24=198.18.{number}.0/24", f"10.77.0.0/24=198.19.{number}.0/24"]
    editor = Editor([text.ips([*networks, f"2001:db8::/64=2001:db8:{number:x}::/64"])])
    return [each._replace(data=editor.edit(each.data, each.link_type)) for each in content]


class Comparison(NamedTuple):
    """What tshark and rdmawire find of a file: the known differences by capture, and the others."""

    known: Counter[tuple[str, KnownDifference]]
    unexplained: list[str]


def compared(path: Path, names: Sequence[str] = ()) -> Comparison:
    """Compare all fields of each frame; ``names`` are the captures that merged frames are from."""
    known: Counter[tuple[str, KnownDifference]] = Counter()
    unexplained = []
    for (frame, mine), their in zip(
        own_values(path, FIELDS), tshark_values(path, FIELDS), strict=True
    ):
        capture = names[frame.number - 1] if names else path.name
        for name in sorted(differing(mine, their)):
            covering = [row for row in KNOWN_DIFFERENCES if row.covers(name, frame, capture)]
            known.update((capture, row) for row in covering[:1])
            if not covering:
                found = f"{mine.get(name)} here, {their.get(name)} in tshark"
                unexplained.append(f"{capture}: frame {frame.number}: {name}: {found[:300]}")
    return Comparison(known, unexplained)
