"""Whatever the bytes: a scenario, or the error that lists its mistakes, and nothing else."""

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.traffic.scenario.document import MAX_MISTAKES
from rdmawire.traffic.scenario.model import homes
from rdmawire.traffic.scenario.model.step import VERBS
from tests.effort import examples
from tests.traffic.scenario.base import base, errors_of, mistakes_of, noded

EVERYTHING = Path(__file__).with_name("everything.yaml").read_text()
SHORTEST = Path(__file__).with_name("shortest.yaml").read_text()


@given(st.text(max_size=200) | st.binary(max_size=200))
@settings(max_examples=examples(80))
def test_any_text(text: str | bytes) -> None:
    assert mistakes_of(text)


WORDS = sorted({*homes(), *VERBS, "client", "server", "a", "client/a", "client.source", "8 KiB"})
SIGNS = ["\n", "\n  ", "\n    ", "\n  - ", ": ", ": {", "}", "[", "]", ", ", " ", "#", "&a ", "*a"]


@given(st.lists(st.sampled_from(WORDS) | st.sampled_from(SIGNS), max_size=60))
@settings(max_examples=examples(80))
def test_words_of_the_language_in_any_order(words: list[str]) -> None:
    assert len(mistakes_of("".join(words))) <= MAX_MISTAKES


def test_names_that_cannot_be_printed_are_escaped_where_they_are_listed() -> None:
    text = EVERYTHING.replace("  client:", "  \U00018cd6client:", 1)
    told = [str(mistake) for mistake in mistakes_of(text)]
    assert any(": \\U00018cd6client, server, leaf" in one for one in told)
    assert all(one.isprintable() for one in told)


@given(st.data())
@settings(max_examples=examples(50))
def test_scenarios_with_something_changed(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([SHORTEST, EVERYTHING[:1200]]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        end = place + data.draw(st.integers(0, 6))
        new = data.draw(st.sampled_from([*SIGNS, *WORDS]) | st.text(max_size=3))
        text = text[:place] + new + text[end:]
    for mistake in mistakes_of(text):
        assert str(mistake).isprintable()


def mark_gone(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a document."""
    found = [place] if place else []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    if isinstance(document, dict | list):
        for key, value in items:
            found += mark_gone(value, (*place, key))
    return found


LEAVES = mark_gone(base())
VALUES = st.recursive(
    st.sampled_from(WORDS)
    | st.sampled_from(["", "0", "-1", "99999999", "1..", "3 us", "..", "none"]),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(WORDS), values, max_size=3)
    ),
    max_leaves=5,
)


def put(document: Any, place: tuple[Any, ...], value: Any) -> None:
    """Put a value in a place, if there is such a place still."""
    for step in place[:-1]:
        document = document[step]
    if document[place[-1]] != value:
        document[place[-1]] = value


@given(st.lists(st.tuples(st.sampled_from(LEAVES), VALUES), min_size=1, max_size=4))
@settings(max_examples=examples(50))
def test_values_in_the_place_of_others(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = base()
    for place, value in changes:
        with suppress(LookupError, TypeError):
            put(document, place, value)
    for mistake in errors_of(noded(document, count(1))):
        assert mistake.mark is not None
        assert mistake.found
        assert mistake.expected
