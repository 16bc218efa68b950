"""P_Keys of queue pair 1 and of datagrams. IBA 10.9."""

from errno import EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.cm.gsi import GSI_QKEY
from rdmawire.ib.device import GSI_QPN, pkeys_match
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.enums import QPType, WorkCompletion
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR
from rdmawire.wire import roce

FULL, LIMITED = 0x8123, 0x0123


class Two:
    """Two hosts, each with a queue pair for datagrams: queue pair 1, or another."""

    def __init__(self, *, gsi: bool, pkeys: tuple[int, ...], index: int = 0) -> None:
        self.simulator, link = Simulator(), Link()
        self.hosts = Host(1), Host(2)
        self.qps: list[QueuePair] = []
        for host in self.hosts:
            self.simulator.attach(host.nic, host.mac, link)
            cq = host.nic.create_cq(16)
            init = QPInit(host.pd, cq, cq, CAP)
            nic = host.nic
            qp = nic.create_gsi_qp(init) if gsi else nic.create_qp(QPType.UD, init)
            self.qps.append(qp)
        self.hosts[1].nic.pkeys = pkeys
        attributes = ATTRIBUTES._replace(qkey=GSI_QKEY)
        self.hosts[0].bring_up(self.qps[0], attributes)
        self.hosts[1].bring_up(self.qps[1], attributes._replace(pkey_index=index))
        self.sent: list[bytes] = []
        self.simulator.on_sent.append(lambda frame, _: self.sent.append(frame.data))

    def send(self, pkey: int, **more: int) -> list[WorkCompletion]:
        """What the second host gets of a datagram with this P_Key."""
        first, second = self.hosts
        first.nic.pkeys = (pkey,)
        second.nic.post_recv(self.qps[1], [RecvWR((second.buffer(64).sge(),))])
        wr = SendWR(
            SendOpcode.SEND,
            ah=first.path_to(second),
            remote_qpn=self.qps[1].qp_num,
            remote_qkey=GSI_QKEY,
        )
        first.nic.post_send(self.qps[0], [wr._replace(**more)])  # type: ignore[arg-type]
        self.simulator.run()
        return self.qps[1].recv_cq.poll(16)


@pytest.mark.parametrize(
    ("table", "pkey", "index"),
    [
        ((0xFFFF, FULL), FULL, 1),
        ((0xFFFF, FULL), LIMITED, 1),
        ((0xFFFF, LIMITED), FULL, 1),
        ((0xFFFF, LIMITED, FULL), FULL, 2),
        ((FULL, LIMITED, FULL), LIMITED, 0),
        ((0xFFFF, LIMITED), LIMITED, None),
        ((0xFFFF, 0, 0x8000), 0x8000, None),
        ((0xFFFF,), FULL, None),
    ],
)
def test_queue_pair_1_takes_every_p_key_of_the_ports_table(
    table: tuple[int, ...], pkey: int, index: int | None
) -> None:
    two = Two(gsi=True, pkeys=table)
    found = [done.pkey_index for done in two.send(pkey)]
    assert found == ([] if index is None else [index])
    assert two.hosts[1].nic.drops == ({Drop.PKEY: 1} if index is None else {})


def test_queue_pair_1_follows_the_table() -> None:
    two = Two(gsi=True, pkeys=(0xFFFF,))
    assert two.send(FULL) == []
    two.hosts[1].nic.pkeys = (0xFFFF, 1, FULL)
    assert [done.pkey_index for done in two.send(FULL)] == [2]


@pytest.mark.parametrize(("pkey", "index"), [(FULL, 1), (LIMITED, 1), (0xFFFF, None)])
def test_other_queue_pairs_take_their_own_p_key(pkey: int, index: int | None) -> None:
    two = Two(gsi=False, pkeys=(0xFFFF, FULL), index=1)
    found = [done.pkey_index for done in two.send(pkey)]
    assert found == ([] if index is None else [index])


def test_queue_pair_1_sends_with_any_p_key_of_the_table() -> None:
    two = Two(gsi=True, pkeys=(0xFFFF, FULL, 0x8002))
    first, second = two.hosts
    two.send(0xFFFF)
    for index in (None, 0, 2, 1, None):
        wr = SendWR(
            SendOpcode.SEND,
            ah=second.path_to(first),
            remote_qpn=GSI_QPN,
            remote_qkey=GSI_QKEY,
            pkey_index=index,
        )
        second.nic.post_send(two.qps[1], [wr])
    two.simulator.run()
    pkeys = [roce.parse(frame).packet.bth.pkey for frame in two.sent[1:]]
    assert pkeys == [0xFFFF, 0xFFFF, 0x8002, FULL, 0xFFFF]


@pytest.mark.parametrize("index", [-1, 128, "1", 1.5])
def test_a_place_that_no_table_has_is_refused(index: int) -> None:
    with pytest.raises(VerbsError, match="pkey_index") as caught:
        Two(gsi=True, pkeys=(0xFFFF,)).send(0xFFFF, pkey_index=index)
    assert caught.value.errno == EINVAL


@pytest.mark.parametrize("index", [0, 1])
def test_only_queue_pair_1_may_choose(index: int) -> None:
    with pytest.raises(VerbsError, match="a P_Key of its own") as caught:
        Two(gsi=False, pkeys=(0xFFFF,)).send(0xFFFF, pkey_index=index)
    assert caught.value.errno == EINVAL


def test_numbers_match_where_one_is_a_full_members() -> None:
    assert pkeys_match(FULL, LIMITED)
    assert pkeys_match(LIMITED, FULL)
    assert pkeys_match(FULL, FULL)
    assert not pkeys_match(LIMITED, LIMITED)
    assert not pkeys_match(0x8000, 0x8000)
    assert not pkeys_match(FULL, 0x8124)
