"""The buffer of a switch: what is taken in, from whom, and who is told to stop."""

from rdmawire.fabric.egress import Queued
from rdmawire.fabric.flow import PRIORITIES
from rdmawire.fabric.settings import Settings


class Buffer:
    """Counts octets: all together, and by the port and the priority that they came in by."""

    __slots__ = ("_brought", "_settings", "peak", "used")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._brought: list[list[int]] = []
        self.used = 0
        self.peak = 0

    def add_port(self) -> None:
        """One more port brings frames in."""
        self._brought.append([0] * PRIORITIES)

    def brought(self, ingress: int, priority: int) -> int:
        """Octets of a priority that a port brought in and that still wait."""
        return self._brought[ingress][priority]

    def admits(self, item: Queued, queued: int) -> bool:
        """Whether there is room for a frame that comes to a queue of so many octets."""
        size = len(item.frame)
        if self.used + size > self._settings.buffer:
            return False
        pausing = self._settings.pausing.get(item.priority)
        if pausing is None:
            return queued + size <= self._settings.queue
        brought = self._brought[item.ingress][item.priority]
        return brought + size <= pausing.xoff + pausing.headroom

    def take(self, item: Queued) -> None:
        """A frame is in."""
        self.used += len(item.frame)
        self.peak = max(self.peak, self.used)
        self._brought[item.ingress][item.priority] += len(item.frame)

    def release(self, item: Queued) -> None:
        """A frame is on its way out."""
        self.used -= len(item.frame)
        self._brought[item.ingress][item.priority] -= len(item.frame)

    def overfull(self, ingress: int, priority: int) -> bool:
        """Whether a port is to be stopped."""
        pausing = self._settings.pausing.get(priority)
        return pausing is not None and self._brought[ingress][priority] > pausing.xoff

    def drained(self, ingress: int, priority: int) -> bool:
        """Whether a port that was stopped may go on."""
        pausing = self._settings.pausing[priority]
        return self._brought[ingress][priority] <= pausing.xon
