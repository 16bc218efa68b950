"""A port whose owner is told at once: what applications need that react inside a world."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rdmawire.ib.cm.event import CMEvent
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.engine import BURST, Nic
from rdmawire.memory.argument import check_kind
from rdmawire.verbs.async_event import Event

Taken: TypeAlias = Callable[[bytes, int], None]
"""Sees the bytes of a frame, and when (ns) it was taken in."""

Hear: TypeAlias = Callable[[Event | CMEvent], None]
"""What an owner does about an event."""


class AttendedPort:
    """A NIC, with or without a connection manager, and an application that waits for events.

    ``hear`` is told of each event when it happens, of the NIC's and of the manager's, and may post
    work or answer meanwhile. What it gives to other hosts they must be woken for
    (:meth:`~rdmawire.fabric.network.Network.wake`). ``on_taken`` see each frame after it was
    taken in, and all that it led to was told. ``nic`` and ``managed`` are those given::

        port = AttendedPort(host.nic, managed)
        port.hear = lambda event: print(event)
        world.attach(port, host.mac, link)
    """

    def __init__(self, nic: Nic, managed: ManagedPort | None = None) -> None:
        self.nic = nic
        self.managed = managed
        self.hear: Hear = _nobody
        self.on_taken: list[Taken] = []
        self._port = nic if managed is None else managed

    def receive(self, frame: bytes, now: int) -> None:
        """Take in one Ethernet frame, without its FCS."""
        self._port.receive(frame, now)
        self.tell()
        for taken in self.on_taken:
            taken(frame, now)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Take in frames that came one after the other; the owner hears of each in its turn."""
        check_kind("frames", frames, Sequence)
        for frame in frames:
            self.receive(frame, now)

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        """The next frames to send, ``most`` of them at most.

        Work that ends without any may lead to more work.
        """
        frames = self._port.transmit(now, most)
        while self.tell() and not frames:
            frames = self._port.transmit(now, most)
        return frames

    @property
    def sends_more(self) -> bool:
        """Whether ``transmit`` may have more frames, before anything else happens."""
        return self.nic.sends_more

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns), if anything waits. Asking changes nothing."""
        return self._port.next_timer()

    def handle_timer(self, now: int) -> None:
        """Do what is due."""
        self._port.handle_timer(now)
        self.tell()

    def tell(self) -> bool:
        """Have the owner hear of all that happened; whether anything did."""
        event = first = self._next_event()
        while event is not None:
            self.hear(event)
            event = self._next_event()
        return first is not None

    def _next_event(self) -> Event | CMEvent | None:
        event = self.nic.next_event()
        if event is None and self.managed is not None:
            return self.managed.next_event()
        return event


def _nobody(_: Event | CMEvent) -> None:
    """Nobody listens yet."""
