# SPDX-License-Identifier: GPL-2.0-only
"""Echo requests in GPU memory: replies against Scapy and tshark, RSS, overflow, forgotten steps."""

import shutil
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from rdmawire.errors import KernelError
from rdmawire.fabric import Cable, Host, Network, NotifyingPort, place_of, star
from rdmawire.gpudirect.kernel import (
    FORGETTABLE_ECHO,
    EchoProtocol,
    EchoRequest,
    ForgottenStep,
    GpuEcho,
    GpuEchoReport,
    GpuEchoSpec,
    GpuHost,
    Kernel,
    PacketBuffers,
    Pipeline,
    ReceiveQueue,
    TransmitQueue,
    Warp,
    echo_reply,
    os_reply,
    raw_queue,
    system_of,
)
from rdmawire.ib import FlowRule
from rdmawire.ib.flow_steering import rss_hash
from rdmawire.units import us
from tests.effort import examples

CLIENT, SERVER = place_of(1), place_of(2)

specs = st.builds(
    GpuEchoSpec,
    protocol=st.sampled_from(EchoProtocol),
    packets=st.integers(1, 30),
    size=st.integers(0, 1472),
    rate=st.sampled_from([1_000_000, 20_000_000]),
    burst=st.integers(1, 20),
    flows=st.integers(1, 256),
    port=st.integers(1, 4790),
    kernels=st.sampled_from(Pipeline),
    warps=st.integers(1, 3),
    buffers=st.integers(30, 64),
    batch=st.integers(1, 64),
    timeout=st.integers(1, 8000),
    work=st.integers(0, 2000),
    model=st.sampled_from(["A100", "H200"]),
    queues_on_gpu=st.booleans(),
    loss=st.just(0.0),
    forgotten=st.just(frozenset()),
    requests=st.just(()),
    seed=st.integers(0, 1000),
    max_delay=st.sampled_from([0, 100, 3000]),
)


def exchange(spec: GpuEchoSpec) -> tuple[GpuEchoReport, list[bytes], list[bytes]]:
    """Run, and return the IP packets that the client and the server sent, too."""
    run = GpuEcho(spec)
    sent: dict[str, list[bytes]] = {"client": [], "server": []}
    for name, frames in sent.items():
        run.network.tap(
            name,
            lambda frame, _, kept=frames: kept.append(frame.data),  # type: ignore[misc]
        )
    report = run.run()
    of_ip = {name: [one for one in frames if IP in Ether(one)] for name, frames in sent.items()}
    return report, of_ip["client"], of_ip["server"]


def scapy_reply(frame: bytes, ttl: int) -> bytes:
    """Build the reply to an echo request by Scapy."""
    request = Ether(frame)
    ip = request[IP]
    layers = Ether(dst=request.src, src=request.dst) / IP(
        src=ip.dst, dst=ip.src, ttl=ttl, id=ip.id, flags=ip.flags
    )
    data = frame[42 : 14 + ip.len]
    if ICMP in ip:
        layers /= ICMP(type=0, id=ip[ICMP].id, seq=ip[ICMP].seq) / Raw(data)
    else:
        layers /= UDP(sport=ip.dport, dport=ip.sport) / Raw(data)
    return bytes(layers).ljust(60, b"\0")


@settings(max_examples=examples(12))
@given(specs)
def test_all_requests_are_answered_as_scapy_would(spec: GpuEchoSpec) -> None:
    report, requests, replies = exchange(spec)
    assert report.is_right, (report.wrong, report.missing, report.stuck)
    assert report.answered == report.sent == spec.packets
    assert len(report.times) == spec.packets
    expected = Counter(scapy_reply(frame, 128) for frame in requests)
    assert Counter(replies) == expected
    assert [sum(counts) for counts in zip(*report.queues, strict=True)] == [
        *(spec.packets, spec.packets, 0, 0)
    ]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@pytest.mark.parametrize("protocol", EchoProtocol)
def test_tshark_finds_the_request_of_each_reply(protocol: EchoProtocol, tmp_path: Path) -> None:
    path = tmp_path / "echo.pcap"
    run = GpuEcho(GpuEchoSpec(protocol, packets=50, warps=3, flows=20, kernels=Pipeline.TWO))
    with run.network.captured(path):
        run.run()
    checks = [f"{name}.check_checksum:TRUE" for name in ("ip", "udp")]
    names = ["ip.src", "ip.ttl", "ip.checksum.status"]
    names += ["icmp.resp_to", "icmp.checksum.status", "udp.srcport", "udp.checksum.status"]
    words = ["tshark", "-r", str(path), "-Y", "ip", "-T", "fields", "-E", "separator=,"]
    words += [word for check in checks for word in ("-o", check)]
    words += [word for name in names for word in ("-e", name)]
    done = subprocess.run(words, capture_output=True, check=True, text=True)
    rows = [line.split(",") for line in done.stdout.splitlines()]
    assert len(rows) == 100
    assert {row[2] for row in rows} == {"1"}
    assert {row[4 if protocol is EchoProtocol.ICMP else 6] for row in rows} == {"1"}
    replies = [row for row in rows if row[0] == "10.0.0.2"]
    assert {row[1] for row in replies} == {"128"}
    if protocol is EchoProtocol.ICMP:
        assert len({row[3] for row in replies} - {""}) == 50
    else:
        assert {row[5] for row in replies} == {"7"}


@pytest.mark.parametrize("protocol", EchoProtocol)
def test_rss_spreads_the_flows(protocol: EchoProtocol) -> None:
    spec = GpuEchoSpec(protocol, packets=60, flows=30, warps=4)
    report, requests, _ = exchange(spec)
    expected: Counter[int] = Counter()
    for frame in requests:
        ports = Ether(frame)
        pair = (ports[UDP].sport, ports[UDP].dport) if UDP in ports else None
        expected[rss_hash(frame[26:30], frame[30:34], pair) % 4] += 1
    assert {number: queue.received for number, queue in enumerate(report.queues)} == expected
    assert min(expected.values()) > 4


def test_what_finds_no_buffer_is_discarded_and_counted() -> None:
    spec = GpuEchoSpec(packets=100, burst=100, buffers=16, work=us(20))
    report, requests, replies = exchange(spec)
    assert report.is_right
    assert len(requests) == 100
    assert report.discarded == report.queues[0].discarded == 84
    assert report.answered == len(replies) == 16
    fast, _, _ = exchange(spec._replace(burst=1, work=0, buffers=64))
    assert not fast.discarded


@pytest.mark.parametrize("kernels", Pipeline)
def test_lost_packets_are_counted(kernels: Pipeline) -> None:
    report, _, _ = exchange(GpuEchoSpec(packets=100, loss=0.2, kernels=kernels))
    assert report.is_right
    assert 0 < report.lost < 80
    assert report.answered == 100 - report.lost


def test_items_of_the_semaphore_are_used_again() -> None:
    report, _, _ = exchange(GpuEchoSpec(packets=100, batch=1, kernels=Pipeline.TWO, rate=400_000))
    assert report.is_right
    assert sum("item 0 is READY" in entry.what for entry in report.timeline) == 1
    assert any("item 99 is READY" in entry.what for entry in report.timeline)


def test_a_poll_ends_with_a_full_batch_or_in_time() -> None:
    spec = GpuEchoSpec(packets=64, burst=64, batch=8, timeout=us(50))
    full, _, _ = exchange(spec)
    received = [one.what for one in full.timeline if one.what.endswith("received")]
    assert received == ["8 received"] * 8
    assert max(full.times) < us(80)
    late, _, _ = exchange(spec._replace(packets=1))
    assert us(20) < late.times[0] < us(70)


def icmp(number: int = 0) -> bytes:
    return EchoRequest(EchoProtocol.ICMP, number, 0, 56).frame(CLIENT, SERVER.gid[12:])


def udp(port: int, number: int = 0) -> bytes:
    return EchoRequest(EchoProtocol.UDP, number, 0, 56, port).frame(CLIENT, SERVER.gid[12:])


def test_the_operating_system_gets_what_the_gpu_does_not_take() -> None:
    arp = bytes(Ether(src=CLIENT.mac) / ARP(psrc="10.0.0.1", pdst="10.0.0.2"))
    frames = (udp(7), icmp(), udp(9), arp, udp(7, 1))
    spec = GpuEchoSpec(EchoProtocol.UDP, requests=frames)
    report, _, replies = exchange(spec)
    assert report.is_right
    assert (report.sent, report.expected, report.answered) == (5, 4, 4)
    assert report.by_os == 3  # two questions of ARP, one ICMP echo
    assert report.queues[0].received == 2
    assert sorted((IP in Ether(one) and Ether(one)[IP].ttl) for one in replies) == [64, 128, 128]


def test_what_is_no_request_is_ignored_by_the_kernel() -> None:
    reply = scapy_reply(icmp(), 64)
    report, _, _ = exchange(GpuEchoSpec(requests=(reply, icmp(1))))
    assert report.is_right
    assert report.queues[0][:3] == (2, 1, 1)


FOUND = [
    (kernels, {step})
    for kernels in Pipeline
    for step in FORGETTABLE_ECHO[kernels]
    if step is not ForgottenStep.WQE_FENCE
]


@pytest.mark.parametrize(
    ("kernels", "steps"),
    [*FOUND, (Pipeline.ONE, {ForgottenStep.WQE_FENCE, ForgottenStep.RECORD_FENCE})],
)
def test_a_forgotten_step_is_found_by_a_seed(kernels: Pipeline, steps: set[ForgottenStep]) -> None:
    flush = ForgottenStep.FLUSH in steps
    spec = GpuEchoSpec(
        packets=32,
        kernels=kernels,
        forgotten=frozenset(steps),
        model="A100" if flush else "H200",
        queues_on_gpu=not flush,
    )
    reports = (GpuEcho(spec._replace(seed=seed)).run() for seed in range(100))
    found = next((report for report in reports if not report.is_right), None)
    assert found is not None
    assert GpuEcho(found.spec).run() == found


def test_from_compute_capability_9_on_no_flush_is_needed() -> None:
    spec = GpuEchoSpec(queues_on_gpu=False, forgotten=frozenset({ForgottenStep.FLUSH}))
    for seed in range(20):
        assert GpuEcho(spec._replace(seed=seed)).run().is_right


@given(st.binary(max_size=120), st.booleans(), st.integers(0, 60))
def test_any_bytes_have_a_reply_or_none(data: bytes, start: bool, keep: int) -> None:
    frame = icmp()[:keep] + data if start else data
    for reply in (echo_reply(frame, 128), echo_reply(frame, 128, 7), os_reply(frame, SERVER)):
        assert reply is None or len(reply) >= 42


def test_replies_of_the_operating_system_are_for_its_address() -> None:
    assert os_reply(icmp(), SERVER) == scapy_reply(icmp(), 64)
    assert os_reply(icmp(), CLIENT) is None
    assert os_reply(udp(9), SERVER) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"packets": 0}, "packets 0: 1 to 4096"),
        ({"size": 9000}, "size 9000"),
        ({"buffers": 65}, "buffers 65"),
        ({"loss": 1.5}, "loss 1.5"),
        ({"timeout": us(2000)}, "timeout 2000000: 1 to 1000000"),
        ({"model": "GT 710"}, "GT 710 is no GPU that is known"),
        ({"rate": 10}, "the run takes 1600 ms of 1 warp"),
        ({"requests": (bytes(9100),)}, "a request of 9100 bytes"),
        ({"forgotten": frozenset({ForgottenStep.SEMAPHORE_FENCE})}, "there is no semaphore-fence"),
        ({"forgotten": frozenset({ForgottenStep.FLUSH})}, "there is no flush to forget"),
        ({"forgotten": frozenset({ForgottenStep.DATA_FENCE})}, "there is no data-fence"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        GpuEcho(GpuEchoSpec()._replace(**change))


def test_a_kernel_of_ones_own_receives_into_gpu_memory() -> None:
    """Frames are in GPU memory byte for byte, and a kernel sends them back with other bytes."""
    network = Network(seed=1)
    host = GpuHost("server", 2)
    system = system_of([host], network.simulator, network.wake, seed=1)
    sender = Host(place=CLIENT)
    returned: list[bytes] = []
    port = NotifyingPort(sender.nic)
    port.on_taken.append(lambda frame, _: returned.append(frame))
    station = Station(CLIENT.mac, port)
    star(network, {"client": station, "server": host}, Cable(latency=1000))
    queue, buffers = raw_queue(host), PacketBuffers.on(host, 4, 1514)
    host.host.nic.create_flow(FlowRule(queue.qp))
    frames = [udp(9, number) for number in range(3)]

    def kernel(warp: Warp) -> Kernel:
        receive = ReceiveQueue(queue, buffers, warp)
        transmit = TransmitQueue(raw_queue(host), warp, us(100))
        yield from receive.post(range(4))
        for number, frame in enumerate(frames):
            (found,) = yield from receive.receive(1, us(100))
            yield from warp.fence()
            at = buffers.address(found.buffer)
            assert found == (number, len(frame))
            assert warp.load(at, found.length) == host.mac + frame[6:]
            warp.store(at, CLIENT.mac + host.mac)
            yield from transmit.send([buffers.sge(found.buffer, found.length)], [number])
        yield from transmit.until(3)
        assert transmit.taken() == [0, 1, 2]

    system.launch(kernel, host.warp())
    for number, frame in enumerate(frames):
        late = partial(network.send, "client", host.mac + frame[6:])
        network.simulator.call_at(us(20) * (number + 1), late)
    network.simulator.run()
    assert not system.running
    assert returned == [CLIENT.mac + host.mac + frame[12:] for frame in frames]


class Station(NamedTuple):
    """A host that is not more than a port."""

    mac: bytes
    nic: NotifyingPort
