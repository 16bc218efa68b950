"""A discrete-event simulator: ports, the links between them, and a clock in nanoseconds.

The simulator takes a burst of frames from each port in turn, delivers the frames that have arrived,
and, when nothing is left to do at this time, advances the clock to the next event. Nothing here is
random and nothing sleeps, so the same start gives the same bytes at the same times.

A port is an adapter or one port of a switch. Any number of ports can be attached to a link; each
receives the frames for its own MAC address.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final, Protocol, Self, cast, runtime_checkable

from rdmawire.errors import FabricError
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link, ReorderedArrival, framing_of
from rdmawire.fabric.port_queue import Mac
from rdmawire.fabric.scheduler import CALL, Callback, EventQueue, ScheduledCall
from rdmawire.snapshot import copy_each
from rdmawire.units import seconds
from rdmawire.validate import (
    TIME,
    Constraint,
    InstanceOf,
    Integer,
    check,
    check_attributes,
)
from rdmawire.verbs.ah import MAC_BYTES
from rdmawire.verbs.engine import Clock
from rdmawire.wire.roce import Medium

Tap = Callable[[Envelope, int], object]
"""Function called with each frame and its time (ns); ``frame.data`` are the bytes."""


class Port(Protocol):
    """An end of a link: an engine without a clock of its own."""

    def receive(self, frame: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> list[bytes]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


class Relay(Protocol):
    """A port of a switch. It forwards envelopes; frames of its own have the id 0."""

    def receive(self, frame: Envelope, now: int) -> None: ...

    def transmit(self, now: int) -> list[Envelope]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


@runtime_checkable
class BatchPort(Port, Protocol):
    """A port that can receive several frames in one call, at a lower cost per frame."""

    def receive_all(self, frames: Sequence[bytes], now: int) -> None: ...


@runtime_checkable
class Clocked(Protocol):
    """A port that calls a clock when its application uses it between frames."""

    clock: Clock | None


class VirtualClock:
    """Returns the time of a simulator (ns); the clock of a copied port returns the copy's time."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Channel(Protocol):
    """Carries frames from port to port, and determines the times and number of arrivals.

    ``rate`` is in bits per second; ``None`` is a wire on which bytes take no time.
    """

    @property
    def rate(self) -> int | None: ...

    def carry(self, frame: Envelope, now: int) -> list[Arrival]: ...


def _unknown(_: Envelope, __: int) -> None:
    """Return ``None``: a channel of another class has no shortcut, so each frame is carried."""


class Segment:
    """A link and the ports attached to it; ``by_mac`` finds them by MAC address.

    Taps in ``on_sent`` are called with frames put on the link, those in ``on_arrival`` with
    frames that arrive from it.
    """

    __slots__ = ("_attachments", "by_mac", "link", "on_arrival", "on_sent", "straight")

    def __init__(self, link: Channel) -> None:
        self.link = link
        self.straight = link.straight if type(link) is Link else _unknown
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._attachments: list[Attachment] = []
        self.by_mac: dict[bytes, tuple[Attachment, ...]] = {}

    def join(self, attachment: "Attachment") -> None:
        """Add a port to the link."""
        self._attachments.append(attachment)
        self.by_mac[attachment.mac] = (*self.by_mac.get(attachment.mac, ()), attachment)
        for one in self._attachments:
            one.others = None

    def others(self, sender: "Attachment") -> "tuple[Attachment, ...]":
        """All ports except the sender, for broadcasts and frames to unknown addresses."""
        if sender.others is None:
            sender.others = tuple(one for one in self._attachments if one is not sender)
        return sender.others


class HeldFrame:
    """A frame that is held back until ``behind`` later frames have overtaken it."""

    __slots__ = ("behind", "deadline", "frame", "receivers")

    def __init__(self, frame: Envelope, behind: int, receivers: "tuple[Attachment, ...]") -> None:
        self.frame = frame
        self.behind = behind
        self.receivers = receivers
        self.deadline: ScheduledCall | None = None


class Attachment:
    """A port on a link.

    - ``mac``, ``segment``: the port's MAC address and its link.
    - ``timer``: when to call the port next (ns).
    - ``pending``: times of the port's entries in the event queue, the next one last.
    - ``paced``: the port keeps to the link's rate by itself. After a call to ``transmit`` it has
      nothing more to send until its timer or a frame.
    - ``relay``: the port if it belongs to a switch. The switch wakes it, so the simulator need not
      call ``transmit`` after each frame it receives.
    - ``held``: frames that a fault holds back until later ones were sent.
    """

    __slots__ = (
        *("_greedy", "held", "mac", "number", "on_arrival", "on_sent", "others"),
        *("paced", "pending", "port", "relay", "segment", "timer"),
    )

    def __init__(self, port: Port | Relay, mac: bytes, segment: Segment, number: int) -> None:
        self.port = cast("Port", port)  # only the timers of a relay are used
        self.relay: Relay | None = None
        self.mac = mac
        self.segment = segment
        self.number = number
        self.paced = False
        self.timer: int | None = None
        self.pending: list[int] = []
        self.others: tuple[Attachment, ...] | None = None
        self.held: list[HeldFrame] = []
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._greedy = port if isinstance(port, BatchPort) else None

    def receive(self, frame: Envelope, now: int) -> None:
        """Deliver a frame: bytes to an engine, the envelope to a switch port."""
        if self.relay is None:
            self.port.receive(frame.data, now)
        else:
            self.relay.receive(frame, now)

    def receive_all(self, frames: Sequence[Envelope], now: int) -> None:
        """Deliver frames that arrive at the same time."""
        if self._greedy is not None:
            self._greedy.receive_all([frame.data for frame in frames], now)
        else:
            for frame in frames:
                self.receive(frame, now)


SIMULATOR: Final[dict[str, Constraint]] = {
    "time_limit": TIME,
    "event_limit": Integer(called="a number of events"),
}
"""Allowed limits of a simulator."""

_NO_ADDRESS: Final = b""
"""Address of ports whose frames have no MAC address: all ports of the link receive them."""

TIME_LIMIT = seconds(3_600)
EVENT_LIMIT = 1_000_000


class SimulationLimit(FabricError):
    """Raised when a run reaches a limit while work is left to do."""


class Simulator:
    """Runs ports and links in virtual time.

    - ``now``: current time (ns); ``clock`` returns it.
    - ``last_arrival``: time of the last frame that arrived (ns).
    - ``time_limit`` (ns) and ``event_limit`` (frames, timers and scheduled calls) bound one run.
    - ``on_sent`` and ``on_arrival``: taps for all frames. :meth:`segment` has taps for one link,
      an :class:`Attachment` for one port.
    """

    def __init__(self, *, time_limit: int = TIME_LIMIT, event_limit: int = EVENT_LIMIT) -> None:
        self.now = 0
        self.clock = VirtualClock()
        self.last_arrival = 0
        self.time_limit = time_limit
        self.event_limit = event_limit
        check_attributes(self, SIMULATOR, FabricError)
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._attachments: list[Attachment] = []
        self._segments: dict[Channel, Segment] = {}
        self._awake: dict[Attachment, None] = {}
        self._queue = EventQueue[Attachment]()
        self._events = 0
        self._deadline = 0
        self._frames = 0

    def attach(self, port: Port, mac: bytes, link: Channel) -> Attachment:
        """Attach a port with this MAC address (six bytes) to a link.

        If the link has a rate, the port sends through a
        :class:`~rdmawire.fabric.port_queue.Mac`, one frame at a time. The port gets the
        simulator's :attr:`clock`. :class:`FabricError` for an adapter whose frames the link does
        not carry.
        """
        self.prepare(port, link)
        if link.rate is None:
            return self._join(port, mac, link)
        return self.attach_paced(Mac(port, link), mac, link)

    def prepare(self, port: Port, link: Channel) -> None:
        """Set a port's clock, if it has one, to this simulator's :attr:`clock`.

        :class:`FabricError` for an adapter whose frames the link does not carry.
        """
        medium, carried = getattr(port, "medium", Medium.ETHERNET), framing_of(link).medium
        if medium is not carried:
            sent = f"the adapter sends {medium.value} (Medium.{medium.name})"
            raise FabricError(f"{sent}: the link carries {carried.value}")
        if isinstance(port, Clocked):
            port.clock = self.clock

    def attach_paced(self, port: Port, mac: bytes, link: Channel) -> Attachment:
        """Attach a port that keeps to the link's rate by itself.

        ``transmit`` returns all frames that may be sent now; its timer says when more may be sent.
        """
        attachment = self._join(port, mac, link)
        attachment.paced = True
        return attachment

    def attach_relay(self, port: Relay, mac: bytes, link: Channel) -> Attachment:
        """Attach a port of a switch.

        Other ports of the switch send the frames that it receives; they are woken (:meth:`wake`)
        when they have frames to send.
        """
        attachment = self._join(port, mac, link)
        attachment.paced = True
        attachment.relay = port
        return attachment

    def _join(self, port: Port | Relay, mac: bytes, link: Channel) -> Attachment:
        segment = self.segment(link)
        if framing_of(link).medium is not Medium.ETHERNET:
            mac = _NO_ADDRESS
        attachment = Attachment(port, mac, segment, len(self._attachments))
        self._attachments.append(attachment)
        segment.join(attachment)
        return attachment

    def segment(self, link: Channel) -> Segment:
        """The ports on a link, and its taps."""
        if link not in self._segments:
            self._segments[link] = Segment(link)
        return self._segments[link]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent simulator with copies of all ports and links."""
        copied = memo[id(self)] = object.__new__(type(self))
        copy_each((*self._attachments, *self._segments.values()), memo)
        copied.__dict__.update(deepcopy(self.__dict__, memo))
        return copied

    def wake(self, attachment: Attachment) -> None:
        """Call a port's ``transmit`` in the next round: work was posted to it from outside."""
        self._awake[attachment] = None

    def call_at(self, time: int, action: Callback) -> ScheduledCall:
        """Call ``action`` at ``time`` (ns). It must wake the ports that it posts work to.

        ``FabricError`` if the time is not an integer.
        """
        if type(time) is not int:
            check("Simulator.time", time, InstanceOf(int), FabricError)
        return self._queue.call_at(max(time, self.now), action)

    @property
    def events(self) -> int:
        """Frames, timers and scheduled calls that the last :meth:`run` handled."""
        return self._events

    def next_time(self) -> int | None:
        """When the next arrival, timer or scheduled call is due (ns), if any."""
        return self._queue.next_time()

    def run(self, until: int | None = None) -> None:
        """Run until nothing is left to do, or up to the time ``until`` (ns).

        ``SimulationLimit`` if a limit is reached first; the state is then that of this moment.
        ``FabricError`` if the time is not an integer.
        """
        if until is not None:
            check("Simulator.until", until, InstanceOf(int), FabricError)
        self._events = 0
        self._deadline = self.now + self.time_limit
        self._awake.update(dict.fromkeys(self._attachments))
        awake, clock, next_time = self._awake, self.clock, self._queue.next_time
        # With the condition inside: CPython 3.11 specialises a loop that ends in a plain jump.
        while True:
            time = self.now if awake else next_time()  # now, if ports may have frames to send
            if time is None or (until is not None and time > until):
                break
            if time < self.now:  # noqa: PLR1730 - faster than max()
                time = self.now
            if time > self._deadline:
                raise SimulationLimit(
                    f"not at rest after {self.time_limit} ns: next is due at {time} ns"
                )
            self.now = clock.now = time
            self._handle_events(time)
            self._transmit(time)
            if self._events > self.event_limit:
                raise SimulationLimit(f"not at rest after {self.event_limit} events, at {time} ns")
        if until is not None:
            self.now = self.clock.now = max(self.now, until)

    def _handle_events(self, now: int) -> None:
        """Deliver frames, handle timers and make scheduled calls that are due."""
        awake, behind = self._awake, self._queue.batched
        while events := self._queue.take(now):
            self._events += len(events)
            for _, _, place, what, frame in events:
                if frame is not None:  # so the event is for an attachment
                    if behind and place in behind:
                        self._deliver_all(what, [frame, *behind.pop(place)], now)  # type: ignore[arg-type]
                    else:
                        self._deliver(what, frame, now)  # type: ignore[arg-type]
                elif isinstance(what, ScheduledCall):
                    if what.action is not None:
                        what.action()
                else:
                    what.port.handle_timer(now)
                    awake[what] = None
            if events[-1][1] != CALL or self._events > self.event_limit:
                break  # only scheduled calls add events for now

    def _deliver(self, attachment: Attachment, frame: Envelope, now: int) -> None:
        """Deliver a frame. A switch wakes the ports that forward it."""
        self.last_arrival = now
        segment = attachment.segment
        if self.on_arrival or segment.on_arrival or attachment.on_arrival:
            self._show(frame, self.on_arrival, segment.on_arrival, attachment.on_arrival)
        if attachment.relay is not None:
            attachment.relay.receive(frame, now)
        else:
            attachment.port.receive(frame.data, now)
            self._awake[attachment] = None

    def _deliver_all(self, attachment: Attachment, frames: list[Envelope], now: int) -> None:
        """Deliver frames that arrive together; one by one if there is a tap."""
        self._events += len(frames) - 1
        if self.on_arrival or attachment.segment.on_arrival or attachment.on_arrival:
            for frame in frames:
                self._deliver(attachment, frame, now)
        else:
            self.last_arrival = now
            attachment.receive_all(frames, now)
            if attachment.relay is None:
                self._awake[attachment] = None

    def _transmit(self, now: int) -> None:
        """Take one burst from each port that is awake; a port without frames sleeps."""
        awake = self._awake
        for attachment in tuple(awake):
            relay = attachment.relay
            if relay is None:
                count = self._burst(attachment, now)
            else:
                # Not in a method of its own, as it is done for each frame: one more hop.
                frames = relay.transmit(now)
                for frame in frames:
                    one = frame.forwarded() if frame.id else self._first_hop(attachment, frame.data)
                    self._send(attachment, one, now)
                count = len(frames)
            self._events += count
            if attachment.paced or not count:
                del awake[attachment]
                attachment.timer = attachment.port.next_timer()
                self._queue.add_timer(attachment)

    def _burst(self, attachment: Attachment, now: int) -> int:
        """Number and send the next frames of an adapter. Return their number."""
        frames = attachment.port.transmit(now)
        for data in frames:
            self._send(attachment, self._first_hop(attachment, data), now)
        return len(frames)

    def _first_hop(self, attachment: Attachment, data: bytes) -> Envelope:
        """Number a frame on its first link."""
        self._frames += 1
        return Envelope(data, self._frames, attachment.mac, 1)

    def _send(self, attachment: Attachment, frame: Envelope, now: int) -> None:
        """Put a frame on the link. A frame to the port's own address loops back."""
        mac, segment = frame.data[:MAC_BYTES], attachment.segment
        if mac == attachment.mac:
            self._queue.add_arrival(now, (attachment,), frame)
            return
        if self.on_sent or segment.on_sent or attachment.on_sent:
            self._show(frame, self.on_sent, segment.on_sent, attachment.on_sent)
        receivers = segment.by_mac.get(mac) or segment.others(attachment)
        time = None if attachment.held else segment.straight(frame, now)
        if time is not None:
            self._queue.add_arrival(time, receivers, frame)
        else:
            self._carry(attachment, frame, receivers)

    def _carry(
        self, attachment: Attachment, frame: Envelope, receivers: tuple[Attachment, ...]
    ) -> None:
        """Put a frame on a link that may delay, change, duplicate or lose it."""
        overtaken = tuple(attachment.held)
        arrivals = attachment.segment.link.carry(frame, self.now)
        for arrival in arrivals:
            if isinstance(arrival, ReorderedArrival):
                self._hold(attachment, arrival, receivers)
            else:
                self._queue.add_arrival(arrival[0], receivers, arrival[1])
        if overtaken:
            self._overtake(attachment, overtaken, arrivals)

    def _show(self, frame: Envelope, *listening: list[Tap]) -> None:
        for taps in listening:
            for tap in taps:
                tap(frame, self.now)

    def _hold(
        self, attachment: Attachment, held: ReorderedArrival, receivers: tuple[Attachment, ...]
    ) -> None:
        """Hold a frame until later ones have overtaken it, or until its latest time."""
        hold = HeldFrame(held.frame, held.behind, receivers)
        attachment.held.append(hold)
        hold.deadline = self.call_at(held.time, partial(self._release_now, attachment, hold))

    def _release_now(self, attachment: Attachment, hold: HeldFrame) -> None:
        self._release(attachment, hold, self.now)

    def _overtake(
        self, attachment: Attachment, overtaken: tuple[HeldFrame, ...], arrivals: list[Arrival]
    ) -> None:
        """Release held frames that this frame was the last to overtake."""
        times = [arrival.time for arrival in arrivals if not isinstance(arrival, ReorderedArrival)]
        for hold in overtaken if times else ():
            hold.behind -= 1
            if hold.behind <= 0:
                self._release(attachment, hold, max(times))

    def _release(self, attachment: Attachment, hold: HeldFrame, time: int) -> None:
        attachment.held.remove(hold)
        if hold.deadline is not None:
            hold.deadline.cancel()
        self._queue.add_arrival(time, hold.receivers, hold.frame)
