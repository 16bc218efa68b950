"""Requests that nobody answers, and more of them than there is room for.

They expire, they are of bounded number, and who floods a listener keeps no other peer out of it.
"""

import pytest

from rdmawire.fabric.host import Place
from rdmawire.ib.cm.connection import duration
from rdmawire.ib.cm.event import ConnectRequest, DatagramRequest, Established, Unreachable
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.messages import ReceivedMad
from rdmawire.identifier import MAX_DRAWS
from rdmawire.units import us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA
from rdmawire.verbs.timers import SLACK
from rdmawire.wire.cm import REJ, REQ, SIDRREP, RejectReason, SIDRStatus
from tests.ib.cm.forge import Forger, changed, deaf
from tests.ib.cm.stage import SERVICE, Side, Two, message_in

BACKLOG = 16
"""That of :class:`Two`."""
ANSWER_TIME = duration(DEFAULTS.response_timeout) + 2 * duration(DEFAULTS.packet_life)


def peer(two: Two, number: int) -> Forger:
    """Another host that speaks to the server."""
    place = Place.numbered(number)
    two.neighbours[place.gid] = place.mac
    host = Side(number, two.simulator, two.neighbours, DEFAULTS, IBTA, ipv6=False)
    return Forger(two.server, host)


def flood(two: Two, requests: int = 3 * BACKLOG) -> Forger:
    """So many requests of the client."""
    forger = Forger(two.server, two.client)
    for number in range(requests):
        forger.req(id=1 + number, qpn=1 + number)
    return forger


def flood_of_peers(two: Two, peers: int = 2 * BACKLOG) -> None:
    """One request from each of so many peers."""
    for number in range(10, 10 + peers):
        peer(two, number).req()


def unseen(forger: Forger, **changes: int) -> None:
    """A request whose event the owner does not take."""
    frame = forger.frame(forger.req_bytes(**changes))
    forger.side.port.receive(frame, forger.side.simulator.now)


def answers(two: Two) -> list[ReceivedMad]:
    """What the server answers, lost or not."""
    frames: list[bytes] = []
    while burst := two.server.nic.transmit(two.simulator.now):
        frames += burst
    return [received for received in map(message_in, frames) if received is not None]


def reasons(two: Two) -> list[int]:
    """The reasons of the REJs among those."""
    messages = [received.message for received in answers(two)]
    return [message.reason for message in messages if isinstance(message, REJ)]


# Nobody answers.


@pytest.mark.parametrize("looks", [False, True])
def test_a_request_that_the_owner_does_not_answer_expires(looks: bool) -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    forger.sidr_req() if looks else forger.req()
    conn, kind = two.server.connection(), DatagramRequest if looks else ConnectRequest
    assert two.server.event_of(kind).id == conn.id
    tries = DEFAULTS.max_cm_retries + 1
    waits = tries * (ANSWER_TIME if looks else conn.period)
    two.drive(waits - 1)
    assert len(two.server.manager.registry) == 1
    two.drive(1)
    assert len(two.server.manager.registry) == 0
    assert two.server.event_of(Unreachable).id == conn.id
    assert two.server.is_clean()


def test_an_expired_request_is_rejected_with_timeout() -> None:
    two = deaf()
    Forger(two.server, two.client).req()
    two.server.port.handle_timer(two.server.connection().deadline or 0)
    assert reasons(two) == [RejectReason.TIMEOUT]


def test_the_event_of_an_expired_request_is_removed_if_it_was_not_taken() -> None:
    two = deaf()
    unseen(Forger(two.server, two.client))
    two.server.port.handle_timer(two.server.connection().deadline or 0)
    assert two.server.names() == []
    assert two.server.is_clean()


def test_an_mra_gives_the_owner_more_time() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    forger.req()
    first = two.server.connection().deadline
    forger.req()
    assert first is not None
    assert two.server.connection().deadline == first + duration(DEFAULTS.mra_timeout)


def test_a_peer_in_a_hurry_still_gives_the_owner_time() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    hasty = changed(forger.req_bytes(), REQ, local_cm_response_timeout=0, max_cm_retries=0)
    forger.deliver(hasty)
    assert (two.server.connection().deadline or 0) == ANSWER_TIME


# Too many ask.


def test_a_peer_that_floods_keeps_no_other_out() -> None:
    two = deaf()
    flood(two)
    assert reasons(two) == [RejectReason.NO_RESOURCES] * 2 * BACKLOG
    other = peer(two, 9)
    other.req()
    assert reasons(two) == [RejectReason.NO_RESOURCES]  # to the oldest of the flood
    pending = two.server.manager.pending[SERVICE, False].values()
    assert len(pending) == len(two.server.manager.registry) == BACKLOG
    conn = two.server.manager.registry.requested(other.peer.gid, other.asked.id, datagrams=False)
    assert conn is not None
    flood(two)
    assert conn in pending
    two.server.manager.accept(conn.id, two.server.qp(), two.simulator.now)
    other.rtu(conn)
    assert two.server.event_of(Established).id == conn.id


def test_only_requests_that_can_be_answered_are_events() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    for number in range(BACKLOG):
        unseen(forger, id=1 + number, qpn=1 + number)
    for number in (9, 10, 11):
        unseen(peer(two, number))
    requests = two.server.port.events()
    assert [type(event) for event in requests] == [ConnectRequest] * BACKLOG
    assert {event.id for event in requests} == {conn.id for conn in two.server.manager.registry}


def test_a_request_that_lost_its_place_after_its_event_is_unreachable() -> None:
    two = deaf()
    flood(two, BACKLOG)
    first, *_ = two.server.take_events() or two.server.received
    peer(two, 9).req()
    assert two.server.event_of(Unreachable).id == first.id


def test_many_peers_keep_no_other_out_for_long() -> None:
    two = deaf()
    flood_of_peers(two)
    answers(two)
    late = peer(two, 9)
    late.req()
    assert reasons(two) == [RejectReason.NO_RESOURCES]
    two.drive(ANSWER_TIME)
    flood_of_peers(two, BACKLOG // 2)
    answers(two)
    late.req()
    assert RejectReason.NO_RESOURCES in reasons(two)  # to the oldest of all
    registry = two.server.manager.registry
    assert registry.requested(late.peer.gid, late.asked.id, datagrams=False) is not None
    assert len(registry) == BACKLOG


def test_a_flood_that_looks_for_datagrams_keeps_no_other_out() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    for number in range(2 * BACKLOG):
        forger.looked.id = 1 + number
        forger.sidr_req()
    answers(two)
    other = peer(two, 9)
    other.sidr_req()
    (refused,) = [received.message for received in answers(two)]
    assert isinstance(refused, SIDRREP)
    assert (refused.status, refused.request_id) == (SIDRStatus.REJECTED, 1)
    registry = two.server.manager.registry
    conn = registry.requested(other.peer.gid, other.looked.id, datagrams=True)
    assert conn is not None
    two.server.manager.accept(conn.id, two.server.qp(QPType.UD), two.simulator.now)


def test_a_manager_that_is_full_has_room_for_another_peer() -> None:
    two = Two(settings=DEFAULTS._replace(max_connections=3))
    flood(two, 10)
    other = peer(two, 9)
    other.req()
    registry = two.server.manager.registry
    assert len(registry) == 3
    assert registry.requested(other.peer.gid, other.asked.id, datagrams=False) is not None


def test_requests_that_come_and_go_leave_nothing_behind() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    for _ in range(500):
        forger.req()
        forger.rej(two.server.connection())
    two.drive(us(1))
    assert two.server.is_clean()
    assert len(two.server.manager.timers) <= SLACK


# Ids that are drawn.


class Stuck:
    """Draws the same number, again and again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.draws = 0

    def getrandbits(self, k: int) -> int:
        self.draws += 1
        return self.number & ((1 << k) - 1)


@pytest.mark.parametrize("number", [0, 7, (1 << 64) - 1])
def test_a_source_that_repeats_itself_ends_no_manager(number: int) -> None:
    two = deaf()
    stuck = two.server.manager.random = Stuck(number)
    flood(two, BACKLOG)
    ids = {conn.id for conn in two.server.manager.registry}
    assert len(ids) == BACKLOG
    assert all(0 < each < 1 << 32 for each in ids)
    assert stuck.draws <= BACKLOG * (MAX_DRAWS + 2)
