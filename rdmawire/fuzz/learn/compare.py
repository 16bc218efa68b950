"""Comparison of two machines: the shortest words that two systems answer differently.

The search goes through the pairs of states that the same words lead to, breadth first. It goes on
past differences that are agreed, such as a choice that the standard leaves, and so finds what
differs after them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.learner import (
    Learned,
    LearnProgress,
    NonDeterminismError,
    Plan,
    System,
    first_difference,
    known_words,
    learn,
)
from rdmawire.fuzz.learn.machine import MealyMachine, Word

REPLAYS: Final = 3
"""How often a difference is played on each system before it is reported."""


class Agreed(NamedTuple):
    """A difference that is not reported: an input, and what the two machines answer."""

    name: str
    one: str
    other: str

    def __str__(self) -> str:
        """Write it as a line of a file."""
        return " ".join(self)


class MachineDifference(NamedTuple):
    """A shortest word whose last input two machines answer with ``one`` and ``other``.

    What they answer to the inputs before it is the same or agreed.
    """

    word: Word
    one: str
    other: str

    @property
    def agreed(self) -> Agreed:
        """The line that makes a comparison go on past this difference."""
        return Agreed(self.word[-1], self.one, self.other)


def differences(
    one: MealyMachine, other: MealyMachine, agreed: Collection[Agreed] = ()
) -> Iterator[MachineDifference]:
    """Yield the differences of two machines, shortest words first, for the inputs that both have.

    Each input with the same two outputs is yielded once. States after a difference are not
    compared unless it is ``agreed``. Raises :class:`FuzzError` for machines without common inputs.
    """
    known = set(agreed)
    for difference in _all_differences(one, other, agreed):
        if difference.agreed not in known:
            known.add(difference.agreed)
            yield difference


def without_use(one: MealyMachine, other: MealyMachine, agreed: Collection[Agreed]) -> list[Agreed]:
    """Return the agreed differences that two machines do not have, in order.

    Raises :class:`FuzzError` for machines without common inputs.
    """
    met = {difference.agreed for difference in _all_differences(one, other, agreed)}
    return sorted(set(agreed) - met)


def _all_differences(
    one: MealyMachine, other: MealyMachine, agreed: Collection[Agreed]
) -> Iterator[MachineDifference]:
    """Yield each difference, agreed or not, for each pair of states that is compared."""
    names = [name for name in one.inputs if name in other.inputs]
    if not names:
        raise FuzzError("the machines have no input in common")
    words: dict[tuple[int, int], Word] = {(0, 0): ()}
    waiting = deque(words)
    while waiting:
        pair = waiting.popleft()
        for name in names:
            mine, others = one.transitions[pair[0]][name], other.transitions[pair[1]][name]
            difference = MachineDifference((*words[pair], name), mine.output, others.output)
            if differs := mine.output != others.output:
                yield difference
            following = mine.target, others.target
            if (not differs or difference.agreed in agreed) and following not in words:
                words[following] = difference.word
                waiting.append(following)


def check(system: System, machine: MealyMachine, word: Word) -> None:
    """Play a word on a system :data:`REPLAYS` times, and compare with the machine learned from it.

    Raises :class:`NonDeterminismError` for other outputs.
    """
    wanted = machine.outputs(word)
    for _ in range(REPLAYS):
        system.reset()
        found = tuple(system.step(name) for name in word)
        if found != wanted:
            end = first_difference(found, wanted) + 1
            raise NonDeterminismError(system.name, word[:end], wanted[:end], found[:end])


def learn_both(
    one: System,
    other: System,
    *,
    seed: int,
    plan: Plan,
    progress: Callable[[LearnProgress], None] | None = None,
) -> tuple[Learned, Learned]:
    """Learn two systems, each with the other's machine as a source of tests.

    Raises what :func:`learn` raises.
    """
    first = learn(one, random=Random(seed), plan=plan, progress=progress)  # noqa: S311
    with_first = replace(plan, machines=(*plan.machines, first.machine))
    second = learn(other, random=Random(seed), plan=with_first, progress=progress)  # noqa: S311
    if not _answers_as(one, first.machine, second.machine):
        with_second = replace(plan, machines=(*plan.machines, second.machine))
        first = learn(one, random=Random(seed), plan=with_second, progress=progress)  # noqa: S311
    return first, second


def _answers_as(system: System, machine: MealyMachine, other: MealyMachine) -> bool:
    """Whether a system answers as its machine to the words that tell apart another's states."""
    for word in known_words(other, machine.inputs):
        system.reset()
        if tuple(system.step(name) for name in word) != machine.outputs(word):
            return False
    return True


def read_agreed(lines: Iterable[str]) -> frozenset[Agreed]:
    """Read agreed differences: lines of an input and two outputs; ``#`` begins a comment.

    Raises :class:`FuzzError` for other lines.
    """
    found = set()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words and len(words) != len(Agreed._fields):
            raise FuzzError(f"line {number}: expected an input and the outputs of both machines")
        if words:
            found.add(Agreed(*words))
    return frozenset(found)
