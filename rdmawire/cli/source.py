"""Captures from the command line: their frames dissected, with progress where it takes long."""

import sys
from collections.abc import Iterable, Iterator

from rdmawire.analysis.dissect import Dissector
from rdmawire.analysis.node import Dissection
from rdmawire.analysis.steps import LINK_STEPS
from rdmawire.capture import LinkType, Reader, open_capture
from rdmawire.errors import CaptureError

_LONG = 8 << 20
"""Octets of a file that are worth a progress bar."""
_FRAMES_PER_UPDATE = 512


def dissected(path: str, ports: Iterable[int], *, progress: bool) -> Iterator[Dissection]:
    """The frames of one capture; ``progress`` draws a bar on standard error for long files."""
    with open_capture(path) as reader:
        _check_link_type(reader)
        frames = _frames(reader, Dissector(ports))
        if progress and (reader.size or 0) >= _LONG:
            frames = _with_progress(frames, reader)
        yield from frames


def _check_link_type(reader: Reader) -> None:
    """A pcap has one link type, which says how its frames begin; refuse one we do not know."""
    for interface in reader.interfaces:
        if interface.link_type not in LINK_STEPS:
            known = ", ".join(f"{_name(number)} ({number})" for number in sorted(LINK_STEPS))
            raise CaptureError(
                f"{reader.name}: link type {interface.link_type} is not known; known are {known}"
            )


def _name(number: int) -> str:
    return LinkType(number).name if number in set(LinkType) else "RAW"


def _frames(reader: Reader, dissector: Dissector) -> Iterator[Dissection]:
    numbered = reader.format == "pcapng"
    for record in reader:
        frame = dissector.dissect(
            record.data,
            link_type=record.link_type,
            time_ns=record.time_ns,
            length=record.length,
        )
        if numbered:
            frame.interface = record.interface
            frame.comments = record.comments
        yield frame


def _with_progress(frames: Iterator[Dissection], reader: Reader) -> Iterator[Dissection]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(reader.name, total=reader.size)
        for count, frame in enumerate(frames):
            if count % _FRAMES_PER_UPDATE == 0:
                bar.update(task, completed=reader.position)
            yield frame
