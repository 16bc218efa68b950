"""The constants of the model of costs in a file, as a calibration writes them."""

from dataclasses import fields
from math import isfinite
from typing import Annotated, Any, Final

from rdmawire.topology import SOURCES, Costs
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import TextError
from rdmawire.traffic.scenario.section import Found, Section, key, made_section
from rdmawire.traffic.scenario.types import TEXT, Parsed

_LARGEST: Final = 1e18
_MAX_DIGITS: Final = 40


def _number(text: str) -> float:
    try:
        value = float(text) if len(text) <= _MAX_DIGITS else -1.0
    except ValueError:
        raise TextError from None
    if not (isfinite(value) and 0 <= value <= _LARGEST):
        raise TextError
    return value


def _positive(text: str) -> float:
    if not (value := _number(text)):
        raise TextError
    return value


NUMBER: Final = Parsed("a number from 0 on, such as 5250 or 1.79e10", _number, ("5250", "1.79e10"))
POSITIVE: Final = Parsed("a number above 0, such as 0.9 or 1.79e10", _positive, ("0.9", "1.79e10"))
"""Rates and shares of them, by which sizes are divided."""


class _Constants(Section):
    """Constants by their names; those that a file does not have are as usual."""

    costs: Annotated[str, TEXT, key("Name of these constants.")]
    source: Annotated[str, TEXT, key("Where they are from.")] = ""

    def finish(self, found: Found, context: ParseContext) -> Any:  # noqa: ARG002
        given = {
            field.name: getattr(self, field.name)
            for field in fields(Costs)
            if field.name in found.nodes
        }
        return Costs(**given)


CostsPlan: Final = made_section(
    _Constants,
    "constants of costs",
    {
        field.name: (
            Annotated[
                float,
                NUMBER if SOURCES[field.name].unit == "ns" else POSITIVE,
                key(f"In {SOURCES[field.name].unit}: {SOURCES[field.name].source}."),
            ],
            field.default,
        )
        for field in fields(Costs)
    },
)
"""A file with constants of :class:`~rdmawire.topology.Costs`."""
