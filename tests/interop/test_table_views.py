# SPDX-License-Identifier: GPL-2.0-only
"""Every header table, whichever way it is read or built: codec, Scapy, Construct and columns agree.

A further view of the tables is a further :class:`View` here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.columns.fast_path import LEAD, bits, bytes_at
from rdmawire.layers.construct import struct
from rdmawire.layers.scapy.layer import layer
from rdmawire.testing.strategies import headers
from rdmawire.wire import header as wire_header
from rdmawire.wire.header import Header
from rdmawire.wire.tables import tables

Values = dict[str, Any]


class View(NamedTuple):
    """A way to read bytes into values of rows, and to build them again."""

    parse: Callable[[type[Header], bytes], Values]
    build: Callable[[type[Header], Values], bytes]


def plain(value: Any) -> Any:
    """A value without what a library wraps it in."""
    if isinstance(value, list | tuple):
        return tuple(int(number) for number in value)
    return value if isinstance(value, bytes) else int(value)


def scapy_parse(table: type[Header], bytes_at: bytes) -> Values:
    pkt = layer(table)(bytes_at)
    return {row.name: plain(pkt.fields[row.name]) for row in table.rows}


def scapy_build(table: type[Header], values: Values) -> bytes:
    bytes_at: bytes = layer(table)(**values).self_build()
    return bytes_at


def construct_parse(table: type[Header], bytes_at: bytes) -> Values:
    found = struct(table).parse(bytes_at)
    return {row.name: plain(found[row.name]) for row in table.rows}


def construct_build(table: type[Header], values: Values) -> bytes:
    bytes_at: bytes = struct(table).build(values)
    return bytes_at


VIEWS = {
    "scapy": View(scapy_parse, scapy_build),
    "construct": View(construct_parse, construct_build),
}


few_examples = settings(max_examples=settings().max_examples // 4)
"""Of each of many tables; several values of each row are among them."""


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.__name__)
@few_examples
@given(data=st.data())
def test_every_view_of_a_table_is_the_codecs(table: type[Header], data: st.DataObject) -> None:
    header = data.draw(headers(table))
    values = {row.name: plain(getattr(header, row.name)) for row in table.rows}
    for name, view in VIEWS.items():
        assert view.parse(table, header.build()) == values, name
        assert view.build(table, values) == header.build(), name


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.__name__)
@few_examples
@given(data=st.data())
def test_columns_read_the_rows_of_many_headers_as_the_codec_does(
    table: type[Header], data: st.DataObject
) -> None:
    found = data.draw(st.lists(headers(table), min_size=1, max_size=4))
    lead = bytes(LEAD)
    matrix = np.frombuffer(b"".join(lead + header.build() + lead for header in found), np.uint8)
    frames = matrix.reshape(len(found), -1)
    for row in table.rows:
        if row.times > 1 or (row.width > 64 and row.width % 8):
            continue
        wanted = [getattr(header, row.name) for header in found]
        if row.width > 64:
            column = bytes_at(frames, row.bit // 8, row.width // 8).tolist()
        else:
            column = bits(row.bit, row.width).read(frames).tolist()
            if row.is_bytes:
                column = [number.to_bytes(row.width // 8, "big") for number in column]
        assert column == wanted, row.name


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.__name__)
def test_what_is_left_out_has_the_tables_default(table: type[Header]) -> None:
    assert struct(table).build({}) == table().build()
    worked_out = {field.name for field in layer(table).fields_desc if field.default is None}
    given_here = {row.name: row.default for row in table.rows if row.name in worked_out}
    assert layer(table)(**given_here).self_build() == table().build()


@pytest.mark.parametrize("make", [struct, layer])
def test_little_endian_tables_have_their_codec_alone(make: Callable[[type[Header]], Any]) -> None:
    class Little(Header, order="little"):
        """A number whose first byte is the lowest."""

        number: int = wire_header.bits(16)

    assert Little.parse(b"\1\0") == Little(1)
    with pytest.raises(TypeError, match="Little is little-endian"):
        make(Little)
