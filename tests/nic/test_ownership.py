"""What a caller names is the adapter's own and still there, or nothing is done with it."""

from collections.abc import Callable
from errno import EBUSY, EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import Pair
from rdmawire.memory.mw import Bind
from rdmawire.nic.attribute import QPAttributes, QPAttrMask
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.cq import CompletionQueue
from rdmawire.nic.qp import QPInit
from rdmawire.nic.raw import FlowRule
from rdmawire.nic.srq import XRCReceiver
from rdmawire.nic.state import QPType
from rdmawire.nic.work import BindMW, RecvWR, SendOpcode, SendWR


def foreign(do: Callable[[], object]) -> None:
    with pytest.raises(VerbsError, match="adapter") as caught:
        do()
    assert caught.value.errno == EINVAL


def test_nothing_of_another_adapter_is_taken() -> None:
    pair = Pair()
    ours, theirs = pair.client, pair.server
    nic = ours.nic
    srq = theirs.nic.create_srq(theirs.pd, 4)
    rule = FlowRule(theirs.qp)
    for init in (
        QPInit(theirs.pd, ours.cq, ours.cq),
        QPInit(ours.pd, theirs.cq, ours.cq),
        QPInit(ours.pd, ours.cq, theirs.cq),
        QPInit(ours.pd, ours.cq, ours.cq, srq=srq),
    ):
        foreign(lambda init=init: nic.create_qp(QPType.RC, init))  # type: ignore[misc]
    foreign(lambda: nic.create_srq(theirs.pd, 4))
    foreign(lambda: nic.create_srq(ours.pd, 4, 1, XRCReceiver(1, theirs.cq)))
    foreign(lambda: nic.dealloc_pd(theirs.pd))
    foreign(lambda: nic.destroy_cq(theirs.cq))
    foreign(lambda: nic.modify_cq(theirs.cq, 0, 0))
    foreign(lambda: nic.destroy_srq(srq))
    foreign(lambda: nic.post_srq_recv(srq, [RecvWR()]))
    foreign(lambda: nic.destroy_qp(theirs.qp))
    foreign(lambda: nic.query_qp(theirs.qp))
    foreign(lambda: nic.modify_qp(theirs.qp, QPAttributes(), QPAttrMask.STATE))
    foreign(lambda: nic.post_send(theirs.qp, [], 0))
    foreign(lambda: nic.post_recv(theirs.qp, [], 0))
    foreign(lambda: nic.attach_mcast(theirs.qp, b"\xff" * 16))
    foreign(lambda: nic.create_flow(rule))
    foreign(lambda: nic.memory.reg_mr(theirs.pd, ours.region.address, 8, 0))
    foreign(lambda: nic.memory.alloc_mr(theirs.pd, 1))
    foreign(lambda: nic.memory.alloc_mw(theirs.pd, 1))


def test_what_is_destroyed_is_gone() -> None:
    end = Pair().client
    nic = end.nic
    spare, cq, pd = nic.create_cq(9), nic.create_cq(9), nic.alloc_pd()
    qp = nic.create_qp(QPType.RC, QPInit(pd, cq, cq))
    srq = nic.create_srq(pd, 4)
    nic.destroy_qp(qp)
    nic.destroy_srq(srq)
    nic.destroy_cq(cq)
    nic.dealloc_pd(pd)
    foreign(lambda: nic.destroy_qp(qp))
    foreign(lambda: nic.post_send(qp, [], 0))
    foreign(lambda: nic.modify_qp(qp, QPAttributes(), QPAttrMask.STATE))
    foreign(lambda: nic.destroy_srq(srq))
    foreign(lambda: nic.destroy_cq(cq))
    foreign(lambda: nic.dealloc_pd(pd))
    foreign(lambda: nic.create_qp(QPType.RC, QPInit(pd, spare, spare)))
    foreign(lambda: nic.create_qp(QPType.RC, QPInit(end.pd, spare, cq)))
    assert pd.users == 0


def test_a_queue_where_an_xrc_srq_completes_stays() -> None:
    end = Pair().client
    nic = end.nic
    cq: CompletionQueue = nic.create_cq(9)
    srq = nic.create_srq(end.pd, 4, 1, XRCReceiver(nic.open_xrcd(), cq))
    with pytest.raises(VerbsError, match="1 XRC SRQs") as caught:
        nic.destroy_cq(cq)
    assert caught.value.errno == EBUSY
    nic.destroy_srq(srq)
    nic.destroy_cq(cq)


def test_windows_and_regions_of_others_are_not_bound() -> None:
    pair = Pair()
    client, server = pair.client, pair.server
    memory = client.nic.memory
    gone = memory.alloc_mw(client.pd, 2)
    memory.dealloc_mw(gone)
    theirs = server.nic.memory.alloc_mw(client.peer.pd, 2)
    mine = client.region.region
    for window in (gone, theirs):
        bind = Bind(mine.iova, 8, 4, rkey=window.key + 1)
        wr = SendWR(SendOpcode.BIND_MW, bind=BindMW(window, mine, bind))
        fresh = Pair()
        fresh.client.nic.post_send(fresh.client.qp, [wr], 0)
        fresh.drive()
        assert [done.status for done in fresh.client.poll()] == [WCStatus.MW_BIND_ERR]
