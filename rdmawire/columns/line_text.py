"""The lines of ``rdmawire dissect`` for fast-path frames, as arrays of characters.

The parts of a line are like those of :mod:`rdmawire.columns.frame_text`, but make no object for
each frame. This is faster where many frames have the same opcode and their texts are short.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.fast_path import bits
from rdmawire.columns.frame_text import (
    MAX_TEXTS,
    BytesAt,
    FrameShape,
    OpcodeFrames,
    Tail,
    header_bytes,
)
from rdmawire.columns.text_cells import (
    Cells,
    Numbering,
    constant,
    encoded,
    formatted,
    from_rows,
    joined_cells,
    seconds_cells,
    side_by_side,
    text_of,
)
from rdmawire.dissect.dissection import (
    Others,
    addresses_of,
    ends_and_protocol,
    has_info,
    info_of,
    protocol_of,
)
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.show import byte_count

T = TypeVar("T")
Values = NDArray[np.uint8]
"""The bytes of a value in each row."""


class CellPart(Protocol):
    """A part of the text of frames."""

    def cells(self, some: OpcodeFrames) -> Cells:
        """Return the text of each frame."""


class CellConstant:
    """The same text for all frames."""

    def __init__(self, text: str) -> None:
        self._text = encoded(text)

    def cells(self, some: OpcodeFrames) -> Cells:
        return constant(self._text, len(some))


_SLOT_BITS: Final = 12
_FEW: Final = 64
"""Values with which the table begins: few others are then left for the dictionary."""
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples are spread over all 64-bit numbers."""

Words = NDArray[np.uint64]
"""The bytes of a value in each row, as 64-bit words."""


def _words(values: Values) -> Words:
    """Return the bytes of values as at least one word each, with zeros at the end."""
    count, length = values.shape
    padded = np.zeros((count, max(-(-length // 8), 1) * 8), np.uint8)
    padded[:, :length] = values
    return padded.view(np.uint64)


def _slots(words: Words) -> NDArray[np.uint64]:
    """Return the slot of each value: the highest bits of a hash."""
    found: NDArray[np.uint64] = words[:, 0] * _MULTIPLIER
    for place in range(1, words.shape[1]):
        found = (found ^ words[:, place]) * _MULTIPLIER
    return found >> np.uint64(64 - _SLOT_BITS)


class DistinctValues(Generic[T]):
    """Calls ``make`` once for each distinct value, and keeps the results in ``made``.

    Values are bytes, all of one length. When new values come, ``made`` is replaced by a new list,
    so a caller can see the change. It is emptied before a call if it has more than
    :data:`MAX_TEXTS` results.

    Values are looked up in a table, all at once: each has a slot there, which it may share with
    others. Those that are not in their slot are looked up in a dictionary.
    """

    def __init__(self, make: Callable[[bytes], T]) -> None:
        self._make = make
        self._numbers = Numbering()
        self._forget()

    def _forget(self) -> None:
        self._numbers.clear()
        self.made: list[T] = []
        self._words = np.zeros((0, 0), np.uint64)
        self._in_slot = np.zeros(1 << _SLOT_BITS, np.int64)

    def indices(self, values: Values) -> NDArray[np.int64]:
        """Return the index in ``made`` of each value; those of an earlier call are invalid."""
        if len(self.made) > MAX_TEXTS:
            self._forget()
        if not len(values):
            return np.zeros(0, np.int64)
        words = _words(values)
        if not self.made:
            self._look_up(values[:_FEW])
        found = self._in_slot[_slots(words)]
        others = np.flatnonzero((self._words[found] != words).any(axis=1))
        if len(others):
            found[others] = self._look_up(values[others])
        return found

    def _look_up(self, values: Values) -> NDArray[np.int64]:
        """Return the indices of values, which are known then."""
        length = values.shape[1]
        found = self._numbers.of([row.tobytes() for row in values])
        new = list(islice(self._numbers, len(self.made), None))
        if new:
            self.made = [*self.made, *map(self._make, new)]
            every = np.frombuffer(b"".join(self._numbers), np.uint8)
            self._words = _words(every.reshape(len(self.made), length))
            self._in_slot[_slots(self._words)] = np.arange(len(self.made))
        return found


class _TextsOfValues:
    """The texts of values that few frames change."""

    def __init__(self, write: Callable[[bytes], str]) -> None:
        self._values = DistinctValues(lambda value: encoded(write(value)))
        self._texts: list[bytes] = []
        self._table = from_rows([b""])

    def cells(self, values: Values) -> Cells:
        indices = self._values.indices(values)
        if self._texts is not self._values.made:
            self._texts = self._values.made
            self._table = from_rows(self._texts)
        if len(self._texts) == 1:
            return np.broadcast_to(self._table, (len(values), self._table.shape[1]))
        return self._table[indices]


class CellsOfBytes:
    """A text that depends on bytes of a frame which few frames change: ``write`` gets them.

    ``places`` are their offsets in the frame, ascending.
    """

    def __init__(self, places: Sequence[int], write: Callable[[bytes], str]) -> None:
        self._bytes = BytesAt(places)
        self._texts = _TextsOfValues(write)

    def cells(self, some: OpcodeFrames) -> Cells:
        return self._texts.cells(self._bytes.of(some.frames))


class CellsOfTail:
    """A text that depends on the lengths of payload and pad."""

    def __init__(self, shape: FrameShape, write: Callable[[Tail], str]) -> None:
        self._texts = _TextsOfValues(lambda sizes: write(shape.tail(int.from_bytes(sizes, "big"))))

    def cells(self, some: OpcodeFrames) -> Cells:
        return self._texts.cells(some.sizes.astype(">u4").view(np.uint8).reshape(-1, 4))


class CellsOfFrames:
    """A text that a function writes for all frames."""

    def __init__(self, write: Callable[[OpcodeFrames], Cells]) -> None:
        self.cells = write


class _Place(int):
    """A number that writes its place in a template, and its format, instead of itself."""

    def __format__(self, form: str) -> str:
        return f"\0{int(self)}\0{form or 'd'}\0"


class Template(NamedTuple):
    """A text with places for numbers: the texts around them, and the form of each number.

    The form is empty if the number is not written.
    """

    texts: list[bytes]
    forms: list[str]

    @classmethod
    def of(cls, text: str, count: int) -> "Template":
        """Return the template of a text with the places of some of ``count`` numbers."""
        parts = text.split("\0")
        found = cls([encoded(parts[0])] + count * [b""], count * [""])
        for index, form, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            found.forms[int(index)] = form
            found.texts[int(index) + 1] = encoded(after)
        return found


class _Templates:
    """Some templates as one: a text or a number in each cell."""

    def __init__(self, templates: list[Template]) -> None:
        self.templates = templates
        self._texts = [
            from_rows(texts) for texts in zip(*(each.texts for each in templates), strict=True)
        ]
        self._forms = [
            {form: np.array([each == form for each in forms]) for form in set(forms) if form}
            for forms in zip(*(each.forms for each in templates), strict=True)
        ]

    def cells(self, indices: NDArray[np.int64], numbers: Sequence[NDArray[Any]]) -> Cells:
        """Return the texts of the templates with these indices, with the numbers in them."""
        found = [self._texts[0][indices]]
        for forms, values, after in zip(self._forms, numbers, self._texts[1:], strict=True):
            for form, used in forms.items():
                cells = formatted(values, form)
                found.append(cells if used.all() else cells * used[indices][:, None])
            found.append(after[indices])
        return joined_cells(found)


class CellsOfHeader:
    """The text of a header at byte ``base`` of the frame.

    ``write`` is called once for each distinct value of the bytes that few frames change. The
    numbers in the other rows are placeholders (:class:`_Place`): ``write`` must format them with an
    f-string, in the order of their rows, and must not calculate with them.
    """

    def __init__(self, table: type[Header], base: int, write: Callable[[Any], str]) -> None:
        self._header = found = header_bytes(table)
        self._write = write
        self._numbers = [bits(row.bit, row.width) for row in found.varying]
        self._base = base
        self._bytes = BytesAt([base + at for at in found.places]) if found.places else None
        self._values = DistinctValues(self._template)
        self._templates = _Templates([])

    def _template(self, others: bytes) -> Template:
        places = {row.name: _Place(index) for index, row in enumerate(self._header.varying)}
        return Template.of(self._write(self._header.header(others, **places)), len(places))

    def cells(self, some: OpcodeFrames) -> Cells:
        others = self._bytes.of(some.frames) if self._bytes else some.frames[:, :0]
        indices = self._values.indices(others)
        if self._templates.templates is not self._values.made:
            self._templates = _Templates(self._values.made)
        numbers = [each.read(some.frames, self._base) for each in self._numbers]
        return self._templates.cells(indices, numbers)


class CellRows:
    """The texts of the frames of a chunk, at their rows."""

    def __init__(self, rows: int) -> None:
        self._count = rows
        self._groups: list[tuple[NDArray[np.int64], Cells]] = []
        self._cells: Cells | None = None

    def put(self, rows: NDArray[np.int64], parts: Sequence[CellPart], some: OpcodeFrames) -> None:
        """Write frames at rows: the texts of parts one after the other."""
        self._groups.append((rows, joined_cells([part.cells(some) for part in parts])))

    def between(self, rows: slice) -> bytes:
        """Return the text of consecutive rows."""
        if self._cells is None:
            self._cells = self._all_rows()
        return text_of(self._cells[rows])

    def _all_rows(self) -> Cells:
        width = max((cells.shape[1] for _, cells in self._groups), default=0)
        every = np.zeros((self._count, width), np.uint8)
        for rows, cells in self._groups:
            every[rows, : cells.shape[1]] = cells
        return every


def line_parts(shape: FrameShape) -> Iterable[CellPart]:
    """Return the parts of the line of frames with these headers."""
    headers = [table() for table, _ in shape.headers]
    others: Others = {type(header): header for header in headers} | {BTH: BTH(opcode=shape.opcode)}
    yield CellsOfFrames(_numbers_and_times)
    yield _ends(shape, protocol_of(headers))
    yield from _info_parts(shape, others)
    yield CellsOfTail(shape, _payload)
    yield CellConstant("\n")


def _info_parts(shape: FrameShape, others: Others) -> Iterable[CellPart]:
    """The texts of the headers; only those before the BTH may be empty."""
    before, after = "", ", "
    for table, base in shape.headers:
        if table is BTH:
            after = ""
        if has_info(table, others):
            yield CellsOfHeader(table, base, partial(_info, others, before, after))
        if table is BTH:
            before = ", "


def _info(others: Others, before: str, after: str, header: Header) -> str:
    text = info_of(header, others)
    return f"{before}{text}{after}" if text else ""


def _numbers_and_times(some: OpcodeFrames) -> Cells:
    numbers, times = formatted(some.numbers, "6d"), seconds_cells(some.times - some.first_ns, 13)
    return side_by_side(len(some), numbers, " ", times, " ")


def _ends(shape: FrameShape, protocol: str) -> CellPart:
    """The addresses of the innermost header that has some, and the protocol."""
    network, base = shape.path.network, shape.path.network_base
    rows = [row for row in network.rows if row.name in ("src", "dst")]
    first, size = rows[0].bit // 8, sum(row.width // 8 for row in rows)

    def written(data: bytes) -> str:
        half = len(data) // 2
        header = network(src=data[:half], dst=data[half:])
        return ends_and_protocol(*addresses_of([header]), protocol) + " "

    return CellsOfBytes(range(base + first, base + first + size), written)


def _payload(tail: Tail) -> str:
    if not tail.payload + tail.pad:
        return ""
    return f", {byte_count(tail.payload)}"
