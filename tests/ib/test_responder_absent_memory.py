"""Keys that allow what is not there: pages on demand that never come. IBA 9.9.3."""

from collections.abc import Callable

import pytest

from rdmawire.fabric.host import ALL_ACCESS, Buffer
from rdmawire.fabric.pair import End, Pair
from rdmawire.memory.key import Access
from rdmawire.memory.mr_table import WHOLE_SPACE
from rdmawire.memory.page import PAGE_4K
from rdmawire.verbs.async_event import InvalidRequest
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode
from rdmawire.wire.ib import FETH, RETH, Nak, Placement, Selectivity
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import PATIENT, Stage, events, key_of, nak_of, outcomes, statuses, to_remote


def absent(end: End) -> Buffer:
    """A region on demand of memory that was unmapped."""
    memory = end.space.allocate(65536)
    access = ALL_ACCESS | Access.ON_DEMAND
    region = end.nic.memory.reg_mr(end.pd, memory.base, 65536, access)
    end.space.unmap(memory)
    return Buffer(memory, region)


WORK: dict[str, Callable[[Stage, Buffer], object]] = {
    "write": lambda s, b: s.client.write(b"12345678", to=b),
    "a long write": lambda s, b: s.client.write(bytes(5000), to=b),
    "read": lambda s, b: s.client.read(8, of=b),
    "fetch_add": lambda s, b: s.client.fetch_add(1, of=b),
    "compare_swap": lambda s, b: s.client.compare_swap(0, 1, of=b),
    "atomic_write": lambda s, b: s.client.atomic_write(b"12345678", to=b),
    "flush": lambda s, b: s.client.flush(8, of=b),
}


@pytest.mark.parametrize("name", WORK)
def test_a_peer_that_asks_for_it_gets_a_remote_operational_error(name: str) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    WORK[name](stage, absent(stage.server))
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_OPERATIONAL_ERROR, 100)
    assert statuses(stage.client) == [WCStatus.REM_OP_ERR]
    assert stage.server.qp.state is QPState.ERR
    assert events(stage.server) == [InvalidRequest(stage.server.qp.qp_num)]


@pytest.mark.parametrize("length", [8, 3000])
def test_a_message_that_should_be_placed_there_ends_its_receive(length: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    sge = absent(stage.server).sge(4000)
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((sge,), 7),))
    stage.client.send(bytes(length))
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_OPERATIONAL_ERROR, 100)
    assert outcomes(stage.server) == [(7, WCStatus.LOC_PROT_ERR)]


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_so_it_does_where_nothing_is_answered(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))
    sge = absent(stage.server).sge(4000)
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((sge,), 7),))
    stage.client.send(b"hello")
    stage.drive()
    assert outcomes(stage.server) == [(7, WCStatus.LOC_PROT_ERR)]
    assert stage.server.qp.state is QPState.ERR
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_an_unreliable_write_there_is_dropped() -> None:
    stage = Stage(Pair(kind=QPType.UC))
    stage.client.write(b"hello", to=absent(stage.server))
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert stage.server.region.read(5) == b"hello"
    assert sum(stage.server.nic.drops.values()) == 1


@pytest.mark.parametrize(
    ("kind", "state"),
    [(QPType.RC, QPState.ERR), (QPType.UC, QPState.SQE), (QPType.UD, QPState.SQE)],
)
def test_a_sender_ends_its_work(kind: QPType, state: QPState) -> None:
    stage = Stage(Pair(kind=kind))
    source = absent(stage.client)
    stage.client.post(to_remote(SendOpcode.SEND, stage.server.region, source.sge(8)), source)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]
    assert stage.client.qp.state is state
    assert stage.sent == []


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_READ, SendOpcode.ATOMIC_FETCH_AND_ADD])
def test_what_comes_back_ends_the_work(opcode: SendOpcode) -> None:
    stage = Stage()
    sink = absent(stage.client)
    stage.client.post(to_remote(opcode, stage.server.region, sink.sge(8)), sink)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]
    assert stage.client.qp.state is QPState.ERR


def whole(end: End) -> Buffer:
    """All the space there is and will be, on demand."""
    access = ALL_ACCESS | Access.ON_DEMAND
    return Buffer(end.region.memory, end.nic.memory.reg_mr(end.pd, 0, WHOLE_SPACE, access))


def in_part(end: End) -> Buffer:
    """A region on demand that begins a page before the memory does."""
    memory = end.space.allocate(8192)
    access = ALL_ACCESS | Access.ON_DEMAND
    start, length = memory.base - PAGE_4K, 8192 + PAGE_4K
    return Buffer(memory, end.nic.memory.reg_mr(end.pd, start, length, access))


@pytest.mark.parametrize("region", [whole, in_part, absent])
def test_a_flush_of_a_whole_region_needs_no_page_of_it(region: Callable[[End], Buffer]) -> None:
    """Where nothing is, nothing was written that would be flushed."""
    stage = Stage()
    there = region(stage.server)
    flush = to_remote(SendOpcode.FLUSH, there)
    flush = flush._replace(
        placement=Placement.GLOBAL_VISIBILITY, selectivity=Selectivity.MEMORY_REGION
    )
    stage.client.post(flush)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert there.region.page_faults == 0


def test_a_flush_of_a_whole_region_needs_no_range_within_it() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    feth = FETH(sel=Selectivity.MEMORY_REGION, plt=Placement.GLOBAL_VISIBILITY)
    there = key_of(stage.server.region, 0).replace(va=1)
    stage.request(Opcode.RC_FLUSH, feth, there, psn=100)
    stage.drive()
    assert stage.opcodes(stage.server) == [Opcode.RC_RDMA_READ_RESPONSE_ONLY]
    assert stage.server.qp.state is QPState.RTS


def flushed(stage: Stage, selectivity: Selectivity, there: RETH) -> None:
    feth = FETH(sel=selectivity, plt=Placement.GLOBAL_VISIBILITY)
    stage.request(Opcode.RC_FLUSH, feth, there, psn=100)
    stage.drive()


def test_a_flush_of_the_last_byte_of_a_region_is_answered() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    there = key_of(stage.server.region, 1)
    last = there.replace(va=there.va + stage.server.region.region.length - 1)
    flushed(stage, Selectivity.MEMORY_REGION_RANGE, last)
    assert stage.opcodes(stage.server) == [Opcode.RC_RDMA_READ_RESPONSE_ONLY]
    assert stage.server.qp.state is QPState.RTS


@pytest.mark.parametrize("beyond", [-1, 1])
def test_a_flush_of_a_range_needs_all_of_it_in_the_region(beyond: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    there = key_of(stage.server.region, 8)
    last = stage.server.region.region.length - 8
    va = there.va + (last + beyond if beyond > 0 else beyond)
    flushed(stage, Selectivity.MEMORY_REGION_RANGE, there.replace(va=va))
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)


@pytest.mark.parametrize("selectivity", list(Selectivity))
def test_a_flush_by_a_key_that_is_none_is_refused(selectivity: Selectivity) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    there = key_of(stage.server.region, 8)
    flushed(stage, selectivity, there.replace(rkey=there.rkey + 1))
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)
