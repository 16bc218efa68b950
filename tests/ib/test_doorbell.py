"""Work from queues in memory: what it does, and what becomes of queues that make no sense."""

from collections.abc import Callable
from copy import deepcopy
from errno import EINVAL, ENOMEM

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire import H200, Access, QPType, Sge, VerbsError
from rdmawire.fabric.pair import ATTRIBUTES, connect
from rdmawire.ib.qp import QPInit
from rdmawire.memory.gpu import A100, GpuProfile
from rdmawire.verbs.async_event import CompletionEvent, CQError, QPFatal
from rdmawire.verbs.enums import QPState, WCOpcode, WCStatus
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.wqe import (
    CQE,
    CQDoorbellRecord,
    Doorbell,
    DoorbellRecord,
    DoorbellType,
    WQEControl,
)
from rdmawire.verbs.wr import RecvWR, SendFlags, SendOpcode, SendWR
from tests.effort import examples
from tests.ib.rings import (
    BLOCKS,
    CQ_RECORD,
    CQES,
    DATA,
    RECEIVES,
    RECORD,
    SENDS,
    Rings,
    Side,
)

MEMORY = pytest.mark.parametrize("gpu", [None, H200, A100], ids=["host", "H200", "A100"])
S = WCStatus


def write(side: Side, peer: Side, data: bytes, offset: int = 0, flags: int = 2) -> SendWR:
    """An inline WRITE to the peer's memory."""
    return SendWR(
        SendOpcode.RDMA_WRITE,
        flags=flags | SendFlags.INLINE,
        remote_address=peer.region.iova + DATA + offset,
        rkey=peer.region.rkey,
        inline=data,
    )


def statuses(side: Side) -> list[WCStatus]:
    return [wc.status for wc in side.poll()]


def ring(side: Side, kind: DoorbellType = DoorbellType.SEND, number: int | None = None) -> None:
    number = side.qp.qp_num if number is None else number
    side.nic.ring(Doorbell(type=kind, number=number).build())


def record(side: Side, send: int = 0, recv: int = 0) -> None:
    side.store(RECORD, DoorbellRecord(send_index=send, recv_index=recv).build())


# What work does.


@MEMORY
def test_wqes_in_memory_write_into_the_peers_memory(gpu: GpuProfile | None) -> None:
    """With a GPU at both ends: no host memory is part of it, but for the doorbell page."""
    rings = Rings(gpu, gpu)
    client, server = rings.client, rings.server
    client.store(DATA, b"weights")
    wr = write(client, server, b"")._replace(flags=2, sges=(client.sge(DATA, 7),))
    assert client.post(wr) == [0]
    rings.drive()
    if server.gpu is not None:
        server.gpu.flush()
    assert server.load(DATA, 7) == b"weights"
    if client.gpu is not None:
        client.gpu.flush()
    (done,) = client.poll()
    assert (done.wr_id, done.status, done.opcode) == (0, S.SUCCESS, WCOpcode.RDMA_WRITE)
    assert (done.byte_len, done.qp_num) == (7, client.qp.qp_num)


def test_every_kind_of_work_comes_from_memory() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    there = {"remote_address": server.region.iova + DATA, "rkey": server.region.rkey}
    eight = (client.sge(DATA, 8),)
    server.store(DATA, (40).to_bytes(8, "little"))
    server.post(RecvWR((server.sge(DATA + 64, 64),)), RecvWR())
    client.post(
        SendWR(SendOpcode.ATOMIC_FETCH_AND_ADD, eight, compare_add=2, **there),  # type: ignore[arg-type]
        SendWR(SendOpcode.SEND_WITH_IMM, eight, imm_data=0xABCD),
        SendWR(SendOpcode.RDMA_WRITE_WITH_IMM, imm_data=7, **there),  # type: ignore[arg-type]
        SendWR(SendOpcode.RDMA_READ, (client.sge(DATA + 8, 8),), **there),  # type: ignore[arg-type]
    )
    rings.drive()
    assert statuses(client) == [S.SUCCESS] * 4
    received = server.poll()
    assert [(wc.wr_id, wc.opcode, wc.imm_data) for wc in received] == [
        (0, WCOpcode.RECV, 0xABCD),
        (1, WCOpcode.RECV_RDMA_WITH_IMM, 7),
    ]
    assert client.load(DATA, 16) == (40).to_bytes(8, "little") + (42).to_bytes(8, "little")


def test_datagrams_have_an_address_segment() -> None:
    rings = Rings(kind=QPType.UD)
    client, server = rings.client, rings.server
    server.post(RecvWR((server.sge(DATA, 64),)))
    wr = SendWR(SendOpcode.SEND, flags=2 | SendFlags.INLINE, inline=b"hello")
    path = client.path_to(server)
    client.post(wr._replace(ah=path, remote_qpn=server.qp.qp_num, remote_qkey=0x11))
    rings.drive()
    (done,) = server.poll()
    assert (done.src_qp, done.byte_len, done.smac) == (client.qp.qp_num, 45, client.mac)
    assert server.load(DATA + 40, 5) == b"hello"


def test_work_of_both_kinds_is_one_queue() -> None:
    """Posted with post_send or from memory: it is sent and completes in one order."""
    rings = Rings()
    client, server = rings.client, rings.server
    posted = write(client, server, b"b")._replace(wr_id=0x1234_5678_9ABC)
    client.post(write(client, server, b"a"))
    client.nic.post_send(client.qp, posted)
    client.post(write(client, server, b"c"))
    rings.drive()
    assert [wc.wr_id for wc in client.completions.poll(9)] == [0, 0x1234_5678_9ABC, 1]
    assert server.load(DATA, 1) == b"c"


def test_rings_wrap_and_so_do_indexes() -> None:
    """WQEs of 1 to 5 blocks in a ring of 16, beyond the last index: each pass turns the owner."""
    rings = Rings()
    client, server = rings.client, rings.server
    start = 0x10000 - 3 * BLOCKS
    client.sends._next = start
    client.nic._doorbells._sends[client.qp.qp_num].fetched = start
    expected = []
    for turn in range(60):
        data = bytes([turn]) * (turn * 37 % 250)
        expected.append(client.sends.index)
        client.post(write(client, server, data))
        rings.drive()
        (done,) = client.poll()
        assert (done.wr_id, done.status) == (expected[-1], S.SUCCESS)
        assert server.load(DATA, len(data)) == data
    assert min(expected) < max(expected) - BLOCKS  # the indexes wrapped
    assert client.cq.polled == 60


def test_the_owner_bit_turns_with_each_pass() -> None:
    rings = Rings(entries=4)
    client, server = rings.client, rings.server
    for turn in range(22):
        before = [CQE.parse(client.load(CQES, 256), 64 * at).owner for at in range(4)]
        client.post(write(client, server, b"x"))
        rings.drive()
        after = [CQE.parse(client.load(CQES, 256), 64 * at).owner for at in range(4)]
        changed = [at for at in range(4) if before[at] != after[at]]
        assert changed == [turn % 4]
        assert after[turn % 4] == (1, 0)[turn // 4 % 2]
        assert len(client.poll()) == 1


def test_the_cq_is_polled_by_the_verb_too() -> None:
    """Whoever polls, the doorbell record says how far; the slots of the queue are free then."""
    rings = Rings()
    client, server = rings.client, rings.server
    for _ in range(70):
        client.post(write(client, server, b"x"), write(client, server, b"y"))
        rings.drive()
        assert len(client.cq) == 2
        done = client.cq.poll(1) + client.cq.poll(5)
        for wc in done:
            client.sends.retire(wc.wr_id)
        assert [wc.status for wc in done] == [S.SUCCESS] * 2
        assert client.cq.poll(1) == []
        client.completions._next += 2
    assert client.qp.free_sends == client.qp.cap.max_send_wr


def test_unsignaled_work_completes_with_the_next() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    for _ in range(40):
        quiet = write(client, server, b"q", flags=0)
        client.post(quiet, quiet, write(client, server, b"s"))
        rings.drive()
        assert len(client.poll()) == 1
        assert client.sends.free == BLOCKS


def test_an_armed_cq_reports_its_next_completion() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    ring(client, DoorbellType.ARM, client.cq.number)
    client.post(write(client, server, b"x"), write(client, server, b"y"))
    rings.drive()
    assert client.events() == [CompletionEvent(client.cq.number)]
    ring(server, DoorbellType.ARM_SOLICITED, server.cq.number)
    server.post(RecvWR(), RecvWR())
    plain = SendWR(SendOpcode.SEND)
    client.post(plain)
    rings.drive()
    assert server.events() == []
    client.post(plain._replace(flags=SendFlags.SIGNALED | SendFlags.SOLICITED))
    rings.drive()
    assert server.events() == [CompletionEvent(server.cq.number)]


def test_a_full_ring_takes_no_more_until_its_wqes_completed() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    for _ in range(BLOCKS):
        client.sends.post(write(client, server, b"x"))
    with pytest.raises(VerbsError, match="poll first") as refused:
        client.sends.post(write(client, server, b"x"))
    assert refused.value.errno == ENOMEM
    client.post()
    rings.drive()
    assert statuses(client) == [S.SUCCESS] * BLOCKS
    assert client.sends.free == BLOCKS
    client.sends.retire(0x7777)  # of nothing that is outstanding
    assert client.sends.free == BLOCKS


def test_a_doorbell_without_its_record_brings_no_work() -> None:
    """The classic mistake: the record is written after the doorbell."""
    rings = Rings()
    client, server = rings.client, rings.server
    client.sends.post(write(client, server, b"x"))
    ring(client)
    rings.drive()
    assert client.poll() == []
    client.post()
    rings.drive()
    assert statuses(client) == [S.SUCCESS]


def test_a_copy_of_the_hosts_has_doorbells_of_its_own() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    client.sends.post(write(client, server, b"x"))
    twin = deepcopy(rings)
    twin.client.post()
    twin.drive()
    assert twin.server.load(DATA, 1) == b"x"
    rings.drive()
    assert server.load(DATA, 1) == b"\0"


# Queues that make no sense.


def broken(side: Side, offset: int, change: Callable[[WQEControl], WQEControl]) -> None:
    """Change the control segment at a block of the send queue."""
    control = WQEControl.parse(side.load(SENDS + offset, 16))
    side.store(SENDS + offset, change(control).build())


CHANGES: dict[str, Callable[[WQEControl], WQEControl]] = {
    "opcode": lambda control: control.replace(opcode=77),
    "receive": lambda control: control.replace(opcode=128),
    "other queue pair": lambda control: control.replace(qpn=control.qpn + 1),
    "unknown flags": lambda control: control.replace(flags=0xF0),
    "too long inline": lambda control: control.replace(units=3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wqe_that_makes_no_sense_ends_with_an_error_in_its_turn(name: str) -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    for data in (b"a", b"b" * 16, b"c"):
        client.sends.post(write(client, server, data))
    broken(client, 64, CHANGES[name])
    client.post()
    rings.drive()
    assert statuses(client) == [S.SUCCESS, S.LOC_QP_OP_ERR, S.WR_FLUSH_ERR]
    assert client.qp.state is QPState.ERR
    assert server.load(DATA, 2) == b"a\0"


@pytest.mark.parametrize(
    "change",
    [
        lambda control: control.replace(wqe_index=5),
        lambda control: control.replace(units=0),
        lambda control: control.replace(units=255),
        lambda control: control.replace(units=9),
    ],
    ids=["index", "no units", "beyond the ring", "beyond the record"],
)
def test_a_wqe_whose_borders_are_not_known_ends_its_queue(
    change: Callable[[WQEControl], WQEControl],
) -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    for _ in range(3):
        client.sends.post(write(client, server, b"x"))
    broken(client, 64, change)
    client.post()
    rings.drive()
    assert statuses(client) == [S.SUCCESS, S.LOC_QP_OP_ERR]
    assert client.qp.state is QPState.ERR
    discarded = client.nic.doorbells_discarded
    ring(client)
    assert client.nic.doorbells_discarded == discarded + 1


@pytest.mark.parametrize("index", [0xFFFF, BLOCKS + 2, 0x8001])
def test_a_record_that_goes_back_or_beyond_the_ring_is_fatal(index: int) -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    client.post(write(client, server, b"x"))
    rings.drive()
    record(client, send=index)
    ring(client)
    assert client.events() == [QPFatal(client.qp.qp_num)]
    assert client.qp.state is QPState.ERR


def test_a_bad_receive_ends_in_the_order_of_the_queue() -> None:
    rings = Rings()
    server = rings.server
    server.receives.post(RecvWR((server.sge(DATA, 8),)))
    server.receives.post(RecvWR((server.sge(DATA, 8),)))
    server.store(RECEIVES + 64 + 3, b"\x02")  # the opcode of a SEND
    server.post()
    assert [(wc.wr_id, wc.status) for wc in server.poll()] == [
        (0, S.WR_FLUSH_ERR),
        (1, S.LOC_QP_OP_ERR),
    ]
    assert server.events() == [QPFatal(server.qp.qp_num)]


def test_a_wrong_key_in_a_wqe_is_a_protection_error() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    wr = write(client, server, b"")._replace(flags=2, sges=(Sge(0, 8, 0x7777),))
    client.post(wr)
    rings.drive()
    assert statuses(client) == [S.LOC_PROT_ERR]


@MEMORY
@pytest.mark.parametrize("what", ["region", "memory"])
def test_queues_whose_memory_is_gone_end_with_an_event(gpu: GpuProfile | None, what: str) -> None:
    rings = Rings(gpu)
    client, server = rings.client, rings.server
    client.post(write(client, server, b"x"))
    rings.drive()
    if what == "memory" and client.gpu is not None:
        client.gpu.free(client.base)
    else:
        client.nic.memory.dereg_mr(client.region)
    ring(client)
    assert QPFatal(client.qp.qp_num) in client.events()
    assert client.qp.state is QPState.ERR


def test_a_cq_whose_memory_is_gone_is_overrun() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    client.post(write(client, server, b"x"))
    client.nic.memory.dereg_mr(client.region)
    rings.drive()
    events = client.events()
    assert CQError(client.cq.number) in events
    assert QPFatal(client.qp.qp_num) in events
    assert client.cq.poll(1) == []


def test_a_cq_whose_consumer_makes_no_room_is_overrun() -> None:
    rings = Rings(entries=4)
    client, server = rings.client, rings.server
    for _ in range(4):
        client.post(write(client, server, b"x"))
    rings.drive()
    nonsense = CQDoorbellRecord(consumer_index=77).build()  # beyond what was written: not taken
    client.store(CQ_RECORD, nonsense)
    client.post(write(client, server, b"x"))
    rings.drive()
    assert client.events() == [CQError(client.cq.number), QPFatal(client.qp.qp_num)]


@pytest.mark.parametrize(
    "doorbell",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 8,
        b"\0" * 7,
        Doorbell(type=DoorbellType.SEND, number=0x999).build(),
        Doorbell(type=DoorbellType.RECV, number=0x999).build(),
        Doorbell(type=DoorbellType.ARM, number=0x999).build(),
    ],
    ids=repr,
)
def test_doorbells_of_nothing_are_discarded(doorbell: bytes) -> None:
    client = Side(1)
    client.nic.ring(doorbell)
    assert client.nic.doorbells_discarded == 1


def test_a_doorbell_page_takes_stores_of_eight_bytes_on_their_border() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    client.sends.post(write(client, server, b"x"))
    bell = client.sends.publish()
    page = client.page.base
    for address, data in ((page + 4, bell), (page, bell + bell), (page, bell[:4])):
        client.space.write(address, data)
    assert client.nic.doorbells_discarded == 3
    client.space.write(page + 8 * 17, bell)
    rings.drive()
    assert statuses(client) == [S.SUCCESS]


def test_a_queue_pair_that_may_not_be_posted_to_takes_nothing() -> None:
    side = Side(1)
    side.post(write(side, side, b"x"), RecvWR())
    assert side.nic.doorbells_discarded == 2
    assert len(side.qp.sq) == len(side.qp.rq) == 0


def test_a_reset_queue_pair_begins_again_at_the_first_block() -> None:
    rings = Rings()
    client, server = rings.client, rings.server
    client.post(write(client, server, b"x"))
    rings.drive()
    client.poll()
    client.store(SENDS, b"\xff" * 1024)
    client.sends.post(write(client, server, b"y"))
    broken(client, 64, lambda control: control.replace(wqe_index=9))
    client.post()
    rings.drive()
    assert statuses(client) == [S.LOC_QP_OP_ERR]
    for side in rings:
        reset = QPAttributes(qp_state=QPState.RESET)
        side.nic.modify_qp(side.qp, reset, QPAttrMask.STATE)
        side.sends.reset()
    connect(client, client.qp, server, server.qp, ATTRIBUTES)
    assert client.post(write(client, server, b"z")) == [0]
    rings.drive()
    assert statuses(client) == [S.SUCCESS]
    assert server.load(DATA, 1) == b"z"


def test_a_destroyed_queue_pair_takes_nothing() -> None:
    rings = Rings()
    client = rings.client
    client.nic.destroy_qp(client.qp)
    ring(client)
    assert client.nic.doorbells_discarded == 1


# What queues may be made of.


def test_memory_that_is_not_fit_for_queues_is_refused() -> None:
    side = Side(1)
    good = side.sge(DATA, 1024)
    init = QPInit(side.pd, side.cq, side.cq, side.qp.cap)
    lazy = side.buffer(4096, Access.LOCAL_WRITE | Access.ON_DEMAND)
    fixed = side.buffer(4096, Access.REMOTE_READ)
    refused = [
        ({"sq_buffer": good}, "need a doorbell_record"),
        ({"doorbell_record": side.sge(0, 8)}, "needs an sq_buffer"),
        ({"sq_buffer": good._replace(lkey=1), "doorbell_record": side.sge(0, 8)}, "INVALID_KEY"),
        ({"sq_buffer": good._replace(length=0), "doorbell_record": side.sge(0, 8)}, "no memory"),
        ({"sq_buffer": side.sge(DATA, 96), "doorbell_record": side.sge(0, 8)}, "power of two"),
        ({"sq_buffer": side.sge(8, 64), "doorbell_record": side.sge(0, 8)}, "not aligned to 64"),
        ({"sq_buffer": good, "doorbell_record": side.sge(4, 8)}, "not aligned to 8"),
        ({"sq_buffer": good, "doorbell_record": side.sge(0, 16)}, "16 bytes, not 8"),
        ({"rq_buffer": lazy.sge(64), "doorbell_record": side.sge(0, 8)}, "on demand"),
        ({"rq_buffer": good, "doorbell_record": fixed.sge(8)}, "NO_ACCESS"),
        ({"sq_buffer": (1, 2, 3), "doorbell_record": side.sge(0, 8)}, "not of type Sge"),
    ]
    before = len(side.nic.device.qps)
    for buffers, reason in refused:
        with pytest.raises(VerbsError, match=reason) as error:
            side.nic.create_qp(QPType.RC, init, **buffers)  # type: ignore[arg-type]
        assert error.value.errno == EINVAL
    small = init._replace(cap=init.cap._replace(max_send_wr=8))
    with pytest.raises(VerbsError, match="holds 16 WQEs, max_send_wr is 8"):
        side.nic.create_qp(
            QPType.RC, small, sq_buffer=good, doorbell_record=side.sge(RECORD + 8, 8)
        )
    srq = side.nic.create_srq(side.pd, 16)
    with pytest.raises(VerbsError, match="with an SRQ"):
        side.nic.create_qp(
            QPType.RC,
            init._replace(srq=srq),
            rq_buffer=good,
            doorbell_record=side.sge(RECORD + 8, 8),
        )
    assert len(side.nic.device.qps) == before
    with pytest.raises(VerbsError, match="given together"):
        side.nic.create_cq(16, cq_buffer=good)
    with pytest.raises(VerbsError, match="1024 bytes: it must have 8 CQEs"):
        side.nic.create_cq(8, cq_buffer=good, doorbell_record=side.sge(RECORD + 8, 8))
    with pytest.raises(VerbsError, match="keeps its size"):
        side.cq.resize(32)


# Whatever the memory holds.


@settings(max_examples=examples(80))
@given(
    wqes=st.lists(st.binary(min_size=64, max_size=64), max_size=BLOCKS),
    headers=st.lists(
        st.tuples(st.integers(0, BLOCKS - 1), st.integers(0, 40), st.integers(0, 9)), max_size=8
    ),
    records=st.lists(st.binary(min_size=8, max_size=8) | st.none(), max_size=4),
    doorbells=st.lists(st.binary(max_size=9), max_size=4),
    cqes=st.binary(max_size=128),
)
def test_no_bytes_of_queues_and_doorbells_raise_anything(
    wqes: list[bytes],
    headers: list[tuple[int, int, int]],
    records: list[bytes | None],
    doorbells: list[bytes],
    cqes: bytes,
) -> None:
    """And the other side goes on: a queue pair of it that was reset works again."""
    rings = Rings()
    client, server = rings.client, rings.server
    for offset in (SENDS, RECEIVES):
        client.store(offset, b"".join(wqes))
        for block, opcode, units in headers:  # like WQEs, but for what follows
            control = WQEControl(
                wqe_index=block, opcode=opcode, qpn=client.qp.qp_num, units=units, flags=2
            )
            client.store(offset + 64 * block, control.build())
    for one in [*records, None]:
        client.store(RECORD, one or DoorbellRecord(0, len(wqes), 0, BLOCKS).build())
        client.store(CQ_RECORD, one or bytes(8))
        client.store(CQES, cqes)
        ring(client)
        ring(client, DoorbellType.RECV)
        for doorbell in doorbells:
            client.nic.ring(doorbell)
        rings.drive()
        assert len(client.qp.sq) <= BLOCKS
        client.cq.poll(16)
    for side in rings:
        reset = QPAttributes(qp_state=QPState.RESET)
        side.nic.modify_qp(side.qp, reset, QPAttrMask.STATE)
        side.sends.reset()
    connect(client, client.qp, server, server.qp, ATTRIBUTES)
    server.post(write(server, client, b"well"))
    rings.drive()
    assert statuses(server)[-1] is S.SUCCESS
    assert client.load(DATA, 4) == b"well"
