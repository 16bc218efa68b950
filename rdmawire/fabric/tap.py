"""Taps: what passes in a world, kept as a capture."""

from types import TracebackType
from typing import Self

from rdmawire.capture import LinkType, Record, create_capture
from rdmawire.capture.source import AnyPath


class CaptureTap:
    """Writes frames to a pcap or pcapng, by the path's suffix, with nanosecond times.

    Time 0 of the world is ``epoch``, in ns since 1970. Use it in a ``with`` statement: the file
    is whole when that is left.
    """

    def __init__(self, path: AnyPath, epoch: int = 0) -> None:
        self._writer = create_capture(path, link_type=LinkType.ETHERNET)
        self._epoch = epoch

    def __call__(self, frame: bytes, now: int) -> None:
        record = Record(frame, self._epoch + now, len(frame), LinkType.ETHERNET)
        self._writer.write(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, trace)
