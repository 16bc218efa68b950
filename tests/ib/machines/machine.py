"""Mealy machines of Linux's RC responder, learned from packets, and how to reach their states.

The files ``linux-<kernel>_<alphabet>.dot`` are observations: what a kernel answers, by its state.
"""

import re
from collections import deque
from functools import cache
from pathlib import Path
from typing import NamedTuple

KERNELS = ("61", "612")
ALPHABETS = ("A1", "A2", "A3")
FRESH = "s0"
"""The state of a new queue pair in RTS."""

_TRANSITION = re.compile(r'(s\d+) -> (s\d+) \[label="(\w+)/(.+)"\]')


class Step(NamedTuple):
    """What one input is answered with, and the state that it leads to."""

    output: str
    target: str


class Machine(NamedTuple):
    """A Mealy machine: its transitions, and a shortest input sequence to each state."""

    transitions: dict[str, dict[str, Step]]
    access: dict[str, tuple[str, ...]]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The alphabet."""
        return tuple(self.transitions[FRESH])

    def outputs(self, word: tuple[str, ...], state: str = FRESH) -> tuple[str, ...]:
        """What a sequence of inputs is answered with, from ``state`` on."""
        answers = []
        for name in word:
            answer, state = self.transitions[state][name]
            answers.append(answer)
        return tuple(answers)

    def state_after(self, word: tuple[str, ...]) -> str:
        """The state that a sequence of inputs leads a fresh queue pair to."""
        state = FRESH
        for name in word:
            state = self.transitions[state][name].target
        return state


@cache
def machine(kernel: str, alphabet: str) -> Machine:
    """The machine learned from a kernel, such as ``61``, with an alphabet, such as ``A1``."""
    text = (Path(__file__).parent / f"linux-{kernel}_{alphabet}.dot").read_text()
    transitions: dict[str, dict[str, Step]] = {}
    for source, target, name, output in _TRANSITION.findall(text):
        transitions.setdefault(source, {})[name] = Step(output, target)
    return Machine(transitions, _access(transitions))


def _access(transitions: dict[str, dict[str, Step]]) -> dict[str, tuple[str, ...]]:
    """A shortest sequence of inputs to each state, found breadth first."""
    access: dict[str, tuple[str, ...]] = {FRESH: ()}
    waiting = deque([FRESH])
    while waiting:
        state = waiting.popleft()
        for name, step in transitions[state].items():
            if step.target not in access:
                access[step.target] = (*access[state], name)
                waiting.append(step.target)
    return access


@cache
def identification(kernel: str, alphabet: str, state: str) -> tuple[tuple[str, ...], ...]:
    """Words that tell a state from each other one: a part of the W of the W-method."""
    found = machine(kernel, alphabet)
    words: list[tuple[str, ...]] = []
    others = [other for other in found.transitions if other != state]
    while others:
        candidates = {_difference(found, state, other) for other in others}
        word = max(sorted(candidates), key=lambda each: len(_unlike(found, each, state, others)))
        words.append(word)
        unlike = _unlike(found, word, state, others)
        others = [other for other in others if other not in unlike]
    return tuple(words)


def _unlike(found: Machine, word: tuple[str, ...], state: str, others: list[str]) -> set[str]:
    """The states that answer a word otherwise than this one."""
    answers = found.outputs(word, state)
    return {other for other in others if found.outputs(word, other) != answers}


def _difference(found: Machine, one: str, other: str) -> tuple[str, ...]:
    """A shortest word that two states answer differently."""
    waiting: deque[tuple[str, str, tuple[str, ...]]] = deque([(one, other, ())])
    seen = {(one, other)}
    while waiting:
        left, right, word = waiting.popleft()
        for name in found.inputs:
            mine, its = found.transitions[left][name], found.transitions[right][name]
            if mine.output != its.output:
                return (*word, name)
            if (pair := (mine.target, its.target)) not in seen:
                seen.add(pair)
                waiting.append((*pair, (*word, name)))
    raise AssertionError(f"{one} and {other} are the same")
