"""Messages whose headers follow from one another: the pieces that a layout of the wire finds."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from construct import (
    Construct,
    Container,
    ListContainer,
    MappingError,
    SizeofError,
    stream_read_entire,
    stream_write,
)

from rdmawire.errors import WireError
from rdmawire.layers.construct.header import struct
from rdmawire.wire.header import Header
from rdmawire.wire.layout import Piece, Placed, size

Layout = Callable[[bytes], Iterator[Placed]]
_PLAIN = "bytes"


class Pieces(Construct):
    """A ``ListContainer`` of the pieces of a message, each with its ``name`` and its ``value``.

    ``layout`` is one of the wire's, ``tables`` are the headers that it may find. Plain bytes
    have the name ``bytes``; so have those at the end that the layout cannot make out.
    """

    def __init__(self, layout: Layout, *tables: type[Header]) -> None:
        super().__init__()
        self._layout = layout
        self._tables = {table.__name__: table for table in tables}

    def _parse(self, stream: Any, context: Any, path: str) -> ListContainer:  # noqa: ARG002
        return ListContainer(self._containers(stream_read_entire(stream, path)))

    def _containers(self, data: bytes) -> Iterator[Container]:
        end = 0
        with suppress(WireError):  # what it says of the bytes, their name says here
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
