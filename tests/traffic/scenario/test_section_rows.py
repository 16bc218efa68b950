"""Every row of the schema: a good value is read, another is a mistake in its very place."""

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Diagnostics, Node, parse_document
from rdmawire.traffic.scenario.model import Scenario, homes
from rdmawire.traffic.scenario.model.host import INLINE
from rdmawire.traffic.scenario.model.host import TEXT as TEXT_CONTENT
from rdmawire.traffic.scenario.model.step import OF_PEER, STEPS, VERBS
from rdmawire.traffic.scenario.reader import RULES
from rdmawire.traffic.scenario.section import Key, Named, Section, parts_of
from rdmawire.traffic.scenario.types import ValueType
from tests.traffic.scenario.base import (
    PLACES,
    SECTIONS,
    TEXT,
    at,
    base,
    errors_of,
    mistakes_of,
    node_at,
    noded,
    parsed,
    read,
)


class Row(NamedTuple):
    """A key of something."""

    section: type[Section]
    key: str
    row: Key

    def __str__(self) -> str:
        return f"{self.section.called}-{self.key}"


def _rows() -> Iterator[Row]:
    """All rows; those that several things share, once."""
    seen: set[tuple[object, ...]] = set()
    for section in SECTIONS:
        for key, row in section.keys().items():
            if row.identity not in seen:
                seen.add(row.identity)
                yield Row(section, key, row)


ROWS = list(_rows())

COMPANY: dict[tuple[str, str], dict[str, str]] = {
    ("memory", "via"): {"gpu": "gpu0"},
    ("memory", "offset"): {"within": "whole"},
    ("a shared receive queue", "limit"): {"max_wr": "32767"},
    ("a connection", "cnp dscp"): {"cnp interval": "50 us"},
    ("a connection", "reject"): {"connect": "cm"},
    ("a queue", "kmin"): {"kmax": "16 GiB"},
    ("a queue", "kmax"): {"kmin": "0"},
    ("a queue", "pmax"): {"kmin": "0", "kmax": "0"},
    ("a queue", "headroom"): {"xoff": "0", "xon": "0"},
    ("a queue", "xoff"): {"xon": "0"},
    ("a queue", "xon"): {"xoff": "8 MiB"},
    ("the verb inject", "va_offset"): {"to": "server.sink"},
    ("the verb inject", "rkey_offset"): {"to": "server.sink"},
    ("the verb inject", "queue"): {"opcode": "XRC_SEND_ONLY"},
    ("a shared receive queue", "other domain"): {"xrc": "true"},
    **{
        (section.called, "packet"): {"sent by": "client/a"}
        for section in SECTIONS
        if section.keys().get("packet")
    },
}
"""What some keys cannot be without."""

GOOD: dict[tuple[str, str], str] = {
    ("memory", "size"): "4 KiB",
    ("memory", "within"): "whole",
    ("receives", "into"): "server.sink",
    ("the verb receive", "into"): "server.sink",
    ("the verb compare_swap", "into"): "client.eight",
    ("the verb fetch_add", "into"): "client.eight",
    ("the verb atomic_write", "from"): "client.eight",
    ("the verb atomic_write", "inline"): "12345678",
    ("the verb bind_mw", "what"): "client.slot",
    ("the verb reg_mr", "what"): "client.quick",
    ("the verb local_inv", "what"): "client.slot",
    ("the verb free", "what"): "client.tensor",
    ("the verb migrate", "on"): "client/o",
    ("the verb disconnect", "on"): "client/m",
    **{
        (f"the verb {word}", key): "server.sink"
        for word, verb in VERBS.items()
        for key, row in verb.parameters.items()
        if row.type in OF_PEER
    },
    ("the verb send_inv", "key"): "server.slot",
    ("the verb inject", "queue"): "pool",
}
"""Values that go with the rest of the scenario, where the first sample does not."""


def changed(row: Row, value: Any) -> Node:
    """The scenario with this value of a key, and nothing that contradicts it."""
    document = base()
    place = at(document, PLACES[row.section.called])
    rivals = [
        key for keys in row.section.alternatives if row.key in keys for key in keys if key in place
    ]
    if row.key == "inline":
        rivals.append("from")
    for rival in rivals:
        place.pop(rival, None)
    place.update({row.key: value}, **COMPANY.get((row.section.called, row.key), {}))
    return noded(document, count(1))


def test_everything_can_be_read() -> None:
    assert mistakes_of(TEXT) == ()
    assert {step.verb for step in read(TEXT).steps} == VERBS.keys()


def test_each_thing_with_keys_has_its_place_and_another_name() -> None:
    assert PLACES.keys() == {section.called for section in SECTIONS}
    assert len(PLACES) == len(SECTIONS)


WITH_SAMPLES = [
    row for row in ROWS if not (isinstance(row.row.type, Named) or row.row.type is STEPS)
]


@pytest.mark.parametrize("row", WITH_SAMPLES, ids=str)
def test_a_good_value_is_read(row: Row) -> None:
    good = GOOD.get((row.section.called, row.key), row.row.type.examples[0])
    assert errors_of(changed(row, parsed(good))) == ()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_list_in_a_list_is_a_mistake_in_its_place(row: Row) -> None:
    root = changed(row, [["?"]])
    lists = node_at(root, (*PLACES[row.section.called], row.key))
    assert {one.mark for one in errors_of(root)} & {lists.mark, node_at(lists, (0,)).mark}


STRANGE = "?!"
WORDLESS = (INLINE, Scenario.keys()["name"].type, TEXT_CONTENT)
"""Kinds that take any text."""
WORDY = [row for row in ROWS if not any(row.row.type is one for one in WORDLESS)]


@pytest.mark.parametrize("row", WORDY, ids=str)
def test_a_strange_word_is_a_mistake_in_its_place(row: Row) -> None:
    root = changed(row, STRANGE)
    value = node_at(root, (*PLACES[row.section.called], row.key))
    assert value.mark in {one.mark for one in errors_of(root)}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.called)
def test_unknown_keys_are_mistakes(section: type[Section]) -> None:
    document = base()
    at(document, PLACES[section.called])["zzz"] = "1"
    (mistake,) = errors_of(noded(document, count(1)))
    assert mistake.found == "key 'zzz'"
    assert mistake.expected.startswith(f"a key of {section.called}")


NEEDED = [row for row in ROWS if row.row.needed]


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_needed_keys_are_missed(row: Row) -> None:
    document = base()
    del at(document, PLACES[row.section.called])[row.key]
    found = {mistake.found for mistake in errors_of(noded(document, count(1)))}
    assert f"{row.section.called} without '{row.key}'" in found


def types() -> list[ValueType]:
    """Every type of values that has no section in it."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [Scenario]
    while waiting:
        part = waiting.pop()
        if id(part) not in found:
            found[id(part)] = part
            waiting += parts_of(part)
    return [part for part in found.values() if not _made_of_sections(part)]


def _made_of_sections(part: Any) -> bool:
    return isinstance(part, type) or any(map(_made_of_sections, parts_of(part)))


def context() -> ParseContext:
    """As it is in the second step, with all that may be named."""
    found = ParseContext(ROOT, Diagnostics("sample"), homes, RULES)
    found.scope.append("client")
    found.step = 1
    return found


ROOT = parse_document(TEXT, Diagnostics("it.yaml"))


@pytest.mark.parametrize("kind", types(), ids=lambda kind: kind.description[:40])
def test_all_samples_are_such_values(kind: ValueType) -> None:
    for sample in kind.examples:
        now = context()
        kind.read(parse_document(sample, now.diagnostics), now)
        assert not now.diagnostics, sample


USUAL = [
    (row, default)
    for row in ROWS
    if (default := row.row.default) not in (None, (), "") and isinstance(default, int | float | str)
]


@pytest.mark.parametrize(("row", "default"), USUAL, ids=str)
def test_defaults_are_written_as_they_are_read(row: Row, default: object) -> None:
    now = context()
    written = parse_document(row.row.type.format(default), now.diagnostics)
    assert row.row.type.read(written, now) == default


def test_there_are_defaults_to_write() -> None:
    assert len(USUAL) > 20
