"""What a caller names is the adapter's own and still there, or nothing is done with it."""

from collections.abc import Callable
from errno import EBUSY, EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import Pair
from rdmawire.ib import FlowRule
from rdmawire.ib.qp import QPInit
from rdmawire.ib.service import SERVICES
from rdmawire.memory.mw import Bind
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.srq import XRCReceiver
from rdmawire.verbs.wr import BindMW, RecvWR, SendOpcode, SendWR


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
    domain = nic.open_xrcd()
    foreign(lambda: nic.create_srq(ours.pd, 4, 1, XRCReceiver(domain, theirs.cq)))
    foreign(lambda: nic.dealloc_pd(theirs.pd))
    foreign(lambda: nic.destroy_cq(theirs.cq))
    foreign(lambda: nic.modify_cq(theirs.cq, 0, 0))
    foreign(lambda: nic.destroy_srq(srq))
    foreign(lambda: nic.post_srq_recv(srq, [RecvWR()]))
    foreign(lambda: nic.destroy_qp(theirs.qp))
    foreign(lambda: nic.query_qp(theirs.qp))
    foreign(lambda: nic.modify_qp(theirs.qp, QPAttributes(), QPAttrMask.STATE))
    foreign(lambda: nic.post_send(theirs.qp, []))
    foreign(lambda: nic.post_recv(theirs.qp, []))
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
    foreign(lambda: nic.post_send(qp, []))
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


def refused(do: Callable[[], object], reason: str, errno: int = EINVAL) -> None:
    with pytest.raises(VerbsError, match=reason) as caught:
        do()
    assert caught.value.errno == errno


def test_an_xrc_domain_is_one_that_was_opened_and_not_closed() -> None:
    end = Pair().client
    nic, cq, pd = end.nic, end.cq, end.pd
    closed = nic.open_xrcd()
    nic.close_xrcd(closed)
    for domain in (0, closed, 777):
        receiver, init = XRCReceiver(domain, cq), QPInit(pd, cq, cq, xrc_domain=domain)
        foreign(lambda receiver=receiver: nic.create_srq(pd, 4, 1, receiver))  # type: ignore[misc]
        foreign(lambda init=init: nic.create_qp(QPType.XRC_TGT, init))  # type: ignore[misc]
        foreign(lambda domain=domain: nic.close_xrcd(domain))  # type: ignore[misc]
    assert (len(nic.device.srqs), len(nic.device.qps)) == (0, 1)


def test_an_xrc_domain_is_closed_when_nothing_is_in_it() -> None:
    end = Pair().client
    nic, cq, pd = end.nic, end.cq, end.pd
    domain = nic.open_xrcd()
    srq = nic.create_srq(pd, 4, 1, XRCReceiver(domain, cq))
    qp = nic.create_qp(QPType.XRC_TGT, QPInit(pd, cq, cq, xrc_domain=domain))
    refused(lambda: nic.close_xrcd(domain), "used by 2 queues", EBUSY)
    nic.destroy_srq(srq)
    refused(lambda: nic.close_xrcd(domain), "used by 1 queues", EBUSY)
    nic.destroy_qp(qp)
    nic.close_xrcd(domain)
    refused(lambda: nic.close_xrcd(domain), "or was closed", EINVAL)


@pytest.mark.parametrize("kind", sorted(set(QPType) - {QPType.XRC_TGT}))
def test_only_a_target_is_in_an_xrc_domain(kind: QPType) -> None:
    end = Pair().client
    domain = end.nic.open_xrcd()
    end.nic.create_qp(kind, QPInit(end.pd, end.cq, end.cq, xrc_domain=domain))
    end.nic.close_xrcd(domain)
    end.nic.create_qp(kind, QPInit(end.pd, end.cq, end.cq, xrc_domain=domain))


@pytest.mark.parametrize("kind", QPType)
def test_a_shared_queue_is_one_that_its_queue_pair_may_take_from(kind: QPType) -> None:
    """That of an XRC domain is for messages that name it, and a target has none besides."""
    end = Pair().client
    nic, domain = end.nic, end.nic.open_xrcd()
    plain, extended = (
        nic.create_srq(end.pd, 4, 1, xrc) for xrc in (None, XRCReceiver(domain, end.cq))
    )
    target = domain if kind is QPType.XRC_TGT else 0
    init = QPInit(end.pd, end.cq, end.cq, srq=extended, xrc_domain=target)
    refused(lambda: nic.create_qp(kind, init), "SRQ")
    ordinary = init._replace(srq=plain)
    if SERVICES[kind].receives:
        assert nic.create_qp(kind, ordinary).srq is plain
    else:
        refused(lambda: nic.create_qp(kind, ordinary), "receive nothing")


@pytest.mark.parametrize("kind", [QPType.RC, QPType.XRC_INI, QPType.XRC_TGT])
def test_sizes_of_a_receive_queue_that_is_not_there_are_ignored(kind: QPType) -> None:
    end = Pair().client
    nic = end.nic
    cap = QPCap(8, 1 << 30, 1, 1 << 30)
    init = QPInit(end.pd, end.cq, end.cq, cap, xrc_domain=nic.open_xrcd())
    if SERVICES[kind].receives:
        refused(lambda: nic.create_qp(kind, init), "max_recv_wr")
        init = init._replace(srq=nic.create_srq(end.pd, 4))
    assert nic.create_qp(kind, init).cap == cap


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
        fresh.client.nic.post_send(fresh.client.qp, [wr])
        fresh.drive()
        assert [done.status for done in fresh.client.poll()] == [WCStatus.MW_BIND_ERR]
