"""Text of many rows as arrays of characters, cell by cell.

A cell has the same width in all rows; characters that a row does not use are 0. So numbers become
digits by array operations, and the lines of many rows are all characters but the zeros.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rdmawire.units import SECOND, decimal_seconds

Cells = NDArray[np.uint8]
"""The characters of a cell in each row, of shape ``(rows, width)``; 0 is no character."""

_GROUP: Final = 10_000
"""Decimal digits are written in groups of four: a table has the digits of each group."""


def _group_table(texts: Iterable[str]) -> NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode(), np.uint32)


_WITH_ZEROS: Final = _group_table(map("{:04d}".format, range(_GROUP)))
_LAST: Final = _group_table(str(group).rjust(4, "\0") for group in range(_GROUP))
_FIRST: Final = np.where(np.arange(_GROUP) > 0, _LAST, np.uint32(0))
_HEX_PAIRS: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


_SPACE: Final = np.uint8(ord(" "))


def encoded(text: str) -> bytes:
    """Return a text in UTF-8; characters that it has no code for are escaped."""
    return text.encode("utf-8", "backslashreplace")


def constant(text: bytes, rows: int) -> Cells:
    """Return the same text for each row."""
    return np.broadcast_to(np.frombuffer(text, np.uint8), (rows, len(text)))


def joined_cells(cells: Sequence[Cells]) -> Cells:
    """Return the texts of several cells as those of one."""
    return np.concatenate(cells, axis=1)


def side_by_side(rows: int, *parts: Cells | str) -> Cells:
    """Return the texts of parts one after the other; a text is the same in each row."""
    cells = [constant(encoded(each), rows) if isinstance(each, str) else each for each in parts]
    return joined_cells(cells)


def _groups(values: NDArray[Any], count: int) -> list[NDArray[Any]]:
    """Return the decimal digits of integers in groups of four, the highest first."""
    rest: NDArray[Any] = values.astype(np.uint32 if values.dtype.itemsize <= 4 else np.uint64)
    found = []
    for _ in range(count - 1):
        quotient = rest // _GROUP
        found.append(rest - quotient * _GROUP)
        rest = quotient
    return [rest, *reversed(found)]


def decimals(values: NDArray[Any]) -> Cells:
    """Write unsigned integers in decimal."""
    width = len(str(int(values.max(initial=0))))
    groups = _groups(values, -(-width // 4))
    found = np.empty((len(values), len(groups)), np.uint32)
    begun: NDArray[np.bool_] = np.zeros(len(values), np.bool_)
    for place, group in enumerate(groups):
        first = (_LAST if place == len(groups) - 1 else _FIRST)[group]
        found[:, place] = np.where(begun, _WITH_ZEROS[group], first) if place else first
        begun |= group > 0
    return found.view(np.uint8)[:, -width:]


def decimals_with_zeros(values: NDArray[Any], digits: int) -> Cells:
    """Write unsigned integers, of at most this number of decimal digits, with all of them."""
    groups = _groups(values, -(-digits // 4))
    found = np.stack([_WITH_ZEROS[group] for group in groups], axis=1)
    return found.view(np.uint8)[:, -digits:]


def hexadecimals(values: NDArray[Any], digits: int) -> Cells:
    """Write unsigned integers, of at most this number of hexadecimal digits, with all of them."""
    size = 4 if digits <= 8 else 8
    data = values.astype(f">u{size}").view(np.uint8).reshape(-1, size)
    found = _HEX_PAIRS[data[:, size - -(-digits // 2) :]]
    return found.view(np.uint8)[:, -digits:]


def _with_zeros_to(cells: Cells, width: int) -> Cells:
    """Return numbers without leading zeros beyond the last ``width`` characters."""
    beyond = max(cells.shape[1] - width, 0)
    begun = np.logical_or.accumulate(cells[:, :beyond] != ord("0"), axis=1)
    return joined_cells((cells[:, :beyond] * begun, cells[:, beyond:]))


_FORMAT: Final = re.compile(r"(0?)(\d*)([dx])")


def formatted(values: NDArray[Any], form: str) -> Cells:
    """Write unsigned integers as :func:`format` does, with formats as ``d``, ``x``, ``6d``, ``8x``.

    Of ``x``, the width is at most 16. Raises :exc:`ValueError` for other formats.
    """
    found = _FORMAT.fullmatch(form)
    if found is None:
        raise ValueError(f"cannot write numbers as {form!r}: d or x, with a width, are supported")
    zeros, width, kind = found[1], int(found[2] or 0), found[3]
    digits = len(f"{int(values.max(initial=0)):{kind}}")
    if zeros:
        write = decimals_with_zeros if kind == "d" else hexadecimals
        return _with_zeros_to(write(values, max(width, digits)), width)
    cells = decimals(values) if kind == "d" else _with_zeros_to(hexadecimals(values, digits), 1)
    return with_spaces(cells, width) if width else cells


def with_spaces(cells: Cells, width: int) -> Cells:
    """Return texts with spaces before them, to at least ``width`` characters.

    Characters that a row does not use must be the first ones.
    """
    before = max(cells.shape[1] - width, 0)
    inside = cells[:, before:]
    spaces = constant(b" " * (width - inside.shape[1]), len(cells))
    return joined_cells((cells[:, :before], spaces, np.where(inside == 0, _SPACE, inside)))


def seconds_cells(times: NDArray[np.int64], width: int = 0) -> Cells:
    """Write times (ns) as seconds with nine decimals, right-aligned in ``width`` characters."""
    if times.min(initial=0) < 0:
        return from_values(times, lambda time: decimal_seconds(time).rjust(width))
    whole, rest = np.divmod(times, SECOND)
    cells = side_by_side(len(times), decimals(whole), ".", decimals_with_zeros(rest, 9))
    return with_spaces(cells, width) if width else cells


class Numbering(dict[Any, int]):
    """Numbers different values from 0 on, in the order in which they come."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number

    def of(self, values: Sequence[Any]) -> NDArray[np.int64]:
        """Return the number of each value."""
        found: NDArray[np.int64] = np.fromiter(map(self.__getitem__, values), np.int64, len(values))
        return found


def from_rows(texts: Sequence[bytes]) -> Cells:
    """Return one text in each row."""
    cells: Cells = np.array(texts, np.bytes_).view(np.uint8).reshape(len(texts), -1)
    return cells


def from_texts(texts: Sequence[bytes], indices: NDArray[Any]) -> Cells:
    """Write one of a few texts in each row, by its index."""
    cells: Cells = from_rows(texts)[indices]
    return cells


def from_values(values: NDArray[Any], write: Callable[[Any], str]) -> Cells:
    """Write values of any type; ``write`` is called once for each different value."""
    numbers = Numbering()
    indices = numbers.of(values.tolist())
    return from_texts([encoded(write(value)) for value in numbers], indices)


_MANY: Final = 1 / 16
"""The share of unused characters from which on it is faster to look at each character."""


def text_of(cells: Cells) -> bytes:
    """Return the text of all rows, one after the other."""
    if cells.size - np.count_nonzero(cells) > _MANY * cells.size:
        every = cells.ravel()
        used: Cells = every[every != 0]
        return used.tobytes()
    return cells.tobytes().replace(b"\0", b"")


def in_encoding(text: bytes, encoding: str) -> bytes:
    """Convert a text; characters that the encoding does not have are escaped."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        return text
    return text.decode().encode(encoding, "backslashreplace")
