"""Two ports on a cable, or several on a switch, seen from the capture point."""

import sys
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from itertools import takewhile
from random import Random
from typing import Final, Protocol

from rdmawire.fabric.classify import PRIORITIES, Classifier, marked
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link, wire_time
from rdmawire.fabric.port_queue import Adapter
from rdmawire.fabric.simulator import Channel, Port, Simulator, Tap
from rdmawire.fabric.switch import Switch
from rdmawire.fabric.switch_config import SwitchSettings
from rdmawire.traffic.generate.spec import CapturePoint, TrafficSpec
from rdmawire.units import us
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.opcode import SHAPES, Payload

_AHEAD: Final = 256
"""Frames for which losses are drawn at a time."""


class Losses(Protocol):
    """Decides on the loss of each frame, called once for each in sending order."""

    def takes_next(self) -> bool:
        """Return whether the next frame is lost."""


class Chance:
    """Loses each frame with the same probability (0.0 to 1.0); results can be read in advance."""

    def __init__(self, share: float, random: Random) -> None:
        self._share = share
        self._random = random
        self._drawn = 0
        self._sent = 0
        self._lost: deque[int] = deque()  # numbers of lost frames not yet sent

    def within(self, frames: int) -> tuple[int, ...]:
        """Return which of the next ``frames`` frames are lost, by their index from 0 on."""
        end = self._sent + frames
        self._draw(end)
        if not self._lost or self._lost[0] >= end:
            return ()
        return tuple(takewhile(frames.__gt__, (number - self._sent for number in self._lost)))

    def first(self, frames: int) -> int | None:
        """Return the index of the first lost frame among the next ones, if there is one."""
        end = self._sent + frames
        while not self._lost and self._drawn < end:
            self._draw(min(self._drawn + _AHEAD, end))
        return self._lost[0] - self._sent if self._lost and self._lost[0] < end else None

    def pass_by(self, frames: int) -> None:
        """Skip ``frames`` frames that were sent."""
        self._draw(self._sent + frames)
        self._sent += frames
        while self._lost and self._lost[0] < self._sent:
            self._lost.popleft()

    def takes_next(self) -> bool:
        number = self._sent
        if self._drawn <= number:
            self._draw(number + 1)
        self._sent = number + 1
        if not self._lost or self._lost[0] != number:
            return False
        self._lost.popleft()
        return True

    def _draw(self, end: int) -> None:
        """Draw the losses of all frames up to number ``end``."""
        if not self._share:
            self._drawn = max(self._drawn, end)
        draw, share = self._random.random, self._share
        while self._drawn < end:
            if draw() < share:
                self._lost.append(self._drawn)
            self._drawn += 1


class Pattern:
    """Loses the frames at these indexes, from 0 on."""

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
    """A link with a rate (bits a second), a latency (ns), losses and marks.

    ``marks`` is the share of ECN-capable data frames that are marked; ``bth`` is the offset of
    BTHs. Taps see frames as they are put on the link; for a lost frame, ``on_lost`` is called
    before them. ``frames`` counts sent frames, ``marked`` those that arrive with a mark.
    ``busy_until`` is the time at which the last frame, lost or not, is completely on the link.
    """

    def __init__(self, rate: int, latency: int, marks: float, random: Random, bth: int) -> None:
        self.rate = rate
        self.losses: Losses | None = None
        self.on_sent: list[Tap] = []
        self.on_lost: Callable[[], None] | None = None
        self.frames = self.marked = 0
        self.busy_until = 0
        self._latency = latency
        self._marks = marks
        self._bth = bth
        self._random = random
        self._classifier = Classifier()

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        """Return the arrival of a frame."""
        self.frames += 1
        sent = now + wire_time(len(frame.data), self.rate)
        self.busy_until = max(self.busy_until, sent)
        lost = self.losses is not None and self.losses.takes_next()
        if lost and self.on_lost is not None:
            self.on_lost()
        for tap in self.on_sent:
            tap(frame, now)
        if lost:
            return []
        if self._marks and frame.data[self._bth] in DATA and self._random.random() < self._marks:
            frame = self._marked(frame)
        return [Arrival(sent + self._latency, frame)]

    def branch(self, mac: bytes) -> "Branch":
        """Return the link from the host with this MAC address to the switch."""
        return Branch(self, Link(self._latency, rate=self.rate), mac)

    def _marked(self, frame: Envelope) -> Envelope:
        """Return the frame with Congestion Experienced, if it is ECN-capable."""
        bare, tag = untagged(frame.data)
        if not self._classifier.traits(bare).markable:
            return frame
        self.marked += 1
        return frame.altered(tagged(marked(bare), tag))


class Branch:
    """A host's link to the switch.

    Frames from the host (``mac``, 6 bytes) are shown, lost and marked by ``wire``. Frames from the
    switch have passed ``wire`` already, and arrive.
    """

    def __init__(self, wire: Wire, link: Link, mac: bytes) -> None:
        self.rate = wire.rate
        self._wire = wire
        self._link = link
        self._mac = mac

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        """Return the arrival of a frame, at the switch or at the host."""
        if frame.data[len(self._mac) : 2 * len(self._mac)] == self._mac:
            return self._wire.carry(frame, now)
        arrivals = self._link.carry(frame, now)
        self._wire.busy_until = max(self._wire.busy_until, arrivals[0].time)
        return arrivals


def _tag_of(vlan: int, priority: int) -> bytes:
    """Return a VLAN tag, preceded by its EtherType."""
    tag = VLAN(priority=priority, id=vlan).build()
    return _TAGGED + tag[:2]


def tagged(frame: bytes, tag: bytes) -> bytes:
    """Return the frame with a tag, or unchanged if the tag is empty."""
    return frame[:_MACS] + tag + frame[_MACS:]


def untagged(frame: bytes) -> tuple[bytes, bytes]:
    """Return the frame without its tag, and the tag."""
    if frame[_MACS : _MACS + 2] != _TAGGED:
        return frame, b""
    end = _MACS + 4
    return frame[:_MACS] + frame[end:], frame[_MACS:end]


class TaggedPort:
    """An adapter in a VLAN: adds a tag to sent frames, removes the tag of received ones.

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
        """Handle a frame; ``lost`` means that it never arrives."""

    def lost(self) -> None:
        """Handle the loss of a frame that was put on the cable."""


def bth_place(spec: TrafficSpec) -> int:
    """Return the offset of the BTH in each frame (bytes)."""
    network = IPv6.SIZE if spec.ipv6 else IPv4.SIZE
    tag = 0 if spec.vlan is None else VLAN.SIZE
    return Ethernet.SIZE + tag + network + UDP.SIZE


class Setup:
    """A simulator with one cable, or with one switch and a cable to each host.

    ``marks`` is the share of data frames that are marked. The switch has room for all frames: only
    specified losses and marks occur.
    """

    def __init__(self, spec: TrafficSpec, marks: float = 0.0) -> None:
        self.simulator = Simulator(time_limit=_ENDLESS, event_limit=sys.maxsize)
        random = Random(f"{spec.seed}/marks")  # noqa: S311 - it must be repeatable
        self._wire = Wire(spec.rate, spec.latency, marks, random, bth_place(spec))
        self._spec = spec
        self._watcher: Watcher | None = None
        self._losing = False
        self._wire.on_lost = self._lose
        self._switch = Switch(settings=_ROOMY) if spec.switched else None
        if spec.tap is CapturePoint.SENT:
            self._wire.on_sent.append(self._show)

    @property
    def sent(self) -> int:
        """Number of frames that hosts put on their cables."""
        return self._wire.frames

    @property
    def marked(self) -> int:
        """Number of frames that were marked in transit."""
        return self._wire.marked

    def attach(self, port: Port, mac: bytes) -> None:
        """Attach a host's port to its cable, in the ordered VLAN."""
        spec = self._spec
        if spec.vlan is not None:
            port = TaggedPort(port, spec.vlan, spec.pcp)
        link = self._wire if self._switch is None else self._wire.branch(mac)
        station = self.simulator.attach(port, mac, link)
        if spec.tap is CapturePoint.ARRIVED:
            station.on_arrival.append(self._show)
        if self._switch is not None:
            self._connect(self._switch, link, mac)

    def _connect(self, switch: Switch, link: Channel, mac: bytes) -> None:
        """Attach a port of the switch to the other end of a host's cable."""
        address = _SWITCH_MAC + len(switch.ports).to_bytes(2, "big")
        port = switch.add_port(address, link)
        station = self.simulator.attach_relay(port, address, link)
        port.wake = partial(self.simulator.wake, station)
        switch.give({mac: (port.number,)})

    def watch(self, losses: Losses, watcher: Watcher) -> None:
        """Set the losses and the watcher of all following frames."""
        self._wire.losses = losses
        self._watcher = watcher

    def rest(self) -> None:
        """Run until no event is left.

        The cable is then idle for more than an instant: a frame directly after the last one would
        begin at a fraction of a nanosecond.
        """
        self.simulator.run()
        self.simulator.run(max(self.simulator.now, self._wire.busy_until) + 1)

    def settle(self, is_done: Callable[[], bool]) -> None:
        """Run until ``is_done`` and all cables are idle; timers may be pending.

        Time advances in slices, which become longer while no frame moves.
        """
        least = time = _SLICE + 2 * self._spec.links * self._spec.latency
        while True:
            frames = self._wire.frames
            self.simulator.run(self.simulator.now + time)
            still = frames == self._wire.frames and not self._waits()
            if is_done() and still:
                return
            time = 2 * time if still else least

    def _waits(self) -> bool:
        """Whether frames are in flight from the switch to hosts."""
        if self._switch is None:
            return False
        queued = any(len(port.egress) for port in self._switch.ports)
        return queued or self.simulator.now < self._wire.busy_until

    def _lose(self) -> None:
        """Mark the next shown frame as lost, if it is shown at all."""
        self._losing = self._spec.tap is CapturePoint.SENT
        if self._watcher is not None:
            self._watcher.lost()

    def _show(self, frame: Envelope, now: int) -> None:
        lost, self._losing = self._losing, False
        if self._watcher is not None:
            self._watcher.frame(frame.data, now, lost)
