"""Values that a parser finds, compared with the expected ones.

The error says which of them are expected, and where those are from.
"""

from typing import Any, Final

from rdmawire.errors import Copyable
from rdmawire.terminal import shorten

CODEC_NAME: Final = "the codec of rdmawire"
"""The words for what the codec finds in the same bytes."""
_MAX_BYTES: Final = 24
"""Bytes of a value in a message; of longer ones, those from the first difference on."""
_MAX_TEXT: Final = 180


class OtherValuesError(Copyable, AssertionError):
    """A parser found other values than the expected ones.

    ``about`` is what was parsed, ``where`` which one of several; ``found`` and ``expected`` are
    texts, and ``source`` says where the expected values are from.
    """

    def __init__(self, about: str, where: str, found: str, expected: str, source: str) -> None:
        place = f"{about} {where}".rstrip()
        self.about = about
        self.found = f"{place}: {found} (the parser)"
        self.expected = f"{place}: {expected} ({source})"
        super().__init__(f"expected {self.expected}, found {found}")


def check_values(
    about: str, found: object, expected: object, *, where: str = "", source: str = CODEC_NAME
) -> None:
    """Raise :class:`OtherValuesError` if values differ. ``None`` is the refusal of a parser."""
    if found != expected:
        raise OtherValuesError(about, where, *_texts(found, expected), source)


def _texts(found: Any, expected: Any) -> tuple[str, str]:
    """Return both values in words; of two records the fields that differ."""
    if hasattr(found, "_fields") and type(found) is type(expected):
        names = [name for name in found._fields if getattr(found, name) != getattr(expected, name)]
        pairs = [_texts(getattr(found, name), getattr(expected, name)) for name in names]
        one, other = zip(*pairs, strict=True)
        return _named(names, one), _named(names, other)
    if isinstance(found, bytes) and isinstance(expected, bytes):
        first = _first_difference(found, expected)
        return _bytes(found, first), _bytes(expected, first)
    return _text(found), _text(expected)


def _first_difference(one: bytes, other: bytes) -> int:
    """Return the index of the first byte that differs; the end of the shorter value if none."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _named(names: Any, texts: Any) -> str:
    pairs = zip(names, texts, strict=True)
    return shorten(", ".join(f"{name} {text}" for name, text in pairs), _MAX_TEXT)


def _text(value: Any) -> str:
    if value is None:
        return "refused"
    if hasattr(value, "_fields"):
        return _named(value._fields, map(_text, value))
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "none"
    return _bytes(value, 0) if isinstance(value, bytes) else str(value)


def _bytes(value: bytes, first: int) -> str:
    """Write bytes as digits; of many, their number and those from ``first`` on."""
    if len(value) <= _MAX_BYTES:
        return value.hex() or "empty"
    shown = value[first : first + _MAX_BYTES].hex()
    dots = "..." if first + _MAX_BYTES < len(value) else ""
    return f"{len(value)} bytes, from byte {first} on {shown or 'nothing'}{dots}"
