"""When all was done: idle timers that fire behind that count for nothing."""

from rdmawire.fabric.world import World
from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.scenario.playing.ending import Progress


class Clock:
    """Hears how work goes on, and passes that on to ``progress``."""

    def __init__(self, world: World, progress: Progress | None) -> None:
        self._world = world
        self._progress = progress
        self._last_work = 0

    def hear(self, done: int, total: int) -> None:
        """A piece of work, or what an owner did, has ended now."""
        self._last_work = self._world.now
        if self._progress is not None:
            self._progress(done, total)

    def rest(self, sent: FrameCounter) -> int:
        """When the last frame was sent or arrived, or the last work was done (ns)."""
        return max(self._last_work, self._world.last_arrival, sent.last)
