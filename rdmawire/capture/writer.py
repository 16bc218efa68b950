"""Writing captures: :func:`create_capture` and :class:`Writer`."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from rdmawire.capture.compression import CHUNK, COMPRESSIONS, Encoder
from rdmawire.capture.io import AnyPath, OutputFile, open_output, write_error
from rdmawire.capture.pcap import MICRO, NANO, PcapBuilder
from rdmawire.capture.pcapng import PcapngBuilder
from rdmawire.capture.record import MAX_RECORD, Interface, LinkType, Record, RecordLayout
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from pathlib import PurePath

Choice = TypeVar("Choice")

Builder = PcapBuilder | PcapngBuilder
_BUILDERS: dict[str, Callable[[str, Interface], Builder]] = {
    "pcap": PcapBuilder,
    "pcapng": PcapngBuilder,
}
_ORDERS = {"little": "<", "big": ">"}
_SUFFIXES = {compression.suffix: name for name, compression in COMPRESSIONS.items()}


class Writer:
    """A capture being written; use it in a ``with`` statement.

    The file appears, complete, when the statement ends without an exception; otherwise an existing
    file stays as it was. A stream gets the bytes as they are written.
    """

    def __init__(self, output: OutputFile, builder: Builder, encoder: Encoder | None) -> None:
        self._output: OutputFile | None = output
        self._builder = builder
        self._encoder = encoder
        self._failure = ""
        self.name = output.name
        self.format = builder.format

    @property
    def interfaces(self) -> Sequence[Interface]:
        """The interfaces declared so far."""
        return self._builder.interfaces

    def add_interface(self, interface: Interface) -> int:
        """Declare an interface in a pcapng; return the number by which records name it.

        Raises :class:`~rdmawire.errors.CaptureError` for a pcap, and for an interface that a file
        cannot hold.
        """
        self._opened()
        return self._builder.add(interface)

    def write(self, record: Record) -> None:
        """Write a record.

        Raises :class:`~rdmawire.errors.CaptureError` naming a value that the file cannot hold;
        then the file is unchanged, and other records can be written.
        """
        if self._output is None:
            self._opened()
        self._builder.record(record)
        if len(self._builder.pending) >= CHUNK:
            self.flush()

    def built(self, record: Record) -> bytes:
        """Return the bytes that :meth:`write` would write for a record, without writing them.

        In a pcapng, its interface must have been declared.
        """
        pending = self._builder.pending
        before = len(pending)
        self._builder.record(record)
        data = bytes(pending[before:])
        del pending[before:]
        return data

    def write_built(self, data: bytes | memoryview) -> None:
        """Write complete records as :meth:`built` returns them, without any check.

        They are written at once: the buffer may be changed when this returns.
        """
        self.flush()
        self._put(data)

    @property
    def record_layout(self) -> RecordLayout:
        """Offsets of the time and the frame in the bytes that :meth:`built` returns."""
        return self._builder.record_layout

    def flush(self) -> None:
        """Pass on what was written, for the reader of a stream.

        With compression, some of it may still be held back.
        """
        self._opened()
        data = bytes(self._builder.pending)
        self._builder.pending.clear()
        self._put(data)

    def close(self) -> None:
        """Complete the file and give it its name. Closing twice is no error.

        Raises :class:`~rdmawire.errors.CaptureError` if the file could not be written.
        """
        if self._failure:
            raise CaptureError(f"{self.name}: was not written: {self._failure}")
        if self._output is None:
            return
        try:
            self.flush()
            with self._errors() as output:
                if self._encoder is not None:
                    output.write(self._encoder.flush())
                output.commit()
        except BaseException:
            self.discard()
            raise
        self._output = None

    def discard(self) -> None:
        """Discard the file: an existing file is unchanged."""
        if self._output is not None:
            output, self._output = self._output, None
            output.discard()

    def _opened(self) -> OutputFile:
        if self._output is None:
            raise CaptureError(f"{self.name}: {self._failure or 'is closed'}; nothing is written")
        return self._output

    def _put(self, data: bytes | memoryview) -> None:
        with self._errors() as output:
            output.write(data if self._encoder is None else self._encoder.compress(bytes(data)))

    @contextmanager
    def _errors(self) -> Iterator[OutputFile]:
        """Discard the file after an error of the system, and report the error."""
        try:
            yield self._opened()
        except OSError as error:
            self.discard()
            failure = write_error(error, self.name)
            self._failure = failure.reason.removeprefix(f"{self.name}: ")
            raise failure from error

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
            self.discard()


def create_capture(
    path: AnyPath,
    *,
    link_type: int | None = None,
    format: str | None = None,  # noqa: A002 - the word for it
    nanoseconds: bool = True,
    byte_order: str = "little",
    snap_length: int = MAX_RECORD,
    interfaces: Sequence[Interface] = (),
    compression: str | None = None,
) -> Writer:
    """Begin a capture file, or a stream to standard output for the path ``-``.

    ``format`` is ``pcap`` or ``pcapng`` and ``compression`` is ``gzip``, ``xz``, ``zstd``,
    ``lz4`` or ``""``; by default the suffixes of the path decide: ``.pcapng``, then ``.gz``,
    ``.xz``, ``.zst`` or ``.lz4``; without either a plain pcap is written. Times are rounded down
    to microseconds unless ``nanoseconds``. ``byte_order`` is ``little`` or ``big``.
    ``snap_length`` is in bytes: no record may have more.

    A pcap holds records of one ``link_type``, by default Ethernet, and does not say which
    interface they are of. A pcapng declares the ``interfaces``, or one with ``link_type`` if only
    that is given, and adds others for records that need one.

    Raises :class:`~rdmawire.errors.CaptureError` if the file cannot be written, or an argument is
    invalid.
    """
    default = Interface(
        LinkType.ETHERNET if link_type is None else link_type,
        snap_length,
        resolution=NANO if nanoseconds else MICRO,
    )
    builder = _choice(
        "format", format_named(path) or "pcap" if format is None else format, _BUILDERS
    )(_choice("byte_order", byte_order, _ORDERS), default)
    if link_type is not None and not interfaces and not builder.interfaces:
        interfaces = [default]
    for interface in interfaces:
        builder.add(interface)
    if compression is None:
        compression = _SUFFIXES.get(_suffix(path), "")
    codec = _choice("compression", compression, COMPRESSIONS).codec() if compression else None
    return Writer(open_output(path), builder, codec.encoder() if codec else None)


def format_named(path: AnyPath) -> str | None:
    """Return the format that a path's suffixes name, compressed or not; ``None`` for none."""
    plain = _pure(path)
    if _suffix(path) in _SUFFIXES:
        plain = plain.with_suffix("")
    suffix = plain.suffix.lower().removeprefix(".")
    return suffix if suffix in _BUILDERS else None


def _pure(path: AnyPath) -> "PurePath":
    """Return the path in its parts; pathlib is imported only for a capture that is written."""
    from pathlib import PurePath

    return PurePath(os.fsdecode(path))


def _suffix(path: AnyPath) -> str:
    return _pure(path).suffix.lower()


def _choice(name: str, value: str, known: Mapping[str, Choice]) -> Choice:
    """Return the meaning of a value; raises :class:`CaptureError` for an unknown one."""
    if value not in known:
        raise CaptureError(f"{name}: {value!r} is not one of {', '.join(known)}")
    return known[value]
