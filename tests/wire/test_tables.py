"""The list of all header tables: nothing of the package is left out of it."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from rdmawire import wire
from rdmawire.wire.field_registry import find
from rdmawire.wire.header import Header, bits
from rdmawire.wire.tables import cached_by_tables, known_headers, tables


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


def test_labels_of_tables_are_unique() -> None:
    """Labels name nodes, and rows that Wireshark has no name for."""
    labels: dict[str, list[str]] = {}
    for table in tables():
        labels.setdefault(table.label, []).append(table.__name__)
    assert {label: names for label, names in labels.items() if len(names) > 1} == {}


def test_a_header_with_the_label_of_another_one_is_refused() -> None:
    class FETH(Header):
        """Another header of this name."""

        tag: int = bits(32)

    class Own(Header, label="own_feth"):
        """A header with a label of its own."""

        tag: int = bits(32)

    message = r"'feth' is the label of FETH in rdmawire.wire.ib: give another"
    with pytest.raises(ValueError, match=message), known_headers(FETH):
        pass
    with known_headers(Own), known_headers(Own):
        assert tables()[-2:] == [Own, Own]
        assert find("own_feth.tag")
    assert not find("own_feth.tag")


def test_results_are_kept_by_the_headers_that_are_known() -> None:
    class One(Header, label="own_one"):
        """A header."""

        tag: int = bits(32)

    class Other(Header, label="own_one"):
        """A header with the same label, elsewhere."""

        number: int = bits(32)

    calls: list[str] = []

    @cached_by_tables
    def last(name: str) -> type[Header]:
        calls.append(name)
        return tables()[-1]

    for _ in range(3):
        for header in (One, Other):
            with known_headers(header):
                assert last("name") is header
        assert last("name") is tables()[-1]
    assert len(calls) == 3


TITLES = {table.__name__: (table.__doc__ or "").strip().split("\n") for table in tables()}
"""The lines of each table's docstring: the first is its title in trees and pages."""


def test_titles_are_sentences_of_one_line() -> None:
    for name, lines in TITLES.items():
        assert lines[0].endswith("."), name
        assert not "".join(lines[1:2]), f"the title of {name} goes on in the next line"


def test_no_two_tables_have_the_same_title() -> None:
    assert len({lines[0] for lines in TITLES.values()}) == len(TITLES)
