"""What holds work back, and what ends it before its first packet: credits, local errors."""

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.memory.key import Access
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import RXE
from rdmawire.verbs.wr import LONGEST_MESSAGE, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import AETH, CREDITS, NO_CREDITS, Ack
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.serial import HALF
from tests.ib.stage import PATIENT, Stage, outcomes, statuses, to_remote

SEND = Opcode.RC_SEND_ONLY


def test_local_memory_that_is_not_there_ends_the_work_and_nothing_is_sent() -> None:
    for opcode in (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, SendOpcode.SEND):
        stage = Stage()
        stage.client.post(
            to_remote(opcode, stage.server.region, Sge(1, 8, 0xBAD)), stage.client.region
        )
        stage.client.write(b"behind", to=stage.server.region)
        stage.drive()
        assert outcomes(stage.client) == [(1, WCStatus.LOC_PROT_ERR), (2, WCStatus.WR_FLUSH_ERR)]
        assert stage.sent == []
        assert stage.client.qp.state is QPState.ERR


def test_a_response_is_not_placed_where_the_key_does_not_allow_it() -> None:
    for opcode in (SendOpcode.RDMA_READ, SendOpcode.ATOMIC_FETCH_AND_ADD):
        stage = Stage()
        sink = stage.client.buffer(8, access=0)
        stage.client.post(to_remote(opcode, stage.server.region, sink.sge()), sink)
        stage.drive()
        assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]
        assert stage.sent == []


def test_the_last_of_many_pieces_counts_as_well() -> None:
    stage = Stage()
    good, other = stage.client.buffer(8), stage.client.nic.alloc_pd()
    memory = stage.client.space.allocate(4096)
    region = stage.client.nic.memory.reg_mr(other, memory.base, 8, Access.LOCAL_WRITE)
    pieces = (good.sge(), Sge(memory.base, 8, region.lkey))
    stage.client.post(to_remote(SendOpcode.RDMA_WRITE, stage.server.region, *pieces), good)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]


@pytest.mark.parametrize(("responses", "together"), [(HALF - 1, True), (HALF, False)])
def test_a_read_waits_if_with_its_responses_more_than_half_a_circle_were_in_flight(
    responses: int, together: bool
) -> None:
    there = PATIENT._replace(path_mtu=MTU.MTU_256)
    stage = Stage(Pair(attributes=there))
    sink = stage.client.buffer(LONGEST_MESSAGE)
    stage.client.fetch_add(5, of=stage.server.region)
    read = to_remote(SendOpcode.RDMA_READ, stage.server.region, sink.sge(responses * 256))
    stage.client.post(read, sink)
    (add, *more) = stage.client.nic.transmit(0)
    assert bool(more) is together
    stage.server.nic.receive(add, 0)
    (original,) = stage.server.nic.transmit(0)
    stage.client.nic.receive(original, 0)
    assert len(more) + len(stage.client.nic.transmit(0)) == 1
    assert stage.client.qp.sq.in_flight == responses


@pytest.mark.parametrize("size", [8, 256 * 3])
@pytest.mark.parametrize("opcode", [SendOpcode.SEND, SendOpcode.RDMA_WRITE])
@pytest.mark.parametrize("room", [0, 1, 2])
def test_at_most_half_of_the_psns_are_in_flight_behind_a_read(
    opcode: SendOpcode, size: int, room: int
) -> None:
    """IBA 9.7.1: the responses that are awaited count."""
    stage = Stage(Pair(attributes=PATIENT._replace(path_mtu=MTU.MTU_256)))
    sink, source = stage.client.buffer(LONGEST_MESSAGE), stage.client.buffer(size)
    length = (HALF - room) * 256
    read = to_remote(SendOpcode.RDMA_READ, stage.server.region, sink.sge(length))
    stage.client.post(read, sink)
    for _ in range(3):
        stage.client.post(to_remote(opcode, stage.server.region, source.sge()), source)
    frames = list(stage.client.nic.transmit(0))
    assert len(frames) == 1 + room
    assert stage.client.qp.sq.in_flight == HALF


@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ])
def test_a_message_of_more_than_two_gigabytes_is_too_long(opcode: SendOpcode) -> None:
    stage = Stage()
    memory = stage.client.space.allocate(1 << 32)
    access = Access.LOCAL_WRITE
    region = stage.client.nic.memory.reg_mr(stage.client.pd, memory.base, 1 << 32, access)
    sge = Sge(memory.base, LONGEST_MESSAGE + 1, region.lkey)
    stage.client.post(to_remote(opcode, stage.server.region, sge), stage.client.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_LEN_ERR]


def test_memory_that_goes_away_under_way_ends_the_work_there() -> None:
    stage = Stage()
    write = stage.client.write(bytes(5000), to=stage.server.region)
    stage.client.nic.transmit(0, 2)
    stage.client.nic.memory.dereg_mr(write.buffer.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]
    assert stage.client.qp.state is QPState.ERR
    assert stage.sent == []


# End-to-end credits. IBA 9.7.7.2.


def limited(receives: int) -> Stage:
    """A client whose peer says in an ACK of its first WRITE for how many more it has receives."""
    stage = Stage(Pair(attributes=PATIENT))
    stage.client.write(b"x", to=stage.server.region)
    stage.client.nic.transmit(0)
    aeth = AETH(ack=Ack.ACK, value=CREDITS.index(receives), msn=1)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, psn=100), by=stage.server)
    stage.client.poll()
    return stage


@pytest.mark.parametrize("receives", [1, 2, 4])
def test_no_more_messages_go_out_than_the_peer_has_receives_for(receives: int) -> None:
    stage = limited(receives)
    for _ in range(8):
        stage.client.send(b"hello")
    assert len(stage.client.nic.transmit(0)) == receives


def test_without_credits_one_message_goes_out_to_ask() -> None:
    stage = limited(0)
    for _ in range(8):
        stage.client.send(b"hello")
    assert len(stage.client.nic.transmit(0)) == 1


def test_what_takes_no_receive_needs_no_credit() -> None:
    stage = limited(0)
    for _ in range(8):
        stage.client.write(b"hello", to=stage.server.region)
    stage.client.read(8, of=stage.server.region)
    assert len(stage.client.nic.transmit(0)) == 9


def test_a_write_with_immediate_needs_one() -> None:
    stage = limited(1)
    for _ in range(4):
        stage.client.write(b"hello", to=stage.server.region, imm=1)
    assert len(stage.client.nic.transmit(0)) == 1


def test_work_behind_a_message_that_waits_for_credits_waits_too() -> None:
    stage = limited(1)
    stage.client.send(b"hello")
    stage.client.send(b"waits")
    stage.client.write(b"behind", to=stage.server.region)
    assert len(stage.client.nic.transmit(0)) == 1


@pytest.mark.parametrize(
    ("psn", "aeth"),
    [
        (100, AETH(ack=Ack.NAK, value=NO_CREDITS, msn=1)),
        (100, AETH(ack=Ack.RNR_NAK, value=4, msn=1)),
        (101, AETH(ack=Ack.ACK, value=CREDITS.index(8), msn=1)),
        (200, AETH(ack=Ack.ACK, value=CREDITS.index(8), msn=1)),
    ],
    ids=["a NAK", "an RNR NAK", "a ghost ACK", "a far ghost ACK"],
)
def test_a_nak_that_comes_again_and_a_ghost_ack_grant_no_credits(psn: int, aeth: AETH) -> None:
    stage = limited(1)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, psn=psn), by=stage.server)
    for _ in range(4):
        stage.client.send(b"hello")
    assert len(stage.client.nic.transmit(0)) == 1


def test_a_peer_that_counts_none_holds_nothing_back() -> None:
    stage = limited(1)
    aeth = AETH(ack=Ack.ACK, value=NO_CREDITS, msn=1)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, psn=100), by=stage.server)
    for _ in range(8):
        stage.client.send(b"hello")
    assert len(stage.client.nic.transmit(0)) == 8


def advertised_credits(stage: Stage) -> list[int]:
    return [CREDITS[aeth.value] for aeth in stage.aeths(stage.server) if aeth.ack == Ack.ACK]


@pytest.mark.parametrize(("receives", "told"), [(0, 0), (1, 1), (5, 4), (7, 6), (100, 96)])
def test_acks_have_credits_for_the_receives_that_are_left(receives: int, told: int) -> None:
    stage = Stage()
    for _ in range(receives):
        stage.server.receive()
    stage.client.write(b"x", to=stage.server.region)
    stage.drive()
    assert advertised_credits(stage) == [told]


def test_new_receives_are_advertised_in_unsolicited_acks() -> None:
    stage = Stage()
    stage.client.write(b"x", to=stage.server.region)
    stage.drive()
    stage.server.receive(8)
    stage.server.receive(8)
    stage.drive()
    assert advertised_credits(stage) == [0, 2]
    assert stage.client.qp.credit_limit == 3
    assert stage.psns(stage.server) == [100, 100]


def test_credits_keep_a_fast_sender_from_rnr_naks() -> None:
    stage = Stage(Pair(Link(us(1))))
    stage.server.receive(8)
    stage.client.write(b"x", to=stage.server.region)
    stage.drive()
    for _ in range(20):
        stage.client.send(b"hello")
    for _ in range(19):
        stage.drive(until=stage.now + us(10))
        stage.server.receive(8)
    stage.drive()
    naks = [aeth for aeth in stage.aeths(stage.server) if aeth.ack == Ack.RNR_NAK]
    assert len(naks) <= 19
    assert len(statuses(stage.server)) == 20
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 21


def test_soft_roce_counts_no_credits() -> None:
    stage = Stage(Pair(profile=RXE))
    stage.server.receive(8)
    stage.client.send(b"hello")
    stage.drive()
    assert [aeth.value for aeth in stage.aeths(stage.server)] == [NO_CREDITS]


def test_a_datagram_longer_than_the_path_mtu_ends_here() -> None:
    stage = Stage(Pair(kind=QPType.UD, attributes=ATTRIBUTES))
    stage.client.send(bytes(4096))
    stage.client.send(bytes(4097))
    stage.drive()
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS), (2, WCStatus.LOC_LEN_ERR)]
    assert stage.client.qp.state is QPState.SQE


def test_without_room_for_reads_one_is_never_begun() -> None:
    stage = Stage(Pair(attributes=ATTRIBUTES._replace(max_rd_atomic=0)))
    stage.client.read(8, of=stage.server.region)
    stage.drive()
    assert stage.sent == []
    assert len(stage.client.qp.sq) == 1


def test_empty_work_has_no_memory_to_fail_on() -> None:
    stage = Stage()
    wr = to_remote(SendOpcode.RDMA_WRITE, stage.server.region, Sge(1, 0, 0xBAD))
    stage.client.post(wr, stage.client.region)
    stage.client.post(SendWR(SendOpcode.RDMA_WRITE), stage.client.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
