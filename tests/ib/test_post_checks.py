"""What may be posted: states, kinds of work, sizes, and the errno of each refusal."""

from errno import EFAULT, EINVAL, ENOMEM
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import CAP, Pair
from rdmawire.verbs.enums import QPState, QPType, WCOpcode, WCStatus
from rdmawire.verbs.profile import RXE
from rdmawire.verbs.qp_attr import QPCap, states_of
from rdmawire.verbs.wr import SIGNALED, RecvWR, SendFlags, SendOpcode, SendWR, Sge
from tests.ib.stage import Stage, climb, fitting, go, outcomes, statuses

Op = SendOpcode
CONNECTED = {Op.SEND, Op.SEND_WITH_IMM, Op.RDMA_WRITE, Op.RDMA_WRITE_WITH_IMM}
LOCAL = {Op.LOCAL_INV, Op.BIND_MW, Op.REG_MR}
RELIABLE = {
    *CONNECTED,
    *LOCAL,
    Op.SEND_WITH_INV,
    Op.RDMA_READ,
    Op.ATOMIC_CMP_AND_SWP,
    Op.ATOMIC_FETCH_AND_ADD,
    Op.FLUSH,
    Op.ATOMIC_WRITE,
}
ALLOWED = {
    QPType.RC: RELIABLE,
    QPType.UC: CONNECTED | LOCAL,
    QPType.UD: {Op.SEND, Op.SEND_WITH_IMM},
}
KINDS = pytest.mark.parametrize("kind", ALLOWED)


def refused(stage: Stage, *work: SendWR) -> int | None:
    """The errno with which the client's work is refused."""
    with pytest.raises(VerbsError) as refusal:
        stage.client.nic.post_send(stage.client.qp, work)
    return refusal.value.errno


def sample(stage: Stage, opcode: SendOpcode) -> SendWR:
    """Good work of this kind, of eight bytes."""
    wr = SendWR(
        opcode,
        (stage.client.region.sge(8),),
        ah=stage.client.path_to(stage.server),
        remote_qpn=stage.server.qp.qp_num,
        placement=1,
    )
    return fitting(wr, stage.client.qp.type)


@KINDS
@pytest.mark.parametrize("opcode", SendOpcode)
def test_each_type_takes_the_work_that_its_service_has(kind: QPType, opcode: SendOpcode) -> None:
    stage = Stage(Pair(kind=kind))
    wr = sample(stage, opcode)
    if opcode in ALLOWED[kind]:
        stage.client.nic.post_send(stage.client.qp, (wr,))
        assert len(stage.client.qp.sq) == 1
    else:
        assert refused(stage, wr) == EINVAL
        assert len(stage.client.qp.sq) == 0


def test_an_opcode_that_is_none_is_refused() -> None:
    assert refused(Stage(), SendWR(99)) == EINVAL


SENDS = {QPState.RTS, QPState.SQD, QPState.SQE, QPState.ERR}


@pytest.mark.parametrize(
    ("kind", "state"), [(kind, state) for kind in ALLOWED for state in states_of(kind)]
)
def test_states_and_what_they_take(kind: QPType, state: QPState) -> None:
    stage = Stage(Pair(kind=kind))
    _bring(stage, state)
    wr = sample(stage, SendOpcode.SEND)._replace(wr_id=1)
    recv = RecvWR((stage.client.region.sge(8),), 2)
    nic, qp = stage.client.nic, stage.client.qp
    if state in SENDS:
        nic.post_send(qp, (wr,))
    else:
        assert refused(stage, wr) == EINVAL
    if state is QPState.RESET:
        with pytest.raises(VerbsError) as refusal:
            nic.post_recv(qp, (recv,))
        assert refusal.value.errno == EINVAL
    else:
        nic.post_recv(qp, (recv,))
    flushed = {QPState.SQE: [1], QPState.ERR: [1, 2]}.get(state, [])
    assert outcomes(stage.client) == [(wr_id, WCStatus.WR_FLUSH_ERR) for wr_id in flushed]
    sent = nic.transmit(0)
    assert len(sent) == (1 if state is QPState.RTS else 0)


def _bring(stage: Stage, state: QPState) -> None:
    if state in (QPState.RESET, QPState.ERR, QPState.SQD):
        go(stage.client, state)
    elif state is QPState.SQE:
        bad = sample(stage, SendOpcode.SEND)._replace(sges=(Sge(1, 1, 0xBAD),))
        stage.client.nic.post_send(stage.client.qp, (bad,))
        stage.client.nic.transmit(0)
        stage.client.poll()
        assert stage.client.qp.state is QPState.SQE
    else:
        climb(stage.client, state)


def test_a_full_send_queue_takes_no_more_until_something_completes() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_send_wr=2)))
    for _ in range(2):
        stage.client.write(b"x", to=stage.server.region)
    assert refused(stage, sample(stage, SendOpcode.RDMA_WRITE)) == ENOMEM
    stage.drive()
    assert refused(stage, sample(stage, SendOpcode.RDMA_WRITE)) == ENOMEM
    assert stage.client.cq.poll(1)
    stage.client.write(b"x", to=stage.server.region)
    assert refused(stage, sample(stage, SendOpcode.RDMA_WRITE)) == ENOMEM


def quiet(stage: Stage, *, signaled: bool = False) -> SendWR:
    """A write that tells nobody of its success, or does."""
    return sample(stage, SendOpcode.RDMA_WRITE)._replace(
        flags=SIGNALED if signaled else 0,
        remote_address=stage.server.region.address,
        rkey=stage.server.region.rkey,
    )


def test_unsignalled_sends_hold_their_slots_until_a_later_completion_is_polled() -> None:
    """IBA 10.8.6; mlx5 counts so, too."""
    stage = Stage(Pair(cap=CAP._replace(max_send_wr=4)))
    nic, qp = stage.client.nic, stage.client.qp
    for signaled in (False, False, True, False):
        nic.post_send(qp, (quiet(stage, signaled=signaled),))
    with pytest.raises(VerbsError, match="4 are under way"):
        nic.post_send(qp, (quiet(stage),))
    stage.drive()
    hint = "poll the CQ, 1 completions and 3 unsignalled sends hold slots"
    with pytest.raises(VerbsError, match=hint):
        nic.post_send(qp, (quiet(stage),))
    assert len(stage.client.poll()) == 1
    assert qp.free_sends == 3
    nic.post_send(qp, (quiet(stage),) * 3)
    assert refused(stage, quiet(stage)) == ENOMEM


def test_a_queue_of_unsignalled_sends_alone_is_full_for_ever() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_send_wr=2)))
    stage.client.nic.post_send(stage.client.qp, (quiet(stage),) * 2)
    stage.drive()
    hint = "2 unsignalled sends hold slots until one behind them is polled"
    with pytest.raises(VerbsError, match=hint):
        stage.client.nic.post_send(stage.client.qp, (quiet(stage),))
    climb(stage.client, QPState.RTS)
    stage.client.nic.post_send(stage.client.qp, (quiet(stage),) * 2)


def test_soft_roce_frees_slots_when_work_completes() -> None:
    stage = Stage(Pair(profile=RXE, cap=CAP._replace(max_send_wr=2, max_recv_wr=2)))
    for _ in range(3):
        stage.client.nic.post_send(stage.client.qp, (quiet(stage), quiet(stage, signaled=True)))
        assert refused(stage, quiet(stage)) == ENOMEM
        stage.server.receive(16)
        stage.server.receive(16)
        stage.drive()
        stage.client.send(b"to one")
        stage.client.send(b"to the other")
        stage.drive()
    assert len(stage.client.poll()) == 9


def test_work_that_ends_at_once_holds_its_slot_until_it_is_polled() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_send_wr=2)))
    go(stage.client, QPState.ERR)
    stage.client.nic.post_send(stage.client.qp, (quiet(stage),) * 2)
    assert refused(stage, quiet(stage)) == ENOMEM
    assert statuses(stage.client) == [WCStatus.WR_FLUSH_ERR] * 2
    stage.client.nic.post_send(stage.client.qp, (quiet(stage),))


def test_completions_from_before_a_reset_free_nothing() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_send_wr=2)))
    work = (quiet(stage, signaled=True),) * 2
    stage.client.nic.post_send(stage.client.qp, work)
    stage.drive()
    climb(stage.client, QPState.RTS)
    stage.client.nic.post_send(stage.client.qp, work)
    assert len(stage.client.poll()) == 2
    assert refused(stage, quiet(stage)) == ENOMEM


def test_queue_pairs_that_share_a_completion_queue_free_their_own_slots() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_send_wr=2, max_recv_wr=2)))
    client, server = stage.client, stage.server
    for end in (client, server):
        for _ in range(2):
            end.receive(8)
    for _ in range(2):
        client.send(b"to the ")
        server.send(b"other")
    stage.drive()
    assert (client.qp.free_sends, client.qp.free_receives) == (0, 0)
    free = {WCOpcode.SEND: 0, WCOpcode.RECV: 0}
    for _ in range(4):
        (done,) = client.cq.poll(1)
        free[done.opcode] += 1
        found = client.qp.free_sends, client.qp.free_receives
        assert found == (free[WCOpcode.SEND], free[WCOpcode.RECV])


def test_a_full_receive_queue_takes_no_more() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_recv_wr=2)))
    for _ in range(2):
        stage.client.receive(8)
    with pytest.raises(VerbsError) as refusal:
        stage.client.receive(8)
    assert refusal.value.errno == ENOMEM


def test_receives_hold_their_slots_until_they_are_polled() -> None:
    stage = Stage(Pair(cap=CAP._replace(max_recv_wr=2)))
    for _ in range(2):
        stage.server.receive(8)
        stage.client.send(b"8 octets")
    stage.drive()
    with pytest.raises(VerbsError, match="poll the CQ, 2 of them are done") as refusal:
        stage.server.receive(8)
    assert refusal.value.errno == ENOMEM
    assert stage.server.cq.poll(1)
    stage.server.receive(8)


def test_work_before_the_one_that_is_refused_is_posted() -> None:
    stage = Stage()
    good = sample(stage, SendOpcode.RDMA_WRITE)
    assert refused(stage, good, good._replace(rkey=1 << 32), good) == EINVAL
    assert len(stage.client.qp.sq) == 1


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (Op.RDMA_WRITE, {"remote_address": 1 << 64}),
        (Op.RDMA_WRITE, {"remote_address": -1}),
        (Op.RDMA_READ, {"rkey": 1 << 32}),
        (Op.SEND_WITH_IMM, {"imm_data": 1 << 32}),
        (Op.RDMA_WRITE_WITH_IMM, {"imm_data": -1}),
        (Op.SEND_WITH_INV, {"invalidate_rkey": 1 << 32}),
        (Op.ATOMIC_FETCH_AND_ADD, {"compare_add": 1 << 64}),
        (Op.ATOMIC_CMP_AND_SWP, {"swap": 1 << 64}),
        (Op.FLUSH, {"placement": 16}),
        (Op.FLUSH, {"selectivity": 4}),
        (Op.FLUSH, {"length": 1 << 32}),
    ],
)
def test_fields_fit_the_headers_they_travel_in(opcode: SendOpcode, fields: dict[str, int]) -> None:
    stage = Stage()
    wr = sample(stage, opcode)._replace(**fields)  # type: ignore[arg-type]
    assert refused(stage, wr) == EINVAL


@pytest.mark.parametrize(
    "fields", [{"remote_qpn": 1 << 24}, {"remote_qkey": 1 << 32}, {"ah": None}]
)
def test_a_datagram_needs_an_address_handle(fields: dict[str, int | None]) -> None:
    stage = Stage(Pair(kind=QPType.UD))
    wr = sample(stage, SendOpcode.SEND)._replace(**fields)  # type: ignore[arg-type]
    assert refused(stage, wr) == EINVAL


@pytest.mark.parametrize(
    "opcode", [Op.ATOMIC_CMP_AND_SWP, Op.ATOMIC_FETCH_AND_ADD, Op.ATOMIC_WRITE]
)
@pytest.mark.parametrize("length", [0, 4, 7, 9, 16])
def test_atomics_are_of_eight_bytes(opcode: SendOpcode, length: int) -> None:
    stage = Stage()
    wr = sample(stage, opcode)._replace(sges=(stage.client.region.sge(length),))
    assert refused(stage, wr) == EINVAL


SIZES = QPCap(8, 8, 2, 2, 16)


def test_work_has_no_more_pieces_than_the_queue_pair_was_made_for() -> None:
    stage = Stage(Pair(cap=SIZES))
    sge = stage.client.region.sge(8)
    wr = sample(stage, SendOpcode.SEND)
    assert refused(stage, wr._replace(sges=(sge,) * 3)) == EINVAL
    stage.client.nic.post_send(stage.client.qp, (wr._replace(sges=(sge,) * 2),))
    with pytest.raises(VerbsError):
        stage.client.nic.post_recv(stage.client.qp, (RecvWR((sge,) * 3),))
    stage.client.nic.post_recv(stage.client.qp, (RecvWR((sge,) * 2),))


def test_inline_bytes_are_no_more_than_the_queue_pair_was_made_for() -> None:
    stage = Stage(Pair(cap=SIZES))
    wr = SendWR(SendOpcode.SEND, flags=SIGNALED | SendFlags.INLINE)
    assert refused(stage, wr._replace(inline=bytes(17))) == EINVAL
    stage.client.nic.post_send(stage.client.qp, (wr._replace(inline=bytes(16)),))


def test_inline_pieces_are_no_more_than_the_queue_pair_was_made_for() -> None:
    stage = Stage(Pair(cap=SIZES))
    wr = SendWR(SendOpcode.SEND, flags=SIGNALED | SendFlags.INLINE)
    sge = stage.client.region.sge
    assert refused(stage, wr._replace(sges=(sge(9), sge(8)))) == EINVAL
    assert refused(stage, wr._replace(sges=(sge(1), sge(1), sge(1)))) == EINVAL
    stage.client.nic.post_send(stage.client.qp, (wr._replace(sges=(sge(8), sge(8))),))


def test_inline_pieces_that_no_memory_backs_fault() -> None:
    stage = Stage()
    wr = SendWR(SendOpcode.SEND, (Sge(8, 8, 0),), flags=SIGNALED | SendFlags.INLINE)
    assert refused(stage, wr) == EFAULT
    assert len(stage.client.qp.sq) == 0


def test_inline_data_is_given_once() -> None:
    stage = Stage()
    wr = SendWR(SendOpcode.SEND, (stage.client.region.sge(8),), inline=bytes(8))
    assert refused(stage, wr._replace(flags=SIGNALED | SendFlags.INLINE)) == EINVAL
    assert refused(stage, wr) == EINVAL


@KINDS
@pytest.mark.parametrize("flag", [1 << bit for bit in range(33)] + [-1])
def test_a_flag_that_means_nothing_is_refused(kind: QPType, flag: int) -> None:
    """ibv_post_send(3): which flags there are, and which opcodes and services they are for."""
    stage = Stage(Pair(kind=kind))
    for opcode in sorted(ALLOWED[kind] - LOCAL):
        wr = sample(stage, opcode)._replace(flags=flag)
        if flag in _flags_of(kind, opcode):
            stage.client.nic.post_send(stage.client.qp, (wr,))
        else:
            assert refused(stage, wr) == EINVAL


def _flags_of(kind: QPType, opcode: SendOpcode) -> set[SendFlags]:
    receives = (Op.SEND, Op.SEND_WITH_IMM, Op.SEND_WITH_INV, Op.RDMA_WRITE_WITH_IMM)
    flags = {SendFlags.SIGNALED}
    flags |= {SendFlags.FENCE} if kind is QPType.RC else set()
    flags |= {SendFlags.SOLICITED} if opcode in receives else set()
    sources = (*receives, Op.RDMA_WRITE, Op.ATOMIC_WRITE)
    return flags | ({SendFlags.INLINE} if opcode in sources else set())


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_a_local_invalidation_is_fenced_in_every_service(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))
    wr = sample(stage, SendOpcode.LOCAL_INV)._replace(flags=SendFlags.FENCE)
    stage.client.nic.post_send(stage.client.qp, (wr,))


@KINDS
@pytest.mark.parametrize("field", ["ah", "bind", "reg"])
def test_objects_that_work_does_not_use_are_refused(kind: QPType, field: str) -> None:
    """They would be forgotten in silence. Numbers are left alone, as in unions of ibv_send_wr."""
    stage = Stage(Pair(kind=kind))
    given = {"ah": stage.client.path_to(stage.server), "bind": object(), "reg": object()}
    uses = {
        "ah": CONNECTED if kind is QPType.UD else (),
        "bind": (Op.BIND_MW,),
        "reg": (Op.REG_MR,),
    }
    for opcode in sorted(ALLOWED[kind].difference(uses[field])):
        wr = sample(stage, opcode)._replace(rkey=7, imm_data=7, swap=7, remote_srqn=7)
        stage.client.nic.post_send(stage.client.qp, (wr,))
        assert refused(stage, wr._replace(**{field: given[field]})) == EINVAL  # type: ignore[arg-type]


@pytest.mark.parametrize("opcode", sorted(LOCAL | {Op.FLUSH}))
@pytest.mark.parametrize("field", ["sges", "inline"])
def test_work_without_memory_has_none(opcode: SendOpcode, field: str) -> None:
    stage = Stage()
    given = {"sges": (stage.client.region.sge(8),), "inline": bytes(8)}[field]
    assert refused(stage, sample(stage, opcode)._replace(**{field: given})) == EINVAL  # type: ignore[arg-type]


@pytest.mark.parametrize("opcode", [Op.RDMA_READ, Op.ATOMIC_FETCH_AND_ADD, Op.FLUSH, Op.LOCAL_INV])
def test_what_sends_no_bytes_has_none_inline(opcode: SendOpcode) -> None:
    stage = Stage()
    wr = sample(stage, opcode)._replace(flags=SendFlags.INLINE, inline=bytes(8))
    assert refused(stage, wr) == EINVAL


@pytest.mark.parametrize(
    "sge", [Sge(1 << 64, 1, 1), Sge(0, 1 << 32, 1), Sge(-1, 1, 1), Sge(0, -1, 1)]
)
def test_pieces_of_memory_that_no_address_reaches(sge: Sge) -> None:
    stage = Stage()
    assert refused(stage, SendWR(SendOpcode.SEND, (sge,))) == EINVAL
    with pytest.raises(VerbsError):
        stage.client.nic.post_recv(stage.client.qp, (RecvWR((sge,)),))


def test_a_list_of_sges_is_free_again_once_work_is_posted() -> None:
    """As the arrays of ibv_post_send(3) and ibv_post_recv(3) are."""
    stage = Stage()
    client, server = stage.client, stage.server
    sink, source = server.buffer(8), client.filled(b"in place")
    there: Any = [sink.sge(8)]
    here: Any = [source.sge(8)]
    server.nic.post_recv(server.qp, (RecvWR(there),))
    client.nic.post_send(client.qp, (SendWR(Op.SEND, here),))
    there[:] = here[:] = (None, client.region.sge(8))
    stage.drive()
    assert statuses(client) == [WCStatus.SUCCESS]
    assert sink.read() == b"in place"


def test_a_list_of_sges_is_free_again_once_a_shared_receive_is_posted() -> None:
    server = Stage().server
    srq = server.nic.create_srq(server.pd, 4)
    there: Any = [server.region.sge(8)]
    server.nic.post_srq_recv(srq, (RecvWR(there),))
    there.clear()
    assert srq.take() == RecvWR((server.region.sge(8),))


def test_one_work_request_is_posted_as_a_list_of_one_is() -> None:
    stage = Stage()
    client, server = stage.client, stage.server
    source, sink = client.buffer(8), server.buffer(8)
    server.nic.post_recv(server.qp, RecvWR((sink.sge(),), wr_id=7))
    client.nic.post_send(client.qp, SendWR(SendOpcode.SEND, (source.sge(),), wr_id=8))
    stage.drive()
    assert [done.wr_id for done in server.poll()] == [7]
    assert [done.wr_id for done in client.poll()] == [8]
    srq = server.nic.create_srq(server.pd, 4)
    server.nic.post_srq_recv(srq, RecvWR((sink.sge(),)))
    assert len(srq) == 1


def test_a_region_has_the_names_of_libibverbs() -> None:
    region = Stage().client.region.region
    assert (region.addr, region.lkey, region.rkey) == (region.address, region.key, region.key)
