"""Editing of captures: records are copied from one file to another with times and interfaces."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from itertools import chain, count, islice
from pathlib import PurePath
from typing import Final

from rdmawire.capture import LinkType, Reader, Record, Writer, create_capture, open_capture
from rdmawire.capture.io import AnyPath
from rdmawire.capture.record import Interface
from rdmawire.errors import CaptureError, UnrepresentableError
from rdmawire.traffic.edit.editor import EditCounts, Editor
from rdmawire.traffic.edit.iwarp import Finder, StreamEditor, has_business_inside
from rdmawire.traffic.edit.rules import EditError
from rdmawire.units import SECOND
from rdmawire.wire.erf import ERF
from rdmawire.wire.inet import VLAN, EtherType
from rdmawire.wire.serial import BITS_64

Change = Callable[[Record], Record]

_HASH: Final = 3
"""The option with a hash of a packet. draft-ietf-opsawg-pcapng, section 4.3."""
_TS: Final = 8
"""Bytes of the time at the start of an extensible record."""
_MACS: Final = 12
"""Bytes of an Ethernet header that precede its type."""
_TAGS: Final = frozenset(
    int(tag).to_bytes(2, "big") for tag in (EtherType.VLAN, EtherType.QINQ, EtherType.QINQ_OLD)
)

_UNTAGGABLE: Final = _TAGS | {EtherType.MAC_CONTROL.to_bytes(2, "big")}


def with_bytes(record: Record, new: bytes) -> Record:
    """Return the record with bytes ``new``; if they differ, without a hash of the old bytes."""
    data, time_ns, length, link_type, interface, options = record
    if options and new is not data:
        options = tuple(option for option in options if option[0] != _HASH)
    return tuple.__new__(Record, (new, time_ns, length, link_type, interface, options))


def later(shift_ns: int) -> Change:
    """Move the records of a capture ``shift_ns`` nanoseconds later, or earlier if it is negative.

    :class:`EditError` for a record that would be before 1970, the earliest time.
    """
    numbers = count(1)

    def change(record: Record) -> Record:
        number, time_ns = next(numbers), record.time_ns + shift_ns
        if time_ns < 0:
            at, less = _seconds(record.time_ns), _seconds(-shift_ns)
            raise EditError(
                f"frame {number} to write is at {at} s and cannot come {less} s earlier"
            )
        moved = record._replace(time_ns=time_ns)
        is_extensible = record.link_type == LinkType.ERF and len(record.data) >= ERF.SIZE
        return with_bytes(moved, _later(record.data, shift_ns)) if is_extensible else moved

    return change


def _seconds(time_ns: int) -> str:
    """Write nanoseconds as seconds, with the needed decimals."""
    return f"{Decimal(time_ns).scaleb(-9).normalize():f}"


def _later(data: bytes, shift_ns: int) -> bytes:
    """Shift the time at the start of an extensible record; zeros mean no time."""
    time = int.from_bytes(data[:_TS], "little")
    if not time:
        return data
    # Seconds in the upper half, the fraction in the lower half.
    units = (abs(shift_ns) * (1 << 32) + SECOND // 2) // SECOND
    moved = BITS_64.add(time, units if shift_ns > 0 else -units)
    return moved.to_bytes(_TS, "little") + data[_TS:]


def untagged(record: Record) -> Record:
    """Return the frame without VLAN tags. No checksum covers them."""
    if record.link_type != LinkType.ETHERNET:
        return record
    data, end = record.data, _MACS
    while data[end : end + 2] in _TAGS:
        end += VLAN.SIZE
    if end == _MACS:
        return record
    length = max(record.length - (end - _MACS), 0)
    return with_bytes(record._replace(length=length), data[:_MACS] + data[end:])


def tagged(vlan: int, priority: int = 0) -> Change:
    """Add an IEEE 802.1Q tag to untagged Ethernet frames, except PAUSE frames.

    The frames grow by four bytes.
    """
    tag = EtherType.VLAN.to_bytes(2, "big") + (priority << 13 | vlan).to_bytes(2, "big")

    def change(record: Record) -> Record:
        data = record.data
        kind = data[_MACS : _MACS + 2]
        if record.link_type != LinkType.ETHERNET or len(kind) < 2 or kind in _UNTAGGABLE:
            return record
        longer = record._replace(length=record.length + VLAN.SIZE)
        return with_bytes(longer, data[:_MACS] + tag + data[_MACS:])

    return change


_MAX_SNAP = 0xFFFF_FFFF
_OFTEN = 512
"""Records between two progress reports."""


class RecordAction(Enum):
    """What to do with a record."""

    EDIT = "edit"
    LEAVE = "leave"
    DROP = "drop"


_Chosen = tuple[int, Record, RecordAction]
"""The number of a record, the record, and what to do with it."""
_Edited = tuple[int, Record, Record]
"""The number of a record, the record, and the edited record."""

Choose = Callable[[Record], RecordAction]
"""Decides about the records of a capture, in their order."""


def edit_capture(
    source: AnyPath,
    target: AnyPath,
    editor: Editor,
    *,
    chooser: Callable[[Reader], Choose | None] = lambda _: None,
    finder: Finder | None = None,
    changes: Sequence[Change] = (),
    growth: int = 0,
    progress: Callable[[int], object] = lambda _: None,
) -> None:
    """Write the edited records of a capture; ``-`` is standard input or output.

    The new file has the format of its suffix, or else that of the old one. It appears when it is
    complete, so it may replace the old one. All records are edited unless ``chooser`` returns a
    function that decides otherwise, including FPDUs that a ``finder`` reports. ``changes`` are
    applied last, to all records; snap lengths grow by the same number of bytes as these may.
    ``progress`` is called with the number of source bytes read.

    A damaged capture is written up to the damage, unless it would replace itself; then
    :class:`CaptureError` with the position of the damage is raised.
    """
    counts = editor.counts
    with open_capture(source) as reader:
        copy = _Copy(reader, editor, chooser(reader), finder, growth)
        records = copy.records(progress)
        first = list(islice(records, 1))
        with copy.writer(target, first) as writer:
            copy.write(writer, chain(first, records), changes)
            if copy.damage and _same(source, target):
                raise copy.damage
        counts.written = counts.frames - counts.dropped
    if copy.damage:
        raise copy.damage


def _same(source: AnyPath, target: AnyPath) -> bool:
    with suppress(OSError):  # if one is not a file, they differ
        return os.path.samefile(source, target)
    return False


class _Copy:
    """The copy of one capture into another. ``damage`` is why the capture ended early."""

    def __init__(
        self,
        reader: Reader,
        editor: Editor,
        choose: Choose | None,
        finder: Finder | None,
        growth: int,
    ) -> None:
        self.damage: CaptureError | None = None
        self._reader = reader
        self._editor = editor
        self._choose = choose
        self._growth = growth
        self._streams: StreamEditor[_Chosen] | None = None
        if finder is not None and has_business_inside(editor.rules, editor.checksum_updater):
            self._streams = StreamEditor(editor, finder)
        readable = self._readable()
        first = next(readable, None)
        if first is None and self.damage is not None:
            raise self.damage
        self._rest = readable if first is None else chain([first], readable)

    def _readable(self) -> Iterator[Record]:
        """Yield the readable records."""
        try:
            yield from self._reader
        except CaptureError as error:
            self.damage = error

    def writer(self, target: AnyPath, first: Sequence[_Edited]) -> Writer:
        """Return the writer of the new capture: like the old one, as far as its format can.

        A pcap gets the link type of the ``first`` written record, if there is one.
        """
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
                snap_length=_grown(only, self._growth).snap_length,
            )
        link_types = [new.link_type for _, _, new in first]
        link_types += [each.link_type for each in reader.interfaces]
        return create_capture(target, format=format_, link_type=next(iter(link_types), None))

    def write(self, writer: Writer, records: Iterator[_Edited], changes: Sequence[Change]) -> None:
        """Write the edited records after applying ``changes``."""
        counts = self._editor.counts
        for number, old, new in records:
            for change in changes:
                new = change(new)  # noqa: PLW2901 - what becomes of it
            counts.changed += new.data is not old.data
            self._declare(writer)
            try:
                writer.write(_fitted(new, writer, counts) if new.options else new)
            except UnrepresentableError as error:
                raise _misplaced(error, self._reader.name, number, new, writer) from None
        self._declare(writer)

    def _declare(self, writer: Writer) -> None:
        """Declare all interfaces read so far in the new file."""
        if writer.format == "pcapng":
            for interface in self._reader.interfaces[len(writer.interfaces) :]:
                writer.add_interface(_grown(interface, self._growth))

    def records(self, progress: Callable[[int], object]) -> Iterator[_Edited]:
        """Yield all records that are not dropped, edited."""
        chosen = self._chosen(progress)
        if self._streams is not None:
            return self._through(self._streams, chosen)
        if self._choose is None:
            return ((number, record, self._edited(record)) for number, record, _ in chosen)
        return (
            (number, record, self._edited(record) if action is RecordAction.EDIT else record)
            for number, record, action in chosen
            if action is not RecordAction.DROP
        )

    def _chosen(self, progress: Callable[[int], object]) -> Iterator[_Chosen]:
        """Yield all records with what to do with them."""
        counts, choose, action = self._editor.counts, self._choose, RecordAction.EDIT
        for done, record in enumerate(self._rest):
            if done % _OFTEN == 0:
                progress(self._reader.position)
            counts.frames += 1
            if choose is not None:
                action = choose(record)
                counts.dropped += action is RecordAction.DROP
            yield counts.frames, record, action

    def _edited(self, record: Record) -> Record:
        return with_bytes(record, self._editor.edit(record.data, record.link_type))

    @staticmethod
    def _through(streams: StreamEditor[_Chosen], chosen: Iterator[_Chosen]) -> Iterator[_Edited]:
        """The same for records that may wait for others."""
        done = chain.from_iterable(
            streams.take(each, each[1].data, each[1].link_type, edit=each[2] is RecordAction.EDIT)
            for each in chosen
        )
        for (number, record, action), data in chain(done, streams.rest()):
            if action is not RecordAction.DROP:
                yield number, record, with_bytes(record, data)


def _grown(interface: Interface, growth: int) -> Interface:
    """Return the interface with its snap length increased by ``growth``; 0 means no limit."""
    most = interface.snap_length
    return replace(interface, snap_length=min(most + growth, _MAX_SNAP)) if most else interface


def _fitted(record: Record, writer: Writer, counts: EditCounts) -> Record:
    """Return the record without what the new format cannot hold."""
    if writer.format != "pcap":
        return record
    counts.plain += 1
    return record._replace(options=())


def _misplaced(
    error: UnrepresentableError, name: str, number: int, record: Record, writer: Writer
) -> CaptureError:
    """Return an error with the reason a record cannot be written, and its number."""
    reason = error.reason
    if writer.format == "pcap" and record.link_type != writer.interfaces[0].link_type:
        others = f"link type {writer.interfaces[0].link_type}"
        reason = f"link type {record.link_type} does not fit a pcap of {others}; write FILE.pcapng"
    return CaptureError(f"{name}: frame {number}: {reason}")


def _format(target: AnyPath) -> str | None:
    """Return the format of a file name."""
    suffixes = PurePath(os.fsdecode(target)).suffixes[-2:]
    named = (suffix.lower().removeprefix(".") for suffix in reversed(suffixes))
    return next((suffix for suffix in named if suffix in ("pcap", "pcapng")), None)
