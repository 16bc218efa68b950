"""What stands between the devices of a service: links, switches and faults of a fabric."""

import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.errors import FabricError
from rdmawire.fabric import Place
from rdmawire.live import Datagrams
from rdmawire.traffic.scenario import read_scenario_text
from rdmawire.units import ms
from rdmawire.verbs_service import (
    Capture,
    DeviceSpec,
    FabricNetwork,
    LinkSettings,
    UdpNetwork,
    UdpSettings,
    devices_of,
    of_scenario,
    one_link,
    parse_link,
    parse_udp,
)
from rdmawire.verbs_service.device import Device
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU
from tests.verbs_service.client import SUCCESS, WRITE, wait_until
from tests.verbs_service.running import End, connected, running

SCENARIO = """
name: a switch between programs
hosts:
  left: {}
  right: {address: 192.168.7.9}
switches:
  middle: {queues: {3: {dscp: 26, xoff: 40 KiB, xon: 20 KiB}}}
links:
  left-middle: {rate: 10 Gbit/s, latency: 2 us, mtu: 1500}
  middle-right:
    rate: 10 Gbit/s
    latency: 2 us
    mtu: 1500
    faults:
      - drop: {where: {bth.psn: 3}, nth: 1}
"""

MARKING = """
name: a switch that marks what waits for a slow link
hosts: {sender: {}, receiver: {}}
switches:
  leaf: {queues: {3: {dscp: 26, kmin: 8 KiB, kmax: 16 KiB, pmax: 1}}}
links:
  sender-leaf: {rate: 10 Gbit/s}
  leaf-receiver: {rate: 0.1 Gbit/s}
"""
_DSCP = 26 << 2


def _write(one: End, other: End, size: int, **path: int) -> None:
    source, sink = one.client.buffer(size), other.client.buffer(size)
    source.memory[:] = data = os.urandom(size)
    one.client.send(
        one.qp, source.sge(), opcode=WRITE, remote_address=sink.memory.address, rkey=sink.rkey
    )
    assert one.cq.wait()[0].status == SUCCESS
    assert sink.memory[:] == data


def test_lost_frames_are_retransmitted_in_real_time(tmp_path: Path) -> None:
    settings = parse_link("loss=2%, latency=10us, rate=25G, seed=5")
    assert settings == LinkSettings(latency=10_000, rate=25_000_000_000, loss=0.02, seed=5)
    with running(tmp_path, network=FabricNetwork(one_link(settings))) as service:
        one, other = connected(service, timeout=12)
        _write(one, other, 1 << 20)
        counters = service.server.devices[0].nic.counters
        assert counters.local_ack_timeout_err + counters.packet_seq_err > 0


def test_frames_take_the_time_of_the_link(tmp_path: Path) -> None:
    file = tmp_path / "live.pcap"
    network = FabricNetwork(one_link(LinkSettings(latency=ms(3))), Capture(file))
    with running(tmp_path, network=network) as service:
        one, other = connected(service)
        _write(one, other, 8)
    with open_capture(file) as reader:
        request, response = (record.time_ns for record in reader)
    assert response - request >= ms(3)


def test_scenario_gives_devices_their_names_addresses_and_network(tmp_path: Path) -> None:
    scenario = read_scenario_text(SCENARIO)
    specs = devices_of(scenario)
    assert [spec.name for spec in specs] == ["left", "right"]
    assert specs[1].place.gid[-4:] == bytes((192, 168, 7, 9))
    assert specs[0].mtu is MTU.MTU_1024
    network = FabricNetwork(of_scenario(scenario))
    with running(tmp_path, specs=specs, network=network) as service:
        one, other = connected(service, path_mtu=3)
        _write(one, other, 20_000)
        assert service.server.devices[0].nic.counters.packet_seq_err == 1


@pytest.mark.parametrize("ecn", [ECN.ECT_0, ECN.NOT_ECT])
def test_queue_pairs_control_congestion_if_their_packets_are_ecn_capable(
    ecn: ECN, tmp_path: Path
) -> None:
    scenario = read_scenario_text(MARKING)
    network = FabricNetwork(of_scenario(scenario))
    with running(tmp_path, specs=devices_of(scenario), network=network) as service:
        one, other = connected(service, traffic_class=_DSCP | ecn, timeout=20)
        _write(one, other, 1 << 17)
        sender, receiver = (device.nic.counters for device in service.server.devices)
        capable = ecn is not ECN.NOT_ECT
        assert bool(receiver.np_ecn_marked_roce_packets) is capable
        assert bool(receiver.np_cnp_sent) is capable
        assert bool(sender.rp_cnp_handled) is capable
        assert not sender.rp_cnp_ignored


def test_fault_of_a_connections_end_is_refused() -> None:
    text = SCENARIO.replace("where: {bth.psn: 3}", "sent by: left/c")
    text += "connections: {c: {between: [left, right]}}\n"
    with pytest.raises(FabricError, match="select by fields"):
        of_scenario(read_scenario_text(text))


@pytest.mark.parametrize(
    "text", ["", "loss", "loss=x", "loss=1%,loss=2%", "delay=3", "rate=fast", "latency=1"]
)
def test_network_of_other_words_is_refused(text: str) -> None:
    with pytest.raises(FabricError, match="network"):
        parse_link(text)


def _numbered_from(first: int) -> tuple[DeviceSpec, ...]:
    return (DeviceSpec(f"rw{first}", Place.numbered(first)),)


def test_two_services_are_joined_by_udp(tmp_path: Path) -> None:
    left = UdpNetwork(UdpSettings(0, ()))
    right = UdpNetwork(UdpSettings(0, (("127.0.0.1", left.port),)))
    left.add_peer(("127.0.0.1", right.port), UdpSettings(0, ()))
    with (
        running(tmp_path, left, _numbered_from(1), "left.sock") as one_service,
        running(tmp_path, right, _numbered_from(2), "right.sock") as other_service,
    ):
        ends = []
        for service in (one_service, other_service):
            client = service.connect()
            cq = client.create_cq(128)
            ends.append(End(client, client.create_qp(cq), cq))
        one, other = ends
        wait_until(lambda: left.knows(Place.numbered(2).gid) and right.knows(Place.numbered(1).gid))
        one.client.bring_up(one.qp, other.qp, other.client.gid())
        other.client.bring_up(other.qp, one.qp, one.client.gid())
        _write(one, other, 1 << 21)
        _write(other, one, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("udp=4000", UdpSettings(4000, ())),
        ("udp=1,peer=h:2,peer=::1:3", UdpSettings(1, (("h", 2), ("::1", 3)))),
    ],
)
def test_udp_settings_are_read(text: str, expected: UdpSettings) -> None:
    assert parse_udp(text) == expected


@pytest.mark.parametrize(
    "text", ["", "peer=h:1", "udp=x", "udp=1,peer=2", "udp=1,udp=2", "udp=65536"]
)
def test_other_udp_settings_are_refused(text: str) -> None:
    with pytest.raises(FabricError, match="network"):
        parse_udp(text)


@given(st.binary(max_size=200), st.integers(0, 4))
def test_messages_of_a_peer_may_have_any_bytes(data: bytes, kind: int) -> None:
    network = UdpNetwork(UdpSettings(0, ()))
    with closing(network), closing(Datagrams(0, "127.0.0.1")) as sender:
        network.attach([Device(_numbered_from(1)[0], network.resolve, None)])
        network.add_peer(sender.address, UdpSettings(0, ()))
        for message in (data, bytes((kind,)) + data):
            assert sender.send(message, ("127.0.0.1", network.port))
            network.move(0)
