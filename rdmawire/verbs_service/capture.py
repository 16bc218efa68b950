"""Captures of live frames: a pcap or pcapng that other programs read while it is written."""

import os
from contextlib import suppress
from errno import ETIMEDOUT
from pathlib import Path
from select import POLLOUT, poll
from struct import Struct
from typing import Final

from rdmawire.capture import Interface, LinkType, Record
from rdmawire.capture.pcap import PcapBuilder
from rdmawire.capture.pcapng import PcapngBuilder
from rdmawire.live import epoch, now
from rdmawire.terminal import escape
from rdmawire.verbs_service.diagnostics import warn

_RECORD: Final = Struct("<IIII")
_BUFFER: Final = 1 << 18
"""Bytes of records that are buffered before they are written."""
_SECOND: Final = 1_000_000_000
_LITTLE_ENDIAN: Final = "<"
_READER_TIMEOUT: Final = 2 * _SECOND
"""Time (ns) that a reader of a FIFO has after :meth:`Capture.limit_wait`."""
_POLL_MS: Final = 100


class Capture:
    """Writes frames with times in ns to a file, or to a FIFO that a program reads.

    The format is pcapng for a name that ends in ``.pcapng``, else pcap. ``OSError`` if the file
    cannot be opened. A reader of a FIFO that goes away ends the capture, and so does a file that
    cannot be written: it then ends with the last frame that was written as a whole, and a line on
    standard error says so.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        os.set_blocking(self._file.fileno(), False)
        self._written = 0
        self._deadline: int | None = None
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
        if self._ended:
            return
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
        """Write buffered records to the file."""
        pending = self._builder.pending
        if pending and not self._ended:
            try:
                self._write(pending)
            except BrokenPipeError:
                self._ended = True
            except OSError as error:
                self._end(error)
        pending.clear()

    def _write(self, data: bytearray) -> None:
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                written = self._file.write(view[done:])
                if written is None:
                    self._wait_for_reader()
                else:
                    done += written
        self._written += len(data)

    def _wait_for_reader(self) -> None:
        """Wait until a pipe has room. ``TimeoutError`` after the deadline, if there is one."""
        room = poll()
        room.register(self._file, POLLOUT)
        while not room.poll(_POLL_MS):
            if self._deadline is not None and now() > self._deadline:
                raise TimeoutError(ETIMEDOUT, "its reader takes nothing")

    def limit_wait(self) -> None:
        """Wait for a slow reader 2 s at most from now on, since the service ends.

        A signal handler may call this.
        """
        self._deadline = now() + _READER_TIMEOUT

    def _end(self, error: OSError) -> None:
        """Remove the part of a frame that was written, and end the capture."""
        self._ended = True
        with suppress(OSError):  # only a regular file can be truncated
            self._file.truncate(self._written)
        warn(f"capture {escape(str(self._path))}: {error.strerror}: it ends here")

    def close(self) -> None:
        """Complete the file."""
        self.flush()
        self._file.close()
