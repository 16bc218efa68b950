"""Responses move the send queue: ACKs that tell of many, ghosts, bad ones. IBA 9.7.3, 9.7.5."""

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR, Sge
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, NO_CREDITS, Ack, AtomicAckETH, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import PATIENT, Stage, outcomes, statuses

ACK = Opcode.RC_ACKNOWLEDGE
OK = AETH(ack=Ack.ACK, value=NO_CREDITS)


def stage_of() -> Stage:
    """A pair whose server says only what it is made to."""
    return Stage(Pair(attributes=PATIENT))


def answer(stage: Stage, opcode: Opcode, *more: Header, psn: int, payload: bytes = b"") -> None:
    """Hand the client a forged response."""
    stage.deliver(Packet.make(opcode, *more, payload=payload, psn=psn), by=stage.server)


def three_writes(stage: Stage) -> None:
    for _ in range(3):
        stage.client.write(bytes(2000), to=stage.server.region)
    stage.client.nic.transmit(0)


@pytest.mark.parametrize(("psn", "done"), [(100, 0), (101, 1), (102, 1), (103, 2), (105, 3)])
def test_an_ack_completes_all_before_it(psn: int, done: int) -> None:
    stage = stage_of()
    three_writes(stage)
    answer(stage, ACK, OK, psn=psn)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * done
    answer(stage, ACK, OK, psn=105)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * (3 - done)


@pytest.mark.parametrize("psn", [99, 98, 106, 0])
def test_acks_without_outstanding_requests_do_nothing(psn: int) -> None:
    stage = stage_of()
    three_writes(stage)
    for code in (OK, AETH(ack=Ack.NAK, value=Nak.REMOTE_ACCESS_ERROR), AETH(ack=Ack.RNR_NAK)):
        answer(stage, ACK, code, psn=psn)
    assert statuses(stage.client) == []
    assert stage.client.qp.state is QPState.RTS
    repeats_the_last = psn == 99
    assert stage.client.nic.drops[Drop.STALE] == (2 if repeats_the_last else 3)


def test_an_ack_of_packets_that_were_not_sent_yet_is_a_ghost() -> None:
    stage = stage_of()
    stage.client.write(bytes(5000), to=stage.server.region)
    for frame in stage.client.nic.transmit(0, 2):
        stage.server.nic.receive(frame, 0)
    answer(stage, ACK, OK, psn=104)
    assert statuses(stage.client) == []
    assert stage.client.nic.drops[Drop.STALE] == 1
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert stage.psns(stage.client) == [102, 103, 104]


def test_reserved_syndromes_do_nothing() -> None:
    stage = stage_of()
    three_writes(stage)
    answer(stage, ACK, AETH(ack=2), psn=105)
    assert statuses(stage.client) == []
    assert stage.client.qp.state is QPState.RTS


@pytest.mark.parametrize("code", [AETH(ack=ack) for ack in Ack if ack is not Ack.ACK])
@pytest.mark.parametrize("kind", ["read", "atomic"])
def test_an_error_in_a_response_that_is_no_acknowledge_packet_is_a_bad_response(
    kind: str, code: AETH
) -> None:
    stage = stage_of()
    if kind == "read":
        stage.client.read(8, of=stage.server.region)
    else:
        stage.client.fetch_add(1, of=stage.server.region)
    stage.client.nic.transmit(0)
    if kind == "read":
        answer(stage, ONLY, code, psn=100, payload=bytes(8))
    else:
        answer(stage, Opcode.RC_ATOMIC_ACKNOWLEDGE, code, AtomicAckETH(1), psn=100)
    assert statuses(stage.client) == [WCStatus.BAD_RESP_ERR]


def test_a_local_error_behind_a_read_does_not_wait_for_the_rnr_timer() -> None:
    stage = stage_of()
    stage.client.read(8, of=stage.server.region)
    wr = SendWR(SendOpcode.SEND, (Sge(1, 8, 0xBAD),), wr_id=2)
    stage.client.nic.post_send(stage.client.qp, (wr,))
    stage.client.nic.transmit(0)
    answer(stage, ACK, AETH(ack=Ack.RNR_NAK, value=1), psn=100)
    answer(stage, ONLY, OK, psn=100, payload=bytes(8))
    assert statuses(stage.client) == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR]
    assert stage.client.qp.state is QPState.ERR


FIRST, MIDDLE, LAST, ONLY = (
    Opcode.RC_RDMA_READ_RESPONSE_FIRST,
    Opcode.RC_RDMA_READ_RESPONSE_MIDDLE,
    Opcode.RC_RDMA_READ_RESPONSE_LAST,
    Opcode.RC_RDMA_READ_RESPONSE_ONLY,
)


def reading(length: int) -> Stage:
    stage = stage_of()
    stage.client.read(length, of=stage.server.region)
    stage.client.nic.transmit(0)
    return stage


@pytest.mark.parametrize(
    ("length", "opcode", "payload"),
    [
        (3000, FIRST, 1020),
        (3000, FIRST, 1028),
        (3000, ONLY, 1024),
        (3000, LAST, 1024),
        (1000, FIRST, 1024),
        (1000, ONLY, 996),
        (1000, ONLY, 1004),
        (0, ONLY, 4),
    ],
)
def test_read_responses_that_do_not_fit_end_the_read(
    length: int, opcode: Opcode, payload: int
) -> None:
    stage = reading(length)
    answer(stage, opcode, OK, psn=100, payload=bytes(payload))
    assert statuses(stage.client) == [WCStatus.BAD_RESP_ERR]
    assert stage.client.qp.state is QPState.ERR


@pytest.mark.parametrize("kind", ["write", "atomic", "read"])
def test_a_response_of_another_kind_than_the_oldest_work_waits_for(kind: str) -> None:
    stage = stage_of()
    there = stage.server.region
    post = {
        "write": lambda: stage.client.write(b"x", to=there),
        "atomic": lambda: stage.client.fetch_add(1, of=there),
        "read": lambda: stage.client.read(8, of=there),
    }
    post[kind]()
    stage.client.nic.transmit(0)
    if kind == "read":
        answer(stage, Opcode.RC_ATOMIC_ACKNOWLEDGE, OK, AtomicAckETH(1), psn=100)
    else:
        answer(stage, ONLY, OK, psn=100, payload=bytes(8))
    assert statuses(stage.client) == [WCStatus.BAD_RESP_ERR]


def test_a_lost_response_in_the_middle_is_asked_for_once() -> None:
    stage = reading(5000)
    answer(stage, FIRST, OK, psn=100, payload=bytes(1024))
    answer(stage, MIDDLE, psn=102, payload=bytes(1024))
    answer(stage, MIDDLE, psn=103, payload=bytes(1024))
    again = stage.client.nic.transmit(0)
    assert len(again) == 1
    assert statuses(stage.client) == []


def test_a_response_that_comes_twice_is_taken_once() -> None:
    stage = stage_of()
    read = stage.client.read(3000, of=stage.server.region)
    stage.client.nic.transmit(0)
    for byte in (b"a", b"-"):
        answer(stage, FIRST, OK, psn=100, payload=byte * 1024)
    for byte in (b"b", b"-"):
        answer(stage, MIDDLE, psn=101, payload=byte * 1024)
    assert stage.client.nic.drops[Drop.STALE] == 1  # the FIRST may have told of credits
    answer(stage, LAST, OK, psn=102, payload=b"c" * 952)
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert read.buffer.read() == b"a" * 1024 + b"b" * 1024 + b"c" * 952


def test_a_read_response_acknowledges_what_was_sent_before_the_read() -> None:
    stage = stage_of()
    stage.client.write(b"first", to=stage.server.region)
    stage.client.read(8, of=stage.server.region)
    stage.client.nic.transmit(0)
    answer(stage, ONLY, OK, psn=101, payload=b"12345678")
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]


def test_local_memory_that_went_away_ends_the_read() -> None:
    stage = stage_of()
    read = stage.client.read(8, of=stage.server.region)
    stage.client.nic.transmit(0)
    stage.client.nic.memory.dereg_mr(read.buffer.region)
    answer(stage, ONLY, OK, psn=100, payload=b"12345678")
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]
    assert stage.client.qp.state is QPState.ERR


def test_no_byte_of_a_bad_response_is_placed() -> None:
    stage = stage_of()
    read = stage.client.read(8, of=stage.server.region)
    stage.client.nic.transmit(0)
    answer(stage, ONLY, OK, psn=100, payload=b"too many octets.")
    assert read.buffer.read() == bytes(8)


def test_one_ack_answers_many_requests() -> None:
    stage = Stage()
    for _ in range(10):
        stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert stage.psns(stage.server) == [109]
    assert [aeth.msn for aeth in stage.aeths(stage.server)] == [10]
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 10


def test_responses_keep_the_order_of_requests() -> None:
    stage = Stage()
    stage.client.write(b"one", to=stage.server.region)
    stage.client.read(2000, of=stage.server.region)
    stage.client.fetch_add(1, of=stage.server.region)
    stage.client.write(b"two", to=stage.server.region)
    stage.drive()
    assert stage.psns(stage.server) == [100, 101, 102, 103, 104]
    assert [aeth.msn for aeth in stage.aeths(stage.server)] == [1, 2, 2, 3, 4]


def test_acks_that_overtake_one_another_complete_each_work_once() -> None:
    stage = Stage(Pair(Link(1000, delay={3: 50_000})))  # the ACK of the first WRITE
    stage.client.write(b"one", to=stage.server.region)
    stage.drive(until=500)
    stage.client.write(b"two", to=stage.server.region)
    stage.drive()
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]


def test_an_ack_that_comes_while_work_is_to_be_sent_again_completes_local_work_behind_it() -> None:
    stage = stage_of()
    client = stage.client
    client.write(b"first", to=stage.server.region)
    free = client.nic.memory.alloc_mr(client.pd, 1)
    client.post(SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=free.rkey), client.region)
    client.nic.transmit(0)
    answer(stage, ACK, AETH(ack=Ack.NAK, value=Nak.PSN_SEQUENCE_ERROR), psn=100)
    assert statuses(client) == []
    answer(stage, ACK, OK, psn=100)
    assert outcomes(client) == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]


def test_each_response_to_a_read_begins_the_wait_anew() -> None:
    stage = Stage()
    client = stage.client
    client.read(2048, of=stage.server.region)
    client.nic.transmit(0)
    before = client.nic.next_timer()
    first = Packet.make(FIRST, OK, payload=bytes(1024), psn=100)
    client.nic.receive(stage.forge(first, by=stage.server), 5000)
    assert before is not None
    assert client.nic.next_timer() == before + 5000
    last = Packet.make(LAST, OK, payload=bytes(1024), psn=101)
    client.nic.receive(stage.forge(last, by=stage.server), 6000)
    assert statuses(client) == [WCStatus.SUCCESS]
    assert client.nic.next_timer() is None
