"""Reading captures: :func:`open_capture` and what it gives."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from rdmawire.capture import pcap, pcapng
from rdmawire.capture.compression import COMPRESSIONS, recognised
from rdmawire.capture.pcap import PcapParser
from rdmawire.capture.pcapng import PcapngParser
from rdmawire.capture.record import Interface, Record, Span
from rdmawire.capture.source import AnyPath, BytesLike, Source, open_source


class Parser(Protocol):
    """What reads one file format; both iterators go forward through the same file, once."""

    format: str
    interfaces: list[Interface]
    spans: Iterator[Span]
    records: Iterator[Record]


_PARSERS: dict[bytes, Callable[[BytesLike], Parser]] = {
    **dict.fromkeys(pcap.MAGICS, PcapParser),
    pcapng.MAGIC: PcapngParser,
}
# What is met instead of a capture, by its first bytes, and what to do about it.
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

    What has been read is not given again: iterating once more goes on where it was left. All
    complete records that stand before damage are given, then comes a :class:`CaptureError`,
    and after it nothing more.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.compression, chunks = recognised(source.chunks(), source.name)
        self._parser = _parser(BytesLike(chunks, source.name))
        self.format = self._parser.format

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces; of a pcapng those that have been met so far, in all its sections."""
        return self._parser.interfaces

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self._source.position

    @property
    def size(self) -> int | None:
        """Bytes of the file, as it is stored; ``None`` for a pipe."""
        return self._source.size

    def __iter__(self) -> Iterator[Record]:
        self._source.check_open()
        return self._parser.records

    def spans(self) -> Iterator[Span]:
        """The fast way: each record as a buffer and where its captured bytes start and end.

        A buffer holds many records, and never changes.
        """
        self._source.check_open()
        return self._parser.spans

    def close(self) -> None:
        """Read no more."""
        self._source.close()

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
    """The capture of this name, or that on standard input for the path ``-``.

    A pcap or pcapng file, as it is or compressed with gzip, xz, zstd or lz4; its bytes tell
    which, its name does not matter. :class:`CaptureError` if it is none or cannot be read.
    """
    source = open_source(path)
    try:
        return Reader(source)
    except BaseException:
        source.close()
        raise


def _parser(data: BytesLike) -> Parser:
    """What reads a file that begins with these bytes."""
    data.need(_LONGEST_MAGIC)
    magic = data.buffer[:4]
    if magic in _PARSERS:
        return _PARSERS[magic](data)
    if not magic:
        raise data.damage("is empty; a capture has at least a header")
    for packed in COMPRESSIONS.values():
        if data.buffer.startswith(packed.magics):
            raise data.damage(f"is packed twice, inside with {packed.name}; unpack it once")
    found = "its only bytes are" if len(magic) < 4 else "its first bytes are"
    advice = next((_OTHERS[first] for first in _OTHERS if magic.startswith(first)), _known())
    raise data.damage(f"is no capture: {found} {magic.hex(' ')}: {advice}")


def _known() -> str:
    """The formats that can be read, with their first bytes."""
    plain = ", ".join(magic.hex(" ") for magic in pcap.MAGICS)
    packed = ", ".join(f"{each.name} ({each.magics[0].hex(' ')})" for each in COMPRESSIONS.values())
    known = f"known are pcap ({plain}), pcapng ({pcapng.MAGIC.hex(' ')})"
    return f"{known}, and these packed with {packed}"
