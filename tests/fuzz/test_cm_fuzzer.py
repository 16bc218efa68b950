"""Connection managers are fuzzed by conversations, of which some messages are mutated."""

from typing import Any

import pytest

from rdmawire.capture.record import LinkType
from rdmawire.errors import FuzzError
from rdmawire.fuzz.cm_fuzzer import CMFuzzer
from rdmawire.fuzz.cm_model import EFFECTS, CMModel, Effect, effect_of, machine_of
from rdmawire.fuzz.frame_map import map_frame
from rdmawire.fuzz.frame_mutation import Mutant, Mutation, SeedFrame
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.learn.cm_system import ALPHABETS, CMSystem
from rdmawire.fuzz.planted_bugs import planted
from rdmawire.ib.cm import STANDARD
from rdmawire.ib.cm.connection import Connection
from rdmawire.ib.cm.machine import StateMachine
from rdmawire.ib.cm.messages import ReceivedMad
from rdmawire.ib.cm.state_machine import CMState, Input, NextState
from tests.fuzz.parameters import slow

FRAME = SeedFrame(b"", LinkType.ETHERNET, "a message")


def mutant(*mutations: Mutation, checksum: str = "GOOD") -> Mutant:
    return Mutant(FRAME, mutations, checksum)


def conversation(*inputs: str | dict[str, Any], role: str = "passive") -> dict[str, Any]:
    return {
        "role": role,
        "inputs": [{"input": one} if isinstance(one, str) else one for one in inputs],
    }


def with_field(name: str, header: str, row: str, value: int) -> dict[str, Any]:
    mutation = {"kind": "set", "header": header, "row": row, "value": value}
    return {"input": name, "mutations": [mutation]}


@pytest.mark.parametrize("runs", [80, *slow([400])])
@pytest.mark.parametrize("profile", ["ibta", "rxe"])
def test_healthy_managers_have_no_findings(profile: str, runs: int) -> None:
    batch = make_fuzzer({"kind": "cm", "profile": profile}).batch(7, 0, runs)
    assert batch.found == []
    assert batch.executed > 7 * runs


def test_a_run_is_the_same_by_the_same_seed() -> None:
    one, other = (make_fuzzer({"kind": "cm", "bug": "qp-stays-in-rts"}) for _ in range(2))
    whole = one.batch(1, 60, 30)
    assert whole == other.batch(1, 60, 30)
    assert whole.found
    assert one.batch(1, 75, 15).found == [found for found in whole.found if found.run >= 75]


def test_a_finding_is_minimised_described_and_played_again() -> None:
    fuzzer = make_fuzzer({"kind": "cm", "bug": "refused-is-resolved"})
    smallest = fuzzer.minimised(fuzzer.batch(1, 0, 20).found[0])
    assert smallest.case == conversation("RESOLVE", "SIDR_REP_REFUSED", role="sidr-active")
    assert fuzzer.describe(smallest.case) == ["RESOLVE", "SIDR_REP_REFUSED"]
    shown, frames = fuzzer.replay(smallest.case)
    assert shown == smallest.violation
    assert shown is not None
    assert (shown.expected, shown.happened) == ("Unresolved.REJECTED", "Resolved")
    assert [sent for _, _, sent, *_ in frames] == [True, False]
    labels = [{type(one.header).label for one in map_frame(frame.data).headers} for frame in frames]
    assert ["cm_sidr_req" in labels[0], "cm_sidr_rep" in labels[1]] == [True, True]


def test_an_exception_of_a_manager_is_a_finding() -> None:
    def find(machine: StateMachine, received: ReceivedMad) -> Connection | None:
        if received.ids[0] == 1:
            raise IndexError("slot 1")
        return STANDARD.find(machine, received)

    fuzzer = CMFuzzer({"kind": "cm"})
    system = CMSystem(ALPHABETS["passive"], cm_rules=STANDARD._replace(find=find))
    fuzzer._systems["passive"] = system
    case = conversation("REQ", "ACCEPT", with_field("RTU", "cm_rtu", "remote_comm_id", 1))
    shown, frames = fuzzer.replay(case)
    assert shown is not None
    assert shown.what == "exception"
    assert shown.happened.startswith("IndexError: slot 1 in test_cm_fuzzer:find")
    assert len(frames) == 3
    assert fuzzer.describe(case)[-1].endswith("; IndexError: slot 1")


def test_a_connection_that_its_owner_cannot_end_is_a_finding() -> None:
    row = NextState(CMState.TIMEWAIT)
    stuck = STANDARD.with_transition(CMState.TIMEWAIT, Input.EXPIRED, row)
    fuzzer = CMFuzzer({"kind": "cm"})
    fuzzer._systems["active"] = CMSystem(ALPHABETS["active"], cm_rules=stuck)
    shown, _ = fuzzer.replay(conversation("CONNECT", "REP", "DISCONNECT", "DREP", role="active"))
    assert shown is not None
    assert shown.happened == "1 left"


@pytest.mark.parametrize(
    ("role", "one", "effect"),
    [
        ("passive", Mutation("set", "cm_rtu", row="remote_comm_id", value=5), Effect.INVALID),
        ("passive", Mutation("set", "cm_rtu", row="remote_comm_id", value=0), Effect.ANY),
        ("passive", Mutation("set", "cm_rtu", row="local_comm_id", value=5), Effect.INVALID),
        ("active", Mutation("set", "cm_rtu", row="local_comm_id", value=5), Effect.ANY),
        ("passive", Mutation("set", "cm_req", row="p_key", value=0x7FFF), Effect.NONE),
        ("passive", Mutation("set", "cm_req", row="p_key", value=0x7FFE), Effect.INVALID),
        ("passive", Mutation("set", "cm_req", row="starting_psn", value=1), Effect.NONE),
        ("passive", Mutation("set", "mad", row="transaction_id", value=1), Effect.ANY),
        ("passive", Mutation("set", "ipv4", row="ttl", value=1), Effect.ANY),
        ("passive", Mutation("truncate", offset=70), Effect.ANY),
    ],
)
def test_effect_of_a_mutation(role: str, one: Mutation, effect: Effect) -> None:
    assert effect_of(role, mutant(one))[0] is effect
    invalid = Mutation("set", "deth", row="qkey", value=1)
    both = effect_of(role, mutant(one, invalid))[0]
    assert both is (Effect.ANY if effect is Effect.ANY else Effect.INVALID)
    assert effect_of(role, mutant(one, checksum="BROKEN"))[0] is Effect.INVALID


def test_each_rule_is_for_a_row_of_a_message() -> None:
    known = set()
    for inputs in ALPHABETS.values():
        system = CMSystem(inputs)
        system.reset()
        for frame in filter(None, map(system.frame, inputs)):
            headers = (type(one.header) for one in map_frame(frame).headers)
            known |= {(table.label, row.name) for table in headers for row in table.rows}
    assert {key for key in EFFECTS if key[0] != "cm_primary_path"} <= known


def test_after_a_mutated_message_both_states_are_possible_until_an_answer_shows_one() -> None:
    model = CMModel("passive")
    machine = machine_of("passive")
    plain = mutant(Mutation("set", "cm_rtu", row="resv", value=1))
    for name in ("REQ", "ACCEPT"):
        state = min(model.states or {0})
        assert model.step(name, machine.transitions[state][name].output) is None
    before = set(model.states or ())
    assert model.mutated("RTU", "-", plain) is None
    assert model.states == before
    assert model.mutated("RTU", "Established", plain) is None
    after = {machine.state_after(("REQ", "ACCEPT", "RTU"))}
    assert model.states == after
    wrong = model.mutated("DREQ", "Rejected", plain)
    assert wrong is not None
    assert wrong.expected == "Disconnected or no answer or a refusal"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ([], "expected an object whose role is one of active, "),
        ({"role": []}, "expected an object whose role is one of active, "),
        ({"role": "passive"}, "inputs are a list of at most 24"),
        (conversation("HELLO"), "'HELLO' is not an input of the role passive"),
        (conversation({"input": "REQ", "checksum": "x"}), "checksum is GOOD or BROKEN, not 'x'"),
        (conversation({"input": "REQ", "mutations": 7}), "mutations are a list of at most 64"),
        (conversation({"input": "REQ", "mutations": [{"kind": "x"}]}), "mutation: expected"),
    ],
)
def test_a_damaged_case_is_refused(case: Any, message: str) -> None:
    with pytest.raises(FuzzError, match=message):
        make_fuzzer({"kind": "cm"}).replay(case)


def test_a_setting_that_managers_lack_is_refused() -> None:
    with pytest.raises(FuzzError, match="cm has no setting 'service': it has profile, bug"):
        make_fuzzer({"kind": "cm", "service": "rc"})


def test_a_learned_manager_can_have_a_planted_bug() -> None:
    from rdmawire.fuzz.learn.systems import role

    spec = {"kind": "cm", "bug": "qp-stays-in-rts"}
    system = role("cm").system(spec, "active", None)
    system.reset()
    outputs = [system.step(name) for name in ("CONNECT", "REP", "DISCONNECT")]
    assert outputs[-1] == "DREQ"
    assert planted("qp-stays-in-rts").cm is not STANDARD
