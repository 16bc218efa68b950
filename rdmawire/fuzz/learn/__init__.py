"""Active automata learning: the state machine of a target, inferred from its answers.

:func:`learn` infers the :class:`MealyMachine` of a :class:`System`, such as the responder of a
target::

    system = ResponderSystem(EngineTarget(), ("SEND_ONLY", "GAP_SEND", "RECV"))
    machine = learn(system, random=Random(1)).machine

:func:`differences` yields the shortest words that two machines answer differently.
"""

from rdmawire.fuzz.learn.cm_system import CMSystem
from rdmawire.fuzz.learn.compare import (
    Agreed,
    MachineDifference,
    check,
    differences,
    learn_both,
    read_agreed,
    without_use,
)
from rdmawire.fuzz.learn.learner import (
    Learned,
    LearnProgress,
    MachineSystem,
    NonDeterminismError,
    Plan,
    System,
    learn,
)
from rdmawire.fuzz.learn.machine import MealyMachine, Transition
from rdmawire.fuzz.learn.mpa_system import MPASystem
from rdmawire.fuzz.learn.requester_system import RequesterSystem
from rdmawire.fuzz.learn.responder_system import ResponderSystem

__all__ = [
    "Agreed",
    "CMSystem",
    "LearnProgress",
    "Learned",
    "MPASystem",
    "MachineDifference",
    "MachineSystem",
    "MealyMachine",
    "NonDeterminismError",
    "Plan",
    "RequesterSystem",
    "ResponderSystem",
    "System",
    "Transition",
    "check",
    "differences",
    "learn",
    "learn_both",
    "read_agreed",
    "without_use",
]
