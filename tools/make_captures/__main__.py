"""Make the generated captures and their manifests: ``python -m tools.make_captures [FOLDER]``.

The same bytes come out every time, on every machine; a test holds them against the manifests.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from rdmawire.capture import Interface, LinkType, Record, create_capture
from tools.make_captures.golden.pack import GOLDEN, Golden
from tools.make_captures.golden.played import EPOCH_NS, Placed, placed
from tools.make_captures.golden.sidecar import sidecar
from tools.make_captures.index import index
from tools.make_captures.pack import FAULTY, PACK, Capture

FOLDER = Path("captures")
_STEP_NS = 1_000_000
_NANOSECONDS = 1_000_000_000
_SAME = "byte for byte the same every time."


class Made(list[str]):
    """The manifest of a folder, line by line, while its captures are made."""

    def __init__(self, folder: Path, title: str) -> None:
        super().__init__((f"# {title}", ""))
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, frames: int, shows: str) -> None:
        """One more capture, which is there now."""
        digest = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
        self += [
            "[[capture]]",
            f"file = {json.dumps(name)}",
            f"frames = {frames}",
            f'sha256 = "{digest}"',
            'origin = "generated: make captures"',
            f"shows = {json.dumps(shows)}",
            "",
        ]
        click.echo(f"{self.folder.name}/{name}: {frames} frames")

    def write(self) -> None:
        """Put the manifest beside the captures."""
        (self.folder / "manifest.toml").write_text("\n".join(self))


def make_pack(captures: Sequence[Capture], folder: Path, title: str) -> None:
    """Write these captures and their manifest."""
    made = Made(folder, title)
    for capture in captures:
        made.add(capture.name, write(capture, folder), capture.shows)
    made.write()


def write(capture: Capture, folder: Path) -> int:
    """Write one capture, its frames a millisecond apart; how many there are."""
    link_type, most = capture.link_type, capture.snap_length
    records = (
        Record(frame[:most], EPOCH_NS + number * _STEP_NS, len(frame), link_type)
        for number, frame in enumerate(capture.frames())
    )
    path = folder / capture.name
    return _write(path, records, [Interface(link_type, most, resolution=_NANOSECONDS)])


def _write(path: Path, records: Iterable[Record], interfaces: Sequence[Interface]) -> int:
    """Write records of these interfaces; how many there are. A pcap has one interface."""
    first, several = interfaces[0], interfaces if path.suffix == ".pcapng" else ()
    with create_capture(
        path, link_type=first.link_type, snap_length=first.snap_length, interfaces=several
    ) as writer:
        count = 0
        for record in records:
            writer.write(record)
            count += 1
    return count


def make_golden(folder: Path) -> None:
    """Write the golden captures, what is said of each beside it, and their manifest."""
    made = Made(folder, f"Captures of the software RNIC that `make captures` makes, {_SAME}")
    for golden in GOLDEN:
        cases = list(placed(list(golden.cases())))
        made.add(golden.name, write_golden(golden, cases, folder), golden.shows)
        beside = (folder / golden.name).with_suffix(".json")
        beside.write_text(sidecar(golden.name, cases))
    made.write()


def write_golden(golden: Golden, cases: Sequence[Placed], folder: Path) -> int:
    """Write one golden capture, with the times of its world; how many frames there are."""
    found = dict.fromkeys(sent.link_type for case in cases for sent in case.played.sent)
    interfaces = [
        Interface(kind, name=LinkType(kind).name, resolution=_NANOSECONDS) for kind in found
    ]
    numbers = {kind: number for number, kind in enumerate(found)}
    return _write(folder / golden.name, _records(cases, numbers), interfaces)


def _records(cases: Sequence[Placed], interfaces: dict[int, int]) -> Iterator[Record]:
    for case in cases:
        for sent in case.played.sent:
            time, kind = EPOCH_NS + case.start + sent.time, sent.link_type
            yield Record(sent.frame, time, len(sent.frame), kind, interfaces[kind])


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=FOLDER)
def make(folder: Path) -> None:
    """Write all generated captures into FOLDER, and the index of what is in them."""
    make_pack(PACK, folder / "generated", f"Captures that `make captures` makes, {_SAME}")
    make_pack(FAULTY, folder / "faulty", f"Captures with something wrong in them, {_SAME}")
    make_golden(folder / "golden")
    (folder / "index.toml").write_text(index(folder))
    click.echo(f"{folder.name}/index.toml")


if __name__ == "__main__":
    make()
