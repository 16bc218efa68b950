"""Text of fast-path frames, for many frames at once: the parts that a form of output is made of.

Frames with the same opcode on the same path have the same headers at the same offsets. Their text
is a sequence of :class:`Part`: constants, texts of bytes that few frames change (each different
value is written once), and numbers that change in every frame.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import groupby, repeat
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.fast_path import (
    LEAD,
    PADCNT,
    Bits,
    FastFrames,
    HeaderStack,
)
from rdmawire.columns.text_cells import encoded
from rdmawire.dissect import generated
from rdmawire.dissect.node import Derived, Extra, Node
from rdmawire.dissect.tree import ItemLayout, layouts
from rdmawire.units import SECOND, decimal_seconds
from rdmawire.wire.header import Header, Row
from rdmawire.wire.ib import AETH, BTH, ICRC, RETH, AtomicAckETH, AtomicETH, ImmDt
from rdmawire.wire.inet import UDP, IPv4
from rdmawire.wire.packet import LAYOUTS, Layout

MAX_TEXTS: Final = 4096
"""Texts of different values that a part of a text remembers at most."""


class Tail(NamedTuple):
    """What follows the headers of a frame: bytes of payload, and of its pad."""

    payload: int
    pad: int


T = TypeVar("T")


class OpcodeFrames:
    """Fast-path frames of one opcode on one path.

    ``numbers`` are their frame numbers, ``times`` ns since the epoch, ``first_ns`` is the time of
    the first frame of the file, ``streams`` are the numbers of their conversations, if needed.
    """

    def __init__(
        self,
        fast: FastFrames,
        numbers: NDArray[np.int64],
        times: NDArray[np.int64],
        first_ns: int,
        streams: Sequence[int] = (),
    ) -> None:
        self.fast = fast
        self.frames = fast.frames
        self.numbers = numbers
        self.times = times
        self.first_ns = first_ns
        self.streams = streams
        self.shape = FrameShape(fast.path, int(fast.packets.opcodes[0]))

    def __len__(self) -> int:
        return len(self.frames)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The UDP length of each frame in bytes, times four, plus its pad in bytes."""
        pads = PADCNT.read(self.frames, self.fast.path.bth)
        sizes: NDArray[np.int64] = self.fast.packets.lengths << 2 | pads
        return sizes

    @cached_property
    def tails(self) -> list[Tail]:
        """The lengths of payload and pad of each frame."""
        known = BoundedCache(self.shape.tail)
        return [known[size] for size in self.sizes.tolist()]

    @cached_property
    def payloads(self) -> list[bytes]:
        """The payloads, with their pads."""
        data, shape = self.fast.records.data, self.shape
        starts = self.fast.records.offsets + (LEAD + shape.payload)
        ends = self.fast.records.offsets + self.fast.icrc
        return [bytes(data[i:j]) for i, j in zip(starts.tolist(), ends.tolist(), strict=True)]

    @cached_property
    def icrcs(self) -> list[int]:
        """The ICRCs."""
        found: list[int] = self.fast.records.numbers(self.fast.icrc, ">u4").tolist()
        return found


class FrameShape:
    """The headers of the frames of one opcode on one path, with their offsets in bytes."""

    def __init__(self, path: HeaderStack, opcode: int) -> None:
        self.path = path
        self.opcode = opcode
        self.layout: Layout = LAYOUTS[opcode]
        tables: list[type[Header]] = [*path.bases, BTH, *self.layout.headers]
        self.headers: list[tuple[type[Header], int]] = []
        at = 0
        for table in tables:
            self.headers.append((table, at))
            at += table.SIZE
        self.payload = at
        """The offset of the payload."""

        self._overhead = at + ICRC.SIZE - path.bases[UDP]

    def icrc(self, tail: Tail) -> int:
        """Return the offset of the ICRC, in bytes."""
        return self.payload + tail.payload + tail.pad

    def tail(self, sizes: int) -> Tail:
        """Return the lengths of payload and pad, from a number of :attr:`OpcodeFrames.sizes`."""
        length, pad = sizes >> 2, sizes & 3
        return Tail(length - self._overhead - pad, pad)


class Part(Protocol):
    """A part of the text of frames."""

    def texts(self, some: OpcodeFrames) -> Iterable[str]:
        """Return the text of each frame."""


class Constant:
    """The same text for all frames."""

    def __init__(self, text: str) -> None:
        self.text = text

    def texts(self, some: OpcodeFrames) -> Iterable[str]:
        return repeat(self.text, len(some))


class BoundedCache(dict[Any, T]):
    """What ``write`` returns for each value, written at its first use.

    It begins again when it has :data:`MAX_TEXTS` values.
    """

    def __init__(self, write: Callable[[Any], T]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, value: Any) -> T:
        if len(self) >= MAX_TEXTS:
            self.clear()
        self[value] = text = self._write(value)
        return text


class BytesAt:
    """Bytes at some places of a frame: their offsets, ascending."""

    def __init__(self, places: Sequence[int]) -> None:
        self.length = len(places)
        self._places = LEAD + np.array(places)
        first, end = self._places[0], self._places[-1] + 1
        self._adjacent = slice(first, end) if end - first == self.length else None

    def of(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the bytes of each frame, a row for each."""
        if self._adjacent:
            return frames[:, self._adjacent]
        return np.take(frames, self._places, axis=1)

    def values(self, frames: NDArray[np.uint8]) -> list[bytes]:
        """Return the bytes of each frame as one object."""
        rows = np.ascontiguousarray(self.of(frames))
        found: list[bytes] = rows.view(f"V{self.length}").ravel().tolist()
        return found


class OfBytes:
    """A text that depends on bytes of a frame which few frames change: ``write`` gets them.

    ``places`` are their offsets in the frame, ascending.
    """

    def __init__(self, places: Sequence[int], write: Callable[[bytes], str]) -> None:
        self._bytes = BytesAt(places)
        self._texts = BoundedCache(write)

    def texts(self, some: OpcodeFrames) -> Iterable[str]:
        return map(self._texts.__getitem__, self._bytes.values(some.frames))


class OfTail:
    """A text that depends on the lengths of payload and pad."""

    def __init__(self, shape: FrameShape, write: Callable[[Tail], str]) -> None:
        self._texts = BoundedCache(lambda sizes: write(shape.tail(sizes)))

    def texts(self, some: OpcodeFrames) -> Iterable[str]:
        return map(self._texts.__getitem__, some.sizes.tolist())


class OfNumber:
    """A number that changes from frame to frame, written by ``write``.

    ``place`` is where it is in its header, which begins at byte ``base`` of the frame.
    """

    def __init__(self, place: Bits, base: int, write: Callable[[int], str]) -> None:
        self._place, self._base, self._write = place, base, write

    def texts(self, some: OpcodeFrames) -> Iterable[str]:
        return map(self._write, self._place.read(some.frames, self._base).tolist())


class OfFrames:
    """A text that a function makes for all frames."""

    def __init__(self, write: Callable[[OpcodeFrames], Iterable[str]]) -> None:
        self.texts = write


MARK: Final = 0x7E57
"""A placeholder for a number in a text. It is odd: no offset of an ICRC, all even, is like it."""


class PayloadText:
    """Writes the payload and the pad of frames of one shape, in hexadecimal.

    ``around`` returns the text before and after the digits of a field, the only one beside a node.
    At most ``max_bytes`` of a payload are written.
    """

    def __init__(
        self,
        shape: FrameShape,
        around: Callable[[Node, Derived], tuple[str, str]],
        max_bytes: int | None = None,
    ) -> None:
        self._at = shape.payload
        self._around = around
        self._shown = slice(max_bytes)
        self._constants = BoundedCache(self._constants_of)

    def _constants_of(self, tail: Tail) -> tuple[str, str, str, str]:
        """Return the texts before the payload, after it, before the pad, and after it."""
        at = self._at
        around = self._around(Node("payload", at, bytes(tail.payload)), generated.PAYLOAD)
        if not tail.pad:
            return *around, "", ""
        pad = Node("pad", at + tail.payload, bytes(tail.pad))
        return *around, *self._around(pad, generated.PAD)

    def texts(self, some: OpcodeFrames) -> Iterator[str]:
        """Yield the text of each frame; empty for one without payload."""
        for data, tail in zip(some.payloads, some.tails, strict=True):
            if not data:
                yield ""
                continue
            before, after, before_pad, after_pad = self._constants[tail]
            payload = data[: tail.payload][self._shown].hex()
            pad = data[tail.payload :].hex() if before_pad else ""
            yield f"{before}{payload}{after}{before_pad}{pad}{after_pad}"


def with_joined_constants(parts: Iterable[Part]) -> list[Part]:
    """Return parts without empty constants, and with adjacent constants as one."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, Constant):
            if found and isinstance(last := found[-1], Constant):
                found[-1] = Constant(last.text + part.text)
            elif part.text:
                found.append(part)
        else:
            found.append(part)
    return found


class TextRows:
    """The texts of the frames of a chunk, at their rows."""

    def __init__(self, rows: int) -> None:
        self._texts = np.full(rows, "", object)

    def put(self, rows: NDArray[np.int64], parts: Sequence[Part], some: OpcodeFrames) -> None:
        """Write frames at rows: the texts of parts one after the other."""
        columns = (part.texts(some) for part in parts)
        self._texts[rows] = list(map("".join, zip(*columns, strict=True)))

    def between(self, rows: slice) -> bytes:
        """Return the text of consecutive rows."""
        return encoded("".join(self._texts[rows].tolist()))


def seconds_texts(times: NDArray[np.int64]) -> Iterator[str]:
    """Write times (ns) as seconds with nine decimals."""
    if times.min(initial=0) < 0:
        return map(decimal_seconds, times.tolist())
    whole, rest = np.divmod(times, SECOND)
    return map("%d.%09d".__mod__, zip(whole.tolist(), rest.tolist(), strict=True))


_VARYING: Final[dict[type[Header], frozenset[str]]] = {
    IPv4: frozenset(("identification", "checksum")),
    BTH: frozenset(("psn",)),
    RETH: frozenset(("va",)),
    AtomicETH: frozenset(("va", "swapdt", "cmpdt")),
    AtomicAckETH: frozenset(("origremdt",)),
    AETH: frozenset(("msn",)),
    ImmDt: frozenset(("immdt",)),
    ICRC: frozenset(("crc",)),
}
"""Numbers that change from frame to frame: complete bytes, at most 64 bits, without words."""


class HeaderBytes(NamedTuple):
    """The bytes of a header: those of numbers that change from frame to frame, and the others.

    ``varying`` are these rows, ``places`` the offsets of the other bytes in the header.
    """

    table: type[Header]
    varying: tuple[Row, ...]
    places: tuple[int, ...]

    def header(self, others: bytes, **numbers: int) -> Any:
        """Return the header with these bytes at ``places``, and numbers in the varying rows."""
        return with_bytes(self.table, self.places, others).replace(**numbers)


@cache
def header_bytes(table: type[Header]) -> HeaderBytes:
    """Return where the bytes of a header are that change from frame to frame."""
    names = _VARYING.get(table, frozenset())
    varying = tuple(row for row in table.rows if row.name in names)
    inside = {at for row in varying for at in range(row.bit // 8, (row.bit + row.width) // 8)}
    places = tuple(at for at in range(table.SIZE) if at not in inside)
    return HeaderBytes(table, varying, places)


def known_extras(shape: FrameShape, table: type[Header]) -> tuple[Extra, ...]:
    """Return the fields beside a header that have the same value in all plain frames."""
    if table is IPv4:
        return (Extra(generated.IP_CHECKSUM_STATUS, generated.GOOD),)
    if table is UDP:
        absent = generated.NOT_PRESENT if shape.path.network is IPv4 else generated.ILLEGAL
        return (Extra(generated.UDP_CHECKSUM_STATUS, absent),)
    return (Extra(generated.ICRC_STATUS, generated.ICRC.good),) if table is ICRC else ()


class Segment(NamedTuple):
    """Consecutive rows of a header: one whose number changes from frame to frame, or others.

    ``places`` are the offsets of their bytes in the header, and of the rows that select what they
    mean; of a number that changes there are none.
    """

    rows: tuple[ItemLayout, ...]
    places: tuple[int, ...]


@cache
def segments(table: type[Header]) -> tuple[Segment, ...]:
    """Return the rows and groups of a header in order, in few parts."""
    names = {row.name for row in header_bytes(table).varying}
    found: list[Segment] = []
    for varies, group in groupby(layouts(table), lambda row: row.row.name in names):
        rows = tuple(group)
        parts = [(row,) for row in rows] if varies else [rows]
        found += [Segment(part, () if varies else places_of(table, part)) for part in parts]
    return tuple(found)


def places_of(table: type[Header], rows: Iterable[ItemLayout]) -> tuple[int, ...]:
    """Return the offsets of the bytes that rows, and what they mean, depend on."""
    by_name = {row.name: row for row in table.rows}
    wanted = [row.row for row in rows]
    selectors = [by_name[row.by] for row in wanted if isinstance(row, Row) and row.by]
    ends = ((row.bit, row.bit + row.width * getattr(row, "times", 1)) for row in wanted + selectors)
    return tuple(sorted({at for first, end in ends for at in range(first // 8, -(-end // 8))}))


def with_bytes(table: type[Header], places: Iterable[int], data: bytes) -> Any:
    """Return the header with ``data`` at ``places``, and 0 elsewhere."""
    every = bytearray(table.SIZE)
    for place, byte in zip(places, data, strict=True):
        every[place] = byte
    return table.parse(bytes(every))
