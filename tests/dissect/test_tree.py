"""The fields of a node, as trees and JSON show them."""

import pytest

from rdmawire.dissect import generated
from rdmawire.dissect.node import Node
from rdmawire.dissect.tree import Item, items
from rdmawire.wire import ib, inet, mad
from rdmawire.wire.header import Header, bits, flag, group, raw
from rdmawire.wire.show import HEX, IPV4, scaled


class Sample(Header, label="sample"):
    """Rows of each kind, some of them in a group."""

    both: int = group("sample.both", "upper", "lower", show=HEX)
    upper: int = bits(3, "sample.upper", HEX)
    lower: int = bits(4)
    flag: int = flag("sample.flag")
    length: int = bits(8, "sample.length", scaled(4))
    address: bytes = raw(4, "sample.address", IPV4)
    times: tuple[int, ...] = bits(8, "sample.times", times=3)
    wide: int = bits(24, "sample.wide", HEX)


SAMPLE = Sample(5, 9, 1, 6, b"\x0a\0\0\1", (1, 2, 3), 0xAB)


def found(header: Header, offset: int = 100) -> dict[str, Item]:
    node = Node(type(header).label, offset, header.build(), header)
    return {item.title: item for item in items(node)}


@pytest.mark.parametrize(
    ("title", "known", "place"),
    [
        ("both", ("sample.both", 0x59, "0x59"), (100, 0)),
        ("upper", ("sample.upper", 5, "0x05"), (100, 1)),
        ("lower", ("rdmawire.sample.lower", 9, "9"), (100, 1)),
        ("flag", ("sample.flag", 1, "set"), (100, 0)),
        ("length", ("sample.length", 6, "6 (24 bytes)"), (101, 0)),
        ("address", ("sample.address", b"\x0a\0\0\1", "10.0.0.1"), (102, 0)),
        ("times", ("sample.times", (1, 2, 3), "1,2,3"), (106, 0)),
        ("wide", ("sample.wide", 0xAB, "0x0000ab"), (109, 0)),
    ],
)
def test_a_row_is_an_item(
    title: str, known: tuple[str, object, str], place: tuple[int, int]
) -> None:
    item = found(SAMPLE)[title]
    assert (item.name, item.value, item.text) == known
    assert (item.offset, item.depth) == place


def test_rows_keep_their_order_with_groups_before_their_members() -> None:
    assert list(found(SAMPLE)) == [
        *("both", "upper", "lower", "flag", "length", "address", "times", "wide")
    ]


def test_a_clear_flag_is_shown_as_not_set() -> None:
    assert found(Sample())["flag"].text == "not set"


@pytest.mark.parametrize(
    ("header", "title", "word"),
    [
        (ib.BTH(opcode=17), "opcode", "RC_ACKNOWLEDGE"),
        (ib.AETH(ack=1, value=14), "value", "1.28 ms"),
        (ib.AETH(ack=3, value=1), "value", "INVALID_REQUEST"),
        (ib.AETH(ack=3, value=31), "value", ""),
        (ib.BTH(), "psn", ""),
        (inet.IPv4(protocol=17), "protocol", "UDP"),
        (inet.IPv4(protocol=200), "protocol", ""),
    ],
)
def test_numbers_have_words(header: Header, title: str, word: str) -> None:
    assert found(header)[title].word == word


@pytest.mark.parametrize(
    ("header", "title", "name"),
    [
        (ib.AETH(ack=0), "value", "infiniband.aeth.syndrome.credit_count"),
        (ib.AETH(ack=1), "value", "infiniband.aeth.syndrome.timer"),
        (ib.AETH(ack=3), "value", "infiniband.aeth.syndrome.error_code"),
    ],
)
def test_another_row_may_decide_what_a_row_is(header: Header, title: str, name: str) -> None:
    assert found(header)[title].name == name


def test_derived_fields_come_last_and_hidden_ones_not_at_all() -> None:
    header = ib.RDETH(eecnxt=1)
    node = Node("rdeth", 0, header.build(), header)
    node.add(generated.TCP_PAYLOAD, b"hidden")
    node.add(generated.IP_CHECKSUM_STATUS, generated.BAD)
    node.add(generated.MPA_NOTE, "a note\n")
    *_, status, note = items(node)
    assert (status.name, status.text, status.word) == ("ip.checksum.status", "0", "bad")
    assert (note.name, note.title, note.text) == (generated.MPA_NOTE.name,) * 2 + (r"a note\n",)
    assert (status.offset, note.offset) == (-1, -1)
    assert generated.TCP_PAYLOAD.name not in {item.name for item in items(node)}


def test_bytes_without_a_header_have_derived_fields_only() -> None:
    node = Node("payload", 5, b"abc")
    assert list(items(node)) == []
    node.add(generated.PAYLOAD, b"abc")
    assert [item.text for item in items(node)] == ["616263"]


def test_a_number_beyond_its_words_has_none() -> None:
    assert generated.IP_CHECKSUM_STATUS.word(4) == "zero, which IPv6 leaves to tunnels"
    assert generated.IP_CHECKSUM_STATUS.word(5) == ""
    assert generated.TCP_LENGTH.word(0) == ""


def test_a_node_gives_the_values_beside_it() -> None:
    node = Node("mad", 0, b"", mad.MAD())
    assert node.extra(generated.PAYLOAD) is None
    node.add(generated.PAYLOAD, b"one")
    node.add(generated.PAYLOAD, b"two")
    assert node.extra(generated.PAYLOAD) == b"one"
