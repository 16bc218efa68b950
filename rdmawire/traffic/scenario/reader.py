"""Scenarios from files: all of a file's mistakes are told at once, and then nothing is made of it.

::

    scenario = read_scenario("lost-first.yaml")
"""

import os

from rdmawire.traffic.scenario.form.mistake import Misread, Mistake, Mistakes, ScenarioError
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.source import MOST_OCTETS, tree
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.rules.whole import check_whole, links_of
from rdmawire.traffic.scenario.schema.whole import SCENARIO, homes


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """The scenario of a file; :class:`ScenarioError` with all its mistakes."""
    source = os.fspath(path)
    try:
        with open(path, "rb") as file:
            octets = file.read(MOST_OCTETS + 1)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        expected = "the file of a scenario, to read"
        raise ScenarioError([Mistake(source, None, found.lower(), expected)]) from None
    return read_scenario_text(octets, source)


def read_scenario_text(text: str | bytes, source: str = "scenario") -> Scenario:
    """The scenario that a text says; ``source`` is what messages call it."""
    mistakes = Mistakes(source)
    try:
        root = tree(text, mistakes)
        reading = Reading(root, mistakes, homes())
        found, _ = SCENARIO.find(root, reading)
        check_whole(found, reading)
    except Misread as error:
        mistakes.tell(error)
    mistakes.check()
    return Scenario(source=source, **found.values | {"links": links_of(found, reading)})
