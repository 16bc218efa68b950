"""What profiles do differently from ``ibta``: found, unless it is accepted."""

from dataclasses import replace

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz import fuzzer as module
from rdmawire.fuzz.fuzzer import EngineFuzzer, Found, RequesterFuzzer
from rdmawire.fuzz.inputs import AnswerInput, Case, WaitInput, WorkInput
from rdmawire.fuzz.profile_differences import (
    ACCEPT,
    DIFFERENCES,
    REQUESTER_DIFFERENCES,
    ProfileDifference,
    accepted,
)
from rdmawire.fuzz.service_model import SERVICES
from rdmawire.fuzz.setup import Setup
from rdmawire.verbs.profile import IBTA, PROFILES, RXE_6_1, RXE_6_12, Profile
from rdmawire.wire.ib import Ack
from rdmawire.wire.opcode import Opcode

SEED = 1
BATCH = 50


def with_row(row: ProfileDifference) -> Profile:
    """The profile ``ibta`` with the other value of one field."""
    usual = getattr(IBTA, row.field)
    values = (getattr(profile, row.field) for profile in (RXE_6_1, RXE_6_12))
    other = next(value for value in values if value != usual)
    return replace(IBTA, **{row.field: other})


def found_in(
    profile: str,
    accept: str,
    runs: int,
    service: str = "rc",
    role: type[EngineFuzzer | RequesterFuzzer] = EngineFuzzer,
    first: int = 0,
) -> list[Found]:
    """What is found from the run ``first`` until the first batch with a finding."""
    kind = "engine" if role is EngineFuzzer else "requester"
    fuzzer = role({"kind": kind, "profile": profile, "accept": accept, "service": service})
    for at in range(first, first + runs, BATCH):
        if found := fuzzer.batch(SEED, at, min(runs, BATCH)).found:
            return [fuzzer.minimised(one) for one in found[:3]]
    return []


FIRST_RUNS = {"first_may_fit": 600, "limits_dmalen": 590}
"""Runs from which a difference is searched that the runs before do not find."""


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.field)
def test_each_difference_is_found_unless_it_is_accepted(
    row: ProfileDifference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROFILES", {"other": with_row(row)})
    found = found_in("other", "none", 4000, first=FIRST_RUNS.get(row.field, 0))
    assert all(one.violation.clause for one in found)
    assert min(len(one.case["inputs"]) for one in found) <= 8
    for accept in ("all", "allowed"):
        fuzzer = EngineFuzzer({"kind": "engine", "profile": "other", "accept": accept})
        shown = [fuzzer.replay(one.case)[0] for one in found]
        assert (shown == [None] * len(found)) == (row.allowed or accept == "all")
    assert found_in("other", "all", 30) == []


@pytest.mark.slow
@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.field)
def test_a_difference_that_is_accepted_is_not_found(
    row: ProfileDifference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROFILES", {"other": with_row(row)})
    assert found_in("other", "all", 200) == []
    runs = 200 if row.allowed else 4000
    assert bool(found_in("other", "allowed", runs)) is not row.allowed


RARE = {
    "rnr_timer_ns": Case(
        Setup(),
        (
            WorkInput("SEND"),
            AnswerInput(Opcode.RC_ACKNOWLEDGE, syndrome=Ack.RNR_NAK << 5 | 25),
            WaitInput(IBTA.rnr_timer_ns[25] - 1),
        ),
    )
}
"""Cases that show a difference which random ones show seldom."""


@pytest.mark.parametrize("row", REQUESTER_DIFFERENCES, ids=lambda row: row.field)
def test_each_difference_of_requesters_is_found_unless_it_is_accepted(
    row: ProfileDifference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROFILES", {"other": with_row(row)})
    fuzzers = {
        accept: RequesterFuzzer({"kind": "requester", "profile": "other", "accept": accept})
        for accept in ACCEPT
    }
    case = RARE[row.field].as_json() if row.field in RARE else None
    if case is None:
        found = found_in("other", "none", 1000, role=RequesterFuzzer)
        case = min((one.case for one in found), key=lambda one: len(one["inputs"]))
    assert len(case["inputs"]) <= 3
    shown = {accept: fuzzer.replay(case)[0] for accept, fuzzer in fuzzers.items()}
    assert shown["none"] is not None
    assert shown["none"].clause
    assert shown["all"] is None
    assert (shown["allowed"] is None) is row.allowed


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("role", [EngineFuzzer, RequesterFuzzer])
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_have_no_other_differences(
    profile: str, service: str, role: type[EngineFuzzer | RequesterFuzzer], runs: int
) -> None:
    assert found_in(profile, "all", runs, service, role) == []


def test_soft_roce_shows_what_the_standard_does_not_allow() -> None:
    found = found_in("rxe", "allowed", 200)
    assert found
    for one in found:
        assert "credits 31" not in one.violation.happened
        replayed = EngineFuzzer({"kind": "engine", "profile": "rxe", "accept": "all"})
        assert replayed.replay(one.case)[0] is None


def test_other_words_are_refused() -> None:
    with pytest.raises(FuzzError, match="accept 'some' is none of allowed, all, none"):
        accepted(IBTA, "some")
