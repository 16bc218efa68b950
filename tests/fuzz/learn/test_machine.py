"""Mealy machines as values: equal machines are equal files, and words distinguish states."""

import json
import random

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.machine import MealyMachine

INPUTS = ("a", "b", "c")


def random_machine(seed: int, states: int) -> MealyMachine:
    """A minimal machine of at most ``states`` states."""
    source = random.Random(seed)
    rows = {
        state: {name: (source.choice(("0", "1")), source.randrange(states)) for name in INPUTS}
        for state in range(states)
    }
    return MealyMachine.of(rows, 0).minimal()


def counter(states: int) -> MealyMachine:
    """A machine that answers the last of ``states`` inputs otherwise, and stays there."""
    rows = {
        state: {"tick": ("-" if state < states - 1 else "end", min(state + 1, states - 1))}
        for state in range(states)
    }
    return MealyMachine.of(rows, 0)


def test_states_are_numbered_breadth_first_without_regard_to_their_names() -> None:
    rows = {
        "x": {"a": ("0", "z"), "b": ("1", "y")},
        "y": {"a": ("1", "x"), "b": ("1", "y")},
        "z": {"a": ("1", "z"), "b": ("0", "x")},
        "unreachable": {"a": ("1", "z"), "b": ("0", "x")},
    }
    machine = MealyMachine.of(rows, "x")
    renamed = MealyMachine.of(
        {name * 2: {i: (o, t * 2) for i, (o, t) in row.items()} for name, row in rows.items()},
        "xx",
    )
    assert machine == renamed
    assert len(machine) == 3
    assert machine.access == ((), ("a",), ("b",))
    assert machine.outputs(("a", "a", "b", "b")) == ("0", "1", "0", "1")


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_is_the_same_after_dot(seed: int) -> None:
    machine = random_machine(seed, 12)
    assert MealyMachine.from_dot(machine.as_dot("a name")) == machine
    assert machine.restricted(INPUTS) == machine.minimal() == machine


@pytest.mark.parametrize("seed", range(20))
def test_each_two_states_answer_some_word_differently(seed: int) -> None:
    machine = random_machine(seed, 12)
    answers = {
        tuple(machine.outputs(word, state) for word in machine.characterization)
        for state in range(len(machine))
    }
    assert len(answers) == len(machine)
    for state in range(len(machine)):
        assert machine.state_after(machine.access[state]) == state
        words = machine.identification(state)
        alike = [
            other
            for other in range(len(machine))
            if all(machine.outputs(w, other) == machine.outputs(w, state) for w in words)
        ]
        assert alike == [state]


def test_blank_lines_between_transitions_are_skipped() -> None:
    text = 's0 -> s0 [label="A/x"];' + "\n" * 300_000 + 's0 -> s0 [label="B/y"];'
    assert MealyMachine.from_dot(text).inputs == ("A", "B")


def test_a_difference_is_a_shortest_word() -> None:
    machine = counter(6)
    assert machine.difference(0, 5) == ("tick",)
    assert machine.difference(0, 1) == ("tick",) * 5
    assert machine.difference(3, 3) is None


def test_equivalent_states_are_merged() -> None:
    twice = MealyMachine.of(
        {
            0: {"a": ("0", 1)},
            1: {"a": ("1", 2)},
            2: {"a": ("0", 3)},
            3: {"a": ("1", 0)},
        },
        0,
    )
    assert len(twice.minimal()) == 2
    assert twice.minimal().outputs(("a",) * 7) == twice.outputs(("a",) * 7)


def test_states_without_a_way_out_are_sinks() -> None:
    assert counter(4).sinks == {3}


@pytest.mark.parametrize("seed", range(10))
def test_the_tests_of_a_machine_find_a_changed_transition(seed: int) -> None:
    machine = random_machine(seed, 8)
    words = list(machine.tests(0))
    source = random.Random(seed)
    for _ in range(20):
        rows = {state: dict(row) for state, row in enumerate(machine.transitions)}
        state, name = source.randrange(len(machine)), source.choice(INPUTS)
        rows[state][name] = rows[state][name]._replace(target=source.randrange(len(machine)))
        mutant = MealyMachine.of(rows, 0).minimal()
        found = any(machine.outputs(word) != mutant.outputs(word) for word in words)
        assert found == (mutant != machine)


def test_a_deeper_test_finds_a_state_more() -> None:
    hidden, shown = counter(5), MealyMachine.of({0: {"tick": ("-", 0)}}, 0)
    found = [
        any(hidden.outputs(word) != shown.outputs(word) for word in shown.tests(depth))
        for depth in range(6)
    ]
    assert found == [False, False, False, False, True, True]


def test_a_mermaid_diagram_joins_the_arrows_between_two_states() -> None:
    machine = MealyMachine.of(
        {0: {"a": ("x:1", 1), "b": ("y", 1)}, 1: {"a": ("-", 1), "b": ("-", 1)}}, 0
    )
    assert machine.as_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> s0",
        "    s0 --> s1: a / x&colon;1<br>b / y",
        "    s1 --> s1: a / -<br>b / -",
    ]
    assert "s1 --> s1" not in machine.as_mermaid(loops=False)


def test_a_mermaid_diagram_can_leave_out_states_that_no_input_leaves() -> None:
    drawn = counter(3).as_mermaid(sinks=False)
    assert "s0 --> s1" in drawn
    assert "--> s2" in counter(3).as_mermaid()
    assert "--> s2" not in drawn


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("digraph x {\n}\n", "no line is a transition"),
        ('s0 -> s0 [label="a/1"];\ns0 -> s0 [label="a/2"];\n', "s0 has two transitions for a"),
        ('s0 -> s1 [label="a/1"];\ns1 -> s1 [label="b/1"];\n', "s1 has no transition for a"),
        ('s0 -> s0 [label="a b/1"];\n', r"named 'a b': use letters, digits, \. \+ - and _"),
    ],
)
def test_a_file_that_is_no_machine_is_refused(text: str, words: str) -> None:
    with pytest.raises(FuzzError, match=words):
        MealyMachine.from_dot(text)


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_is_the_same_after_json(seed: int) -> None:
    machine = random_machine(seed, 12)
    assert MealyMachine.from_json(json.loads(json.dumps(machine.as_json()))) == machine


@pytest.mark.parametrize(
    "values",
    [None, [], {}, {"states": 1}, {"states": [1]}, {"states": [{"a": ["x"]}]},
     {"states": [{"a": ["x", 1]}]}, {"states": [{"a": ["x", "y"]}]}, {"states": []}],
)  # fmt: skip
def test_other_json_is_refused(values: object) -> None:
    with pytest.raises(FuzzError, match="state machine: "):
        MealyMachine.from_json(values)


@pytest.mark.parametrize("output", ["", 'a "word"', "two\nlines"])
def test_an_output_that_a_file_cannot_hold_is_refused(output: str) -> None:
    words = "is not an output: it is empty, or has a quotation mark or a line end"
    with pytest.raises(FuzzError, match=words):
        MealyMachine.from_json({"states": [{"A": [output, 0]}]})


def test_a_state_number_without_bound_is_refused() -> None:
    with pytest.raises(FuzzError, match="state machine: expected"):
        MealyMachine.from_json({"states": [{"A": ["x", float("inf")]}]})
