"""Fuzzes the connection manager: calls of its owner, messages of its peer, and its timers.

A case is a conversation in one role (:data:`rdmawire.fuzz.learn.cm_system.ALPHABETS`). Messages
carry the ids that the state needs, and some are mutated: a field by its table, or bytes of the
frame. :mod:`.cm_model` says what the manager may answer. At the end the owner ends all connections:
none may be left.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Self

from rdmawire.errors import FuzzError
from rdmawire.fuzz.cm_model import EFFECTS, CMDifference, CMModel
from rdmawire.fuzz.exception_text import Raised, exception_text
from rdmawire.fuzz.frame_map import FrameMap, map_frame
from rdmawire.fuzz.frame_mutation import MAX_MUTATIONS, Mutant, Mutation, SeedFrame
from rdmawire.fuzz.fuzzer import (
    FRAME_INTERVAL_NS,
    Batch,
    BatchFuzzer,
    Found,
    Frame,
    Spec,
    check_settings,
    manager,
)
from rdmawire.fuzz.learn.cm_peer import MESSAGES
from rdmawire.fuzz.learn.cm_system import ALPHABETS, CMSystem
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.mutator import Mutator, boundary_values, number_of
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.planted_bugs import planted, wrong_part
from rdmawire.fuzz.seed_corpus import SeedCorpus
from rdmawire.terminal import quote_value

MAX_INPUTS: Final = 24
"""Inputs of a case, at most."""
_MUTATED: Final = 0.4
"""Part of the messages that are mutated."""
_CHECKED: Final = 0.5
"""Part of the mutations that set a field which has a rule."""
_IN_THE_MESSAGE: Final = 0.8
"""Part of the mutations that set a field of the MAD or its message, with or without a rule."""
_GOES_ON: Final = 0.5
"""Part of the inputs that lead to another state, if there is one."""


@dataclass(frozen=True, slots=True)
class CMInput:
    """An input of the alphabet; ``mutations`` and ``checksum`` change the frame of a message."""

    name: str
    mutations: tuple[Mutation, ...] = ()
    checksum: str = "GOOD"

    @property
    def is_mutated(self) -> bool:
        """Whether the frame is another than that of the message."""
        return bool(self.mutations) or self.checksum != "GOOD"

    def as_json(self) -> dict[str, Any]:
        """Return the input as JSON values."""
        values: dict[str, Any] = {"input": self.name}
        if self.checksum != "GOOD":
            values["checksum"] = self.checksum
        if self.mutations:
            values["mutations"] = [one.as_json() for one in self.mutations]
        return values

    @classmethod
    def from_json(cls, values: Any, role: str) -> Self:
        """Make an input of JSON values. Raises :class:`FuzzError` for others."""
        name = values.get("input") if isinstance(values, dict) else None
        if name not in ALPHABETS[role]:
            raise FuzzError(f"case: {quote_value(name)} is not an input of the role {role}")
        checksum, mutations = values.get("checksum", "GOOD"), values.get("mutations", [])
        if checksum not in ("GOOD", "BROKEN"):
            raise FuzzError(f"case: checksum is GOOD or BROKEN, not {quote_value(checksum)}")
        if not isinstance(mutations, list) or len(mutations) > MAX_MUTATIONS:
            raise FuzzError(f"case: mutations are a list of at most {MAX_MUTATIONS}")
        return cls(name, tuple(map(Mutation.from_json, mutations)), checksum)

    def mutant(self, frame: bytes) -> Mutant:
        """Return the mutant of the frame of the message."""
        return Mutant(SeedFrame(frame, name=self.name), self.mutations, self.checksum)


class CMCase:
    """The conversation of a case, played on ``system``, which is reset, and on the model."""

    def __init__(self, system: CMSystem, role: str) -> None:
        self.system, self.model = system, CMModel(role)
        system.reset()

    def play(self, one: CMInput) -> CMDifference | None:
        """Play one input; return the first difference, or ``None``."""
        frame = self.system.frame(one.name)
        if not (one.is_mutated and frame):
            return self.model.step(one.name, self.system.play(one.name, frame))
        mutant = one.mutant(frame)
        data = mutant.build()
        output = self.system.play(one.name, data)
        if data == frame:
            return self.model.step(one.name, output)
        return self.model.mutated(one.name, output, mutant)

    def end(self) -> CMDifference | None:
        """End all connections; return a difference if one is left."""
        left = self.system.settle()
        expected = "no connection after its owner ended it and all timers expired"
        return CMDifference(expected, f"{left} left", "IBA 12.9.5, 12.9.6") if left else None


class CMFuzzer(BatchFuzzer):
    """Fuzzes connection managers of a profile, in each role in turn.

    A specification has ``profile`` and ``bug``, the name of a planted bug. Raises
    :class:`FuzzError` for unknown names.
    """

    def __init__(self, spec: Spec) -> None:
        check_settings(spec, ("profile", "bug"))
        if "bug" in spec and (bug := planted(str(spec["bug"]))).cm is None:
            raise wrong_part(bug, "cm")
        (_, profile, name), rules = manager(spec)
        self._systems = {
            role: CMSystem(inputs, profile=profile, name=name, cm_rules=rules)
            for role, inputs in ALPHABETS.items()
        }

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Play some runs, each a conversation of its own."""
        for run in range(first, first + runs):
            random = Random(f"{seed}/{run}")  # noqa: S311  must be repeatable
            role = (*ALPHABETS,)[run % len(ALPHABETS)]
            violation, inputs = self._conversation(role, random)
            found = [Found(violation, _case(role, inputs), run)] if violation else []
            yield Batch(run, 1, len(inputs), found)

    def _conversation(self, role: str, random: Random) -> tuple[Violation | None, list[CMInput]]:
        draw, inputs = _Draw(role, random), list[CMInput]()
        count = random.randrange(1, MAX_INPUTS + 1)

        def next_input(case: CMCase) -> CMInput | None:
            if len(inputs) == count:
                return None
            inputs.append(draw.input(case))
            return inputs[-1]

        return self._played(role, next_input), inputs

    def _played(self, role: str, draw: Callable[[CMCase], CMInput | None]) -> Violation | None:
        """Play inputs until ``draw`` returns none; return the first violation, or ``None``."""
        case, index, last = CMCase(self._systems[role], role), 0, CMInput("the end")
        try:
            while (one := draw(case)) is not None:
                last = one
                if (found := case.play(one)) is not None:
                    return _violation(role, index, last, found)
                index += 1
            last = CMInput("the end")
            found = case.end()
        except FuzzError:
            raise
        except Exception as error:
            return _raised(role, index, last, error)
        return None if found is None else _violation(role, max(index - 1, 0), last, found)

    def _violation_of(self, role: str, inputs: Sequence[CMInput]) -> Violation | None:
        left = iter(inputs)
        return self._played(role, lambda _: next(left, None))

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        """Return a finding with fewer inputs and mutations, as ``trials`` allow."""
        trials = Trials() if trials is None else trials
        role, inputs = _from_json(found.case)
        best, shown = inputs, found.violation
        before: list[CMInput] | None = None
        while before != best:
            before = best
            for index in reversed(range(len(before))):
                for fewer in _simpler(best, index):
                    again = self._violation_of(role, fewer) if trials.take() else None
                    if again is not None and _is_same(again, shown):
                        best, shown = fewer[: again.place + 1], again
                        break
        return Found(shown, _case(role, best), found.run)

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Play a case again; return its violation and the frames of both sides."""
        role, inputs = _from_json(case)
        shown = self._violation_of(role, inputs)
        frames = self._systems[role].frames
        return shown, [
            Frame(number * FRAME_INTERVAL_NS, data, sent)
            for number, (sent, data) in enumerate(frames)
        ]

    def describe(self, case: Any) -> list[str]:
        """Return a line for each input: its name and what was changed."""
        role, inputs = _from_json(case)
        lines, conversation = [], CMCase(self._systems[role], role)
        for one in inputs:
            frame = conversation.system.frame(one.name)
            changed = one.mutant(frame).describe()[1:] if one.is_mutated and frame else []
            lines.append("; ".join([one.name, *changed]))
            try:
                conversation.play(one)
            except Exception as error:
                lines[-1] += f"; {exception_text(error)}"
                break
        return lines


class _Draw:
    """Draws the inputs of a conversation."""

    def __init__(self, role: str, random: Random) -> None:
        self._names, self._random = ALPHABETS[role], random

    def input(self, case: CMCase) -> CMInput:
        """Draw an input, mutated or not; half of them lead to another state."""
        random = self._random
        name = random.choice(self._names)
        if case.model.states and random.random() < _GOES_ON:
            name = random.choice(self._leaving(case.model) or self._names)
        if name not in MESSAGES or random.random() >= _MUTATED:
            return CMInput(name)
        frame = SeedFrame(case.system.frame(name))
        if random.random() < 0.05:
            return CMInput(name, checksum="BROKEN")
        return CMInput(name, (self._mutation(frame),))

    def _leaving(self, model: CMModel) -> list[str]:
        """The inputs that lead to another state."""
        state = min(model.states or ())
        steps = model.machine.transitions[state]
        return [name for name, step in steps.items() if step.target != state]

    def _mutation(self, frame: SeedFrame) -> Mutation:
        found = map_frame(frame.data, frame.link_type)
        mutator = Mutator(self._random, SeedCorpus([[frame]]))
        number = self._random.random()
        if number < _CHECKED:
            return self._with_rule(found)
        if number < _IN_THE_MESSAGE:
            return mutator.set_row(_message(found))
        return mutator.mutation(frame, found)

    def _with_rule(self, found: FrameMap) -> Mutation:
        """Set a field that has a rule to a value that the rule is for."""
        rows = [
            (one.header, row)
            for one in found.headers
            for row in type(one.header).rows
            if (type(one.header).label, row.name) in EFFECTS
        ]
        header, row = self._random.choice(rows)
        label = type(header).label
        values = boundary_values(row, number_of(header, row))
        matching = [value for value in values if EFFECTS[label, row.name].applies(value)]
        return Mutation("set", label, row=row.name, value=self._random.choice(matching or values))


def _message(found: FrameMap) -> FrameMap:
    """The map of the MAD and its message alone."""
    headers = [one for one in found.headers if type(one.header).label.startswith(("mad", "cm_"))]
    return found._replace(headers=headers)


def _is_same(one: Violation, other: Violation) -> bool:
    """Whether two violations are of one cause: at the same message, mutated or not."""
    names = (found.signature.split(" | ")[1].split(" ")[0] for found in (one, other))
    return one.happened == other.happened and next(names) == next(names)


def _simpler(inputs: Sequence[CMInput], index: int) -> list[list[CMInput]]:
    """The inputs without the one at ``index``, and with it unchanged."""
    if index >= len(inputs):
        return []
    before, one, after = inputs[:index], inputs[index], inputs[index + 1 :]
    plain = [[*before, CMInput(one.name), *after]] if one.is_mutated else []
    return [[*before, *after], *plain]


def _violation(role: str, index: int, one: CMInput, found: CMDifference) -> Violation:
    where = ",".join(f"{each.header}.{each.row}" for each in one.mutations if each.row)
    kinds = ",".join(each.kind for each in one.mutations if not each.row)
    shown = " ".join(filter(None, [one.name, where, kinds]))
    signature = f"{role} | {shown} | {found.happened}"
    return Violation(index, "answer", found.expected, found.happened, found.clause, signature)


def _raised(role: str, index: int, one: CMInput, error: Exception) -> Violation:
    raised = Raised.of(error)
    signature = f"{role} | {one.name} | {raised.kind}"
    return Violation(index, "exception", "no exception", raised.text, "", signature)


def _case(role: str, inputs: Sequence[CMInput]) -> dict[str, Any]:
    return {"role": role, "inputs": [one.as_json() for one in inputs]}


def _from_json(case: Any) -> tuple[str, list[CMInput]]:
    """Return the role and the inputs of a case. Raises :class:`FuzzError` for anything else."""
    if not isinstance(case, dict) or case.get("role") not in list(ALPHABETS):
        raise FuzzError(f"case: expected an object whose role is one of {', '.join(ALPHABETS)}")
    inputs = case.get("inputs")
    if not isinstance(inputs, list) or len(inputs) > MAX_INPUTS:
        raise FuzzError(f"case: inputs are a list of at most {MAX_INPUTS}")
    return case["role"], [CMInput.from_json(one, case["role"]) for one in inputs]
