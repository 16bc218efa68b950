"""Text of many rows as arrays of characters, cell by cell.

A cell has the same width in all rows; characters that a row does not use are 0. So numbers become
digits by array operations, and the lines of many rows are all characters but the zeros.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rdmawire.units import SECOND

Cells = NDArray[np.uint8]
"""The characters of a cell in each row, of shape ``(rows, width)``; 0 is no character."""

_ZERO: Final = ord("0")
_HEX_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


def constant(text: bytes, rows: int) -> Cells:
    """Return the same text for each row."""
    return np.broadcast_to(np.frombuffer(text, np.uint8), (rows, len(text)))


def decimals(values: NDArray[Any], digits: int = 1) -> Cells:
    """Write unsigned integers in decimal, with at least this number of digits."""
    width = max(len(str(int(values.max(initial=0)))), digits)
    found = np.empty((width, len(values)), np.uint8)
    rest: NDArray[Any] = values.astype(np.uint32 if values.dtype.itemsize <= 4 else np.uint64)
    for place in range(width - 1, -1, -1):
        quotient = rest // 10
        found[place] = rest - quotient * 10
        rest = quotient
    used = np.zeros(len(values), np.bool_)
    for place in range(width - digits):
        used |= found[place] != 0
        found[place] += _ZERO
        found[place] *= used
    found[width - digits :] += _ZERO
    return found.T


def hexadecimals(values: NDArray[Any], digits: int) -> Cells:
    """Write unsigned integers, of at most this number of digits, with all of them."""
    rest: NDArray[Any] = values.astype(np.uint32 if digits <= 8 else np.uint64)
    found = np.empty((digits, len(values)), np.uint8)
    for place in range(digits - 1, -1, -1):
        found[place] = _HEX_DIGITS[rest & 15]
        rest = rest >> 4
    return found.T


def seconds(times: NDArray[np.int64]) -> Cells:
    """Write times (ns) as seconds with nine decimals."""
    whole, rest = np.divmod(np.abs(times), SECOND)
    sign = np.where(times < 0, ord("-"), 0).astype(np.uint8)[:, None]
    point = constant(b".", len(times))
    return np.concatenate((sign, decimals(whole), point, decimals(rest, 9)), axis=1)


def from_texts(texts: Sequence[bytes], indices: NDArray[Any]) -> Cells:
    """Write one of a few texts in each row, by its index."""
    table = np.array(texts, np.bytes_)
    cells: Cells = table.view(np.uint8).reshape(len(texts), -1)[indices]
    return cells


def from_values(values: NDArray[Any], write: Callable[[Any], bytes]) -> Cells:
    """Write values of any type; ``write`` is called once for each different value."""
    numbers: dict[Hashable, int] = {}
    indices = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
    return from_texts([write(value) for value in numbers], np.array(indices, np.int64))


def text_of(cells: Cells) -> bytes:
    """Return the text of all rows, one after the other."""
    return cells.tobytes().translate(None, b"\0")
