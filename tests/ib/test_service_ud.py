"""Unreliable datagrams: Q_Keys, the GRH's place, groups. IBA 9.8.3, 10.5.2, 11.4.1.2."""

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Buffer, Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.ah import AddressHandle, mapped, multicast_mac
from rdmawire.verbs.enums import QPState, QPType, WCFlags, WCStatus
from rdmawire.verbs.multicast import MULTICAST_QPN
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire.ib import DETH, GRH
from rdmawire.wire.inet import IPv4, IPv6
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import Stage, only, outcomes, statuses

GROUPS = {"ipv4": mapped(bytes((239, 1, 2, 3))), "ipv6": b"\xff\x0e" + bytes(13) + b"\x07"}


def stage_of(*, ipv6: bool = False) -> Stage:
    return Stage(Pair(kind=QPType.UD, ipv6=ipv6))


@pytest.mark.parametrize("ipv6", [False, True])
def test_forty_bytes_stand_before_the_payload(ipv6: bool) -> None:
    stage = stage_of(ipv6=ipv6)
    got = stage.server.receive(5)
    stage.client.send(b"hello")
    stage.drive()
    done = only(stage.server)
    frame = stage.sent[0].frame
    network = frame[14:54] if ipv6 else bytes(20) + frame[14:34]
    assert got.buffer.read() == network + b"hello"
    assert done.byte_len == 45
    assert done.wc_flags == WCFlags.GRH
    assert done.src_qp == stage.client.qp.qp_num


def test_the_grh_names_the_sender() -> None:
    stage = stage_of()
    got = stage.server.receive(5)
    stage.client.send(b"hello")
    stage.drive()
    assert IPv4.parse(got.buffer.read(20, 20)).src == stage.client.gid[12:]
    stage = stage_of(ipv6=True)
    got = stage.server.receive(5)
    stage.client.send(b"hello")
    stage.drive()
    assert IPv6.parse(got.buffer.read(40)).src == stage.client.gid
    assert GRH.SIZE == 40


def test_the_q_key_is_the_receivers() -> None:
    stage = stage_of()
    stage.server.receive(8)
    good = stage.server.qp.qkey
    for qkey in (good + 1, good):
        stage.request(Opcode.UD_SEND_ONLY, DETH(qkey=qkey, srcqp=7), payload=b"1234")
    assert stage.server.nic.drops[Drop.QKEY] == 1
    assert only(stage.server).src_qp == 7


def test_a_q_key_with_the_upper_bit_stands_for_the_senders_own() -> None:
    stage = stage_of()
    stage.client.qp.qkey = 0x77
    for remote_qkey in (0x8000_0000, 0x1234):
        sge = stage.client.region.sge(4)
        wr = SendWR(SendOpcode.SEND, (sge,), remote_qkey=remote_qkey)
        addressed = wr._replace(
            ah=stage.client.path_to(stage.server), remote_qpn=stage.server.qp.qp_num
        )
        stage.client.post(addressed, stage.client.region)
    stage.drive()
    found = [sent.packet.header(DETH) for sent in stage.sent]
    assert [deth.qkey for deth in found if deth] == [0x77, 0x1234]


def test_without_a_receive_a_datagram_is_dropped() -> None:
    stage = stage_of()
    stage.client.send(b"lost")
    stage.drive()
    assert stage.server.nic.drops[Drop.NO_WQE] == 1
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    got = stage.server.receive(5)
    stage.client.send(b"found")
    stage.drive()
    assert got.buffer.read(5, 40) == b"found"


@pytest.mark.parametrize("room", [0, 39, 44])
def test_a_datagram_longer_than_its_receive_is_dropped_and_the_receive_waits(room: int) -> None:
    stage = stage_of()
    buffer = stage.server.buffer(64)
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((buffer.sge(room),), 3),))
    stage.client.send(b"hello")
    stage.drive()
    assert stage.server.nic.drops == {Drop.LENGTH: 1}
    assert statuses(stage.server) == []
    assert stage.server.qp.state is QPState.RTS
    assert buffer.read(64) == bytes(64)
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_the_receive_that_was_too_short_takes_the_next_datagram() -> None:
    stage = stage_of()
    got = stage.server.receive(4)
    stage.client.send(b"hello")
    stage.client.send(b"four")
    stage.drive()
    assert outcomes(stage.server) == [(1, WCStatus.SUCCESS)]
    assert got.buffer.read(4, 40) == b"four"


def test_order_does_not_matter() -> None:
    stage = stage_of()
    qkey = stage.server.qp.qkey
    for psn in (5, 3, 9, 3):
        stage.server.receive(4)
        stage.request(Opcode.UD_SEND_ONLY, DETH(qkey=qkey, srcqp=1), payload=b"1234", psn=psn)
    assert statuses(stage.server) == [WCStatus.SUCCESS] * 4


def test_one_queue_pair_sends_to_many() -> None:
    stage = stage_of()
    third = Host(3)
    stage.pair.simulator.attach(third.nic, third.mac, stage.pair.link)
    listener = Listener(third)
    wr = SendWR(SendOpcode.SEND, (stage.client.filled(b"to you").sge(),), remote_qkey=0x11)
    got = stage.server.receive(6)
    for host, qpn in ((stage.server, stage.server.qp.qp_num), (third, listener.qp.qp_num)):
        addressed = wr._replace(ah=stage.client.path_to(host), remote_qpn=qpn)
        stage.client.post(addressed, stage.client.region)
    stage.drive()
    assert got.buffer.read(6, 40) == listener.buffer.read(6, 40) == b"to you"


class Listener:
    """A datagram queue pair of a host, with one receive."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cq = host.nic.create_cq(16)
        self.qp: QueuePair = host.nic.create_qp(QPType.UD, QPInit(host.pd, self.cq, self.cq, CAP))
        host.bring_up(self.qp, ATTRIBUTES)
        self.buffer: Buffer = host.buffer(256)
        host.nic.post_recv(self.qp, (RecvWR((self.buffer.sge(),)),))

    def received(self) -> bool:
        return bool(self.cq.poll(9))


class Crowd:
    """A sender, and hosts with two listeners each, on one link."""

    def __init__(self, group: bytes) -> None:
        self.group = group
        ipv6 = group[0] == 0xFF
        self.simulator, self.link = Simulator(), Link()
        self.hosts = [Host(number, ipv6=ipv6) for number in (1, 2, 3)]
        for host in self.hosts:
            self.simulator.attach(host.nic, host.mac, self.link)
        self.sender = Listener(self.hosts[0])
        self.listeners = [Listener(host) for host in self.hosts[1:] for _ in range(2)]

    def join(self, *places: int) -> None:
        for place in places:
            listener = self.listeners[place]
            listener.host.nic.attach_mcast(listener.qp, self.group)

    def send(self) -> None:
        host = self.hosts[0]
        handle = AddressHandle(multicast_mac(self.group), self.group, host.gid)
        sge = host.filled(b"to all").sge()
        wr = SendWR(SendOpcode.SEND, (sge,), ah=handle, remote_qpn=MULTICAST_QPN, remote_qkey=0x11)
        host.nic.post_send(self.sender.qp, (wr,))
        self.simulator.run()


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_multicast_datagram_is_received_by_the_members(group: bytes) -> None:
    crowd = Crowd(group)
    crowd.join(0, 1, 3)
    crowd.send()
    assert [listener.received() for listener in crowd.listeners] == [True, True, False, True]
    assert [crowd.listeners[place].buffer.read(6, 40) for place in (0, 1, 3)] == [b"to all"] * 3


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_sender_that_is_a_member_receives_its_own_datagram(group: bytes) -> None:
    crowd = Crowd(group)
    crowd.hosts[0].nic.attach_mcast(crowd.sender.qp, group)
    crowd.join(2)
    crowd.send()
    assert crowd.sender.buffer.read(6, 40) == b"to all"
    assert [listener.received() for listener in crowd.listeners] == [False, False, True, False]


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_queue_pair_that_left_a_group_receives_nothing(group: bytes) -> None:
    crowd = Crowd(group)
    crowd.join(0, 1)
    listener = crowd.listeners[0]
    crowd.send()
    assert listener.received()
    listener.host.nic.detach_mcast(listener.qp, group)
    listener.host.nic.post_recv(listener.qp, (RecvWR((listener.buffer.sge(),)),))
    crowd.send()
    assert not listener.received()


def test_a_member_of_a_group_is_not_destroyed() -> None:
    crowd = Crowd(GROUPS["ipv4"])
    crowd.join(0)
    listener = crowd.listeners[0]
    with pytest.raises(VerbsError):
        listener.host.nic.destroy_qp(listener.qp)
    listener.host.nic.detach_mcast(listener.qp, crowd.group)
    listener.host.nic.destroy_qp(listener.qp)
