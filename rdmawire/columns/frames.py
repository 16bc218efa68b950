"""What is known of frames without looking into them: numbers, times and lengths."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.plain import Records


class Frames(NamedTuple):
    """The frames of a block: their records, the number of the first one, and the clock.

    ``previous_ns`` is when the frame before the block was captured, ``resolution`` how many units
    of the records' times make a second, ``file`` the name of the capture.
    """

    records: Records
    first: int
    first_ns: int
    previous_ns: int
    resolution: int
    file: str

    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the frames."""
        return np.arange(self.first, self.first + len(self.records.places), dtype=np.int64)

    def times(self) -> NDArray[np.int64]:
        """Nanoseconds since the epoch."""
        return self.records.times(self.resolution)

    def relative_times(self) -> NDArray[np.int64]:
        """Nanoseconds since the first frame."""
        return self.times() - self.first_ns

    def deltas(self) -> NDArray[np.int64]:
        """Nanoseconds since the frame before."""
        return np.diff(self.times(), prepend=np.int64(self.previous_ns))

    def at(self, rows: slice) -> "Frames":
        """Those of some rows, one behind the other."""
        return self._replace(
            records=self.records.at(rows),
            first=self.first + rows.start,
            previous_ns=self.before(rows.start),
        )

    def before(self, row: int) -> int:
        """When the frame before this one was captured."""
        if row == 0:
            return self.previous_ns
        return int(self.records.at(slice(row - 1, row)).times(self.resolution)[0])


FRAME_COLUMNS: dict[str, Callable[[Frames], NDArray[Any]]] = {
    "frame.number": Frames.numbers,
    "frame.time": Frames.times,
    "frame.time_epoch": Frames.times,
    "frame.time_relative": Frames.relative_times,
    "frame.time_delta": Frames.deltas,
    "frame.len": lambda frames: frames.records.heads["length"],
    "frame.cap_len": lambda frames: frames.records.heads["captured"],
    "rdmawire.file": lambda frames: np.full(len(frames.records.places), frames.file, object),
}
"""Fields that every frame has, and how they are read of many at once."""
