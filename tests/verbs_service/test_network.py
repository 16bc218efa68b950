"""What stands between the devices of a service: links, switches and faults of a fabric."""

import os
import re
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.errors import FabricError, VerbsError
from rdmawire.fabric import Place
from rdmawire.ib import Dcqcn
from rdmawire.live import Datagrams
from rdmawire.traffic.scenario import read_scenario_text
from rdmawire.units import ms, seconds, us
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
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.wire.management import MTU
from tests.verbs_service.client import SUCCESS, WRITE, wait_until
from tests.verbs_service.running import End, connected, running
from tests.verbs_service.stepped import stepped

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


SLOW = """
name: a switch that marks the packets of one fast sender
hosts: {left: {}, right: {}}
switches: {middle: {queues: {0: {kmin: 4 KiB, kmax: 4 KiB}}}}
links:
  left-middle: {rate: 10 Gbit/s}
  middle-right: {rate: 50 Mbit/s}
"""
DCQCN = "connections: {c: {between: [left, right], congestion: {dcqcn: {g: 0.5}}}}\n"


@pytest.mark.parametrize(
    ("ecn", "connections", "marks", "obeys"),
    [(2, DCQCN, True, True), (2, "", True, False), (0, DCQCN, False, False)],
)
def test_marked_packets_cause_cnps_which_lower_the_rate_if_the_scenario_has_congestion(
    tmp_path: Path, ecn: int, connections: str, marks: bool, obeys: bool
) -> None:
    scenario = read_scenario_text(SLOW + connections)
    network = FabricNetwork(of_scenario(scenario))
    with running(tmp_path, specs=devices_of(scenario), network=network) as service:
        one, other = connected(service, traffic_class=ecn, timeout=20)
        _write(one, other, 1 << 16)
        left, right = (device.nic for device in service.server.devices)
        assert (right.counters.np_ecn_marked_roce_packets > 0) is marks
        assert (right.counters.np_cnp_sent > 0) is marks
        assert (left.counters.rp_cnp_handled > 0) is obeys
        governor = left.device.qps[one.qp.number].governor
        assert (governor is not None) is obeys
        if governor is not None:
            assert isinstance(governor.scheme, Dcqcn)
            assert governor.scheme.parameters.line_rate == 10_000_000_000
            assert governor.scheme.parameters.g == 0.5


def test_fault_of_a_connections_end_is_refused() -> None:
    text = SCENARIO.replace("where: {bth.psn: 3}", "sent by: left/c")
    text += "connections: {c: {between: [left, right]}}\n"
    with pytest.raises(FabricError, match="select by fields"):
        of_scenario(read_scenario_text(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "network '': the settings of a link are latency, rate, loss, duplicate, reorder"),
        ("loss", "network 'loss': loss is a share from 0 to 1"),
        ("loss=x", "network 'loss=x': loss is a share from 0 to 1"),
        ("loss=2", "network 'loss=2': loss is a share from 0 to 1"),
        ("reorder=2", "network 'reorder=2': reorder is a share from 0 to 1"),
        ("loss=1%,loss=2%", "network 'loss=2%': loss is given twice"),
        ("delay=3", "network 'delay=3': the settings of a link are latency"),
        ("rate=fast", "network 'rate=fast': rate is bits per second such as 25G"),
        ("latency=1", "network 'latency=1': latency is a time such as 10us"),
        ("seed=1.5", "network 'seed=1.5': seed is a whole number"),
    ],
)
def test_network_of_other_words_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FabricError, match=re.escape(reason)):
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


def test_an_unknown_address_names_the_peers_that_did_not_answer() -> None:
    with closing(Datagrams(0, "127.0.0.1")) as silent:
        network = UdpNetwork(UdpSettings(0, (silent.address,)))
        with closing(network):
            network.attach([EmulatedDevice(_numbered_from(1)[0], network.resolve, None)])
            peer = f"127.0.0.1:{silent.address[1]}"
            reason = f"no device has the address 10.0.0.9; no answer yet from {peer}"
            with pytest.raises(VerbsError, match=re.escape(reason)):
                network.resolve(Place.numbered(9).gid)


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
        network.attach([EmulatedDevice(_numbered_from(1)[0], network.resolve, None)])
        network.add_peer(sender.address, UdpSettings(0, ()))
        for message in (data, bytes((kind,)) + data):
            assert sender.send(message, ("127.0.0.1", network.port))
            network.move(0)


def test_network_that_falls_behind_holds_up_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    network = FabricNetwork(one_link(LinkSettings(latency=us(5))))
    events: list[int] = []
    move = network.move

    def counted(time: int) -> bool:
        moved = move(time)
        events.append(network._simulator.events)
        return moved

    monkeypatch.setattr(network, "move", counted)
    with stepped(tmp_path, network) as service:
        (waiting, _), (one, _) = service.connected(), service.connected()
        waiting.client.send(waiting.qp, waiting.region.sge())  # without a receive: RNR NAKs
        for _ in range(3):
            network._start -= seconds(10)  # as if the machine had taken ten seconds
            one.send()
            service.until(partial(one.has_sent, 2), 100)
            assert one.client.call("query_port", 1)
    assert max(events) < 1000
    assert capfd.readouterr().err.count("the network falls behind") == 1
