"""Stations and segments: who is on which link, by address, and who listens there.

Both find what they are asked for without a walk over the world: a frame costs the same among ten
stations as among thousands.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from rdmawire.fabric.appointment import Appointment
from rdmawire.fabric.link import Arrival, Link

Tap = Callable[[bytes, int], object]
"""Sees a frame, and when (ns) it is there."""


class Port(Protocol):
    """What is at the end of a link: an engine that has no clock of its own."""

    def receive(self, frame: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> list[bytes]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


@runtime_checkable
class Greedy(Port, Protocol):
    """A port for which frames that come one behind the other cost less if it has them at once."""

    def receive_all(self, frames: Sequence[bytes], now: int) -> None: ...


class Carrier(Protocol):
    """What takes frames from port to port. Says when each arrives, changed or repeated or not.

    ``rate`` is in bits each second; ``None`` is a wire on which octets take no time.
    """

    @property
    def rate(self) -> int | None: ...

    def carry(self, frame: bytes, now: int) -> list[Arrival]: ...


def _unknown(_: bytes, __: int) -> None:
    """What carries frames in a way of its own is asked about each."""


class Segment:
    """A link with the stations on it. Taps see what is put on it, and what arrives from it."""

    __slots__ = ("_by_mac", "_stations", "link", "on_arrival", "on_sent", "straight")

    def __init__(self, link: Carrier) -> None:
        self.link = link
        self.straight = link.straight if type(link) is Link else _unknown
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._stations: list[Station] = []
        self._by_mac: dict[bytes, tuple[Station, ...]] = {}

    def join(self, station: "Station") -> None:
        """One more station hears what passes here."""
        self._stations.append(station)
        self._by_mac[station.mac] = (*self._by_mac.get(station.mac, ()), station)
        for one in self._stations:
            one.others = None

    def hearers(self, sender: "Station", mac: bytes) -> "tuple[Station, ...]":
        """The stations with this address, or else all but the sender, who is never one of them."""
        return self._by_mac.get(mac) or sender.others or self._others(sender)

    def _others(self, sender: "Station") -> "tuple[Station, ...]":
        sender.others = tuple(one for one in self._stations if one is not sender)
        return sender.others


class Hold:
    """A frame that is kept back until so many others have overtaken it."""

    __slots__ = ("behind", "deadline", "frame", "hearers")

    def __init__(self, frame: bytes, behind: int, hearers: "tuple[Station, ...]") -> None:
        self.frame = frame
        self.behind = behind
        self.hearers = hearers
        self.deadline: Appointment | None = None


class Station:
    """A port at its place: the address it answers to, and the segment that it is on.

    ``timer`` is when the port wants to be called (ns), as it said when last asked; ``pending``
    are the times in the world's queue at which it is looked after, the next one last. A port
    that is ``paced`` has nothing more to send once it was asked, until it is called; one that
    ``relays`` has itself woken, and need not be asked when a frame came. ``held`` is what a fault
    keeps back until more was sent.
    """

    __slots__ = (
        *("_greedy", "held", "mac", "number", "on_arrival", "on_sent", "others"),
        *("paced", "pending", "port", "relays", "segment", "timer"),
    )

    def __init__(self, port: Port, mac: bytes, segment: Segment, number: int) -> None:
        self.port = port
        self.mac = mac
        self.segment = segment
        self.number = number
        self.paced = self.relays = False
        self.timer: int | None = None
        self.pending: list[int] = []
        self.others: tuple[Station, ...] | None = None
        self.held: list[Hold] = []
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._greedy = port if isinstance(port, Greedy) else None

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Hand over frames that are there at the same time."""
        if self._greedy is not None:
            self._greedy.receive_all(frames, now)
        else:
            for frame in frames:
                self.port.receive(frame, now)
