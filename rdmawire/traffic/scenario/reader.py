"""Scenarios from files. All errors of a file are reported at once, in one exception.

::

    scenario = read_scenario("lost-first.yaml")
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple

from rdmawire.terminal import quote
from rdmawire.traffic.scenario.consistency import check_whole, links_of
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.counters import COUNTERS
from rdmawire.traffic.scenario.document import (
    MAX_BYTES,
    Diagnostics,
    Mistake,
    Node,
    NodeError,
    ReportedError,
    ScenarioError,
    decode,
    meant_by,
    parse_document,
    shipped_files,
)
from rdmawire.traffic.scenario.model import Scenario, homes
from rdmawire.traffic.scenario.model.connection import ConnectionPlan
from rdmawire.traffic.scenario.model.expectation import EVENTS, REASONS
from rdmawire.traffic.scenario.model.placement import PlacePlan
from rdmawire.traffic.scenario.model.step import STATUS, StepPlan
from rdmawire.traffic.scenario.rules import check_connection, check_step
from rdmawire.traffic.scenario.section import read_section, sections_in
from rdmawire.traffic.scenario.topology_file import check_place
from rdmawire.traffic.scenario.types import Definitions

RULES: Final[Mapping[type, Callable[..., Any]]] = {
    ConnectionPlan: check_connection,
    PlacePlan: check_place,
    StepPlan: check_step,
}
"""Functions that check a section beyond its keys, by its class."""


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario file; raise :class:`ScenarioError` with all its errors."""
    return read_scenario_text(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file up to one byte beyond the limit; raise :class:`ScenarioError` if that fails."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        expected = "the file of a scenario, to read"
        mistake = Mistake(os.fspath(path), None, found.lower(), expected)
        raise ScenarioError([mistake]) from None


def text_of_bytes(data: bytes, source: str) -> str:
    """Decode a scenario file; raise :class:`ScenarioError` if it is not UTF-8 or too large."""
    diagnostics = Diagnostics(source)
    try:
        return decode(data)
    except NodeError as error:
        diagnostics.report(error)
        raise diagnostics.error() from None


def read_scenario_text(text: str | bytes, source: str = "scenario") -> Scenario:
    """Read a scenario from text; ``source`` is its name in messages."""
    diagnostics = Diagnostics(source)
    try:
        return read_tree(parse_document(text, diagnostics), diagnostics)
    except NodeError as error:
        diagnostics.report(error)
        raise diagnostics.error() from None


def read_tree(root: Node, diagnostics: Diagnostics) -> Scenario:
    """Build a scenario from the root node of a file.

    Raises :class:`ScenarioError` with all errors, including those reported earlier.
    """
    context = ParseContext(root, diagnostics, homes, RULES)
    scenario: Scenario | None = None
    try:
        scenario = read_section(Scenario, root, context)
    except ReportedError as error:
        diagnostics.report(error)
    check_whole(context)
    if scenario is None or diagnostics:
        raise diagnostics.error()
    given = {"source": diagnostics.source, "links": links_of(context)}
    return scenario.model_copy(update=given)


# The JSON Schema, for editors.

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, for completion and checks in editors.

    It has the keys and the types of their values. Only the reader checks that names exist, and the
    constraints between values.
    """
    definitions: Definitions = {}
    root = Scenario.json_schema(definitions)
    return {"$schema": DIALECT, "title": "A scenario of rdmawire", **root, "$defs": definitions}


# Scenarios of the package, by name: ``lost-first`` is ``lost-first.yaml``.

FOLDER: Final = "scenarios"


def shipped() -> Mapping[str, Traversable]:
    """Return the file of each shipped scenario, by name in alphabetical order."""
    return shipped_files(FOLDER)


def text_of(name: str) -> str:
    """Return the text of a shipped scenario; ``ScenarioError`` for any other name."""
    found = shipped()
    if name not in found:
        wanted, near = "a name of `rdmawire run --list`", meant_by(str(name), found)
        raise ScenarioError([Mistake(quote(str(name)), None, "no shipped scenario", wanted, near)])
    return found[name].read_text(encoding="utf-8")


def read_shipped(name: str) -> Scenario:
    """Read a shipped scenario; messages contain its name."""
    return read_scenario_text(text_of(name), name)


# All keys, counters, events and completion statuses of a scenario, as rows.

REQUIRED: Final = "required"
"""Text for a key without a default."""


class Listed(NamedTuple):
    """A row of the listing: section, name, help, and type of value.

    ``default`` is its default as text, or :data:`REQUIRED`.
    """

    of: str
    name: str
    help: str = ""
    value: str = ""
    default: str = ""

    @property
    def line(self) -> str:
        """Return the text that follows its name."""
        value = f"[{self.value}]" if self.value else ""
        usual = self.default
        if usual and usual != REQUIRED:
            usual = f"default: {usual}"
        return " ".join(filter(None, (self.help, value, usual and f"({usual})")))

    def has(self, word: str) -> bool:
        """Return whether a word is part of its name or of its section's."""
        return any(word.lower() in text.lower() for text in (self.of, self.name))


def listed_rows() -> Iterator[Listed]:
    """Yield all rows. A key of several sections is listed once, with the first."""
    seen: set[tuple[object, ...]] = set()
    for section in sections_in(Scenario):
        prefixed = {f"{prefix} HOST": row for prefix, row in section.prefixed().items()}
        for name, row in (section.keys() | prefixed).items():
            if row.identity not in seen:
                seen.add(row.identity)
                default = REQUIRED if row.needed else row.left_out
                yield Listed(section.called, name, row.help, row.type.label, default)
    for of, counters in COUNTERS.items():
        for name, counter in counters.items():
            yield Listed(f"counters of a {of.value}", name, counter.help)
    for name in EVENTS:
        first = next(iter(REASONS[name])).name if name in REASONS else ""
        value = f"{name}, or {name} with a reason: {name}.{first} and so on" if first else ""
        yield Listed("events of hosts", name, value=value)
    yield from (Listed("completion statuses", name) for name in STATUS.examples)
