"""The doctor on hosts: each broken one has its cause, and healthy ones have none."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdmawire.doctor import HOST_CHECKS, LiveFacts, examine_host, read_live
from rdmawire.topology import DeviceKind, Iommu, Machine
from rdmawire.traffic.scenario.topology_file import open_host, parse_topology

HEALTHY = """
topology: a healthy host
numa nodes: {0: 0-31}
host bridges: {root0: 0}
switches: {sw0: {below: root0, link: Gen5 x16}}
gpus: {GPU0: {below: sw0, link: Gen5 x16, model: H200, bar1: 256GiB}}
adapters: {mlx5_0: {below: sw0, link: Gen5 x16, model: ConnectX-7, rate: 400G}}
"""


def machine(text: str = HEALTHY) -> Machine:
    return parse_topology(text.encode(), "test").machine


def causes(host: Machine, live: LiveFacts | None = None) -> list[str]:
    return [finding.check.name for finding in examine_host(host, live)]


def below_the_root(host: Machine) -> Machine:
    """Return the host with its GPU beside the switch."""
    devices = tuple(
        replace(one, parent="root0") if one.kind is DeviceKind.GPU else one for one in host.devices
    )
    return replace(host, devices=devices)


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-h200", "grace-hopper"])
def test_healthy_hosts_have_no_findings(name: str) -> None:
    assert causes(open_host(name).machine) == []
    assert causes(machine()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two-sockets", ["other-socket"]),
        ("vm", ["virtual-machine", "iommu"]),
        ("workstation", ["gpu-without-peer-to-peer", "slow-slot"]),
    ],
)
def test_shipped_hosts_with_problems(name: str, expected: list[str]) -> None:
    assert causes(open_host(name).machine) == expected


def test_acs() -> None:
    host = machine()
    switches = tuple(replace(switch, acs=True) for switch in host.switches)
    found = examine_host(replace(host, switches=switches))
    assert [one.check.name for one in found] == ["acs"]
    assert found[0].evidence == ["sw0 is between mlx5_0 and GPU0, and has ACS"]


def test_peer_to_peer_off() -> None:
    host = below_the_root(machine())
    off = replace(host, settings=replace(host.settings, peer_to_peer=False))
    assert "peer-to-peer-off" in causes(off)
    assert causes(host) == ["far-adapter"]


def test_relaxed_ordering_off() -> None:
    host = machine()
    strict = replace(host, settings=replace(host.settings, relaxed_ordering=False))
    found = examine_host(strict, None)
    assert [one.check.name for one in found] == ["strict-ordering"]
    assert found[0].evidence == ["relaxed ordering is off, for writes of mlx5_0 too"]


def test_a_translating_iommu() -> None:
    host = below_the_root(machine())
    host = replace(host, settings=replace(host.settings, iommu=Iommu.TRANSLATED))
    assert causes(host) == ["iommu", "far-adapter"]


def test_a_small_bar1_a_slow_slot_and_no_adapter() -> None:
    assert causes(machine(HEALTHY.replace("256GiB", "256MiB"))) == ["small-bar1"]
    slow = HEALTHY.replace("link: Gen5 x16, model: ConnectX", "link: Gen3 x8, model: ConnectX")
    assert causes(machine(slow)) == ["slow-slot"]
    none = "\n".join(line for line in HEALTHY.splitlines() if "adapters" not in line)
    assert causes(machine(none)) == ["no-adapter"]


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (LiveFacts(frozenset({"nvidia"}), (5, 4), None), ["no-peer-memory-driver"]),
        (LiveFacts(frozenset({"nvidia", "nvidia_peermem"}), (5, 4), None), []),
        (LiveFacts(frozenset({"nvidia"}), (6, 8), None), []),
        (LiveFacts(frozenset({"nvidia"}), (6, 8), 8 << 20), ["memlock"]),
    ],
)
def test_the_running_host(live: LiveFacts, expected: list[str]) -> None:
    assert causes(machine(), live) == expected


def test_facts_are_read(tmp_path: Path) -> None:
    for name in ("nvidia", "mlx5_ib"):
        (tmp_path / "module" / name).mkdir(parents=True)
    live = read_live(tmp_path)
    assert live.modules == {"nvidia", "mlx5_ib"}
    assert live.kernel > (2, 6)
    assert read_live(tmp_path / "none").modules == frozenset()


def test_each_check_has_all_its_texts() -> None:
    for check in HOST_CHECKS:
        assert check.cause
        assert check.remedy
        assert check.source
