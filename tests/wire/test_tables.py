"""The list of all header tables: nothing of the package is left out of it."""

from importlib import import_module
from pkgutil import iter_modules

from rdmawire import wire
from rdmawire.wire.header import Header
from rdmawire.wire.tables import tables


def defined() -> set[type[Header]]:
    """Every table that some module of the package defines, under any name and in any depth."""
    for module in iter_modules(wire.__path__, f"{wire.__name__}."):
        import_module(module.name)
    found, more = set[type[Header]](), [Header]
    while more:
        subclasses = more.pop().__subclasses__()
        more += subclasses
        found |= {table for table in subclasses if table.rows}
    return {table for table in found if table.__module__.startswith(f"{wire.__name__}.")}


def test_every_table_is_listed_once() -> None:
    listed = tables()
    assert len(listed) == len(set(listed))
    assert {table.__qualname__ for table in defined() ^ set(listed)} == set()


def test_labels_tell_tables_apart() -> None:
    """Labels name nodes, and rows that Wireshark has no name for."""
    labels: dict[str, list[str]] = {}
    for table in tables():
        labels.setdefault(table.label, []).append(table.__name__)
    assert {label: names for label, names in labels.items() if len(names) > 1} == {}
