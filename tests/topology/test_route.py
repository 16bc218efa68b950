"""Relations, whether peers may talk, and routes: on shipped hosts and on random ones."""

from dataclasses import replace

import pytest
from hypothesis import given

from rdmawire.errors import TopologyError
from rdmawire.topology import (
    Capability,
    Device,
    DeviceKind,
    HostBridge,
    Iommu,
    Level,
    Machine,
    NumaNode,
    PcieLink,
    PeerStatus,
    Settings,
    Switch,
    nearest,
    parse_matrix,
    peer_status,
    relation,
    topology_matrix,
)
from rdmawire.topology.advice import bounce_routes, gpu_advice
from rdmawire.topology.pcie import generation_of
from rdmawire.topology.relation import pcie_level, redirecting
from rdmawire.topology.route import (
    memory_route,
    nvlink_route,
    peer_route,
    scale_up_route,
    ualink_route,
)
from rdmawire.traffic.scenario.topology_file import open_host, shipped_hosts
from tests.topology.machines import machines

SMALL = Machine(
    "small",
    (NumaNode(0),),
    (HostBridge("root", 0),),
    (Switch("sw", "root", PcieLink(4, 16)),),
    (
        Device("GPU0", DeviceKind.GPU, "sw", PcieLink(4, 16)),
        Device("mlx5_0", DeviceKind.ADAPTER, "sw", PcieLink(4, 8)),
    ),
)


def host(name: str) -> Machine:
    return open_host(name).machine


@pytest.mark.parametrize(
    ("name", "gpu", "adapters", "level", "direct"),
    [
        ("dgx-h100", "GPU3", ["mlx5_3"], Level.PXB, True),
        ("dgx-h200", "GPU7", ["mlx5_7"], Level.PXB, True),
        ("two-sockets", "GPU0", ["mlx5_0"], Level.PIX, True),
        ("two-sockets", "GPU1", ["mlx5_0"], Level.SYS, False),
        ("workstation", "GPU0", ["mlx5_0"], Level.PHB, False),
        ("vm", "GPU0", ["mlx5_0"], Level.PHB, False),
        ("grace-hopper", "GPU0", ["mlx5_0"], Level.NODE, True),
        ("ualink-node", "GPU2", ["nic2"], Level.PIX, True),
    ],
)
def test_the_adapter_of_a_gpu(
    name: str, gpu: str, adapters: list[str], level: Level, direct: bool
) -> None:
    machine = host(name)
    advice = gpu_advice(machine, machine.device(gpu))
    assert [adapter.name for adapter in advice.adapters] == adapters
    assert advice.level is level
    assert advice.is_direct is direct
    assert bool(advice.remedies) is not direct


def test_every_shipped_host_is_tested() -> None:
    assert set(shipped_hosts()) == {
        *("dgx-h100", "dgx-h200", "grace-hopper", "two-sockets", "ualink-node", "vm"),
        "workstation",
    }


@given(machines())
def test_relations_and_routes_agree(machine: Machine) -> None:
    for one in machine.devices:
        for other in machine.devices:
            assert relation(machine, one, other) == relation(machine, other, one)
            if one.name == other.name:
                continue
            route = peer_route(machine, one, other)
            assert route.steps[0].source == one.name
            assert route.steps[-1].target == other.name
            pairs = zip(route.steps, route.steps[1:], strict=False)
            assert all(before.target == after.source for before, after in pairs)
            through = {step.target for step in route.steps}
            root = machine.bridge_of(one).name in through
            far = pcie_level(machine, one, other) > Level.PXB
            assert root == (far or bool(redirecting(machine, one, other)))


@given(machines())
def test_nearest_is_nearest(machine: Machine) -> None:
    for gpu in machine.gpus:
        found = {device.name for device in nearest(machine, gpu, DeviceKind.ADAPTER)}
        levels = {one.name: pcie_level(machine, gpu, one) for one in machine.adapters}
        assert found == {name for name, level in levels.items() if level == min(levels.values())}


def test_acs_sends_writes_to_the_root() -> None:
    gpu, adapter = SMALL.devices
    assert [str(step) for step in peer_route(SMALL, adapter, gpu).steps] == [
        "mlx5_0 -> sw: PCIe Gen4 x8, 14.4 GB/s",
        "sw -> GPU0: PCIe Gen4 x16, 28.8 GB/s",
    ]
    acs = replace(SMALL, switches=(replace(SMALL.switches[0], acs=True),))
    route = peer_route(acs, adapter, gpu)
    assert [step.target for step in route.steps] == ["sw", "root", "sw", "GPU0"]
    assert route.remarks == ["sw has ACS and sends requests to the root"]
    remedies = gpu_advice(acs, gpu).remedies
    assert remedies == ["turn ACS off at sw: writes would stay below the switch"]
    off = replace(acs, settings=replace(acs.settings, peer_to_peer=False))
    assert peer_status(off, adapter, gpu) is PeerStatus.CHIPSET
    assert peer_status(SMALL, adapter, gpu) is PeerStatus.OK


def test_a_translating_iommu_is_named() -> None:
    machine = host("two-sockets")
    translated = replace(machine, settings=replace(machine.settings, iommu=Iommu.TRANSLATED))
    route = peer_route(translated, machine.device("mlx5_0"), machine.device("GPU1"))
    assert "the IOMMU translates each address" in route.remarks


def test_ways_of_a_far_gpu() -> None:
    machine = host("two-sockets")
    adapter, gpu = machine.device("mlx5_0"), machine.device("GPU1")
    route = peer_route(machine, adapter, gpu)
    assert route.slowest is not None
    assert route.slowest.link == "UPI"
    to_memory, to_gpu = bounce_routes(machine, adapter, gpu)
    assert to_memory.steps[-1].target == to_gpu.steps[0].source == "memory of node 1"
    assert memory_route(machine, adapter, 0).steps[-1].link == "memory controller"


def test_nvlinks_have_the_rate_that_was_measured() -> None:
    machine = host("dgx-h200")
    route = nvlink_route(machine, machine.device("GPU0"), machine.device("GPU3"))
    assert route.steps[0].rate == pytest.approx(370.8e9)
    alone = nvlink_route(SMALL, SMALL.devices[0], SMALL.devices[1])
    assert alone.steps == []
    assert alone.slowest is None


def test_ualinks_have_the_rate_of_their_generation() -> None:
    """93% of 260 TB/s for 72 GPUs, in both directions, as AMD announced for Helios."""
    machine = host("ualink-node")
    first, last = machine.device("GPU0"), machine.device("GPU3")
    route = ualink_route(machine, first, last)
    assert route.steps[0].rate == pytest.approx(0.93 * 260e12 / 72 / 2, rel=0.01)
    assert scale_up_route(machine, first, last) == route
    assert nvlink_route(machine, first, last).steps == []
    slower = replace(machine, settings=replace(machine.settings, ualink="128G"))
    assert ualink_route(slower, first, last).steps[0].rate == pytest.approx(
        (route.steps[0].rate or 0) * 128 / 200, rel=0.001
    )
    dgx = host("dgx-h200")
    assert scale_up_route(dgx, *dgx.gpus[:2]) == nvlink_route(dgx, *dgx.gpus[:2])


def test_what_ualinks_allow() -> None:
    machine = host("ualink-node")
    first, second = machine.gpus[:2]
    assert str(relation(machine, first, second)) == "UA18"
    allowed = {one: peer_status(machine, first, second, one) is PeerStatus.OK for one in Capability}
    assert [one for one, is_allowed in allowed.items() if not is_allowed] == [Capability.NVLINK]
    again = parse_matrix(topology_matrix(machine))
    assert again.ualinks_between(again.gpus[0], again.gpus[3]) == 18
    assert not any(again.nvlinks.values())


def test_a_host_has_one_kind_of_links() -> None:
    machine = host("ualink-node")
    with pytest.raises(TopologyError, match="NVLinks and UALinks in one host"):
        replace(machine, nvlinks={("GPU0", "GPU1"): 4})


@pytest.mark.parametrize(
    ("link", "rate"), [(PcieLink(3, 16), 15.754e9), (PcieLink(5, 16), 63.015e9)]
)
def test_the_rate_of_a_link(link: PcieLink, rate: float) -> None:
    assert link.rate == pytest.approx(rate, rel=1e-3)
    assert link.data_rate(128) < link.data_rate(256) < link.rate


def test_speeds_of_linux() -> None:
    assert [generation_of(speed) for speed in (2.5, 5, 8, 16, 32, 64)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(TopologyError, match="12 GT/s"):
        generation_of(12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bridges": (HostBridge("root", 7),)}, "there is no NUMA node 7"),
        ({"switches": (Switch("sw", "nowhere"),)}, "sw is below 'nowhere'"),
        ({"switches": (Switch("sw", "sw"),)}, "switch sw is below itself"),
        ({"switches": (Switch("sw", "root"), Switch("sw", "root"))}, "'sw' is the name of two"),
        ({"nvlinks": {("GPU0", "mlx5_0"): 4}}, "an NVLink between GPU0 and mlx5_0: not two GPUs"),
        ({"settings": Settings(iommu_page=0)}, "IOMMU pages of 0 bytes"),
        ({"settings": Settings(iommu_page=12_288)}, "IOMMU pages of 12288 bytes; a power of two"),
        ({"ualinks": {("GPU0", "mlx5_0"): 4}}, "a UALink between GPU0 and mlx5_0: not two GPUs"),
    ],
)
def test_hosts_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        replace(SMALL, **changes)  # type: ignore[arg-type]


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(TopologyError, match="no device is called 'GPU9'; there are GPU0, mlx5_0"):
        SMALL.device("GPU9")
