"""A NIC and its connection manager as one port: the manager sees each frame's outcome at once."""

from collections.abc import Sequence

from rdmawire.identifier import Randomness
from rdmawire.memory.argument import check_kind
from rdmawire.nic.cm.event import CMEvent
from rdmawire.nic.cm.machine import DEFAULTS, Neighbours
from rdmawire.nic.cm.manager import ConnectionManager
from rdmawire.nic.cm.settings import CMSettings
from rdmawire.nic.engine import BURST, Nic

LONGEST_DATAGRAM = 512
"""Bytes that no frame with a connection management datagram exceeds, whatever its headers."""


class ManagedPort:
    """What stands at the end of a link where connections are managed.

    ``neighbours`` finds the Ethernet address of a GID (``dict.get`` will do), and ``random`` is
    what ids, starting PSNs and ports are drawn from: ``random.Random(1)`` draws the same ones in
    each run. ``manager`` takes the owner's calls, ``nic`` is the adapter. All public
    attributes of the adapter (verbs, addresses, counters) are here as well. Only ``next_event``
    differs: it returns events of connections; those of the adapter stay with ``nic``::

        port = ManagedPort(host.nic, {peer.gid: peer.mac}.get, Random(1))
        world.attach(port, host.mac, link)
        port.manager.listen(service_id(PortSpace.TCP, 7174))

    After a call of the manager's there may be something to send: ``World.run`` asks for that.
    """

    def __init__(
        self,
        nic: Nic,
        neighbours: Neighbours,
        random: Randomness,
        settings: CMSettings = DEFAULTS,
    ) -> None:
        self.nic = nic
        self._manager = ConnectionManager(nic, neighbours, random, settings)

    def receive(self, frame: bytes, now: int) -> None:
        """Take in one Ethernet frame, without its FCS."""
        self.nic.receive(frame, now)
        self._manager.poll(now, frame)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Take in frames that came one after the other, as if each had come alone.

        Runs of frames too long for the manager go to the adapter together, which costs less.
        ``VerbsError`` for the first that is not bytes; those before it are taken in.
        """
        check_kind("frames", frames, Sequence)
        run: list[bytes] = []
        for frame in frames:
            if _is_data(frame) and not self._manager.unconfirmed:
                run.append(frame)
                continue
            self._receive_run(run, now)
            run = []
            self.receive(frame, now)
        self._receive_run(run, now)

    def _receive_run(self, run: list[bytes], now: int) -> None:
        self.nic.receive_all(run, now)
        self._manager.poll(now)

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        """The next frames to send, ``most`` of them at most; none when nothing is ready."""
        return self.nic.transmit(now, most)

    @property
    def sends_more(self) -> bool:
        """Whether ``transmit`` may have more frames, before anything else happens."""
        return self.nic.sends_more

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns), if anything waits. Asking changes nothing."""
        timers = (self.nic.next_timer(), self._manager.next_timer())
        return min((time for time in timers if time is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Do what is due."""
        self.nic.handle_timer(now)
        self._manager.handle_timer(now)

    def next_event(self) -> CMEvent | None:
        """The oldest event of the manager's that nobody took yet."""
        return self._manager.next_event()

    def events(self) -> list[CMEvent]:
        """All events of the manager's that nobody took yet, the oldest first."""
        return list(iter(self.next_event, None))

    @property
    def manager(self) -> ConnectionManager:
        """Who listens, connects, accepts, rejects and disconnects."""
        return self._manager


def _is_data(frame: bytes) -> bool:
    """Whether a frame is too long for a connection management datagram."""
    return frame.__class__ is bytes and len(frame) > LONGEST_DATAGRAM


def _of_adapter(name: str) -> property:
    """A property that reads an attribute of the adapter, and sets it where the adapter does."""

    def get(port: ManagedPort) -> object:
        return getattr(port.nic, name)

    def put(port: ManagedPort, value: object) -> None:
        setattr(port.nic, name, value)

    found = getattr(Nic, name, None)
    settable = isinstance(found, property) and found.fset is not None
    return property(get, put if settable else None, doc=found.__doc__)


_OF_EACH_ADAPTER = ("device", "groups")
"""Attributes that the constructor of ``Nic`` sets, and its class does not have."""

for _name in (*dir(Nic), *_OF_EACH_ADAPTER):
    if not _name.startswith("_") and not hasattr(ManagedPort, _name):
        setattr(ManagedPort, _name, _of_adapter(_name))
