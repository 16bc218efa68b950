"""Golden machines: what was learned from each healthy system, in ``tests/fuzz/learn/machines``.

Those of connection managers are in ``rdmawire/fuzz/machines``.

``python -m tests.fuzz.learn.golden_machines`` learns all of them anew, and writes the files, in
three minutes; with names of files, those alone.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from rdmawire.fuzz import cm_model
from rdmawire.fuzz.learn import cm_system, mpa_system, requester_system
from rdmawire.fuzz.learn.cm_system import CMSystem
from rdmawire.fuzz.learn.compare import differences
from rdmawire.fuzz.learn.learner import Plan, System, learn
from rdmawire.fuzz.learn.machine import MealyMachine, Word
from rdmawire.fuzz.learn.mpa_system import MPASystem
from rdmawire.fuzz.learn.requester_system import RequesterSystem
from rdmawire.verbs.enums import QPType

FOLDER: Final = Path(__file__).parent / "machines"

SERVICE_OF: Final = {name: kind for kind, name in requester_system.USUAL.items()}
"""The queue pair that an alphabet of requesters is for, unless it is RC."""
SYSTEMS: Final[dict[str, Callable[[], System]]] = {
    **{
        f"requester-{name}": partial(
            RequesterSystem, inputs, service=SERVICE_OF.get(name, QPType.RC)
        )
        for name, inputs in requester_system.ALPHABETS.items()
    },
    **{f"mpa-{name}": partial(MPASystem, inputs) for name, inputs in mpa_system.ALPHABETS.items()},
    **{f"cm-{name}": partial(CMSystem, inputs) for name, inputs in cm_system.ALPHABETS.items()},
}
"""The healthy systems, by the name of the file."""


def golden(name: str) -> MealyMachine:
    """Return the machine of a system, as it was when its file was written."""
    return MealyMachine.from_dot(_path(name).read_text(encoding="ascii"))


def _path(name: str) -> Path:
    """The file of a machine; those of connection managers are the model of the fuzzer."""
    return (cm_model.FOLDER if name.startswith("cm-") else FOLDER) / f"{name}.dot"


def learned(system: System, *known: MealyMachine, walks: int = 50, depth: int = 0) -> MealyMachine:
    """Learn a system, with words of the machines ``known``."""
    plan = Plan(depth=depth, walks=walks, machines=known)
    return learn(system, random=Random(1), plan=plan).machine


def distinguishing_word(one: MealyMachine, other: MealyMachine) -> Word | None:
    """Return a shortest word that two machines answer differently; ``None`` if there is none."""
    found = next(differences(one, other), None)
    return None if found is None else found.word


def answers(system: System, word: Sequence[str]) -> list[str]:
    """Play a word on a system, from a reset."""
    system.reset()
    return [system.step(name) for name in word]


def unlike(system: System, machine: MealyMachine) -> Word | None:
    """Return a word that a system answers otherwise than a machine; ``None`` if none is found.

    It finds each difference of a system with as many states, without learning it.
    """
    for word in machine.tests(0):
        if answers(system, word) != list(machine.outputs(word)):
            return word
    return None


def write(wanted: Sequence[str]) -> None:
    """Learn the systems with these names, or all, and write their files.

    A machine is correct unless the system has at least two states more.
    """
    FOLDER.mkdir(exist_ok=True)
    for name, system in SYSTEMS.items():
        if wanted and name not in wanted:
            continue
        machine = learned(system(), depth=1, walks=500)
        text = machine.as_dot(name)
        _path(name).write_text(text, encoding="ascii")
        print(f"{name}: {len(machine)} states")


if __name__ == "__main__":
    write(sys.argv[1:])
