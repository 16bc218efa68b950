"""Requests that come again: answered again, never done again. IBA 9.7.5.1.4."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.ib.responder_state import MAX_ACKNOWLEDGES
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.wire.ib import RETH, Ack, AtomicAckETH, AtomicETH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.serial import MODULUS
from tests.ib.stage import PATIENT, Stage, key_of, only, statuses

MTU = 1024
BYTES = bytes(range(251)) * 400
READ = Opcode.RC_RDMA_READ_REQUEST


def stage_of(resources: int = 4) -> Stage:
    return Stage(Pair(attributes=PATIENT._replace(max_dest_rd_atomic=resources)))


def number(stage: Stage) -> int:
    return int.from_bytes(stage.server.region.read(8), "little")


def read(stage: Stage, length: int, psn: int, offset: int = 0) -> None:
    there = stage.server.region
    stage.request(READ, RETH(there.address + offset, there.rkey, length), psn=psn)
    stage.drive()


def add(stage: Stage, value: int, psn: int) -> None:
    there = stage.server.region
    stage.request(Opcode.RC_FETCH_ADD, AtomicETH(there.address, there.rkey, value, 0), psn=psn)
    stage.drive()


def payloads(stage: Stage) -> list[tuple[int, bytes]]:
    return [
        (sent.packet.bth.psn, sent.packet.payload)
        for sent in stage.by(stage.server)
        if sent.packet.payload
    ]


def originals(stage: Stage) -> list[int]:
    found = (sent.packet.header(AtomicAckETH) for sent in stage.by(stage.server))
    return [header.origremdt for header in found if header is not None]


def test_a_send_that_comes_again_is_acknowledged_again_and_takes_no_receive() -> None:
    stage = stage_of()
    stage.server.receive(5)
    stage.server.receive(5)
    for _ in range(3):
        stage.request(Opcode.RC_SEND_ONLY, payload=b"hello", psn=100, ackreq=1)
        stage.drive()
    assert [(aeth.ack, aeth.msn) for aeth in stage.aeths(stage.server)] == [(Ack.ACK, 1)] * 3
    assert only(stage.server).wr_id == 1
    assert len(stage.server.qp.rq) == 1


def test_a_write_that_comes_again_changes_nothing() -> None:
    stage = stage_of()
    write = (key_of(stage.server.region, 5),)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"first", psn=100, ackreq=1)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"other", psn=101, ackreq=1)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"first", psn=100)
    stage.drive()
    assert stage.server.region.read(5) == b"other"
    assert stage.psns(stage.server) == [101]  # one ACK tells of all


def test_the_ack_of_a_duplicate_acknowledges_all_that_was_executed() -> None:
    stage = stage_of()
    for psn in (100, 101, 102):
        stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=psn)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100)
    stage.drive()
    assert stage.psns(stage.server) == [102]
    assert [aeth.msn for aeth in stage.aeths(stage.server)] == [3]


def test_a_read_that_comes_again_reads_again() -> None:
    stage = stage_of()
    stage.server.region.write(b"before")
    read(stage, 6, psn=100)
    stage.server.region.write(b"behind")
    read(stage, 6, psn=100)
    assert payloads(stage) == [(100, b"before"), (100, b"behind")]


def test_of_two_with_the_same_psn_the_later_one_is_remembered() -> None:
    stage = stage_of()
    add(stage, 5, psn=100)
    stage.server.qp.inbound.skip_to(100)  # all round the circle
    for _ in range(2):
        add(stage, 5, psn=100)
    assert originals(stage) == [0, 5, 5]


def test_a_read_may_be_asked_for_from_any_of_its_packets_on() -> None:
    stage = stage_of()
    data = bytes(range(250)) * 16
    stage.server.region.write(data)
    read(stage, 4000, psn=100)
    stage.sent.clear()
    read(stage, 4000 - 2 * MTU, psn=102, offset=2 * MTU)
    assert payloads(stage) == [(102, data[2048:3072]), (103, data[3072:4000])]
    assert stage.opcodes(stage.server) == [
        Opcode.RC_RDMA_READ_RESPONSE_FIRST,
        Opcode.RC_RDMA_READ_RESPONSE_LAST,
    ]


@pytest.mark.parametrize(
    ("length", "psn"), [(4001, 100), (4000 - MTU + 1, 101), (0, 100)], ids=["all", "rest", "none"]
)
def test_a_read_that_asks_for_other_bytes_than_the_first_time_is_dropped(
    length: int, psn: int
) -> None:
    stage = stage_of()
    read(stage, 4000, psn=100)
    stage.sent.clear()
    read(stage, length, psn=psn)
    assert stage.sent == []
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1
    assert stage.server.qp.state is QPState.RTS


def test_a_duplicate_read_with_an_invalid_key_is_not_executed() -> None:
    stage = stage_of()
    there = stage.server.region
    read(stage, 8, psn=100)
    stage.server.nic.memory.dereg_mr(there.region)
    stage.sent.clear()
    read(stage, 8, psn=100)
    assert stage.sent == []
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1


def test_an_atomic_that_comes_again_gets_its_first_answer() -> None:
    stage = stage_of()
    for _ in range(3):
        add(stage, 5, psn=100)
    add(stage, 2, psn=101)
    add(stage, 5, psn=100)
    assert originals(stage) == [0, 0, 0, 5, 0]
    assert number(stage) == 7


def test_only_as_many_reads_and_atomics_are_remembered_as_agreed_upon() -> None:
    stage = stage_of(resources=2)
    for psn in (100, 101, 102):
        add(stage, 1, psn)
    for psn in (100, 101, 102):
        add(stage, 1, psn)
    assert originals(stage) == [0, 1, 2, 1, 2]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1
    assert number(stage) == 3


def test_an_atomic_that_comes_again_as_another_operation_is_dropped() -> None:
    stage = stage_of()
    add(stage, 1, psn=100)
    read(stage, 8, psn=100)
    there = stage.server.region
    stage.request(Opcode.RC_CMP_SWAP, AtomicETH(there.address, there.rkey, 9, 1), psn=100)
    stage.drive()
    assert originals(stage) == [0]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 2
    assert number(stage) == 1


def test_an_atomic_write_that_comes_again_writes_nothing() -> None:
    stage = stage_of()
    for data in (b"original", b"repeated"):
        stage.request(Opcode.RC_ATOMIC_WRITE, key_of(stage.server.region, 8), payload=data, psn=100)
        stage.drive()
    assert stage.server.region.read(8) == b"original"
    assert stage.opcodes(stage.server) == [Opcode.RC_RDMA_READ_RESPONSE_ONLY] * 2


def test_an_answer_that_waits_already_is_not_owed_twice() -> None:
    stage = stage_of()
    for _ in range(3):
        stage.request(READ, key_of(stage.server.region, 8), psn=100)
    stage.drive()
    assert stage.psns(stage.server) == [100]


def test_what_is_answered_again_does_not_count_against_what_is_new() -> None:
    stage = stage_of(resources=1)
    read(stage, 4000, psn=100)
    there = key_of(stage.server.region, 4000)
    for psn in (100, 104):
        stage.request(READ, there, psn=psn)
    stage.drive()
    assert stage.psns(stage.server) == [*range(100, 104), *range(100, 108)]
    assert stage.server.qp.state is QPState.RTS


def test_an_atomic_answered_again_does_not_count_against_one_that_is_new() -> None:
    stage = stage_of(resources=1)
    add(stage, 1, psn=100)
    there = stage.server.region
    for psn in (100, 100, 101):
        stage.request(Opcode.RC_FETCH_ADD, AtomicETH(there.address, there.rkey, 1, 0), psn=psn)
    stage.drive()
    assert originals(stage) == [0, 0, 1]
    assert number(stage) == 2


@pytest.mark.parametrize("resources", [1, 4, 16])
@pytest.mark.parametrize("lost", [20, 60])
def test_one_lost_response_costs_no_timeout_while_answers_are_under_way(
    resources: int, lost: int
) -> None:
    agreed = PATIENT._replace(max_rd_atomic=resources, max_dest_rd_atomic=resources)
    stage = Stage(Pair(Link(us(1), rate=100_000_000_000, drop={lost}), attributes=agreed))
    there = stage.server.buffer(len(BYTES))
    there.write(BYTES)
    reads = [stage.client.read(len(BYTES), of=there) for _ in range(resources)]
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * resources
    assert all(done.buffer.read(len(BYTES)) == BYTES for done in reads)
    assert stage.client.qp.retry_state.deadline is None


def begun(stage: Stage, sent: int, *psns: int, length: int = 4000) -> None:
    """Ask for READs, and have so many responses sent; nobody receives them."""
    for psn in psns:
        stage.request(READ, key_of(stage.server.region, length), psn=psn)
    stage.server.nic.transmit(stage.now, sent)


def test_a_read_whose_answer_is_under_way_begins_again_where_it_is_asked_to() -> None:
    stage = stage_of(resources=1)
    begun(stage, 3, 100)
    there = stage.server.region
    stage.request(READ, RETH(there.address + MTU, there.rkey, 4000 - MTU), psn=101)
    stage.drive()
    assert stage.psns(stage.server) == [101, 102, 103]


def test_answers_behind_one_that_is_given_again_begin_anew() -> None:
    stage = stage_of()
    begun(stage, 6, 100, 104)
    stage.request(READ, key_of(stage.server.region, 4000), psn=100)
    stage.drive()
    assert stage.psns(stage.server) == [*range(100, 108)]
    assert stage.opcodes(stage.server)[::4] == [Opcode.RC_RDMA_READ_RESPONSE_FIRST] * 2


def test_a_repeated_response_counts_as_a_resource_until_it_was_sent_completely() -> None:
    stage = stage_of(resources=1)
    begun(stage, 2, 100)
    for psn in (100, 104):
        stage.request(READ, key_of(stage.server.region, 4000), psn=psn)
    assert stage.server.qp.state is QPState.ERR


@pytest.mark.parametrize("resources", [1, 4])
def test_repeated_requests_fill_no_memory(resources: int) -> None:
    stage = stage_of(resources)
    for first in range(100, 200, resources):
        psns = range(first, first + resources)
        stage.server.nic.transmit(stage.now)
        for _ in range(20):
            for psn in (*range(max(first - resources, 100), first), *psns):
                stage.request(READ, key_of(stage.server.region, 8), psn=psn)
        assert len(stage.server.qp.inbound.pending) <= 2 * resources
        assert stage.server.qp.inbound.reads <= 2 * resources


def test_refusals_and_repeated_requests_fill_no_memory() -> None:
    stage = stage_of()
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100)
    for _ in range(99):
        stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100)
        stage.request(Opcode.RC_SEND_ONLY, payload=b"nobody waits for it", psn=101)
    assert len(stage.server.qp.inbound.pending) <= MAX_ACKNOWLEDGES + 1


def test_gaps_one_after_another_fill_no_memory() -> None:
    stage = stage_of()
    for psn in range(100, 200):
        stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=psn + 1)
        stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=psn, ackreq=1)
    assert len(stage.server.qp.inbound.pending) <= MAX_ACKNOWLEDGES + 1
    stage.drive()
    assert stage.psns(stage.server)[-1] == 199


def test_revoked_memory_ends_a_repeated_response_and_nothing_else() -> None:
    stage = stage_of()
    read(stage, 4000, psn=100)
    stage.sent.clear()
    begun(stage, 2, 100)
    stage.server.nic.memory.dereg_mr(stage.server.region.region)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=104, ackreq=1)
    stage.drive()
    assert stage.opcodes(stage.server) == [Opcode.RC_ACKNOWLEDGE]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1
    assert stage.server.qp.state is QPState.RTS


def test_a_read_that_comes_again_does_not_show_what_was_written_behind_it() -> None:
    stage = stage_of()
    stage.server.region.write(bytes(4000))
    begun(stage, 1, 100)
    write = (key_of(stage.server.region, 4),)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"next", psn=104, ackreq=1)
    stage.request(READ, key_of(stage.server.region, 4000), psn=100)
    stage.drive()
    assert b"".join(data for _, data in payloads(stage)) == bytes(4000)
    assert stage.psns(stage.server) == [*range(100, 105)]
    assert stage.server.region.read(4) == b"next"


def test_what_is_half_a_circle_behind_is_ahead() -> None:
    stage = stage_of()
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=(100 - MODULUS // 2 + 1) % MODULUS)
    stage.drive()
    assert stage.aeths(stage.server)[0].ack == Ack.ACK
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=(100 + MODULUS // 2 - 1) % MODULUS)
    stage.drive()
    assert stage.aeths(stage.server)[1].ack == Ack.NAK


def test_requests_that_the_link_repeats_are_done_once() -> None:
    stage = Stage(Pair(Link(duplicate=range(1, 200)), attributes=ATTRIBUTES))
    stage.server.receive(3000)
    for _ in range(5):
        stage.client.fetch_add(1, of=stage.server.region)
    stage.client.send(bytes(3000))
    back = stage.client.read(3000, of=stage.server.region)
    stage.drive()
    assert number(stage) == 5
    assert back.buffer.read(8) == (5).to_bytes(8, "little")
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 7
    assert statuses(stage.server) == [WCStatus.SUCCESS]


def write(stage: Stage, psn: int, ackreq: int = 0) -> None:
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=psn, ackreq=ackreq)


def acks(stage: Stage) -> list[int]:
    """The PSNs of the server's ACKs that are no response."""
    return [
        sent.packet.bth.psn
        for sent in stage.by(stage.server)
        if sent.packet.bth.opcode == Opcode.RC_ACKNOWLEDGE
    ]


def _read(stage: Stage, psn: int) -> None:
    read(stage, 8, psn)


def _add(stage: Stage, psn: int) -> None:
    add(stage, 1, psn)


def _atomic_write(stage: Stage, psn: int) -> None:
    stage.request(Opcode.RC_ATOMIC_WRITE, key_of(stage.server.region, 8), payload=bytes(8), psn=psn)
    stage.drive()


Ask = Callable[[Stage, int], None]
RESPONDED = [_read, _add, _atomic_write]


@pytest.mark.parametrize("request_of", RESPONDED)
def test_a_write_repeated_behind_a_response_is_acknowledged_alone(request_of: Ask) -> None:
    """A Linux requester takes an ACK with the PSN of a READ for its response."""
    stage = stage_of()
    write(stage, 100, ackreq=1)
    request_of(stage, 101)
    stage.sent.clear()
    write(stage, 100, ackreq=1)
    stage.drive()
    assert stage.psns(stage.server) == [100]


@pytest.mark.parametrize("request_of", RESPONDED)
def test_an_ack_of_a_repeated_write_covers_no_response_behind_it(request_of: Ask) -> None:
    stage = stage_of()
    write(stage, 100)
    write(stage, 101)
    request_of(stage, 102)
    write(stage, 103, ackreq=1)
    stage.drive()
    stage.sent.clear()
    write(stage, 100, ackreq=1)
    stage.drive()
    write(stage, 103, ackreq=1)
    stage.drive()
    assert stage.psns(stage.server) == [101, 103]


@pytest.mark.parametrize("request_of", RESPONDED)
def test_a_write_with_the_psn_of_a_response_repeats_nothing(request_of: Ask) -> None:
    stage = stage_of()
    request_of(stage, 100)
    stage.sent.clear()
    write(stage, 100, ackreq=1)
    stage.drive()
    assert stage.sent == []
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1


def test_a_pending_response_acknowledges_a_repeated_write() -> None:
    stage = stage_of()
    write(stage, 100)
    begun(stage, 2, 101)
    write(stage, 100, ackreq=1)
    stage.drive()
    assert stage.psns(stage.server) == [103, 104]


def test_repeated_writes_between_reads_are_acknowledged_once_each() -> None:
    stage = stage_of()
    for psn in (100, 102, 104):
        write(stage, psn)
        _read(stage, psn + 1)
    stage.sent.clear()
    for psn in (100, 102, 104) * 20:
        write(stage, psn, ackreq=1)
    assert len(stage.server.qp.inbound.pending) <= 3
    stage.drive()
    assert set(acks(stage)) <= {100, 102, 104}
    assert 104 in acks(stage)


@pytest.mark.parametrize("request_of", RESPONDED)
def test_an_ack_unasked_covers_no_response(request_of: Ask) -> None:
    """Credits are told with an ACK; it must not stand in for a response that was lost."""
    stage = stage_of()
    write(stage, 100, ackreq=1)
    request_of(stage, 101)
    request_of(stage, 102)
    stage.sent.clear()
    stage.server.receive(5)
    stage.drive()
    assert stage.psns(stage.server) == [100]
    assert [aeth.msn for aeth in stage.aeths(stage.server)] == [3]


def test_credits_after_a_read_response_are_received() -> None:
    stage = stage_of()
    stage.client.write(b"first", to=stage.server.region)
    stage.client.read(8, of=stage.server.region)
    stage.drive()
    before = stage.client.qp.credit_limit
    stage.server.receive(5)
    stage.drive()
    assert before is not None
    assert stage.client.qp.credit_limit == before + 1


@pytest.mark.parametrize("length", [1, 8, 4000])
def test_a_read_of_nothing_that_asks_for_more_the_second_time_is_dropped(length: int) -> None:
    stage = stage_of()
    read(stage, 0, psn=100)
    read(stage, length, psn=100)
    read(stage, 0, psn=100)
    assert stage.psns(stage.server) == [100, 100]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1


@pytest.mark.parametrize(
    ("psn", "offset"), [(100, 8), (101, 0), (101, MTU + 4)], ids=["start", "rest", "beyond"]
)
def test_a_read_repeated_of_other_memory_is_dropped(psn: int, offset: int) -> None:
    stage = stage_of()
    stage.server.region.write(bytes(8000))
    read(stage, 2 * MTU, psn=100)
    stage.sent.clear()
    read(stage, 8, psn, offset)
    assert stage.sent == []
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1


def test_a_read_repeated_with_another_key_is_dropped() -> None:
    stage = stage_of()
    read(stage, 8, psn=100)
    stage.sent.clear()
    other = stage.server.buffer(8)
    there = stage.server.region
    stage.request(READ, RETH(there.address, other.rkey, 8), psn=100)
    stage.drive()
    assert stage.sent == []


@pytest.mark.parametrize("field", ["va", "swapdt", "rkey"])
def test_an_atomic_repeated_with_other_operands_is_dropped(field: str) -> None:
    stage = stage_of()
    there = stage.server.region
    first = AtomicETH(there.address, there.rkey, 5, 0)
    other = first.replace(**{field: getattr(first, field) + 8})
    for header in (first, other, first):
        stage.request(Opcode.RC_FETCH_ADD, header, psn=100)
        stage.drive()
    assert originals(stage) == [0, 0]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1


KINDS = {"write": write, "read": _read, "add": _add}


@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4),
    again=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8),
)
def test_no_ack_covers_a_response_that_it_is_not_known_to_follow(
    kinds: list[str], again: list[tuple[int, bool]]
) -> None:
    """Whatever is repeated: an ACK acknowledges the repeated WRITE, and no READ or atomic."""
    stage = stage_of()
    for psn, kind in enumerate(kinds, 100):
        KINDS[kind](stage, psn)
    stage.sent.clear()
    for index, drives in again:
        if index < len(kinds) and kinds[index] == "write":
            write(stage, 100 + index, ackreq=1)
        if drives:
            stage.drive()
    stage.drive()
    writes = {psn for psn, kind in enumerate(kinds, 100) if kind == "write"}
    repeated = {100 + index for index, _ in again} & writes
    assert set(acks(stage)) <= writes
    assert all(max(acks(stage)) >= psn for psn in repeated)
