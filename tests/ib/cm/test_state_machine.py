"""The table of states: every state with every message, call and tick, in the table and in fact."""

from collections.abc import Callable
from errno import EINVAL

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm.connection import Connection
from rdmawire.ib.cm.event import Established
from rdmawire.ib.cm.machine import ACTIONS
from rdmawire.ib.cm.receive import Ignored
from rdmawire.ib.cm.state_machine import (
    CALLS,
    CM_TRANSITIONS,
    WAITS,
    CMAction,
    CMState,
    Input,
    Wait,
)
from rdmawire.verbs.enums import QPType
from rdmawire.wire.cm import Message, RejectReason, SIDRStatus
from tests.ib.cm.forge import Forger, deaf
from tests.ib.cm.stage import Side, Two

S = CMState

GRID = """
              REQ          MRA_OF_REQ   MRA_OF_REP   REJ      REJ_STALE REP          RTU         DREQ      DREP     SIDR_REQ SIDR_REP SIDR_REFUSED
REQ_SENT      -            MRA_REQ_RCVD -            CLOSED   TIMEWAIT  REP_RCVD     -           -         -        -        -        -
MRA_REQ_RCVD  -            -            -            CLOSED   TIMEWAIT  REP_RCVD     -           -         -        -        -        -
REP_RCVD      -            -            -            CLOSED   TIMEWAIT  MRA_REP_SENT -           -         -        -        -        -
MRA_REP_SENT  -            -            -            CLOSED   TIMEWAIT  =            -           -         -        -        -        -
REQ_RCVD      MRA_REQ_SENT -            -            CLOSED   CLOSED    -            -           -         -        -        -        -
MRA_REQ_SENT  =            -            -            CLOSED   CLOSED    -            -           -         -        -        -        -
REP_SENT      =            -            MRA_REP_RCVD TIMEWAIT TIMEWAIT  -            ESTABLISHED DREQ_RCVD -        -        -        -
MRA_REP_RCVD  =            -            -            TIMEWAIT TIMEWAIT  -            ESTABLISHED DREQ_RCVD -        -        -        -
ESTABLISHED   -            -            -            TIMEWAIT TIMEWAIT  =            -           DREQ_RCVD -        -        -        -
DREQ_SENT     -            -            -            TIMEWAIT TIMEWAIT  -            -           TIMEWAIT  TIMEWAIT -        -        -
DREQ_RCVD     -            -            -            -        -         -            -           -         -        -        -        -
TIMEWAIT      =            -            -            -        -         -            -           =         -        -        -        -
SIDR_REQ_SENT -            -            -            -        -         -            -           -         -        -        CLOSED   CLOSED
SIDR_REQ_RCVD -            -            -            -        -         -            -           -         -        -        -        -
SIDR_REP_SENT -            -            -            -        -         -            -           -         -        =        -        -
"""  # noqa: E501 - a table
"""IBA 12.9.5 to 12.9.7, 12.11: ``=`` answers and stays, ``-`` is ignored."""

CALL_GRID = """
              ACCEPT        REJECT        ESTABLISH   DISCONNECT DESTROY
REQ_SENT      -             -             -           -          CLOSED
MRA_REQ_RCVD  -             -             -           -          CLOSED
REP_RCVD      -             TIMEWAIT      ESTABLISHED -          TIMEWAIT
MRA_REP_SENT  -             TIMEWAIT      ESTABLISHED -          TIMEWAIT
REQ_RCVD      REP_SENT      CLOSED        -           -          CLOSED
MRA_REQ_SENT  REP_SENT      CLOSED        -           -          CLOSED
REP_SENT      -             TIMEWAIT      -           -          TIMEWAIT
MRA_REP_RCVD  -             TIMEWAIT      -           -          TIMEWAIT
ESTABLISHED   -             -             -           DREQ_SENT  DREQ_SENT
DREQ_SENT     -             -             -           -          =
DREQ_RCVD     -             -             -           TIMEWAIT   TIMEWAIT
TIMEWAIT      -             -             -           -          =
SIDR_REQ_SENT -             -             -           -          CLOSED
SIDR_REQ_RCVD SIDR_REP_SENT SIDR_REP_SENT -           -          SIDR_REP_SENT
SIDR_REP_SENT -             -             -           -          =
"""
"""What the owner may call: ``-`` is refused."""


def cells(grid: str) -> list[tuple[CMState, Input, CMState | None]]:
    """State, input and what follows; ``None`` where nothing does."""
    head, *rows = (line.split() for line in grid.strip().splitlines())
    return [
        (CMState[state], Input[what], _following(state, to))
        for state, *columns in rows
        for what, to in zip(head, columns, strict=True)
    ]


def _following(state: str, to: str) -> CMState | None:
    return None if to == "-" else CMState[state if to == "=" else to]


# Ways into each state.

Scene = tuple[Two, Side, Forger, Connection]


def _asking(kind: QPType = QPType.RC) -> Scene:
    two = deaf()
    two.request(kind=kind, by_hand=True)
    return two, two.client, Forger(two.client, two.server), two.client.connection()


def _mra_req_rcvd() -> Scene:
    two, side, forger, conn = _asking()
    forger.mra(conn, Message.REQ)
    return two, side, forger, conn


def _rep_rcvd() -> Scene:
    two, side, forger, conn = _asking()
    forger.rep(conn)
    return two, side, forger, conn


def _mra_rep_sent() -> Scene:
    two, side, forger, conn = _rep_rcvd()
    forger.rep(conn)
    return two, side, forger, conn


def _established() -> Scene:
    two, side, forger, conn = _rep_rcvd()
    side.manager.establish(conn.id, 0)
    side.take_events()
    return two, side, forger, conn


def _dreq_sent() -> Scene:
    two, side, forger, conn = _established()
    side.disconnect()
    return two, side, forger, conn


def _asked() -> Scene:
    two = deaf()
    forger = Forger(two.server, two.client)
    forger.req()
    return two, two.server, forger, two.server.connection()


def _mra_req_sent() -> Scene:
    two, side, forger, conn = _asked()
    forger.req()
    return two, side, forger, conn


def _rep_sent() -> Scene:
    two, side, forger, conn = _asked()
    side.accept()
    return two, side, forger, conn


def _mra_rep_rcvd() -> Scene:
    two, side, forger, conn = _rep_sent()
    forger.mra(conn, Message.REP)
    return two, side, forger, conn


def _dreq_rcvd() -> Scene:
    two, side, forger, conn = _rep_sent()
    forger.rtu(conn)
    forger.dreq(conn)
    return two, side, forger, conn


def _timewait() -> Scene:
    two, side, forger, conn = _dreq_rcvd()
    side.disconnect()
    return two, side, forger, conn


def _looked_for() -> Scene:
    two = deaf()
    forger = Forger(two.server, two.client)
    forger.sidr_req()
    return two, two.server, forger, two.server.connection()


def _sidr_rep_sent() -> Scene:
    two, side, forger, conn = _looked_for()
    side.accept(kind=QPType.UD)
    return two, side, forger, conn


SCENES: dict[CMState, Callable[[], Scene]] = {
    S.REQ_SENT: _asking,
    S.MRA_REQ_RCVD: _mra_req_rcvd,
    S.REP_RCVD: _rep_rcvd,
    S.MRA_REP_SENT: _mra_rep_sent,
    S.REQ_RCVD: _asked,
    S.MRA_REQ_SENT: _mra_req_sent,
    S.REP_SENT: _rep_sent,
    S.MRA_REP_RCVD: _mra_rep_rcvd,
    S.ESTABLISHED: _established,
    S.DREQ_SENT: _dreq_sent,
    S.DREQ_RCVD: _dreq_rcvd,
    S.TIMEWAIT: _timewait,
    S.SIDR_REQ_SENT: lambda: _asking(QPType.UD),
    S.SIDR_REQ_RCVD: _looked_for,
    S.SIDR_REP_SENT: _sidr_rep_sent,
}

SAY: dict[Input, Callable[[Forger, Connection], None]] = {
    Input.REQ: lambda forger, _: forger.req(),
    Input.MRA_OF_REQ: lambda forger, conn: forger.mra(conn, Message.REQ),
    Input.MRA_OF_REP: lambda forger, conn: forger.mra(conn, Message.REP),
    Input.REJ: lambda forger, conn: forger.rej(conn),
    Input.REJ_STALE: lambda forger, conn: forger.rej(conn, RejectReason.STALE_CONNECTION),
    Input.REP: lambda forger, conn: forger.rep(conn),
    Input.RTU: lambda forger, conn: forger.rtu(conn),
    Input.DREQ: lambda forger, conn: forger.dreq(conn),
    Input.DREP: lambda forger, conn: forger.drep(conn),
    Input.SIDR_REQ: lambda forger, _: forger.sidr_req(),
    Input.SIDR_REP: lambda forger, conn: forger.sidr_rep(conn),
    Input.SIDR_REFUSED: lambda forger, conn: forger.sidr_rep(conn, SIDRStatus.NO_QP),
}


def _accept(side: Side, conn: Connection) -> None:
    kind = QPType.UD if conn.datagrams else QPType.RC
    side.manager.accept(conn.id, side.qp(kind), 0)


CALL: dict[Input, Callable[[Side, Connection], None]] = {
    Input.ACCEPT: _accept,
    Input.REJECT: lambda side, conn: side.manager.reject(conn.id, 0),
    Input.ESTABLISH: lambda side, conn: side.manager.establish(conn.id, 0),
    Input.DISCONNECT: lambda side, conn: side.manager.disconnect(conn.id, 0),
    Input.DESTROY: lambda side, conn: side.manager.destroy(conn.id, 0),
}


@pytest.mark.parametrize(("state", "what", "to"), cells(GRID))
def test_every_message_in_every_state(state: CMState, what: Input, to: CMState | None) -> None:
    _, _side, forger, conn = SCENES[state]()
    assert conn.state is state
    if conn.active and what is Input.REQ:
        forger.asked.qpn += 1  # or else it is the peer's queue pair, which began anew
    SAY[what](forger, conn)
    assert conn.state is (to or state)
    assert ((state, what) in CM_TRANSITIONS) == (to is not None)


@pytest.mark.parametrize(("state", "what", "to"), cells(GRID))
def test_a_message_from_another_address_changes_nothing(
    state: CMState, what: Input, to: CMState | None
) -> None:
    del to
    two, side, _, conn = SCENES[state]()
    thief = two.bystander()
    before = conn.state, conn.deadline, len(side.received)
    elsewhere = Forger(side, thief)
    SAY[what](elsewhere, conn)
    others = [told for told in side.received[before[2] :] if told.id == conn.id]
    assert (conn.state, conn.deadline, others) == (*before[:2], [])


@pytest.mark.parametrize(("state", "what", "to"), cells(CALL_GRID))
def test_every_call_in_every_state(state: CMState, what: Input, to: CMState | None) -> None:
    _, side, _, conn = SCENES[state]()
    if to is None:
        before = conn.deadline, conn.last_message, len(side.nic.device.ready)
        with pytest.raises(VerbsError) as refused:
            CALL[what](side, conn)
        assert refused.value.errno == EINVAL
        assert state.name in refused.value.reason
        assert (conn.deadline, conn.last_message, len(side.nic.device.ready)) == before
    else:
        CALL[what](side, conn)
    assert conn.state is (to or state)


@pytest.mark.parametrize("state", SCENES)
def test_time_ends_every_wait(state: CMState) -> None:
    two, side, _, conn = SCENES[state]()
    two.drive()
    by_clock = state in WAITS
    assert (conn.state is S.CLOSED) == by_clock
    assert conn.deadline is None
    assert side.is_clean() == by_clock


@pytest.mark.parametrize("state", SCENES)
def test_from_every_state_its_owner_can_leave_and_nothing_is_left(state: CMState) -> None:
    two, side, _, conn = SCENES[state]()
    told = len(side.received)
    side.manager.destroy(conn.id, two.simulator.now)
    two.drive()
    assert side.is_clean()
    assert side.received[told:] == []
    assert conn.qp is None


@pytest.mark.parametrize("state", SCENES)
def test_events_that_were_not_taken_are_dropped_with_their_connection(state: CMState) -> None:
    two, side, _, conn = SCENES[state]()
    before = len(side.received)
    other = Established(conn.id ^ 1, b"")
    for event in (Established(conn.id, b"1"), other, Established(conn.id, b"2")):
        side.manager.report(conn, event)
    side.manager.destroy(conn.id, two.simulator.now)
    two.drive()
    side.take_events()
    assert side.received[before:] == [other]


@pytest.mark.parametrize("state", SCENES)
def test_messages_with_unknown_ids_are_ignored(state: CMState) -> None:
    _, side, forger, conn = SCENES[state]()
    nobody = Connection(conn.id ^ 1, 0, conn.path, 0)
    for what in (
        Input.MRA_OF_REQ,
        Input.MRA_OF_REP,
        Input.REJ,
        Input.REP,
        Input.RTU,
        Input.DREQ,
        Input.DREP,
        Input.SIDR_REP,
    ):
        before = side.manager.ignored[Ignored.UNKNOWN]
        SAY[what](forger, nobody)
        assert side.manager.ignored[Ignored.UNKNOWN] == before + 1
    assert conn.state is state


# The table by itself.


def test_all_messages_and_calls_are_in_the_grids() -> None:
    of_owner = {Input.CONNECT, Input.RESOLVE}
    by_themselves = {Input.DATA, Input.RETRIES_EXCEEDED, Input.EXPIRED, Input.DISPLACED}
    listed = {what for _, what, _ in cells(GRID)} | {what for _, what, _ in cells(CALL_GRID)}
    assert listed == set(Input) - of_owner - by_themselves
    assert set(SCENES) == set(CMState) - {S.IDLE, S.CLOSED}
    assert {what for _, what, _ in cells(CALL_GRID)} | of_owner == CALLS


def test_the_clock_and_the_data_have_rows_where_they_can_come() -> None:
    for state in CMState:
        wait = WAITS.get(state, Wait.NOTHING)
        assert ((state, Input.RETRIES_EXCEEDED) in CM_TRANSITIONS) == (wait is Wait.ANSWER)
        assert ((state, Input.EXPIRED) in CM_TRANSITIONS) == (wait in (Wait.END, Wait.OWNER))
        assert ((state, Input.DISPLACED) in CM_TRANSITIONS) == (wait is Wait.OWNER)
        confirmed_by_data = state in (S.REP_SENT, S.MRA_REP_RCVD)
        assert ((state, Input.DATA) in CM_TRANSITIONS) == confirmed_by_data


def test_nothing_comes_out_of_closed() -> None:
    assert not [state for state, _ in CM_TRANSITIONS if state is S.CLOSED]


def test_everything_that_rows_do_can_be_done() -> None:
    assert (
        {do for step in CM_TRANSITIONS.values() for do in step.does}
        == set(CMAction)
        == set(ACTIONS)
    )
