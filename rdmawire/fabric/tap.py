"""Taps: what passes in a world, kept as a capture."""

from types import TracebackType
from typing import Final, Self

from rdmawire.capture import Interface, LinkType, Record, create_capture
from rdmawire.capture.source import AnyPath
from rdmawire.fabric.station import Tap

_NANOSECONDS: Final = 1_000_000_000


class CaptureTap:
    """Writes frames to a pcap or pcapng, by the path's suffix, with nanosecond times.

    Time 0 of the world is ``epoch``, in ns since 1970. Use it in a ``with`` statement: the file
    is whole when that is left. A frame longer than a capture can keep ends the run with a
    ``CaptureError``.
    """

    def __init__(self, path: AnyPath, epoch: int = 0) -> None:
        self._writer = create_capture(path, link_type=LinkType.ETHERNET)
        self._epoch = epoch

    def __call__(self, frame: bytes, now: int) -> None:
        self._keep(frame, now, 0)

    def point(self, name: str) -> Tap:
        """A tap of its own into the same file: in a pcapng, an interface with this name.

        A pcap does not say which interface a frame is of.
        """
        number = 0
        if self._writer.format == "pcapng":
            number = self._writer.add_interface(Interface(name=name, resolution=_NANOSECONDS))
        return lambda frame, now: self._keep(frame, now, number)

    def _keep(self, frame: bytes, now: int, interface: int) -> None:
        time = self._epoch + now
        self._writer.write(Record(frame, time, len(frame), LinkType.ETHERNET, interface))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, trace)
