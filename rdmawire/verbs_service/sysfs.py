"""A private ``/sys``: the files of RDMA devices that programs such as UCX and NCCL read.

The tree is a folder with ``sys`` and ``dev``. The stand-in libraries and the preload library of
``csrc/sysfs`` find it by the variable ``RDMAWIRE_SYSFS``, the path of ``sys``. Files are as Linux
writes them (Documentation/ABI/stable/sysfs-class-infiniband, testing/sysfs-bus-pci).
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EINVAL
from ipaddress import IPv6Address
from itertools import islice
from pathlib import Path, PurePosixPath
from stat import S_IFCHR, S_ISREG
from typing import Final

from rdmawire.topology import DeviceKind, Machine
from rdmawire.topology.pcie import PcieLink
from rdmawire.verbs_service.device import NO_GID, EmulatedDevice
from rdmawire.verbs_service.pci_layout import PciFunction, functions_of

_CLASSES: Final = {
    DeviceKind.ADAPTER: "0x020000",
    DeviceKind.GPU: "0x030200",
    DeviceKind.NVME: "0x010802",
}
_BRIDGE: Final = "0x060400"
_VENDORS: Final = {DeviceKind.GPU: "0x10de"}
_NO_VENDOR: Final = "0x0000"
_TRANSFERS: Final = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""GT/s of a generation of PCIe."""
_BARS: Final = 13
"""Lines of ``resource``: six BARs, the ROM, and six of SR-IOV."""
_UVERBS_MAJOR, _FIRST_MINOR = 231, 192
_ATTRIBUTES: Final = ("address", "dev_id", "dev_port", "flags", "mtu", "operstate", "type")
"""Files of a network interface that programs read."""
_DEVICES: Final = ("/dev/null", "/dev/zero")
_NO_DEVICE: Final = (
    "UCX finds no RDMA devices: /dev/null is no character device that this user may read and write;"
    " make it with `mknod -m 666 /dev/null c 1 3`, or give the container a /dev"
)
FIRMWARE: Final = "1.0.0"
INTERFACE: Final = "lo"
"""The network interface of all ports: each machine has it. It does not have their addresses."""


def write_tree(
    folder: Path, machine: Machine, devices: Sequence[EmulatedDevice], rates: Sequence[float]
) -> None:
    """Write the tree to ``folder``, which exists: each device is an adapter of ``machine``.

    ``rates`` are those of ports, in Gbit/s. ``TopologyError`` if a PCI hierarchy is too large,
    ``OSError`` if a file cannot be written.
    """
    numbers = {device.name: number for number, device in enumerate(devices)}
    (folder / "sys/bus/pci/devices").mkdir(parents=True)
    _write(folder / "sys/class/infiniband_verbs", {"abi_version": "6"})
    _write(folder / "sys/module/nvidia_peermem", {"version": _driver_version()})
    (folder / "sys/class/infiniband").mkdir()
    (folder / "dev/infiniband").mkdir(parents=True)
    for function in functions_of(machine):
        _write_function(folder / "sys", function)
        if function.device is not None and function.device.name in numbers:
            number = numbers[function.device.name]
            _write_adapter(folder, function, devices[number], rates[number], number)


class CounterFiles:
    """The counters of devices in the tree below ``folder``, which :func:`write_tree` wrote.

    A file is overwritten in place: numbers only grow, so a reader never sees digits of an old one.
    """

    def __init__(self, folder: Path, devices: Sequence[EmulatedDevice]) -> None:
        self._ports = [
            (device, f"{folder}/sys/class/infiniband/{device.name}/ports/1") for device in devices
        ]
        self._written: dict[str, int] = {}
        self._changed: dict[str, int] = {}

    def write(self) -> None:
        """Write the counters that changed. ``OSError`` if a file cannot be written."""
        self.find_changed()
        self.write_changed(len(self._changed))

    def find_changed(self) -> None:
        """Find the counters that changed since they were written."""
        self._changed = {
            path: value
            for device, port in self._ports
            for folder, values in _counters(device).items()
            for name, value in values.items()
            if self._written.get(path := f"{port}/{folder}/{name}") != value
        }

    def write_changed(self, count: int) -> bool:
        """Write at most ``count`` of the counters that were found. Return whether more are left.

        ``OSError`` if a file cannot be written; the others are.
        """
        failed: OSError | None = None
        for path, value in list(islice(self._changed.items(), count)):
            del self._changed[path]
            try:
                _overwrite(path, f"{value}\n")
            except OSError as error:
                failed = error
            else:
                self._written[path] = value
        if failed is not None:
            raise failed
        return self.has_changes

    @property
    def has_changes(self) -> bool:
        """Whether counters were found that are left to be written."""
        return bool(self._changed)


def _counters(device: EmulatedDevice) -> dict[str, dict[str, int]]:
    counters = device.nic.counters
    return {
        "counters": counters.named("port"),
        "hw_counters": counters.named("rxe") | counters.named("mlx5"),
    }


_OVERWRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""For regular files alone: a program may have put a link there, or a FIFO, which would block."""


def _overwrite(path: str, text: str) -> None:
    fd = os.open(path, _OVERWRITE, 0o644)
    try:
        if not S_ISREG(os.fstat(fd).st_mode):
            raise OSError(EINVAL, "not a regular file", path)
        os.pwrite(fd, text.encode(), 0)
    finally:
        os.close(fd)


def _driver_version() -> str:
    """Return the version of the machine's NVIDIA driver; 0 if it has none.

    Programs such as NCCL register GPU memory by its address where nvidia-peermem is loaded.
    """
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return "0"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Create a folder with files, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


# PCI.


def _write_function(sysfs: Path, function: PciFunction) -> None:
    place = sysfs / "devices" / function.path
    kind = None if function.device is None else function.device.kind
    _write(
        place,
        {
            "class": _BRIDGE if kind is None else _CLASSES[kind],
            "vendor": _NO_VENDOR if kind is None else _VENDORS.get(kind, _NO_VENDOR),
            **dict.fromkeys(("device", "subsystem_vendor", "subsystem_device"), _NO_VENDOR),
            "revision": "0x00",
            "numa_node": str(function.node.number),
            "local_cpulist": function.node.cpus,
            "local_cpus": _mask(function.node.cpus),
            "resource": "\n".join([f"0x{0:016x} 0x{0:016x} 0x{0:016x}"] * _BARS),
            "uevent": f"PCI_SLOT_NAME={function.path.name}",
            **_link_files(function.link),
        },
    )
    (sysfs / "bus/pci/devices" / function.path.name).symlink_to(
        PurePosixPath("../../../devices") / function.path
    )


def _link_files(link: PcieLink) -> dict[str, str]:
    speed, width = f"{_TRANSFERS[link.generation]} GT/s PCIe", str(link.width)
    return {
        **{f"{when}_link_speed": speed for when in ("max", "current")},
        **{f"{when}_link_width": width for when in ("max", "current")},
    }


def _mask(cpus: str) -> str:
    """Write a list of processors, ``0-3,8``, as the mask that Linux writes: 32 bits a word."""
    mask = 0
    for part in filter(None, cpus.split(",")):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            mask |= 1 << number
    digits = f"{mask:x}"
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))


# RDMA.


def _write_adapter(
    folder: Path, function: PciFunction, device: EmulatedDevice, rate: float, number: int
) -> None:
    sysfs = folder / "sys"
    place = PurePosixPath("devices") / function.path
    home = sysfs / place / "infiniband" / device.name
    guid = guid_text(device)
    _write(
        home,
        {
            "node_type": "1: CA",
            "node_guid": guid,
            "sys_image_guid": guid,
            "node_desc": device.name,
            "fw_ver": FIRMWARE,
            "hw_rev": "0x0",
            "hca_type": "rdmawire",
            "board_id": "rdmawire",
        },
    )
    (home / "device").symlink_to(PurePosixPath("../..") / ".." / function.path.name)
    _write(sysfs / place / "net" / INTERFACE, _interface_attributes())
    (sysfs / "class/infiniband" / device.name).symlink_to(
        PurePosixPath("../..") / place / "infiniband" / device.name
    )
    _write_port(home / "ports/1", device, rate)
    _write_verbs(folder, place, device.name, number)


def _interface_attributes() -> dict[str, str]:
    """Return attributes that :data:`INTERFACE` has now: copies.

    A link to them would lead programs that walk through the tree out of it.
    """
    found = {"ifindex": "1"}
    for name in _ATTRIBUTES:
        with suppress(OSError):  # a container may have no /sys
            found[name] = Path("/sys/class/net", INTERFACE, name).read_text().rstrip("\n")
    return found


def guid_text(device: EmulatedDevice) -> str:
    """Return the GUID of a device as Linux writes it: four words."""
    guid = f"{device.guid:016x}"
    return ":".join(guid[at : at + 4] for at in range(0, 16, 4))


def _write_port(port: Path, device: EmulatedDevice, rate: float) -> None:
    _write(
        port,
        {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "link_layer": "Ethernet",
            "rate": f"{rate:g} Gb/sec",
            "lid": "0x0",
            "lid_mask_count": "0",
            "sm_lid": "0x0",
            "sm_sl": "0",
            "cap_mask": "0x00010000",
        },
    )
    _write_gids(port, device.gid_table)
    _write(port / "pkeys", {"0": "0xffff"})
    for name, values in _counters(device).items():
        _write(port / name, {counter: str(value) for counter, value in values.items()})


def _write_gids(port: Path, gids: Sequence[bytes]) -> None:
    """Write the GID table, and the attributes of each GID.

    Attributes of free slots are empty: the preload library lets reads of them fail with EINVAL.
    """
    table = {str(index): gid for index, gid in enumerate(gids)}
    _write(port / "gids", {index: IPv6Address(gid).exploded for index, gid in table.items()})
    free = [index for index, gid in table.items() if gid == NO_GID]
    for name, text in (("types", "RoCE v2"), ("ndevs", INTERFACE)):
        folder = port / "gid_attrs" / name
        _write(folder, dict.fromkeys(table, text))
        for index in free:
            (folder / index).write_bytes(b"")


def _write_verbs(folder: Path, place: PurePosixPath, name: str, number: int) -> None:
    """Write the uverbs device. Programs only check its file in /dev: UCX, that it is a device."""
    uverbs = f"uverbs{number}"
    home = folder / "sys" / place / "infiniband_verbs" / uverbs
    minor = f"{_UVERBS_MAJOR}:{_FIRST_MINOR + number}"
    _write(home, {"ibdev": name, "abi_version": "1", "dev": minor})
    (home / "device").symlink_to(PurePosixPath("../../../") / place.name)
    (folder / "sys/class/infiniband_verbs" / uverbs).symlink_to(
        PurePosixPath("../..") / place / "infiniband_verbs" / uverbs
    )
    _make_device(folder / "dev/infiniband" / uverbs)


def _make_device(file: Path) -> None:
    """Make a character device like one of the machine, or a link to that, or an empty file.

    Through a link `chmod -R` of root changes the mode of the machine's device. So root gets a
    device of its own by mknod(2), unless the file system is mounted with nodev. To other users
    mknod is refused: they get the link.
    """
    found = _usable_device()
    if found is None:
        file.touch()
        return
    try:
        os.mknod(file, S_IFCHR, os.stat(found).st_rdev)
        file.chmod(0o666)
        os.close(os.open(file, os.O_RDWR))
    except OSError:
        file.unlink(missing_ok=True)
        file.symlink_to(found)


def _usable_device() -> str | None:
    """Return a character device that this user may read and write, or ``None``."""
    for path in _DEVICES:
        if Path(path).is_char_device() and os.access(path, os.R_OK | os.W_OK):
            return path
    return None


def notes_of_machine() -> tuple[str, ...]:
    """Return a sentence for each thing that the tree lacks because the machine does."""
    return () if _usable_device() else (_NO_DEVICE,)
