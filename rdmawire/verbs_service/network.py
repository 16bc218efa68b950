"""Networks between the devices of a service.

A network takes frames from its devices' engines and delivers them. :class:`DirectNetwork` does that
at once and without loss.
"""

from errno import EHOSTUNREACH
from typing import Protocol

from rdmawire.errors import VerbsError
from rdmawire.ib.engine import GROUP_BIT
from rdmawire.live import now
from rdmawire.verbs.ah import is_multicast, multicast_mac
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import Device

_BURST = 128
"""Frames that a device sends before others do."""


class Network(Protocol):
    """What carries the frames of devices. Times are in ns."""

    def attach(self, device: Device) -> None:
        """Carry frames of a device, and to it."""

    def resolve(self, gid: bytes) -> bytes:
        """Return the MAC address of a GID. ``VerbsError`` EHOSTUNREACH if no device has it."""

    def move(self, time: int) -> bool:
        """Move the frames that are due. Return whether there were any."""

    def next_timer(self) -> int | None:
        """When :meth:`move` has something to do by itself, or ``None``."""

    def flush(self) -> None:
        """Write what is buffered of captures: nothing is to be done for a while."""

    def close(self) -> None:
        """Complete captures."""


class DirectNetwork:
    """A wire without latency, rate or loss. ``capture`` gets each frame once."""

    def __init__(self, capture: Capture | None = None) -> None:
        self._capture = capture
        self._devices: list[Device] = []
        self._by_mac: dict[bytes, Device] = {}
        self._macs: dict[bytes, bytes] = {}

    def attach(self, device: Device) -> None:
        self._devices.append(device)
        self._by_mac[device.mac] = device
        self._macs |= dict.fromkeys(device.gids, device.mac)

    def resolve(self, gid: bytes) -> bytes:
        if is_multicast(gid):
            return multicast_mac(gid)
        mac = self._macs.get(gid)
        if mac is None:
            raise VerbsError(f"GID {gid.hex()} is that of no device", EHOSTUNREACH)
        return mac

    def move(self, time: int) -> bool:
        moved = False
        for device in self._devices:
            nic = device.nic
            due = nic.next_timer()
            if due is not None and due <= time:
                nic.handle_timer(time)
            if nic.sends_more:
                frames = nic.transmit(now(), _BURST)
                if frames:
                    moved = True
                    if self._capture is not None:
                        self._capture.write(frames, now())
                    self._deliver(device, frames)
        return moved

    def _deliver(self, sender: Device, frames: list[bytes]) -> None:
        mac = frames[0][:6]
        if all(frame[:6] == mac for frame in frames):
            self._deliver_to(mac, sender, frames)
            return
        start = 0
        for end in range(1, len(frames) + 1):
            if end == len(frames) or frames[end][:6] != mac:
                self._deliver_to(mac, sender, frames[start:end])
                if end < len(frames):
                    start, mac = end, frames[end][:6]

    def _deliver_to(self, mac: bytes, sender: Device, frames: list[bytes]) -> None:
        if mac[0] & GROUP_BIT:
            for device in self._devices:
                if device is not sender:  # its engine has looped back its own
                    device.nic.receive_all(frames, now())
            return
        receiver = self._by_mac.get(mac)
        if receiver is not None:
            receiver.nic.receive_all(frames, now())

    def next_timer(self) -> int | None:
        times = (device.nic.next_timer() for device in self._devices)
        return min((time for time in times if time is not None), default=None)

    def flush(self) -> None:
        if self._capture is not None:
            self._capture.flush()

    def close(self) -> None:
        if self._capture is not None:
            self._capture.close()
