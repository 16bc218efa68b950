"""The tables of management: every bit pattern goes in and comes out; words for numbers."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.wire import mad, smp
from rdmawire.wire.header import Header
from rdmawire.wire.management import (
    ManagementClass,
    class_word,
    rate_words,
    sa_status_words,
    status_words,
    time_words,
)
from rdmawire.wire.tables import MANAGEMENT, tables_of
from tests.effort import examples

TABLES = tables_of(*MANAGEMENT)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_any_bytes_are_a_header_and_the_same_bytes_again(
    table: type[Header], data: st.DataObject
) -> None:
    raw = data.draw(st.binary(min_size=table.SIZE, max_size=table.SIZE))
    header = table.parse(raw)
    assert header.build() == raw
    assert table.parse(header.build()) == header


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_words_exist_for_every_number_or_are_empty(table: type[Header]) -> None:
    for byte in (0x00, 0x01, 0x5A, 0xFF):
        header = table.parse(bytes([byte]) * table.SIZE)
        for row, value in zip(table.rows, header, strict=True):
            assert isinstance(row.meaning_in(header).word(value), str)


def test_every_table_has_a_clause_and_a_name_of_its_own() -> None:
    assert all(table.clause and table.__doc__ for table in TABLES)
    labels = sorted(table.label for table in TABLES)
    assert all(one != other for one, other in pairwise(labels))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_no_two_cases_of_a_row_are_the_same_object(table: type[Header]) -> None:
    for row in table.rows:
        meanings = [id(meaning) for meaning in row.meanings()]
        assert len(meanings) == len(set(meanings)), row.name


# IBA 13.4.7, and 15.2.3 for subnet administration.
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0x0000, ""),
        (0x0001, "busy"),
        (0x0002, "redirection required"),
        (0x0008, "method not supported"),
        (0x001C, "attribute or modifier has an invalid value"),
        (0x0014, "invalid field code 5"),
        (0x0301, "busy, class specific status 3"),
    ],
)
def test_status_words(status: int, words: str) -> None:
    assert status_words(status) == words


def test_status_words_of_subnet_administration() -> None:
    assert sa_status_words(0x0300) == "no records"
    assert sa_status_words(0x0101) == "no resources, busy"
    assert sa_status_words(0xFF00) == "class specific status 255"


@pytest.mark.parametrize(
    ("exponent", "words"),
    [(0, "4.096 us"), (8, "1.049 ms"), (18, "1.074 s"), (20, "4.295 s"), (31, "8796 s")],
)
def test_time_words(exponent: int, words: str) -> None:
    assert time_words(exponent) == words


def test_rate_words() -> None:
    assert [rate_words(code) for code in (2, 3, 16, 24)] == [
        *("2.5 Gb/s", "10 Gb/s", "100 Gb/s", "1200 Gb/s")
    ]
    assert rate_words(0) == rate_words(63) == ""


def test_class_words() -> None:
    assert class_word(0x81) == "SUBN_DIRECTED_ROUTE"
    assert (class_word(0x09), class_word(0x4F)) == ("VENDOR", "VENDOR")
    assert (class_word(0x2F), class_word(0x02)) == ("APPLICATION", "")


def test_width_and_speed_words() -> None:
    assert smp.width_words(0x03) == "1x or 4x"
    assert smp.speed_words(0x07) == "2.5 Gb/s or 5 Gb/s or 10 Gb/s"
    assert smp.width_words(0) == ""


def test_meaning_of_an_attribute_id_is_its_class() -> None:
    row = next(row for row in mad.MAD.rows if row.name == "attribute_id")
    words = {
        mgmt_class: row.meaning_in(mad.MAD(mgmt_class=mgmt_class, attribute_id=0x12)).word(0x12)
        for mgmt_class in (1, 3, 4, 7, 9)
    }
    assert words == {
        ManagementClass.SUBN_LID_ROUTED: "SWITCH_INFO",
        ManagementClass.SUBN_ADM: "PORT_INFO_RECORD",
        ManagementClass.PERF_MGT: "PORT_COUNTERS",
        ManagementClass.COM_MGT: "REJ",
        0x09: "",
    }
    assert {meaning.wireshark for meaning in row.meanings()} == {"infiniband.mad.attributeid"}
