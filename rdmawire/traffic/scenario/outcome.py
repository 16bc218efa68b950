"""What playing a scenario came to: a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rdmawire.fabric.network import Network
from rdmawire.traffic.scenario.model import Mark, Scenario
from rdmawire.traffic.summary import Summary


class Failure(NamedTuple):
    """An expectation that did not hold: which, and what was found instead.

    ``frame`` is the number of the frame that shows it: in the capture, or on the link or port
    ``point`` where the capture does not have it. ``None`` where no single frame does.
    """

    mark: Mark
    what: str
    expected: str
    found: str
    frame: int | None = None
    point: str = ""

    def text(self, source: str) -> str:
        """One line, with its place in the file."""
        line, column = self.mark
        said = f"{self.what}: expected {self.expected}, found {self.found}"
        return f"{source}:{line}:{column}: {said}{self._place()}"

    def _place(self) -> str:
        if self.frame is None:
            return ""
        return f" (frame {self.frame}{f' of {self.point}' if self.point else ''})"


class StepOutcome(NamedTuple):
    """What became of a step: how often it was done, and how that ended, by status.

    ``begun`` says whether its time ever came. Verbs that were refused count by their errno.
    """

    name: str
    verb: str
    mark: Mark
    begun: bool
    posted: int
    endings: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario, played. ``frames`` is how many the capture has, or would have."""

    scenario: Scenario
    failures: tuple[Failure, ...]
    steps: tuple[StepOutcome, ...]
    summary: Summary
    frames: int
    network: Network

    @property
    def passed(self) -> bool:
        """Whether all came as it was expected."""
        return not self.failures
