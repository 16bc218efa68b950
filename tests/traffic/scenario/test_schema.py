"""Every row of the schema: a good value is read, another is a mistake in its very place."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import count
from typing import Any, NamedTuple

import pytest

from rdmawire.traffic.scenario.document import Diagnostics, Node, parse_document
from rdmawire.traffic.scenario.form.kind import Kind, shown
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import Key, Named, Record, parts
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.schema.content import INLINE
from rdmawire.traffic.scenario.schema.content import TEXT as TEXT_CONTENT
from rdmawire.traffic.scenario.schema.whole import SCENARIO, homes
from rdmawire.traffic.scenario.schema.work import STEPS
from rdmawire.traffic.scenario.verbs import OF_PEER, VERBS
from tests.traffic.scenario.base import (
    PLACES,
    RECORDS,
    TEXT,
    at,
    base,
    mistakes_of,
    node_at,
    noded,
    parsed,
    read,
    told,
)


class Row(NamedTuple):
    """A key of something."""

    record: Record[Any]
    key: str
    row: Key

    def __str__(self) -> str:
        return f"{self.record.called}-{self.key}"


def _rows() -> Iterator[Row]:
    """All rows; those that several things share, once."""
    seen: set[int] = set()
    for record in RECORDS:
        for key, row in record.keys.items():
            if id(row) not in seen:
                seen.add(id(row))
                yield Row(record, key, row)


ROWS = list(_rows())

COMPANY: dict[tuple[str, str], dict[str, str]] = {
    ("memory", "via"): {"gpu": "gpu0"},
    ("a shared receive queue", "limit"): {"max_wr": "32767"},
    ("a connection", "cnp dscp"): {"cnp interval": "50 us"},
    ("a connection", "reject"): {"connect": "cm"},
    ("a queue", "kmin"): {"kmax": "16 GiB"},
    ("a queue", "kmax"): {"kmin": "0"},
    ("a queue", "pmax"): {"kmin": "0", "kmax": "0"},
    ("a queue", "headroom"): {"xoff": "0", "xon": "0"},
    ("a queue", "xoff"): {"xon": "0"},
    ("a queue", "xon"): {"xoff": "8 MiB"},
    **{
        (record.called, "packet"): {"sent by": "client/a"}
        for record in RECORDS
        if "packet" in record.keys
    },
}
"""What some keys cannot be without."""

GOOD: dict[tuple[str, str], str] = {
    ("memory", "size"): "4 KiB",
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
        if row.takes in OF_PEER
    },
    ("the verb send_inv", "key"): "server.slot",
}
"""Values that go with the rest of the scenario, where the first sample does not."""


def changed(row: Row, value: Any) -> Node:
    """The scenario with this value of a key, and nothing that contradicts it."""
    document = base()
    place = at(document, PLACES[row.record.called])
    rivals = [
        key
        for key in row.record.keys
        if key in place and row.record.keys[key].places(key) == row.row.places(row.key)
    ]
    if row.key == "inline":
        rivals.append("from")
    for rival in rivals:
        place.pop(rival, None)
    place.update({row.key: value}, **COMPANY.get((row.record.called, row.key), {}))
    return noded(document, count(1))


def test_everything_can_be_read() -> None:
    assert mistakes_of(TEXT) == ()
    assert {step.verb for step in read(TEXT).steps} == VERBS.keys()


def test_each_thing_with_keys_has_its_place_and_another_name() -> None:
    assert PLACES.keys() == {record.called for record in RECORDS}
    assert len(PLACES) == len(RECORDS)


WITH_SAMPLES = [
    row for row in ROWS if not (isinstance(row.row.kind, Named) or row.row.kind is STEPS)
]


@pytest.mark.parametrize("row", WITH_SAMPLES, ids=str)
def test_a_good_value_is_read(row: Row) -> None:
    good = GOOD.get((row.record.called, row.key), row.row.kind.samples[0])
    assert told(changed(row, parsed(good))) == ()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_list_in_a_list_is_a_mistake_in_its_place(row: Row) -> None:
    root = changed(row, [["?"]])
    lists = node_at(root, (*PLACES[row.record.called], row.key))
    assert {one.mark for one in told(root)} & {lists.mark, node_at(lists, (0,)).mark}


STRANGE = "?!"
WORDLESS = (INLINE, SCENARIO.keys["name"].kind, TEXT_CONTENT)
"""Kinds that take any text."""
WORDY = [row for row in ROWS if row.row.kind not in WORDLESS]


@pytest.mark.parametrize("row", WORDY, ids=str)
def test_a_strange_word_is_a_mistake_in_its_place(row: Row) -> None:
    root = changed(row, STRANGE)
    value = node_at(root, (*PLACES[row.record.called], row.key))
    assert value.mark in {one.mark for one in told(root)}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.called)
def test_unknown_keys_are_mistakes(record: Record[Any]) -> None:
    document = base()
    at(document, PLACES[record.called])["zzz"] = "1"
    (mistake,) = told(noded(document, count(1)))
    assert mistake.found == "key 'zzz'"
    assert mistake.expected.startswith(f"a key of {record.called}")


NEEDED = [row for row in ROWS if row.row.needed]


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_needed_keys_are_missed(row: Row) -> None:
    document = base()
    del at(document, PLACES[row.record.called])[row.key]
    found = {mistake.found for mistake in told(noded(document, count(1)))}
    assert f"{row.record.called} without '{row.key}'" in found


PLANNED = [record for record in RECORDS if is_dataclass(record.plan)]


@pytest.mark.parametrize("record", PLANNED, ids=lambda record: record.called)
def test_what_is_needed_is_what_the_plan_has_no_default_for(record: Record[Any]) -> None:
    given = {"name", "mark", "ends", "do", "verb", "priority", "source"}
    if record.plan is Scenario:
        given.remove("name")
    if record.called == "a connection":
        given.remove("ends")
    plan: Any = record.plan
    bare = {field.name for field in fields(plan) if field.default is MISSING}
    bare -= {field.name for field in fields(plan) if field.default_factory is not MISSING}
    places = {place for key, row in record.keys.items() if row.needed for place in row.places(key)}
    needed = {name for within, name in places if not within}
    assert bare - given <= needed


def kinds() -> list[Kind[Any]]:
    """Every kind of value in the schema that is no thing with keys."""
    found: dict[int, Kind[Any]] = {}
    waiting: list[Kind[Any]] = [SCENARIO]
    while waiting:
        kind = waiting.pop()
        if id(kind) not in found:
            found[id(kind)] = kind
            waiting += parts(kind)
    return [kind for kind in found.values() if not _made_of_records(kind)]


def _made_of_records(kind: Kind[Any]) -> bool:
    return isinstance(kind, Record) or any(map(_made_of_records, parts(kind)))


def reading() -> Reading:
    """As it is in the second step, with all that may be named."""
    mistakes = Diagnostics("sample")
    found = Reading(ROOT, mistakes, homes())
    found.scope.append("client")
    found.step = 1
    return found


ROOT = parse_document(TEXT, Diagnostics("it.yaml"))


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.said[:40])
def test_all_samples_are_such_values(kind: Kind[Any]) -> None:
    for sample in kind.samples:
        now = reading()
        kind.read(parse_document(sample, now.mistakes), now)
        assert not now.mistakes, sample


USUAL = [
    (row, default)
    for row in ROWS
    if (default := row.record.default(row.key)) not in (MISSING, None, (), "")
    and isinstance(default, int | float | str)
]


@pytest.mark.parametrize(("row", "default"), USUAL, ids=str)
def test_defaults_are_written_as_they_are_read(row: Row, default: object) -> None:
    now = reading()
    written = parse_document(shown(row.row.kind, default), now.mistakes)
    assert row.row.kind.read(written, now) == default


def test_there_are_defaults_to_write() -> None:
    assert len(USUAL) > 20
