"""The responder as a target of bytes: they are a case as JSON, played beside the model."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any, Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz import Case, EngineTarget
from rdmawire.fuzz.inputs import Input
from rdmawire.fuzz.oracle import Session, judge
from rdmawire.fuzz.responder_inputs import ResponderInputs, random_setup
from rdmawire.fuzz.service_model import ALL, services_named

MAX_INPUTS: Final = 16
"""Inputs of a seed case."""
_SEEDS: Final = 64


@cache
def _target() -> EngineTarget:
    return EngineTarget()


def responder(data: bytes) -> None:
    """Play a case; the replies, completions and memory must be those of the model."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        shown = judge(_target(), Case.from_json(values))
    except FuzzError:  # no case, or one with a field that no header has
        return
    assert shown is None, shown


def case_bytes(case: Case) -> bytes:
    """Return a case as the bytes that :func:`responder` takes."""
    return json.dumps(case.as_json(), separators=(",", ":")).encode()


def cases() -> Iterator[bytes]:
    """Yield random cases of each service, as seeds."""
    for number in range(_SEEDS):
        yield case_bytes(random_case(Random(f"seed/{number}"), number))


def random_case(random: Random, number: int = 0) -> Case:
    """Return a random case of the service ``number``, in turn."""
    services = services_named(ALL)
    setup = random_setup(random, services[number % len(services)])
    session = Session(_target())
    session.begin(setup)
    draw = ResponderInputs(random, session.model, receives=True).next
    inputs: list[Input] = []
    for _ in range(random.randrange(1, MAX_INPUTS + 1)):
        inputs.append(draw())
        session.play(inputs[-1])
    return Case(setup, tuple(inputs))


def mutated_case(data: bytes, random: Random) -> bytes:
    """Return a case with an input removed, repeated, moved, changed or taken from another case.

    Bytes that are not a case become a random one.
    """
    try:
        values = Case.from_json(json.loads(data)).as_json()
    except (ValueError, RecursionError, FuzzError):
        return case_bytes(random_case(random, random.randrange(8)))
    inputs = values["inputs"]
    if inputs:
        random.choice(_CHANGES)(inputs, random)
    else:
        _taken(inputs, random)
    return json.dumps(values, separators=(",", ":")).encode()


def _removed(inputs: list[Any], random: Random) -> None:
    del inputs[random.randrange(len(inputs))]


def _repeated(inputs: list[Any], random: Random) -> None:
    place = random.randrange(len(inputs))
    inputs.insert(place, inputs[place])


def _moved(inputs: list[Any], random: Random) -> None:
    inputs.insert(random.randrange(len(inputs)), inputs.pop(random.randrange(len(inputs))))


def _changed(inputs: list[Any], random: Random) -> None:
    """Change a number of an input by a little; a number out of bounds makes no case."""
    place = random.randrange(len(inputs))
    names = [name for name, value in inputs[place].items() if type(value) is int]
    if names:
        name = random.choice(names)
        value = inputs[place][name] + random.choice((-4, -1, 1, 4))
        inputs[place] = {**inputs[place], name: value}


def _taken(inputs: list[Any], random: Random) -> None:
    other = random_case(random, random.randrange(8)).as_json()["inputs"]
    inputs.insert(random.randrange(len(inputs) + 1), random.choice(other))


_CHANGES: Final[tuple[Callable[[list[Any], Random], None], ...]] = (
    _removed,
    _repeated,
    _moved,
    _changed,
    _changed,
    _taken,
)
