"""The rows of `rdmawire run --keys`."""

from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import SCHEMES
from rdmawire.traffic.scenario.reader import Listed, listed_rows
from rdmawire.traffic.scenario.section import sections_in

ROWS = list(listed_rows())


def test_every_key_counter_and_word_is_listed_once() -> None:
    assert len(ROWS) == len({(row.of, row.name) for row in ROWS})
    names = {row.name for row in ROWS}
    assert {key for section in sections_in(Scenario) for key in [*section.keys()]} <= names
    assert {"kmin", "rate_timer", "marks_3", "RETRY_EXC_ERR"} <= names
    assert all(row.help for row in ROWS if not row.of.startswith(("events", "completion")))


def test_a_row_is_found_by_its_name_or_by_what_it_is_of() -> None:
    row = Listed("a queue", "kmin")
    assert row.has("queue")
    assert row.has("KMIN")
    assert not row.has("xoff")
    assert next(one for one in ROWS if one.name == "kmin").help.startswith("Queue length")


def test_a_row_says_whether_a_key_is_required_or_has_a_default() -> None:
    said = {(row.of, row.name): row.line for row in ROWS}
    assert said["memory", "size"].endswith("(required)")
    assert said["a link", "latency"].endswith("(default: 1 us)")
    assert said["packets", "on"].endswith("[the name of a link]")
    assert {said[f"the scheme {name}", "line_rate"].rpartition("(")[2] for name in SCHEMES} == {
        "default: 40 Gbit/s)",
        "default: 10 Gbit/s)",
    }
