"""The frames of a capture, with progress on standard error where it takes long."""

import sys
from collections.abc import Iterable, Iterator

from rdmawire.analysis.dissector import Dissector
from rdmawire.analysis.node import Dissection
from rdmawire.capture import Reader

_LONG = 8 << 20
"""Octets of a file that are worth a progress bar."""
_FRAMES_PER_UPDATE = 512


def dissected(reader: Reader, ports: Iterable[int], *, progress: bool) -> Iterator[Dissection]:
    """The frames of one capture; ``progress`` draws a bar on standard error for long files."""
    frames = Dissector(ports).capture(reader)
    if progress and (reader.size or 0) >= _LONG:
        return _with_progress(frames, reader)
    return frames


def _with_progress(frames: Iterator[Dissection], reader: Reader) -> Iterator[Dissection]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(escape(reader.name), total=reader.size)
        for count, frame in enumerate(frames):
            if count % _FRAMES_PER_UPDATE == 0:
                bar.update(task, completed=reader.position)
            yield frame
