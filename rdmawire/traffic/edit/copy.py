"""Captures edited: records go from one file to another, with their times and interfaces."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import chain
from pathlib import PurePath

from rdmawire.capture import LinkType, Reader, Record, Writer, create_capture, open_capture
from rdmawire.capture.interface import SECOND
from rdmawire.capture.source import AnyPath
from rdmawire.errors import CaptureError
from rdmawire.traffic.edit.editor import Editor
from rdmawire.wire.erf import ERF
from rdmawire.wire.serial import BITS_64

_HASH = 3
"""The option of a packet that holds a hash over it. draft-ietf-opsawg-pcapng, section 4.3."""
_TS = 8
"""Octets of the time that an extensible record begins with."""
_OFTEN = 512
"""Records from one report of progress to the next."""


class Fate(Enum):
    """What is to become of a record."""

    EDIT = "edit"
    LEAVE = "leave"
    DROP = "drop"


Choose = Callable[[Record], Fate]
"""Decides about the records of a capture, in their order."""


def edit_all(_: Reader) -> Choose:
    """Every record of a capture is edited."""
    return lambda _: Fate.EDIT


def edit_capture(
    source: AnyPath,
    target: AnyPath,
    editor: Editor,
    *,
    chooser: Callable[[Reader], Choose] = edit_all,
    shift_ns: int = 0,
    progress: Callable[[int], object] = lambda _: None,
) -> None:
    """Write what becomes of the records of a capture; ``-`` is standard input, or output.

    The new file has the format that its suffix asks for, or else that of the old one. It appears
    when it is complete, so it may take the old one's place. Times are ``shift_ns`` later.
    ``progress`` is told how many octets of the source have been read.

    A damaged capture is written up to the damage, unless it would take its own place; then comes
    the :class:`CaptureError` that says where it is damaged.
    """
    with open_capture(source) as reader:
        copy = _Copy(reader, editor, chooser(reader), shift_ns)
        with copy.writer(target) as writer:
            copy.write(writer, progress)
            if copy.damage and _same(source, target):
                raise copy.damage
        editor.tally.written = editor.tally.frames - editor.tally.dropped
    if copy.damage:
        raise copy.damage


def _same(source: AnyPath, target: AnyPath) -> bool:
    with suppress(OSError):  # where one of them is no file, they are not the same
        return os.path.samefile(source, target)
    return False


class _Copy:
    """One capture on its way into another. ``damage`` is why it ended early."""

    def __init__(self, reader: Reader, editor: Editor, choose: Choose, shift_ns: int) -> None:
        self.damage: CaptureError | None = None
        self._reader = reader
        self._editor = editor
        self._choose = choose
        self._shift_ns = shift_ns
        records = self._records()
        first = next(records, None)
        self._rest = records if first is None else chain([first], records)

    def _records(self) -> Iterator[Record]:
        """What can be read."""
        try:
            yield from self._reader
        except CaptureError as error:
            self.damage = error

    def writer(self, target: AnyPath) -> Writer:
        """What writes the new capture: like the old one, as far as its format can."""
        reader = self._reader
        format_ = _format(target) or reader.format
        if format_ == "pcapng":
            return create_capture(target, format=format_)
        if reader.format == "pcap":
            (only,) = reader.interfaces
            return create_capture(
                target,
                format=format_,
                link_type=only.link_type,
                nanoseconds=only.resolution == SECOND,
                snap_length=only.snap_length,
            )
        link_types = [each.link_type for each in reader.interfaces]
        return create_capture(target, format=format_, link_type=next(iter(link_types), None))

    def write(self, writer: Writer, progress: Callable[[int], object]) -> None:
        """Write what becomes of all records."""
        tally = self._editor.tally
        for count, record in enumerate(self._rest):
            if count % _OFTEN == 0:
                progress(self._reader.position)
            tally.frames += 1
            fate = self._choose(record)
            if fate is Fate.DROP:
                tally.dropped += 1
            else:
                self._declare(writer)
                edited = self._edited(record) if fate is Fate.EDIT else record
                writer.write(self._fitted(edited, writer))
        self._declare(writer)

    def _declare(self, writer: Writer) -> None:
        """Have the new file know all interfaces that the old one has named so far."""
        if writer.format == "pcapng":
            for interface in self._reader.interfaces[len(writer.interfaces) :]:
                writer.add_interface(interface)

    def _edited(self, record: Record) -> Record:
        data, time_ns, length, link_type, interface, options = record
        self._editor.tally.edited += 1
        new = self._editor.edit(data, link_type)
        if options and new is not data:
            options = tuple(option for option in options if option[0] != _HASH)
        return Record(new, time_ns, length, link_type, interface, options)

    def _fitted(self, record: Record, writer: Writer) -> Record:
        """The record at its new time, without what the new file has no place for."""
        if self._shift_ns:
            record = _later(record, self._shift_ns)
        if record.options and writer.format == "pcap":
            self._editor.tally.plain += 1
            record = record._replace(options=())
        return record


def _format(target: AnyPath) -> str | None:
    """The format that a name asks for."""
    suffixes = PurePath(os.fsdecode(target)).suffixes[-2:]
    named = (suffix.lower().removeprefix(".") for suffix in reversed(suffixes))
    return next((suffix for suffix in named if suffix in ("pcap", "pcapng")), None)


def _later(record: Record, shift_ns: int) -> Record:
    """A record with another time; extensible ones have it in their first octets as well."""
    data = record.data
    if record.link_type == LinkType.ERF and len(data) >= ERF.SIZE:
        # Seconds in the upper half, their fraction in the lower one.
        units = (abs(shift_ns) * (1 << 32) + SECOND // 2) // SECOND
        time = int.from_bytes(data[:_TS], "little")
        later = BITS_64.add(time, units if shift_ns > 0 else -units)
        data = later.to_bytes(_TS, "little") + data[_TS:]
    return record._replace(data=data, time_ns=record.time_ns + shift_ns)
