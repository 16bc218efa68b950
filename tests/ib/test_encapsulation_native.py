"""Adapters on InfiniBand links: LIDs, optional GRHs, and the checks of both. IBA 7.7, 9.6.1."""

from collections.abc import Callable
from typing import Any

import pytest

from rdmawire.errors import FabricError, VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib import Nic
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.address_space import AddressSpace
from rdmawire.verbs.ah import AddressHandle, GIDType
from rdmawire.verbs.enums import NetworkType, QPType, WCFlags, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import native, roce
from rdmawire.wire.ib import AETH, GRH, LNH, Nak
from rdmawire.wire.native import NativePacket
from rdmawire.wire.roce import Medium

QUIET = ATTRIBUTES._replace(timeout=0)
GROUP = bytes.fromhex("ff12401b" + "00" * 11 + "07")
MLID = 0xC001
GROUP_QPN = 0xFFFFFF


class Fabric:
    """Two hosts on one InfiniBand link, with a queue pair each; ``packets`` are those carried."""

    def __init__(self, kind: QPType = QPType.RC, **path: Any) -> None:
        self.hosts = [Host(number, medium=Medium.INFINIBAND) for number in (1, 2)]
        self.qps = [self._queue_pair(host, kind) for host in self.hosts]
        self.packets: list[bytes] = []
        for this, that in ((0, 1), (1, 0)):
            ah = self.path(this, that)._replace(**path)
            wanted = QUIET._replace(ah=ah, dest_qp_num=self.qps[that].qp_num)
            self.hosts[this].bring_up(self.qps[this], wanted)

    @staticmethod
    def _queue_pair(host: Host, kind: QPType) -> QueuePair:
        cq = host.nic.create_cq(64)
        return host.nic.create_qp(kind, QPInit(host.pd, cq, cq, CAP))

    def path(self, this: int, that: int) -> AddressHandle:
        return self.hosts[this].path_to(self.hosts[that])

    def run(self) -> None:
        """Carry packets both ways until there are none, 1000 times at most."""
        one, other = (host.nic for host in self.hosts)
        for _ in range(1000):
            sent, back = one.transmit(0), other.transmit(0)
            for packet in sent:
                other.receive(packet, 0)
            for packet in back:
                one.receive(packet, 0)
            self.packets += sent + back
            if not sent + back:
                return
        raise AssertionError("the adapters do not come to an end")

    def send(self, data: bytes = b"hello", room: int = 64, **more: Any) -> bytes:
        """Send a message; return the peer's memory of ``room`` bytes."""
        (one, other), (qp, peers) = self.hosts, self.qps
        sink = other.buffer(room)
        other.nic.post_recv(peers, RecvWR((sink.sge(),)))
        one.nic.post_send(qp, SendWR(SendOpcode.SEND, (one.filled(data).sge(),), **more))
        self.run()
        return sink.read()


def sealed(packet: bytes, **change: int) -> bytes:
    """The packet with other values in its LRH, and the CRCs of these."""
    found = native.parse(packet)
    return found.replace(lrh=found.lrh.replace(**change)).seal().build()


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_packets_are_those_of_the_wire(kind: QPType, is_global: bool) -> None:
    fabric = Fabric(kind, is_global=is_global, sl=9)
    assert fabric.send(b"abc" * 999, 4096)[:2997] == b"abc" * 999
    (one, _), (qp, peers) = fabric.hosts, fabric.qps
    assert [len(queue.poll(4)) for queue in (qp.send_cq, peers.recv_cq)] == [1, 1]
    for packet in fabric.packets:
        found = native.parse(packet)
        assert found.seal() == found
        assert found.lrh.lnh == (LNH.IBA_GLOBAL if is_global else LNH.IBA_LOCAL)
        assert (found.lrh.sl, found.lrh.vl) == (9, 0)
        assert {found.lrh.slid, found.lrh.dlid} == {2, 4}
        assert (found.grh is not None) == is_global
        parsed = roce.parse(packet, medium=Medium.INFINIBAND)
        assert parsed.build() == packet
        assert parsed.seal() == parsed
    assert native.parse(fabric.packets[0]).lrh.slid == one.nic.query_port().lid


def test_packets_are_those_of_ethernet_from_the_bth_on() -> None:
    """Two connections that differ by their medium alone."""
    fabric = Fabric()
    fabric.send(b"abc" * 999, 4096)
    ethernet = [Host(number) for number in (1, 2)]
    qps = [Fabric._queue_pair(host, QPType.RC) for host in ethernet]
    for this, that in ((0, 1), (1, 0)):
        ah = ethernet[this].path_to(ethernet[that])
        ethernet[this].bring_up(qps[this], QUIET._replace(ah=ah, dest_qp_num=qps[that].qp_num))
    sink = ethernet[1].buffer(4096)
    ethernet[1].nic.post_recv(qps[1], RecvWR((sink.sge(),)))
    source = ethernet[0].filled(b"abc" * 999)
    ethernet[0].nic.post_send(qps[0], SendWR(SendOpcode.SEND, (source.sge(),)))
    frames = ethernet[0].nic.transmit(0)
    sent = [packet for packet in fabric.packets if native.parse(packet).lrh.slid == 2]
    assert [roce.parse(frame).packet for frame in frames] == [
        native.parse(packet).packet for packet in sent
    ]


CHANGES: dict[str, tuple[Drop, Callable[[NativePacket], NativePacket]]] = {
    "another DLID": (Drop.NOT_MINE, lambda p: p.replace(lrh=p.lrh.replace(dlid=6))),
    "the permissive DLID": (Drop.NOT_MINE, lambda p: p.replace(lrh=p.lrh.replace(dlid=0xFFFF))),
    "a multicast DLID": (Drop.NOT_MINE, lambda p: p.replace(lrh=p.lrh.replace(dlid=MLID))),
    "another SLID": (Drop.PEER, lambda p: p.replace(lrh=p.lrh.replace(slid=3))),
    "other path bits": (Drop.PEER, lambda p: p.replace(lrh=p.lrh.replace(dlid=5))),
    "a GRH": (Drop.PEER, lambda p: p.replace(grh=_grh(1, 2))),
    "a link version": (Drop.HEADERS, lambda p: p.replace(lrh=p.lrh.replace(lver=1))),
    "another P_Key": (
        Drop.PKEY,
        lambda p: p.replace(packet=p.packet._replace(bth=p.packet.bth.replace(pkey=0x7FFE))),
    ),
    "a transport version": (
        Drop.TVER,
        lambda p: p.replace(packet=p.packet._replace(bth=p.packet.bth.replace(tver=1))),
    ),
}


def _grh(one: int, other: int) -> GRH:
    gids = [Host(number, medium=Medium.INFINIBAND).gid for number in (one, other)]
    return GRH(sgid=gids[0], dgid=gids[1])


def one_packet(fabric: Fabric) -> bytes:
    (one, other), (qp, peers) = fabric.hosts, fabric.qps
    other.nic.post_recv(peers, RecvWR((other.buffer(64).sge(),)))
    one.nic.post_send(qp, SendWR(SendOpcode.SEND, (one.filled(b"hello").sge(),)))
    (packet,) = one.nic.transmit(0)
    return packet


@pytest.mark.parametrize("name", CHANGES)
def test_packets_that_fail_a_check_are_dropped(name: str) -> None:
    reason, change = CHANGES[name]
    fabric = Fabric()
    packet = one_packet(fabric)
    other = fabric.hosts[1].nic
    other.receive(change(native.parse(packet)).seal().build(), 0)
    assert other.drops == {reason: 1}
    other.receive(packet, 0)
    assert len(fabric.qps[1].recv_cq.poll(2)) == 1


@pytest.mark.parametrize(
    ("reason", "grh"),
    [
        (Drop.PEER, None),
        (Drop.PEER, _grh(3, 2)),
        (Drop.NOT_MINE, _grh(1, 3)),
        (Drop.HEADERS, _grh(1, 2).replace(ipver=4)),
        (Drop.MALFORMED, _grh(1, 2).replace(nxthdr=17)),
    ],
)
def test_a_queue_pair_with_a_global_path_needs_its_grh(reason: Drop, grh: GRH | None) -> None:
    fabric = Fabric(is_global=True)
    packet = one_packet(fabric)
    other, found = fabric.hosts[1].nic, native.parse(packet)
    changed = found.replace(grh=grh).seal()
    if grh is not None and changed.grh is not None:
        changed = changed.replace(grh=changed.grh.replace(nxthdr=grh.nxthdr))
        changed = changed._replace(icrc=changed.expected_icrc())
        changed = changed._replace(vcrc=changed.expected_vcrc())
    other.receive(changed.build(), 0)
    assert other.drops == {reason: 1}
    other.receive(packet, 0)
    assert len(fabric.qps[1].recv_cq.poll(2)) == 1


def test_routers_and_switches_may_change_some_fields() -> None:
    """The virtual lane, and of a GRH traffic class, flow label and hop limit. IBA 7.8.1."""
    for is_global in (False, True):
        fabric = Fabric(is_global=is_global)
        packet = one_packet(fabric)
        found = native.parse(packet)
        grh = found.grh and found.grh.replace(tclass=3, flowlabel=77, hoplmt=1)
        changed = found.replace(lrh=found.lrh.replace(vl=5), grh=grh)
        changed = changed._replace(vcrc=changed.expected_vcrc())
        fabric.hosts[1].nic.receive(changed.build(), 0)
        assert not fabric.hosts[1].nic.drops
        assert len(fabric.qps[1].recv_cq.poll(2)) == 1


def test_both_checksums_are_verified() -> None:
    fabric = Fabric()
    packet = one_packet(fabric)
    other, found = fabric.hosts[1].nic, native.parse(packet)
    other.receive(found._replace(vcrc=found.vcrc ^ 1).build(), 0)
    bad = found._replace(icrc=found.icrc ^ 1)
    other.receive(bad._replace(vcrc=bad.expected_vcrc()).build(), 0)
    other.receive_all([found._replace(vcrc=found.vcrc ^ 1).build()], 0)
    assert other.drops == {Drop.VCRC: 2, Drop.ICRC: 1}
    assert other.counters.port_rcv_errors == 3


def test_path_bits_select_a_lid() -> None:
    """Both ends have two LIDs; the path uses the second of each."""
    fabric = Fabric()
    for this, that in ((0, 1), (1, 0)):
        host, cq = fabric.hosts[this], fabric.hosts[this].nic.create_cq(64)
        qp = host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP), 0x30)
        path = fabric.path(this, that)
        path = path._replace(dlid=path.dlid + 1, src_path_bits=1)
        host.bring_up(qp, QUIET._replace(ah=path, dest_qp_num=0x30))
        fabric.qps[this] = qp
    assert fabric.send()[:5] == b"hello"
    assert {native.parse(packet).lrh.slid for packet in fabric.packets} == {3, 5}
    assert not fabric.hosts[1].nic.drops


@pytest.mark.parametrize("is_global", [False, True])
def test_datagrams_begin_with_their_grh(is_global: bool) -> None:
    fabric = Fabric(QPType.UD)
    (_, other), (qp, peers) = fabric.hosts, fabric.qps
    path = fabric.path(0, 1)._replace(is_global=is_global, sl=3, src_path_bits=1)
    found = fabric.send(ah=path, remote_qpn=peers.qp_num, remote_qkey=QUIET.qkey)
    assert found[GRH.SIZE : GRH.SIZE + 5] == b"hello"
    (done,) = peers.recv_cq.poll(2)
    assert (done.status, done.byte_len) == (WCStatus.SUCCESS, GRH.SIZE + 5)
    assert (done.slid, done.sl, done.dlid_path_bits, done.src_qp) == (3, 3, 4, qp.qp_num)
    assert done.network_hdr_type == NetworkType.IB
    assert bool(done.wc_flags & WCFlags.GRH) == is_global
    back = other.nic.init_ah_from_wc(done, found[: GRH.SIZE])
    assert (back.dlid, back.src_path_bits, back.sl, back.is_global) == (3, 4, 3, is_global)
    if is_global:
        assert GRH.parse(found).sgid == fabric.hosts[0].gid
        assert (back.sgid, back.dgid) == (path.dgid, path.sgid)


def test_the_path_back_to_a_sender_works() -> None:
    fabric = Fabric(QPType.UD)
    path = fabric.path(0, 1)._replace(src_path_bits=1)
    fabric.send(ah=path, remote_qpn=fabric.qps[1].qp_num, remote_qkey=QUIET.qkey)
    (done,) = fabric.qps[1].recv_cq.poll(2)
    back = fabric.hosts[1].nic.init_ah_from_wc(done, bytes(GRH.SIZE))
    fabric.hosts.reverse()
    fabric.qps.reverse()
    found = fabric.send(b"back", ah=back, remote_qpn=done.src_qp, remote_qkey=QUIET.qkey)
    assert found[GRH.SIZE :][:4] == b"back"


def test_a_group_has_a_multicast_lid() -> None:
    fabric = Fabric(QPType.UD)
    (one, other), (qp, peers) = fabric.hosts, fabric.qps
    one.nic.attach_mcast(qp, GROUP)
    other.nic.attach_mcast(peers, GROUP)
    own = one.buffer(64)
    one.nic.post_recv(qp, RecvWR((own.sge(),)))
    path = fabric.path(0, 1)._replace(dlid=MLID, dgid=GROUP, is_global=True)
    found = fabric.send(ah=path, remote_qpn=GROUP_QPN, remote_qkey=QUIET.qkey)
    assert found[GRH.SIZE :][:5] == own.read()[GRH.SIZE :][:5] == b"hello"
    other.nic.detach_mcast(peers, GROUP)
    fabric.send(ah=path, remote_qpn=GROUP_QPN, remote_qkey=QUIET.qkey)
    assert sum(other.nic.drops.values()) == 1
    assert not peers.recv_cq.poll(2)[1:]


@pytest.mark.parametrize(
    ("medium", "change", "message"),
    [
        (Medium.INFINIBAND, {"dlid": 0}, "dlid 0x0: a path needs the LID of a port"),
        (Medium.INFINIBAND, {"dlid": 0xFFFF}, "dlid 0xffff"),
        (Medium.INFINIBAND, {"dlid": MLID}, "a multicast packet has a GRH"),
        (Medium.INFINIBAND, {"vlan": 5}, "vlan 5: the link carries native InfiniBand packets"),
        (Medium.INFINIBAND, {"gid_type": GIDType.ROCE_V1}, "gid_type"),
        (Medium.INFINIBAND, {"sl": 16}, "sl"),
        (Medium.INFINIBAND, {"src_path_bits": 128}, "src_path_bits"),
        (Medium.INFINIBAND, {"is_global": 1}, "is_global"),
        (Medium.ETHERNET, {"dlid": 4}, "dlid 0x4: the link carries Ethernet frames, without LIDs"),
        (Medium.ETHERNET, {"is_global": False}, "is_global is False: the link carries Ethernet"),
        (Medium.ETHERNET, {"sl": 8}, "sl"),
        (Medium.IP, {"dlid": 4}, "without LIDs"),
    ],
)
def test_paths_of_other_links_are_refused(
    medium: Medium, change: dict[str, Any], message: str
) -> None:
    one, other = (Host(number, medium=medium) for number in (1, 2))
    qp = Fabric._queue_pair(one, QPType.RC)
    path = one.path_to(other)._replace(**change)
    with pytest.raises(VerbsError, match=message):
        one.bring_up(qp, QUIET._replace(ah=path, dest_qp_num=qp.qp_num))


@pytest.mark.parametrize(
    ("medium", "values", "message"),
    [
        (Medium.INFINIBAND, {}, "lid"),
        (Medium.INFINIBAND, {"lid": 0xC000}, "lid"),
        (Medium.INFINIBAND, {"lid": 3, "lmc": 1}, "the lower 1 bits of a base LID are 0"),
        (Medium.INFINIBAND, {"lid": 1 << 8, "lmc": 8}, "lmc"),
        (Medium.ETHERNET, {"lid": 1}, "lid"),
    ],
)
def test_lids_are_checked(medium: Medium, values: dict[str, Any], message: str) -> None:
    with pytest.raises(VerbsError, match=message):
        Nic(bytes(6), [bytes(16)], AddressSpace(), medium=medium, **values)


def test_frames_of_another_medium_are_no_packets() -> None:
    fabric = Fabric()
    packet = one_packet(fabric)
    for medium in (Medium.ETHERNET, Medium.IP):
        host = Host(2, medium=medium)
        host.nic.receive(packet, 0)
        assert sum(host.nic.drops.values()) == 1
        assert host.nic.drops.keys() <= {Drop.NOT_RDMA, Drop.MALFORMED}


def test_a_simulator_carries_ethernet_alone() -> None:
    host = Host(1, medium=Medium.INFINIBAND)
    with pytest.raises(FabricError, match="native InfiniBand packets"):
        Simulator().attach(host.nic, host.mac, Link())


@pytest.mark.parametrize("lnh", [LNH.RAW, LNH.IP_NON_IBA])
def test_raw_packets_are_dropped(lnh: LNH) -> None:
    fabric = Fabric()
    found = native.parse(one_packet(fabric))
    other = fabric.hosts[1].nic
    raw = found.replace(lrh=found.lrh.replace(lnh=lnh))
    other.receive(raw._replace(vcrc=raw.expected_vcrc()).build(), 0)
    assert sum(other.drops.values()) == 1
    assert roce.bth_offset(raw.build(), 0, len(raw.build()), medium=Medium.INFINIBAND) == -1


def test_malformed_requests_are_answered() -> None:
    """A READ request with a payload: NAK (invalid request). IBA 9.7.4.1.6."""
    fabric = Fabric()
    found = native.parse(one_packet(fabric))
    bth = found.packet.bth.replace(opcode=0x1F)
    bad = found._replace(packet=found.packet._replace(bth=bth)).seal().build()
    other = fabric.hosts[1].nic
    other.receive(bad, 0)
    (nak,) = other.transmit(0)
    assert native.parse(nak).packet.header(AETH).value == Nak.INVALID_REQUEST  # type: ignore[union-attr]
    assert not other.drops
