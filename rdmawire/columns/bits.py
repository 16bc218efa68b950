"""Bits of many frames at once: the rows of header tables, read out of gathered octets."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.pcap import RECORD

Matrix = NDArray[np.uint8]
"""Octets of many frames, a row for each; it begins with ``LEAD`` octets before the frame."""

LEAD = RECORD
"""Octets before each frame, of its record's header: words may reach back into them."""
_SIZES = (1, 2, 4, 8)


class Bits(NamedTuple):
    """Bits of a frame: in the word of ``size`` octets at octet ``start``, shifted and masked."""

    start: int
    size: int
    shift: int
    mask: int

    @property
    def end(self) -> int:
        """The octet behind them."""
        return self.start + self.size

    def read(self, frames: Matrix, base: int = 0) -> NDArray[Any]:
        """The number of each frame, where the header begins at octet ``base``."""
        width = frames.shape[1]
        place = LEAD + base + self.start
        words = np.ndarray((len(frames),), f">u{self.size}", frames, offset=place, strides=(width,))
        if self.shift:
            words = words >> self.shift
        return words if self.mask == (1 << 8 * self.size) - 1 else words & self.mask


def bits(first: int, width: int) -> Bits:
    """``width`` bits, at most 64, from bit ``first`` of a header."""
    start, end = first // 8, (first + width + 7) // 8
    size = next(size for size in _SIZES if size >= end - start)
    return Bits(end - size, size, end * 8 - first - width, (1 << width) - 1)


def octets(frames: Matrix, start: int, length: int) -> NDArray[np.void]:
    """``length`` octets of each frame from octet ``start``, as plain values."""
    place = LEAD + start
    return np.ndarray(
        (len(frames),), f"V{length}", frames, offset=place, strides=(frames.shape[1],)
    )
