"""Queue pairs with a number that somebody asks for, and what is refused."""

from errno import EBUSY, EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.ib.qp import QPInit
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR
from tests.ib.stage import Stage, statuses


def test_a_queue_pair_gets_the_number_asked_for() -> None:
    host = Host()
    cq = host.nic.create_cq(1)
    wants = QPInit(host.pd, cq, cq)
    assert host.nic.create_qp(QPType.RC, wants, 0xABCDE).qp_num == 0xABCDE
    with pytest.raises(VerbsError, match="0xabcde is in use") as caught:
        host.nic.create_qp(QPType.RC, wants, 0xABCDE)
    assert caught.value.errno == EBUSY


@pytest.mark.parametrize("number", [-1, 0, 1, 0xFFFFFF, 1 << 24])
def test_numbers_that_mean_something_else_are_refused(number: int) -> None:
    host = Host()
    cq = host.nic.create_cq(1)
    with pytest.raises(VerbsError) as caught:
        host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq), number)
    assert caught.value.errno == EINVAL
    assert not host.nic.device.qps


def test_a_number_asked_for_is_not_given_out_again() -> None:
    host = Host()
    cq = host.nic.create_cq(1)
    wants = QPInit(host.pd, cq, cq)
    asked = host.nic.create_qp(QPType.RC, wants, 0x12)
    others = [host.nic.create_qp(QPType.RC, wants).qp_num for _ in range(3)]
    assert asked.qp_num not in others


def test_bytes_inline_need_their_flag() -> None:
    stage = Stage()
    with pytest.raises(VerbsError, match="bytes inline without"):
        stage.client.nic.post_send(stage.client.qp, [SendWR(SendOpcode.SEND, inline=b"lost")])


def test_a_message_whose_completion_is_lost_is_not_acknowledged() -> None:
    stage = Stage()
    stage.server.cq.resize(1)
    for _ in range(2):
        stage.server.receive(8)
    for _ in range(2):
        stage.client.send(b"message")
        stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS, WCStatus.RETRY_EXC_ERR]
    assert stage.server.qp.state is QPState.ERR
