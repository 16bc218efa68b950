"""Every field of every table answers to each of its names, wherever fields are named."""

from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Any

import pytest

from rdmawire.columns.query import Query
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.fields import derived_fields, fields
from rdmawire.dissect.node import Node
from rdmawire.dissect.select import FieldError, Selection
from rdmawire.fabric import FabricError
from rdmawire.fabric.fault import Rule
from rdmawire.fabric.field import FieldName, Fields
from rdmawire.filter import Filter, FilterError
from rdmawire.filter.ast import FieldReference, ValueType
from rdmawire.filter.match_frame import compile_value
from rdmawire.traffic.edit import EditError, text
from rdmawire.traffic.edit.text import fields_named
from rdmawire.traffic.scenario.document import Mark, NodeError, Scalar
from rdmawire.traffic.scenario.references import FIELD
from rdmawire.wire.field_registry import (
    OURS,
    HeaderField,
    both,
    find,
    names,
    nearest_names,
    rows_of,
    unknown,
)
from rdmawire.wire.header import Header, Row
from rdmawire.wire.show import writer
from rdmawire.wire.tables import IWARP, tables, tables_of

RELATIVE = {"tcp.seq", "tcp.ack"}
"""Wireshark counts these from the start of the stream; as names of tables they are TCP's own."""
OF_CAPTURES = set(tables_of("erf", *IWARP))
"""Headers that no frame on a link of the fabric has."""


def named_fields(table: type[Header]) -> list[tuple[str, HeaderField]]:
    """Each name of each field of a header."""
    return [(name, field) for name in names() for field in find(name) if field.table is table]


def header_with(field: HeaderField) -> Header:
    """A header that has the field by the name that it was found by, and no zero in it."""
    table, row = field.table, field.row
    header = table()
    if isinstance(row, Row) and row.cases and not field.is_always:
        selector = next(number for number in selectors(row) if field.means(number))
        (by,) = find(f"{table.label}.{row.by}")
        header = by.replaced(header, selector)
        if row.by == row.name:
            return header
    return field.replaced(header, pattern(field))


def selectors(row: Row) -> Iterator[int]:
    yield from row.cases or ()
    yield from (number for number in range(1 << 16) if number not in (row.cases or ()))


def pattern(field: HeaderField) -> Any:
    row = field.row
    if isinstance(row, Row) and row.is_bytes:
        return bytes(range(1, row.width // 8 + 1))
    number = (0xA5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5 & (1 << row.width) - 1) or 1
    several = isinstance(row, Row) and row.times > 1
    return (number,) * row.times if several else number * field.scale  # type: ignore[union-attr]


def frame_of(header: Header) -> Dissection:
    frame = Dissection(1, header.build(), header.SIZE, 0)
    frame.nodes = [Node(type(header).label, 0, header.build(), header)]
    return frame


class OneHeader(Fields):
    """The fields of a header that is in no frame."""

    def __init__(self, header: Header) -> None:
        super().__init__(b"")
        self.data, self._headers = header.build(), ((0, type(header)),)


def same(field: HeaderField, found: Any, value: Any) -> bool:
    """Whether a value of a filter is this one; filters have addresses as bytes."""
    if isinstance(found, bytes) and isinstance(value, int):
        return int.from_bytes(found) == value
    if isinstance(found, str):
        return found == writer(field.show, field.row.width)(value)
    return bool(found == value)


def values_of(value: Any) -> Collection[Any]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.label)
def test_each_name_is_the_same_field_in_captures_filters_and_columns(table: type[Header]) -> None:
    for name, field in named_fields(table):
        if name in RELATIVE:
            continue
        header = header_with(field)
        frame, value = frame_of(header), field.value_in(header)
        (texts,) = Selection([name]).values(frame)
        held = field._replace(scale=1).value_in(header)
        write = writer(field.show, field.row.width)
        assert {write(one) for one in values_of(held)} <= {*texts}, name
        wanted = Filter(name)
        found = compile_value(FieldReference(name, ValueType.NUMBER))(frame)
        assert wanted(frame), name
        assert all(any(same(field, each, one) for each in found) for one in values_of(value)), name
        assert None not in Query([name]).values(frame), name


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.label)
def test_each_name_is_the_same_field_in_edits(table: type[Header]) -> None:
    for name, field in named_fields(table):
        if both(find(name)):
            with pytest.raises(EditError, match=f"^'{name}' is .* and .*: name one of them$"):
                fields_named(name)
        else:
            assert field in fields_named(name), name


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.label)
def test_each_name_is_the_same_field_in_faults_and_expectations(table: type[Header]) -> None:
    for name, field in named_fields(table):
        header = header_with(field)
        key = Scalar(name, Mark(1, 1))
        if all(one.table in OF_CAPTURES for one in find(name)):
            with pytest.raises(FabricError, match=f"^{name}: no frame on a link has the header "):
                FieldName(name)
            with pytest.raises(NodeError, match="no frame on a link has the header"):
                FIELD.read(key, None)  # type: ignore[arg-type]
        elif table not in OF_CAPTURES:
            value = field.value_in(header)
            for accepted in name, FIELD.read(key, None):  # type: ignore[arg-type]
                rule = Rule("drop", {accepted: value})
                assert rule.means(OneHeader(header), Random(0)), name


def test_every_field_has_the_names_of_its_table_and_of_wireshark_and_both_mixed() -> None:
    for name in ("bth.pkey", "infiniband.bth.p_key", "bth.p_key", "infiniband.bth.pkey"):
        assert [field.name for field in find(name)] == ["bth.pkey"]
        assert find(OURS + name) == find(name)
    for table in tables():
        for row in rows_of(table):
            assert any(field.row is row for field in find(f"{table.label}.{row.name}"))


def test_a_name_means_no_other_field_than_wiresharks() -> None:
    shown = {info.name for info in fields()}
    headers = {table.wireshark for table in tables()} - {""}
    assert {name for name in names() if name in shown and not find(name)} == set()
    assert {info.name for info in derived_fields()} & {*names()} == RELATIVE
    assert headers & {*names()} == {
        "infiniband.immdt",
        "infiniband.ieth",
        "infiniband.notice.datadetails",
    }


def refusal(error: type[Exception], ask: Callable[[str], object], name: str) -> str:
    with pytest.raises(error) as refused:
        ask(name)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bth.pns", "; the nearest is bth.psn"),
        ("infiniband.bth.pky", "; the nearest is infiniband.bth.p_key"),
        ("bth.foo", "; bth has opcode, se, migreq, padcnt, tver, pkey, fecn, becn, resv6, destqp"),
        ("infiniband.reth.psn", "; the nearest is infiniband.bth.psn"),
        ("reth", "; it is a header, with va, rkey, dmalen"),
    ],
)
def test_a_misspelt_name_has_the_same_hint_everywhere(name: str, hint: str) -> None:
    message = unknown(name)
    assert message.startswith(f"no field is named '{name}'{hint}")
    assert message in refusal(FieldError, lambda name: Selection([name]), name)
    assert message in refusal(FilterError, lambda name: Filter(f"{name} == 1"), name)
    assert message in refusal(EditError, lambda name: text.assignment(f"{name}=1"), name)
    assert message == refusal(FabricError, lambda name: Rule("drop", {name: 1}), name)
    with pytest.raises(NodeError) as refused:
        FIELD.read(Scalar(name, Mark(1, 1)), None)  # type: ignore[arg-type]
    near = nearest_names(name)
    assert [*refused.value.known][: len(near)] == near


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("frame.time", "frame.time: of the frame itself there are frame.number, frame.len"),
        ("rdmap.opcode", "rdmap.opcode: no frame on a link has the header rdmap"),
    ],
)
def test_a_fault_names_what_it_cannot_match(name: str, reason: str) -> None:
    assert refusal(FabricError, FieldName, name) == reason
