"""Cases of requesters as scenarios: they show a bug, and pass on a healthy adapter."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.finding import Finding, write_finding
from rdmawire.fuzz.fuzzer import Found, RequesterFuzzer
from rdmawire.fuzz.inputs import AnswerInput, Case, Input, WaitInput, WorkInput
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS
from rdmawire.fuzz.requester_inputs import RequesterInputs, random_requester_setup
from rdmawire.fuzz.requester_oracle import RequesterSession
from rdmawire.fuzz.requester_scenario import requester_scenario
from rdmawire.fuzz.requester_services import REQUESTER_MODELS
from rdmawire.fuzz.setup import Network, Setup
from rdmawire.ib.rules import Rules
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.verbs.enums import QPType
from rdmawire.wire.opcode import Opcode
from tests.fuzz.parameters import fast_or_slow, slow
from tests.fuzz.planted_bug_runs import FIRST_RUNS, SEED

BATCH = 50
SHOWN = Violation(0, "requests", "a request", "nothing", "IBA 9.7", "requests | SEND")
SEND = WorkInput("SEND", ((0, 0, 8),))
BUGS = [bug.name for bug in PLANTED_BUGS.values() if bug.kind == "requester"]
FAST = ["key-without-variant", "ack-too-far", "atomic-operands-exchanged", "rnr-nak-ignored"]


def last_finding(name: str, fuzzer: RequesterFuzzer) -> Found:
    """The last finding of the first batch that has any, minimised."""
    first = FIRST_RUNS.get(name, 0)
    found = (fuzzer.batch(SEED, at, BATCH).found for at in range(first, first + 2000, BATCH))
    return fuzzer.minimised(next(filter(None, found))[-1])


def passes(text: str, rules: dict[str, Rules]) -> bool:
    return play(read_scenario_text(text), rules=rules).passed


@pytest.mark.parametrize("name", fast_or_slow(BUGS, FAST))
def test_the_scenario_of_a_finding_shows_the_bug(name: str, tmp_path: Path) -> None:
    bug = PLANTED_BUGS[name]
    fuzzer = RequesterFuzzer(bug.spec)
    found = last_finding(name, fuzzer)
    finding = Finding(bug.spec, SEED, found.run, found.violation, found.case)
    folder = write_finding(tmp_path, finding, fuzzer)
    report = (folder / "report.txt").read_text()
    assert f"rdmawire run --bug server={bug.name} FOLDER/scenario.yaml" in report
    text = (folder / "scenario.yaml").read_text()
    assert passes(text, {})
    assert not passes(text, {"server": bug.rules})


def random_case(kind: QPType, seed: int) -> Case:
    """A case that a healthy requester has played, on a network that scenarios have."""
    random = Random(f"scenario {seed}")
    setup = replace(random_requester_setup(random, kind), network=list(Network)[seed % 3])
    session = RequesterSession(EngineTarget())
    session.begin(setup)
    inputs, played = RequesterInputs(random, session.model), list[Input]()
    for _ in range(20):
        one = inputs.next()
        played.append(replace(one, qkey=7) if isinstance(one, WorkInput) else one)
        assert session.play(played[-1]) is None
    return Case(setup, tuple(played))


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
@pytest.mark.parametrize("kind", REQUESTER_MODELS)
def test_random_cases_pass_on_a_healthy_adapter(kind: QPType, seed: int) -> None:
    text = requester_scenario(random_case(kind, seed), SHOWN)
    assert passes(text, {})
    assert text.count("  # ") >= 20


def test_the_time_of_retries_is_expected() -> None:
    text = requester_scenario(Case(Setup(timeout=8, retry_cnt=1), (SEND,)), SHOWN)
    assert "time: 2107152 ns" in text
    assert text.count("count: 2\n") == 1
    assert "status: RETRY_EXC_ERR" in text


def test_work_without_a_valid_key_is_played() -> None:
    wrong = WorkInput("SEND", ((0, 0, 8),), key=1)
    outside = WorkInput("RDMA_WRITE", ((1, -1, 8),))
    for one in (wrong, outside):
        text = requester_scenario(Case(Setup(service=QPType.UC), (one, SEND)), SHOWN)
        assert "status: LOC_PROT_ERR" in text
        assert "states: {client/a: ERR, server/a: SQE}" in text


def test_a_profile_shows_its_difference() -> None:
    spec = {"kind": "requester", "service": "rc", "profile": "rxe"}
    case = Case(Setup(retry_cnt=7, timeout=8), (SEND,))
    fuzzer = RequesterFuzzer(spec)
    text = fuzzer.scenario(case.as_json(), SHOWN)
    assert "    profile: rxe\n" in text
    assert "\ntime limit: " in text  # rxe would retry without end
    assert not passes(text, {})
    assert passes(text.replace("    profile: rxe\n", ""), {})


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case(Setup(network=Network.IB_LOCAL), (SEND,)), "Ethernet, not native InfiniBand"),
        (
            Case(Setup(service=QPType.UD), (SEND, replace(SEND, qkey=7))),
            "work with several Q_Keys",
        ),
        (Case(Setup(), (SEND, WaitInput(1 << 60))), "are more than"),
    ],
)
def test_what_a_scenario_cannot_play_is_refused(case: Case, why: str) -> None:
    with pytest.raises(FuzzError, match=why):
        requester_scenario(case, SHOWN)


def test_a_scenario_that_does_not_show_the_violation_is_refused() -> None:
    bug = PLANTED_BUGS["short-read"]
    ack = AnswerInput(Opcode.RC_ACKNOWLEDGE)
    with pytest.raises(FuzzError, match="it does not show the violation"):
        RequesterFuzzer(bug.spec).scenario(Case(Setup(), (SEND, ack)).as_json(), SHOWN)
