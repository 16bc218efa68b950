"""Transfers: the data arrives by each path, with the copies, the bytes and the times it must."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import TransferError
from rdmawire.fabric import CaptureTap
from rdmawire.gpudirect.transfer import (
    MAX_SIZE,
    PLANS,
    LinkLayer,
    Registering,
    Transfer,
    TransferPath,
    TransferReport,
    TransferSpec,
    WireKind,
    transfer,
)
from rdmawire.topology import Costs, Machine, RegisteredKind, RegistrationMode, registration
from rdmawire.traffic.scenario.topology_file import open_host

DGX: Machine = open_host("dgx-h200").machine
SERVER: Machine = open_host("two-sockets").machine
PATHS = [path for path in TransferPath if path is not TransferPath.UALINK]
"""The paths of a DGX."""
KIB = 1 << 10
MIB = 1 << 20


@settings(max_examples=40)
@given(
    st.sampled_from(PATHS),
    st.integers(1, 200_000),
    st.sampled_from([0, 1000, 4096, 65_536]),
    st.integers(1, 5),
    st.sampled_from([256, 1024, 4096]),
    st.integers(0, 100),
    st.sampled_from(LinkLayer),
)
def test_data_arrives_by_each_path(
    path: TransferPath, size: int, chunk: int, slots: int, mtu: int, seed: int, layer: LinkLayer
) -> None:
    if PLANS[path].wire is WireKind.TCP:
        layer = LinkLayer.ETHERNET
    spec = TransferSpec(
        DGX, "GPU0", "GPU5", path, size, chunk, slots, mtu=mtu, seed=seed, layer=layer
    )
    report = transfer(spec)  # which checks the data
    plan = PLANS[path]
    assert report.copies == len(plan.sender) + len(plan.receiver)
    assert report.chunks == (-(-size // chunk) if plan.pipelined and chunk else 1)
    assert (report.frames > 0) == (plan.wire is not None)
    assert report.wire_bytes >= (size if plan.wire else 0)
    again = 2 if path is TransferPath.PAGEABLE else 1
    assert all(use.bytes <= again * size for use in report.links.values())
    assert max(use.bytes for use in report.links.values()) >= size


def test_direct_data_stays_below_the_switch() -> None:
    report = transfer(TransferSpec(SERVER, "GPU0", "GPU0", TransferPath.DIRECT, 10_000))
    assert {ends: use.bytes for ends, use in report.links.items()} == {
        ("sender", "GPU0", "sw0"): 10_000,
        ("sender", "sw0", "mlx5_0"): 10_000,
        ("receiver", "mlx5_0", "sw0"): 10_000,
        ("receiver", "sw0", "GPU0"): 10_000,
        # A100: one byte is read, after which kernels see the data.
        ("receiver", "GPU0", "sw0"): 1,
        ("receiver", "sw0", "mlx5_0"): 1,
    }


def test_bounced_data_takes_the_links_to_memory_twice() -> None:
    report = transfer(TransferSpec(SERVER, "GPU0", "GPU0", TransferPath.BOUNCE, 10_000))
    up, down = ("sw0", "pci0000_17"), ("pci0000_17", "sw0")
    for host in ("sender", "receiver"):
        assert report.links[host, *up].bytes == report.links[host, *down].bytes == 10_000


def test_chunks_that_overlap_are_faster() -> None:
    whole = TransferSpec(DGX, "GPU0", "GPU1", TransferPath.BOUNCE, 4 * MIB, chunk=0)
    parts = whole._replace(chunk=512 * KIB)
    single = parts._replace(slots=1)
    times = [transfer(spec).duration for spec in (parts, whole, single)]
    assert times == sorted(times)


def test_a_far_adapter_makes_bounced_data_slow() -> None:
    near = TransferSpec(SERVER, "GPU0", "GPU0", TransferPath.BOUNCE, MIB)
    assert transfer(near._replace(target="GPU1")).duration > 1.5 * transfer(near).duration


@pytest.mark.parametrize(
    ("host", "source", "target", "path", "message"),
    [
        ("two-sockets", "GPU1", "GPU1", "direct", "mlx5_0 may not access GPU1"),
        ("two-sockets", "GPU0", "GPU1", "nvlink", "have no NVLinks"),
        ("vm", "GPU0", "GPU0", "direct", "the root does not forward"),
        ("dgx-h200", "mlx5_0", "GPU0", "direct", "mlx5_0 is no GPU"),
    ],
)
def test_paths_that_a_host_does_not_have(
    host: str, source: str, target: str, path: str, message: str
) -> None:
    machine = open_host(host).machine
    with pytest.raises(TransferError, match=message):
        transfer(TransferSpec(machine, source, target, TransferPath(path), KIB))


def test_bar1_must_hold_what_is_registered() -> None:
    gpu = SERVER.device("GPU0")
    small = Machine(
        SERVER.name,
        SERVER.nodes,
        SERVER.bridges,
        SERVER.switches,
        tuple(
            type(gpu)(gpu.name, gpu.kind, gpu.parent, gpu.link, bar1=2 * MIB) if one is gpu else one
            for one in SERVER.devices
        ),
    )
    with pytest.raises(TransferError, match="BAR1 of GPU0 has room for 1048576"):
        transfer(TransferSpec(small, "GPU0", "GPU0", TransferPath.DIRECT, 2 * MIB))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "a transfer of 0 bytes"),
        ({"size": (1 << 30) + 1}, "1 to 1073741824"),
        ({"mtu": 1500}, "a path MTU of 1500"),
        ({"slots": 0}, "0 slots"),
        ({"size": MIB, "chunk": 1}, "take 16 or more"),
    ],
)
def test_specifications_that_cannot_be(change: dict[str, int], message: str) -> None:
    with pytest.raises(TransferError, match=message):
        Transfer(TransferSpec(DGX, "GPU0", "GPU1", TransferPath.BOUNCE)._replace(**change))  # type: ignore[arg-type]


def test_tcp_takes_ethernet() -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1", TransferPath.TCP, layer=LinkLayer.INFINIBAND)
    with pytest.raises(TransferError, match=r"TCP over InfiniBand \(IPoIB\) is not modelled"):
        transfer(spec)


def test_every_path_has_a_plan() -> None:
    assert set(PLANS) == set(TransferPath)
    assert {plan.wire for plan in PLANS.values()} == {*WireKind, None}


def test_the_packets_are_written(tmp_path: Path) -> None:
    from rdmawire.capture import open_capture

    one = Transfer(TransferSpec(DGX, "GPU0", "GPU1", TransferPath.TCP, 20_000))
    path = tmp_path / "tcp.pcap"
    with CaptureTap(path) as tap:
        for host in one.hosts:
            one.network.tap(host.name, tap.point(host.name))
        report = one.run()
    with open_capture(path) as capture:
        sizes = [len(frame.data) for frame in capture]
    assert len(sizes) >= report.frames > 0
    assert sum(sizes) >= 20_000


# Registration, and transfers one after the other.


def repeated(mode: str, *, buffers: int = 1, repeat: int = 4, **limits: Any) -> TransferReport:
    registering = Registering(RegistrationMode(mode), **limits)
    return transfer(
        TransferSpec(
            DGX, "GPU0", "GPU1", size=1 << 17, registering=registering, repeat=repeat,
            buffers=buffers,
        )
    )  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_repetitions_take_the_same_time_and_frames(path: TransferPath) -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1", path, 100_000, chunk=30_000, slots=2)
    once, thrice = transfer(spec), transfer(spec._replace(repeat=3, buffers=2))
    assert thrice.durations[0] == once.duration
    assert thrice.later == pytest.approx(once.duration, rel=0.05)
    assert thrice.copies == once.copies
    answers = 3 * once.chunks * Costs().post_time
    assert 3 * once.cpu <= thrice.cpu <= 3 * once.cpu + answers
    for ends, use in once.links.items():
        assert thrice.links[ends].bytes == 3 * use.bytes


def test_a_cache_pays_once_for_each_buffer() -> None:
    plain, cached = repeated("none"), repeated("cache", buffers=2)
    row = registration(RegisteredKind.PEERMEM, 1 << 17)
    longer = [cached.durations[i] - plain.durations[i] for i in range(4)]
    assert longer[:2] == [pytest.approx(row.time + 180, abs=2)] * 2
    assert longer[2:] == [pytest.approx(180, abs=2)] * 2
    counts = cached.registrations
    assert (counts.registered, counts.hits, counts.evictions) == (4, 4, 0)
    assert counts.time == pytest.approx(cached.cpu - plain.cpu)


def test_without_a_cache_each_transfer_pays_for_both_verbs() -> None:
    plain, each = repeated("none"), repeated("each")
    row = registration(RegisteredKind.PEERMEM, 1 << 17)
    for one, other in zip(each.durations, plain.durations, strict=True):
        assert one - other == pytest.approx(row.time + row.dereg_time, abs=3)
    assert each.registrations[:2] == (8, 8)


def test_a_cache_that_is_too_small_registers_each_time() -> None:
    small = repeated("cache", buffers=3, repeat=6, max_regions=2)
    assert small.registrations[:5] == (12, 8, 0, 12, 8)
    by_bytes = repeated("cache", buffers=3, repeat=6, max_bytes=1 << 18)
    assert by_bytes.durations == small.durations
    assert repeated("cache", buffers=3, repeat=6, max_regions=3).registrations.evictions == 0


def test_paths_through_host_memory_have_registered_buffers() -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1", TransferPath.BOUNCE, 4096)
    registering = Registering(RegistrationMode.EACH)
    assert transfer(spec._replace(registering=registering)).duration == transfer(spec).duration


@pytest.mark.parametrize("more", [{"repeat": 0}, {"buffers": 257}, {"repeat": 2, "size": MAX_SIZE}])
def test_too_much_is_refused(more: dict[str, Any]) -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1")
    with pytest.raises(TransferError, match=r"repetitions|all together"):
        transfer(spec._replace(**more))


@settings(max_examples=10)
@given(st.integers(1, 1 << 22))
def test_ualinks_carry_data_at_their_rate(size: int) -> None:
    node = open_host("ualink-node").machine
    report = transfer(TransferSpec(node, "GPU0", "GPU3", TransferPath.UALINK, size))
    launch = Costs().peer_launch
    assert report.duration == pytest.approx(launch + size / 1674, abs=2 + size // (1 << 16))
    assert {ends: use.bytes for ends, use in report.links.items()} == {
        ("host", "GPU0", "GPU3"): size
    }


@pytest.mark.parametrize(
    ("name", "path", "links"),
    [
        ("dgx-h200", TransferPath.UALINK, "UALinks"),
        ("ualink-node", TransferPath.NVLINK, "NVLinks"),
    ],
)
def test_links_that_a_host_does_not_have(name: str, path: TransferPath, links: str) -> None:
    machine = open_host(name).machine
    with pytest.raises(TransferError, match=f"GPU0 and GPU1 have no {links}"):
        transfer(TransferSpec(machine, "GPU0", "GPU1", path, KIB))


# Without a GPU, over InfiniBand, and with ordered writes.


@pytest.mark.parametrize("layer", LinkLayer)
def test_data_of_hosts_takes_no_link_of_a_gpu(layer: LinkLayer) -> None:
    spec = TransferSpec(SERVER, "GPU0", "GPU0", TransferPath.HOST, 10_000, layer=layer)
    report = transfer(spec)
    ends = {end for _, *both in report.links for end in both}
    assert ends == {"memory of node 0", "pci0000_17", "sw0", "mlx5_0"}
    assert {use.bytes for use in report.links.values()} == {10_000}
    assert report.copies == 0


def test_memory_of_hosts_is_registered_as_such() -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1", TransferPath.HOST, 1 << 17)
    each = transfer(spec._replace(registering=Registering(RegistrationMode.EACH)))
    row = registration(RegisteredKind.HOST, 1 << 17)
    longer = each.duration - transfer(spec).duration
    assert longer == pytest.approx(row.time + row.dereg_time, abs=3)


@pytest.mark.parametrize("path", [TransferPath.HOST, TransferPath.BOUNCE])
def test_few_bytes_are_inline(path: TransferPath) -> None:
    """The adapter does not read them: a round trip to host memory less."""
    spec = TransferSpec(DGX, "GPU0", "GPU1", path, 220)
    inline, read = transfer(spec), transfer(spec._replace(size=221))
    assert 950 <= read.duration - inline.duration <= 1050  # twice 500 ns, the bytes, rounding
    out = ("sender", "memory of node 0", "root0")
    assert out not in inline.links
    assert read.links[out].bytes == 221


def test_infiniband_is_faster_by_its_switch_and_cables() -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1", TransferPath.HOST, 8)
    native = spec._replace(layer=LinkLayer.INFINIBAND)
    assert (spec.cable_latency, native.cable_latency) == (300, 25)
    saved = transfer(spec).duration - transfer(native).duration
    assert saved == pytest.approx(2 * 300 - (2 * 25 + Costs().ib_switch_latency), abs=8)
    far = native._replace(latency=525)
    assert transfer(far).duration - transfer(native).duration == 1000
    slow = native._replace(costs=Costs(ib_switch_latency=230))
    assert transfer(slow).duration - transfer(native).duration == 100


@pytest.mark.parametrize("path", [TransferPath.HOST, TransferPath.DIRECT, TransferPath.BOUNCE])
def test_native_packets_take_fewer_bytes(path: TransferPath) -> None:
    """Of each packet 8 + 2 bytes of LRH and VCRC, and not 14 + 20 + 8 of Ethernet, IP and UDP."""
    spec = TransferSpec(DGX, "GPU0", "GPU1", path, 100_000, chunk=30_000)
    roce, native = transfer(spec), transfer(spec._replace(layer=LinkLayer.INFINIBAND))
    assert roce.wire_bytes - native.wire_bytes == roce.frames * 32
    assert roce.frames == native.frames
    assert native.duration < roce.duration


def test_ordered_writes_make_the_root_slow() -> None:
    settings = replace(DGX.settings, relaxed_ordering=False)
    strict = TransferSpec(replace(DGX, settings=settings), "GPU0", "GPU1", size=4 * MIB)
    for path in (TransferPath.HOST, TransferPath.BOUNCE):
        assert 13e9 < transfer(strict._replace(path=path)).rate < Costs().ordered_write_rate
    direct = TransferSpec(DGX, "GPU0", "GPU1", size=4 * MIB)
    assert transfer(strict).duration == transfer(direct).duration  # below the switch
