"""Two ports on a cable, or many round a switch, seen from where the capture is taken."""

import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from rdmawire.fabric.settings import Settings
from rdmawire.fabric.station import Carrier, Port
from rdmawire.fabric.switch import Switch
from rdmawire.fabric.world import World
from rdmawire.traffic.generate.losses import Losses
from rdmawire.traffic.generate.order import Order, Tap
from rdmawire.traffic.generate.wire import TaggedPort, Wire
from rdmawire.units import us
from rdmawire.wire.inet import UDP, VLAN, Ethernet, IPv4, IPv6

_SLICE: Final = us(10)
_ENDLESS: Final = 1 << 62
_ROOMY: Final = Settings(buffer=_ENDLESS, queue=_ENDLESS)
"""A switch whose queues never overflow."""
_SWITCH_MAC: Final = b"\x06\0\0\0"
"""First bytes of the MAC addresses of a switch's ports, to which no frame is sent."""


class Watcher(Protocol):
    """Who is told of frames where the capture is taken."""

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        """A frame that passes here, and whether it is one that never arrives."""

    def lost(self) -> None:
        """A frame was put on the cable that never arrives."""


def bth_place(order: Order) -> int:
    """Where the BTH of each frame stands."""
    network = IPv6.SIZE if order.ipv6 else IPv4.SIZE
    tag = 0 if order.vlan is None else VLAN.SIZE
    return Ethernet.SIZE + tag + network + UDP.SIZE


class Setup:
    """A world with one cable, or with one switch and a cable to each host.

    ``marks`` is the share of frames with data that meet congestion. The switch has room for all
    frames: what is lost or marked is what the order asks for.
    """

    def __init__(self, order: Order, marks: float = 0.0) -> None:
        self.world = World(time_limit=_ENDLESS, event_limit=sys.maxsize)
        random = Random(f"{order.seed}/marks")  # noqa: S311 - it must be repeatable
        self._wire = Wire(order.rate, order.latency, marks, random, bth_place(order))
        self._order = order
        self._watcher: Watcher | None = None
        self._losing = False
        self._wire.on_lost = self._lose
        self._switch = Switch(settings=_ROOMY) if order.switched else None
        if order.tap is Tap.SENT:
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
        station = self.world.attach(port, mac, link)
        if order.tap is Tap.ARRIVED:
            station.on_arrival.append(self._show)
        if self._switch is not None:
            self._connect(self._switch, link, mac)

    def _connect(self, switch: Switch, link: Carrier, mac: bytes) -> None:
        """Put a port of the switch at the other end of a host's cable."""
        address = _SWITCH_MAC + len(switch.ports).to_bytes(2, "big")
        port = switch.add_port(address, link)
        station = self.world.place(port, address, link, relays=True)
        port.wake = partial(self.world.wake, station)
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
        self.world.run()
        self.world.run(max(self.world.now, self._wire.busy_until) + 1)

    def settle(self, is_done: Callable[[], bool]) -> None:
        """Run until something is so and all cables are still; timers may go on.

        Time goes on in slices, which become longer while nothing moves.
        """
        least = time = _SLICE + 2 * self._order.links * self._order.latency
        while True:
            frames = self._wire.frames
            self.world.run(self.world.now + time)
            still = frames == self._wire.frames and not self._waits()
            if is_done() and still:
                return
            time = 2 * time if still else least

    def _waits(self) -> bool:
        """Whether frames are on their way from the switch to hosts."""
        if self._switch is None:
            return False
        queued = any(len(port.egress) for port in self._switch.ports)
        return queued or self.world.now < self._wire.busy_until

    def _lose(self) -> None:
        """The frame is lost that is shown next, if it is shown at all."""
        self._losing = self._order.tap is Tap.SENT
        if self._watcher is not None:
            self._watcher.lost()

    def _show(self, frame: bytes, now: int) -> None:
        lost, self._losing = self._losing, False
        if self._watcher is not None:
            self._watcher.frame(frame, now, lost)
