"""The buffer of a switch: what is taken in, from whom, and who is told to stop."""

from rdmawire.fabric.egress import Lane
from rdmawire.fabric.flow import PRIORITIES
from rdmawire.fabric.settings import Settings


class Buffer:
    """Counts octets: all together, and by the port and the priority that they came in by."""

    __slots__ = ("_brought", "_pausing", "_settings", "peak", "used")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pausing = [settings.pausing.get(priority) for priority in range(PRIORITIES)]
        self._brought: list[list[int]] = []
        self.used = 0
        self.peak = 0

    def add_port(self) -> None:
        """One more port brings frames in."""
        self._brought.append([0] * PRIORITIES)

    def brought(self, ingress: int, priority: int) -> int:
        """Octets of a priority that a port brought in and that still wait."""
        return self._brought[ingress][priority]

    def take(self, size: int, lane: Lane, queued: int) -> bool:
        """Take in a frame of so many octets that comes to a queue of so many, if there is room."""
        used = self.used + size
        priority, ingress, _ = lane
        brought = self._brought[ingress]
        pausing = self._pausing[priority]
        if pausing is None:
            room = queued + size <= self._settings.queue
        else:
            room = brought[priority] + size <= pausing.xoff + pausing.headroom
        if not room or used > self._settings.buffer:
            return False
        self.used = used
        self.peak = max(self.peak, used)
        brought[priority] += size
        return True

    def release(self, size: int, lane: Lane) -> None:
        """A frame of so many octets is on its way out."""
        self.used -= size
        self._brought[lane[1]][lane[0]] -= size

    def overfull(self, ingress: int, priority: int) -> bool:
        """Whether a port is to be stopped."""
        pausing = self._pausing[priority]
        return pausing is not None and self._brought[ingress][priority] > pausing.xoff

    def drained(self, ingress: int, priority: int) -> bool:
        """Whether a port that was stopped may go on."""
        pausing = self._pausing[priority]
        return pausing is None or self._brought[ingress][priority] <= pausing.xon
