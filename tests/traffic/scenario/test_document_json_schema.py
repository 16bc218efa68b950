"""The JSON Schema says of every scenario what the reader says, as far as it can."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rdmawire.traffic.scenario.document import (
    Diagnostics,
    Items,
    Node,
    Scalar,
    is_nothing,
    parse_document,
)
from rdmawire.traffic.scenario.reader import json_schema, shipped, text_of
from rdmawire.traffic.scenario.section import Section
from tests.traffic.scenario.base import PLACES, SECTIONS, TEXT, at, base, noded
from tests.traffic.scenario.test_reader import ALONE

SCHEMA = json_schema()
KNOWN = {
    *("type", "enum", "anyOf", "properties", "additionalProperties", "patternProperties", "items"),
    *("required", "minItems", "maxItems", "minProperties", "maxProperties", "propertyNames"),
    *("$ref", "$defs", "$schema", "title", "description", "default"),
}
"""What the schema may use: what is checked here."""


def value_of(node: Node) -> Any:
    """What an editor takes a node for: YAML 1.2, core schema."""
    if isinstance(node, Items):
        return [value_of(item) for item in node.items]
    if not isinstance(node, Scalar):
        return {key.text: value_of(value) for key, value in node.pairs}
    if is_nothing(node):
        return None
    if node.plain and node.text in ("true", "false"):
        return node.text == "true"
    if node.plain and re.fullmatch(r"-?[0-9]+|0x[0-9a-fA-F]+", node.text):
        return int(node.text, 0) if node.text.startswith("0x") else int(node.text)
    if node.plain and re.fullmatch(r"-?[0-9]+\.[0-9]+", node.text):
        return float(node.text)
    return node.text


TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def is_of(value: Any, types: Any) -> bool:
    names = [types] if isinstance(types, str) else types
    return any(
        isinstance(value, TYPES[name]) and (isinstance(value, bool) == (name == "boolean"))
        for name in names
    )


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is as a schema says: of JSON Schema, what ours uses."""
    assert schema.keys() <= KNOWN, schema.keys()
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return fits(value, SCHEMA["$defs"][name])
    if "anyOf" in schema and not any(fits(value, one) for one in schema["anyOf"]):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "type" in schema and not is_of(value, schema["type"]):
        return False
    if isinstance(value, list):
        return _list_fits(value, schema)
    return not isinstance(value, dict) or _object_fits(value, schema)


def _list_fits(value: list[Any], schema: dict[str, Any]) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    return all(fits(item, schema.get("items", {})) for item in value)


def _object_fits(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = schema.get("additionalProperties", {})
    if not {*schema.get("required", ())} <= value.keys():
        return False
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 1 << 30):
        return False
    for key, one in value.items():
        rules = [known[key]] if key in known else []
        rules += [rule for pattern, rule in patterns.items() if re.search(pattern, key)]
        if not rules and others is False:
            return False
        if not all(fits(one, rule) for rule in rules or [others]):
            return False
        if "propertyNames" in schema and not fits(key, schema["propertyNames"]):
            return False
    return True


def fits_all(root: Node) -> bool:
    return fits(value_of(root), SCHEMA)


def rooted(text: str) -> Node:
    return parse_document(text, Diagnostics("it.yaml"))


HERE = Path(__file__).parent
TEXTS = [TEXT, ALONE, (HERE / "shortest.yaml").read_text(), (HERE / "everything.yaml").read_text()]


@pytest.mark.parametrize("text", [*TEXTS, *map(text_of, shipped())])
def test_scenarios_fit(text: str) -> None:
    assert fits_all(rooted(text))


def test_it_is_json_and_refers_to_what_is_there() -> None:
    text = json.dumps(SCHEMA)
    names = {name.replace("#/$defs/", "") for name in re.findall(r'"(#/\$defs/[^"]*)"', text)}
    assert names == SCHEMA["$defs"].keys()
    assert all(re.fullmatch(r"[\w-]+", name) for name in names)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.called)
def test_unknown_keys_and_missing_keys_do_not_fit(section: type[Section]) -> None:
    document = base()
    place = at(document, PLACES[section.called])
    place["zzz"] = "1"
    assert not fits_all(noded(document, count(1)))
    del place["zzz"]
    assert fits_all(noded(document, count(1)))
    for key in section.needed():
        without = base()
        del at(without, PLACES[section.called])[key]
        assert not fits_all(noded(without, count(1))), key
