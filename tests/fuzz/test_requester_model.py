"""The model of a requester: time-outs are bounded, and a READ is resumed where it stopped."""

import pytest

from rdmawire.fuzz.exchange import Reply
from rdmawire.fuzz.inputs import WorkInput
from rdmawire.fuzz.requester_model import RequesterModel
from rdmawire.fuzz.setup import AREAS, FRESH_ARENA, PEER_VA, Setup
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire.opcode import Operation as Op

TIMEOUT = 4096 << 8


def model(retry_cnt: int = 3) -> RequesterModel:
    return RequesterModel(Setup(timeout=8, retry_cnt=retry_cnt), bytearray(FRESH_ARENA))


@pytest.mark.parametrize("retry_cnt", range(8))
def test_unanswered_work_ends_after_its_retries(retry_cnt: int) -> None:
    requester = model(retry_cnt)
    requester.post(WorkInput("SEND"))
    requester.post(WorkInput("RDMA_WRITE"))
    sent = requester.wait(TIMEOUT * (retry_cnt + 1) - 1).requests
    assert len(sent) == 2 * retry_cnt
    assert not requester.failed
    assert requester.wait(1).requests == ()
    assert requester.failed
    statuses = [done.status for done in requester.completions]
    assert statuses == [WCStatus.RETRY_EXC_ERR, WCStatus.WR_FLUSH_ERR]


def test_a_read_is_resumed_and_written_inside_its_sges_alone() -> None:
    requester, start = model(), AREAS[0].start
    requester.post(WorkInput("RDMA_READ", ((0, 8, 300), (0, 1000, 200))))
    requester.answer(Reply(Op.RDMA_READ_RESPONSE_FIRST, 1000, 31, 0, bytes(256)))
    (again,) = requester.wait(TIMEOUT).requests
    assert (again.psn, again.va, again.dmalen) == (1001, PEER_VA + 256, 244)
    requester.answer(Reply(Op.RDMA_READ_RESPONSE_ONLY, 1001, 31, 1, bytes(244)))
    assert [done.status for done in requester.completions] == [WCStatus.SUCCESS]
    expected = bytearray(FRESH_ARENA)
    expected[start + 8 : start + 308] = bytes(300)
    expected[start + 1000 : start + 1200] = bytes(200)
    assert requester.memory == expected
