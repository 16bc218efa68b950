"""The devices of a service: names, addresses, rates, and the engine of each."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from errno import EINVAL, ENODATA
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Place
from rdmawire.ib import Nic, QueuePair
from rdmawire.ib.congestion import CongestionController
from rdmawire.identifier import Randomness
from rdmawire.live import now
from rdmawire.memory import AddressSpace
from rdmawire.verbs import IBTA, AddressHandle
from rdmawire.verbs_service.device_memory import DeviceMemoryPool
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU

PROFILE: Final = replace(
    IBTA,
    name="verbs-service",
    max_sge=30,
    pkey_tbl_len=1,
    max_qp_wr=1 << 14,
    # The library counts the slots of work queues.
    frees_slots_at_poll=False,
    # As RoCE adapters do. With credits each receive posted to an empty queue would cause an ACK.
    end_to_end_credits=False,
)
"""The limits of devices: those of the standard's profile, and one P_Key."""

NO_GID: Final = bytes(16)
"""What a free slot of a GID table has, as in Linux."""
_GID_SLOTS: Final = 8
"""Slots of a GID table, or more if there are more GIDs."""

MAX_NAME: Final = 63
"""Maximum bytes of a device's name, as in ``ibv_device``."""

_LANES: Final = {1: 1, 4: 2, 8: 4, 12: 8, 2: 16}
"""``active_width`` by lanes."""
_USUAL_LANES: Final = 4
_SPEEDS: Final = {2.5: 1, 5: 2, 10: 8, 14: 16, 25: 32, 50: 64, 100: 128, 200: 256}
"""``active_speed`` by Gbit/s of one lane."""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device: its name, its place (MAC address, first GID), further GIDs, path MTU, and rate.

    ``rate`` is in Gbit/s: programs read it, and it limits nothing. ``congestion`` makes the
    congestion control of a queue pair; without it CNPs change no rate.
    """

    name: str
    place: Place
    more_gids: tuple[bytes, ...] = ()
    mtu: MTU = MTU.MTU_4096
    rate: float = 100
    congestion: Callable[[], CongestionController] | None = None


def link_local(mac: bytes) -> bytes:
    """The link-local GID of a port, from its MAC address. RFC 4291, appendix A."""
    return b"\xfe\x80" + bytes(6) + _eui64(mac)


def gid_table(gids: Sequence[bytes]) -> tuple[bytes, ...]:
    """The GID table of a port: its first GID, further ones, and the link-local one, ``gids[-1]``.

    As mlx5 has RoCEv2 GIDs: link-local at index 1, the first one at 3, further ones behind it, and
    free slots. Here the first one is at 0, too, and the link-local one at the last index.
    """
    first, *further, local = gids
    head = (first, local, NO_GID, first, *further)
    free = max(_GID_SLOTS - len(head), 1) - 1
    return (*head, *[NO_GID] * free, local)


def _eui64(mac: bytes) -> bytes:
    return bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:]


def numbered(count: int, name: str = "rw") -> tuple[DeviceSpec, ...]:
    """Devices ``rw0``, ``rw1`` and so on, with 10.0.0.1, 10.0.0.2 and so on."""
    return tuple(
        DeviceSpec(f"{name}{number}", Place.numbered(number + 1)) for number in range(count)
    )


Resolve = Callable[[bytes], bytes]
"""Returns the MAC address of a GID. ``VerbsError`` EHOSTUNREACH if no device has the GID."""


class EmulatedDevice:
    """One device: its engine, and the attributes that programs query.

    ``VerbsError`` EINVAL for a name that is empty or too long.
    """

    def __init__(self, spec: DeviceSpec, resolve: Resolve, random: Randomness | None) -> None:
        if not 0 < len(spec.name.encode()) <= MAX_NAME:
            raise VerbsError(f"device name {spec.name!r}: not 1 to {MAX_NAME} bytes", EINVAL)
        self.name = spec.name
        self.mac = spec.place.mac
        self.gids = (spec.place.gid, *spec.more_gids, link_local(self.mac))
        self.gid_table = gid_table(self.gids)
        self.mtu = spec.mtu
        self.guid = int.from_bytes(_eui64(self.mac), "big")
        self.resolve = resolve
        self.width, self.speed = _port_rate(spec.rate)
        self._congestion = spec.congestion
        self.nic = Nic(
            self.mac, self.gids, AddressSpace(), profile=PROFILE, random=random, clock=now
        )
        self.ready = self.nic.device.ready
        """The queue pairs with frames to send: empty if there are none."""
        self.memory = DeviceMemoryPool()
        self.xrc_files: dict[tuple[int, int], tuple[int, int]] = {}
        """The XRC domain of each file (device, inode), and how many contexts have it open."""
        self.local_nics: Mapping[bytes, Nic] = {}
        """The adapters, by MAC address, to which messages need no packets. Set by the network."""
        self.openers: Counter[QueuePair] = Counter()
        """How many contexts have each queue pair."""
        cq = self.nic.create_cq(1)
        self.xrc_target_queues = self.nic.alloc_pd(), cq, cq
        """PD, send CQ and receive CQ of XRC targets: ibv_create_qp_ex(3) gives them none."""

    def query_gid(self, index: int) -> bytes:
        """An entry of the GID table. ``VerbsError`` EINVAL beyond it."""
        if index >= len(self.gid_table):
            size = len(self.gid_table)
            raise VerbsError(f"GID index {index}: the table of {self.name} has {size}", EINVAL)
        return self.gid_table[index]

    def gid_at(self, index: int) -> bytes:
        """The GID of a path. ``VerbsError`` EINVAL beyond the table, ENODATA for a free slot."""
        gid = self.query_gid(index)
        if gid == NO_GID:
            raise VerbsError(f"GID index {index} of {self.name} is free: use 0 or 3", ENODATA)
        return gid

    def control_congestion(self, qp: QueuePair, path: AddressHandle) -> None:
        """Send CNPs for marked packets of a connected queue pair, and control its rate.

        CNPs are not ECN-capable. The rate is controlled if the device has a scheme for it, and the
        path an ECN-capable traffic class (RFC 3168, section 5): other packets are never marked.
        """
        ecn = path.traffic_class & ECN.CE
        self.nic.notify_congestion(qp, traffic_class=path.traffic_class & ~ECN.CE)
        if ecn and self._congestion is not None:
            self.nic.control_congestion(qp, self._congestion())


def _port_rate(rate: float) -> tuple[int, int]:
    """``active_width`` and ``active_speed`` whose product is at least ``rate`` Gbit/s."""
    options = ((lanes * speed, lanes, speed) for lanes in _LANES for speed in _SPEEDS)
    fitting = [option for option in options if option[0] >= rate]
    _, lanes, speed = min(fitting, default=(0, 12, 200), key=_usual_first)
    return _LANES[lanes], _SPEEDS[speed]


def _usual_first(option: tuple[float, int, float]) -> tuple[float, bool, int]:
    """Sort key for a rate with lanes and speed: four lanes first, which every program knows."""
    rate, lanes, _ = option
    return rate, lanes != _USUAL_LANES, lanes
