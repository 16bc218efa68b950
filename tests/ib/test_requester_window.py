"""How many packets a requester leaves unacknowledged."""

from errno import EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.units import gbps, us
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.wire import roce
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import Stage, statuses

PACKETS = 1000
SIZE = PACKETS * 1024
BIG = ATTRIBUTES._replace(max_rd_atomic=16, max_dest_rd_atomic=16, timeout=20)
BOTH = pytest.mark.parametrize("profile", [IBTA, RXE], ids=["ibta", "rxe"])


def burst(stage: Stage) -> list[bytes]:
    """All that the client sends before it receives anything."""
    frames: list[bytes] = []
    while more := stage.client.nic.transmit(0):
        frames += more
    return frames


@BOTH
def test_a_sender_stops_where_adapters_do(profile: Profile) -> None:
    stage = Stage(Pair(profile=profile, attributes=BIG))
    stage.client.write(bytes(SIZE), to=stage.server.buffer(SIZE))
    assert len(burst(stage)) == profile.packets_in_flight in {128, 129}


@pytest.mark.parametrize("packets", [1, 2, 3, 32, 999, 1 << 22])
def test_a_queue_pair_has_a_window_of_its_own(packets: int) -> None:
    stage = Stage(Pair(Link(us(1)), attributes=BIG, packets_in_flight=packets))
    assert stage.client.qp.packets_in_flight == stage.server.qp.packets_in_flight == packets
    there = stage.server.buffer(SIZE)
    stage.client.write(b"w" * SIZE, to=there)
    frames = burst(stage)
    assert len(frames) == min(packets, PACKETS)
    stage.server.nic.receive_all(frames, 0)
    stage.drive()
    # It asks for ACKs in time, so nothing waits for the timer, and nothing is sent again.
    assert stage.now < us(10) * PACKETS
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert there.read() == b"w" * SIZE
    assert stage.client.qp.counters.local_ack_timeout_err == 0


@pytest.mark.parametrize("packets", [8, 32, 128])
def test_small_messages_fill_a_window(packets: int) -> None:
    stage = Stage(Pair(packets_in_flight=packets))
    for _ in range(200):
        stage.client.write(b"x", to=stage.server.region)
    assert len(burst(stage)) == packets


def test_reads_are_bounded_by_their_number_and_fill_no_window() -> None:
    stage = Stage(Pair(attributes=BIG, packets_in_flight=8))
    there = stage.server.buffer(SIZE)
    for _ in range(3):
        stage.client.read(SIZE, of=there)
    stage.client.write(bytes(SIZE), to=there)
    opcodes = [roce.parse(frame).packet.bth.opcode for frame in burst(stage)]
    assert opcodes[:3] == [Opcode.RC_RDMA_READ_REQUEST] * 3
    assert len(opcodes) == 3 + 8


def test_with_soft_roce_responses_fill_the_window() -> None:
    stage = Stage(Pair(profile=RXE, attributes=BIG))
    there = stage.server.buffer(SIZE)
    for _ in range(3):
        stage.client.read(SIZE, of=there)
    assert len(burst(stage)) == 1


@pytest.mark.parametrize("lost", [1, 2, 3, 5, 40, 140, 400])
def test_responses_that_are_lost_leave_no_hole_in_the_window(lost: int) -> None:
    link = Link(us(1), drop={lost, lost + 7})
    stage = Stage(Pair(link, attributes=BIG, packets_in_flight=16))
    there = stage.server.buffer(100 * 1024)
    for _ in range(3):
        stage.client.read(100 * 1024, of=there)
        stage.client.write(bytes(30 * 1024), to=there)
        stage.client.fetch_add(1, of=there)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 9
    queue = stage.client.qp.sq
    assert (queue.in_flight, queue.outstanding_reads, queue.awaited_responses) == (0, 0, 0)
    stage.client.write(bytes(30 * 1024), to=there)
    assert len(burst(stage)) == 16


def test_where_the_receiver_drops_a_window_it_can_hold_sends_nothing_again() -> None:
    sent = {}
    for packets in (32, IBTA.packets_in_flight, 1 << 22):
        stage = Stage(Pair(attributes=BIG, packets_in_flight=packets))
        stage.client.write(bytes(SIZE), to=stage.server.buffer(SIZE))
        sent[packets] = sent_to_a_socket_of(32, stage)
        assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert sent[32] == PACKETS
    assert sent[IBTA.packets_in_flight] < sent[1 << 22] / 2


def sent_to_a_socket_of(room: int, stage: Stage) -> int:
    """Frames that a client sends to a server whose socket holds so many, and drops the others."""
    sent = 0
    while not len(stage.client.cq):
        frames = burst(stage)
        sent += len(frames)
        stage.server.nic.receive_all(frames[:room], 0)
        stage.client.nic.receive_all(stage.server.nic.transmit(0), 0)
        due = stage.client.nic.next_timer()
        if not frames and due is not None:
            stage.client.nic.handle_timer(due)
    return sent


def test_a_link_with_a_rate_is_busy_for_round_trips_of_20_microseconds() -> None:
    attributes = BIG._replace(path_mtu=MTU.MTU_4096)
    stage = Stage(Pair(Link(us(10), rate=gbps(100)), attributes=attributes))
    there = stage.server.buffer(4 << 20)
    stage.client.write(bytes(4 << 20), to=there)
    stage.drive()
    assert (4 << 20) * 8 / stage.now > 90  # Gbit/s


def test_the_window_of_the_profile_is_restored() -> None:
    stage = Stage()
    stage.client.nic.limit_in_flight(stage.client.qp, 7)
    stage.client.nic.limit_in_flight(stage.client.qp, None)
    assert stage.client.qp.packets_in_flight == IBTA.packets_in_flight
    assert stage.client.qp.ask_after == IBTA.packets_per_ack - 1


@pytest.mark.parametrize("packets", [0, -1, 1 << 23, "8"])
def test_numbers_that_are_no_window(packets: int) -> None:
    stage = Stage()
    with pytest.raises(VerbsError, match="packets") as caught:
        stage.client.nic.limit_in_flight(stage.client.qp, packets)
    assert caught.value.errno == EINVAL


def test_who_is_not_acknowledged_has_no_window() -> None:
    with pytest.raises(VerbsError, match="waits for no ACKs"):
        Pair(kind=QPType.UC, packets_in_flight=8)
