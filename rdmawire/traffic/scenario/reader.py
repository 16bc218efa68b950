"""Scenarios from files. All mistakes of a file are reported at once, in one exception.

::

    scenario = read_scenario("lost-first.yaml")
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    MAX_BYTES,
    Diagnostics,
    Mistake,
    Node,
    NodeError,
    ReportedError,
    ScenarioError,
    decode,
    parse_document,
)
from rdmawire.traffic.scenario.model.connection import ConnectionPlan
from rdmawire.traffic.scenario.model.scenario import Scenario, homes
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.rules.connection import check_connection
from rdmawire.traffic.scenario.rules.whole import check_whole, links_of
from rdmawire.traffic.scenario.rules.work import check_step
from rdmawire.traffic.scenario.section import read_section
from rdmawire.traffic.scenario.types import Definitions

RULES: Final[Mapping[type, Callable[..., Any]]] = {
    ConnectionPlan: check_connection,
    StepPlan: check_step,
}
"""What checks a section beyond its keys, by its class."""


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """The scenario of a file; :class:`ScenarioError` with all its mistakes."""
    return read_scenario_text(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """A file's bytes, one more than a scenario may have at the most; :class:`ScenarioError`."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        expected = "the file of a scenario, to read"
        mistake = Mistake(os.fspath(path), None, found.lower(), expected)
        raise ScenarioError([mistake]) from None


def text_of_bytes(data: bytes, source: str) -> str:
    """The text that a file of a scenario has; :class:`ScenarioError` if it cannot be one."""
    diagnostics = Diagnostics(source)
    try:
        return decode(data)
    except NodeError as error:
        diagnostics.report(error)
        raise diagnostics.error() from None


def read_scenario_text(text: str | bytes, source: str = "scenario") -> Scenario:
    """The scenario that a text says; ``source`` is what messages call it."""
    diagnostics = Diagnostics(source)
    try:
        return read_tree(parse_document(text, diagnostics), diagnostics)
    except NodeError as error:
        diagnostics.report(error)
        raise diagnostics.error() from None


def read_tree(root: Node, diagnostics: Diagnostics) -> Scenario:
    """Make a scenario of the root node of a file.

    Raises :class:`ScenarioError` with all mistakes, those reported before among them.
    """
    context = ParseContext(root, diagnostics, homes, RULES)
    scenario: Scenario | None = None
    with suppress(ReportedError):
        scenario = read_section(Scenario, root, context)
    check_whole(context)
    if scenario is None or diagnostics:
        raise diagnostics.error()
    given = {"source": diagnostics.source, "links": links_of(context)}
    return scenario.model_copy(update=given)


# The JSON Schema, for editors.

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of scenario files: completion in editors, and mistakes while typing.

    It has the keys and the types of their values. Whether a name that is used is there, and what
    must hold between values, only the reader checks.
    """
    definitions: Definitions = {}
    root = Scenario.json_schema(definitions)
    return {"$schema": DIALECT, "title": "A scenario of rdmawire", **root, "$defs": definitions}
