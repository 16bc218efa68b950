"""Hosts with a topology: DMA takes the time of their links, and only what may be reached is."""

from pathlib import Path
from typing import Any

import pytest

from rdmawire.doctor import examine_scenario
from rdmawire.topology import PeerStatus, read_time, write_time
from rdmawire.topology.route import memory_route, peer_route
from rdmawire.traffic.scenario import (
    Outcome,
    ScenarioError,
    open_host,
    play,
    read_scenario,
    read_scenario_text,
    read_shipped,
)

TEXT = """
name: a WRITE between GPUs
hosts:
  client:
    CLIENT
    gpus: {gpu0: H200}
    memory: {source: {size: SIZE, gpu: gpu0, fill: random}}
  server:
    SERVER
    gpus: {gpu0: H200}
    memory: {sink: {size: SIZE, gpu: gpu0, VIA}}
links: {client-server: {latency: 1 us, rate: 400 Gbit/s}}
connections: {a: {between: "client, server", mtu: 4096}}
work: [{write: {on: client/a, from: client.source, to: server.sink}}]
expect: {memory: {server.sink: client.source}}
"""


def text(client: str = "", server: str = "", via: str = "via: peermem", size: str = "4 KiB") -> str:
    filled = TEXT.replace("CLIENT", f"topology: {client}" if client else "profile: ibta")
    filled = filled.replace("SERVER", f"topology: {server}" if server else "profile: ibta")
    return filled.replace("VIA", via).replace("SIZE", size)


def ended(outcome: Outcome) -> int:
    """The virtual time at which the last frame has arrived."""
    assert not outcome.failures
    return outcome.testbed.network.simulator.last_arrival


def played(*args: Any, **more: Any) -> int:
    return ended(play(read_scenario_text(text(*args, **more))))


def test_dma_adds_the_time_of_the_links_at_either_end() -> None:
    machine = open_host("dgx-h200").machine
    adapter, gpu = machine.device("mlx5_0"), machine.device("GPU0")
    route = peer_route(machine, adapter, gpu)
    plain = played()
    reads = played("{host: dgx-h200}") - plain
    assert reads == pytest.approx(read_time(machine, route, 4096), abs=2)
    writes = played("", "{host: dgx-h200}") - plain
    assert writes == pytest.approx(write_time(machine, route, 4096), abs=2)
    assert played("dgx-h200", "dgx-h200") - plain == pytest.approx(reads + writes, abs=2)


def test_devices_that_are_far_from_each_other_take_longer() -> None:
    near = played("", "{host: dgx-h200, gpu: GPU0, adapter: mlx5_0}")
    far = played("", "{host: dgx-h200, gpu: GPU0, adapter: mlx5_1}")
    with_acs = played("", "{host: dgx-h200, acs: [sw0]}")
    translated = played("", "{host: dgx-h200, acs: [sw0], iommu: translated}")
    assert near < far
    assert near < with_acs < translated


def test_the_nearest_adapter_is_the_default() -> None:
    scenario = read_scenario_text(text("{host: dgx-h200, gpu: GPU3}", "dgx-h200"))
    places = [host.topology for host in scenario.hosts]
    assert [(one.gpu, one.adapter, one.node) for one in places if one is not None] == [
        ("GPU3", "mlx5_3", 0),
        ("GPU0", "mlx5_0", 0),
    ]


REFUSED = {
    "{host: two-sockets, gpu: GPU1}": PeerStatus.TOPOLOGY,
    "{host: dgx-h200, acs: [sw0g], peer to peer: false}": PeerStatus.CHIPSET,
    "vm": PeerStatus.CHIPSET,
    "workstation": PeerStatus.GPU,
}


@pytest.mark.parametrize("place", REFUSED)
@pytest.mark.parametrize("via", ["peermem", "peermem-legacy", "dmabuf"])
def test_memory_of_a_gpu_that_may_not_be_accessed_is_refused(place: str, via: str) -> None:
    scenario = read_scenario_text(text("", place, f"via: {via}"))
    server = scenario.hosts[1].topology
    assert server is not None
    assert server.status is REFUSED[place]
    first = play(scenario).failures[0]
    assert first.found == f"EINVAL (Invalid argument: {REFUSED[place].meaning})"


@pytest.mark.parametrize("place", REFUSED)
def test_it_is_reached_through_host_memory(place: str) -> None:
    outcome = play(read_scenario_text(text("", place, "via: bounce")))
    assert ended(outcome) > played()
    assert outcome.counters["server.bounce_bytes"] == 4096


def test_a_bounce_passes_the_links_of_adapter_and_gpu() -> None:
    machine = open_host("two-sockets").machine
    adapter, gpu = machine.device("mlx5_0"), machine.device("GPU0")
    own = write_time(machine, memory_route(machine, adapter, 0), 4096)
    longer = played("", "{host: two-sockets, gpu: GPU0}", "via: bounce") - played("", "")
    route = memory_route(machine, gpu, 0).reversed()
    assert longer > own
    assert longer <= own + write_time(machine, route, 4096) + 2


def test_a_file_is_seen_from_the_folder_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "topology: mine\nnuma nodes: {0: 0-3}\nhost bridges: {root: 0}\n"
        "gpus: {G: {below: root, link: Gen3 x8}}\nadapters: {nic: {below: root, link: Gen3 x8}}\n"
    )
    (tmp_path / "scenario.yaml").write_text(text("", "mine.yaml"))
    scenario = read_scenario(tmp_path / "scenario.yaml")
    place = scenario.hosts[1].topology
    assert place is not None
    assert (place.gpu, place.adapter) == ("G", "nic")
    assert ended(play(scenario)) > played("", "dgx-h200")


@pytest.mark.parametrize("content", ["", "topology: mine\n", "\0\1"])
def test_errors_of_a_topology_file_are_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    (tmp_path / "scenario.yaml").write_text(text("", "mine.yaml"))
    with pytest.raises(ScenarioError, match=r"9:15: found mine\.yaml.*; expected the file of a"):
        read_scenario(tmp_path / "scenario.yaml")


def causes(scenario: str) -> list[str]:
    return [one.check.name for one in examine_scenario(read_scenario_text(scenario))]


def test_the_doctor_examines_the_devices_that_are_used() -> None:
    assert causes(text("dgx-h200", "{host: two-sockets, gpu: GPU0}")) == []
    redirected = "{host: dgx-h200, acs: [sw0], iommu: translated}"
    assert causes(text("dgx-h200", redirected)) == ["acs", "iommu"]
    far = text("", "{host: two-sockets, gpu: GPU1}", "via: bounce")
    assert causes(far) == ["other-socket", "through-host-memory"]


def test_the_doctor_finds_memory_of_another_socket() -> None:
    found = examine_scenario(
        read_scenario_text(
            "name: far\nhosts:\n  client: {memory: {source: 8}}\n"
            "  server: {topology: {host: two-sockets, memory node: 1}, memory: {sink: 8}}\n"
            "connections: {a: [client, server]}\n"
            "work: [{write: {on: client/a, from: client.source, to: server.sink}}]\n"
        )
    )
    assert [one.check.name for one in found] == ["memory-of-another-socket"]
    assert found[0].evidence == ["host memory of server is on node 1, mlx5_0 on node 0"]


SAME = (
    *("atomics", "cm-connect", "fenced", "gpu-to-gpu-write", "lost-first", "memory-window"),
    *("nak-remote-access", "read", "send", "srq-limit", "write-imm", "xrc"),
)


@pytest.mark.parametrize("name", SAME)
def test_a_topology_changes_no_result(name: str) -> None:
    """Shipped scenarios hold their expectations when each DMA takes time, and translations."""
    scenario = read_shipped(name)
    given = read_scenario_text(text("{host: two-sockets, gpu: GPU0, iommu: translated}"))
    place = {"topology": given.hosts[0].topology}
    hosts = tuple(host.model_copy(update=place) for host in scenario.hosts)
    outcome, plain = play(scenario.model_copy(update={"hosts": hosts})), play(scenario)
    assert not outcome.failures
    for host in hosts:
        for counted in ("messages", "bytes", "host_bytes", "gpu_direct_bytes"):
            of = f"{host.name}.{counted}"
            assert outcome.counters[of] == plain.counters[of]
