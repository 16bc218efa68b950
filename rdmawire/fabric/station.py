"""Stations and segments: who is on which link, by address, and who listens there.

Both find what they are asked for without a walk over the world: a frame costs the same among ten
stations as among thousands.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast, runtime_checkable

from rdmawire.fabric.appointment import Appointment
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link

Tap = Callable[[Envelope, int], object]
"""Sees a frame, and when (ns) it is there; ``frame.data`` are its bytes."""


class Port(Protocol):
    """What is at the end of a link: an engine that has no clock of its own."""

    def receive(self, frame: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> list[bytes]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


class Relay(Protocol):
    """A port that passes frames on, which keep their envelopes. Its own have none yet: id 0."""

    def receive(self, frame: Envelope, now: int) -> None: ...

    def transmit(self, now: int) -> list[Envelope]: ...

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

    def carry(self, frame: Envelope, now: int) -> list[Arrival]: ...


def _unknown(_: Envelope, __: int) -> None:
    """What carries frames in a way of its own is asked about each."""


class Segment:
    """A link with the stations on it, ``by_mac`` those with an address.

    Taps see what is put on it, and what arrives from it.
    """

    __slots__ = ("_stations", "by_mac", "link", "on_arrival", "on_sent", "straight")

    def __init__(self, link: Carrier) -> None:
        self.link = link
        self.straight = link.straight if type(link) is Link else _unknown
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._stations: list[Station] = []
        self.by_mac: dict[bytes, tuple[Station, ...]] = {}

    def join(self, station: "Station") -> None:
        """One more station hears what passes here."""
        self._stations.append(station)
        self.by_mac[station.mac] = (*self.by_mac.get(station.mac, ()), station)
        for one in self._stations:
            one.others = None

    def others(self, sender: "Station") -> "tuple[Station, ...]":
        """All stations but the sender: they hear frames to addresses that no station has."""
        if sender.others is None:
            sender.others = tuple(one for one in self._stations if one is not sender)
        return sender.others


class Hold:
    """A frame that is kept back until so many others have overtaken it."""

    __slots__ = ("behind", "deadline", "frame", "hearers")

    def __init__(self, frame: Envelope, behind: int, hearers: "tuple[Station, ...]") -> None:
        self.frame = frame
        self.behind = behind
        self.hearers = hearers
        self.deadline: Appointment | None = None


class Station:
    """A port at its place: the address it answers to, and the segment that it is on.

    ``timer`` is when the port wants to be called (ns), as it said when last asked; ``pending``
    are the times in the world's queue at which it is looked after, the next one last. A port
    that is ``paced`` has nothing more to send once it was asked, until it is called. ``relay`` is
    the port if it passes frames on: it has itself woken, and need not be asked when a frame came.
    ``held`` is what a fault keeps back until more was sent.
    """

    __slots__ = (
        *("_greedy", "held", "mac", "number", "on_arrival", "on_sent", "others"),
        *("paced", "pending", "port", "relay", "segment", "timer"),
    )

    def __init__(self, port: Port | Relay, mac: bytes, segment: Segment, number: int) -> None:
        self.port = cast("Port", port)  # of a relay, what is about timers alone
        self.relay: Relay | None = None
        self.mac = mac
        self.segment = segment
        self.number = number
        self.paced = False
        self.timer: int | None = None
        self.pending: list[int] = []
        self.others: tuple[Station, ...] | None = None
        self.held: list[Hold] = []
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._greedy = port if isinstance(port, Greedy) else None

    def receive(self, frame: Envelope, now: int) -> None:
        """Hand a frame over: its bytes, or all of it to a port that passes it on."""
        if self.relay is None:
            self.port.receive(frame.data, now)
        else:
            self.relay.receive(frame, now)

    def receive_all(self, frames: Sequence[Envelope], now: int) -> None:
        """Hand over frames that are there at the same time."""
        if self._greedy is not None:
            self._greedy.receive_all([frame.data for frame in frames], now)
        else:
            for frame in frames:
                self.receive(frame, now)
