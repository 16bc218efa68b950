"""Peers that are not ready: how long to wait, and how often. IBA 9.7.5.2.8."""

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.units import seconds, us
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.wire.ib import RNR_TIMER_NS, Ack
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import Stage, go, lossy, only, outcomes, statuses

BOTH = pytest.mark.parametrize("profile", [IBTA, RXE], ids=["ibta", "rxe"])
BYTES = bytes(range(251)) * 40


@pytest.mark.parametrize("timer", range(32))
@BOTH
def test_an_rnr_nak_has_the_time_to_wait(profile: Profile, timer: int) -> None:
    stage = lossy(min_rnr_timer=timer, rnr_retry=1, profile=profile)
    stage.client.send(b"hello")
    stage.drive(until=us(5))
    assert [(nak.ack, nak.value) for nak in stage.aeths(stage.server)] == [(Ack.RNR_NAK, timer)]
    got = stage.server.receive(5)
    stage.drive()
    times = [sent.time for sent in stage.by(stage.client)]
    assert times == [0, us(2) + profile.rnr_timer_ns[timer]]
    assert got.buffer.read() == b"hello"
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_the_waits_are_those_of_the_standard_but_for_one_of_soft_roce() -> None:
    assert RNR_TIMER_NS[0] == 655_360_000
    assert RNR_TIMER_NS[1:4] == (10_000, 20_000, 30_000)
    assert RNR_TIMER_NS[31] == 491_520_000
    assert IBTA.rnr_timer_ns == RNR_TIMER_NS
    different = [i for i in range(32) if RXE.rnr_timer_ns[i] != RNR_TIMER_NS[i]]
    assert [(i, RXE.rnr_timer_ns[i]) for i in different] == [(25, 61_410_000)]


def test_an_rnr_nak_that_comes_twice_counts_once() -> None:
    there = ATTRIBUTES._replace(rnr_retry=1, min_rnr_timer=12)
    stage = Stage(Pair(Link(us(1), duplicate={2}), attributes=there))
    stage.client.send(b"hello")
    stage.drive(until=us(10))
    stage.server.receive(5)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]


@pytest.mark.parametrize("rnr_retry", range(7))
def test_waits_are_counted(rnr_retry: int) -> None:
    stage = lossy(min_rnr_timer=1, rnr_retry=rnr_retry)
    stage.client.send(b"hello")
    stage.client.write(b"behind", to=stage.server.region)
    stage.drive()
    assert stage.opcodes(stage.client).count(Opcode.RC_SEND_ONLY) == 1 + rnr_retry
    assert outcomes(stage.client) == [(1, WCStatus.RNR_RETRY_EXC_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    assert stage.client.qp.state is QPState.ERR
    assert stage.server.qp.state is QPState.RTS


def test_seven_waits_never_end() -> None:
    stage = lossy(min_rnr_timer=1, rnr_retry=7)
    stage.client.send(b"hello")
    stage.drive(until=seconds(0.001))
    assert len(stage.by(stage.client)) > 50
    stage.server.receive(5)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_an_rnr_nak_acknowledges_what_came_before_it() -> None:
    stage = lossy(min_rnr_timer=20)
    stage.client.write(b"first", to=stage.server.region)
    stage.client.send(b"second")
    stage.drive(until=us(50))
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS)]


def test_the_last_packet_of_a_write_with_immediate_is_what_waits() -> None:
    stage = lossy(min_rnr_timer=1)
    stage.client.write(BYTES[:3000], to=stage.server.region, imm=1)
    stage.drive(until=us(5))
    stage.server.receive()
    stage.drive()
    assert stage.psns(stage.client) == [100, 101, 102, 102]
    assert stage.server.region.read(3000) == BYTES[:3000]
    assert only(stage.server).byte_len == 3000


def test_a_queue_that_drains_waits_too_and_then_ends_what_was_begun() -> None:
    stage = lossy(min_rnr_timer=12)
    stage.client.send(b"begun")
    stage.drive(until=us(10))
    go(stage.client, QPState.SQD)
    stage.client.send(b"later")
    got = stage.server.receive(5)
    stage.drive()
    assert got.buffer.read() == b"begun"
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS)]
    assert stage.client.qp.state is QPState.SQD


def test_an_error_during_the_wait_ends_it() -> None:
    stage = lossy(min_rnr_timer=12)
    stage.client.send(b"hello")
    stage.drive(until=us(10))
    go(stage.client, QPState.ERR)
    assert outcomes(stage.client) == [(1, WCStatus.WR_FLUSH_ERR)]
    assert stage.client.nic.next_timer() is None
    stage.drive()
    assert len(stage.by(stage.client)) == 1
