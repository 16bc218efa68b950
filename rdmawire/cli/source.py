"""The frames of a capture, with progress on standard error where it takes long."""

from collections.abc import Iterable, Iterator

from rdmawire.analysis.dissector import Dissector
from rdmawire.analysis.node import Dissection
from rdmawire.capture import Reader
from rdmawire.cli.progress import bar

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
    with bar(reader.name, reader.size or 0) as done:
        for count, frame in enumerate(frames):
            if count % _FRAMES_PER_UPDATE == 0:
                done(reader.position)
            yield frame
