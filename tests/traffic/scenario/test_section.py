"""Sections: what pydantic collects is reported, and an error of the program is none of a file."""

import pickle
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import ValidationError

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    Diagnostics,
    Mark,
    Node,
    ReportedError,
    parse_document,
)
from rdmawire.traffic.scenario.model.network import SwitchPlan
from rdmawire.traffic.scenario.reader import read_shipped
from rdmawire.traffic.scenario.section import Section, key, read_section
from rdmawire.traffic.scenario.types import Number, ValueType


@dataclass(frozen=True, slots=True)
class Broken(ValueType):
    """A type whose reading fails, by no fault of the file."""

    error: type[Exception]
    description: str = "anything"
    examples: tuple[str, ...] = ("1",)

    def read(self, node: Node, context: ParseContext) -> Any:
        raise self.error("a bug")


class Pair(Section):
    """Two numbers and something broken."""

    called: ClassVar = "a pair"

    one: Annotated[int, Number(1, 5), key("The first.")]
    two: Annotated[int, Number(1, 5), key("The second.", "the other")] = 2
    value: Annotated[Any, Broken(ValueError), key("A value.")] = None
    type: Annotated[Any, Broken(TypeError), key("A type.")] = None


def read(text: str) -> tuple[Any, Diagnostics]:
    diagnostics = Diagnostics("it.yaml")
    root = parse_document(text, diagnostics)
    context = ParseContext(root, diagnostics, dict, {})
    return read_section(Pair, root, context), diagnostics


def test_keys_are_read_by_their_names_in_the_file() -> None:
    found, diagnostics = read("{one: 1, the other: 0x3}")
    assert found == Pair(mark=Mark(1, 1), one=1, two=3)
    assert not diagnostics
    assert read("one: 1")[0].two == 2


@pytest.mark.parametrize("text", ["{one: 9, the other: x, three: 3}", "{the other: 1}", "[]", ""])
def test_mistakes_are_reported_and_end_the_reading(text: str) -> None:
    with pytest.raises(ReportedError):
        read(text or "~")


@pytest.mark.parametrize("name", ["two", "mark", "called"])
def test_names_of_fields_that_are_no_keys_are_unknown(name: str) -> None:
    with pytest.raises(ReportedError):
        read(f"{{one: 1, {name}: 2}}")


@pytest.mark.parametrize(("name", "error"), [("value", ValueError), ("type", TypeError)])
def test_an_error_of_the_program_is_no_mistake_of_the_file(
    name: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match="a bug"):
        read(f"{{one: 1, {name}: 2}}")


def test_a_program_cannot_give_what_a_section_does_not_have() -> None:
    given: dict[str, Any] = {"name": "leaf", "mark": Mark(1, 1), "buffers": 1}
    with pytest.raises(ValidationError, match="buffers"):
        SwitchPlan(**given)


def test_scenarios_can_be_pickled() -> None:
    scenario = read_shipped("lost-first")
    assert pickle.loads(pickle.dumps(scenario)) == scenario
