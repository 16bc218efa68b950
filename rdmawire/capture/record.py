"""A record: one frame as a capture file keeps it."""

from typing import NamedTuple

from rdmawire.capture.option import COMMENT, Options

Span = tuple[bytes, int, int]
"""A buffer, and where in it the captured octets of a record start and end."""


class Record(NamedTuple):
    """One frame of a capture.

    ``data`` are the captured octets, ``length`` is how many there were on the wire (Wireshark:
    ``frame.cap_len`` and ``frame.len``); a file may say that it captured more than there were.
    ``time_ns`` are nanoseconds since 1970-01-01 UTC, rounded down where the file counts finer;
    0 where it gives none, as in simple packets of pcapng. ``interface`` is an index into
    ``interfaces`` of the reader. ``options`` are pcapng's, as number and value; numbers in the
    values are little-endian whichever byte order the file has.
    """

    data: bytes
    time_ns: int
    length: int
    link_type: int
    interface: int = 0
    options: Options = ()

    @property
    def comments(self) -> tuple[str, ...]:
        """The comments among the options; octets that are no UTF-8 are replaced."""
        return tuple(
            text.decode(errors="replace") for code, text in self.options if code == COMMENT
        )


class RecordLayout(NamedTuple):
    """Where things stand in the octets of a built record.

    A time is two words of four octets, by NumPy's name ``<u4`` or ``>u4``: how many ``unit`` of
    ticks, and the ticks that are left. ``time`` is where they begin, ``data`` where the frame does.
    """

    word: str
    time: int
    unit: int
    data: int
