"""Chunks of a capture: what is printed of many frames at once, and what is left to a dissector.

A chunk is a number of consecutive records. A :class:`ChunkPrinter` prints the frames that need no
memory of other frames. The others, ``rest``, are dissected one by one in the order of the file; a
dissector also numbers the conversations of all datagrams.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.extract import Frames
from rdmawire.dissect.output import FrameCounts

MAX_FRAMES: Final = 8192
"""Frames of a chunk at most, so that their first bytes stay in the processor's cache."""
MAX_BYTES: Final = 8 << 20
"""The last record of a chunk starts less than this many bytes after the first one."""


class Flows(NamedTuple):
    """The flows of the frames whose datagrams are known without a dissection.

    ``endpoints`` are distinct: source and destination address, and both ports, as they are in a
    frame. ``rows`` are the rows of the frames in the chunk, ascending, ``indices`` the index of
    each frame's endpoints.
    """

    endpoints: list[bytes]
    rows: NDArray[np.int64]
    indices: NDArray[np.int64]


class Found(NamedTuple):
    """What is known of a chunk before it is printed.

    ``rest`` are the rows that must be dissected, ascending. ``taken`` is a mask over the chunk: the
    other rows that are printed. ``flows`` is ``None`` if the text needs no numbers of
    conversations.
    """

    rest: NDArray[np.int64]
    taken: NDArray[np.bool_]
    flows: Flows | None = None


class Printed(NamedTuple):
    """The text of a chunk without the frames of ``rest``, in pieces, and the counts of its frames.

    ``lengths`` are the bytes of text before, between and after the frames of ``rest``.
    """

    counts: FrameCounts
    lengths: list[int]
    pieces: Iterable[bytes]

    @classmethod
    def of(cls, counts: FrameCounts, texts: list[bytes]) -> "Printed":
        """Make the result from the texts before, between and after the frames of ``rest``."""
        return cls(counts, list(map(len, texts)), [b"".join(texts)])

    def with_dissected(self, dissected: list[bytes]) -> Iterable[bytes]:
        """Return the text with the texts of the frames of ``rest``, in pieces."""
        if not dissected:
            return self.pieces
        text, start = b"".join(self.pieces), 0
        found: list[bytes] = []
        for length, after in zip(self.lengths, [*dissected, b""], strict=True):
            found += text[start : start + length], after
            start += length
        return [b"".join(found)]


class PreparedChunk(Protocol):
    """A chunk that is being printed, here or in another process.

    ``frames`` remain in memory until the chunk is printed.
    """

    @property
    def frames(self) -> Frames:
        """The frames of the chunk."""

    @property
    def found(self) -> Found:
        """What is known of it; waits until it is known."""

    def print(self, streams: NDArray[np.int64] | None, end: int) -> None:
        """Begin to print the selected rows before ``end``.

        ``streams`` are the numbers of the conversations by row, if flows were found.
        """

    def printed(self) -> Printed:
        """Return what was printed; waits until it is."""


class ChunkPrinter(Protocol):
    """Prints chunks of one capture, of limited size. It remembers no frames."""

    @property
    def max_frames(self) -> int:
        """Frames of a chunk at most: few if their text is long."""

    @property
    def max_bytes(self) -> int:
        """The last record of a chunk starts less than this many bytes after the first one."""

    def prepare(self, frames: Frames) -> PreparedChunk:
        """Find the frames of a chunk that need no dissector."""


def gaps(rest: NDArray[np.int64], end: int) -> list[slice]:
    """Return the rows before, between and after the rows of ``rest``, all before ``end``."""
    cuts = rest[: np.searchsorted(rest, end)].tolist()
    firsts = [0, *(cut + 1 for cut in cuts)]
    return [slice(first, last) for first, last in zip(firsts, [*cuts, end], strict=True)]
