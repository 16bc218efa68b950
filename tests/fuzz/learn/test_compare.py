"""Comparison of machines: the shortest words, those behind agreed differences, and replays."""

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.compare import (
    REPLAYS,
    Agreed,
    MachineDifference,
    check,
    differences,
    learn_both,
    read_agreed,
    without_use,
)
from rdmawire.fuzz.learn.learner import MachineSystem, NonDeterminismError, Plan
from rdmawire.fuzz.learn.machine import MealyMachine
from tests.fuzz.learn.test_machine import INPUTS, counter, random_machine


def machine(*rows: str) -> MealyMachine:
    """A machine over ``a`` and ``b``: of each state, the outputs and the next states."""
    steps = [row.split() for row in rows]
    return MealyMachine.of(
        {str(at): {"a": (row[0], row[1]), "b": (row[2], row[3])} for at, row in enumerate(steps)},
        "0",
    )


ONE = machine("x 0 y 1", "x 0 y 2", "x 2 y 2")
OTHER = machine("x 0 Y 1", "x 0 y 2", "z 2 y 0")


def test_equal_machines_have_no_differences() -> None:
    assert list(differences(ONE, ONE)) == []
    assert list(differences(random_machine(3, 15), random_machine(3, 15))) == []


def test_states_behind_a_difference_are_compared_if_it_is_agreed() -> None:
    (first,) = differences(ONE, OTHER)
    assert first == MachineDifference(("b",), "y", "Y")
    agreed = {first.agreed}
    (second,) = differences(ONE, OTHER, agreed)
    assert second == MachineDifference(("b", "b", "a"), "x", "z")
    agreed.add(second.agreed)
    assert list(differences(ONE, OTHER, agreed)) == []


def test_agreed_differences_that_machines_do_not_have_are_known() -> None:
    first, other = Agreed("b", "y", "Y"), Agreed("b", "Y", "y")
    assert without_use(ONE, OTHER, {first, other}) == [other]
    assert without_use(ONE, ONE, {first}) == [first]


@pytest.mark.parametrize("seed", range(10))
def test_the_first_difference_is_a_shortest_word(seed: int) -> None:
    one, other = random_machine(seed, 15), random_machine(seed + 100, 15)
    word, mine, others = next(differences(one, other))
    assert one.outputs(word)[-1] == mine != others == other.outputs(word)[-1]
    assert one.outputs(word)[:-1] == other.outputs(word)[:-1]
    shorter = [()] + [(name,) for name in INPUTS]
    assert len(word) == 1 or all(one.outputs(each) == other.outputs(each) for each in shorter)


def test_a_long_difference_is_found() -> None:
    (found,) = differences(counter(9), counter(10))
    assert found == MachineDifference(("tick",) * 9, "end", "-")


def test_only_inputs_that_both_have_are_compared() -> None:
    restricted = OTHER.restricted(("a",))
    assert list(differences(ONE, restricted)) == []
    with pytest.raises(FuzzError, match="no input in common"):
        list(differences(ONE, counter(2)))


class NotDeterministic(MachineSystem):
    """Answers the last input of every third word otherwise."""

    words = 0

    def reset(self) -> None:
        super().reset()
        self.words += 1

    def step(self, name: str) -> str:
        output = super().step(name)
        return "other" if output == "end" and self.words % 3 == 0 else output


def test_a_word_is_played_again_before_it_is_reported() -> None:
    word = ("tick",) * 4
    check(MachineSystem(counter(4)), counter(4), word)
    system = NotDeterministic(counter(4), "counter")
    assert REPLAYS >= 3
    with pytest.raises(NonDeterminismError, match="counter is not deterministic") as found:
        check(system, counter(4), (*word, "tick"))
    assert found.value.word == word
    assert (found.value.first[-1], found.value.second[-1]) == ("end", "other")


def test_each_of_two_systems_is_tested_with_words_of_the_other() -> None:
    hidden = counter(6)
    plain = MealyMachine.of({at: {"tick": (str(at), min(at + 1, 5))} for at in range(6)}, 0)
    plan = Plan(depth=0, walks=20, walk_length=2)  # finds the states of the second one alone
    one, other = learn_both(MachineSystem(hidden), MachineSystem(plain), seed=1, plan=plan)
    assert (one.machine, other.machine) == (hidden, plain)
    other, one = learn_both(MachineSystem(plain), MachineSystem(hidden), seed=1, plan=plan)
    assert (one.machine, other.machine) == (hidden, plain)


def test_agreed_differences_are_lines_of_a_file() -> None:
    lines = ["# behind an RNR NAK", "", "GAP - NAK_SEQUENCE@0", "RECV ok,ACK@-1 ok  # credits"]
    wanted = {Agreed("GAP", "-", "NAK_SEQUENCE@0"), Agreed("RECV", "ok,ACK@-1", "ok")}
    assert read_agreed(lines) == wanted
    assert read_agreed(map(str, wanted)) == wanted
    with pytest.raises(FuzzError, match="line 2: expected an input"):
        read_agreed(["GAP - x", "GAP -"])
