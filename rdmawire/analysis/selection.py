"""Chosen fields of each frame, written as ``tshark -T fields`` writes them."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, cast

from rdmawire.analysis.fields import derived_fields, fields, named_rows
from rdmawire.analysis.frame import FRAME_FIELDS, FrameField
from rdmawire.analysis.node import Derived, Dissection, Node
from rdmawire.errors import RdmaError
from rdmawire.wire.header import Group, Header, Meaning, Row
from rdmawire.wire.show import writer
from rdmawire.wire.tables import tables

Reading = Callable[[Node], list[str]]
"""The values of a field in a node of the right table; none if it has another meaning there."""


class FieldError(RdmaError):
    """A field name that nobody knows; the text offers the nearest ones."""


def _whole(table: type[Header]) -> Reading:
    write = writer(table.show, table.SIZE * 8)
    return lambda node: [write(node.octets)]


def _of_group(group: Group) -> Reading:
    write = writer(group.meaning.show, group.width)
    return lambda node: [write(group.value_in(cast(Header, node.header)))]


def _of_row(row: Row, index: int, meaning: Meaning) -> Reading:
    write = writer(meaning.show, row.width)

    def read(node: Node) -> list[str]:
        header: Any = node.header
        if row.cases is not None and row.meaning_in(header) != meaning:
            return []
        value = header[index]
        return list(map(write, value)) if row.times > 1 else [write(value)]

    return read


def _readings(table: type[Header]) -> Iterator[tuple[str, Reading]]:
    """Every name that a header has a value under, and how it is read."""
    if table.wireshark:
        yield table.wireshark, _whole(table)
    for name, row, meaning in named_rows(table):
        if isinstance(row, Group):
            yield name, _of_group(row)
        else:
            yield name, _of_row(row, table.rows.index(row), meaning)


@cache
def _by_name() -> dict[str, list[tuple[type[Header], Reading]]]:
    found: dict[str, list[tuple[type[Header], Reading]]] = {}
    for table in tables():
        for name, reading in _readings(table):
            found.setdefault(name, []).append((table, reading))
    return found


class Selection:
    """The values of some fields, frame by frame.

    :class:`FieldError` names a field that does not exist, with its nearest neighbours.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._frame: list[tuple[int, FrameField]] = []
        self._derived: dict[Derived, list[int]] = {}
        self._headers: dict[type[Header], list[tuple[int, Reading]]] = {}
        for column, name in enumerate(self.names):
            places = (self._from_frame, self._from_derived, self._from_headers)
            found = [place(column, name) for place in places]
            if not any(found):
                raise FieldError(_unknown(name))

    def _from_frame(self, column: int, name: str) -> bool:
        found = [field for field in FRAME_FIELDS if field.field.name == name]
        self._frame += [(column, field) for field in found]
        return bool(found)

    def _from_derived(self, column: int, name: str) -> bool:
        found = [field for field in derived_fields() if field.name == name]
        for field in found:
            self._derived.setdefault(field, []).append(column)
        return bool(found)

    def _from_headers(self, column: int, name: str) -> bool:
        found = _by_name().get(name, [])
        for table, reading in found:
            self._headers.setdefault(table, []).append((column, reading))
        return bool(found)

    def values(self, frame: Dissection) -> list[list[str]]:
        """One list per field: its values in this frame, in the order of their octets."""
        found: list[list[str]] = [[] for _ in self.names]
        for column, field in self._frame:
            found[column] = [field.field.text(value) for value in field.values(frame)]
        for node in frame.nodes:
            self._of_node(node, found)
        return found

    def _of_node(self, node: Node, found: list[list[str]]) -> None:
        for column, reading in self._headers.get(type(node.header), ()):  # type: ignore[arg-type]
            found[column] += reading(node)
        for field, value in node.extras:
            for column in self._derived.get(field, ()):
                found[column].append(field.text(value))


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, [info.name for info in fields()], 3, 0.6)
    hint = f"; the nearest are {', '.join(near)}" if near else ""
    return f"no field is named {name!r}{hint}; `rdmawire fields` lists them all"
