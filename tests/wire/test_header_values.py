"""Every table refuses, by name, every value that its rows cannot hold, and says what it is."""

from typing import Any

import pytest

from rdmawire.errors import WireError
from rdmawire.wire.header import Header, Row
from rdmawire.wire.inet import IPv4
from rdmawire.wire.tables import tables

TABLES = tables()
NO_NUMBERS: tuple[object, ...] = (None, "7", b"7", 1.0, float("nan"), float("inf"), (), object())
LONG = 1 << 20_000  # Python refuses to write so long a number in base ten


def misfits(row: Row) -> list[Any]:
    """Values of every wrong type and size for this row."""
    if row.is_bytes:
        length = row.width // 8
        sizes = [bytes(length + 1), bytes(length - 1), bytes(length + 100_000)]
        return [*sizes, None, "a" * length, 0, LONG, 1.0, (0,) * length, memoryview(bytes(length))]
    wrong_numbers = [*NO_NUMBERS, 1 << row.width, -1, LONG, -LONG]
    if row.times == 1:
        return wrong_numbers
    others = (0,) * (row.times - 1)
    counts = [others, (*others, 0, 0), (), None, "0" * row.times, 0, (LONG,)]
    return [*((*others, number) for number in wrong_numbers), *counts]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_value_that_does_not_fit_is_an_error_that_names_header_and_row(
    table: type[Header],
) -> None:
    for row in table.rows:
        for value in misfits(row):
            with pytest.raises(WireError, match=rf"^{table.__name__}\.{row.name}: ") as caught:
                table(**{row.name: value}).build()
            assert len(caught.value.reason) < 300


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_the_first_of_many_misfits_is_named(table: type[Header]) -> None:
    values: dict[str, Any] = {row.name: None for row in table.rows}
    with pytest.raises(WireError, match=rf"^{table.__name__}\.{table.rows[0].name}: "):
        table(**values).build()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_row_that_the_table_lacks_is_a_type_error_that_names_both(table: type[Header]) -> None:
    with pytest.raises(TypeError, match=rf"{table.__name__}.*'no_such_row'"):
        table(no_such_row=1)
    with pytest.raises(TypeError, match=f"^{table.__name__} has no row 'no_such_row'$"):
        table().replace(no_such_row=1)


def test_replacing_a_group_says_which_rows_it_is_made_of() -> None:
    with pytest.raises(TypeError, match=r"^IPv4 has no row 'dsfield'; it is made of dscp, ecn$"):
        IPv4().replace(dsfield=1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (LONG, "a number of 20001 bits does not fit 8 bits"),
        (256, "256 does not fit 8 bits (0 to 255)"),
        (-LONG, "a number of 20001 bits does not fit 8 bits"),
        ("a" * 10_000, "takes a number of 8 bits, found str 'aaaaaaaaaaaa...aaaaaaaaaaaaa'"),
        (None, "takes a number of 8 bits, found NoneType None"),
    ],
    ids=["long", "big", "negative", "text", "nothing"],
)
def test_errors_show_what_was_found_in_short(value: Any, said: str) -> None:
    with pytest.raises(WireError) as caught:
        IPv4(ttl=value).build()
    assert caught.value.reason.startswith(f"IPv4.ttl: {said}")
