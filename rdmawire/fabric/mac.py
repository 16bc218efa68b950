"""The MAC of an adapter: sends at the link's rate, one frame after the other, and heeds pauses."""

from typing import Final, Protocol, runtime_checkable

from rdmawire.fabric.egress import Egress, Lane
from rdmawire.fabric.flow import PRIORITIES, Classifier
from rdmawire.fabric.pause import quanta_of

MOST_WAITING: Final = 1024
"""Frames that wait here at the most, before a burst: an adapter is asked for no more of them."""

_LANES: Final = tuple(Lane(priority) for priority in range(PRIORITIES))


class Adapter(Protocol):
    """What sends through a MAC: bursts, whenever it is asked."""

    def receive(self, frame: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> list[bytes]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


@runtime_checkable
class Forthcoming(Protocol):
    """An adapter that says whether it has more to send: it need not be asked in vain."""

    @property
    def sends_more(self) -> bool: ...


class Paced(Protocol):
    """A link as its ports see it."""

    @property
    def rate(self) -> int | None: ...


class Mac:
    """Between an adapter and a link. Its frames wait here, by priority, for the wire.

    The adapter is asked for more when nothing here may go. So what a pause stops does not stop
    other priorities, until :data:`MOST_WAITING` frames wait.
    """

    __slots__ = ("_classifier", "_forthcoming", "_more", "adapter", "egress")

    def __init__(self, adapter: Adapter, link: Paced, classifier: Classifier | None = None) -> None:
        self.adapter = adapter
        self._forthcoming = adapter if isinstance(adapter, Forthcoming) else None
        self.egress = Egress[bytes](link.rate)
        self._classifier = Classifier() if classifier is None else classifier
        self._more = True

    def receive(self, frame: bytes, now: int) -> None:
        """A pause is for here, all else for the adapter."""
        quanta = quanta_of(frame)
        if quanta is None:
            self._more = True
            self.adapter.receive(frame, now)
        else:
            self.egress.pause(quanta, now)

    def transmit(self, now: int) -> list[bytes]:
        """The next frame, if the wire is free."""
        item = self.egress.take(now)
        while item is None and self._refill(now):
            item = self.egress.take(now)
        if item is None:
            return []
        self._more = True  # whatever came meanwhile is asked for behind this
        return [item[0]]

    def _refill(self, now: int) -> bool:
        """Ask for a burst, if nothing is there that only waits for the wire."""
        if not self.egress.stopped or len(self.egress) >= MOST_WAITING:
            return False
        frames = self.adapter.transmit(now)
        for frame in frames:
            lane = _LANES[self._classifier.traits(frame).priority]
            self.egress.put(frame, lane, len(frame))
        self._more = bool(frames)
        return self._more

    def next_timer(self) -> int | None:
        """When the wire is free for what waits or may come, or the adapter wants to be called."""
        told = self._forthcoming
        more = self._more if told is None else told.sends_more
        asks = more and len(self.egress) < MOST_WAITING
        due = self.egress.free_at if asks else self.egress.next_time()
        wanted = self.adapter.next_timer()
        return wanted if due is None or (wanted is not None and wanted < due) else due

    def handle_timer(self, now: int) -> None:
        """Call the adapter if that is what is due."""
        due = self.adapter.next_timer()
        if due is not None and due <= now:
            self._more = True
            self.adapter.handle_timer(now)
