"""Captures of live frames: a pcap or pcapng that other programs read while it is written."""

from pathlib import Path
from struct import Struct
from typing import Final

from rdmawire.live import epoch

_GLOBAL: Final = Struct("<IHHiIII")
_RECORD: Final = Struct("<IIII")
_NANOSECOND_MAGIC, _VERSION, _MAX_FRAME, _ETHERNET = 0xA1B23C4D, (2, 4), 1 << 18, 1
_BUFFER: Final = 1 << 18
_SECOND: Final = 1_000_000_000


class Capture:
    """Writes frames to a pcap with times in ns: a file, or a FIFO that a program reads.

    ``OSError`` if it cannot be opened. A reader of a FIFO that goes away ends the capture.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._buffer = bytearray(
            _GLOBAL.pack(_NANOSECOND_MAGIC, *_VERSION, 0, 0, _MAX_FRAME, _ETHERNET)
        )
        self._epoch = epoch()
        self._ended = False

    def write(self, frames: list[bytes], time: int) -> None:
        """Write frames that were sent at ``time`` (ns)."""
        seconds, rest = divmod(self._epoch + time, _SECOND)
        buffer, pack = self._buffer, _RECORD.pack
        for frame in frames:
            length = len(frame)
            buffer += pack(seconds, rest, length, length)
            buffer += frame
        if len(buffer) >= _BUFFER:
            self.flush()

    def flush(self) -> None:
        """Pass on what was written."""
        if self._buffer and not self._ended:
            try:
                view = memoryview(self._buffer)
                while view:
                    view = view[self._file.write(view) :]
            except BrokenPipeError:
                self._ended = True
        self._buffer = bytearray()

    def close(self) -> None:
        """Complete the file."""
        self.flush()
        self._file.close()
