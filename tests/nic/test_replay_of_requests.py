"""Requests that come again: answered again, never done again. IBA 9.7.5.1.4."""

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.state import QPState
from rdmawire.nic.unseal import Drop
from rdmawire.wire.ib import RETH, Ack, AtomicAckETH, AtomicETH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.psn import MODULUS
from tests.nic.stage import PATIENT, Stage, key_of, only, statuses

MTU = 1024
READ = Opcode.RC_RDMA_READ_REQUEST


def stage_of(resources: int = 4) -> Stage:
    return Stage(Pair(attributes=PATIENT._replace(max_dest_rd_atomic=resources)))


def number(stage: Stage) -> int:
    return int.from_bytes(stage.server.region.read(8), "little")


def read(stage: Stage, length: int, psn: int, offset: int = 0) -> None:
    there = stage.server.region
    stage.ask(READ, RETH(there.address + offset, there.rkey, length), psn=psn)
    stage.drive()


def add(stage: Stage, value: int, psn: int) -> None:
    there = stage.server.region
    stage.ask(Opcode.RC_FETCH_ADD, AtomicETH(there.address, there.rkey, value, 0), psn=psn)
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
        stage.ask(Opcode.RC_SEND_ONLY, payload=b"hello", psn=100, ackreq=1)
        stage.drive()
    assert [(aeth.ack, aeth.msn) for aeth in stage.aeths(stage.server)] == [(Ack.ACK, 1)] * 3
    assert only(stage.server).wr_id == 1
    assert len(stage.server.qp.rq) == 1


def test_a_write_that_comes_again_changes_nothing() -> None:
    stage = stage_of()
    write = (key_of(stage.server.region, 5),)
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"first", psn=100, ackreq=1)
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"other", psn=101, ackreq=1)
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, *write, payload=b"first", psn=100)
    stage.drive()
    assert stage.server.region.read(5) == b"other"
    assert stage.psns(stage.server) == [101]  # one ACK tells of all


def test_an_ack_of_what_came_again_tells_of_all_that_was_done() -> None:
    stage = stage_of()
    for psn in (100, 101, 102):
        stage.ask(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=psn)
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100)
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


def test_a_read_may_be_asked_for_from_any_of_its_packets_on() -> None:
    stage = stage_of()
    octets = bytes(range(250)) * 16
    stage.server.region.write(octets)
    read(stage, 4000, psn=100)
    stage.sent.clear()
    read(stage, 4000 - 2 * MTU, psn=102, offset=2 * MTU)
    assert payloads(stage) == [(102, octets[2048:3072]), (103, octets[3072:4000])]
    assert stage.opcodes(stage.server) == [
        Opcode.RC_RDMA_READ_RESPONSE_FIRST,
        Opcode.RC_RDMA_READ_RESPONSE_LAST,
    ]


@pytest.mark.parametrize(
    ("length", "psn"), [(4001, 100), (4000 - MTU + 1, 101), (0, 100)], ids=["all", "rest", "none"]
)
def test_a_read_that_asks_for_other_octets_than_the_first_time_is_dropped(
    length: int, psn: int
) -> None:
    stage = stage_of()
    read(stage, 4000, psn=100)
    stage.sent.clear()
    read(stage, length, psn=psn)
    assert stage.sent == []
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 1
    assert stage.server.qp.state is QPState.RTS


def test_a_read_whose_key_is_gone_is_not_read_again() -> None:
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
    stage.ask(Opcode.RC_CMP_SWAP, AtomicETH(there.address, there.rkey, 9, 1), psn=100)
    stage.drive()
    assert originals(stage) == [0]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 2
    assert number(stage) == 1


def test_an_atomic_write_that_comes_again_writes_nothing() -> None:
    stage = stage_of()
    for octets in (b"original", b"repeated"):
        stage.ask(Opcode.RC_ATOMIC_WRITE, key_of(stage.server.region, 8), payload=octets, psn=100)
        stage.drive()
    assert stage.server.region.read(8) == b"original"
    assert stage.opcodes(stage.server) == [Opcode.RC_RDMA_READ_RESPONSE_ONLY] * 2


def test_an_answer_that_waits_already_is_not_owed_twice() -> None:
    stage = stage_of()
    for _ in range(3):
        stage.ask(READ, key_of(stage.server.region, 8), psn=100)
    stage.drive()
    assert stage.psns(stage.server) == [100]
    assert stage.server.nic.drops[Drop.FORGOTTEN] == 2


def test_what_is_half_a_circle_behind_is_ahead() -> None:
    stage = stage_of()
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=(100 - MODULUS // 2 + 1) % MODULUS)
    stage.drive()
    assert stage.aeths(stage.server)[0].ack == Ack.ACK
    stage.ask(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=(100 + MODULUS // 2 - 1) % MODULUS)
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
