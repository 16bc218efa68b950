"""A NIC and its connection manager as one port: the manager sees each frame's outcome at once."""

from rdmawire.nic.cm.event import CMEvent
from rdmawire.nic.cm.machine import DEFAULTS, Neighbours
from rdmawire.nic.cm.manager import ConnectionManager
from rdmawire.nic.cm.settings import CMSettings
from rdmawire.nic.engine import Nic
from rdmawire.nic.identifier import Randomness


class ManagedPort:
    """What stands at the end of a link where connections are managed.

    ``neighbours`` finds the Ethernet address of a GID (``dict.get`` will do), and ``random`` is
    what ids, starting PSNs and ports are drawn from: ``random.Random(1)`` draws the same ones in
    each run. ``manager`` takes the owner's calls, ``nic`` is the adapter. ``next_event`` tells of
    connections; what the NIC tells stays with the NIC::

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

    def transmit(self, now: int) -> list[bytes]:
        """The next frames to send."""
        return self.nic.transmit(now)

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
