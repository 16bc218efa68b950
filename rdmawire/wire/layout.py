"""Pieces of a buffer, each with its offset: header tables, and plain octets where none stands.

A reader is a function that finds pieces from an offset on. Readers put together give the layout
of a whole message; whatever they find, the pieces follow one another without gap or overlap.
"""

from collections.abc import Callable, Iterator

from rdmawire.errors import WireError
from rdmawire.wire.header import Header

Piece = Header | bytes
Placed = tuple[int, Piece]
Reader = Callable[[bytes, int], Iterator[Placed]]


def size(piece: Piece) -> int:
    """Octets that a piece takes."""
    return len(piece) if isinstance(piece, bytes) else piece.SIZE


def joined(*pieces: Piece) -> bytes:
    """The octets of pieces that stand one behind the other."""
    return b"".join(piece if isinstance(piece, bytes) else piece.build() for piece in pieces)


def tables(*kinds: type[Header]) -> Reader:
    """A reader of these tables, standing one behind the other."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        for kind in kinds:
            yield offset, kind.parse(buffer, offset)
            offset += kind.SIZE

    return read


def chain(*readers: Reader) -> Reader:
    """A reader of what these find, one behind the other."""

    def read(buffer: bytes, offset: int) -> Iterator[Placed]:
        for reader in readers:
            for at, piece in reader(buffer, offset):
                yield at, piece
                offset = at + size(piece)

    return read


def area(buffer: bytes, offset: int, length: int, reader: Reader) -> Iterator[Placed]:
    """What ``reader`` finds in ``length`` octets at ``offset``, then the rest of them, plain.

    The reader sees no octet outside the area. :class:`WireError`, after what is there, where it
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
        reason = f"{length} octets belong here, {len(window)} are there"
        raise WireError(reason, offset + len(window))


def plain(buffer: bytes, offset: int) -> Iterator[Placed]:  # noqa: ARG001 - a reader
    """The reader that knows no table."""
    return iter(())
