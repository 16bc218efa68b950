"""Learning of toy systems: the machine is the system's, by both algorithms."""

from random import Random

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.learner import (
    ALGORITHMS,
    LearnProgress,
    MachineSystem,
    NonDeterminismError,
    Plan,
    learn,
)
from rdmawire.fuzz.learn.machine import MealyMachine
from tests.fuzz.learn.test_machine import counter, random_machine


def learned(system: MachineSystem, seed: int = 0, **plan: object) -> MealyMachine:
    return learn(system, random=Random(seed), plan=Plan(**plan)).machine  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(5))
def test_the_machine_of_a_system_is_learned(seed: int, algorithm: str) -> None:
    machine = random_machine(seed, 15)
    assert learned(MachineSystem(machine), algorithm=algorithm, walks=50) == machine


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_machine_of_one_state_is_learned(algorithm: str) -> None:
    machine = MealyMachine.of({0: {"a": ("0", 0), "b": ("1", 0)}}, 0)
    assert learned(MachineSystem(machine), algorithm=algorithm) == machine


def test_words_of_another_machine_find_what_the_others_miss() -> None:
    hidden = counter(9)
    one = MealyMachine.of({0: {"tick": ("-", 0)}}, 0)
    assert learned(MachineSystem(hidden), walks=0, depth=0) == one
    assert learned(MachineSystem(hidden), walks=0, depth=0, machines=(hidden,)) == hidden
    assert learned(MachineSystem(hidden), walks=0, depth=8) == hidden


def test_the_same_seed_asks_the_same_questions() -> None:
    machine = random_machine(1, 15)
    asked = [learn(MachineSystem(machine), random=Random(seed)) for seed in (3, 3, 4)]
    assert asked[0] == asked[1]
    assert asked[0].machine == asked[2].machine
    assert asked[0].queries != asked[2].queries


def test_progress_counts_words_and_states() -> None:
    seen: list[LearnProgress] = []
    machine = random_machine(2, 15)
    done = learn(MachineSystem(machine), random=Random(0), progress=seen.append)
    assert seen[-1].queries <= done.queries
    assert max(one.states for one in seen) == len(machine)
    assert [one.queries for one in seen] == sorted(one.queries for one in seen)


class Counting(MachineSystem):
    """Counts the resets: after some, an input in state 1 is answered otherwise."""

    resets = 0

    def reset(self) -> None:
        super().reset()
        self.resets += 1

    def step(self, name: str) -> str:
        changed = self.resets > 30 and self._state == 1
        output = super().step(name)
        return "other" if changed else output


def test_a_system_that_is_not_deterministic_is_reported_with_the_sequence() -> None:
    with pytest.raises(NonDeterminismError, match="is not deterministic: ") as found:
        learned(Counting(random_machine(5, 15), "toy"))
    error = found.value
    assert error.first[:-1] == error.second[:-1]
    assert error.second[-1] == "other" != error.first[-1]
    assert len(error.word) == len(error.first)


class Endless:
    """Answers with the number of inputs so far: no machine has enough states."""

    name = "endless"
    inputs = ("tick",)
    ticks = 0

    def reset(self) -> None:
        self.ticks = 0

    def step(self, name: str) -> str:
        self.ticks += 1
        return str(self.ticks)


def test_learning_ends_with_an_error_where_there_is_no_bound() -> None:
    with pytest.raises(FuzzError, match="more than 500 different outputs"):
        learn(Endless(), random=Random(0))
    with pytest.raises(FuzzError, match="more than 5 states"):
        learned(MachineSystem(random_machine(0, 15)), max_states=5)


@pytest.mark.parametrize("wrong", [{"algorithm": "lstar"}, {"depth": -1}])
def test_a_wrong_plan_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(FuzzError):
        Plan(**wrong)  # type: ignore[arg-type]


def test_without_aalpy_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aalpy.learning_algs.deterministic.KV", None)
    with pytest.raises(FuzzError, match=r"pip install 'rdmawire\[learn\]'"):
        learned(MachineSystem(counter(2)))
