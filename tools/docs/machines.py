"""The page of the learned state machines, drawn from the golden files."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rdmawire.fuzz.cm_model import FOLDER as CM_GOLDEN
from rdmawire.fuzz.learn import MealyMachine, differences
from rdmawire.fuzz.learn.systems import ROLES, LearnedRole

GOLDEN = Path(__file__).parents[2] / "tests" / "fuzz" / "learn" / "machines"
_MAX_STATES = 13
"""States of the largest machine that is drawn."""
_MAX_ARROWS = 36
"""Arrows of the largest machine that is drawn: more of them cannot be followed."""
_MANY_ARROWS = 12
"""With more arrows, those to states that no input leaves are left out."""

_SERVICES = {"unreliable": "UC", "datagrams": "UD", "shared": "XRC"}


class MachineFile(NamedTuple):
    """A golden file: its role, the name of its set of inputs, its name without suffix, its folder.

    ``other`` is the name of the file that it is compared with, or empty.
    """

    role: str
    inputs: str
    name: str
    folder: Path = GOLDEN
    other: str = ""

    def read(self) -> MealyMachine:
        """Return the machine."""
        return _read(self.folder, self.name)

    @property
    def service(self) -> str:
        """The service of an adapter; empty for what is no part of a queue pair."""
        return _SERVICES.get(self.inputs, "RC") if self.role in ("responder", "requester") else ""


def files() -> list[MachineFile]:
    """The golden files: of each role and set of inputs."""
    return [_file(role, inputs) for role, learned in ROLES.items() for inputs in learned.alphabets]


def _file(role: str, inputs: str) -> MachineFile:
    if role == "responder":
        return MachineFile(role, inputs, f"ibta-{inputs}", other=f"rxe-{inputs}")
    return MachineFile(
        role, inputs, f"{role}-{inputs}", folder=CM_GOLDEN if role == "cm" else GOLDEN
    )


def _read(folder: Path, name: str) -> MealyMachine:
    return MealyMachine.from_dot((folder / f"{name}.dot").read_text("ascii"))


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Learned state machines\n"
    yield (
        "What `rdmawire fuzz learn` infers from the software RNIC, its connection manager and the "
        "dissector's MPA reader, by their answers alone; [State machines of an "
        "adapter](../howto/learn-state-machines.md) explains inputs and outputs. A test fails when "
        "one of these machines changes. Those with few states are drawn, without inputs that leave "
        "the state as it is, and without arrows to a state that no input leaves, such as the error "
        f"state, if there are more than {_MANY_ARROWS} arrows. The Graphviz files have all "
        "transitions: `rdmawire fuzz learn --against FILE` compares another adapter with one.\n"
    )
    every = files()
    for role, learned in ROLES.items():
        yield from _role(role, learned, [one for one in every if one.role == role])


def _role(role: str, learned: LearnedRole, own: list[MachineFile]) -> Iterator[str]:
    about = learned.about[0].upper() + learned.about[1:]
    yield f"\n## {role.upper() if role in ('cm', 'mpa') else role.capitalize()}\n\n{about}.\n"
    yield "| `--inputs` | service | inputs | states | Graphviz |\n|---|---|---|---|---|"
    for one in own:
        machine = one.read()
        counts = f"{len(machine.inputs)} | {len(machine)}"
        yield f"| `{one.inputs}` | {one.service} | {counts} | [{one.name}.dot]({_link(one)}) |"
    for one in own:
        yield from _machine(one, learned.alphabets[one.inputs])


def _link(one: MachineFile) -> str:
    return f"machines/{one.name}.dot"


def _machine(one: MachineFile, about: str) -> Iterator[str]:
    """A machine that is small enough to be drawn, and what another profile answers."""
    machine = one.read()
    drawing = _drawing(machine)
    if len(machine) <= _MAX_STATES and _arrows(drawing) <= _MAX_ARROWS:
        yield f"\n### {one.role}: {one.inputs}\n\nInputs: {about}.\n"
        yield f"```mermaid\n{drawing}```"
    if one.other:
        yield from _compared(one, machine)


def _drawing(machine: MealyMachine) -> str:
    """The text of a Mermaid diagram, with as many arrows as can be followed."""
    drawing = machine.as_mermaid(loops=False)
    if _arrows(drawing) > _MANY_ARROWS:
        return machine.as_mermaid(loops=False, sinks=False)
    return drawing


def _arrows(drawing: str) -> int:
    return drawing.count("-->") - 1  # one is that to the initial state


def _compared(one: MachineFile, machine: MealyMachine) -> Iterator[str]:
    """The shortest inputs that the profile ``rxe`` answers differently."""
    found = list(differences(machine, _read(one.folder, one.other)))
    if not found:
        yield f"\nThe profile `rxe` has the same machine for the inputs `{one.inputs}`."
        return
    yield f"\nWith the inputs `{one.inputs}` the profile `rxe` differs:\n"
    yield "| after these inputs | `ibta` | `rxe` |\n|---|---|---|"
    for word, ibta, rxe in found:
        yield f"| `{' '.join(word)}` | `{ibta}` | `{rxe}` |"
