"""Bugs planted in a requester are found, minimised and replayed; a healthy one has none."""

from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.finding import read_finding, replay
from rdmawire.fuzz.fuzzer import RequesterFuzzer, make_fuzzer
from rdmawire.fuzz.inputs import Case, PacketInput, ReceiveInput
from rdmawire.fuzz.oracle import judge
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS
from rdmawire.fuzz.requester_oracle import RequesterSession
from rdmawire.fuzz.setup import Setup
from rdmawire.fuzz.target import RequesterTarget

SEED = 1
RUNS = 300
HEALTHY = {"kind": "requester"}
BUGS = [bug.name for bug in PLANTED_BUGS.values() if bug.kind == "requester"]


def test_a_healthy_requester_has_no_findings() -> None:
    campaign = Campaign(HEALTHY, SEED, runs=1000)
    assert campaign.run() == []
    assert campaign.progress.executed > 10_000
    assert campaign.progress.reached > 40


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_and_minimised(bug: str) -> None:
    fuzzer = make_fuzzer({"kind": "requester", "bug": bug})
    found = fuzzer.batch(SEED, 0, RUNS).found
    assert found
    smallest = fuzzer.minimised(found[0])
    assert len(smallest.case["inputs"]) <= 12
    shown, frames = fuzzer.replay(smallest.case)
    assert shown == smallest.violation
    answered = any(one["input"] == "answer" for one in smallest.case["inputs"])
    assert {frame.sent for frame in frames} == ({False, True} if answered else {True})
    assert make_fuzzer(HEALTHY).replay(smallest.case)[0] is None
    assert len(fuzzer.describe(smallest.case)) == len(smallest.case["inputs"])


def test_a_finding_is_written_and_played_again(tmp_path: Path) -> None:
    spec = {"kind": "requester", "bug": "naks-repeated"}
    findings = Campaign(spec, SEED, tmp_path, runs=RUNS, max_findings=1).run()
    folder = tmp_path / findings[0].name
    assert read_finding(folder) == findings[0]
    assert replay(findings[0]) == findings[0].violation
    assert replay(findings[0]._replace(spec=dict(HEALTHY))) is None
    with open_capture(folder / "packets.pcapng") as reader:
        assert "expected: " in list(reader)[-1].comments[0]


def test_the_same_seed_finds_the_same() -> None:
    spec = {"kind": "requester", "bug": "short-read"}
    one, other = (Campaign(spec, SEED, runs=RUNS).run() for _ in range(2))
    assert one == other


def test_an_engine_can_be_a_requester() -> None:
    assert isinstance(EngineTarget(), RequesterTarget)


@pytest.mark.parametrize("one", [PacketInput(0), ReceiveInput(8)])
def test_inputs_of_the_other_role_are_refused(one: PacketInput | ReceiveInput) -> None:
    target = EngineTarget()
    with pytest.raises(FuzzError, match="a requester has no input of kind"):
        judge(target, Case(Setup(), (one,)), RequesterSession(target))


def test_other_services_have_no_requester_yet() -> None:
    with pytest.raises(FuzzError, match="requesters of rc alone"):
        RequesterFuzzer({"kind": "requester", "service": "ud"})
