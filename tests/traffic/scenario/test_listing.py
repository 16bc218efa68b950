"""What `rdmawire run --keys` has to tell."""

from rdmawire.traffic.scenario.form.record import records_in
from rdmawire.traffic.scenario.listing import Listed, listed_rows
from rdmawire.traffic.scenario.schema.whole import SCENARIO

ROWS = list(listed_rows())


def test_every_key_counter_and_word_is_listed_once() -> None:
    assert len(ROWS) == len({(row.of, row.name) for row in ROWS})
    names = {row.name for row in ROWS}
    assert {key for record in records_in(SCENARIO) for key in record.keys} <= names
    assert {"kmin", "rate_timer", "marks_3", "RETRY_EXC_ERR"} <= names
    assert all(row.help for row in ROWS if not row.of.startswith(("events", "endings")))


def test_a_row_is_found_by_its_name_or_by_what_it_is_of() -> None:
    row = Listed("a queue", "kmin")
    assert row.has("queue")
    assert row.has("KMIN")
    assert not row.has("xoff")
    assert next(one for one in ROWS if one.name == "kmin").help.startswith("The octets from which")
