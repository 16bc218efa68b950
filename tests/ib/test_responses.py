"""Answers on the wire: responses to READs, AETHs, MSNs, and their order. IBA 9.7.5."""

import pytest

from rdmawire.fabric.pair import Pair
from rdmawire.verbs.enums import QPState
from rdmawire.wire.ib import AETH, RETH, Ack, AtomicAckETH, AtomicETH
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import PATIENT, Stage, key_of

BYTES = bytes(range(251)) * 60
NAMES = {1: ["ONLY"], 2: ["FIRST", "LAST"], 3: ["FIRST", "MIDDLE", "LAST"]}


def stage_of(mtu: MTU = MTU.MTU_1024) -> Stage:
    stage = Stage(Pair(attributes=PATIENT._replace(path_mtu=mtu)))
    stage.server.region.write(BYTES)
    return stage


@pytest.mark.parametrize("mtu", [mtu for mtu in MTU if mtu <= MTU.MTU_4096])
@pytest.mark.parametrize("packets", NAMES)
@pytest.mark.parametrize("short", [0, 1, 3, 255])
def test_responses_to_a_read(mtu: MTU, packets: int, short: int) -> None:
    stage = stage_of(mtu)
    size = 128 << mtu
    length = packets * size - short
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, length), psn=100)
    stage.drive()
    expected = [f"RC_RDMA_READ_RESPONSE_{name}" for name in NAMES[packets]]
    assert [opcode.name for opcode in stage.opcodes(stage.server)] == expected
    assert stage.psns(stage.server) == list(range(100, 100 + packets))
    found = [sent.packet.payload for sent in stage.by(stage.server)]
    assert [len(payload) for payload in found] == [size] * (packets - 1) + [size - short]
    assert b"".join(found) == BYTES[:length]
    with_aeth = [sent.packet.header(AETH) is not None for sent in stage.by(stage.server)]
    assert with_aeth == ["MIDDLE" not in name for name in expected]


def test_a_read_of_no_bytes_has_one_empty_response() -> None:
    stage = stage_of()
    stage.request(Opcode.RC_RDMA_READ_REQUEST, RETH(1, 0xBAD, 0), psn=100)
    stage.drive()
    assert stage.opcodes(stage.server) == [Opcode.RC_RDMA_READ_RESPONSE_ONLY]
    assert stage.sent[0].packet.payload == b""


def test_answers_keep_their_order_and_count_messages() -> None:
    stage = stage_of()
    there = stage.server.region
    atomic = AtomicETH(there.address, there.rkey, 1, 0)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100, ackreq=1)
    stage.request(Opcode.RC_FETCH_ADD, atomic, psn=101)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=102, ackreq=1)
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(there, 8), psn=103)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=104, ackreq=1)
    stage.drive()
    assert stage.psns(stage.server) == [100, 101, 102, 103, 104]
    assert [aeth.ack for aeth in stage.aeths(stage.server)] == [Ack.ACK] * 5
    assert stage.aeths(stage.server)[-1].msn == 5
    original = stage.by(stage.server)[1].packet.header(AtomicAckETH)
    assert original == AtomicAckETH(int.from_bytes(BYTES[:8], "little"))


def test_what_asks_for_no_ack_gets_none_alone() -> None:
    stage = stage_of()
    for psn in (100, 101):
        stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=psn)
    stage.drive()
    assert stage.sent == []


def test_a_nak_follows_the_responses_that_were_due_before() -> None:
    stage = stage_of()
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100, ackreq=1)
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 2000), psn=101)
    stage.request(Opcode.RC_RDMA_READ_REQUEST, RETH(0, 0xBAD, 8), psn=103)
    stage.drive()
    assert stage.psns(stage.server) == [100, 101, 102, 103]
    assert stage.server.qp.state is QPState.ERR
    assert [aeth.ack for aeth in stage.aeths(stage.server)] == [Ack.ACK] * 3 + [Ack.NAK]


def test_a_burst_may_end_within_an_answer() -> None:
    stage = stage_of()
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 5000), psn=100)
    nic = stage.server.nic
    assert [len(nic.transmit(0, most)) for most in (2, 2, 2, 2)] == [2, 2, 1, 0]
