"""How connections come and go, as their owners see it."""

from errno import EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.connection import (
    LONGEST_EXPONENT,
    ConnParam,
    duration,
)
from rdmawire.ib.cm.event import (
    ConnectRequest,
    ConnectResponse,
    Disconnected,
    Established,
)
from rdmawire.ib.cm.machine import DEFAULTS
from rdmawire.ib.cm.receive import Ignored
from rdmawire.ib.cm.state_machine import CMState
from rdmawire.units import seconds, us
from rdmawire.verbs.enums import QPState
from rdmawire.wire.cm import MRA, REP, REQ, AlternatePath, FailoverAccepted, Message
from rdmawire.wire.mad import MAD
from tests.ib.cm.forge import Forger, deaf
from tests.ib.cm.stage import SERVICE, UP, MessageLink, Two, connected


def test_by_hand_the_answer_waits_for_its_owner() -> None:
    two = Two(settings=DEFAULTS._replace(mra_timeout=22))
    mine = two.request(by_hand=True)
    two.drive(us(10))
    two.server.accept(ConnParam(b"hello"))
    two.drive(seconds(12))
    response = two.client.event_of(ConnectResponse)
    assert response.private_data[:5] == b"hello"
    assert "MRA" in two.messages()
    assert two.server.state() is CMState.MRA_REP_RCVD
    assert two.client.nic.query_qp(mine).qp_state is QPState.RESET
    two.client.manager.establish(response.id, two.simulator.now)
    two.drive(us(10))
    assert two.client.state() is two.server.state() is UP


def test_an_mra_puts_the_next_request_off() -> None:
    two = deaf()
    two.request()
    conn = two.client.connection()
    first = conn.deadline
    Forger(two.client, two.server).mra(conn, Message.REQ, 22)
    assert first == conn.period
    assert conn.deadline == (4096 << 22) + conn.period
    assert conn.tries == DEFAULTS.max_cm_retries


def test_a_peer_may_not_put_off_for_hours() -> None:
    two = deaf()
    two.request()
    conn = two.client.connection()
    Forger(two.client, two.server).mra(conn, Message.REQ, 31)
    assert conn.deadline == (4096 << LONGEST_EXPONENT) + conn.period
    assert duration(31) == 4096 << 24


def test_an_mra_is_sent_until_the_owner_accepts() -> None:
    two = Two()
    two.request()
    two.drive(seconds(60))
    assert two.messages() == ["REQ", "REQ", "MRA"]
    mra = two.sent[-1].received.message
    assert isinstance(mra, MRA)
    assert (mra.message_mraed, mra.service_timeout) == (Message.REQ, DEFAULTS.mra_timeout)
    assert two.server.names() == ["ConnectRequest"]
    two.server.accept()
    two.drive(us(10))
    assert two.client.state() is two.server.state() is UP


def test_a_disconnect_of_the_client_is_an_event_of_the_server() -> None:
    two, mine, peers = connected()
    two.client.disconnect()
    two.drive(us(10))
    assert two.server.event_of(Disconnected) == Disconnected(two.server.connection().id)
    assert (two.client.nic.query_qp(mine).qp_state, peers.state) == (QPState.ERR, QPState.RTS)
    assert two.client.names() == ["Established"]
    two.server.disconnect()
    two.drive(us(10))
    assert two.client.event_of(Disconnected)
    assert two.client.state() is two.server.state() is CMState.TIMEWAIT
    two.drive()
    assert two.client.is_clean()
    assert two.server.is_clean()
    assert two.client.names()[-1] == two.server.names()[-1] == "TimewaitExit"


@pytest.mark.parametrize("by_client", [True, False])
def test_answers_repeat_the_transaction_of_what_they_answer(by_client: bool) -> None:
    two, _, _ = connected()
    first, second = (two.client, two.server) if by_client else (two.server, two.client)
    first.disconnect()
    two.drive(us(10))
    second.disconnect()
    two.drive(us(10))
    req, rep, rtu, dreq, drep = (sent.received.tid for sent in two.sent)
    assert req == rep == rtu == two.client.connection().tid
    assert dreq == drep == first.connection().tid
    assert two.client.connection().tid != two.server.connection().tid


def test_both_may_end_it_at_once() -> None:
    two, mine, peers = connected()
    two.client.disconnect()
    two.server.disconnect()
    two.drive()
    for side in (two.client, two.server):
        assert side.names()[-2:] == ["Disconnected", "TimewaitExit"]
        assert side.is_clean()
    assert mine.state is peers.state is QPState.ERR
    assert sorted(two.messages()[3:]) == ["DREP", "DREP", "DREQ", "DREQ"]


def test_both_may_end_it_at_once_though_one_dreq_is_lost() -> None:
    two, _, _ = connected(Two(MessageLink(drop={("DREQ", 1)})))
    two.client.disconnect()
    two.server.disconnect()
    two.drive()
    for side in (two.client, two.server):
        assert side.names()[-2:] == ["Disconnected", "TimewaitExit"]
        assert side.is_clean()


def test_timewait_lasts_as_long_as_the_path_may_keep_a_packet() -> None:
    two, _, _ = connected()
    two.client.disconnect()
    two.drive(us(10))
    two.server.disconnect()
    two.drive(us(10))
    start = two.simulator.now
    two.drive()
    assert two.simulator.now - start == pytest.approx(duration(19), abs=us(20))


def test_work_that_waits_is_flushed_when_the_connection_ends() -> None:
    two, mine, _ = connected()
    two.client.receives(mine, 8)
    two.client.disconnect()
    (done,) = two.client.cq.poll(8)
    assert done.status.name == "WR_FLUSH_ERR"


def test_a_queue_pair_that_is_gone_already_does_no_harm() -> None:
    two, mine, _ = connected()
    two.client.nic.destroy_qp(mine)
    two.client.disconnect()
    two.drive(us(10))
    two.server.disconnect()
    two.drive()
    assert two.client.is_clean()


def test_a_connection_whose_owner_left_ends_by_itself() -> None:
    two, _, peers = connected()
    two.client.destroy()
    two.drive(us(10))
    two.server.disconnect()
    two.drive()
    assert two.client.names() == ["Established"]
    assert two.client.is_clean()
    assert peers.state is QPState.ERR
    with pytest.raises(VerbsError, match="no connection") as refused:
        two.client.manager.disconnect(1, two.simulator.now)
    assert refused.value.errno == EINVAL


def test_a_connection_that_ended_may_be_destroyed_with_its_events_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = Two(listens=False)
    monkeypatch.setattr(two.client, "take_events", list)  # the owner takes no event
    two.request()
    number = two.client.connection().id
    two.drive()
    assert number not in two.client.manager.registry
    two.client.manager.destroy(number, two.simulator.now)
    assert two.client.manager.next_event() is None
    with pytest.raises(VerbsError, match="no connection"):
        two.client.manager.destroy(number, two.simulator.now)


def test_an_alternate_path_is_not_taken_and_the_rep_says_so() -> None:
    two = deaf()
    forger = Forger(two.server, two.client)
    mad = forger.req_bytes()
    at = MAD.SIZE + REQ.SIZE + AlternatePath.SIZE
    forger.deliver(mad[:at] + AlternatePath(local_lid=1).build() + mad[at + AlternatePath.SIZE :])
    two.server.accept()
    two.drive(us(10))
    rep = two.sent[-1].received.message
    assert isinstance(rep, REP)
    assert rep.failover_accepted == FailoverAccepted.NOT_SUPPORTED


def test_a_dreq_for_another_queue_pair_is_ignored() -> None:
    two, mine, _ = connected()
    conn = two.client.connection()
    conn.qpn += 1
    two.server.disconnect()
    two.drive(us(10))
    assert two.client.state() is UP
    assert mine.state is QPState.RTS


def test_a_queue_pair_that_is_in_use_cannot_be_connected() -> None:
    two, mine, _ = connected()
    path = two.client.path_to(two.server)
    with pytest.raises(VerbsError, match="RTS") as refused:
        two.client.manager.connect(mine, path, SERVICE, 0)
    assert refused.value.errno == EINVAL


def test_a_host_connects_to_itself() -> None:
    two = Two()
    server = two.server
    qp = server.qp()
    server.manager.connect(qp, server.path_to(server), SERVICE, 0)
    two.drive(us(10))
    server.accept()
    two.drive(us(10))
    assert {conn.state for conn in server.manager.registry} == {UP}


def test_hundreds_of_connections_come_and_go() -> None:
    two = Two(backlog=200)
    server = two.server
    server.when[ConnectRequest] = lambda event: server.manager.accept(
        event.id, server.qp(), two.simulator.now
    )
    server.when[Disconnected] = lambda event: server.manager.disconnect(event.id, two.simulator.now)
    client = two.client
    client.when[Established] = lambda event: client.manager.disconnect(event.id, two.simulator.now)
    for _ in range(3):
        for _ in range(40):
            two.request()
        two.drive()
    assert client.names().count("TimewaitExit") == server.names().count("TimewaitExit") == 120
    assert client.is_clean()
    assert server.is_clean()


def test_a_restarted_peer_that_uses_its_ids_again_is_ignored_while_the_connection_lasts() -> None:
    """Nor by rdma_cm: its REQ is taken for a copy of the one that was answered."""
    two = deaf()
    forger = Forger(two.server, two.client)
    forger.req()
    two.server.accept()
    forger.rtu(two.server.connection())
    forger.req(tid=0xD00D, qpn=0x99, psn=5)
    assert two.server.state() is UP
    assert two.server.manager.ignored == {Ignored.OUT_OF_STATE: 1}
    two.server.disconnect()
    two.drive(seconds(300))
    forger.req(tid=0xD00E)
    assert two.server.names().count("ConnectRequest") == 2
