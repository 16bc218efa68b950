"""Litmus tests: the model allows what the rules say, and each forgotten fence is found."""

import pytest

from rdmawire.gpudirect.kernel import TESTS, LitmusTest, find, outcome, outcomes

SEEDS = range(200)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_outcomes_are_those_of_the_rules(test: LitmusTest) -> None:
    assert outcomes(test) == test.allowed
    assert test.source


@pytest.mark.parametrize("test", [test for test in TESTS if test.wrong], ids=lambda test: test.name)
def test_a_forgotten_fence_is_found_by_a_seed(test: LitmusTest) -> None:
    seed = find(test, test.wrong, SEEDS)
    assert seed is not None
    assert outcome(test, seed) in test.wrong


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_drawn_outcomes_are_allowed(test: LitmusTest) -> None:
    assert {outcome(test, seed) for seed in range(30)} <= test.allowed | {None}


def test_names_are_of_one_test() -> None:
    assert len({test.name for test in TESTS}) == len(TESTS)
