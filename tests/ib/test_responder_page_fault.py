"""What page faults of on-demand regions cost: RNR NAKs at a responder, waits at a requester."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.host import ALL_ACCESS, Buffer
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.ib.retransmit import paged_in
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.address_space import HostMemory
from rdmawire.memory.key import Access
from rdmawire.memory.page import PAGE_4K
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import IBTA, PROFILES
from rdmawire.verbs.wr import RecvWR, SendFlags, SendOpcode
from rdmawire.wire.ib import AETH, RNR_TIMER_NS, Ack
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import Stage, climb, statuses, to_remote

LATENCY = us(200)
PAGING = replace(IBTA, page_fault_ns=LATENCY)
TIMER = 12
"""An RNR NAK timer of 640 us: pages are there by then."""
SHORT = 5
"""One of 60 us: four RNR NAKs until they are."""
DATA = bytes(range(251)) * 48


def staged(kind: QPType = QPType.RC, timer: int = TIMER, timeout: int = 14) -> Stage:
    """Two adapters that take time to bring pages in; the server asks for waits of ``timer``."""
    attributes = ATTRIBUTES._replace(min_rnr_timer=timer, timeout=timeout)
    return Stage(Pair(Link(us(1)), kind=kind, profile=PAGING, attributes=attributes))


def on_demand(end: End, size: int = 65536) -> Buffer:
    memory = end.space.allocate(size)
    access = ALL_ACCESS | Access.ON_DEMAND
    return Buffer(memory, end.nic.memory.reg_mr(end.pd, memory.base, size, access))


def rnr_naks(stage: Stage) -> list[int]:
    """The PSNs of the server's RNR NAKs."""
    answers = ((sent.packet.bth.psn, sent.packet.header(AETH)) for sent in stage.by(stage.server))
    return [psn for psn, aeth in answers if aeth is not None and aeth.ack == Ack.RNR_NAK]


WORK: dict[str, tuple[Callable[[Stage, Buffer], object], bytes]] = {
    "write": (lambda s, b: s.client.write(b"12345678", to=b), b"12345678"),
    "long write": (lambda s, b: s.client.write(DATA, to=b), DATA),
    "fetch_add": (lambda s, b: s.client.fetch_add(7, of=b), (7).to_bytes(8, "little")),
    "compare_swap": (lambda s, b: s.client.compare_swap(0, 7, of=b), (7).to_bytes(8, "little")),
    "atomic_write": (lambda s, b: s.client.atomic_write(b"12345678", to=b), b"12345678"),
    "flush": (lambda s, b: s.client.flush(8, of=b), bytes(8)),
    "read": (lambda s, b: s.client.read(8, of=b), bytes(8)),
    "long read": (lambda s, b: s.client.read(10_000, of=b), bytes(8)),
}


@pytest.mark.parametrize("name", WORK)
def test_a_responder_that_faults_answers_rnr_nak_and_then_does_it(name: str) -> None:
    work, expected = WORK[name]
    stage = staged()
    there = on_demand(stage.server)
    work(stage, there)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert there.read(len(expected)) == expected
    pages = 1 if name != "long write" else -(-len(DATA) // PAGE_4K)
    assert len(rnr_naks(stage)) == pages  # a WRITE meets page after page, a READ all at once
    assert rnr_naks(stage)[0] == 100
    assert stage.now >= pages * RNR_TIMER_NS[TIMER]
    assert there.region.page_faults == (-(-10_000 // PAGE_4K) if name == "long read" else pages)


def test_a_read_of_no_bytes_needs_no_page() -> None:
    stage = staged()
    there = on_demand(stage.server)
    stage.client.read(0, of=there)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert rnr_naks(stage) == []
    assert there.region.page_faults == 0


def test_what_is_there_costs_nothing() -> None:
    stage = staged()
    there = on_demand(stage.server)
    stage.client.write(b"first", to=there)
    stage.drive()
    before, start = len(rnr_naks(stage)), stage.now
    stage.client.write(b"again", to=there)
    stage.drive()
    assert len(rnr_naks(stage)) == before == 1
    assert stage.now - start < us(10)


def test_prefetched_pages_cost_nothing() -> None:
    stage = staged()
    there = on_demand(stage.server)
    stage.server.nic.memory.advise_mr(there.region, there.address, len(DATA))
    stage.client.write(DATA, to=there)
    stage.drive()
    assert rnr_naks(stage) == []
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_prefetch_hurries_pages_that_are_on_their_way() -> None:
    stage = staged()
    there = on_demand(stage.server)
    stage.client.write(b"first", to=there)
    (request,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(request, 0)
    stage.server.nic.memory.advise_mr(there.region, there.address, 5)
    stage.server.nic.receive(request, 1)
    assert there.read(5) == b"first"


def test_rnr_naks_repeat_until_the_page_is_present() -> None:
    stage = staged(timer=SHORT)
    there = on_demand(stage.server)
    stage.client.write(b"12345678", to=there)
    stage.drive()
    assert rnr_naks(stage) == [100] * 4
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_rnr_retries_run_out_as_of_any_rnr_nak() -> None:
    stage = staged(timer=SHORT)
    climb_with = ATTRIBUTES._replace(min_rnr_timer=SHORT, rnr_retry=2)
    climb(stage.client, QPState.RTS, climb_with)
    stage.client.write(b"12345678", to=on_demand(stage.server))
    stage.drive()
    assert statuses(stage.client) == [WCStatus.RNR_RETRY_EXC_ERR]
    assert len(rnr_naks(stage)) == 3


@pytest.mark.parametrize("length", [8, 3000])
@pytest.mark.parametrize("shared", [False, True])
def test_a_receive_that_faults_stays_for_the_message(length: int, shared: bool) -> None:
    stage = staged()
    there = on_demand(stage.server)
    sges = (there.sge(100), there.sge(4000, 8192)) if shared else (there.sge(4000),)
    stage.server.nic.post_recv(stage.server.qp, (RecvWR(sges, 7),))
    stage.client.send(DATA[:length])
    stage.drive()
    (done,) = stage.server.poll()
    assert (done.wr_id, done.status, done.byte_len) == (7, WCStatus.SUCCESS, length)
    found = there.read(100) + there.read(4000, 8192) if shared else there.read(4000)
    assert found[:length] == DATA[:length]
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert rnr_naks(stage)[0] == 100


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_where_nothing_is_answered_the_message_is_lost(kind: QPType) -> None:
    stage = staged(kind)
    there = on_demand(stage.server)
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((there.sge(4000),), 7),))
    stage.client.send(b"lost")
    stage.drive()
    assert stage.server.nic.drops[Drop.PAGE_FAULT] == 1
    assert stage.server.qp.state is QPState.RTS
    stage.drive(stage.now + LATENCY)
    stage.client.send(b"hello")
    stage.drive()
    (done,) = stage.server.poll()
    assert (done.wr_id, done.status) == (7, WCStatus.SUCCESS)


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC, QPType.UD])
@pytest.mark.parametrize("length", [8, 1000])
def test_a_sender_waits_for_its_own_page(kind: QPType, length: int) -> None:
    stage = staged(kind)
    source = on_demand(stage.client)
    source.write(DATA[:length])
    got = stage.server.receive(length)
    work = to_remote(SendOpcode.SEND, stage.server.region, source.sge(length))
    stage.client.post(work, source)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert got.buffer.read(length, stage.server.qp.service.grh) == DATA[:length]
    assert stage.by(stage.client)[0].time == LATENCY


def test_a_long_message_waits_page_by_page_and_is_whole() -> None:
    stage = staged()
    source = on_demand(stage.client)
    source.write(DATA)
    work = to_remote(SendOpcode.RDMA_WRITE, stage.server.region, source.sge(len(DATA)))
    stage.client.post(work, source)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert stage.server.region.read(len(DATA)) == DATA
    assert stage.psns(stage.client) == list(range(100, 112))  # nothing is sent twice
    assert stage.by(stage.client)[-1].time >= 3 * LATENCY


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_READ, SendOpcode.ATOMIC_FETCH_AND_ADD])
@pytest.mark.parametrize("retry_cnt", [0, 7])
def test_a_response_that_cannot_be_placed_is_asked_for_again(
    opcode: SendOpcode, retry_cnt: int
) -> None:
    """That takes none of the retries: a requester with none left goes on."""
    stage = staged()
    climb(stage.client, QPState.RTS, ATTRIBUTES._replace(timeout=14, retry_cnt=retry_cnt))
    length = 8 if opcode is not SendOpcode.RDMA_READ else 10_000
    stage.server.region.write(DATA)
    sink = on_demand(stage.client)
    stage.client.post(to_remote(opcode, stage.server.region, sink.sge(length)), sink)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert sink.read(length) == DATA[:length]
    asked = [sent.time for sent in stage.by(stage.client)]
    assert len(asked) == -(-length // PAGE_4K) + 1
    assert asked[1] - asked[0] >= LATENCY
    assert stage.client.nic.drops[Drop.PAGE_FAULT] == -(-length // PAGE_4K)


BRIEF = 1
"""A local ACK timeout of 8 us, much less than a page takes."""


def paging_client(opcode: SendOpcode, length: int) -> Stage:
    """A client that has no retries and an ACK timeout shorter than its page faults, at work."""
    stage = staged()
    climb(stage.client, QPState.RTS, ATTRIBUTES._replace(timeout=BRIEF, retry_cnt=0))
    stage.server.region.write(DATA)
    local = on_demand(stage.client)
    stage.client.post(to_remote(opcode, stage.server.region, local.sge(length)), local)
    return stage


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
def test_no_ack_timeout_ends_a_wait_for_pages(opcode: SendOpcode) -> None:
    stage = paging_client(opcode, 10_000)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert stage.client.qp.counters.local_ack_timeout_err == 0
    assert stage.now >= 3 * LATENCY


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
def test_an_ack_that_never_comes_is_missed_after_a_wait_for_pages(opcode: SendOpcode) -> None:
    stage = paging_client(opcode, 10_000)
    stage.pair.simulator.run(LATENCY - 1)
    stage.server.nic.destroy_qp(stage.server.qp)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.RETRY_EXC_ERR]


def test_a_read_whose_pages_go_before_it_is_answered_is_asked_for_again() -> None:
    stage = staged()
    there = on_demand(stage.server)
    stage.server.nic.memory.advise_mr(there.region, there.address, 4000)
    got = stage.client.read(4000, of=there)
    (request,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(request, 0)
    stage.server.space.unmap(there.memory)
    other = HostMemory(there.address, 65536)
    stage.server.space.map(other)
    other.write(there.address, DATA[:4000])
    stage.drive()
    assert stage.server.nic.drops[Drop.FORGOTTEN] >= 1
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert got.buffer.read(4000) == DATA[:4000]


@given(drop=st.sets(st.integers(1, 60), max_size=12), timer=st.sampled_from([SHORT, TIMER]))
def test_faults_at_both_ends_and_lost_frames_change_no_byte(drop: set[int], timer: int) -> None:
    attributes = ATTRIBUTES._replace(min_rnr_timer=timer, timeout=10, retry_cnt=7, rnr_retry=7)
    stage = Stage(Pair(Link(us(1), drop=drop), profile=PAGING, attributes=attributes))
    ends = stage.client, stage.server
    source, sink = (on_demand(end) for end in ends)
    back, receive = on_demand(stage.client), on_demand(stage.server)
    source.write(DATA)
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((receive.sge(8192),), 7),))
    for opcode, local in (
        (SendOpcode.RDMA_WRITE, source.sge(len(DATA))),
        (SendOpcode.RDMA_READ, back.sge(len(DATA))),
        (SendOpcode.SEND, source.sge(8000, 100)),
        (SendOpcode.ATOMIC_FETCH_AND_ADD, back.sge(8, 32768)),
    ):
        stage.client.post(to_remote(opcode, sink, local)._replace(compare_add=1), source)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 4
    assert back.read(len(DATA)) == DATA
    assert receive.read(8000) == DATA[100:8100]
    added = int.from_bytes(DATA[:8], "little") + 1
    assert sink.read(len(DATA)) == added.to_bytes(8, "little") + DATA[8:]


def test_a_queue_pair_that_ends_waits_for_no_page() -> None:
    stage = staged()
    source = on_demand(stage.client)
    stage.client.post(to_remote(SendOpcode.RDMA_WRITE, stage.server.region, source.sge(8)), source)
    assert stage.client.nic.transmit(0) == []
    assert stage.client.nic.next_timer() == LATENCY
    stage.client.nic.destroy_qp(stage.client.qp)
    assert stage.client.nic.next_timer() is None
    stage.client.nic.handle_timer(LATENCY)
    assert stage.client.nic.transmit(LATENCY) == []


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_have_their_pages_at_once(name: str) -> None:
    """Linux's soft-RoCE brings pages in while it handles the packet."""
    stage = Stage(Pair(Link(us(1)), profile=PROFILES[name]))
    there = on_demand(stage.server)
    stage.client.write(DATA, to=there)
    stage.drive()
    assert there.read(len(DATA)) == DATA
    assert set(stage.opcodes(stage.server)) == {Opcode.RC_ACKNOWLEDGE}
    assert rnr_naks(stage) == []


def test_inline_data_are_read_by_the_processor_and_wait_for_no_page() -> None:
    stage = staged()
    memory = on_demand(stage.client)
    memory.write(b"12345678")
    there, sge = stage.server.region, memory.sge(8)
    work = to_remote(SendOpcode.RDMA_WRITE, there, sge)._replace(flags=SendFlags.INLINE)
    stage.client.nic.post_send(stage.client.qp, [work])
    memory.write(b"too late")
    assert stage.client.nic.transmit(stage.now)
    stage.drive()
    assert there.read(8) == b"12345678"


def test_pages_that_are_present_end_the_wait_and_stop_the_timer() -> None:
    stage = Stage(Pair(Link(us(10))))
    stage.client.write(b"data", to=stage.server.region)
    stage.drive(until=us(1))
    qp = stage.client.qp
    assert qp.retry_state.deadline is not None
    qp.page_wait.resend = True
    paged_in(qp)
    assert qp.retry_state.deadline is None
    assert not qp.page_wait.resend
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
