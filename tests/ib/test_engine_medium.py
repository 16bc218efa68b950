"""Adapters over Ethernet, over bare IP packets, over UDP sockets and on InfiniBand links."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rdmawire.errors import RdmaError, VerbsError, WireError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES, CAP, connect
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rx_parser import Drop
from rdmawire.ib.udp import Datagram
from rdmawire.verbs.ah import AddressHandle, GIDType, mapped
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.roce import Medium

LENGTH = 5000
DATA = bytes(range(256)) * 20
QUIET = ATTRIBUTES._replace(timeout=0)
"""Nothing is sent again because of time."""
Carry = Callable[[Host, Host], int]
"""Carry what one host has to send to the other; return how many frames."""


def direct(one: Host, other: Host) -> int:
    frames = one.nic.transmit(0)
    for frame in frames:
        other.nic.receive(frame, 0)
    return len(frames)


def in_bursts(one: Host, other: Host) -> int:
    frames = one.nic.transmit(0)
    other.nic.receive_all(frames, 0)
    return len(frames)


def as_payloads(one: Host, other: Host) -> int:
    packets = one.nic.transmit(0)
    for packet in packets:
        other.nic.receive(Datagram.of(packet).packet(), 0)
    return len(packets)


class Talk:
    """Two hosts with a connection; ``carried`` are the frames."""

    def __init__(
        self,
        medium: Medium,
        carry: Carry = direct,
        *,
        ipv6: bool = False,
        kind: QPType = QPType.RC,
    ) -> None:
        self.carry = carry
        self.hosts = [
            Host(number, medium=medium, ipv6=ipv6, source_port=ROCE_PORT) for number in (1, 2)
        ]
        self.qps = [_queue_pair(host, kind) for host in self.hosts]
        (one, other), (qp, peers) = self.hosts, self.qps
        connect(one, qp, other, peers, QUIET)
        self.theirs = other.filled(DATA)

    def run(self) -> None:
        """Carry frames both ways until there are none, 1000 times at most."""
        one, other = self.hosts
        for _ in range(1000):
            if not self.carry(one, other) + self.carry(other, one):
                return
        raise AssertionError("the adapters do not come to an end")

    def do(self, opcode: SendOpcode, length: int = LENGTH) -> tuple[WCStatus, bytes, bytes]:
        """Do one piece of work; its status, the local memory, and the peer's."""
        (one, other), (qp, peers) = self.hosts, self.qps
        reads = opcode is SendOpcode.RDMA_READ
        mine = one.buffer(length) if reads else one.filled(DATA[::-1][:length])
        receive = other.buffer(length)
        other.nic.post_recv(peers, RecvWR((receive.sge(),)))
        wr = SendWR(
            opcode, (mine.sge(),), remote_address=self.theirs.address, rkey=self.theirs.rkey
        )
        one.nic.post_send(qp, wr)
        self.run()
        (done,) = qp.send_cq.poll(16)
        found = receive if opcode is SendOpcode.SEND else self.theirs
        return done.status, mine.read(), found.read(length)


def _queue_pair(host: Host, kind: QPType) -> QueuePair:
    cq = host.nic.create_cq(64)
    return host.nic.create_qp(kind, QPInit(host.pd, cq, cq, CAP))


WAYS: dict[str, tuple[Medium, Carry]] = {
    "Ethernet": (Medium.ETHERNET, direct),
    "Ethernet in bursts": (Medium.ETHERNET, in_bursts),
    "IP": (Medium.IP, direct),
    "IP in bursts": (Medium.IP, in_bursts),
    "UDP": (Medium.IP, as_payloads),
    "InfiniBand": (Medium.INFINIBAND, direct),
    "InfiniBand in bursts": (Medium.INFINIBAND, in_bursts),
}
WORK = (SendOpcode.SEND, SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ)


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_send_write_and_read(way: str, ipv6: bool) -> None:
    medium, carry = WAYS[way]
    talk = Talk(medium, carry, ipv6=ipv6)
    for opcode in WORK:
        status, mine, theirs = talk.do(opcode)
        assert status is WCStatus.SUCCESS
        assert mine == theirs
        assert len(mine) == LENGTH
    assert not any(sum(host.nic.drops.values()) for host in talk.hosts)


@pytest.mark.parametrize("opcode", WORK)
def test_over_two_sockets(opcode: SendOpcode) -> None:
    lines = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for line in lines:
        line.bind(("127.0.0.1", 0))
        line.settimeout(60)

    def carry(one: Host, other: Host) -> int:
        """By the sockets' own addresses; the hosts' are the ones in the headers."""
        source, sink = lines if one is talk.hosts[0] else lines[::-1]
        packets = one.nic.transmit(0, 4)
        for packet in packets:
            datagram = Datagram.of(packet)
            source.sendto(datagram.payload, sink.getsockname())
            payload, peer = sink.recvfrom(1 << 16)
            assert peer == source.getsockname()
            other.nic.receive(datagram._replace(payload=payload).packet(), 0)
        return len(packets)

    talk = Talk(Medium.IP, carry)
    try:
        status, mine, theirs = talk.do(opcode)
    finally:
        for line in lines:
            line.close()
    assert status is WCStatus.SUCCESS
    assert mine == theirs


def carried(medium: Medium, *, ipv6: bool) -> list[bytes]:
    """The frames of a SEND, a WRITE and a READ."""
    frames: list[bytes] = []

    def carry(one: Host, other: Host) -> int:
        found = one.nic.transmit(0)
        frames.extend(found)
        other.nic.receive_all(found, 0)
        return len(found)

    talk = Talk(medium, carry, ipv6=ipv6)
    for opcode in WORK:
        talk.do(opcode)
    return frames


@pytest.mark.parametrize("ipv6", [False, True])
def test_frames_of_the_media_differ_by_their_heads_alone(ipv6: bool) -> None:
    frames, packets = carried(Medium.ETHERNET, ipv6=ipv6), carried(Medium.IP, ipv6=ipv6)
    before = (IPv6 if ipv6 else IPv4).SIZE + UDP.SIZE
    assert [frame[Ethernet.SIZE :] for frame in frames] == packets
    assert [Datagram.of(packet).payload for packet in packets] == [p[before:] for p in packets]
    assert [Datagram.of(packet).packet() for packet in packets] == packets


def test_datagrams_of_ud_begin_with_their_network_header() -> None:
    talk = Talk(Medium.IP, as_payloads, kind=QPType.UD)
    (one, other), (qp, peers) = talk.hosts, talk.qps
    sink, source = other.buffer(GRH.SIZE + 5), one.filled(b"hello")
    other.nic.post_recv(peers, RecvWR((sink.sge(),)))
    path = one.path_to(other)
    sges = (source.sge(),)
    wr = SendWR(SendOpcode.SEND, sges, ah=path, remote_qpn=peers.qp_num, remote_qkey=QUIET.qkey)
    one.nic.post_send(qp, wr)
    talk.run()
    (done,) = peers.recv_cq.poll(1)
    assert sink.read()[GRH.SIZE :] == b"hello"
    back = other.nic.init_ah_from_wc(done, sink.read(GRH.SIZE))
    assert (back.sgid, back.dgid, back.dmac) == (path.dgid, path.sgid, bytes(6))


def test_a_datagram_to_a_group_reaches_members_on_the_sender_too() -> None:
    for ipv6, text in ((False, "e8010203"), (True, "ff0e" + "00" * 13 + "07")):
        packed = bytes.fromhex(text)
        group = packed if ipv6 else mapped(packed)
        talk = Talk(Medium.IP, kind=QPType.UD, ipv6=ipv6)
        one, (qp, _) = talk.hosts[0], talk.qps
        one.nic.attach_mcast(qp, group)
        sink, source = one.buffer(GRH.SIZE + 5), one.filled(b"hello")
        one.nic.post_recv(qp, RecvWR((sink.sge(),)))
        path = AddressHandle(bytes(6), group, one.gid)
        wr = SendWR(
            SendOpcode.SEND,
            (source.sge(),),
            ah=path,
            remote_qpn=0xFFFFFF,
            remote_qkey=QUIET.qkey,
        )
        one.nic.post_send(qp, wr)
        talk.run()
        assert sink.read()[GRH.SIZE :] == b"hello"


def test_what_needs_an_ethernet_header_is_refused() -> None:
    talk = Talk(Medium.IP)
    (one, _), (qp, _) = talk.hosts, talk.qps
    with pytest.raises(VerbsError, match="the link carries IP packets"):
        _queue_pair(one, QPType.RAW_PACKET)
    for change, message in (
        ({"vlan": 5}, "vlan 5: the link carries untagged IP packets"),
        ({"gid_type": GIDType.ROCE_V1}, "gid_type ROCE_V1: the link carries IP packets"),
    ):
        fresh = _queue_pair(one, QPType.RC)
        path = talk.hosts[0].path_to(talk.hosts[1])._replace(**change)
        with pytest.raises(VerbsError, match=message):
            one.bring_up(fresh, QUIET._replace(ah=path, dest_qp_num=qp.qp_num))


def hostile(good: bytes) -> Iterator[bytes]:
    """A frame cut at each length, with each byte changed, and with bytes before and after."""
    yield from (good[:length] for length in range(len(good)))
    for offset in range(len(good)):
        yield good[:offset] + bytes((good[offset] ^ 0xFF,)) + good[offset + 1 :]
    yield from (bytes(4) + good, good[4:], bytes(1500), b"\x45" * 40, b"\x60" * 60)


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("medium", Medium)
def test_hostile_frames_are_dropped_and_good_ones_still_come(medium: Medium, ipv6: bool) -> None:
    talk = Talk(medium, ipv6=ipv6)
    (one, other), (qp, peers) = talk.hosts, talk.qps
    sink, source = other.buffer(3), one.filled(b"abc")
    other.nic.post_recv(peers, RecvWR((sink.sge(),)))
    one.nic.post_send(qp, SendWR(SendOpcode.SEND, (source.sge(),)))
    (good,) = one.nic.transmit(0)
    bad = [*hostile(good), *hostile(good[Ethernet.SIZE :])]
    for frame in bad:
        if frame != good:
            other.nic.receive(frame, 0)
    other.nic.receive_all(bad[:50], 0)
    other.nic.receive(good, 0)
    (done,) = peers.recv_cq.poll(4)
    assert (done.status, sink.read()) == (WCStatus.SUCCESS, b"abc")
    assert other.nic.drops[Drop.VCRC if medium is Medium.INFINIBAND else Drop.ICRC] > 0


@pytest.mark.parametrize("ipv6", [False, True])
def test_frames_of_another_medium_are_no_rdma(ipv6: bool) -> None:
    frames, packets = carried(Medium.ETHERNET, ipv6=ipv6), carried(Medium.IP, ipv6=ipv6)
    for medium, others in ((Medium.ETHERNET, packets), (Medium.IP, frames)):
        host = Talk(medium, ipv6=ipv6).hosts[1]
        for frame in others:
            host.nic.receive(frame, 0)
        assert sum(host.nic.drops.values()) == len(others)
        assert host.nic.drops.keys() <= {Drop.NOT_RDMA, Drop.MALFORMED}


@pytest.mark.parametrize("change", [{"identification": 1}, {"df": 0}])
def test_a_payload_from_a_packet_with_another_identification_has_a_bad_icrc(
    change: dict[str, int],
) -> None:
    talk = Talk(Medium.IP)
    (one, _), (qp, _) = talk.hosts, talk.qps
    one.nic.post_send(qp, SendWR(SendOpcode.SEND, (one.filled(b"abc").sge(),)))
    (packet,) = one.nic.transmit(0)
    frame = roce.parse(packet, medium=Medium.IP)
    ip, udp = frame.headers
    assert isinstance(ip, IPv4)
    counted = frame.replace(headers=(ip.replace(**change), udp)).seal().build()
    other = talk.hosts[1].nic
    other.receive(Datagram.of(counted).packet(), 0)
    assert other.drops == {Drop.ICRC: 1}
    other.receive(counted, 0)
    assert other.drops == {Drop.ICRC: 1}


def test_payloads_that_are_no_packet_are_dropped() -> None:
    talk = Talk(Medium.IP)
    (one, _), (qp, _) = talk.hosts, talk.qps
    one.nic.post_send(qp, SendWR(SendOpcode.SEND, (one.filled(b"abc").sge(),)))
    (packet,) = one.nic.transmit(0)
    datagram = Datagram.of(packet)
    other = talk.hosts[1].nic
    for payload in hostile(datagram.payload):
        other.receive(datagram._replace(payload=payload).packet(), 0)
    assert sum(other.drops.values()) > 0
    for change in ({"source_port": 4790}, {"source": mapped(b"\x0a\0\0\x09")}):
        before = other.drops[Drop.ICRC]
        other.receive(datagram._replace(**change).packet(), 0)
        assert other.drops[Drop.ICRC] == before + 1
    other.receive(datagram._replace(destination_port=4790).packet(), 0)
    assert other.drops[Drop.NOT_RDMA] == 1
    other.receive(datagram._replace(traffic_class=0xFF, hop_limit=1).packet(), 0)
    assert other.device.qps[talk.qps[1].qp_num].counters.np_ecn_marked_roce_packets == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": b"\x0a\0\0\x01"}, "sgid"),
        ({"destination_port": 1 << 16}, "destination_port"),
        ({"source_port": -1}, "source_port"),
        ({"traffic_class": 256}, "traffic_class"),
        ({"payload": bytes(1 << 16)}, "bytes of payload"),
        ({"payload": "text"}, "payload"),
    ],
)
def test_datagrams_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    good = Datagram.received(b"payload", ("10.0.0.1", 4791), ("10.0.0.2", 4791))
    with pytest.raises(VerbsError, match=message):
        good._replace(**change).packet()


def test_addresses_of_sockets() -> None:
    found = Datagram.received(b"x", ("fd00::1", 50_000), ("fd00::2", 4791))
    assert found.to == ("fd00::2", 4791)
    assert Datagram.of(found.packet()) == found
    assert Datagram.received(b"x", ("10.0.0.1", 1), ("10.0.0.2", 2)).to == ("10.0.0.2", 2)
    with pytest.raises(VerbsError, match="'nowhere' does not appear to be an IPv4 or IPv6 address"):
        Datagram.received(b"x", ("nowhere", 1), ("10.0.0.2", 2))


@pytest.mark.parametrize(
    "packet", [b"", b"\x45", b"\x46" + bytes(59), bytes(60), b"\x60" + bytes(60)]
)
def test_packets_that_hold_no_datagram_are_refused(packet: bytes) -> None:
    with pytest.raises(WireError):
        Datagram.of(packet)


def test_arguments_are_checked() -> None:
    with pytest.raises(RdmaError, match="medium"):
        Host(1, medium="IP")  # type: ignore[arg-type]
    with pytest.raises(RdmaError, match="source_port"):
        Host(1, source_port=1 << 16)
