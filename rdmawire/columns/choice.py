"""Which frames are wanted: asked of columns where that can be told from them, else of frames."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import Columns
from rdmawire.dissect.node import Dissection
from rdmawire.dissect.select import Bound, BoundKind, Window
from rdmawire.filter import Filter, evaluate_columns

_COLUMNS = {
    BoundKind.NUMBER: "frame.number",
    BoundKind.RELATIVE: "frame.time_relative",
    BoundKind.EPOCH: "frame.time_epoch",
}
"""What the bounds of a window are compared with."""


class Choice(NamedTuple):
    """The frames in a window that pass a filter."""

    window: Window = Window()
    where: Filter | None = None

    def takes(self, frame: Dissection) -> bool:
        """Whether a frame is wanted."""
        return frame in self.window and (self.where is None or self.where(frame))

    @property
    def is_simple(self) -> bool:
        """Whether columns of plain frames tell."""
        return self.where is None or self.where.simple

    @property
    def names(self) -> Iterator[str]:
        """The columns that are needed to tell."""
        yield from (_COLUMNS[bound.kind] for bound in self._bounds())
        yield from self.where.names if self.where is not None else ()

    def _bounds(self) -> Iterator[Bound]:
        yield from filter(None, (self.window.start, self.window.end))

    def rows(self, columns: Columns) -> NDArray[np.bool_]:
        """The rows that are wanted, as far as columns tell."""
        wanted = np.ones(columns.rows, np.bool_)
        start, end = self.window.start, self.window.end
        if start is not None:
            wanted &= columns[_COLUMNS[start.kind]].values >= start.value
        if end is not None:
            wanted &= columns[_COLUMNS[end.kind]].values <= end.value
        if self.where is not None:
            wanted &= evaluate_columns(self.where.tree, columns)
        return wanted


EVERY_FRAME = Choice()


def choice_of(where: str | Filter | None) -> Choice:
    """The frames that pass a filter; all of them for ``None``."""
    if where is None:
        return EVERY_FRAME
    return Choice(where=Filter(where) if isinstance(where, str) else where)
