"""Completions of receives, each field; and READs that wait while a later request writes."""

from typing import Any

import pytest

from rdmawire.fabric.pair import Pair
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.verbs.enums import QPType, WCFlags, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire.ib import DETH, IETH, AtomicETH, ImmDt
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import PATIENT, Stage, key_of


def completed(stage: Stage) -> WorkCompletion:
    (done,) = stage.server.poll()
    return done


def expected(stage: Stage, **fields: Any) -> WorkCompletion:
    """A completion whose other fields have no meaning, and are 0."""
    server = stage.server
    made = WorkCompletion(
        1, WCStatus.SUCCESS, WCOpcode.RECV, qp_num=server.qp.qp_num, src_qp=stage.client.qp.qp_num
    )
    return made._replace(**fields)


def test_a_send_fills_length_and_numbers_alone() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.receive(8)
    stage.request(Opcode.RC_SEND_ONLY, payload=b"data", psn=100)
    assert completed(stage) == expected(stage, byte_len=4)


def test_an_immediate_or_a_key_is_added_alone() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.receive(8)
    stage.request(Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, ImmDt(7), payload=b"data", psn=100)
    flags = int(WCFlags.WITH_IMM)
    assert completed(stage) == expected(stage, byte_len=4, imm_data=7, wc_flags=flags)
    rkey = bound_key(stage)
    stage.server.receive(8)
    stage.request(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, IETH(rkey), psn=101)
    flags = int(WCFlags.WITH_INV)
    assert completed(stage) == expected(stage, wr_id=2, invalidated_rkey=rkey, wc_flags=flags)


def bound_key(stage: Stage) -> int:
    """The key of a window of the server."""
    server = stage.server
    window = server.nic.memory.alloc_mw(server.pd, 2)
    qpn, key, there = server.qp.qp_num, window.rkey + 1, server.region
    bind = Bind(there.address, 8, int(Access.REMOTE_READ), qpn, server.pd, key)
    return bind_window(server.nic.memory.keys, window, there.region, bind)


def test_a_datagram_has_no_immediate_unless_it_brings_one() -> None:
    stage = Stage(Pair(kind=QPType.UD, attributes=PATIENT))
    for _ in range(2):
        stage.server.receive(8)
    deth = DETH(qkey=stage.server.qp.qkey, srcqp=stage.client.qp.qp_num)
    stage.request(Opcode.UD_SEND_ONLY, deth, payload=b"data", psn=0)
    plain = completed(stage)
    assert (plain.imm_data, plain.invalidated_rkey, plain.vendor_err) == (0, 0, 0)
    stage.request(Opcode.UD_SEND_ONLY_WITH_IMMEDIATE, deth, ImmDt(9), payload=b"data", psn=1)
    assert completed(stage).imm_data == 9


def pending(stage: Stage, length: int) -> None:
    """A READ of the first bytes of the server's region whose response is not transmitted yet."""
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, length), psn=100)


def response(stage: Stage) -> bytes:
    stage.drive()
    return stage.by(stage.server)[0].packet.payload


@pytest.mark.parametrize("length", [1, 4, 8])
def test_a_send_over_a_pending_read_changes_no_byte_of_it(length: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    there = stage.server.region
    there.write(b"before..")
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((there.sge(8),), 1),))
    pending(stage, length)
    stage.request(Opcode.RC_SEND_ONLY, payload=b"AFTERAFT", psn=101)
    assert there.read(8) == b"AFTERAFT"
    assert response(stage) == b"before.."[:length]


@pytest.mark.parametrize("length", [1, 4, 8])
def test_an_atomic_over_a_pending_read_changes_no_byte_of_it(length: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    there = stage.server.region
    there.write(b"before..")
    pending(stage, length)
    stage.request(Opcode.RC_FETCH_ADD, AtomicETH(there.address, there.rkey, 1, 0), psn=101)
    assert there.read(8) != b"before.."
    assert response(stage) == b"before.."[:length]
