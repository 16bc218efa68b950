"""Protocol buffers of Chakra's traces: as much of the wire format as they need.

A file has messages one after the other, each behind its length; the first one is the metadata of
the trace. Facts: ``et_def.proto`` of Chakra, and the encoding of protocol buffers: a field begins
with its number and its wire type in a varint.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from struct import Struct
from typing import Any, Final, NamedTuple

from rdmawire.errors import WorkloadError

MAX_BYTES: Final = 1 << 27
"""Bytes of a decompressed file."""
NODE_TYPES: Final = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
"""``NodeType``, in order."""
_GZIP: Final = b"\x1f\x8b"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}


class _Field(NamedTuple):
    """A field of a node: its key, and whether it is repeated."""

    key: str
    repeated: bool = False


_NODE: Final[Mapping[int, _Field]] = {
    1: _Field("id"),
    2: _Field("name"),
    3: _Field("type"),
    4: _Field("control", repeated=True),
    5: _Field("data", repeated=True),
    7: _Field("duration"),
    10: _Field("attr", repeated=True),
}
_ZIGZAG: Final = frozenset({15, 17})
_SIGNED: Final = frozenset({7, 9, 13})
"""Numbers of the fields of ``AttributeProto`` with signed values: sint, and int or uint."""
_FLOATS: Final = {3: Struct("<d"), 5: Struct("<f"), 23: Struct("<i"), 25: Struct("<q")}
_FIXED: Final = {19: Struct("<I"), 21: Struct("<Q")}
_TEXT: Final = 29
_BOOL: Final = 27


def read_messages(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    """Yield what each node of a file has, by its key.

    Raises :class:`WorkloadError` for what is no such file; ``source`` is its name.
    """
    if data[:2] == _GZIP:
        data = _unpacked(data, source)
    reader = _Reader(data, source)
    reader.message()  # the metadata
    while not reader.is_at_end:
        yield _node(reader.message())


def _unpacked(data: bytes, source: str) -> bytes:
    try:
        with gzip.open(BytesIO(data)) as file:
            found = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise WorkloadError(f"{source}: the compressed data is damaged: {error}") from None
    if len(found) > MAX_BYTES:
        raise WorkloadError(f"{source}: more than {MAX_BYTES} bytes when decompressed")
    return found


class _Reader:
    """Reads fields of a message; ``start`` is its place in the file."""

    def __init__(self, data: bytes | memoryview, source: str, start: int = 0) -> None:
        self._data = memoryview(data)
        self._source = source
        self._start = start
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def error(self, text: str) -> WorkloadError:
        place = self._start + self._at
        reason = f"as Chakra's protocol buffers, byte {place}: {text}"
        return WorkloadError(f"{self._source}: no known trace; {reason}")

    def varint(self) -> int:
        """Return a number of up to ten bytes, seven bits in each."""
        found = 0
        for shift in range(0, 70, 7):
            if self.is_at_end:
                raise self.error("a number is cut off")
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found & (1 << 64) - 1
        raise self.error("a number of more than ten bytes")

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        if size > len(self._data) - self._at:
            raise self.error(f"{size} bytes are expected, {len(self._data) - self._at} are left")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def message(self) -> "_Reader":
        """Return a reader of a message behind its length."""
        size = self.varint()
        start = self._start + self._at
        return _Reader(self.take(size), self._source, start)

    def fields(self) -> Iterator[tuple[int, "int | bytes | _Reader"]]:
        """Yield the number of each field, and a number, bytes, or a reader of what it contains."""
        while not self.is_at_end:
            key = self.varint()
            kind = key & 7
            if kind == _VARINT:
                yield key >> 3, self.varint()
            elif kind == _LENGTH:
                yield key >> 3, self.message()
            elif kind in _SIZES:
                yield key >> 3, bytes(self.take(_SIZES[kind]))
            else:
                raise self.error(f"wire type {kind}")

    def text(self) -> str:
        """Return the rest as a text."""
        return bytes(self._data).decode(errors="replace")

    def numbers(self) -> Iterator[int]:
        """Yield the rest as numbers: a packed field."""
        while not self.is_at_end:
            yield self.varint()


def _node(message: _Reader) -> dict[str, Any]:
    found: dict[str, Any] = {"id": 0, "attr": {}}
    for number, value in message.fields():
        field = _NODE.get(number)
        if field is None:
            continue
        if field.key == "attr":
            _add_attribute(found["attr"], value, message)
        elif field.key == "name":
            found["name"] = value.text() if isinstance(value, _Reader) else ""
        elif not field.repeated:
            found[field.key] = value
        else:
            numbers = value.numbers() if isinstance(value, _Reader) else [value]
            found.setdefault(field.key, []).extend(numbers)
    return found


def _add_attribute(
    attributes: dict[str, Any], value: "int | bytes | _Reader", message: _Reader
) -> None:
    """Add an attribute; lists are left out, since no attribute of interest is one."""
    if not isinstance(value, _Reader):
        raise message.error("an attribute is no message")
    name, found = "", None
    for number, part in value.fields():
        if number == 1 and isinstance(part, _Reader):
            name = part.text()
        elif (one := _value(number, part)) is not None:
            found = one
    if name and found is not None:
        attributes[name] = found


def _value(number: int, part: "int | bytes | _Reader") -> Any:
    """Return the value of an attribute from a field with this number."""
    if isinstance(part, _Reader):
        return part.text() if number == _TEXT else None
    if isinstance(part, bytes):
        code = _FLOATS.get(number) or _FIXED.get(number)
        return code.unpack(part)[0] if code and code.size == len(part) else None
    if number in _ZIGZAG:
        return part >> 1 ^ -(part & 1)
    if number in _SIGNED and part >> 63:
        return part - (1 << 64)
    return bool(part) if number == _BOOL else part
