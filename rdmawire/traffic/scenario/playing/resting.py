"""When all was done: idle timers that fire behind that count for nothing."""

from rdmawire.fabric.simulator import Simulator
from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.scenario.playing.ending import Progress


class Clock:
    """Hears how work goes on, and passes that on to ``progress``."""

    def __init__(self, simulator: Simulator, progress: Progress | None) -> None:
        self._simulator = simulator
        self._progress = progress
        self._last_work = 0

    def hear(self, done: int, total: int) -> None:
        """A piece of work, or what an owner did, has ended now."""
        self._last_work = self._simulator.now
        if self._progress is not None:
            self._progress(done, total)

    def rest(self, sent: FrameCounter) -> int:
        """When the last frame was sent or arrived, or the last work was done (ns)."""
        return max(self._last_work, self._simulator.last_arrival, sent.last)
