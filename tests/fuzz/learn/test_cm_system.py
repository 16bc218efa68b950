"""The connection manager's machines: those of the golden files, for each role."""

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.cm_peer import MESSAGES
from rdmawire.fuzz.learn.cm_system import ALPHABETS, CMSystem
from rdmawire.fuzz.learn.machine import Word
from rdmawire.ib.cm import STANDARD
from rdmawire.ib.cm.state_machine import CMAction, CMState, Input, NextState
from rdmawire.verbs.profile import PROFILES
from tests.fuzz.learn.golden_machines import answers, distinguishing_word, golden, learned, unlike
from tests.fuzz.parameters import fast_or_slow

S, A = CMState, CMAction


SMALL = ["sidr-active", "sidr-passive"]
"""Alphabets whose machines are learned in a moment."""


@pytest.mark.parametrize("name", fast_or_slow(ALPHABETS, SMALL))
def test_the_manager_has_its_golden_machine(name: str) -> None:
    known = golden(f"cm-{name}")
    found = learned(CMSystem(ALPHABETS[name]), known, walks=10)
    assert distinguishing_word(found, known) is None
    assert found == known


@pytest.mark.parametrize(
    ("name", "psn"),
    [
        ("active", 0xFF_FFFF),
        ("passive", 0),
        pytest.param("active", 0, marks=pytest.mark.slow),
        pytest.param("passive", 0xFF_FFFF, marks=pytest.mark.slow),
    ],
)
def test_the_machine_is_the_same_at_any_first_psn(name: str, psn: int) -> None:
    assert unlike(CMSystem(ALPHABETS[name], psn=psn), golden(f"cm-{name}")) is None


@pytest.mark.parametrize("profile", fast_or_slow(sorted(PROFILES.keys() - {"ibta"}), ["rxe"]))
@pytest.mark.parametrize("name", ["active-by-hand", "sidr-active", "sidr-passive"])
def test_each_profile_has_the_same_machine(name: str, profile: str) -> None:
    system = CMSystem(ALPHABETS[name], profile=PROFILES[profile])
    assert unlike(system, golden(f"cm-{name}")) is None


def test_a_connection_is_made_used_and_ended() -> None:
    passive = ("REQ", "ACCEPT", "DATA", "DREQ", "DISCONNECT", "EXPIRE")
    assert answers(CMSystem(ALPHABETS["passive"]), passive) == [
        "ConnectRequest",
        "REP,QP=RTS",
        "ACK,Established",
        "Disconnected",
        "DREP,QP=ERR",
        "TimewaitExit",
    ]
    active = ("CONNECT", "EXPIRE", "REP", "REP", "DISCONNECT", "DREP", "EXPIRE")
    assert answers(CMSystem(ALPHABETS["active"]), active) == [
        "REQ",
        "REQ",
        "RTU,Established,QP=RTS",
        "RTU",
        "DREQ,QP=ERR",
        "Disconnected",
        "TimewaitExit",
    ]


def test_messages_about_an_alternate_path_have_no_effect() -> None:
    for name in ("active", "passive"):
        known = golden(f"cm-{name}")
        for state, steps in enumerate(known.transitions):
            assert {steps[about] for about in ("LAP", "APR")} == {("-", state)}


# Planted bugs: the table of transitions, with one row replaced.

BUGS: dict[str, tuple[str, CMState, Input, NextState | None, Word]] = {
    "a repeated REQ is not answered with the REP": (
        "passive", S.REP_SENT, Input.REQ, None, ("REQ", "ACCEPT", "REQ"),
    ),
    "a repeated REP is not answered with an RTU": (
        "active", S.ESTABLISHED, Input.REP, None, ("CONNECT", "REP", "REP"),
    ),
    "data does not establish": (
        "passive", S.REP_SENT, Input.DATA, NextState(S.REP_SENT), ("REQ", "ACCEPT", "DATA"),
    ),
    "two DREQs at once are not answered": (
        "active", S.DREQ_SENT, Input.DREQ, None, ("CONNECT", "REP", "DISCONNECT", "DREQ"),
    ),
    "a DREQ in timewait is not answered": (
        "active", S.TIMEWAIT, Input.DREQ, None, ("CONNECT", "REJ_STALE", "DREQ"),
    ),
    "no timewait after a disconnect": (
        "active", S.DREQ_SENT, Input.DREP, NextState(S.CLOSED, (A.REPORT_DISCONNECTED,)),
        ("CONNECT", "REP", "DISCONNECT", "DREP", "CONNECT"),
    ),
    "the queue pair stays in RTS": (
        "active-by-hand", S.ESTABLISHED, Input.DISCONNECT, NextState(S.DREQ_SENT, (A.SEND_DREQ,)),
        ("CONNECT_BY_HAND", "REP", "ESTABLISH", "DISCONNECT"),
    ),
    "an unanswered REP is never given up": (
        "passive", S.REP_SENT, Input.RETRIES_EXCEEDED, NextState(S.REP_SENT, (A.RESEND,)),
        ("REQ", "ACCEPT", "EXPIRE", "EXPIRE"),
    ),
    "a refused resolution is reported as a success": (
        "sidr-active", S.SIDR_REQ_SENT, Input.SIDR_REFUSED,
        NextState(S.CLOSED, (A.REPORT_RESOLVED,)),
        ("RESOLVE", "SIDR_REP_REFUSED"),
    ),
    "a repeated SIDR_REQ is not answered": (
        "sidr-passive", S.SIDR_REP_SENT, Input.SIDR_REQ, None, ("SIDR_REQ", "ACCEPT", "SIDR_REQ"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_the_last_input_of_a_word_shows_a_planted_bug(bug: str) -> None:
    name, state, what, row, word = BUGS[bug]
    buggy = CMSystem(ALPHABETS[name], cm_rules=STANDARD.with_transition(state, what, row))
    given, expected = answers(buggy, word), list(golden(f"cm-{name}").outputs(word))
    assert given[:-1] == expected[:-1]
    assert given[-1] != expected[-1]


LEARNED = ["a repeated SIDR_REQ is not answered"]


@pytest.mark.parametrize("bug", fast_or_slow(BUGS, LEARNED))
def test_a_planted_bug_shows_as_a_shortest_word(bug: str) -> None:
    name, state, what, row, word = BUGS[bug]
    rules = STANDARD.with_transition(state, what, row)
    known = golden(f"cm-{name}")
    names = [one for one in ALPHABETS[name] if one not in ("LAP", "APR", "MRA_REQ")]
    buggy = CMSystem(names, cm_rules=rules)
    known = known.restricted(buggy.inputs).minimal()
    assert distinguishing_word(known, learned(buggy, known, walks=10)) == word


def test_each_input_can_be_chosen_and_an_unknown_one_is_refused() -> None:
    assert {*MESSAGES} <= {name for names in ALPHABETS.values() for name in names}
    with pytest.raises(FuzzError, match="a connection manager has no input 'HELLO'"):
        CMSystem(("HELLO",))
