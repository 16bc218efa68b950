"""Header tables: codecs, errors, groups and choices."""

import inspect
import pickle
from collections import namedtuple
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import headers
from rdmawire.wire import ib, inet
from rdmawire.wire.codec import fused, reader
from rdmawire.wire.header import Header, HeaderMeta, bits, group, raw
from rdmawire.wire.management import ClassPortInfo
from rdmawire.wire.tables import tables
from tests.effort import examples

TABLES = tables()


class Mixed(Header):
    """Everything a row can be: arrays, odd widths, bytes."""

    nibbles: tuple[int, ...] = bits(4, times=16)
    shorts: tuple[int, ...] = bits(16, times=3)
    key: bytes = raw(3)
    upper: int = bits(24)
    lower: int = bits(40)
    both: int = group("", "three", "five")
    three: int = bits(3)
    five: int = bits(5)


def shift_and_mask(table: type[Header], raw: bytes) -> list[object]:
    """The slow reading of a table that the generated codecs must agree with."""
    number, total = int.from_bytes(raw[: table.SIZE], "big"), table.SIZE * 8
    found: list[object] = []
    for row in table.rows:
        parts = [
            number >> total - row.bit - row.width * (i + 1) & (1 << row.width) - 1
            for i in range(row.times)
        ]
        value = parts[0].to_bytes(row.width // 8, "big") if row.is_bytes else parts[0]
        found.append(tuple(parts) if row.times > 1 else value)
    return found


@pytest.mark.parametrize("table", [*TABLES, Mixed], ids=lambda table: table.__name__)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_generated_codec_reads_what_shift_and_mask_reads(
    table: type[Header], data: st.DataObject
) -> None:
    before = data.draw(st.binary(max_size=5))
    raw = data.draw(st.binary(min_size=table.SIZE, max_size=table.SIZE + 3))
    header = table.parse(before + raw, len(before))
    assert list(header) == shift_and_mask(table, raw)
    assert header.build() == raw[: table.SIZE]


@pytest.mark.parametrize("table", [*TABLES, Mixed], ids=lambda table: table.__name__)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_parse_is_the_inverse_of_build(table: type[Header], data: st.DataObject) -> None:
    header = data.draw(headers(table))
    assert table.parse(header.build()) == header
    assert bytes(header) == header.build()


@pytest.mark.parametrize("table", [*TABLES, Mixed], ids=lambda table: table.__name__)
def test_every_shorter_buffer_is_a_wire_error(table: type[Header]) -> None:
    for length in range(table.SIZE):
        with pytest.raises(WireError, match=f"takes {table.SIZE} bytes?, {length} are left"):
            table.parse(bytes(length))


@pytest.mark.parametrize("table", [*TABLES, Mixed], ids=lambda table: table.__name__)
def test_a_value_too_big_for_its_field_is_an_error_that_names_the_field(
    table: type[Header],
) -> None:
    for row in table.rows:
        wrong: list[object] = ["text", None]
        if row.is_bytes:
            wrong += [bytes(row.width // 8 + 1), bytes(row.width // 8 - 1), 5]
        elif row.times > 1:
            wrong += [(0,), (*(0,) * (row.times - 1), 1 << row.width), (-1,) * row.times]
        else:
            wrong += [1 << row.width, -1, 0.5]
        for value in wrong:
            header = table()._replace(**{row.name: value})  # type: ignore[arg-type]
            with pytest.raises(WireError, match=rf"{table.__name__}\.{row.name}: "):
                header.build()


def test_error_says_what_was_found_and_what_is_allowed() -> None:
    with pytest.raises(WireError, match=r"^BTH.psn: 16777216 does not fit 24 bits \(0 to 167772"):
        ib.BTH(psn=1 << 24).build()


def test_rows_left_out_keep_their_defaults() -> None:
    assert ib.BTH(opcode=4) == ib.BTH.parse(bytes.fromhex("0400ffff0000000000000000"))


def test_headers_of_different_tables_are_never_equal() -> None:
    assert ib.RDETH(0, 5) != ib.XRCETH(0, 5)
    assert ib.RDETH(0, 5) == ib.RDETH(0, 5)
    assert len({ib.RDETH(0, 5), ib.XRCETH(0, 5), ib.RDETH(0, 5)}) == 2


def test_headers_cannot_be_changed() -> None:
    header = ib.RDETH(0, 5)
    with pytest.raises(AttributeError):
        header.eecnxt = 6
    assert header.replace(eecnxt=6) == ib.RDETH(0, 6)


@given(headers(inet.IPv4))
def test_a_group_is_its_members_side_by_side(ip: inet.IPv4) -> None:
    assert ip.dsfield == ip.build()[1]
    assert ip.flags == ip.build()[6] >> 5


def test_a_table_begins_with_the_rows_of_its_abstract_base() -> None:
    class Start(Header, abstract=True):
        kind: int = bits(4)
        size: int = bits(4)
        both: int = group("", "kind", ..., "size")

    class Whole(Start):
        kind: int = bits(4, default=7)
        length: int = bits(8)

    assert Whole(size=1, length=2).build() == b"\x71\x02"
    assert Whole.parse(b"\x71\x02").both == 0x71
    assert not Start.rows


def test_a_codec_is_compiled_once_at_its_first_use() -> None:
    class Lone(Header):
        number: int = bits(16)

    class Derived(Lone): ...

    assert (Lone.SIZE, Derived(7).build()) == (2, b"\0\7")
    assert Lone.parse is Lone.parse
    assert Lone.build is Derived.build
    assert Derived.parse(b"\0\7") == Lone(7)


USES: list[Callable[[Any], object]] = [
    lambda cls: repr(cls()),
    lambda cls: cls()._asdict(),
    lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__),
    inspect.signature,
    lambda cls: [getattr(cls._make(range(len(cls._fields))), name) for name in cls._fields],
    lambda cls: cls()._replace(**{cls._fields[-1]: 7}),
    lambda cls: cls()._replace(nothing=7),
    lambda cls: cls._make([1] * 99),
    lambda cls: cls(nothing=7),
    lambda cls: cls(*[1] * 99),
]


@pytest.mark.parametrize("table", [*TABLES, Mixed], ids=lambda table: table.__name__)
def test_a_header_is_a_named_tuple(table: type[Header]) -> None:
    defaults = {row.name: row.default for row in table.rows}
    named = namedtuple(table.__name__, defaults, defaults=defaults.values())  # type: ignore[misc]  # noqa: PYI024
    for use in USES:
        assert _outcome(use, table) == _outcome(use, named)


def _outcome(use: Callable[[Any], object], cls: type) -> tuple[object, str]:
    """Return the result as a tuple if it is one, or the type and the text of an error."""
    try:
        result = use(cls)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return (tuple(result) if isinstance(result, tuple) else result), ""


def test_a_header_is_copied_and_pickled() -> None:
    header = ib.RDETH(1, 5)
    assert copy(header) == header == pickle.loads(pickle.dumps(header))


@pytest.mark.parametrize("name", ["class", "_kind", "a b"])
def test_a_row_is_named_as_an_attribute(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        HeaderMeta("Wrong", (Header,), {name: bits(8)})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"a": bits(3)}, "3 bits"),
        ({"a": bits(4), "b": raw(2), "c": bits(4)}, "Wrong.c: no word"),
        ({"a": bits(4), "b": bits(64), "c": bits(4)}, "Wrong.c: no word"),
        ({"a": bits(8), "b": bits(8), "g": group("", "b", "a")}, "order"),
        ({"a": bits(8), "b": bits(8), "g": group("", "b", ..., "a")}, "order"),
        ({"a": bits(8), "b": bits(8), "g": group("", "a", ..., "c")}, "order"),
        ({"a": bits(8), "b": bits(8), "c": bits(8), "g": group("", "a", "c")}, "neighbours"),
    ],
)
def test_a_table_that_makes_no_header_is_refused(body: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        HeaderMeta("Wrong", (Header,), body)


STACKS = [
    (inet.Ethernet, inet.IPv4, inet.UDP, ib.BTH),
    (inet.Ethernet, inet.IPv6, inet.UDP, ib.BTH, ib.RETH, ib.ImmDt),
    (ib.LRH, ib.GRH, ib.BTH, Mixed, ib.AETH, ib.AtomicAckETH),
]


@pytest.mark.parametrize("tables", STACKS, ids=lambda tables: "+".join(t.__name__ for t in tables))
@given(data=st.data())
def test_fused_headers_are_those_parsed_one_by_one(
    tables: tuple[type[Header], ...], data: st.DataObject
) -> None:
    size = sum(table.SIZE for table in tables)
    raw = data.draw(st.binary(min_size=size + 2, max_size=size + 2))
    offset, expected = 1, []
    for table in tables:
        expected.append(table.parse(raw, offset))
        offset += table.SIZE
    assert fused(*tables)(raw, 1) == tuple(expected)
    first, rest = fused(tables[:1], tables[1:])(raw, 1)
    assert first + rest == tuple(expected)
    with pytest.raises(WireError):
        fused(*tables)(raw, 3)


@pytest.mark.parametrize("table", [ib.BTH, ib.LRH, inet.TCP, Mixed], ids=lambda t: t.__name__)
@given(data=st.data())
def test_a_reader_gives_the_values_of_the_rows_asked_for(
    table: type[Header], data: st.DataObject
) -> None:
    names = data.draw(
        st.lists(st.sampled_from([r.name for r in table.rows]), min_size=1, unique=True)
    )
    header = data.draw(headers(table))
    expected = tuple(getattr(header, name) for name in names)
    found = reader(table, *names)(b"\xff" + header.build(), 1)
    assert found == (expected if len(names) > 1 else expected[0])


def test_a_field_that_the_table_lacks_has_no_word() -> None:
    with pytest.raises(WireError, match="BTH has no field 'psm'"):
        ib.BTH().word("psm")


@pytest.mark.parametrize("value", [1 << 24, 10**100, -1, "x"])
def test_a_value_that_does_not_fit_has_no_word(value: int) -> None:
    assert ib.AETH(ack=ib.Ack.RNR_NAK, value=value).word("value") == ""
    assert ClassPortInfo(resp_time_value=value).word("resp_time_value") == ""


@pytest.mark.parametrize(
    ("offset", "left"), [(-1, 1), (-21, 0), (-(10**30), 0), (10**30, 0), (-1 << 99, 0)]
)
def test_no_header_stands_at_an_offset_outside_the_buffer(offset: int, left: int) -> None:
    with pytest.raises(WireError, match=f"BTH takes 12 bytes, {left} are left"):
        ib.BTH.parse(bytes(20), offset)


@pytest.mark.parametrize(
    ("table", "names", "reason"),
    [
        (ib.BTH, (), "found HeaderMeta <class 'rdmawire.wire.ib.BTH'>, no rows"),
        (None, ("psn",), "found NoneType None, 'psn'"),
    ],
)
def test_a_reader_needs_a_table_and_rows(
    table: object, names: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(WireError, match=reason):
        reader(table, *names)


def test_a_reader_refuses_a_field_that_the_table_lacks() -> None:
    with pytest.raises(WireError, match="BTH has no field 'psm'"):
        reader(ib.BTH, "psm")
