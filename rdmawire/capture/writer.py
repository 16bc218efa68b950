"""Writing captures: :func:`create_capture` and what it gives."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Protocol, Self, TypeVar

from rdmawire.capture.compression import CHUNK, COMPRESSIONS, Encoder
from rdmawire.capture.pcap import MICRO, NANO, PcapBuilder
from rdmawire.capture.pcapng import PcapngBuilder
from rdmawire.capture.record import MAX_RECORD, Interface, LinkType, Record, RecordLayout
from rdmawire.capture.sink import Sink, open_sink
from rdmawire.capture.source import AnyPath, write_refusal
from rdmawire.errors import CaptureError

Choice = TypeVar("Choice")

_BUILDERS: dict[str, Callable[[str, Interface], "Builder"]] = {
    "pcap": PcapBuilder,
    "pcapng": PcapngBuilder,
}
_ORDERS = {"little": "<", "big": ">"}
_SUFFIXES = {compression.suffix: name for name, compression in COMPRESSIONS.items()}


class Builder(Protocol):
    """What builds the bytes of one file format."""

    format: str
    pending: bytearray
    interfaces: list[Interface]

    @property
    def record_layout(self) -> RecordLayout: ...

    def add(self, interface: Interface, /) -> int: ...

    def record(self, record: Record) -> None: ...


class Writer:
    """A capture being written; use it in a ``with`` statement.

    The file appears, whole, when the statement is left without an exception; otherwise what
    was there before stays. A stream gets the bytes as they come.
    """

    def __init__(self, sink: Sink, builder: Builder, encoder: Encoder | None, name: str) -> None:
        self._sink: Sink | None = sink
        self._builder = builder
        self._encoder = encoder
        self._failure = ""
        self.name = name
        self.format = builder.format

    @property
    def interfaces(self) -> Sequence[Interface]:
        """The interfaces declared so far."""
        return self._builder.interfaces

    def add_interface(self, interface: Interface) -> int:
        """Declare an interface in a pcapng; the number by which records name it."""
        self._opened()
        return self._builder.add(interface)

    def write(self, record: Record) -> None:
        """Write a record; :class:`CaptureError` naming a value that the file cannot hold.

        A record that is refused leaves no trace, and others can be written after it.
        """
        if self._sink is None:
            self._opened()
        self._builder.record(record)
        if len(self._builder.pending) >= CHUNK:
            self.flush()

    def built(self, record: Record) -> bytes:
        """The bytes that :meth:`write` would write for a record. They are not written.

        In a pcapng, its interface must have been declared.
        """
        pending = self._builder.pending
        before = len(pending)
        self._builder.record(record)
        data = bytes(pending[before:])
        del pending[before:]
        return data

    def write_built(self, data: bytes | memoryview) -> None:
        """Write whole records that were built before, by :meth:`built` or as it does.

        Nothing is checked. They are handed on at once, and may be changed when this returns.
        """
        self.flush()
        sink = self._opened()
        if self._encoder is not None:
            data = self._encoder.compress(bytes(data))
        self._put(sink, data)

    @property
    def record_layout(self) -> RecordLayout:
        """Where time and frame stand in what :meth:`built` gives."""
        return self._builder.record_layout

    def flush(self) -> None:
        """Hand on what was written, for who reads a stream at the other end.

        With compression, some of it may still be kept back.
        """
        sink = self._opened()
        data = bytes(self._builder.pending)
        self._builder.pending.clear()
        if self._encoder is not None:
            data = self._encoder.compress(data)
        self._put(sink, data)

    def close(self) -> None:
        """Complete the file and give it its name. Closing twice is no error."""
        if self._failure:
            raise CaptureError(f"{self.name}: was not written: {self._failure}")
        if self._sink is None:
            return
        try:
            self._finish(self._sink)
        except BaseException:
            self.discard()
            raise
        self._sink = None

    def _finish(self, sink: Sink) -> None:
        self.flush()
        if self._encoder is not None:
            self._put(sink, self._encoder.flush())
        try:
            sink.commit()
        except OSError as error:
            raise self._failed(error) from error

    def discard(self) -> None:
        """Give the file up: what was there before stays as it was."""
        if self._sink is not None:
            sink, self._sink = self._sink, None
            sink.discard()

    def _opened(self) -> Sink:
        if self._sink is None:
            raise CaptureError(f"{self.name}: {self._failure or 'is closed'}; nothing is written")
        return self._sink

    def _put(self, sink: Sink, data: bytes | memoryview) -> None:
        try:
            sink.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> CaptureError:
        """Give up, and say why."""
        self.discard()
        refusal = write_refusal(error, self.name)
        self._failure = refusal.reason.removeprefix(f"{self.name}: ")
        return refusal

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
    ``lz4`` or ``""``; left out, the suffixes of the path decide: ``.pcapng``, then ``.gz``,
    ``.xz``, ``.zst`` or ``.lz4``; with neither a plain pcap is written. Without
    ``nanoseconds`` times are rounded down to microseconds. ``snap_length`` is in bytes: no
    record may have more.

    A pcap holds records of one ``link_type``, left out: Ethernet, and does not say which
    interface they are of. A pcapng declares the
    ``interfaces`` given, or else one of this ``link_type`` if that is given, and adds others
    for records that need one; those count time as ``nanoseconds`` says.
    """
    usual = Interface(
        LinkType.ETHERNET if link_type is None else link_type,
        snap_length,
        resolution=NANO if nanoseconds else MICRO,
    )
    by_suffix, packing = _by_suffix(path)
    build = _choice("format", by_suffix if format is None else format, _BUILDERS)
    builder = build(_choice("byte_order", byte_order, _ORDERS), usual)
    if link_type is not None and not interfaces and not builder.interfaces:
        interfaces = [usual]
    for interface in interfaces:
        builder.add(interface)
    encoder = _encoder(packing if compression is None else compression)
    sink, name = open_sink(path)
    return Writer(sink, builder, encoder, name)


def format_named(path: AnyPath) -> str | None:
    """The format that a path's suffixes name, packed or not; ``None`` where they name none."""
    suffix = _unpacked(path).suffix.lower().removeprefix(".")
    return suffix if suffix in _BUILDERS else None


def _by_suffix(path: AnyPath) -> tuple[str, str]:
    """The format and the compression that the path asks for."""
    return format_named(path) or "pcap", _SUFFIXES.get(_named(path).suffix.lower(), "")


def _named(path: AnyPath) -> PurePath:
    return PurePath(os.fsdecode(path))


def _unpacked(path: AnyPath) -> PurePath:
    """A path without the suffix of a compression."""
    bare = _named(path)
    return bare.with_suffix("") if bare.suffix.lower() in _SUFFIXES else bare


def _encoder(compression: str) -> Encoder | None:
    if not compression:
        return None
    return _choice("compression", compression, COMPRESSIONS).codec().encoder()


def _choice(name: str, value: str, known: Mapping[str, Choice]) -> Choice:
    """What the value stands for; :class:`CaptureError` for a value that is not known."""
    if value not in known:
        raise CaptureError(f"{name}: {value!r} is not one of {', '.join(known)}")
    return known[value]
