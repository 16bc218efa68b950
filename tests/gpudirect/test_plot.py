"""Pictures of hosts, transfers and kernels: they are drawn, and the same each time."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings

from rdmawire.gpudirect.kernel import GpuWrite, GpuWriteSpec, Happened
from rdmawire.gpudirect.plot import _host, draw_host, draw_timeline, draw_transfers
from rdmawire.gpudirect.transfer import TransferPath, TransferSpec, transfer
from rdmawire.topology import Machine, memory_route, peer_route
from rdmawire.traffic.scenario.topology_file import open_host, shipped_hosts
from tests.topology.machines import machines


@pytest.mark.parametrize("name", shipped_hosts())
def test_shipped_hosts_are_drawn(name: str, tmp_path: Path) -> None:
    machine = open_host(name).machine
    gpu, adapter = machine.gpus[0], machine.adapters[0]
    routes = [memory_route(machine, gpu, machine.nodes[-1].number)]
    if not gpu.coherent:
        routes.append(peer_route(machine, adapter, gpu))
    pictures = [tmp_path / "one.svg", tmp_path / "other.svg"]
    for picture in pictures:
        draw_host(machine, picture, routes)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    text = pictures[0].read_text(encoding="utf-8")
    ET.fromstring(text)
    assert f"<!-- {machine.name} -->" in text


@settings(max_examples=15)
@given(machines())
def test_any_host_is_drawn(machine: Machine) -> None:
    assert _host(machine, []).axes


def test_transfers_and_timelines_are_drawn(tmp_path: Path) -> None:
    machine = open_host("dgx-h200").machine
    specs = [
        TransferSpec(machine, "GPU0", "GPU1", path, size)
        for path in TransferPath
        if path is not TransferPath.UALINK
        for size in (8, 4096)
    ]
    draw_transfers([transfer(spec) for spec in specs], tmp_path / "times.png", "a title of $5")
    report = GpuWrite(GpuWriteSpec(messages=1)).run()
    draw_timeline(report.timeline, tmp_path / "line.svg", "a kernel")
    draw_timeline([Happened(0, "a$b", "$ at _ once")], tmp_path / "text.svg", "$")
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "line.svg").read_text(encoding="utf-8")
    assert "<!-- the doorbell is rung -->" in text
    assert "<!-- a.adapter -->" in text
