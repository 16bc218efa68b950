"""Networks between the devices of a service.

A network takes frames from its devices' engines and delivers them. :class:`DirectNetwork` does that
at once and without loss; :mod:`rdmawire.verbs_service.fabric_network` puts links and switches
between the devices, :mod:`rdmawire.verbs_service.udp_network` other services.
"""

from collections.abc import Sequence
from errno import EHOSTUNREACH
from ipaddress import IPv6Address
from operator import itemgetter
from typing import Final, Protocol

from rdmawire.errors import VerbsError
from rdmawire.ib import Nic
from rdmawire.live import now
from rdmawire.units import us
from rdmawire.verbs.ah import is_multicast, multicast_mac
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import EmulatedDevice

_TIMER_PERIOD: Final = us(100)
_BURST: Final = 128
"""Maximum frames that a device sends before the next device sends."""


class DeviceNetwork(Protocol):
    """What carries the frames of devices. Times are in ns."""

    def attach(self, devices: Sequence[EmulatedDevice]) -> None:
        """Carry the frames of these devices. Called once."""

    def resolve(self, gid: bytes) -> bytes:
        """Return the MAC address of a GID. ``VerbsError`` EHOSTUNREACH if no device has it."""

    def move(self, time: int) -> bool:
        """Move the frames that are due at ``time``. Return whether there were any."""

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits here: :meth:`move` would only check timers and descriptors."""

    def next_timer(self) -> int | None:
        """When :meth:`move` is due without new work (ns), or ``None``."""

    @property
    def fds(self) -> Sequence[int]:
        """Descriptors that are readable when there are frames to move."""

    def flush(self) -> None:
        """Write the buffered frames of a capture. Called before the service sleeps."""

    def close(self) -> None:
        """Complete captures, and close descriptors."""


def address_name(gid: bytes) -> str:
    """A GID as users write it: an IPv4 address if it is one."""
    address = IPv6Address(gid)
    return str(address.ipv4_mapped or address)


class Neighbours:
    """The MAC addresses of GIDs."""

    def __init__(self) -> None:
        self._macs: dict[bytes, bytes] = {}

    def add(self, gids: Sequence[bytes], mac: bytes) -> None:
        """Add the GIDs of a port."""
        self._macs |= dict.fromkeys(gids, mac)

    def knows(self, gid: bytes) -> bool:
        """Whether a port has this GID."""
        return gid in self._macs

    def resolve(self, gid: bytes) -> bytes:
        """Return the MAC address of a GID or group. ``VerbsError`` EHOSTUNREACH if unknown."""
        if is_multicast(gid):
            return multicast_mac(gid)
        mac = self._macs.get(gid)
        if mac is None:
            raise VerbsError(f"no device has the address {address_name(gid)}", EHOSTUNREACH)
        return mac


class DeviceTimers:
    """The timers of devices. They are checked at most every 100 us, since a check takes time."""

    def __init__(self) -> None:
        self._nics: list[Nic] = []
        self._next_check = 0

    def add(self, devices: Sequence[EmulatedDevice]) -> None:
        """Add devices."""
        self._nics += [device.nic for device in devices]

    def handle(self, time: int) -> bool:
        """Handle the timers that are due. Return whether there were any."""
        if time < self._next_check:
            return False
        self._next_check = time + _TIMER_PERIOD
        handled = False
        for nic in self._nics:
            due = nic.next_timer()
            if due is not None and due <= time:
                nic.handle_timer(time)
                handled = True
        return handled


def soonest(devices: Sequence[EmulatedDevice]) -> int | None:
    """When the next timer of the devices is due (ns), or ``None``."""
    times = (device.nic.next_timer() for device in devices)
    return min((time for time in times if time is not None), default=None)


_mac_of: Final = itemgetter(slice(6))


def by_destination(frames: list[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Split frames where their destination changes: MAC addresses and frames, in order."""
    mac = frames[0][:6]
    if len(frames) == 1 or len({*map(_mac_of, frames)}) == 1:
        return [(mac, frames)]
    runs = [(mac, list[bytes]())]
    for frame in frames:
        if frame[:6] != mac:
            mac = frame[:6]
            runs.append((mac, []))
        runs[-1][1].append(frame)
    return runs


class CapturedNetwork:
    """A network whose frames are captured if ``capture`` is given, without descriptors."""

    def __init__(self, capture: Capture | None = None) -> None:
        self.capture = capture

    def record(self, frames: list[bytes], time: int) -> None:
        """Capture frames that were sent at ``time`` (ns)."""
        if self.capture is not None:
            self.capture.write(frames, time)

    @property
    def fds(self) -> Sequence[int]:
        return ()

    def flush(self) -> None:
        if self.capture is not None:
            self.capture.flush()

    def close(self) -> None:
        if self.capture is not None:
            self.capture.close()


class DirectNetwork(CapturedNetwork):
    """A wire without latency, rate or loss. ``capture`` gets each frame once.

    Without a capture the messages between its devices need no packets.
    """

    def __init__(self, capture: Capture | None = None) -> None:
        super().__init__(capture)
        self.neighbours = Neighbours()
        self.devices: Sequence[EmulatedDevice] = ()
        self.by_mac: dict[bytes, EmulatedDevice] = {}
        self.timers = DeviceTimers()

    def attach(self, devices: Sequence[EmulatedDevice]) -> None:
        self.devices = devices
        self.timers.add(devices)
        for device in devices:
            self.by_mac[device.mac] = device
            self.neighbours.add(device.gids, device.mac)
        if self.capture is None:
            nics = {device.mac: device.nic for device in devices}
            for device in devices:
                device.local_nics = nics

    def resolve(self, gid: bytes) -> bytes:
        return self.neighbours.resolve(gid)

    @property
    def is_idle(self) -> bool:
        return not any(device.ready for device in self.devices)

    def move(self, time: int) -> bool:
        moved = self.timers.handle(time)
        return self.transmit(time) or moved

    def transmit(self, time: int) -> bool:
        """Capture and route the frames of all devices. Return whether there were any."""
        moved = False
        for device in self.devices:
            if device.ready:
                frames = device.nic.transmit(time, _BURST)
                if frames:
                    moved = True
                    self.record(frames, now())
                    for mac, run in by_destination(frames):
                        self.route(mac, run, device)
        return moved

    def route(self, mac: bytes, frames: list[bytes], sender: EmulatedDevice) -> None:
        """Deliver frames of a device here to one address."""
        self.deliver(mac, frames, sender)

    def deliver(self, mac: bytes, frames: list[bytes], sender: EmulatedDevice | None) -> None:
        """Deliver frames to one address, as ``sender`` or another service sent them.

        Frames to groups, and to addresses that no device has, go to all other devices.
        """
        receiver = self.by_mac.get(mac)
        if receiver is not None:
            receiver.nic.receive_all(frames, now())
            return
        for device in self.devices:
            if device is not sender:  # its engine has looped back its own
                device.nic.receive_all(frames, now())

    def next_timer(self) -> int | None:
        return soonest(self.devices)
