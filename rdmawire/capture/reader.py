"""Reading captures: :func:`open_capture` and :class:`Reader`."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from rdmawire.capture import pcap, pcapng
from rdmawire.capture.compression import COMPRESSIONS, recognise
from rdmawire.capture.io import AnyPath, ChunkBuffer, InputFile, open_input
from rdmawire.capture.pcap import PcapParser
from rdmawire.capture.pcapng import PcapngParser
from rdmawire.capture.record import Interface, Record, RecordSpan

Parser = PcapParser | PcapngParser

_PARSERS: dict[bytes, Callable[[ChunkBuffer], Parser]] = {
    **dict.fromkeys(pcap.MAGICS, PcapParser),
    pcapng.MAGIC: PcapngParser,
}
# Files that are no captures: their first bytes, and what to do.
_OTHERS = {
    b"\xa1\xb2\xcd\x34": "a pcap as modified by Kuznetzov; convert it with editcap",
    b"\x34\xcd\xb2\xa1": "a pcap as modified by Kuznetzov; convert it with editcap",
    b"snoo": "a snoop capture; convert it with editcap",
    b"PK\3\4": "a zip archive; unpack it",
    b"BZh": "compressed with bzip2; unpack it",
}
_LONGEST_MAGIC = 6


class Reader:
    """A capture being read: an iterable of its records, and a context manager.

    Iterating again continues after the last record that was read. All complete records before
    damage are yielded, then :class:`~rdmawire.errors.CaptureError` is raised.
    """

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self.name = file.name
        self.compression, chunks = recognise(file.chunks(), file.name)
        self.parser = parser_of(ChunkBuffer(chunks, file.name))
        self.format = self.parser.format

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces; of a pcapng those declared so far, in all its sections."""
        return self.parser.interfaces

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self._file.position

    @property
    def size(self) -> int | None:
        """Bytes of the file, as it is stored; ``None`` for a pipe."""
        return self._file.size

    def __iter__(self) -> Iterator[Record]:
        self._file.check_open()
        return self.parser.records

    def spans(self) -> Iterator[RecordSpan]:
        """Yield each record as a buffer, and where in it its captured bytes start and end.

        This is faster than records. A buffer holds many records, and never changes.
        """
        self._file.check_open()
        return self.parser.spans

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_capture(path: AnyPath) -> Reader:
    """Open a capture, or that on standard input for the path ``-``.

    It is a pcap or pcapng file, also compressed with gzip, xz, zstd or lz4: its first bytes show
    which, whatever its name. Raises :class:`~rdmawire.errors.CaptureError` if the file is no
    capture or cannot be read.
    """
    file = open_input(path)
    try:
        return Reader(file)
    except BaseException:
        file.close()
        raise


def parser_of(file: ChunkBuffer) -> Parser:
    """Return the parser for a file, by its first bytes."""
    file.need(_LONGEST_MAGIC)
    magic = file.buffer[:4]
    if magic in _PARSERS:
        return _PARSERS[magic](file)
    if not magic:
        raise file.damage("is empty; a capture has at least a header")
    for compression in COMPRESSIONS.values():
        if file.buffer.startswith(compression.magics):
            raise file.damage(
                f"is compressed twice, inside with {compression.name}; decompress it once"
            )
    found = "its only bytes are" if len(magic) < 4 else "its first bytes are"
    advice = next((_OTHERS[first] for first in _OTHERS if magic.startswith(first)), _known())
    raise file.damage(f"is no capture: {found} {magic.hex(' ')}: {advice}")


def _known() -> str:
    """Return the formats that can be read, with their first bytes."""
    plain = ", ".join(magic.hex(" ") for magic in pcap.MAGICS)
    packed = ", ".join(f"{each.name} ({each.magics[0].hex(' ')})" for each in COMPRESSIONS.values())
    known = f"known are pcap ({plain}), pcapng ({pcapng.MAGIC.hex(' ')})"
    return f"{known}, and these compressed with {packed}"
