"""The first line of a table's docstring is its title in trees and pages: it must stand alone."""

from rdmawire.wire.tables import tables

TITLES = {table.__name__: (table.__doc__ or "").strip().split("\n") for table in tables()}


def test_titles_are_sentences_of_one_line() -> None:
    for name, lines in TITLES.items():
        assert lines[0].endswith("."), name
        assert not "".join(lines[1:2]), f"the title of {name} goes on in the next line"


def test_no_two_tables_have_the_same_title() -> None:
    assert len({lines[0] for lines in TITLES.values()}) == len(TITLES)
