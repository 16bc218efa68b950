"""The schema of scenarios as JSON Schema, for editors: completion, and mistakes while typing.

It says what keys there are and what kinds of values; that names are there, and all that must hold
between values, is known to the reader alone.
"""

from typing import Any, Final

from rdmawire.traffic.scenario.form.kind import Definitions
from rdmawire.traffic.scenario.schema.whole import SCENARIO

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as a value that ``json`` writes."""
    known: Definitions = {}
    root = SCENARIO.json(known)
    return {"$schema": DIALECT, "title": "A scenario of rdmawire", **root, "$defs": known}
