"""Minimise a case: the fewest and simplest inputs that show the same violation.

First inputs are removed, in halves, quarters and so on (delta debugging: Zeller and Hildebrandt,
"Simplifying and Isolating Failure-Inducing Input", 2002), then the values of each are replaced by
simpler ones. A change is kept if the violation keeps its signature.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from rdmawire.fuzz.inputs import Case, Input, PacketInput, ReceiveInput
from rdmawire.fuzz.oracle import Session, Violation, judge
from rdmawire.fuzz.setup import Setup
from rdmawire.fuzz.target import Target

MAX_TRIALS: Final = 5000
"""Cases that are played at most to minimise one."""

_SHORT: Final = 12
"""Inputs of a case that is short enough to try each run of inputs."""

Shows = Callable[[Case], bool]


def minimise(target: Target, case: Case, found: Violation) -> tuple[Case, Violation]:
    """Return a minimal case with the signature of ``found``, and its violation.

    The result is ``case`` up to the violation, if nothing simpler shows it.
    """
    session = Session(target)
    trials = iter(range(MAX_TRIALS))

    def shows(other: Case) -> bool:
        if next(trials, None) is None:
            return False
        again = judge(target, other, session)
        return again is not None and again.signature == found.signature

    best = case.with_inputs(case.inputs[: found.place + 1])
    before = None
    while before != best:
        before = best
        best = _with_receives_first(best, shows)
        best = _with_fewer(best, shows)
        best = _with_simpler_setup(best, shows)
        best = _with_simpler_inputs(best, shows)
    violation = judge(target, best, session)
    return (best, violation) if violation is not None else (case, found)


def _with_receives_first(case: Case, shows: Shows) -> Case:
    """Post all receives first, so that the packets of a message are neighbours."""
    other = case.with_inputs(sorted(case.inputs, key=lambda one: one.kind != ReceiveInput.kind))
    return other if other != case and shows(other) else case


def _with_fewer(case: Case, shows: Shows) -> Case:
    """Remove runs of inputs, long ones first; of a short case, runs of every length."""
    size = max(len(case.inputs) // 2, 1)
    while size:
        place = 0
        while place < len(case.inputs):
            other = case.with_inputs(case.inputs[:place] + case.inputs[place + size :])
            if other.inputs and shows(other):
                case = other
            else:
                place += 1 if len(case.inputs) < _SHORT else size
        size = size - 1 if len(case.inputs) < _SHORT else size // 2
    return case


def _with_simpler_setup(case: Case, shows: Shows) -> Case:
    """Replace values of the setup by their defaults."""
    usual = Setup(service=case.setup.service)
    for field in fields(Setup):
        value = getattr(usual, field.name)
        if getattr(case.setup, field.name) != value:
            other = replace(case, setup=replace(case.setup, **{field.name: value}))
            case = other if shows(other) else case
    return case


def _with_simpler_inputs(case: Case, shows: Shows) -> Case:
    """Replace each input by simpler ones."""
    for place in range(len(case.inputs)):
        for simpler in _simpler(case.inputs, place):
            other = _replaced(case, place, simpler(case.inputs[place]))
            if other != case and shows(other):
                case = other
    return case


def _replaced(case: Case, place: int, one: Input) -> Case:
    return case.with_inputs((*case.inputs[:place], one, *case.inputs[place + 1 :]))


def _simpler(inputs: Sequence[Input], place: int) -> Iterator[Callable[[Input], Input]]:
    """Yield functions that make an input simpler."""
    one = inputs[place]
    if isinstance(one, ReceiveInput):
        for length in (0, 64):
            yield _with(length=length)
    elif isinstance(one, PacketInput):
        for number in range(len(one.fields)):
            yield _without_field(one, number)
        yield from (_with(**{name: value}) for name, value in _SIMPLE)
        for length in (0, 1, 8, 64):
            if length < one.length:
                yield _with(length=length)


def _with(**values: Any) -> Callable[[Input], Input]:
    return lambda one: replace(one, **values)


def _without_field(one: PacketInput, number: int) -> Callable[[Input], Input]:
    left = one.fields[:number] + one.fields[number + 1 :]
    return lambda other: replace(other, fields=left) if isinstance(other, PacketInput) else other


_SIMPLE: Final[tuple[tuple[str, Any], ...]] = (
    ("extra", ()),
    ("checksum", "GOOD"),
    ("cut", 0),
    ("ahead", 0),
    ("key", 0),
    ("offset", 0),
    ("dmalen", None),
    ("region", 0),
    ("seed", 0),
    ("value", 0),
    ("compare", 0),
    ("srq", 0),
    ("ackreq", 1),
)
"""The simplest value of each field of a packet."""
