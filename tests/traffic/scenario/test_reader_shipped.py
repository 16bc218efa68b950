"""Scenarios that come with the package: by name, and without mistakes."""

import re

import pytest

from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.reader import read_shipped, shipped, text_of


def test_names_are_in_the_order_of_the_alphabet() -> None:
    names = list(shipped())
    assert names == sorted(names)
    assert "lost-first" in names


@pytest.mark.parametrize("name", shipped())
def test_each_can_be_read_and_says_what_it_is_about(name: str) -> None:
    scenario = read_shipped(name)
    assert re.fullmatch("[a-z0-9-]+", name)
    assert scenario.source == name
    assert scenario.expectations


def test_a_name_that_is_not_shipped_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"^'\.\./pyproject': found no shipped scenario"):
        text_of("../pyproject")
    with pytest.raises(ScenarioError, match="did you mean 'lost-first'"):
        read_shipped("lost-frist")
