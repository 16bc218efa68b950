"""Bugs planted in a requester are found, minimised and replayed; a healthy one has none."""

from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.finding import read_finding, replay
from rdmawire.fuzz.fuzzer import RequesterFuzzer, make_fuzzer
from rdmawire.fuzz.inputs import (
    AnswerInput,
    Case,
    Input,
    PacketInput,
    ReceiveInput,
    WorkInput,
)
from rdmawire.fuzz.oracle import judge
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS
from rdmawire.fuzz.requester_oracle import RequesterSession
from rdmawire.fuzz.requester_services import fresh_requester
from rdmawire.fuzz.setup import Setup
from rdmawire.fuzz.target import RequesterTarget
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.wire.opcode import Opcode
from tests.fuzz.planted_bug_runs import first_found

SEED = 1
RUNS = 300
HEALTHY = {"kind": "requester"}
BUGS = [bug.name for bug in PLANTED_BUGS.values() if bug.kind == "requester"]


@pytest.mark.parametrize(
    ("service", "runs", "reached"),
    [
        ("rc", 150, 30),
        ("uc", 40, 5),
        ("ud", 40, 5),
        ("xrc", 100, 30),
        pytest.param("rc", 600, 33, marks=pytest.mark.slow),
        pytest.param("xrc", 400, 33, marks=pytest.mark.slow),
    ],
)
def test_a_healthy_requester_has_no_findings(service: str, runs: int, reached: int) -> None:
    campaign = Campaign({**HEALTHY, "service": service}, SEED, runs=runs)
    assert campaign.run() == []
    assert campaign.progress.executed > 15 * runs
    assert campaign.progress.reached >= reached


def test_without_a_service_all_are_fuzzed_in_turn() -> None:
    campaign = Campaign(HEALTHY, SEED, runs=60)
    assert campaign.run() == []
    reasons = {reason for _, reason in make_fuzzer(HEALTHY).batch(SEED, 0, 60).reached}
    assert "an ACK completes all work up to its PSN" in reasons
    assert "the service has no such work: posting it fails" in reasons


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_and_minimised(bug: str) -> None:
    fuzzer = make_fuzzer(PLANTED_BUGS[bug].spec)
    smallest = fuzzer.minimised(first_found(PLANTED_BUGS[bug]))
    assert len(smallest.case["inputs"]) <= 12
    shown, frames = fuzzer.replay(smallest.case)
    assert shown == smallest.violation
    answered = any(one["input"] == "answer" for one in smallest.case["inputs"])
    sends = not bug.endswith("local-error-is-fatal")
    directions = {frame.sent for frame in frames}
    assert directions == {sent for sent, wanted in ((True, sends), (False, answered)) if wanted}
    assert make_fuzzer(HEALTHY).replay(smallest.case)[0] is None
    assert len(fuzzer.describe(smallest.case)) == len(smallest.case["inputs"])


def test_a_finding_is_written_and_played_again(tmp_path: Path) -> None:
    spec = PLANTED_BUGS["naks-repeated"].spec
    findings = Campaign(spec, SEED, tmp_path, runs=RUNS, max_findings=1).run()
    folder = tmp_path / findings[0].name
    assert read_finding(folder) == findings[0]
    assert replay(findings[0]) == findings[0].violation
    assert replay(findings[0]._replace(spec=dict(HEALTHY))) is None
    with open_capture(folder / "packets.pcapng") as reader:
        assert "expected: " in list(reader)[-1].comments[0]


def test_the_same_seed_finds_the_same() -> None:
    spec = PLANTED_BUGS["short-read"].spec
    one, other = (Campaign(spec, SEED, runs=RUNS, max_findings=1).run() for _ in range(2))
    assert one == other != []


def test_an_engine_can_be_a_requester() -> None:
    assert isinstance(EngineTarget(), RequesterTarget)


@pytest.mark.parametrize("one", [PacketInput(0), ReceiveInput(8)])
def test_inputs_of_the_other_role_are_refused(one: PacketInput | ReceiveInput) -> None:
    target = EngineTarget()
    with pytest.raises(FuzzError, match="a requester has no input of kind"):
        judge(target, Case(Setup(), (one,)), RequesterSession(target))


@pytest.mark.parametrize("service", ["rd", "raw"])
def test_other_services_have_no_requester(service: str) -> None:
    with pytest.raises(FuzzError, match="is none of rc, uc, ud, xrc"):
        RequesterFuzzer({"kind": "requester", "service": service})


def test_a_target_of_xrc_has_no_model_of_a_requester() -> None:
    with pytest.raises(FuzzError, match="type XRC_TGT have no model of a requester"):
        fresh_requester(Setup(service=QPType.XRC_TGT))


def judged(service: QPType, *inputs: Input) -> RequesterSession:
    """A session that played the inputs without a difference from the model."""
    target = EngineTarget()
    session = RequesterSession(target)
    assert judge(target, Case(Setup(service=service), inputs), session) is None
    return session


@pytest.mark.parametrize("service", [QPType.UC, QPType.UD])
def test_a_local_error_of_an_unreliable_service_stops_the_sends(service: QPType) -> None:
    session = judged(service, WorkInput("SEND", ((0, 0, 8),), key=1), WorkInput("SEND"))
    assert session.model.state is QPState.SQE


def test_a_datagram_is_one_packet_at_most() -> None:
    whole = ((0, 0, 2048), (0, 0, 2048))
    assert judged(QPType.UD, WorkInput("SEND", whole)).model.newest == 1
    longer = judged(QPType.UD, WorkInput("SEND", (*whole, (0, 0, 1))))
    assert (longer.model.state, longer.model.newest) == (QPState.SQE, 0)


@pytest.mark.parametrize("service", [QPType.UC, QPType.UD, QPType.XRC_INI])
def test_responses_of_another_service_are_ignored(service: QPType) -> None:
    ack = AnswerInput(Opcode.RC_ACKNOWLEDGE)
    nak = AnswerInput(Opcode.RC_ACKNOWLEDGE, syndrome=0x61)
    session = judged(service, WorkInput("SEND"), ack, nak, WorkInput("SEND"))
    assert not session.model.failed
    assert len(session.model.work) == (2 if service is QPType.XRC_INI else 0)
