"""Structs of header tables, and the constructs of messages."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from functools import cache
from typing import Any, NoReturn

from construct import (
    Adapter,
    Array,
    BitsInteger,
    Bitwise,
    Bytes,
    Bytewise,
    Construct,
    Container,
    Default,
    Enum,
    Flag,
    ListContainer,
    MappingError,
    SizeofError,
    Struct,
    ValidationError,
    stream_read_entire,
    stream_write,
)

from rdmawire.errors import WireError
from rdmawire.terminal import suggest
from rdmawire.wire.header import Header, Row
from rdmawire.wire.layout import Piece, Placed, size
from rdmawire.wire.show import BOOL
from rdmawire.wire.tables import check_order


@cache
def struct(table: type[Header]) -> Construct:
    """Make a struct of the table: parses to a ``Container`` of its rows, builds from one or a dict.

    Numbers with an enum name become ``EnumIntegerString``, flags ``bool``; omitted rows keep the
    table's default. ``TypeError`` for a little-endian table.
    """
    check_order(table)
    fields = [row.name / Default(_field(row), _default(row)) for row in table.rows]
    return table.__name__ / Bitwise(Struct(*fields))


def number(value: Any, names: type[IntEnum]) -> int:
    """Convert a number that may be given by name; ``MappingError`` for an unknown name."""
    if not isinstance(value, str):
        return int(value)
    if value not in names.__members__:
        raise MappingError(f"{names.__name__} has no {value!r}{suggest(value, names.__members__)}")
    return names[value].value


def _field(row: Row) -> Construct:
    if row.is_bytes:
        return Bytewise(Bytes(row.width // 8))
    if row.times > 1:
        return Array(row.times, BitsInteger(row.width))
    if row.meaning.show is BOOL:
        return Flag
    number = BitsInteger(row.width)
    return Enum(number, row.meaning.enum) if row.meaning.enum else number


def _default(row: Row) -> Any:
    return list(row.default) if isinstance(row.default, tuple) else row.default


Layout = Callable[[bytes], Iterator[Placed]]
_PLAIN = "bytes"


class Pieces(Construct):
    """A ``ListContainer`` of the pieces of a message, each with its ``name`` and its ``value``.

    ``layout`` is a layout function of the wire, ``tables`` are the headers that it may yield. Plain
    bytes, also those at the end that the layout cannot parse, have the name ``bytes``.
    """

    def __init__(self, layout: Layout, *tables: type[Header]) -> None:
        super().__init__()
        self._layout = layout
        self._tables = {table.__name__: table for table in tables}

    def _parse(self, stream: Any, context: Any, path: str) -> ListContainer:  # noqa: ARG002
        return ListContainer(self._containers(stream_read_entire(stream, path)))

    def _containers(self, data: bytes) -> Iterator[Container]:
        end = 0
        with suppress(WireError):  # the piece's name describes the bytes
            for offset, piece in self._layout(data):
                yield _container(piece)
                end = offset + size(piece)
        if end < len(data):
            yield Container(name=_PLAIN, value=data[end:])

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:  # noqa: ARG002
        for piece in obj:
            data = self._bytes(piece["name"], piece["value"], path)
            stream_write(stream, data, len(data), path)
        return obj

    def _bytes(self, name: str, value: Any, path: str) -> bytes:
        if name == _PLAIN:
            return bytes(value)
        if name not in self._tables:
            raise MappingError(f"no header of this message is named {name!r}", path=path)
        built: bytes = struct(self._tables[name]).build(value)
        return built

    def _sizeof(self, context: Any, path: str) -> int:  # noqa: ARG002
        raise SizeofError("as long as what it is parsed from", path=path)


def _container(piece: Piece) -> Container:
    if isinstance(piece, bytes):
        return Container(name=_PLAIN, value=piece)
    return Container(name=type(piece).__name__, value=struct(type(piece)).parse(piece.build()))


class Completed(Adapter):
    """A struct that is built after ``complete`` filled in a container or dict."""

    def __init__(self, subcon: Construct, complete: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__(subcon)
        self._complete = complete

    def _decode(self, obj: Container, context: Any, path: str) -> Container:  # noqa: ARG002
        return obj

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ARG002
        try:
            return self._complete(obj)
        except WireError as error:
            raise ValidationError(str(error), path=path) from error


class Refused(Construct):
    """Refuses to parse or build; ``why`` returns the reason from the container so far."""

    def __init__(self, why: Callable[[Any], str]) -> None:
        super().__init__()
        self.flagbuildnone = True
        self._why = why

    def _parse(self, stream: Any, context: Any, path: str) -> NoReturn:  # noqa: ARG002
        raise ValidationError(self._why(context), path=path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> NoReturn:  # noqa: ARG002
        raise ValidationError(self._why(context), path=path)

    def _sizeof(self, context: Any, path: str) -> NoReturn:  # noqa: ARG002
        raise SizeofError("nothing stands here", path=path)
