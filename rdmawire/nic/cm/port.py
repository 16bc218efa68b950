"""A NIC and its connection manager as one port: the manager sees each frame's outcome at once."""

from rdmawire.nic.cm.event import CMEvent
from rdmawire.nic.cm.machine import DEFAULTS, Neighbours, Randomness
from rdmawire.nic.cm.manager import ConnectionManager
from rdmawire.nic.cm.settings import CMSettings
from rdmawire.nic.engine import Nic


class ManagedPort:
    """What stands at the end of a link where connections are managed.

    ``next_event`` tells of connections; what the NIC tells stays with the NIC.
    """

    def __init__(
        self,
        nic: Nic,
        neighbours: Neighbours,
        random: Randomness,
        settings: CMSettings = DEFAULTS,
    ) -> None:
        self.nic = nic
        self.manager = ConnectionManager(nic, neighbours, random, settings)

    def receive(self, frame: bytes, now: int) -> None:
        """Take in one Ethernet frame, without its FCS."""
        self.nic.receive(frame, now)
        self.manager.poll(now, frame)

    def transmit(self, now: int) -> list[bytes]:
        """The next frames to send."""
        return self.nic.transmit(now)

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns), if anything waits. Asking changes nothing."""
        timers = (self.nic.next_timer(), self.manager.next_timer())
        return min((time for time in timers if time is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Do what is due."""
        self.nic.handle_timer(now)
        self.manager.handle_timer(now)

    def next_event(self) -> CMEvent | None:
        """The oldest event of the manager's that nobody took yet."""
        return self.manager.next_event()
