"""Hosts read from a folder as /sys has it, and from lspci -tv."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import TopologyError
from rdmawire.topology import DeviceKind, Iommu, Level, PcieLink
from rdmawire.topology.pci_tree import parse_lspci, read_sysfs
from rdmawire.topology.relation import pcie_level

ROOT, UP = "0000:80:02.0", "0000:81:00.0"
GPU_PORT, NIC_PORT = "0000:82:00.0", "0000:82:04.0"
GPU, NIC, DRIVE = "0000:83:00.0", "0000:84:00.0", "0000:01:00.0"

TREE = r"""
-+-[0000:80]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
 |           +-02.0-[81-84]----00.0-[82-84]--+-00.0-[83]----00.0  NVIDIA Corporation GH100 [H100]
 |           |                               \-04.0-[84]--+-00.0  Mellanox ConnectX-7
 |           |                                            \-00.1  Mellanox ConnectX-7
 |           \-04.0-[85]----00.0  Samsung Electronics Co Ltd NVMe SSD Controller PM9A3
 \-[0000:00]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
             +-1c.0-[01]--+-00.0  Mellanox Technologies MT27800 Family [ConnectX-5]
             |            \-00.1  Mellanox Technologies MT27800 Family [ConnectX-5]
             \-1d.0-[02]--+-00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]
                          \-00.1  NVIDIA Corporation GA100 High Definition Audio
"""


def acs_config(*, redirect: bool) -> bytes:
    """A configuration space with an AER and an ACS capability."""
    data = bytearray(4096)
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    data[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x14E:0x150] = (0x4 if redirect else 0x1).to_bytes(2, "little")
    return bytes(data)


def make_device(base: Path, path: str, **files: str | bytes) -> Path:
    """Make a PCI device at a path below /sys/devices, and its link in /sys/bus."""
    folder = base / "devices" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content.encode() + b"\n" if isinstance(content, str) else content
        (folder / name).write_bytes(data)
    links = base / "bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / folder.name).symlink_to(folder)
    return folder


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """A host with a switch, a GPU and a dual adapter below it, and a drive."""
    switch = f"pci0000:80/{ROOT}/{UP}"
    speed = {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "numa_node": "1"}
    make_device(
        tmp_path, f"pci0000:80/{ROOT}", class_="0x060400", config=acs_config(redirect=False)
    )
    make_device(tmp_path, switch, config=acs_config(redirect=False), **speed)
    for port in (GPU_PORT, NIC_PORT):
        make_device(tmp_path, f"{switch}/{port}", config=acs_config(redirect=port == GPU_PORT))
    resource = "0x00 0x00 0x00\n0x20000000000 0x201fffffffff 0x14220c\n"
    gpu = make_device(
        tmp_path, f"{switch}/{GPU_PORT}/{GPU}", device="0x2330", vendor="0x10de",
        resource=resource, local_cpulist="56-111,168-223", **speed,
    )  # fmt: skip
    (gpu / "class").write_text("0x030200\n")
    nic = make_device(tmp_path, f"{switch}/{NIC_PORT}/{NIC}", vendor="0x15b3", **speed)
    (nic / "class").write_text("0x020700\n")
    for name in ("mlx5_0", "mlx5_1"):
        (nic / "infiniband" / name).mkdir(parents=True)
    drive = make_device(tmp_path, f"pci0000:00/0000:00:1c.0/{DRIVE}", numa_node="-1")
    (drive / "class").write_text("0x010802\n")
    group = tmp_path / "kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (group / "type").write_text("DMA-FQ\n")
    (gpu / "iommu_group").symlink_to(group)
    return tmp_path


@pytest.mark.parametrize("part", ["", "bus/pci", "bus/pci/devices"])
def test_a_host_is_read_from_sysfs(sys: Path, part: str) -> None:
    machine, notes = read_sysfs(sys / part)
    names = [(device.name, device.address) for device in machine.devices]
    assert names == [("nvme0", DRIVE), ("GPU0", GPU), ("mlx5_0", NIC), ("mlx5_1", NIC)]
    gpu = machine.device("GPU0")
    assert gpu.model == "NVIDIA 0x2330"
    assert gpu.link == PcieLink(5, 16)
    assert gpu.bar1 == 0x201FFFFFFFFF - 0x20000000000 + 1
    assert pcie_level(machine, gpu, machine.device("mlx5_1")) is Level.PIX
    (switch,) = machine.switches
    assert (switch.name, switch.parent, switch.link) == (UP, "pci0000:80", PcieLink(5, 16))
    assert switch.acs
    assert [(node.number, node.cpus) for node in machine.nodes] == [(0, ""), (1, "56-111,168-223")]
    assert machine.settings.iommu is Iommu.TRANSLATED
    assert notes == ["NVLinks are not in /sys: nvidia-smi topo -m shows them"]


def test_acs_that_cannot_be_read_is_noted(sys: Path) -> None:
    (sys / f"bus/pci/devices/{GPU_PORT}/config").write_bytes(bytes(64))
    machine, notes = read_sysfs(sys)
    assert not machine.switches[0].acs
    assert notes[1:] == ["ACS of switches could not be read, which needs root"]


def test_capabilities_that_form_a_circle_end(sys: Path) -> None:
    data = bytearray(4096)
    data[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    (sys / f"bus/pci/devices/{GPU_PORT}/config").write_bytes(data)
    assert not read_sysfs(sys).machine.switches[0].acs


def test_folders_without_devices(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="no PCI devices are there"):
        read_sysfs(tmp_path)
    make_device(tmp_path, "pci0000:00/0000:00:1f.0", vendor="0x8086")
    with pytest.raises(TopologyError, match="of 1 PCI devices, none is a GPU, RDMA or NVMe"):
        read_sysfs(tmp_path)


def test_lspci_is_read() -> None:
    machine, notes = parse_lspci(TREE)
    found = [(device.name, device.address, device.parent) for device in machine.devices]
    assert found == [
        ("GPU0", "0000:83:00.0", "0000:81:00.0"),
        ("NIC0", "0000:84:00.0", "0000:81:00.0"),
        ("NIC1", "0000:84:00.1", "0000:81:00.0"),
        ("nvme0", "0000:85:00.0", "pci0000:80"),
        ("NIC2", "0000:01:00.0", "0000:00:1c.0"),
        ("NIC3", "0000:01:00.1", "0000:00:1c.0"),
        ("GPU1", "0000:02:00.0", "pci0000:00"),
    ]
    assert machine.of_kind(DeviceKind.NVME)[0].model.startswith("Samsung")
    assert len(notes) == 2


@given(st.text("-+[]|\\0123456789abcdef:. \nNVIDIA", max_size=400))
def test_any_tree_is_read_or_refused(text: str) -> None:
    try:
        machine, _ = parse_lspci(f"-[0000:00]-{text}")
    except TopologyError:
        return
    assert machine.devices
