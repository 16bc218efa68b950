"""Mealy machines: what a system answers to each input in each state.

States are numbered from 0, the initial one, breadth first in the order of the inputs. So equal
machines over the same inputs are equal values and equal files. A machine is written as Graphviz
(``.dot``), one transition a line, and as a Mermaid diagram.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final, NamedTuple, Self

from rdmawire.errors import FuzzError

Word = tuple[str, ...]
"""A sequence of inputs, or of outputs."""

_TRANSITION = re.compile(
    r'^[ \t]*(\w+) -> (\w+) \[label="([^"/\n]+)/([^"\n]+)"\];?[ \t\r]*$', re.MULTILINE
)
_INPUT: Final = re.compile(r"[\w.+-]+")
_OUTPUT: Final = re.compile(r'[^"\n]+')


class Transition(NamedTuple):
    """What one input is answered with, and the number of the state that it leads to."""

    output: str
    target: int


@dataclass(frozen=True)
class MealyMachine:
    """A deterministic Mealy machine. ``transitions`` has a mapping from inputs for each state.

    Make one with :meth:`of` or :meth:`from_dot`, which number the states. Raises
    :class:`FuzzError` if a transition is missing.
    """

    transitions: tuple[Mapping[str, Transition], ...]

    @classmethod
    def of(cls, transitions: Mapping[Any, Mapping[str, tuple[str, Any]]], initial: Any) -> Self:
        """Number the states that are reachable from ``initial``, breadth first.

        ``transitions`` has, for each state and input, the output and the next state.
        """
        inputs = tuple(transitions.get(initial, ()))
        _check_inputs(inputs)
        numbers: dict[Any, int] = {initial: 0}
        waiting = deque([initial])
        numbered: list[dict[str, Transition]] = []
        while waiting:
            state = waiting.popleft()
            steps = transitions.get(state, {})
            _check_steps(state, steps, inputs)
            for name in inputs:
                if (target := steps[name][1]) not in numbers:
                    numbers[target] = len(numbers)
                    waiting.append(target)
            numbered.append(
                {name: Transition(steps[name][0], numbers[steps[name][1]]) for name in inputs}
            )
        return cls(tuple(numbered))

    @classmethod
    def from_dot(cls, text: str) -> Self:
        """Read a machine from Graphviz. The first transition begins at the initial state.

        A line is ``s0 -> s1 [label="INPUT/OUTPUT"];``. Raises :class:`FuzzError` for a text without
        transitions, or with two for one state and input.
        """
        found: dict[str, dict[str, tuple[str, str]]] = {}
        for source, target, name, output in _TRANSITION.findall(text):
            steps = found.setdefault(source, {})
            if name in steps:
                raise FuzzError(f"state machine: {source} has two transitions for {name}")
            steps[name] = (output, target)
        if not found:
            raise FuzzError('state machine: no line is a transition, s0 -> s1 [label="IN/OUT"];')
        return cls.of(found, next(iter(found)))

    def as_dot(self, name: str = "machine") -> str:
        """Return the machine as Graphviz, one transition a line."""
        states = [f's{state} [label="s{state}"];' for state in range(len(self))]
        arrows = [
            f's{state} -> s{step.target} [label="{given}/{step.output}"];'
            for state, steps in enumerate(self.transitions)
            for given, step in steps.items()
        ]
        return "\n".join(
            [f"digraph {re.sub(r'[^0-9A-Za-z]', '_', name)} {{", *states, *arrows, "}\n"]
        )

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a machine of the values of :meth:`as_json`. Raises :class:`FuzzError` for others."""
        try:
            rows = {
                at: {name: _step(*step) for name, step in steps.items()}
                for at, steps in enumerate(values["states"])
            }
        except (AttributeError, KeyError, TypeError):
            raise FuzzError(
                'state machine: expected {"states": [{"INPUT": ["OUTPUT", state], ...}, ...]}'
            ) from None
        return cls.of(rows, 0)

    def as_json(self) -> dict[str, Any]:
        """Return the machine as JSON values: of each state, each input's output and next state."""
        return {
            "states": [
                {name: list(step) for name, step in steps.items()} for steps in self.transitions
            ]
        }

    def as_mermaid(self, *, loops: bool = True, sinks: bool = True) -> str:
        """Return the machine as a Mermaid state diagram: one arrow from a state to another.

        Without ``loops``, transitions that stay in their state are left out; without ``sinks``,
        those to a state that no input leaves, such as the error state.
        """
        lines = ["stateDiagram-v2", "    [*] --> s0"]
        for state, steps in enumerate(self.transitions):
            labels: dict[int, list[str]] = {}
            for name, step in steps.items():
                labels.setdefault(step.target, []).append(f"{name} / {step.output}")
            lines += [
                f"    s{state} --> s{target}: {'<br>'.join(words).replace(':', '&colon;')}"
                for target, words in labels.items()
                if (loops or target != state) and (sinks or target not in self.sinks)
            ]
        return "\n".join(lines) + "\n"

    def __len__(self) -> int:
        """The number of states."""
        return len(self.transitions)

    @property
    def inputs(self) -> Word:
        """The alphabet."""
        return tuple(self.transitions[0])

    def outputs(self, word: Sequence[str], state: int = 0) -> Word:
        """Return what a sequence of inputs is answered with, from ``state`` on."""
        answers = []
        for name in word:
            answer, state = self.transitions[state][name]
            answers.append(answer)
        return tuple(answers)

    def state_after(self, word: Sequence[str], state: int = 0) -> int:
        """Return the state that a sequence of inputs leads to."""
        for name in word:
            state = self.transitions[state][name].target
        return state

    @cached_property
    def access(self) -> tuple[Word, ...]:
        """A shortest sequence of inputs to each state."""
        words: dict[int, Word] = {0: ()}
        for state, steps in enumerate(self.transitions):  # breadth first, as they are numbered
            for name, step in steps.items():
                words.setdefault(step.target, (*words[state], name))
        return tuple(words[state] for state in range(len(self)))

    @cached_property
    def sinks(self) -> frozenset[int]:
        """The states that no input leaves."""
        return frozenset(
            state
            for state, steps in enumerate(self.transitions)
            if all(step.target == state for step in steps.values())
        )

    @cached_property
    def _levels(self) -> list[list[int]]:
        """The class of each state: by its outputs, then by those of words of length 2, and so on.

        The last two levels have the same classes: states in one class are equivalent.
        """
        keys: list[Any] = [
            tuple(step.output for step in steps.values()) for steps in self.transitions
        ]
        levels = [_numbered(keys)]
        while True:
            last = levels[-1]
            keys = [
                (last[state], *(last[step.target] for step in steps.values()))
                for state, steps in enumerate(self.transitions)
            ]
            levels.append(_numbered(keys))
            if max(levels[-1]) == max(last):
                return levels

    @property
    def longest_tests(self) -> int:
        """An upper bound of the inputs in the words of :meth:`tests` of depth 0, each word once.

        It is known at once, and large for a machine whose states are far from each other.
        """
        longest = max(map(len, self.access)) + len(self._levels)
        return len(self) * len(self.inputs) * longest

    def difference(self, one: int, other: int) -> Word | None:
        """Return a shortest word that two states answer differently, ``None`` if there is none."""
        level = next((i for i, each in enumerate(self._levels) if each[one] != each[other]), None)
        if level is None:
            return None
        word: Word = ()
        while level:
            level -= 1
            name, one, other = self._parting(one, other, self._levels[level])
            word += (name,)
        mine, others = self.transitions[one], self.transitions[other]
        return (*word, next(name for name in mine if mine[name].output != others[name].output))

    def _parting(self, one: int, other: int, classes: list[int]) -> tuple[str, int, int]:
        """Return an input that leads two states to different classes, and their next states."""
        others = self.transitions[other]
        return next(
            (name, step.target, others[name].target)
            for name, step in self.transitions[one].items()
            if classes[step.target] != classes[others[name].target]
        )

    @cached_property
    def _identification(self) -> dict[int, tuple[Word, ...]]:
        return {}

    @cached_property
    def _answers(self) -> dict[Word, list[Word]]:
        """What each state answers to a word."""
        return {}

    def _answers_to(self, word: Word) -> list[Word]:
        if word not in self._answers:
            self._answers[word] = [self.outputs(word, state) for state in range(len(self))]
        return self._answers[word]

    def identification(self, state: int) -> tuple[Word, ...]:
        """Return words whose answers tell ``state`` from all other states."""
        if state not in self._identification:
            self._identification[state] = tuple(self._identified(state))
        return self._identification[state]

    def _identified(self, state: int) -> Iterator[Word]:
        words = {other: self.difference(state, other) for other in range(len(self))}
        others = {other: word for other, word in words.items() if word is not None}
        while others:
            word = max(
                sorted(set(others.values())), key=lambda one: self._unlike(one, state, others)
            )
            answers = self._answers_to(word)
            others = {
                other: one for other, one in others.items() if answers[other] == answers[state]
            }
            yield word

    def _unlike(self, word: Word, state: int, others: Iterable[int]) -> int:
        """The number of ``others`` that answer a word differently from ``state``."""
        answers = self._answers_to(word)
        return sum(answers[other] != answers[state] for other in others)

    @cached_property
    def characterization(self) -> tuple[Word, ...]:
        """Words whose answers tell any two states apart: the set W of the W-method."""
        words: list[Word] = []
        classes = [0] * len(self)
        while (pair := self._together(classes)) is not None:
            word = self.difference(*pair)
            assert word is not None
            words.append(word)
            classes = _numbered(list(zip(classes, self._answers_to(word), strict=True)))
        return tuple(words)

    def _together(self, classes: list[int]) -> tuple[int, int] | None:
        """Two states of one class that are not equivalent."""
        firsts: dict[int, int] = {}
        for state, number in enumerate(classes):
            first = firsts.setdefault(number, state)
            if self._levels[-1][first] != self._levels[-1][state]:
                return first, state
        return None

    def minimal(self) -> Self:
        """Return the smallest machine with the same answers."""
        classes = self._levels[-1]
        steps = {
            classes[state]: {
                name: (step.output, classes[step.target]) for name, step in row.items()
            }
            for state, row in enumerate(self.transitions)
        }
        return self.of(steps, classes[0])

    def restricted(self, inputs: Sequence[str]) -> Self:
        """Return the machine for some of its inputs, in this order."""
        rows = {
            state: {name: steps[name] for name in inputs}
            for state, steps in enumerate(self.transitions)
        }
        return self.of(rows, 0)

    def tests(self, depth: int) -> Iterator[Word]:
        """Yield the words of the Wp-method: they show each difference from this machine.

        That holds for systems with at most ``depth`` more states. Each state is reached and left by
        each sequence of up to ``depth`` + 1 inputs, and the state after it is identified; it
        finds what the W-method finds, with fewer words.
        """
        full = self.characterization or ((),)
        for length in range(depth + 1):
            for before in self._sequences(length):
                yield from (before + word for word in full)
        for before in self._sequences(depth + 1):
            words = self.identification(self.state_after(before)) or ((),)
            yield from (before + word for word in words)

    def _sequences(self, length: int) -> Iterator[Word]:
        """Each state's access word with each sequence of ``length`` inputs."""
        for access in self.access:
            yield from (access + middle for middle in product(self.inputs, repeat=length))


def _check_inputs(inputs: Sequence[str]) -> None:
    if not inputs:
        raise FuzzError("state machine: the initial state has no transitions")
    for name in inputs:
        if not _INPUT.fullmatch(name):
            raise FuzzError(
                f"state machine: an input is named {name!r}: use letters, digits, . + - and _"
            )


def _check_steps(state: Any, steps: Mapping[str, tuple[str, Any]], inputs: Sequence[str]) -> None:
    """Check that a state has a transition for each input, with an output that a file can hold."""
    for name in inputs:
        if name not in steps:
            raise FuzzError(f"state machine: state {state} has no transition for {name}")
        if not _OUTPUT.fullmatch(steps[name][0]):
            raise FuzzError(
                f"state machine: {steps[name][0]!r} is not an output: "
                "it is empty, or has a quotation mark or a line end"
            )


def _step(output: object, target: object) -> tuple[str, int]:
    """Return the values of a step. Raises ``TypeError`` for those of other types."""
    if not isinstance(output, str) or type(target) is not int:
        raise TypeError(output, target)
    return output, target


def _numbered(keys: Sequence[Any]) -> list[int]:
    """Number keys by their first occurrence: equal keys, equal numbers."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
