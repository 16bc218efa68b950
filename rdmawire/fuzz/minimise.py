"""Minimise a case: the fewest and simplest inputs that show the same violation.

First inputs are removed, in halves, quarters and so on (delta debugging: Zeller and Hildebrandt,
"Simplifying and Isolating Failure-Inducing Input", 2002), then the values of each are replaced by
simpler ones. A change is kept if the violation keeps its signature.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any, Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.inputs import AnswerInput, Case, Input, PacketInput, ReceiveInput, WorkInput
from rdmawire.fuzz.oracle import Player, Session, Violation, judge
from rdmawire.fuzz.setup import QKEY, Setup
from rdmawire.fuzz.target import Target

MAX_TRIALS: Final = 5000
"""Cases that are played at most to minimise one, unless another number is given."""

_SHORT: Final = 12
"""Inputs of a case that is short enough to try each run of inputs."""

_VERY_SHORT: Final = 9
"""Inputs before the last of a case that is short enough to try each choice of them."""

Shows = Callable[[Case], bool]


class Trials:
    """Counts the cases that are played to minimise: at most ``left`` more.

    None is left either when ``is_over`` returns true, such as at the time limit of a campaign.
    """

    def __init__(self, left: int = MAX_TRIALS, is_over: Callable[[], bool] = lambda: False) -> None:
        self.left = left
        self._is_over = is_over

    def take(self) -> bool:
        """Count a case; return ``False`` if none is left."""
        if self.left <= 0 or self._is_over():
            return False
        self.left -= 1
        return True

    def at_most(self, count: int) -> "Trials":
        """Return trials of which at most ``count`` are left; they count here, too."""
        return Trials(count, lambda: not self.take())


def minimise(
    target: Target,
    case: Case,
    found: Violation,
    session: Player | None = None,
    trials: Trials | None = None,
) -> tuple[Case, Violation]:
    """Return a minimal case with the signature of ``found``, and its violation.

    The result is ``case`` up to the violation, if nothing simpler shows it within ``trials``.
    ``session`` is that of the role that is fuzzed; by default that of a responder.
    """
    session = Session(target) if session is None else session
    trials = Trials() if trials is None else trials

    def shows(other: Case) -> bool:
        if not trials.take():
            return False
        again = judge(target, other, session)
        return again is not None and again.signature == found.signature

    best = case.with_inputs(case.inputs[: found.place + 1])
    before = None
    while before != best:
        before = best
        best = _with_receives_first(best, shows)
        best = _with_fewest(_with_fewer(best, shows), shows)
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
        index = 0
        while index < len(case.inputs):
            other = case.with_inputs(case.inputs[:index] + case.inputs[index + size :])
            if other.inputs and shows(other):
                case = other
            else:
                index += 1 if len(case.inputs) < _SHORT else size
        size = size - 1 if len(case.inputs) < _SHORT else size // 2
    return case


def _with_fewest(case: Case, shows: Shows) -> Case:
    """Try all choices of inputs of a very short case, few inputs first; the last one is kept.

    Responses are relative to the oldest work, so that work and its response go together.
    """
    if not 0 < len(case.inputs) <= _VERY_SHORT + 1:
        return case
    *others, last = case.inputs
    for count in range(len(others)):
        for chosen in combinations(others, count):
            other = case.with_inputs((*chosen, last))
            if shows(other):
                return other
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
    for index in range(len(case.inputs)):
        for simpler in _simpler(case.inputs, index):
            try:
                other = _replaced(case, index, simpler(case.inputs[index]))
            except FuzzError:  # work that no application can post
                continue
            if other != case and shows(other):
                case = other
    return case


def _replaced(case: Case, index: int, one: Input) -> Case:
    return case.with_inputs((*case.inputs[:index], one, *case.inputs[index + 1 :]))


def _simpler(inputs: Sequence[Input], index: int) -> Iterator[Callable[[Input], Input]]:
    """Yield functions that make an input simpler."""
    one = inputs[index]
    if isinstance(one, PacketInput | AnswerInput):
        for number in range(len(one.fields)):
            yield _without_field(one, number)
    if isinstance(one, WorkInput):
        yield _with(sges=((0, 0, one.length),))
    yield from (_with(**{name: value}) for name, value in _SIMPLE.get(type(one), ()))
    if isinstance(one, PacketInput):
        for length in (0, 1, 8, 64):
            if length < one.length:
                yield _with(length=length)


def _with(**values: Any) -> Callable[[Input], Input]:
    return lambda one: replace(one, **values)


def _without_field(one: PacketInput | AnswerInput, number: int) -> Callable[[Input], Input]:
    left = one.fields[:number] + one.fields[number + 1 :]
    return _with(fields=left)


_SIMPLE: Final[dict[type[Input], tuple[tuple[str, Any], ...]]] = {
    ReceiveInput: (("length", 0), ("length", 64)),
    PacketInput: (
        ("room", None),
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
        ("ackreq", 1),
        ("srq", 0),
    ),
    AnswerInput: (
        ("extra", ()),
        ("checksum", "GOOD"),
        ("cut", 0),
        ("ahead", 0),
        ("syndrome", 31),
        ("msn", 0),
        ("length", 0),
        ("seed", 0),
        ("value", 0),
    ),
    WorkInput: (
        ("sges", ((0, 0, 8),)),
        ("sges", ()),
        ("fence", 0),
        ("inline", 0),
        ("key", 0),
        ("offset", 0),
        ("value", 0),
        ("compare", 0),
        ("srq", 0),
        ("qkey", QKEY),
        ("signaled", 1),
    ),
}
"""The simplest values of each field of an input."""
