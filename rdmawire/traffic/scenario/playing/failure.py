"""An expectation that did not hold: a value."""

from typing import NamedTuple

from rdmawire.traffic.scenario.model import Mark


class Failure(NamedTuple):
    """An expectation that did not hold: which, and what was found instead.

    ``frame`` is the number of the frame that shows it: in the capture, or on the link or port
    ``point`` where the capture does not have it. ``None`` where no single frame does. ``nearest``
    tells of a frame that has all fields but one of those that none has.
    """

    mark: Mark
    what: str
    expected: str
    found: str
    frame: int | None = None
    point: str = ""
    nearest: str = ""

    def text(self, source: str) -> str:
        """One line, with its place in the file."""
        line, column = self.mark
        said = f"{self.what}: expected {self.expected}, found {self.found}"
        near = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"{source}:{line}:{column}: {said}{self._place()}{near}"

    def _place(self) -> str:
        if self.frame is None:
            return ""
        return f" (frame {self.frame}{f' of {self.point}' if self.point else ''})"
