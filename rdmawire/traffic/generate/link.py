"""Two ports on a cable, or many round a switch, seen from where the capture is taken."""

import sys
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from itertools import takewhile
from random import Random
from typing import Final, Protocol

from rdmawire.fabric.classify import PRIORITIES, Classifier, marked
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link, bit_times, duration
from rdmawire.fabric.port_queue import Adapter
from rdmawire.fabric.simulator import Channel, Port, Simulator, Tap
from rdmawire.fabric.switch import Switch
from rdmawire.fabric.switch_config import SwitchSettings
from rdmawire.traffic.generate.spec import CapturePoint, Order
from rdmawire.units import us
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.opcode import SHAPES, Payload

_AHEAD: Final = 256
"""Frames that are drawn for at once."""


class Losses(Protocol):
    """Asked once for each frame, in the order in which they are sent."""

    def takes_next(self) -> bool:
        """Whether the next frame is lost."""


class Chance:
    """Each frame with the same chance (0.0 to 1.0). It may be asked ahead of time."""

    def __init__(self, share: float, random: Random) -> None:
        self._share = share
        self._random = random
        self._drawn = 0
        self._sent = 0
        self._lost: deque[int] = deque()  # numbers of frames, of those that were not sent yet

    def within(self, frames: int) -> tuple[int, ...]:
        """Return which of the next ``frames`` frames are lost, by their index from 0 on."""
        end = self._sent + frames
        self._draw(end)
        return tuple(takewhile(frames.__gt__, (number - self._sent for number in self._lost)))

    def first(self, frames: int) -> int | None:
        """Return the index of the first lost frame among the next ones, if there is one."""
        end = self._sent + frames
        while not self._lost and self._drawn < end:
            self._draw(min(self._drawn + _AHEAD, end))
        return self._lost[0] - self._sent if self._lost and self._lost[0] < end else None

    def pass_by(self, frames: int) -> None:
        """So many frames were sent."""
        self._draw(self._sent + frames)
        self._sent += frames
        while self._lost and self._lost[0] < self._sent:
            self._lost.popleft()

    def takes_next(self) -> bool:
        lost = bool(self.within(1))
        self.pass_by(1)
        return lost

    def _draw(self, end: int) -> None:
        """Draw for all frames up to this number."""
        if not self._share:
            self._drawn = max(self._drawn, end)
        draw, share = self._random.random, self._share
        while self._drawn < end:
            if draw() < share:
                self._lost.append(self._drawn)
            self._drawn += 1


class Pattern:
    """The frames at these places, from 0 on."""

    def __init__(self, places: Collection[int]) -> None:
        self._places = frozenset(places)
        self._sent = 0

    def takes_next(self) -> bool:
        self._sent += 1
        return self._sent - 1 in self._places


_TAGGED = EtherType.VLAN.to_bytes(2, "big")
_MACS = Ethernet.SIZE - 2

DATA: Final = frozenset(
    opcode for opcode, shape in SHAPES.items() if shape.payload is not Payload.NONE
)
"""Opcodes of packets that carry data."""


class Wire:
    """A link with a rate (bits a second), a latency (ns), and what befalls frames.

    ``marks`` is the share of frames with data, and with an ECN-capable transport, that meet
    congestion; ``bth`` is where BTHs stand. Taps see frames as they are put on the link, and
    ``on_lost`` is called before them where one will be lost. ``frames`` counts those that were
    sent, ``marked`` those that arrive with a mark. ``busy_until`` is when the last frame is all on
    the link, lost or not.
    """

    def __init__(self, rate: int, latency: int, marks: float, random: Random, bth: int) -> None:
        self.rate = rate
        self.losses: Losses | None = None
        self.on_sent: list[Tap] = []
        self.on_lost: Callable[[], None] | None = None
        self.frames = self.marked = 0
        self.busy_until = 0
        self._link = Link(latency, rate=rate)
        self._marks = marks
        self._bth = bth
        self._random = random
        self._classifier = Classifier()

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        """Where a frame arrives."""
        self.frames += 1
        self.busy_until = max(
            self.busy_until, now + duration(bit_times(len(frame.data)), self.rate)
        )
        lost = self.losses is not None and self.losses.takes_next()
        if lost and self.on_lost is not None:
            self.on_lost()
        for tap in self.on_sent:
            tap(frame, now)
        if lost:
            return []
        if self._marks and frame.data[self._bth] in DATA and self._random.random() < self._marks:
            frame = self._marked(frame)
        return self._link.carry(frame, now)

    def branch(self, mac: bytes) -> "Branch":
        """The link from the host with this MAC address to the switch."""
        return Branch(self, Link(self._link.latency, rate=self.rate), mac)

    def _marked(self, frame: Envelope) -> Envelope:
        """With Congestion Experienced, if the frame is ECN-capable."""
        bare, tag = untagged(frame.data)
        if not self._classifier.traits(bare).markable:
            return frame
        self.marked += 1
        return frame.altered(tagged(marked(bare), tag))


class Branch:
    """A host's link to the switch.

    Frames from the host (``mac``, 6 bytes) are shown, lost and marked by ``wire``. Frames from the
    switch went through that before, and arrive.
    """

    def __init__(self, wire: Wire, link: Link, mac: bytes) -> None:
        self.rate = wire.rate
        self._wire = wire
        self._link = link
        self._mac = mac

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        """Where a frame arrives: at the switch, or at the host."""
        if frame.data[len(self._mac) : 2 * len(self._mac)] == self._mac:
            return self._wire.carry(frame, now)
        arrivals = self._link.carry(frame, now)
        self._wire.busy_until = max(self._wire.busy_until, arrivals[0].time)
        return arrivals


def _tag_of(vlan: int, priority: int) -> bytes:
    """A VLAN tag, with the EtherType that announces it."""
    tag = VLAN(priority=priority, id=vlan).build()
    return _TAGGED + tag[:2]


def tagged(frame: bytes, tag: bytes) -> bytes:
    """The frame with a tag; as it is for none."""
    return frame[:_MACS] + tag + frame[_MACS:]


def untagged(frame: bytes) -> tuple[bytes, bytes]:
    """The frame without its tag, and the tag."""
    if frame[_MACS : _MACS + 2] != _TAGGED:
        return frame, b""
    end = _MACS + 4
    return frame[:_MACS] + frame[end:], frame[_MACS:end]


class TaggedPort:
    """An adapter in a VLAN: what it sends gets the tag, what comes with a tag loses it.

    The priority in the tag is the ``pcp``; ``None``: the class that the DSCP selects, RFC 2474,
    4.2.2.
    """

    def __init__(self, port: Adapter, vlan: int, pcp: int | None = None) -> None:
        classes = range(PRIORITIES)
        self._port = port
        self._tags = [_tag_of(vlan, each if pcp is None else pcp) for each in classes]
        self._classifier = Classifier()

    def receive(self, frame: bytes, now: int) -> None:
        self._port.receive(untagged(frame)[0], now)

    def transmit(self, now: int) -> list[bytes]:
        traits, tags = self._classifier.traits, self._tags
        return [tagged(one, tags[traits(one).priority]) for one in self._port.transmit(now)]

    def next_timer(self) -> int | None:
        return self._port.next_timer()

    def handle_timer(self, now: int) -> None:
        self._port.handle_timer(now)


_SLICE: Final = us(10)
_ENDLESS: Final = 1 << 62
_ROOMY: Final = SwitchSettings(buffer=_ENDLESS, queue=_ENDLESS)
"""A switch whose queues never overflow."""
_SWITCH_MAC: Final = b"\x06\0\0\0"
"""First bytes of the MAC addresses of a switch's ports, to which no frame is sent."""


class Watcher(Protocol):
    """Called with the frames at the capture point."""

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        """A frame that passes here, and whether it is one that never arrives."""

    def lost(self) -> None:
        """A frame was put on the cable that never arrives."""


def bth_place(order: Order) -> int:
    """Return the offset of the BTH in each frame (bytes)."""
    network = IPv6.SIZE if order.ipv6 else IPv4.SIZE
    tag = 0 if order.vlan is None else VLAN.SIZE
    return Ethernet.SIZE + tag + network + UDP.SIZE


class Setup:
    """A simulator with one cable, or with one switch and a cable to each host.

    ``marks`` is the share of frames with data that meet congestion. The switch has room for all
    frames: what is lost or marked is what the order asks for.
    """

    def __init__(self, order: Order, marks: float = 0.0) -> None:
        self.simulator = Simulator(time_limit=_ENDLESS, event_limit=sys.maxsize)
        random = Random(f"{order.seed}/marks")  # noqa: S311 - it must be repeatable
        self._wire = Wire(order.rate, order.latency, marks, random, bth_place(order))
        self._order = order
        self._watcher: Watcher | None = None
        self._losing = False
        self._wire.on_lost = self._lose
        self._switch = Switch(settings=_ROOMY) if order.switched else None
        if order.tap is CapturePoint.SENT:
            self._wire.on_sent.append(self._show)

    @property
    def sent(self) -> int:
        """Frames that hosts put on their cables."""
        return self._wire.frames

    @property
    def marked(self) -> int:
        """Frames that were marked on their way."""
        return self._wire.marked

    def attach(self, port: Port, mac: bytes) -> None:
        """Put a host's port on its cable, in the VLAN that is asked for."""
        order = self._order
        if order.vlan is not None:
            port = TaggedPort(port, order.vlan, order.pcp)
        link = self._wire if self._switch is None else self._wire.branch(mac)
        station = self.simulator.attach(port, mac, link)
        if order.tap is CapturePoint.ARRIVED:
            station.on_arrival.append(self._show)
        if self._switch is not None:
            self._connect(self._switch, link, mac)

    def _connect(self, switch: Switch, link: Channel, mac: bytes) -> None:
        """Put a port of the switch at the other end of a host's cable."""
        address = _SWITCH_MAC + len(switch.ports).to_bytes(2, "big")
        port = switch.add_port(address, link)
        station = self.simulator.attach_relay(port, address, link)
        port.wake = partial(self.simulator.wake, station)
        switch.give({mac: (port.number,)})

    def watch(self, losses: Losses, watcher: Watcher) -> None:
        """From now on, lose these frames, and show this watcher what there is to see."""
        self._wire.losses = losses
        self._watcher = watcher

    def rest(self) -> None:
        """Run until nothing is left that could happen.

        The cable is free for longer than an instant then: a frame that was back to back with the
        last one would begin at a fraction of a nanosecond.
        """
        self.simulator.run()
        self.simulator.run(max(self.simulator.now, self._wire.busy_until) + 1)

    def settle(self, is_done: Callable[[], bool]) -> None:
        """Run until something is so and all cables are still; timers may go on.

        Time goes on in slices, which become longer while nothing moves.
        """
        least = time = _SLICE + 2 * self._order.links * self._order.latency
        while True:
            frames = self._wire.frames
            self.simulator.run(self.simulator.now + time)
            still = frames == self._wire.frames and not self._waits()
            if is_done() and still:
                return
            time = 2 * time if still else least

    def _waits(self) -> bool:
        """Whether frames are on their way from the switch to hosts."""
        if self._switch is None:
            return False
        queued = any(len(port.egress) for port in self._switch.ports)
        return queued or self.simulator.now < self._wire.busy_until

    def _lose(self) -> None:
        """The frame is lost that is shown next, if it is shown at all."""
        self._losing = self._order.tap is CapturePoint.SENT
        if self._watcher is not None:
            self._watcher.lost()

    def _show(self, frame: Envelope, now: int) -> None:
        lost, self._losing = self._losing, False
        if self._watcher is not None:
            self._watcher.frame(frame.data, now, lost)
