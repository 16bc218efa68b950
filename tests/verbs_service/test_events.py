"""Events of completion queues and queue pairs, as programs get them from a service."""

import os

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service.protocol import ARM_ANY, ARM_SOLICITED
from tests.verbs_service.client import (
    INLINE,
    LOCAL_INV,
    SIGNALED,
    SOLICITED,
    SUCCESS,
    WRITE,
    wait_until,
)
from tests.verbs_service.running import Service, connected, loopback

SQD, ERR = 4, 6
STATE_MASK, SQD_MASK = 1, 5
SQ_DRAINED, LAST_WQE_REACHED = 5, 16


@pytest.fixture(scope="module")
def service(direct_service: Service) -> Service:
    return direct_service


def test_channel_gets_an_event_only_when_armed(service: Service) -> None:
    one, other = connected(service)
    client = other.client
    channel, fd = client.channel()
    os.set_blocking(fd, False)
    cq = client.create_cq(16, channel)
    qp, peer = client.create_qp(cq), one.client.create_qp(one.cq)
    client.bring_up(qp, peer, one.client.gid())
    one.client.bring_up(peer, qp, client.gid())
    sink = client.buffer(4096)
    for wanted, flags, expected in (
        (0, SOLICITED, 0),
        (ARM_ANY, 0, 1),
        (ARM_SOLICITED, 0, 0),
        (ARM_SOLICITED, SOLICITED, 1),
    ):
        cq.arm(wanted)
        client.receive(qp, sink.sge())
        one.client.send_inline(peer, b"x", flags=SIGNALED | INLINE | flags)
        cq.wait()
        one.cq.wait()
        if expected:
            wait_until(lambda: cq.words[16] == 0)
            assert os.read(fd, 100) == cq.handle.to_bytes(8, "little")
        else:
            with pytest.raises(BlockingIOError):
                os.read(fd, 100)
    with pytest.raises(VerbsError):
        client.call("destroy_comp_channel", channel)
    os.close(fd)


def test_moderated_cq_reports_one_event_for_several_completions(service: Service) -> None:
    client = service.connect()
    channel, fd = client.channel()
    cq = client.create_cq(16, channel)
    client.call("modify_cq", cq.handle, 3, 0)
    qp = client.create_qp(cq)
    client.bring_up(qp, qp, client.gid())
    cq.arm()
    for _ in range(3):
        assert cq.words[16] == ARM_ANY
        client.send(qp, opcode=LOCAL_INV, imm=client.buffer(4096).rkey, rkey=1)
        cq.wait()
    wait_until(lambda: cq.words[16] == 0)
    assert os.read(fd, 100) == cq.handle.to_bytes(8, "little")
    os.close(fd)


def test_full_cq_fails_its_queue_pairs(service: Service) -> None:
    client = service.connect()
    cq = client.create_cq(2)
    qp = client.create_qp(cq)
    client.bring_up(qp, qp, client.gid())
    region = client.buffer(4096)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    for _ in range(3):
        client.send_inline(qp, b"x", opcode=WRITE, **place)
    assert {client.async_event() for _ in range(2)} == {(0, cq.handle), (1, qp.number)}
    assert [done.status for done in cq.wait(2)] == [SUCCESS, SUCCESS]
    assert client.query(qp)["qp_state"] == 6


def test_overrun_of_a_resized_cq_is_an_event_too(service: Service) -> None:
    client, qp, cq = loopback(service, cqe=8)
    region = client.buffer(4096)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    for _ in range(4):
        client.send_inline(qp, b"x", opcode=WRITE, **place)
    cq = client.resize_cq(cq, 4)  # the library consumes none of the four completions
    client.send_inline(qp, b"x", opcode=WRITE, **place)
    assert set(client.events(2)) == {(0, cq.handle), (1, qp.number)}
    assert [one.status for one in cq.poll()] == [SUCCESS] * 4
    assert client.query(qp)["qp_state"] == ERR


def test_events_of_a_change_of_state_come_at_once(service: Service) -> None:
    client, qp, cq = loopback(service)
    client.modify(qp, SQD_MASK, qp_state=SQD, en_sqd_async_notify=1)
    assert client.events(1) == [(SQ_DRAINED, qp.number)]
    (srq, *_) = client.call("create_srq", client.pd, 0, 16, 1, 0, 0, 0)
    shared = client.create_qp(cq, srq=srq)
    client.bring_up(shared, shared, client.gid())
    client.modify(shared, STATE_MASK, qp_state=ERR)
    assert client.events(1) == [(LAST_WQE_REACHED, shared.number)]
