"""Make the generated captures and their manifest: ``python -m tools.make_captures [FOLDER]``.

The same octets come out every time, on every machine; a test holds them against the manifest.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from rdmawire.capture import Record, create_capture
from tools.make_captures.pack import FAULTY, PACK, Capture

FOLDER = Path("captures")
_START_NS = 1_700_000_000_000_000_000
_STEP_NS = 1_000_000


def write(capture: Capture, folder: Path) -> int:
    """Write one capture, its frames a millisecond apart; how many there are."""
    count, link_type, most = 0, capture.link_type, capture.snap_length
    with create_capture(folder / capture.name, link_type=link_type, snap_length=most) as writer:
        for count, frame in enumerate(capture.frames(), 1):
            time_ns = _START_NS + (count - 1) * _STEP_NS
            writer.write(Record(frame[:most], time_ns, len(frame), link_type))
    return count


def _entry(capture: Capture, folder: Path, frames: int) -> Iterator[str]:
    digest = hashlib.sha256((folder / capture.name).read_bytes()).hexdigest()
    yield "[[capture]]"
    yield f"file = {json.dumps(capture.name)}"
    yield f"frames = {frames}"
    yield f'sha256 = "{digest}"'
    yield 'origin = "generated: make captures"'
    yield f"shows = {json.dumps(capture.shows)}"
    yield ""


def make_pack(captures: Sequence[Capture], folder: Path, title: str) -> None:
    """Write these captures and their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {title}", ""]
    for capture in captures:
        frames = write(capture, folder)
        lines += _entry(capture, folder, frames)
        click.echo(f"{folder.name}/{capture.name}: {frames} frames")
    (folder / "manifest.toml").write_text("\n".join(lines))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=FOLDER)
def make(folder: Path) -> None:
    """Write all generated captures into FOLDER."""
    same = "octet for octet the same every time."
    make_pack(PACK, folder / "generated", f"Captures that `make captures` makes, {same}")
    make_pack(FAULTY, folder / "faulty", f"Captures with something wrong in them, {same}")


if __name__ == "__main__":
    make()
