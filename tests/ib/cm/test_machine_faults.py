"""Messages that are lost, doubled or late: the connection is made and ended all the same."""

from itertools import pairwise
from random import Random

import pytest

from rdmawire.fabric.link import Chances
from rdmawire.ib.cm.event import (
    CMEvent,
    ConnectRequest,
    DatagramRequest,
    Disconnected,
    Rejected,
    TimewaitExit,
)
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.ib.qp import QueuePair
from rdmawire.units import ms, seconds, us
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.wire.cm import REJ, Message, RejectReason
from tests.ib.cm.stage import UP, MessageLink, Place, Two

CONVERSATION = ("REQ", "REP", "RTU", "DREQ", "DREP")
RESOLUTION = ("SIDR_REQ", "SIDR_REP")
ATTEMPTS = DEFAULTS.max_cm_retries + 1
TO_THE_END = ["Established", "Disconnected", "TimewaitExit"]


class Play:
    """A client that asks, a server that accepts, and agrees to the end."""

    def __init__(self, link: MessageLink, *, kind: QPType = QPType.RC) -> None:
        self.two = two = Two(link)
        self.kind = kind
        self.qps: list[QueuePair] = []
        two.server.when |= {
            ConnectRequest: self._accept,
            DatagramRequest: self._accept,
            Disconnected: self._agree,
        }
        self.qps.append(two.request(kind=kind))

    def _accept(self, event: CMEvent) -> None:
        qp = self.two.server.qp(self.kind)
        self.qps.append(qp)
        self.two.server.manager.accept(event.id, qp, self.two.simulator.now)

    def _agree(self, event: CMEvent) -> None:
        found = self.two.server.manager.registry.get(event.id)
        if found is not None and found.state is CMState.DREQ_RCVD:
            self.two.server.manager.disconnect(event.id, self.two.simulator.now)

    def is_made(self) -> bool:
        """After all the time that retries may take."""
        self.two.drive(seconds(40))
        return self.two.client.state() is self.two.server.state() is UP

    def ends(self) -> Two:
        """By the client's wish, with nothing left."""
        self.two.client.disconnect()
        return self.rests()

    def rests(self) -> Two:
        self.two.drive()
        assert self.two.client.is_clean()
        assert self.two.server.is_clean()
        return self.two


def goes_well(link: MessageLink) -> list[str]:
    """Both ends have the same events as if nothing went wrong; gives the messages that it took."""
    play = Play(link)
    assert play.is_made()
    two = play.ends()
    assert two.client.names() == TO_THE_END
    assert two.server.names() == ["ConnectRequest", *TO_THE_END]
    assert [qp.state for qp in play.qps] == [QPState.ERR, QPState.ERR]
    return two.messages()


def test_without_faults_five_messages_do() -> None:
    assert goes_well(MessageLink()) == [*CONVERSATION]


@pytest.mark.parametrize("name", CONVERSATION)
@pytest.mark.parametrize("times", [1, 2])
def test_a_message_that_is_lost_is_made_good(name: str, times: int) -> None:
    lost = [(name, number) for number in range(1, times + 1)]
    sent = goes_well(MessageLink(drop=lost))
    assert sent.count(name) == times + 1


@pytest.mark.parametrize("first", CONVERSATION)
@pytest.mark.parametrize("second", CONVERSATION)
def test_two_losses_are_made_good(first: str, second: str) -> None:
    goes_well(MessageLink(drop={(first, 1), (second, 2)}))


@pytest.mark.parametrize("name", CONVERSATION)
def test_a_message_that_comes_twice_changes_nothing(name: str) -> None:
    goes_well(MessageLink(duplicate={(name, 1)}))


@pytest.mark.parametrize("name", CONVERSATION)
@pytest.mark.parametrize("late", [us(50), ms(5), seconds(5), seconds(30)])
def test_a_message_that_comes_late_changes_nothing(name: str, late: int) -> None:
    """Even when its repetition overtakes it."""
    goes_well(MessageLink(delay={(name, 1): late}))


@pytest.mark.parametrize("name", CONVERSATION)
def test_an_old_copy_that_comes_after_the_end_makes_nothing_new_but_a_request(name: str) -> None:
    """A REQ that old cannot be told from a new one: who asked says so, and nothing is left."""
    play = Play(MessageLink(duplicate={(name, 1)}, delay={(name, 1): seconds(120)}))
    play.two.drive(seconds(60))
    play.two.client.take_events()
    for connection in tuple(play.two.client.manager.registry):
        if connection.state is UP:
            play.two.client.disconnect()
    two = play.rests()
    asked = two.server.names().count("ConnectRequest")
    assert asked == (2 if name == "REQ" else 1)


def test_a_lost_rtu_that_data_follow_is_not_missed() -> None:
    two = Two(MessageLink(lost={"RTU"}))
    mine = two.request()
    two.drive(us(10))
    peers = two.server.accept()
    sink = two.server.receives(peers, 5)
    two.drive(us(10))
    assert two.server.state() is CMState.REP_SENT
    two.client.send(mine, b"hello")
    two.drive(us(10))
    assert sink.read() == b"hello"
    assert two.server.state() is UP
    assert two.server.names() == ["ConnectRequest", "Established"]
    assert two.messages() == ["REQ", "REP", "RTU"]


def test_a_request_without_answer_times_out_with_an_event() -> None:
    two = Two(MessageLink(lost={"REQ"}))
    qp = two.request()
    two.drive()
    assert two.messages() == ["REQ"] * ATTEMPTS + ["REJ"]
    assert two.client.names() == ["Unreachable"]
    assert qp.state is QPState.RESET
    rej = two.sent[-1].received.message
    assert isinstance(rej, REJ)
    assert (rej.reason, rej.message_rejected) == (RejectReason.TIMEOUT, Message.OTHER)
    assert rej.ari[: rej.reject_info_length] == bytes((0, 0, 0, 0xFF, 0xFE, 0, 0, 1))
    assert two.client.is_clean()
    assert two.server.is_clean()


def test_requests_are_repeated_after_the_peers_time_and_the_way_there_and_back() -> None:
    two = Two(MessageLink(lost={"REQ"}))
    two.request()
    two.drive()
    times = [sent.time for sent in two.sent]
    waits = {after - before for before, after in pairwise(times)}
    assert waits == {(4096 << 20) + 2 * (4096 << 18)}


def test_a_rep_that_never_arrives_ends_at_both_ends() -> None:
    play = Play(MessageLink(lost={"REP"}))
    two = play.rests()
    assert two.client.names() == ["Rejected"]
    assert two.client.event_of(Rejected).reason == RejectReason.TIMEOUT
    assert two.server.names() == ["ConnectRequest", "Unreachable", "TimewaitExit"]
    assert play.qps[1].state is QPState.ERR


def test_the_timeout_of_the_peer_is_an_event_of_the_owner() -> None:
    two = Two(MessageLink(lost={"MRA"}))
    two.request()
    two.drive()
    assert two.client.names() == ["Unreachable"]
    assert two.server.event_of(Rejected).reason == RejectReason.TIMEOUT
    assert two.server.is_clean()


def test_a_dreq_that_is_never_answered_ends_by_time() -> None:
    two = Two(MessageLink(lost={"DREQ"}))
    mine = two.request()
    two.drive(us(10))
    two.server.accept()
    two.drive(us(10))
    two.client.disconnect()
    two.drive()
    assert two.messages().count("DREQ") == ATTEMPTS
    assert two.client.event_of(Disconnected).timed_out
    assert two.client.event_of(TimewaitExit)
    assert two.client.is_clean()
    assert mine.state is QPState.ERR
    assert two.server.state() is UP
    two.server.destroy()
    two.drive()
    assert two.server.is_clean()


def test_a_dreq_for_what_is_forgotten_is_answered() -> None:
    """The peer's DREQ comes after our timewait: without an answer it would ask to its end."""
    play = Play(MessageLink(drop=[("DREP", number) for number in range(1, 6)]))
    assert play.is_made()
    two = play.ends()
    assert two.messages().count("DREP") == 6
    assert two.client.names() == TO_THE_END


@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("name", RESOLUTION)
def test_a_datagram_service_is_found_though_messages_are_lost(name: str, times: int) -> None:
    lost = [(name, number) for number in range(1, times + 1)]
    play = Play(MessageLink(drop=lost), kind=QPType.UD)
    two = play.rests()
    assert two.client.names() == ["Resolved"]
    assert two.server.names() == ["DatagramRequest"]
    assert two.messages().count(name) == times + 1


@pytest.mark.parametrize("name", RESOLUTION)
def test_a_datagram_service_is_found_once_though_messages_come_twice(name: str) -> None:
    two = Play(MessageLink(duplicate={(name, 1)}), kind=QPType.UD).rests()
    assert two.client.names() == ["Resolved"]
    assert two.server.names() == ["DatagramRequest"]


def test_a_datagram_service_without_answer_is_unreachable() -> None:
    two = Play(MessageLink(lost={"SIDR_REP"}), kind=QPType.UD).rests()
    assert two.client.names() == ["Unreachable"]
    assert two.messages().count("SIDR_REQ") == ATTEMPTS
    assert two.server.names() == ["DatagramRequest"]


@pytest.mark.parametrize("seed", range(40))
def test_over_a_bad_link_all_goes_its_way_and_nothing_is_left(seed: int) -> None:
    chances = Chances(Random(seed), drop=0.3, duplicate=0.3, delay=0.5, max_delay=seconds(10))
    play = Play(MessageLink(chances=chances))
    play.two.drive(seconds(200))
    assert (play.two.client.state(), play.two.server.state()) == (UP, UP)
    play.two.client.destroy()
    play.rests()


PLACES: list[Place] = [(name, 1) for name in CONVERSATION]


@pytest.mark.parametrize("doubled", PLACES)
@pytest.mark.parametrize("lost", PLACES)
def test_a_loss_and_a_doubled_message_together(lost: Place, doubled: Place) -> None:
    goes_well(MessageLink(drop={lost}, duplicate={doubled, (doubled[0], 2)}))
