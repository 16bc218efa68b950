"""Taps: what passes in a world, kept as a capture."""

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from rdmawire.capture import Interface, LinkType, Record, create_capture
from rdmawire.capture.record import COMMENT, Options
from rdmawire.capture.source import STREAM, AnyPath
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.refusal import FabricError
from rdmawire.fabric.station import Tap

_NANOSECONDS: Final = 1_000_000_000


def remarks(words: Iterable[str]) -> Options:
    """Comments on a frame, from the words for what befell it on its link."""
    return tuple((COMMENT, f"{word} on the link".encode()) for word in words)


_Seen = tuple[int, int]
"""Which frame, on which of its links."""


def _of(frame: Envelope) -> _Seen:
    return frame.id, frame.hops


class CaptureTap:
    """Writes frames to a pcap or pcapng, by the path's suffix, with nanosecond times.

    The path ``-`` is standard output, which gets a pcapng, since only that has comments.

    Time 0 of the world is ``epoch``, in ns since 1970. Use it in a ``with`` statement, or
    ``close`` it: then the file is whole. A frame longer than a capture can keep ends the run with a
    ``CaptureError``.

    In a pcapng, frames have comments such as ``lost on the link`` where ``carried`` is among
    :attr:`rdmawire.fabric.link.Link.on_carried`.
    """

    def __init__(self, path: AnyPath, epoch: int = 0) -> None:
        by_name = None if os.fsdecode(path) != STREAM else "pcapng"
        self._writer = create_capture(path, format=by_name)
        self._epoch = epoch
        self._has_comments = self._writer.format == "pcapng"
        self._unnamed: int | None = None
        self._pending: list[tuple[_Seen, Record]] = []

    def __call__(self, frame: Envelope, now: int) -> None:
        self._keep(frame, now, self._interface())

    def point(self, name: str) -> Tap:
        """A tap of its own into the same file: in a pcapng, an interface with this name.

        A pcap does not say which interface a frame is of.
        """
        number = self._add(name) if self._has_comments else 0
        return lambda frame, now: self._keep(frame, now, number)

    def carried(self, frame: Envelope, words: Iterable[str]) -> None:
        """What befell the frame that the tap has just seen."""
        options = remarks(words)
        if options:
            self._pending = [
                (seen, record._replace(options=options) if seen == _of(frame) else record)
                for seen, record in self._pending
            ]
        self._settle()

    def __deepcopy__(self, _: object) -> Self:
        """``FabricError``: two worlds cannot write one file."""
        raise FabricError("a world that is being captured cannot be copied: remove the tap first")

    def _interface(self) -> int:
        """That of frames that are of no point with a name."""
        if self._unnamed is None:
            self._unnamed = self._add("") if self._has_comments else 0
        return self._unnamed

    def _add(self, name: str) -> int:
        return self._writer.add_interface(Interface(name=name, resolution=_NANOSECONDS))

    def _keep(self, frame: Envelope, now: int, interface: int) -> None:
        """Write a frame; where it may get comments, once it is clear what befalls it."""
        time = self._epoch + now
        record = Record(frame.data, time, len(frame.data), LinkType.ETHERNET, interface)
        if not self._has_comments:
            self._writer.write(record)
            return
        if self._pending and self._pending[-1][0] != _of(frame):
            self._settle()
        self._pending.append((_of(frame), record))

    def _settle(self) -> None:
        for _, record in self._pending:
            self._writer.write(record)
        self._pending.clear()

    def _finish(self) -> None:
        self._settle()
        if not self._writer.interfaces:
            self._interface()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._writer.discard()

    def close(self) -> None:
        """Complete the file, as leaving the statement does; ``CaptureError`` if it cannot be."""
        with self._writer:
            self._finish()
