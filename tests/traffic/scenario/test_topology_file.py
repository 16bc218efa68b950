"""Hosts in YAML: what is read, and where errors are said to be."""

from pathlib import Path

import pytest

from rdmawire.errors import TopologyError
from rdmawire.topology import PcieLink
from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.topology_file import open_host, parse_topology, read_topology

HOST = """\
topology: small
numa nodes: {0: 0-7}
host bridges: {root: 0}
switches: {sw0: {below: root, link: gen4 x16, acs: true}}
gpus:
  GPU0: {below: sw0, link: Gen4 x16, model: A100, bar1: 64GiB}
  GPU1: sw0
  GPU2: root
nvlinks: 12
nvlink pairs: [GPU0-GPU2 x4]
adapters: {mlx5_0: {below: root, rate: 200G}}
iommu: passthrough
"""


def test_a_host_is_read() -> None:
    machine = read_topology(HOST)
    gpu = machine.device("GPU0")
    assert (gpu.link, gpu.bar1, gpu.model) == (PcieLink(4, 16), 64 << 30, "A100")
    assert machine.switches[0].acs
    assert dict(machine.nvlinks) == {
        ("GPU0", "GPU1"): 12, ("GPU0", "GPU2"): 4, ("GPU1", "GPU2"): 12,
    }  # fmt: skip
    assert machine.device("mlx5_0").rate == 200_000_000_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0-7", "7-0", "small.yaml:2:17: found '7-0'; expected processors as Linux lists them"),
        ("gen4 x16", "gen4 x15", "small.yaml:4:37: found 'gen4 x15'; expected a PCIe link"),
        (
            "GPU2: root",
            "GPU2: rot",
            "8:3: found GPU2 below 'rot'; expected a host bridge or",
        ),
        ("{root: 0}", "{root: 5}", "found NUMA node 5; expected a NUMA node of this host: 0"),
        ("passthrough", "on", "'on'; expected"),
        ("x4]", "x400]", "expected two GPUs"),
        ("nvlinks: 12", "nvlink: 12", "did you mean 'nvlinks'"),
        ("topology: small\n", "", "topology"),
    ],
)
def test_errors_are_placed(old: str, new: str, message: str) -> None:
    assert old in HOST
    with pytest.raises(ScenarioError) as caught:
        read_topology(HOST.replace(old, new), "small.yaml")
    assert message in str(caught.value)


def test_a_file_is_recognised_by_its_text(tmp_path: Path) -> None:
    path = tmp_path / "host.txt"
    path.write_text(HOST)
    assert open_host(str(path)).machine.name == "small"
    matrix = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPHB\t0-7\t0\nNIC0\tPHB\t X \n"
    found = parse_topology(matrix)
    assert [device.name for device in found.machine.devices] == ["GPU0", "NIC0"]
    assert found.notes


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"no such file.*did you mean 'dgx-h100'"):
        open_host("dgx-h1000")
    with pytest.raises(TopologyError, match="no PCI devices"):
        open_host(str(tmp_path))
