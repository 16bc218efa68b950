"""Pieces of a buffer, each with its offset: header tables, and plain bytes between them.

A reader is a function that finds pieces from an offset on. Readers together give the layout of a
complete message: the pieces follow one another without gap or overlap.
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
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")

Piece = Header | bytes
Placed = tuple[int, Piece]
Reader = Callable[[bytes, int], Iterator[Placed]]


def size(piece: Piece) -> int:
    """Bytes that a piece takes."""
    return len(piece) if isinstance(piece, bytes) else piece.SIZE


def joined(*pieces: Piece) -> bytes:
    """The bytes of consecutive pieces."""
    try:
        return b"".join(piece if isinstance(piece, bytes) else piece.build() for piece in pieces)
    except AttributeError:
        wrong = next(piece for piece in pieces if not isinstance(piece, Piece))
        raise WireError(f"a header or bytes belong here, found {found(wrong)}") from None


def replaced(value: _Parts, parts: Mapping[str, Any]) -> _Parts:
    """A copy of a named tuple with other parts; ``TypeError`` for one that it does not have."""
    if unknown := sorted(parts.keys() - set(value._fields)):
        raise TypeError(f"{type(value).__name__} has no part {unknown[0]!r}")
    return value._replace(**parts)


def parts_as_declared(
    method: Callable[Concatenate[_Value, _Arguments], _Result],
) -> Callable[Concatenate[_Value, _Arguments], _Result]:
    """For methods of named tuples: a part that is not as declared is a ``WireError`` naming it."""

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
    """The part with its kind; what is in it, where it is declared as a tuple of one kind."""
    if get_origin(kind) is not tuple:
        yield part, kind
    elif not isinstance(part, tuple):
        yield part, tuple
    else:
        yield from ((inner, get_args(kind)[0]) for inner in part)


def tables(*kinds: type[Header]) -> Reader:
    """A reader of consecutive headers of these tables."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        for kind in kinds:
            yield offset, kind.parse(buffer, offset)
            offset += kind.SIZE

    return read


def chain(*readers: Reader) -> Reader:
    """A reader that applies these readers in turn."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        for reader in readers:
            for at, piece in reader(buffer, offset):
                yield at, piece
                offset = at + size(piece)

    return read


def area(buffer: bytes, offset: int, length: int, reader: Reader) -> Iterator[Placed]:
    """What ``reader`` finds in ``length`` bytes at ``offset``, then the rest of them, plain.

    The reader sees no byte outside the area. :class:`WireError`, after what is there, where it
    cannot go on or the buffer ends before the area.
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
    """The reader that knows no table."""
    return iter(())
