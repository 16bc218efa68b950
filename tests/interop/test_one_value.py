"""A field has one value, whichever way it is asked for: JSON, `-T fields`, columns, filters."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rdmawire.capture import open_capture
from rdmawire.columns.column import ADDRESSES, Form
from rdmawire.columns.query import Query, notations
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.output import as_object
from rdmawire.filter import Filter
from rdmawire.wire.field_registry import shown_fields
from rdmawire.wire.header import Header
from rdmawire.wire.inet import TCP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.layout import joined
from rdmawire.wire.show import Kind, Show
from tests.captures import CAPTURES, captures_at_once


def in_json(frame: Dissection) -> dict[str, list[Any]]:
    """The values of each field in the JSON of a frame, in the order of the layers."""
    found: dict[str, list[Any]] = {}
    for layer in as_object(frame)["layers"]:
        for name, value in layer["fields"].items():
            found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    return found


@cache
def show_of(name: str) -> Show:
    return notations(name)[0][0]


_NUMBERS: dict[Kind, Callable[[str], int]] = {
    Kind.DIGITS: lambda text: int(text, 16),
    **dict.fromkeys((Kind.DEC, Kind.HEX, Kind.BOOL, Kind.PRESENCE), lambda text: int(text, 0)),
}


def meant(name: str, value: Any) -> object:
    """What a value of JSON, or a text of `-T fields`, means: a number, or text."""
    read = _NUMBERS.get(show_of(name).kind, str)
    return read(value) if isinstance(value, str) else int(value)


_IN_COLUMNS: dict[Form, Callable[[Any], object]] = {
    Form.FLAG: int,
    Form.BYTES: bytes.hex,
    Form.MAC: ADDRESSES[Form.MAC],
    Form.IPV4: ADDRESSES[Form.IPV4],
    Form.IPV6: lambda value: ADDRESSES[Form.IPV6](np.void(value)),
}


def in_columns(query: Query, column: int, value: Any) -> object:
    """What an element of a column means."""
    name, form = query.names[column], query.fields[column].type.form
    return meant(name, value) if form is Form.TEXT else _IN_COLUMNS.get(form, int)(value)


def literal(name: str, text: str) -> str:
    """A text of `-T fields` as a filter writes it."""
    kind = show_of(name).kind
    if kind is Kind.TEXT:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if kind in (Kind.BYTES, Kind.DIGITS):
        return ":".join(text[at : at + 2] for at in range(0, len(text), 2))
    return text


@cache
def is_own(name: str) -> bool:
    """Whether the JSON has a field by this name wherever `-T fields` has it.

    Several headers may go by one name for the sake of filters, such as ``ip.version``.
    """
    return name != "ip.version"


def heads(frame: Dissection, name: str) -> int:
    """Headers in a frame that go by the name of a row of theirs.

    Their bytes come before the row's value in `-T fields`, and are a layer of the JSON.
    """
    found = {type(node.header) for node in frame.nodes if node.header is not None}
    return sum(table.wireshark == name and has_row(table, name) for table in found)


@cache
def has_row(table: type[Header], name: str) -> bool:
    return name in dict(shown_fields(table))


@cache
def query_of(names: tuple[str, ...]) -> Query:
    return Query(names)


def frames(paths: Iterable[Path]) -> Iterator[Dissection]:
    for path in paths:
        with open_capture(path) as reader:
            yield from Dissector().capture(reader)


def check(frame: Dissection, filtered: set[tuple[str, str]]) -> None:
    """Compare all fields of a frame; ``filtered`` are values that a filter was tried with."""
    found = in_json(frame)
    query = query_of(tuple(filter(is_own, found)))
    texts, elements = query.selection.values(frame), query.values(frame)
    for column, name in enumerate(query.names):
        values = [meant(name, value) for value in found[name]]
        where = frame.file, frame.number, name
        assert [meant(name, text) for text in texts[column][heads(frame, name) :]] == values, where
        if elements[column] is not None:  # times beyond what a column holds
            assert in_columns(query, column, elements[column]) == values[0], where
        for text in set(texts[column]):
            if (name, text) not in filtered:
                filtered.add((name, text))
                assert Filter(f"{name} == {literal(name, text)}")(frame), (*where, text)


@captures_at_once()
def test_all_ways_give_one_value(paths: list[Path]) -> None:
    filtered: set[tuple[str, str]] = set()
    for frame in frames(paths):
        check(frame, filtered)
    assert len(filtered) > 100


def test_lengths_that_headers_count_in_words_are_bytes_everywhere() -> None:
    ip = IPv4(ihl=6, fragment_offset=3, protocol=IPProtocol.TCP, total_length=44)
    whole = ip.replace(fragment_offset=0)
    for network, wanted in ((whole, [24, 0, 20]), (ip, [24, 3])):
        data = joined(Ethernet(type=EtherType.IPV4), network, b"\1\1\1\0", TCP(data_offset=5))
        frame = Dissector().dissect(data)
        found = in_json(frame)
        names = ("ip.hdr_len", "ip.frag_offset", "tcp.hdr_len")
        assert [value for name in names for value in found.get(name, [])] == wanted
        check(frame, set())


def test_bytes_that_are_text_are_bytes_with_a_word() -> None:
    """As in `-T fields`, columns and filters, and as tshark has them."""
    (frame,) = (
        frame
        for frame in frames([CAPTURES / "linux" / "siw61_rping.pcap"])
        if "iwarp_mpa.key.req" in in_json(frame)
    )
    (layer,) = (each for each in as_object(frame)["layers"] if each["name"] == "mpa_request")
    assert layer["fields"]["iwarp_mpa.key.req"] == b"MPA ID Req Frame".hex()
    assert layer["words"]["iwarp_mpa.key.req"] == "MPA ID Req Frame"
