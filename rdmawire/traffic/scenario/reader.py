"""Scenarios from files: all of a file's mistakes are told at once, and then nothing is made of it.

::

    scenario = read_scenario("lost-first.yaml")
"""

import os

from rdmawire.traffic.scenario.document import (
    MAX_BYTES,
    Diagnostics,
    Mistake,
    Node,
    NodeError,
    ScenarioError,
    decode,
    parse_document,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.rules.whole import check_whole, links_of
from rdmawire.traffic.scenario.schema.whole import SCENARIO, homes


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """The scenario of a file; :class:`ScenarioError` with all its mistakes."""
    return read_scenario_text(read_octets(path), os.fspath(path))


def read_octets(path: str | os.PathLike[str]) -> bytes:
    """A file's octets, one more than a scenario may have at the most; :class:`ScenarioError`."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        expected = "the file of a scenario, to read"
        mistake = Mistake(os.fspath(path), None, found.lower(), expected)
        raise ScenarioError([mistake]) from None


def text_of_octets(octets: bytes, source: str) -> str:
    """The text that a file of a scenario has; :class:`ScenarioError` if it cannot be one."""
    mistakes = Diagnostics(source)
    try:
        return decode(octets)
    except NodeError as error:
        mistakes.report(error)
        raise mistakes.error() from None


def read_scenario_text(text: str | bytes, source: str = "scenario") -> Scenario:
    """The scenario that a text says; ``source`` is what messages call it."""
    mistakes = Diagnostics(source)
    try:
        return read_tree(parse_document(text, mistakes), mistakes)
    except NodeError as error:
        mistakes.report(error)
        raise mistakes.error() from None


def read_tree(root: Node, mistakes: Diagnostics) -> Scenario:
    """The scenario that a tree says, unless there are mistakes, those told before among them.

    :class:`NodeError` for what is no tree of a scenario at all.
    """
    reading = Reading(root, mistakes, homes())
    found, _ = SCENARIO.find(root, reading)
    check_whole(found, reading)
    if mistakes:
        raise mistakes.error()
    return Scenario(source=mistakes.source, **found.values | {"links": links_of(found, reading)})
