"""Objects of verbs in the words of libibverbs: their methods, and what Python shows of them."""

import re
from collections.abc import Callable
from errno import EINVAL
from random import Random

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import ALL_ACCESS, Host
from rdmawire.fabric.pair import CAP, Pair
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.port import PORT
from rdmawire.ib.qp import QPInit
from rdmawire.memory.page import PAGE_4K
from rdmawire.verbs.async_event import SRQLimitReached
from rdmawire.verbs.enums import PortState, QPState, QPType, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, RXE
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.srq import XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge


def test_queue_pairs_post_and_change_by_methods_of_their_own() -> None:
    pair = Pair()
    client, server = pair.client, pair.server
    sink = server.buffer(8)
    server.qp.post_recv(RecvWR((sink.sge(),), wr_id=1))
    client.qp.post_send([SendWR(SendOpcode.SEND, (client.filled(b"by name!").sge(),), wr_id=2)])
    pair.drive()
    assert sink.read() == b"by name!"
    (done,) = client.cq.poll(4)
    assert (done.wr_id, done.status) == (2, WCStatus.SUCCESS)
    assert client.qp.query().qp_state is QPState.RTS
    client.qp.modify(QPAttributes(qp_state=QPState.ERR), QPAttrMask.STATE)
    assert client.qp.query().qp_state is client.qp.state is QPState.ERR


def test_methods_refuse_what_the_verbs_refuse() -> None:
    pair = Pair()
    qp = pair.client.qp
    pair.client.nic.destroy_qp(qp)
    calls: list[Callable[[], object]] = [
        lambda: qp.post_send(SendWR(SendOpcode.SEND)),
        lambda: qp.post_recv(RecvWR()),
        lambda: qp.modify(QPAttributes(), QPAttrMask.STATE),
        qp.query,
    ]
    for call in calls:
        with pytest.raises(VerbsError, match="QP 0x11 is no QP of this adapter") as caught:
            call()
        assert caught.value.errno == EINVAL


def test_a_domain_registers_memory_and_allocates_windows() -> None:
    host = Host()
    memory = host.space.allocate(PAGE_4K)
    mr = host.pd.reg_mr(memory.base, 100, ALL_ACCESS)
    assert (mr.addr, mr.length, mr.lkey, mr.rkey) == (memory.base, 100, mr.key, mr.key)
    assert host.pd.reg_mr(memory.base, 100, ALL_ACCESS, iova=0x7000).iova == 0x7000
    window = host.pd.alloc_mw(2)
    assert (window.type, host.pd.users) == (host.nic.device.profile.window_type_2, 3)
    pd = host.nic.alloc_pd()
    host.nic.dealloc_pd(pd)
    with pytest.raises(VerbsError, match="deallocated") as caught:
        pd.reg_mr(memory.base, 100, ALL_ACCESS)
    assert caught.value.errno == EINVAL


def test_a_shared_receive_queue_takes_one_receive_or_several() -> None:
    host = Host()
    srq = host.nic.create_srq(host.pd, 4)
    srq.post_recv(RecvWR())
    srq.post_recv([RecvWR(), RecvWR()])
    assert len(srq) == 3
    with pytest.raises(VerbsError, match="is full"):
        srq.post_recv([RecvWR(), RecvWR()])
    assert len(srq) == 4


def test_devices_ports_and_tables_are_queried() -> None:
    host = Host(profile=RXE)
    nic = host.nic
    assert nic.query_device() is RXE
    port = nic.query_port()
    assert (port.state, port.active_mtu) == (PortState.ACTIVE, RXE.max_mtu)
    assert (port.gid_tbl_len, port.pkey_tbl_len) == (RXE.gid_tbl_len, RXE.pkey_tbl_len)
    assert nic.query_gid(PORT, 0) == host.gid
    assert nic.query_gid(PORT, 1) == bytes(16)
    assert nic.query_pkey(PORT, 0) == 0xFFFF
    nic.up = False
    assert nic.query_port(PORT).state is PortState.DOWN


@pytest.mark.parametrize(
    "ask",
    [
        lambda nic: nic.query_port(2),
        lambda nic: nic.query_gid(0, 0),
        lambda nic: nic.query_gid(1, IBTA.gid_tbl_len),
        lambda nic: nic.query_pkey(2, 0),
        lambda nic: nic.query_pkey(1, -1),
    ],
)
def test_there_is_one_port_and_tables_end(ask: Callable[[object], object]) -> None:
    with pytest.raises(VerbsError, match=r"(port_num|index): -?\d+ is not an integer") as caught:
        ask(Host().nic)
    assert caught.value.errno == EINVAL


def test_representations_have_number_state_and_attributes() -> None:
    host = Host(1)
    cq = host.nic.create_cq(16)
    srq = host.nic.create_srq(host.pd, 8)
    srq.post_recv([RecvWR()] * 3)
    srq.modify(limit=2)
    qp = host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))
    mr = host.buffer(100).region
    xrc = host.nic.create_srq(host.pd, 8, 1, XRCReceiver(host.nic.open_xrcd(), cq))
    start = f"{mr.addr:#x}"
    assert repr(host.nic) == ("<Nic 02:00:00:00:00:01: port up, 1 QP, 1 CQ, 1 MR, profile ibta>")
    assert repr(host) == f"<Host 10.0.0.1: {host.nic!r}>"
    assert repr(Host(2, ipv6=True)).startswith("<Host fd00::2: <Nic 02:00:00:00:00:02: port up")
    assert repr(host.pd) == "<PD 1: 4 users>"
    assert repr(mr) == f"<MR {mr.key:#x}: 100 bytes at {start}>"
    assert repr(cq) == "<CQ 2: 0 of 16 completions>"
    assert repr(srq) == "<SRQ 3: 3 of 8 receives, limit 2>"
    assert repr(xrc) == "<XRC SRQ 5: 0 of 8 receives>"
    assert repr(qp) == "<RC QP 0x11 in RESET: 0 sends, 0 receives>"
    assert repr(SRQLimitReached(3)) == "SRQLimitReached(srq=3)"
    host.nic.up = False
    assert "port down" in repr(host.nic)
    managed = ManagedPort(Host(3).nic, lambda _: None, Random(1))
    assert repr(managed.nic).startswith("<Nic 02:00:00:00:00:03")


def test_representations_of_work_leave_out_what_it_does_not_say() -> None:
    send = SendWR(SendOpcode.RDMA_WRITE, (Sge(4096, 8, 7),), wr_id=3, rkey=9)
    assert repr(send) == (
        "SendWR(opcode=RDMA_WRITE, sges=(Sge(address=4096, length=8, lkey=7),), wr_id=3, rkey=9)"
    )
    done = WorkCompletion(3, opcode=WCOpcode.RDMA_WRITE, byte_len=8, qp_num=17)
    assert repr(done) == (
        "WorkCompletion(wr_id=3, status=SUCCESS, opcode=RDMA_WRITE, byte_len=8, qp_num=17)"
    )
    failed = WorkCompletion(4, WCStatus.WR_FLUSH_ERR, qp_num=17)
    assert repr(failed) == "WorkCompletion(wr_id=4, status=WR_FLUSH_ERR, opcode=SEND, qp_num=17)"
    assert repr(Host().nic.query_port()) == (
        "PortAttr(state=ACTIVE, max_mtu=MTU_4096, active_mtu=MTU_4096, "
        "gid_tbl_len=256, max_msg_sz=2147483648, pkey_tbl_len=128)"
    )


def test_a_pair_shows_both_queue_pairs_and_the_time() -> None:
    pair = Pair()
    pair.client.send(b"x")
    assert repr(pair) == (
        "<Pair: client <RC QP 0x11 in RTS: 1 sends, 0 receives>, "
        "server <RC QP 0x11 in RTS: 0 sends, 0 receives>, 0 ns>"
    )
    assert repr(pair.client).startswith("<End 10.0.0.1: <Nic ")
    shown = (pair, pair.client, pair.client.nic, pair.client.pd, pair.client.region)
    assert not any(re.search(r"object at|0x7f|\n", repr(thing)) for thing in shown)
