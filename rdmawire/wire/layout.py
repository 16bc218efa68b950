"""Pieces of a buffer with their offsets: headers, and plain bytes between them.

A reader is a function that yields pieces from an offset on. Readers together give the layout of
a complete message: consecutive pieces without gap or overlap.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import (
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from rdmawire.errors import WireError
from rdmawire.wire.codec import found
from rdmawire.wire.header import Header

_Parts = TypeVar("_Parts", bound=NamedTuple)
_Head = TypeVar("_Head", bound=Header)
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")

Piece = Header | bytes
Placed = tuple[int, Piece]
Reader = Callable[[bytes, int], Iterator[Placed]]


def size(piece: Piece) -> int:
    """Size of a piece in bytes."""
    return len(piece) if isinstance(piece, bytes) else piece.SIZE


def joined(*pieces: Piece) -> bytes:
    """Concatenate consecutive pieces."""
    try:
        return b"".join(piece if isinstance(piece, bytes) else piece.build() for piece in pieces)
    except AttributeError:
        wrong = next(piece for piece in pieces if not isinstance(piece, Piece))
        raise WireError(f"a header or bytes belong here, found {found(wrong)}") from None


def replaced(value: _Parts, parts: Mapping[str, Any]) -> _Parts:
    """Return a copy of a named tuple with other parts; ``TypeError`` for an unknown part."""
    if unknown := sorted(parts.keys() - set(value._fields)):
        raise TypeError(f"{type(value).__name__} has no part {unknown[0]!r}")
    return value._replace(**parts)


def parts_as_declared(
    method: Callable[Concatenate[_Value, _Arguments], _Result],
) -> Callable[Concatenate[_Value, _Arguments], _Result]:
    """Make a method of a named tuple raise ``WireError`` naming a part of an undeclared type."""

    @wraps(method)
    def call(value: _Value, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(value, *args, **kwargs)
        except (AttributeError, TypeError):
            if error := _wrong_part(value):
                raise error from None
            raise

    return call


def _wrong_part(value: object) -> WireError | None:
    for name, kind in get_type_hints(type(value)).items():
        for part, allowed in _parts(getattr(value, name), kind):
            if not isinstance(part, allowed):
                what = " or ".join(one.__name__ for one in get_args(allowed) or (allowed,))
                return WireError(f"{type(value).__name__}.{name} takes {what}, found {found(part)}")
    return None


def _parts(part: object, kind: Any) -> Iterator[tuple[object, Any]]:
    """Yield the part with its type, or its members if it is declared as a tuple of one type."""
    if get_origin(kind) is not tuple:
        yield part, kind
    elif not isinstance(part, tuple):
        yield part, tuple
    else:
        yield from ((inner, get_args(kind)[0]) for inner in part)


def tables(*kinds: type[Header]) -> Reader:
    """Make a reader of consecutive headers of these tables."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        for kind in kinds:
            yield offset, kind.parse(buffer, offset)
            offset += kind.SIZE

    return read


def headed(table: type[_Head], rest: Callable[[_Head], Reader]) -> Reader:
    """Make a reader of one header, then of what ``rest`` selects by its values."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        head = table.parse(buffer, offset)
        yield offset, head
        yield from rest(head)(buffer, offset + table.SIZE)

    return read


def chain(*readers: Reader) -> Reader:
    """Make a reader that applies ``readers`` in order."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        for reader in readers:
            for at, piece in reader(buffer, offset):
                yield at, piece
                offset = at + size(piece)

    return read


def area(buffer: bytes, offset: int, length: int, reader: Reader) -> Iterator[Placed]:
    """Yield the pieces in ``length`` bytes at ``offset``, then the remaining bytes, plain.

    ``reader`` gets only bytes of the area. Raises :class:`WireError`, after the pieces found, if
    ``reader`` cannot continue or the buffer ends inside the area.
    """
    window = buffer[offset : offset + length]
    done = 0
    try:
        for at, piece in reader(window, 0):
            yield offset + at, piece
            done = at + size(piece)
    except WireError as error:
        raise WireError(error.reason, offset + (error.offset or 0)) from None
    if done < len(window):
        yield offset + done, bytes(window[done:])
    if len(window) < length:
        reason = f"{length} bytes belong here, {len(window)} are there"
        raise WireError(reason, offset + len(window))


def plain(buffer: bytes, offset: int) -> Iterator[Placed]:  # noqa: ARG001 - a reader
    """Yield all remaining bytes as one plain piece."""
    return iter(())
