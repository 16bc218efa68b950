"""Raw packet queue pairs: frames from and to memory, by rule."""

from dataclasses import replace
from errno import EBUSY

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Buffer, Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib import FlowKind, FlowRule
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.key import Access
from rdmawire.units import us
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPState, QPType, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.inet import Ethernet, EtherType


class Station(Host):
    """A host with one raw packet queue pair."""

    def __init__(self, number: int, profile: Profile = IBTA) -> None:
        super().__init__(number, profile=profile)
        self.cq: CompletionQueue = self.nic.create_cq(16)
        self.qp: QueuePair = self.nic.create_qp(
            QPType.RAW_PACKET, QPInit(self.pd, self.cq, self.cq)
        )
        self.bring_up(self.qp, QPAttributes())

    def send(self, frame: bytes) -> None:
        """Post a frame."""
        sge = self.filled(frame).sge(len(frame))
        self.nic.post_send(self.qp, [SendWR(SendOpcode.SEND, (sge,))])

    def receive(self, length: int) -> Buffer:
        """Post a receive for a frame of so many bytes."""
        buffer = self.buffer(length)
        self.nic.post_recv(self.qp, [RecvWR((buffer.sge(length),))])
        return buffer

    def poll(self) -> list[WorkCompletion]:
        """All completions."""
        return self.cq.poll(16)


def two_stations(profile: Profile = IBTA) -> tuple[Station, Station, Simulator]:
    simulator, link = Simulator(), Link()
    stations = Station(1), Station(2, profile)
    for station in stations:
        simulator.attach(station.nic, station.mac, link)
    return *stations, simulator


def arp(sender: Station, length: int = 60) -> bytes:
    return Ethernet(b"\xff" * 6, sender.mac, EtherType.ARP).build().ljust(length, b"\x01")


@pytest.mark.parametrize("length", [14, 60, 1514, 9018])
def test_a_frame_goes_from_memory_to_memory_as_it_is(length: int) -> None:
    client, server, simulator = two_stations()
    server.nic.create_flow(FlowRule(server.qp))
    buffer = server.receive(9018)
    frame = arp(client, length)
    client.send(frame)
    simulator.run()
    assert buffer.read(length) == frame
    assert [done.byte_len for done in server.poll()] == [length]
    assert [done.status for done in client.poll()] == [WCStatus.SUCCESS]
    assert not server.nic.drops
    counters = server.nic.counters
    assert (counters.port_rcv_packets, counters.rcvd_pkts, counters.rdma_recvs) == (1, 0, 1)


def test_a_frame_longer_than_any_is_an_error_of_the_sender() -> None:
    client, _, simulator = two_stations()
    client.send(arp(client, 9019))
    simulator.run()
    assert [done.status for done in client.poll()] == [WCStatus.LOC_LEN_ERR]
    assert client.qp.state == QPState.SQE


@pytest.mark.parametrize("length", [0, 13])
def test_bytes_without_an_ethernet_header_are_an_error_of_the_sender(length: int) -> None:
    client, server, simulator = two_stations()
    client.send(arp(client)[:length])
    simulator.run()
    assert [done.status for done in client.poll()] == [WCStatus.LOC_LEN_ERR]
    assert server.nic.counters.port_rcv_packets == 0


@pytest.mark.parametrize(
    ("dmac", "ethertype", "taken"),
    [
        (None, None, True),
        (None, EtherType.ARP, True),
        (None, EtherType.IPV6, False),
        (b"\xff" * 6, EtherType.ARP, True),
        (bytes(6), EtherType.ARP, False),
    ],
)
def test_a_rule_takes_what_has_all_that_it_asks_for(
    dmac: bytes | None, ethertype: int | None, taken: bool
) -> None:
    client, server, simulator = two_stations()
    server.nic.create_flow(FlowRule(server.qp, dmac, ethertype))
    server.receive(64)
    client.send(arp(client))
    simulator.run()
    assert bool(server.poll()) is taken
    assert server.nic.drops == ({} if taken else {Drop.NOT_RDMA: 1})


def test_without_a_receive_a_frame_is_dropped_and_counted() -> None:
    client, server, simulator = two_stations()
    server.nic.create_flow(FlowRule(server.qp))
    client.send(arp(client))
    simulator.run()
    assert server.nic.drops == {Drop.NO_WQE: 1}
    assert server.qp.counters.out_of_buffer == 1
    assert server.qp.state == QPState.RTS


def test_a_receive_too_short_ends_the_queue_pair() -> None:
    client, server, simulator = two_stations()
    server.nic.create_flow(FlowRule(server.qp))
    buffer = server.receive(32)
    client.send(arp(client))
    simulator.run()
    assert [done.status for done in server.poll()] == [WCStatus.LOC_LEN_ERR]
    assert buffer.read(32) == bytes(32)
    assert server.qp.state == QPState.ERR


def test_a_receive_in_memory_that_is_not_registered_ends_the_queue_pair() -> None:
    client, server, simulator = two_stations()
    server.nic.create_flow(FlowRule(server.qp))
    server.nic.post_recv(server.qp, [RecvWR((Sge(0x1000, 64, 0xBAD),))])
    client.send(arp(client))
    simulator.run()
    assert [done.status for done in server.poll()] == [WCStatus.LOC_PROT_ERR]


def test_a_frame_is_dropped_and_its_receive_kept_while_pages_are_missing() -> None:
    client, server, simulator = two_stations(replace(IBTA, page_fault_ns=us(200)))
    server.nic.create_flow(FlowRule(server.qp))
    memory = server.space.allocate(4096)
    access = Access.LOCAL_WRITE | Access.ON_DEMAND
    region = server.nic.memory.reg_mr(server.pd, memory.base, 4096, access)
    for number in range(2):
        sge = Sge(memory.base + 64 * number, 64, region.lkey)
        server.nic.post_recv(server.qp, [RecvWR((sge,), number)])
    client.send(arp(client))
    simulator.run()
    assert server.nic.drops == {Drop.PAGE_FAULT: 1}
    simulator.run(until=us(300))
    for length in (60, 61):
        client.send(arp(client, length))
    simulator.run()
    assert [(done.wr_id, done.byte_len) for done in server.poll()] == [(0, 60), (1, 61)]
    assert server.qp.state == QPState.RTS


def test_a_flow_that_was_destroyed_takes_nothing() -> None:
    client, server, simulator = two_stations()
    rule = server.nic.create_flow(FlowRule(server.qp))
    server.nic.destroy_flow(rule)
    server.receive(64)
    client.send(arp(client))
    simulator.run()
    assert not server.poll()
    with pytest.raises(VerbsError, match="no such flow"):
        server.nic.destroy_flow(rule)


def test_a_sniffer_gets_what_is_sent_and_what_is_received() -> None:
    client, server, simulator = two_stations()
    for station in (client, server):
        sniffer = station.nic.create_flow(FlowRule(station.qp, kind=FlowKind.SNIFFER))
    buffers = client.receive(64), server.receive(64)
    client.send(arp(client))
    simulator.run()
    assert [buffer.read(60) for buffer in buffers] == [arp(client)] * 2
    assert server.nic.drops == {Drop.NOT_RDMA: 1}  # the sniffer had a copy
    with pytest.raises(VerbsError, match="has flows"):
        server.nic.destroy_qp(server.qp)
    server.nic.destroy_flow(sniffer)
    server.nic.destroy_qp(server.qp)


def test_a_port_that_is_down_shows_a_sniffer_nothing() -> None:
    client, server, simulator = two_stations()
    for station in (client, server):
        station.nic.create_flow(FlowRule(station.qp, kind=FlowKind.SNIFFER))
        station.receive(64)
    client.nic.up = False
    client.send(arp(client))
    simulator.run()
    assert [done.opcode for done in client.poll()] == [WCOpcode.SEND]
    client.nic.up, server.nic.up = True, False
    client.send(arp(client))
    simulator.run()
    assert not server.poll()
    assert server.nic.drops == {Drop.PORT_DOWN: 1}


def test_only_raw_packet_queue_pairs_have_flows() -> None:
    host = Host()
    cq = host.nic.create_cq(1)
    qp = host.nic.create_qp(QPType.UD, QPInit(host.pd, cq, cq))
    with pytest.raises(VerbsError, match="takes no raw packets"):
        host.nic.create_flow(FlowRule(qp))


def test_a_queue_pair_that_has_flows_is_not_destroyed() -> None:
    host = Host(1)
    cq = host.nic.create_cq(4)
    qp = host.nic.create_qp(QPType.RAW_PACKET, QPInit(host.pd, cq, cq))
    flow = host.nic.create_flow(FlowRule(qp))
    with pytest.raises(VerbsError, match="has flows: destroy them first") as caught:
        host.nic.destroy_qp(qp)
    assert caught.value.errno == EBUSY
    host.nic.destroy_flow(flow)
    host.nic.destroy_qp(qp)


def limited(station: Station, kilobits: int) -> None:
    attributes = QPAttributes(rate_limit=kilobits)
    station.nic.modify_qp(station.qp, attributes, QPAttrMask.RATE_LIMIT)


def test_a_rate_limit_paces_frames() -> None:
    """ibv_modify_qp_rate_limit(3): kbit/s, counted over the frames' bytes without their FCS."""
    client, server, simulator = two_stations()
    server.nic.create_flow(FlowRule(server.qp))
    times: list[int] = []
    simulator.on_sent.append(lambda _, now: times.append(now))
    limited(client, 8_000)  # a byte in a microsecond
    for _ in range(3):
        client.send(arp(client, 1000))
    simulator.run(until=us(1500))
    assert times == [0, us(1000)]
    limited(client, 0)
    simulator.run()
    assert len(times) == 3
    assert times[2] == us(1500)


def test_a_limit_holds_below_what_congestion_control_allows() -> None:
    client, _, simulator = two_stations()
    times: list[int] = []
    simulator.on_sent.append(lambda _, now: times.append(now))
    client.nic.control_congestion(client.qp, Dcqcn(DcqcnParameters(line_rate=1e9)))
    limited(client, 8_000)
    for _ in range(2):
        client.send(arp(client, 1000))
    simulator.run(until=us(2000))
    assert times == [0, us(1000)]
    limited(client, 0)
    client.send(arp(client, 1000))
    client.send(arp(client, 1000))
    simulator.run(until=us(2100))
    assert times[2:] == [us(2000), us(2008)]
    client.nic.control_congestion(client.qp, None)
    assert client.qp.governor is None


def test_a_reset_takes_the_limit_back() -> None:
    client, _, _ = two_stations()
    limited(client, 8_000)
    assert client.qp.governor is not None
    client.nic.modify_qp(client.qp, QPAttributes(QPState.RESET), QPAttrMask.STATE)
    assert client.qp.governor is None


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC, QPType.UD])
def test_other_queue_pairs_have_no_rate_limit(kind: QPType) -> None:
    """As in Linux's ib_core."""
    end = Pair(kind=kind).client
    with pytest.raises(VerbsError, match="rate_limit not allowed"):
        end.nic.modify_qp(end.qp, QPAttributes(rate_limit=8), QPAttrMask.RATE_LIMIT)
