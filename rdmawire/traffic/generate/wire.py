"""The cable between the two adapters: it shows, loses and marks frames, in this order.

So a capture at the senders has frames as they were sent, those too that never arrived. Only what
carries data meets congestion: ACKs, requests for READs and CNPs are small and come one by one.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from rdmawire.fabric.flow import PRIORITIES, Classifier, marked
from rdmawire.fabric.line import bits, duration
from rdmawire.fabric.link import Arrival, Link
from rdmawire.fabric.mac import Adapter
from rdmawire.fabric.station import Tap
from rdmawire.traffic.generate.losses import Losses
from rdmawire.wire.inet import VLAN, Ethernet, EtherType
from rdmawire.wire.opcode import SHAPES, Payload

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

    def carry(self, frame: bytes, now: int) -> list[Arrival]:
        """Where a frame arrives."""
        self.frames += 1
        self.busy_until = max(self.busy_until, now + duration(bits(len(frame)), self.rate))
        lost = self.losses is not None and self.losses.takes_next()
        if lost and self.on_lost is not None:
            self.on_lost()
        for tap in self.on_sent:
            tap(frame, now)
        if lost:
            return []
        if self._marks and frame[self._bth] in DATA and self._random.random() < self._marks:
            frame = self._marked(frame)
        return self._link.carry(frame, now)

    def branch(self, mac: bytes) -> "Branch":
        """The link from the host with this MAC address to the switch."""
        return Branch(self, Link(self._link.latency, rate=self.rate), mac)

    def _marked(self, frame: bytes) -> bytes:
        """With Congestion Experienced, if the frame is ECN-capable."""
        bare, tag = untagged(frame)
        if not self._classifier.traits(bare).markable:
            return frame
        self.marked += 1
        return tagged(marked(bare), tag)


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

    def carry(self, frame: bytes, now: int) -> list[Arrival]:
        """Where a frame arrives: at the switch, or at the host."""
        if frame[len(self._mac) : 2 * len(self._mac)] == self._mac:
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
