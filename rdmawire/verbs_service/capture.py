"""Captures of live frames: a pcap or pcapng that other programs read while it is written."""

from pathlib import Path
from struct import Struct
from typing import Final

from rdmawire.capture import Interface, LinkType, Record
from rdmawire.capture.pcap import PcapBuilder
from rdmawire.capture.pcapng import PcapngBuilder
from rdmawire.live import epoch

_RECORD: Final = Struct("<IIII")
_BUFFER: Final = 1 << 18
_SECOND: Final = 1_000_000_000
_LITTLE_ENDIAN: Final = "<"


class Capture:
    """Writes frames with times in ns to a file, or to a FIFO that a program reads.

    The format is pcapng for a name that ends in ``.pcapng``, else pcap. ``OSError`` if the file
    cannot be opened. A reader of a FIFO that goes away ends the capture.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        interface = Interface(name="verbs", resolution=_SECOND)
        self._builder: PcapBuilder | PcapngBuilder
        if path.suffix == ".pcapng":
            self._builder = PcapngBuilder(_LITTLE_ENDIAN, interface)
            self._builder.add(interface)
        else:
            self._builder = PcapBuilder(_LITTLE_ENDIAN, interface)
        self._epoch = epoch()
        self._ended = False

    def write(self, frames: list[bytes], time: int) -> None:
        """Write frames that were sent at ``time`` (ns)."""
        time += self._epoch
        pending = self._builder.pending
        if isinstance(self._builder, PcapBuilder):  # without checks: frames of devices fit
            seconds, rest = divmod(time, _SECOND)
            for frame in frames:
                length = len(frame)
                pending += _RECORD.pack(seconds, rest, length, length)
                pending += frame
        else:
            for frame in frames:
                self._builder.record(Record(frame, time, len(frame), LinkType.ETHERNET))
        if len(pending) >= _BUFFER:
            self.flush()

    def flush(self) -> None:
        """Pass on what was written."""
        pending = self._builder.pending
        if pending and not self._ended:
            try:
                with memoryview(pending) as view:
                    done = 0
                    while done < len(view):
                        done += self._file.write(view[done:]) or 0
            except BrokenPipeError:
                self._ended = True
        pending.clear()

    def close(self) -> None:
        """Complete the file."""
        self.flush()
        self._file.close()
