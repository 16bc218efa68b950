"""Pictures of hosts, transfers and kernels: they are drawn, and the same each time."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.gpudirect.kernel import GpuWrite, GpuWriteSpec, Happened
from rdmawire.gpudirect.plot import (
    _LETTER,
    _MAX_LANES,
    _WIDTH,
    _host,
    _lanes,
    _span,
    _timeline,
    _used_links,
    draw_host,
    draw_links,
    draw_timeline,
    draw_transfers,
)
from rdmawire.gpudirect.transfer import TransferPath, TransferSpec, transfer
from rdmawire.topology import Machine, memory_route, nvlink_route, peer_route
from rdmawire.traffic.scenario.topology_file import open_host, shipped_hosts
from tests.effort import examples
from tests.topology.machines import machines


@pytest.mark.parametrize("name", shipped_hosts())
def test_shipped_hosts_are_drawn(name: str, tmp_path: Path) -> None:
    machine = open_host(name).machine
    gpu, adapter = machine.gpus[0], machine.adapters[0]
    routes = [("host", memory_route(machine, gpu, machine.nodes[-1].number))]
    if not gpu.coherent:
        routes.append(("peer", peer_route(machine, adapter, gpu)))
    picture = tmp_path / "host.svg"
    draw_host(machine, picture, routes)
    text = picture.read_text(encoding="utf-8")
    ET.fromstring(text)
    assert f"<!-- {machine.name} -->" in text


def test_a_host_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    machine = open_host("dgx-h200").machine
    pictures = [tmp_path / "one.svg", tmp_path / "other.svg"]
    for picture in pictures:
        draw_host(machine, picture, [])
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


@settings(max_examples=examples(8))
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
    reports = [transfer(spec) for spec in specs]
    draw_transfers(reports, tmp_path / "times.png", "a title of $5")
    draw_links(machine, reports[0], tmp_path / "links.svg", "8 bytes")
    assert "<!-- ↑ 8 bytes, busy 0% -->" in (tmp_path / "links.svg").read_text(encoding="utf-8")
    report = GpuWrite(GpuWriteSpec(messages=1)).run()
    draw_timeline(report.timeline, tmp_path / "line.svg", "a kernel")
    draw_timeline([Happened(0, "a$b", "$ at _ once")], tmp_path / "text.svg", "$")
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "line.svg").read_text(encoding="utf-8")
    assert "<!-- the doorbell is rung -->" in text
    assert "<!-- a.adapter -->" in text


@pytest.mark.parametrize("name", ["direct", "bounce", "nvlink"])
def test_each_link_has_its_bytes(name: str) -> None:
    machine = open_host("dgx-h200").machine
    report = transfer(TransferSpec(machine, "GPU0", "GPU1", TransferPath(name), 1 << 16))
    hosts = list(dict.fromkeys(host for host, _, _ in report.links))
    figure = _used_links(machine, report, hosts)
    assert [axes.get_title(loc="left") for axes in figure.axes] == hosts
    drawn = sum(text.get_text().count("64 KiB") for axes in figure.axes for text in axes.texts)
    assert drawn == sum(use.bytes == 1 << 16 for use in report.links.values())


def test_a_route_is_drawn_with_its_roots_alone() -> None:
    machine = open_host("dgx-h200").machine
    first, second = machine.gpus[:2]
    axes = _host(machine, [("NVLink", nvlink_route(machine, first, second))]).axes[0]
    assert "8 other roots not drawn" in axes.get_title(loc="left")
    names = {text.get_text() for text in axes.texts}
    assert {"root0", "root1"} <= names
    assert "root2" not in names
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["NVLink: GPU0 to GPU1"]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 50_000), st.text("ab ", min_size=1, max_size=40))))
def test_texts_of_a_timeline_cover_no_other(steps: list[tuple[int, str]]) -> None:
    entries = [Happened(time, "warp", what) for time, what in sorted(steps)]
    span = _span(entries)
    lanes: dict[int, float] = {}
    for text in _lanes(entries, span):
        assert lanes.get(text.lane, 0.0) <= text.time
        if text.lane < _MAX_LANES:
            lanes[text.lane] = text.time + len(text.what) * _LETTER / _WIDTH * span


def test_texts_without_room_are_counted() -> None:
    entries = [Happened(0, "warp", "a step")] * (_MAX_LANES + 3)
    axes = _timeline(entries, "a kernel").axes[0]
    assert axes.get_title(loc="left") == "a kernel (3 texts left out)"
    assert len(axes.texts) == _MAX_LANES
    assert not _timeline([], "nothing").axes[0].texts
