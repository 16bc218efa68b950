"""The responder's machine: kept as files, the same at each first PSN, and what a fault changes.

The files were made by ``rdmawire fuzz learn --profile PROFILE --inputs ALPHABET -o FILE``, with the
``--service`` whose usual alphabet it is. A test takes
each transition of a machine, and distinguishes the state behind it from all others.
"""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.inputs import PacketInput
from rdmawire.fuzz.learn.compare import check, differences
from rdmawire.fuzz.learn.learner import ALGORITHMS, NonDeterminismError, Plan, learn
from rdmawire.fuzz.learn.machine import MealyMachine, Word
from rdmawire.fuzz.learn.responder_alphabet import ALPHABETS, INPUTS, SETUP, USUAL, alphabet
from rdmawire.fuzz.learn.responder_case import case_of_word, judged
from rdmawire.fuzz.learn.responder_system import ResponderSystem
from rdmawire.fuzz.setup import Network
from rdmawire.fuzz.target import ObservableTarget
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import PROFILES
from rdmawire.wire.serial import MODULUS
from tests.fuzz.parameters import slow
from tests.fuzz.planted import SHORT_WRITES
from tests.fuzz.test_target import Peer

MACHINES = Path(__file__).parent / "machines"
KEPT = [(profile, name) for profile in ("ibta", "rxe") for name in ALPHABETS]
SERVICES = {name: service for service, name in USUAL.items()}
WRITES = ("WRITE_ONLY", "WRITE_FIRST", "WRITE_LAST", "WRITE_LAST_SHORT", "DUP", "GAP")


@cache
def kept(profile: str, name: str) -> MealyMachine:
    return MealyMachine.from_dot((MACHINES / f"{profile}-{name}.dot").read_text())


def system(profile: str, name: str, **values: Any) -> ResponderSystem:
    found = ALPHABETS[name]
    setup = replace(SETUP, service=SERVICES.get(name, QPType.RC), **values)
    target = EngineTarget(profile=PROFILES[profile], name=profile)
    return ResponderSystem(target, found.inputs, setup=setup, shows_credits=found.credits)


def learned(found: ResponderSystem, algorithm: str = "kv") -> MealyMachine:
    return learn(found, random=Random(1), plan=Plan(algorithm=algorithm, walks=100)).machine


def answers(found: ResponderSystem, word: Word) -> Word:
    found.reset()
    return tuple(found.step(name) for name in word)


def different(found: ResponderSystem, machine: MealyMachine) -> list[tuple[Word, Word, Word]]:
    """The tests of a machine that a system answers otherwise: the word, and both outputs."""
    return [
        (word, machine.outputs(word), given)
        for word in machine.tests(0)
        if (given := answers(found, word)) != machine.outputs(word)
    ]


@pytest.mark.parametrize(("profile", "name"), KEPT)
def test_a_profile_has_the_machine_that_is_kept(profile: str, name: str) -> None:
    machine = kept(profile, name)
    assert machine.inputs == ALPHABETS[name].inputs
    assert machine == machine.minimal()
    assert different(system(profile, name), machine) == []


@pytest.mark.parametrize("psn", [MODULUS - 2, *slow([0, MODULUS - 1, MODULUS // 2 - 1])])
@pytest.mark.parametrize("name", ["usual", "duplicates", "unreliable", "shared"])
def test_the_machine_is_the_same_where_psns_wrap(name: str, psn: int) -> None:
    assert different(system("ibta", name, psn=psn), kept("ibta", name)) == []


@pytest.mark.parametrize(
    "network",
    [
        Network.IB_LOCAL,
        Network.ROCE2_IPV6,
        *slow([Network.IB_GLOBAL, Network.ROCE1, Network.ROCE2_IPV4]),
    ],
)
def test_the_machine_is_the_same_on_each_network(network: Network) -> None:
    for profile, name in (
        *(("rxe", "messages"), ("ibta", "messages"), ("ibta", "unreliable")),
        *(("rxe", "datagrams"), ("ibta", "datagrams"), ("ibta", "shared")),
    ):
        assert different(system(profile, name, network=network), kept(profile, name)) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("psn", [MODULUS - 2, *slow([1000])])
@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("ibta", "messages"),
        pytest.param("rxe", "credits", marks=pytest.mark.slow),
        pytest.param("rxe", "datagrams", marks=pytest.mark.slow),
    ],
)
def test_the_machine_is_learned(profile: str, name: str, psn: int, algorithm: str) -> None:
    found = system(profile, name, psn=psn)
    assert learned(found, algorithm) == kept(profile, name)


@pytest.mark.parametrize("service", USUAL)
def test_each_word_of_a_service_is_as_the_standard_requires(service: QPType) -> None:
    """A check of the outputs: those of healthy adapters are what the models expect."""
    name = USUAL[service]
    found = system("ibta", name)
    for word in list(kept("ibta", name).tests(0))[:: 11 if service is QPType.RC else 5]:
        assert judged(found, word).violation is None


def test_the_usual_inputs_are_those_of_the_service() -> None:
    for service, name in USUAL.items():
        setup = replace(SETUP, service=service)
        assert ResponderSystem(EngineTarget(), setup=setup).inputs == ALPHABETS[name].inputs
    with pytest.raises(FuzzError, match="type XRC_INI have no model"):
        ResponderSystem(EngineTarget(), setup=replace(SETUP, service=QPType.XRC_INI))


def test_each_input_belongs_to_an_alphabet() -> None:
    assert {name for each in ALPHABETS.values() for name in each.inputs} == set(INPUTS)
    assert alphabet("writes") is ALPHABETS["writes"]
    assert alphabet("GAP,DUP,GAP").inputs == ("GAP", "DUP")
    with pytest.raises(FuzzError, match="no input of a responder is named 'GAPS'"):
        alphabet("GAPS")


def test_the_profiles_differ_in_what_soft_roce_does_otherwise() -> None:
    words = {
        " ".join(found.word): (found.one, found.other)
        for found in differences(kept("ibta", "usual"), kept("rxe", "usual"))
    }
    assert words["SEND_ONLY GAP"] == ("-", "NAK_SEQUENCE@0")  # naks_gaps_after_rnr
    assert words["RESERVED_OPCODE"] == ("NAK_INVALID@0", "-")  # naks_malformed_requests
    assert words["FETCH_ADD DUP"] == ("-", "ACK@-1")  # validates_duplicates
    assert words["WRITE_ONLY RECV"] == ("ok,ACK@-1", "ok")  # end_to_end_credits


def test_the_page_draws_the_machine_that_is_kept() -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "learn-state-machines.md").read_text()
    (drawn,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    inputs = ("SEND_ONLY", "GAP_SEND", "RECV")
    assert drawn == kept("rxe", "messages").restricted(inputs).minimal().as_mermaid()


def test_a_fault_is_found_by_comparison_with_the_machine_that_is_kept() -> None:
    faulty = ResponderSystem(EngineTarget(rules=SHORT_WRITES, name="faulty"), WRITES)
    machine = learned(faulty)
    healthy = kept("ibta", "writes").restricted(WRITES)
    found = next(differences(healthy, machine))
    assert found.word == ("WRITE_FIRST", "WRITE_LAST_SHORT")
    assert (found.one, found.other) == ("NAK_INVALID@0", "ACK@0.MSN+1,+region0")
    check(faulty, machine, found.word)
    verdict = judged(faulty, found.word)
    assert verdict.is_shown
    assert verdict.violation is not None
    assert verdict.violation.clause == verdict.expected.clause == "IBA 9.7.4.1.6"
    assert [one.opcode for one in verdict.case.inputs if isinstance(one, PacketInput)] == [6, 8]
    assert judged(system("ibta", "writes"), found.word).violation is None


@pytest.mark.parametrize("word", [("DUP_READ2", "READ2"), ("READ2", "DUP_READ", "GHOST", "RECV")])
def test_a_case_has_the_packets_of_its_word(word: Word) -> None:
    found = ResponderSystem(EngineTarget(), tuple(INPUTS))
    case = case_of_word(found, word)
    assert len(case.inputs) == len(word)
    ahead = [one.ahead for one in case.inputs if isinstance(one, PacketInput)]
    inputs = [INPUTS[name] for name in word]
    assert ahead == [one.ahead for one in inputs if isinstance(one, PacketInput)]
    assert judged(found, word).violation is None


def test_what_only_takes_frames_is_learned_by_its_replies() -> None:
    inputs = ("SEND_ONLY", "WRITE_ONLY", "WRITE_FIRST", "WRITE_LAST", "READ2", "GAP", "DUP")
    plain = Peer()
    assert not isinstance(plain, ObservableTarget)
    machine = learned(ResponderSystem(plain, inputs))
    seen = learned(ResponderSystem(EngineTarget(), inputs))
    assert len(machine) == len(seen)
    shown = [replaced.one for replaced in differences(seen, machine)]
    assert all("+region0" in output for output in shown)
    with pytest.raises(FuzzError, match="takes packets alone, no input RECV"):
        ResponderSystem(plain, ("RECV",))


class Lossy(EngineTarget):
    """Loses every 300th packet."""

    count = 0

    def send(self, frame: bytes) -> list[bytes]:
        self.count += 1
        return super().send(frame) if self.count % 300 else []


def test_a_target_that_is_not_deterministic_is_reported_with_the_sequence() -> None:
    with pytest.raises(NonDeterminismError, match="lossy is not deterministic") as found:
        learned(ResponderSystem(Lossy(name="lossy"), ALPHABETS["messages"].inputs))
    error = found.value
    assert error.first[:-1] == error.second[:-1]
    assert error.first[-1] != error.second[-1]
    healthy = ResponderSystem(EngineTarget(), ALPHABETS["messages"].inputs)
    assert answers(healthy, error.word) in (error.first, error.second)
