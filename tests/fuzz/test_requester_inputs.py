"""Work and responses as inputs: written as JSON and read again, and refused if invalid."""

import json
from random import Random
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.inputs import AnswerInput, Case, Input, WorkInput, input_from_json
from rdmawire.fuzz.oracle import judge
from rdmawire.fuzz.requester_inputs import RequesterInputs, random_requester_setup
from rdmawire.fuzz.requester_oracle import RequesterSession
from rdmawire.fuzz.requester_services import REQUESTER_MODELS
from rdmawire.fuzz.setup import MAX_SEND_WR, Setup
from rdmawire.verbs.enums import QPType
from rdmawire.wire.opcode import Opcode


def random_case(seed: int, service: QPType) -> Case:
    random = Random(seed)
    setup = random_requester_setup(random, service)
    session = RequesterSession(EngineTarget())
    session.begin(setup)
    inputs, played = RequesterInputs(random, session.model), list[Input]()
    for _ in range(40):
        played.append(inputs.next())
        assert session.play(played[-1]) is None
    return Case(setup, tuple(played))


@pytest.mark.parametrize("service", REQUESTER_MODELS)
def test_cases_are_the_same_after_json(service: QPType) -> None:
    kinds = set()
    for seed in range(20):
        case = random_case(seed, service)
        assert Case.from_json(json.loads(json.dumps(case.as_json()))) == case
        assert all(str(one) for one in case.inputs)
        kinds |= {one.kind for one in case.inputs}
    assert kinds == {"work", "answer", "wait"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input": "work", "verb": "SENT"}, "verb is one of SEND"),
        ({"input": "work"}, "verb is missing"),
        ({"input": "work", "verb": "SEND", "sges": [[0, 0]]}, "sges are lists of three numbers"),
        ({"input": "work", "verb": "SEND", "sges": 7}, "sges are lists of three numbers"),
        ({"input": "work", "verb": "SEND", "sges": [[3, 0, 8]]}, "an SGE is a region"),
        ({"input": "work", "verb": "SEND", "sges": [[1, 500, 100]]}, "an SGE is a region"),
        ({"input": "work", "verb": "SEND", "sges": [[0, 0, 4161]]}, "at most 4 SGEs with 4160"),
        ({"input": "work", "verb": "ATOMIC_WRITE"}, "its SGEs have 8 bytes"),
        ({"input": "work", "verb": "FLUSH", "sges": [[0, 0, 8]]}, "it has no SGEs"),
        ({"input": "work", "verb": "RDMA_READ", "inline": 1}, "sends no data that could be inline"),
        ({"input": "work", "verb": "SEND", "sges": [[0, 0, 513]], "inline": 1}, "512 bytes inline"),
        ({"input": "work", "verb": "SEND", "srq": 4}, "srq is a number from 0 to 3"),
        ({"input": "work", "verb": "SEND", "qkey": -1}, "qkey is a number from 0 to 4294967295"),
        ({"input": "work", "verb": "SEND", "fence": 2}, "fence is a number from 0 to 1"),
        ({"input": "answer", "opcode": 4}, "opcode 0x04 is not that of a response"),
        ({"input": "answer", "opcode": 17, "syndrome": 256}, "syndrome is a number from 0 to 255"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FuzzError, match=message):
        input_from_json(values)


def test_work_without_room_is_left_out() -> None:
    target = EngineTarget()
    session = RequesterSession(target)
    inputs = (WorkInput("SEND"),) * (MAX_SEND_WR + 3)
    assert judge(target, Case(Setup(), inputs), session) is None
    assert session.model.posted == MAX_SEND_WR


def test_unsignaled_work_holds_its_slot_until_a_later_completion() -> None:
    target = EngineTarget()
    session = RequesterSession(target)
    ack = AnswerInput(Opcode.RC_ACKNOWLEDGE)
    silent = (WorkInput("SEND", signaled=0), ack) * (MAX_SEND_WR - 1)
    inputs = (*silent, WorkInput("SEND"), WorkInput("SEND"), ack, WorkInput("SEND"))
    assert judge(target, Case(Setup(), inputs), session) is None
    assert session.model.posted == MAX_SEND_WR + 1
    assert session.model.room == MAX_SEND_WR - 1
