"""Going back and giving up: ACK timeouts, gaps, implied NAKs. IBA 9.7.5, 9.7.6."""

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.units import seconds, us
from rdmawire.verbs.async_event import PathMigrated
from rdmawire.verbs.engine import BURST
from rdmawire.verbs.enums import MigrationState, QPState, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.qp_attr import QPAttrMask
from rdmawire.verbs.wr import SendOpcode, SendWR, Sge
from rdmawire.wire.ib import AETH, NO_CREDITS, RETH, Ack, Nak
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import PATIENT, Stage, events, go, lossy, only, outcomes, statuses

BOTH = pytest.mark.parametrize("profile", [IBTA, RXE], ids=["ibta", "rxe"])
RATE = 10_000_000_000
BYTES = bytes(range(251)) * 40


def test_a_lost_request_is_sent_again_after_the_timeout() -> None:
    stage = lossy(1, timeout=3)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert [sent.time for sent in stage.by(stage.client)] == [0, 4_096 << 3]
    assert only(stage.client).status is WCStatus.SUCCESS


def test_a_lost_ack_is_asked_for_again_and_the_request_not_done_again() -> None:
    stage = lossy(2, 4)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive(until=us(5))
    stage.server.region.write(b"other")
    stage.drive()
    assert stage.server.region.read(5) == b"other"
    assert only(stage.client).status is WCStatus.SUCCESS
    assert [aeth.msn for aeth in stage.aeths(stage.server)] == [1, 1, 1]


def test_a_gap_among_what_a_timeout_sent_again_needs_no_other_timeout() -> None:
    stage = lossy(1, 2, 3, timeout=10)
    for data in (b"first", b"second"):
        stage.client.write(data, to=stage.server.region)
    stage.drive()
    again = 4_096 << 10
    assert [sent.time for sent in stage.by(stage.client)] == [
        0,
        0,
        again,
        again,
        *[again + us(2)] * 2,
    ]
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2


@pytest.mark.parametrize("retry_cnt", range(7))
@BOTH
def test_retries_are_counted(profile: Profile, retry_cnt: int) -> None:
    stage = lossy(*range(1, 99), profile=profile, retry_cnt=retry_cnt, timeout=1)
    stage.client.write(b"hello", to=stage.server.region)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    gaps = {
        later.time - sooner.time
        for sooner, later in zip(stage.sent[::2], stage.sent[2::2], strict=False)
    }
    assert len(stage.sent) == 2 * (1 + retry_cnt)
    assert gaps <= {4_096 << 1}
    assert outcomes(stage.client) == [(1, WCStatus.RETRY_EXC_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    assert stage.client.qp.state is QPState.ERR
    assert stage.client.nic.next_timer() is None


@pytest.mark.parametrize("retry_cnt", [0, 2])
def test_the_alternate_path_has_retries_of_its_own_and_an_end(retry_cnt: int) -> None:
    stage = lossy(*range(1, 99), retry_cnt=retry_cnt, timeout=1)
    client = stage.client
    way = client.path_to(stage.server)._replace(hop_limit=5)
    armed = ATTRIBUTES._replace(
        alt_ah=way, alt_timeout=1, path_mig_state=MigrationState.ARMED, retry_cnt=retry_cnt
    )
    go(client, QPState.RTS, QPAttrMask.ALT_PATH | QPAttrMask.PATH_MIG_STATE, armed)
    client.write(b"hello", to=stage.server.region)
    stage.drive(until=seconds(0.001))
    assert len(stage.sent) == 2 * (1 + retry_cnt)
    assert statuses(client) == [WCStatus.RETRY_EXC_ERR]
    assert events(client) == [PathMigrated(client.qp.qp_num)]


def test_seven_retries_are_seven() -> None:
    stage = lossy(*range(1, 99), retry_cnt=7, timeout=1)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert len(stage.sent) == 8
    assert statuses(stage.client) == [WCStatus.RETRY_EXC_ERR]


def test_seven_retries_never_end_in_soft_roce() -> None:
    stage = lossy(*range(1, 10**6), profile=RXE, retry_cnt=7, timeout=1)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive(until=100 * (4_096 << 1))
    assert len(stage.sent) == 101
    assert statuses(stage.client) == []


def test_without_a_timeout_nothing_is_sent_again() -> None:
    stage = lossy(1, timeout=0)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert len(stage.sent) == 1
    assert stage.client.nic.next_timer() is None


def test_progress_gives_all_retries_back() -> None:
    stage = lossy(1, 2, 5, 6, retry_cnt=2, timeout=1)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    stage.client.write(b"again", to=stage.server.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
    assert len(stage.by(stage.client)) == 6


def test_attributes_that_are_set_anew_give_no_retries_back() -> None:
    stage = lossy(*range(1, 99), retry_cnt=3, timeout=1)
    client = stage.client
    client.write(b"hello", to=stage.server.region)
    for _ in range(4):
        go(client, QPState.RTS, QPAttrMask.ACCESS_FLAGS)
        stage.drive(until=stage.now + (4_096 << 1))
    stage.drive()
    assert len(stage.sent) == 4
    assert statuses(client) == [WCStatus.RETRY_EXC_ERR]


def test_a_peer_that_arms_gives_no_retries_back() -> None:
    stage = lossy(*range(1, 99), retry_cnt=3, timeout=1)
    client = stage.client
    rearm = ATTRIBUTES._replace(
        alt_ah=client.path_to(stage.server), path_mig_state=MigrationState.REARM
    )
    go(client, QPState.RTS, QPAttrMask.ALT_PATH | QPAttrMask.PATH_MIG_STATE, rearm)
    client.write(b"hello", to=stage.server.region)
    stage.drive(until=2 * (4_096 << 1))
    stage.deliver(Packet.make(Opcode.RC_RDMA_WRITE_ONLY, RETH(0, 0, 0), psn=100), by=stage.server)
    assert client.nic.query_qp(client.qp).path_mig_state == MigrationState.ARMED
    assert client.qp.retry_state.retries == 1


@pytest.mark.parametrize("mask", [QPAttrMask.RETRY_CNT, QPAttrMask.RNR_RETRY, QPAttrMask(0)])
def test_retries_begin_anew_with_counts_that_are_set_and_with_rts(mask: QPAttrMask) -> None:
    client = lossy().client
    retry_state = client.qp.retry_state
    go(client, QPState.SQD)
    retry_state.retries = retry_state.rnr_retries = 0
    go(client, QPState.SQD if mask else QPState.RTS, mask)
    assert (retry_state.retries, retry_state.rnr_retries) == (
        retry_state.retry_cnt,
        retry_state.rnr_retry,
    )
    assert retry_state.retries > 0


def test_the_timer_begins_anew_with_each_ack() -> None:
    stage = lossy(timeout=2)
    stage.client.write(b"one", to=stage.server.region)
    stage.client.write(b"two", to=stage.server.region)
    stage.client.nic.transmit(0)
    aeth = AETH(ack=Ack.ACK, value=NO_CREDITS, msn=1)
    ack = stage.forge(Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, psn=100), by=stage.server)
    stage.client.nic.receive(ack, 10_000)
    assert stage.client.nic.next_timer() == 10_000 + (4_096 << 2)


def test_a_gap_is_answered_once_and_all_from_there_on_is_sent_again() -> None:
    stage = lossy(2)
    stage.client.write(BYTES[:5000], to=stage.server.region)
    stage.drive()
    assert stage.psns(stage.client) == [100, 101, 102, 103, 104, 101, 102, 103, 104]
    naks = [aeth for aeth in stage.aeths(stage.server) if aeth.ack == Ack.NAK]
    assert [(nak.value, nak.msn) for nak in naks] == [(Nak.PSN_SEQUENCE_ERROR, 0)]
    assert stage.psns(stage.server) == [101, 104]
    assert stage.server.region.read(5000) == BYTES[:5000]
    assert stage.now < ATTRIBUTES.timeout * us(100)
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_two_gaps_are_answered_twice() -> None:
    stage = lossy(2, 8)
    stage.client.write(BYTES[:5000], to=stage.server.region)
    stage.drive()
    assert stage.psns(stage.server) == [101, 102, 104]
    assert stage.server.region.read(5000) == BYTES[:5000]
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_lost_nak_costs_a_timeout_and_no_more() -> None:
    stage = lossy(2, 4)  # the second of three requests, and the NAK
    stage.client.write(BYTES[:3000], to=stage.server.region)
    stage.drive()
    assert stage.psns(stage.client) == [100, 101, 102, 100, 101, 102]
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_read_goes_on_where_its_responses_stopped() -> None:
    stage = lossy(4, timeout=5)
    stage.server.region.write(BYTES[:5000])
    read = stage.client.read(5000, of=stage.server.region)
    stage.drive()
    asked = [sent.packet.header(RETH) for sent in stage.by(stage.client)]
    address, rkey = stage.server.region.address, stage.server.region.rkey
    assert asked == [RETH(address, rkey, 5000), RETH(address + 2048, rkey, 2952)]
    assert stage.psns(stage.client) == [100, 102]
    assert read.buffer.read() == BYTES[:5000]
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert stage.sent[-1].time < us(10)  # an implied NAK, no timeout


@pytest.mark.parametrize(
    ("profile", "first"),
    [(IBTA, Opcode.RC_RDMA_READ_RESPONSE_FIRST), (RXE, Opcode.RC_RDMA_READ_RESPONSE_MIDDLE)],
)
def test_responses_to_a_read_that_goes_on_begin_anew(profile: Profile, first: Opcode) -> None:
    stage = lossy(4, 5, 6, profile=profile, timeout=5)
    read = stage.client.read(5000, of=stage.server.region)
    stage.drive()
    assert stage.opcodes(stage.server)[5] == first
    assert stage.psns(stage.server)[5:] == [102, 103, 104]
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert read.buffer.read() == bytes(5000)


def test_an_ack_behind_a_lost_read_response_asks_for_the_read_again() -> None:
    stage = lossy(3)
    stage.client.read(8, of=stage.server.region)
    stage.client.write(b"later", to=stage.server.region)
    stage.drive()
    assert stage.opcodes(stage.client)[2:] == [
        Opcode.RC_RDMA_READ_REQUEST,
        Opcode.RC_RDMA_WRITE_ONLY,
    ]
    assert stage.sent[-1].time < us(10)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2


def test_an_ack_behind_a_lost_atomic_response_asks_for_that_again() -> None:
    stage = lossy(3)
    before = stage.client.fetch_add(5, of=stage.server.region)
    stage.client.write(b"later", to=stage.server.region, offset=8)
    stage.drive()
    assert stage.server.region.read(8) == (5).to_bytes(8, "little")
    assert before.buffer.read() == bytes(8)
    assert stage.sent[-1].time < us(10)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2


def test_what_came_before_a_late_ack_completes_though_all_was_about_to_be_sent_again() -> None:
    """Local work that is done waits behind a WRITE; both went back when the ACK comes."""
    stage = lossy()
    stage.client.write(b"hello", to=stage.server.region)
    region = stage.client.nic.memory.alloc_mr(stage.client.pd, 1)
    local = SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=region.rkey)
    stage.client.post(local, stage.client.region)
    ack = _ack_of_all(stage)
    due = stage.client.nic.next_timer()
    assert due is not None
    stage.client.nic.handle_timer(due)
    stage.client.nic.receive(ack, due)
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]
    assert stage.client.nic.transmit(due) == []


def test_work_that_failed_here_ends_in_its_turn_though_all_went_back() -> None:
    stage = lossy()
    stage.client.write(b"hello", to=stage.server.region)
    bad = SendWR(SendOpcode.RDMA_WRITE, (Sge(1, 5, 0xBAD),))
    stage.client.post(bad, stage.client.region)
    ack = _ack_of_all(stage)
    due = stage.client.nic.next_timer()
    assert due is not None
    stage.client.nic.handle_timer(due)
    stage.client.nic.receive(ack, due)
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS), (2, WCStatus.LOC_PROT_ERR)]
    assert stage.client.qp.state is QPState.ERR


def _ack_of_all(stage: Stage) -> bytes:
    """What the server answers to all that the client sends now; nobody received it yet."""
    for frame in stage.client.nic.transmit(0):
        stage.server.nic.receive(frame, 0)
    (ack,) = stage.server.nic.transmit(0)
    return ack


@pytest.mark.parametrize("number", range(1, 25))
@pytest.mark.parametrize("peer", [IBTA, RXE], ids=["by-ibta", "by-rxe"])
@BOTH
def test_any_one_frame_may_be_lost(profile: Profile, peer: Profile, number: int) -> None:
    there = ATTRIBUTES._replace(timeout=1)
    link = Link(us(1), drop={number})
    stage = Stage(Pair(link, attributes=there, profile=profile, peer_profile=peer))
    stage.server.receive(3000)
    for index in range(3):
        stage.client.write(BYTES[index : index + 2500], to=stage.server.region)
        stage.client.fetch_add(1, of=stage.server.region, offset=4096)
    stage.client.send(BYTES[:3000])
    read = stage.client.read(3000, of=stage.server.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 8
    assert stage.server.region.read(8, 4096) == (3).to_bytes(8, "little")
    assert read.buffer.read(2500) == BYTES[2:2502]
    assert statuses(stage.server) == [WCStatus.SUCCESS]
    assert events(stage.client) == []


FRAMES = 99
"""Of the conversation below, with nothing lost."""
LAST = (94, 99)
"""The last request and the last response: of their loss nothing tells but a timer."""
CHOSEN = (*range(1, 12), *range(12, 76, 8), *range(76, FRAMES + 1))
"""All but most of the responses to a long READ, which are alike."""


def conversation(link: Link, profile: Profile) -> Stage:
    """All kinds of work at once, on a link where answers take time, and no timer.

    The first READ has more responses than an adapter gives its port at once.
    """
    there = PATIENT._replace(max_rd_atomic=3, max_dest_rd_atomic=3, path_mtu=MTU.MTU_256)
    stage = Stage(Pair(link, attributes=there, profile=profile))
    stage.server.region.write(BYTES, 10_000)
    for _ in range(20):
        stage.server.receive(3000)
    for length in ((BURST + 9) * 256, 1000, 500):
        stage.client.read(length, of=stage.server.region, offset=10_000)
    stage.client.write(BYTES[:1000], to=stage.server.region)
    stage.client.fetch_add(1, of=stage.server.region, offset=4096)
    stage.client.send(BYTES[:1000])
    stage.client.read(1000, of=stage.server.region, offset=10_000)
    stage.drive()
    return stage


@BOTH
def test_any_one_frame_may_be_lost_without_a_timer_if_others_follow(profile: Profile) -> None:
    assert len(conversation(Link(us(1), rate=RATE), profile).sent) == FRAMES
    for number in CHOSEN:
        stage = conversation(Link(us(1), rate=RATE, drop={number}), profile)
        assert (statuses(stage.client) == [WCStatus.SUCCESS] * 7) is (number not in LAST)


@BOTH
def test_any_one_frame_may_come_twice_at_any_time(profile: Profile) -> None:
    frames = [sent.frame for sent in conversation(Link(us(1), rate=RATE), profile).sent]
    for number in CHOSEN:
        stage = conversation(Link(us(1), rate=RATE, duplicate={number}), profile)
        for frame in frames:
            for end in (stage.client, stage.server):
                end.nic.receive(frame, stage.now)
        stage.drive()
        assert statuses(stage.client) == [WCStatus.SUCCESS] * 7
        assert stage.server.region.read(8, 4096) == (1).to_bytes(8, "little")
        assert stage.client.qp.state is stage.server.qp.state is QPState.RTS
