"""What is made, asked and destroyed: users are counted, limits kept, errno as libibverbs has it."""

from collections.abc import Callable
from dataclasses import replace
from errno import EBUSY, EINVAL, ENOMEM

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair
from rdmawire.ib.qp import QPInit
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.async_event import SRQLimitReached
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import IBTA
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire.management import MTU
from tests.ib.stage import Stage, climb, events, go, statuses

TINY = replace(IBTA, max_qp=2, max_cq=2, max_srq=2)


def refused(call: Callable[[], object]) -> int | None:
    """The errno that a verb fails with."""
    with pytest.raises(VerbsError) as refusal:
        call()
    return refusal.value.errno


def test_what_is_in_use_is_not_destroyed() -> None:
    host = Host()
    nic = host.nic
    pd = nic.alloc_pd()
    cq = nic.create_cq(4)
    srq = nic.create_srq(pd, 4)
    qp = nic.create_qp(QPType.RC, QPInit(pd, cq, cq, CAP, srq=srq))
    for call in (
        lambda: nic.dealloc_pd(pd),
        lambda: nic.destroy_cq(cq),
        lambda: nic.destroy_srq(srq),
    ):
        assert refused(call) == EBUSY
    nic.destroy_qp(qp)
    nic.destroy_srq(srq)
    nic.destroy_cq(cq)
    nic.dealloc_pd(pd)


def test_a_domain_with_memory_in_it_is_not_destroyed() -> None:
    host = Host()
    buffer = host.buffer(64)
    window = host.nic.memory.alloc_mw(host.pd, 2)
    assert refused(lambda: host.nic.dealloc_pd(host.pd)) == EBUSY
    host.nic.memory.dereg_mr(buffer.region)
    assert refused(lambda: host.nic.dealloc_pd(host.pd)) == EBUSY
    host.nic.memory.dealloc_mw(window)
    host.nic.dealloc_pd(host.pd)


def test_limits_of_the_profile() -> None:
    host = Host(profile=TINY)
    cq = host.nic.create_cq(4)
    makers: tuple[Callable[[], object], ...] = (
        lambda: host.nic.create_cq(4),
        lambda: host.nic.create_srq(host.pd, 4),
        lambda: host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq)),
    )
    for make, more in zip(makers, (1, 2, 2), strict=True):
        for _ in range(more):
            make()
        assert refused(make) == ENOMEM


@pytest.mark.parametrize(
    "cap",
    [
        QPCap(max_send_wr=IBTA.max_qp_wr + 1),
        QPCap(max_recv_wr=IBTA.max_qp_wr + 1),
        QPCap(max_send_sge=IBTA.max_sge + 1),
        QPCap(max_recv_sge=IBTA.max_sge + 1),
        QPCap(max_inline_data=IBTA.max_inline_data + 1),
        QPCap(max_send_wr=-1),
    ],
)
def test_sizes_beyond_the_profile(cap: QPCap) -> None:
    host = Host()
    cq = host.nic.create_cq(4)
    assert refused(lambda: host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, cap))) == EINVAL
    assert host.nic.device.qps == {}
    host.nic.destroy_cq(cq)


def test_queue_pairs_have_numbers_of_their_own() -> None:
    host = Host()
    cq = host.nic.create_cq(4)
    numbers = [host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq)).qp_num for _ in range(100)]
    assert len(set(numbers)) == 100
    assert min(numbers) > 1


def test_attributes_are_queried_as_they_were_set() -> None:
    stage = Stage()
    told = stage.client.nic.query_qp(stage.client.qp)
    assert told.qp_state is told.cur_qp_state is QPState.RTS
    assert told.dest_qp_num == stage.server.qp.qp_num
    assert told.path_mtu is MTU.MTU_1024
    assert (told.sq_psn, told.rq_psn, told.timeout) == (100, 100, 14)
    assert told.cap == CAP


def test_a_draining_send_queue_is_queried_as_such() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    stage.client.nic.transmit(0)
    assert not stage.client.nic.query_qp(stage.client.qp).sq_draining
    go(stage.client, QPState.SQD)
    assert stage.client.nic.query_qp(stage.client.qp).sq_draining
    stage.client.nic.handle_timer(stage.client.nic.next_timer() or 0)
    stage.drive()
    assert not stage.client.nic.query_qp(stage.client.qp).sq_draining


def test_a_refused_change_changes_nothing() -> None:
    stage = Stage()
    before = stage.client.nic.query_qp(stage.client.qp)
    bad = QPAttributes(qp_state=QPState.RTS, path_mtu=MTU.MTU_256)
    mask = QPAttrMask.STATE | QPAttrMask.PATH_MTU
    assert refused(lambda: stage.client.nic.modify_qp(stage.client.qp, bad, mask)) == EINVAL
    assert stage.client.nic.query_qp(stage.client.qp) == before


def test_a_queue_that_still_drains_goes_nowhere_but_down() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    stage.client.nic.transmit(0)
    go(stage.client, QPState.SQD)
    assert refused(lambda: go(stage.client, QPState.RTS)) == EINVAL
    go(stage.client, QPState.ERR)


def test_a_destroyed_queue_pair_completes_and_receives_nothing() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    stage.client.receive(8)
    stage.client.nic.destroy_qp(stage.client.qp)
    stage.server.write(b"hello", to=stage.client.region)
    stage.drive(until=100)
    assert stage.client.poll() == []
    assert stage.client.nic.drops == {Drop.NO_QP: 1}
    assert stage.by(stage.client) == []
    assert stage.client.nic.next_timer() is None


def test_a_destroyed_queue_pair_has_no_timer() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    stage.client.nic.transmit(0)
    assert stage.client.nic.next_timer() is not None
    stage.client.nic.destroy_qp(stage.client.qp)
    assert stage.client.nic.next_timer() is None


def test_receives_of_a_shared_queue_and_the_limit_that_tells() -> None:
    pair = Pair()
    stage = Stage(pair)
    server = stage.server
    srq = server.nic.create_srq(server.pd, 8)
    sink = server.buffer(64)
    work = [RecvWR((sink.sge(8),), wr_id) for wr_id in range(4)]
    server.nic.post_srq_recv(srq, work)
    srq.modify(limit=3)
    server.nic.destroy_qp(server.qp)
    init = QPInit(server.pd, server.cq, server.cq, CAP, srq=srq)
    server.qp = server.nic.create_qp(QPType.RC, init)
    climb(server, QPState.RTS)
    climb(stage.client, QPState.RTS)
    assert refused(lambda: server.nic.post_recv(server.qp, (RecvWR(),))) == EINVAL
    for _ in range(3):
        stage.client.send(b"shared")
    stage.drive()
    assert [done.wr_id for done in server.poll()] == [0, 1, 2]
    assert events(server) == [SRQLimitReached(srq.number)]
    assert [aeth.value for aeth in stage.aeths(server)] == [31]


def test_an_attribute_may_change_while_it_runs() -> None:
    stage = Stage()
    go(
        stage.server,
        QPState.RTS,
        QPAttrMask.MIN_RNR_TIMER,
        ATTRIBUTES._replace(min_rnr_timer=1),
    )
    stage.client.send(b"hello")
    stage.drive(until=5)
    assert [aeth.value for aeth in stage.aeths(stage.server)] == [1]
    stage.server.receive(8)
    stage.drive()
    assert statuses(stage.client) == [0]


def test_what_adapters_give_says_what_it_is() -> None:
    pair = Pair()
    client = pair.client
    region = client.region.region
    assert repr(client.qp) == f"<RC QP {client.qp.qp_num:#x} in RTS: 0 sends, 0 receives>"
    assert repr(client.cq) == f"<CQ {client.cq.number}: 0 of {client.cq.cqe} completions>"
    assert repr(region) == f"<MR {region.lkey:#x}: {region.length} bytes at {region.iova:#x}>"
    client.nic.memory.dereg_mr(region)
    assert repr(region).endswith(": INVALIDATED>")


def test_a_number_that_stands_for_another_says_what_it_may_be() -> None:
    pair = Pair()
    wrong = QPAttributes(path_mtu=1024)  # type: ignore[arg-type]
    with pytest.raises(VerbsError) as refused:
        pair.client.nic.modify_qp(pair.client.qp, wrong, QPAttrMask.PATH_MTU)
    assert "path_mtu: 1024 is not an integer from 1 to 5 (1 MTU_256, 2 MTU_512" in str(
        refused.value
    )
