"""Readers, and areas that they fill in part."""

from typing import Any

import pytest

from rdmawire.errors import WireError
from rdmawire.wire.layout import Placed, area, chain, joined, plain, size, tables
from rdmawire.wire.smp import PKeyEntry, VLArbitrationEntry

BYTES = bytes(range(20))


def test_tables_stand_one_behind_the_other() -> None:
    found = list(tables(PKeyEntry, VLArbitrationEntry)(BYTES, 3))
    assert found == [(3, PKeyEntry(0, 0x0304)), (5, VLArbitrationEntry(0, 5, 6))]


def test_chain_goes_on_where_a_reader_ended() -> None:
    found = list(chain(tables(PKeyEntry), plain, tables(PKeyEntry))(BYTES, 0))
    assert [offset for offset, _ in found] == [0, 2]


def test_an_area_gives_what_its_reader_leaves_as_bytes() -> None:
    found = list(area(BYTES, 4, 6, tables(PKeyEntry)))
    assert found == [(4, PKeyEntry(0, 0x0405)), (6, BYTES[6:10])]
    assert list(area(BYTES, 4, 2, tables(PKeyEntry))) == found[:1]
    assert list(area(BYTES, 4, 0, plain)) == []


def test_a_reader_sees_nothing_behind_its_area() -> None:
    with pytest.raises(WireError, match="takes 2 bytes, 1 are left") as raised:
        list(area(BYTES, 4, 3, tables(PKeyEntry, PKeyEntry)))
    assert raised.value.offset == 6


def test_an_area_that_the_buffer_cuts_gives_what_is_there_then_an_error() -> None:
    found: list[Placed] = []
    with pytest.raises(WireError, match="8 bytes belong here, 4 are there") as raised:
        found.extend(area(BYTES, 16, 8, tables(PKeyEntry)))
    assert found == [(16, PKeyEntry(0, 0x1011)), (18, BYTES[18:])]
    assert raised.value.offset == 20


def test_joined_pieces_are_their_bytes() -> None:
    assert joined(PKeyEntry(1, 2), b"abc", PKeyEntry(0, 1)) == b"\x80\x02abc\x00\x01"
    assert (size(b"abc"), size(PKeyEntry())) == (3, 2)


def test_what_is_no_piece_cannot_be_joined() -> None:
    wrong: Any = bytearray(b"abc")
    with pytest.raises(WireError, match=r"^a header or bytes belong here, found bytearray"):
        joined(PKeyEntry(1, 2), wrong)
