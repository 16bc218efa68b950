"""InfiniBand links and switches: rates, times, forwarding by LID, and captures."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import LinkType, open_capture
from rdmawire.errors import FabricError
from rdmawire.fabric import (
    CAP,
    SPEEDS,
    Cable,
    CaptureTap,
    Host,
    InfiniBandCable,
    InfiniBandLink,
    Link,
    Network,
    Simulator,
    SwitchSettings,
    connect,
    leaf_spine,
    packet_rate,
    row,
    star,
)
from rdmawire.fabric.infiniband import DELIMITERS
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.units import gbps
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import native
from rdmawire.wire.erf import ERF
from rdmawire.wire.roce import Medium

_NAMES = ("SDR", "DDR", "QDR", "FDR", "EDR", "HDR", "NDR", "XDR")
CABLE = InfiniBandCable(25, gbps(200), 130)
WHOLE = 256
"""Bytes of a packet without its headers: the path MTU is larger."""


def network_of(
    count: int, build: Callable[..., None] = star, **more: Any
) -> tuple[Network, list[Host]]:
    network = Network(Simulator(), medium=Medium.INFINIBAND)
    hosts = [Host(number, medium=Medium.INFINIBAND) for number in range(1, count + 1)]
    build(network, {f"h{n}": host for n, host in enumerate(hosts, 1)}, **more or {"cable": CABLE})
    return network, hosts


def queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(64)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))


def write(one: Host, other: Host, data: bytes) -> tuple[QueuePair, Any]:
    """Post an RDMA WRITE; return its queue pair, and the memory that it is for."""
    qp, peers = queue_pair(one), queue_pair(other)
    connect(one, qp, other, peers)
    sink = other.buffer(len(data))
    wr = SendWR(
        SendOpcode.RDMA_WRITE,
        (one.filled(data).sge(),),
        remote_address=sink.address,
        rkey=sink.rkey,
    )
    one.nic.post_send(qp, (wr,))
    return qp, sink


@pytest.mark.parametrize(
    ("rate", "packets"),
    [
        (2.5, 2), (10, 8), (20, 16), (40, 32), (80, 64), (200, 200), (400, 400), (800, 800),
        (1200, 1200), (56, 54.545454545), (14, 13.636363636),
    ],
)  # fmt: skip
def test_packets_have_the_rate_after_encoding(rate: float, packets: float) -> None:
    assert packet_rate(gbps(rate)) == pytest.approx(packets * 1e9, rel=1e-9)


def test_a_measured_share_is_part_of_the_rate() -> None:
    """EDR with an MTU of 4096: between the two measured rates."""
    assert 96.6e9 < packet_rate(gbps(100)) * Fraction(4096, 4096 + 28) < 98.4e9


def test_speeds_are_data() -> None:
    assert all(speed.rate / 2 < speed.signalling * speed.encoding <= speed.rate for speed in SPEEDS)
    assert [speed.name for speed in SPEEDS] == [*_NAMES]


def test_other_rates_are_refused() -> None:
    with pytest.raises(FabricError, match=r"no InfiniBand link has 90 Gbit/s; four lanes have 10,"):
        InfiniBandLink(rate=gbps(90))


def test_a_switch_forwards_a_packet_before_it_has_all_of_it() -> None:
    network, (one, other) = network_of(2)
    times: dict[str, list[int]] = {"sent": [], "received": []}
    size = 0

    def arrived(frame: Any, now: int) -> None:
        nonlocal size
        size = len(frame.data)
        times["received"].append(now)

    network.tap("h1", lambda _, now: times["sent"].append(now))
    network.tap("h2", arrived, arrivals=True)
    write(one, other, bytes(WHOLE))
    network.simulator.run()
    wire = -(-(size + DELIMITERS) * 8 // 200)
    assert times["received"][0] - times["sent"][0] == 25 + 130 + 25 + wire


def test_packets_follow_one_another_at_the_rate() -> None:
    network, (one, other) = network_of(2)
    times: list[tuple[int, int]] = []
    network.tap("h2", lambda frame, now: times.append((now, len(frame.data))), arrivals=True)
    write(one, other, bytes(64 * 1024))
    network.simulator.run()
    middle = times[1:-1]
    bits = 8 * sum(size + DELIMITERS for _, size in middle[1:])
    assert middle[-1][0] - middle[0][0] == pytest.approx(bits / 200, abs=2)


@pytest.mark.parametrize(
    ("build", "more"),
    [
        (star, {"cable": CABLE}),
        (row, {"switches": 3, "edge": CABLE, "trunk": CABLE}),
        (leaf_spine, {"leaves": 2, "spines": 2, "edge": CABLE, "trunk": CABLE}),
    ],
)
def test_data_crosses_switches(build: Callable[..., None], more: dict[str, Any]) -> None:
    network, hosts = network_of(4, build, **more)
    data = bytes(range(256)) * 40
    made = [write(hosts[n], hosts[(n + 1) % 4], data) for n in range(4)]
    network.simulator.run()
    for qp, sink in made:
        assert [done.status for done in qp.send_cq.poll(4)] == [WCStatus.SUCCESS]
        assert sink.read() == data
    assert not any(switch.stranded for switch in network.switches.values())


def test_both_lids_of_a_port_are_forwarded_and_others_are_discarded() -> None:
    network, (one, other) = network_of(2)
    qp, _ = write(one, other, b"data")
    (sent,) = one.nic.transmit(0)
    packet = native.parse(sent)
    received: list[bytes] = []
    network.tap("h2", lambda frame, _: received.append(frame.data), arrivals=True)
    changed = [
        packet.replace(lrh=packet.lrh.replace(dlid=lid)).seal().build() for lid in (*other.lids, 77)
    ]
    for data in changed:
        network.send("h1", data)
    network.simulator.run(10_000)
    assert received == changed[:2]
    assert network.switches["s1"].stranded == 1
    assert qp.qp_num


def test_adapters_may_be_joined_without_a_switch() -> None:
    one, other = (Host(number, medium=Medium.INFINIBAND) for number in (1, 2))
    link, simulator = InfiniBandLink(25, rate=gbps(200)), Simulator()
    for host in (one, other):
        simulator.attach(host.nic, host.mac, link)
    qp, sink = write(one, other, b"payload!")
    simulator.run()
    assert sink.read() == b"payload!"
    assert [done.status for done in qp.send_cq.poll(4)] == [WCStatus.SUCCESS]


def test_links_carry_frames_of_their_kind_alone() -> None:
    network = Network(medium=Medium.INFINIBAND)
    with pytest.raises(FabricError, match="host 'x' has no LIDs"):
        network.add_host("x", _NoLids())
    with pytest.raises(FabricError, match="s1: a switch for native InfiniBand packets has no set"):
        network.add_switch("s1", SwitchSettings())
    network.add_host("a", Host(1, medium=Medium.INFINIBAND))
    network.add_host("b", Host(2))
    with pytest.raises(FabricError, match="link 'a-b' carries Ethernet frames, the network native"):
        network.join("a", "b", Link())
    with pytest.raises(FabricError, match=r"sends Ethernet frames .*: the link carries native Inf"):
        network.join("a", "b", InfiniBandLink(rate=None))
    with pytest.raises(FabricError, match="carries native InfiniBand packets, the network Eth"):
        star(Network(), {"a": Host(1), "b": Host(2)}, CABLE)
    with pytest.raises(FabricError, match="carries Ethernet frames, the network native"):
        network_of(2, star, cable=Cable())
    with pytest.raises(FabricError, match="faults of 'h1-s1': they are for Ethernet frames alone"):
        network_of(2)[0].set_faults("h1-s1")


class _NoLids:
    """A host of Ethernet."""

    def __init__(self) -> None:
        host = Host(1)
        self.mac, self.nic = host.mac, host.nic


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_captures_hold_records_that_tshark_reads(tmp_path: Path, suffix: str) -> None:
    network, (one, other) = network_of(2)
    path = tmp_path / f"packets.{suffix}"
    with network.captured(path):
        write(one, other, bytes(5000))
        network.simulator.run()
    with open_capture(path) as capture:
        records = list(capture)
        assert {interface.link_type for interface in capture.interfaces} == {LinkType.ERF}
        names = [interface.name for interface in capture.interfaces]
    assert names == (["h1", "h2"] if suffix == "pcapng" else [""])
    for record in records:
        header = ERF.parse(record.data)
        assert header.wlen == len(record.data) - ERF.SIZE
        assert header.time_ns == record.time_ns
        packet = native.parse(record.data[ERF.SIZE :])
        assert packet.seal() == packet
    assert len(records) == 6


def test_a_tap_writes_ethernet_unless_it_is_for_another_medium(tmp_path: Path) -> None:
    with CaptureTap(tmp_path / "empty.pcap") as _:
        pass
    with open_capture(tmp_path / "empty.pcap") as capture:
        assert [one.link_type for one in capture.interfaces] == [LinkType.ETHERNET]
