"""Words of a responder as cases: what the standard requires where two machines differ."""

from dataclasses import replace
from typing import NamedTuple

from rdmawire.fuzz.exchange import Expected
from rdmawire.fuzz.inputs import Case, Input, PacketInput
from rdmawire.fuzz.learn.machine import Word
from rdmawire.fuzz.learn.responder_system import ResponderSystem
from rdmawire.fuzz.oracle import Session, Violation, judge
from rdmawire.fuzz.replay_scenario import ModelRun
from rdmawire.wire import serial


class Judged(NamedTuple):
    """A word as a case. ``expected`` is what the standard requires of its last input.

    ``violation`` is the first violation of the target, ``None`` without one.
    """

    case: Case
    expected: Expected
    violation: Violation | None

    @property
    def is_shown(self) -> bool:
        """Whether the last input shows the first violation."""
        return self.violation is not None and self.violation.place == len(self.case.inputs) - 1


def judged(system: ResponderSystem, word: Word) -> Judged:
    """Play a word on a system, and judge it by the standard."""
    case = case_of_word(system, word)
    return Judged(case, ModelRun(case).steps[-1].expected, judge(system.target, case))


def case_of_word(system: ResponderSystem, word: Word) -> Case:
    """Play a word on a system; return the case with the same packets.

    PSNs of a word are relative to what the target's replies show that it expects, those of a case
    to what the model expects.
    """
    system.reset()
    for name in word:
        system.step(name)
    played = tuple(system.played)
    session = Session(system.target)
    session.begin(system.setup)
    inputs: list[Input] = []
    for one, psn in played:
        ahead = serial.distance(session.model.epsn, psn)
        inputs.append(replace(one, ahead=ahead) if isinstance(one, PacketInput) else one)
        session.play(inputs[-1])
    return Case(system.setup, tuple(inputs))
